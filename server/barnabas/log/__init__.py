"""The segment store: partitions as directories of segments, byte for byte as Apache Kafka lays them out.

The rule: it is synchronous and knows no Trio. Only `disk` touches the file system; `format`, `producers`,
`epochs`, `recovery` and `retention` are pure.
"""
