"""The segment store: partitions as directories of segments, byte for byte as Apache Kafka lays them out.

The rule: the package is synchronous and does not use Trio. Only `disk` touches the file system; `format`, `producers`,
`epochs`, `recovery` and `retention` are pure.
"""
