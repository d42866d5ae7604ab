"""Making, describing, growing and deleting topics, compared with Apache Kafka."""
