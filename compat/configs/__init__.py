"""How settings are described and changed, compared with Apache Kafka."""
