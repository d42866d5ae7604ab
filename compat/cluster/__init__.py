"""Clusters of Apache Kafka 3.9 and our brokers in any mix on one ZooKeeper, and what must hold in each of them."""
