"""Mixed clusters of Apache Kafka 3.9 and our brokers on one ZooKeeper, and the guarantees of each."""
