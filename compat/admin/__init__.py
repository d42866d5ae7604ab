"""How topics are made, described, grown and deleted, compared with Apache Kafka."""
