"""The console's page of Kafka Connect, by a worker of Apache Kafka's own beside our broker."""
