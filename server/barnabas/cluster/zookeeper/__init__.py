"""Cluster metadata in ZooKeeper, in Apache Kafka's layout of znodes."""
