"""Client telemetry (KIP-714), compared with Apache Kafka that has a receiver of clients' metrics."""
