"""Loads of topics into Iceberg tables side by side: Spark's Kafka connector, Iceberg's sink for Kafka Connect, ours."""
