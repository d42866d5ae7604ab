"""Python's Kafka clients side by side: the Trio client of this project, aiokafka, confluent-kafka."""
