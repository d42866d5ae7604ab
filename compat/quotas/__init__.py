"""Client quotas compared with Apache Kafka: what the APIs answer, and what clients are allowed."""
