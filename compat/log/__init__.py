"""Kafka's `DumpLogSegments` and `barnabas log dump`, side by side on the same files."""
