"""Groups of Kafka Streams applications (KIP-1071): the coordinator sizes the topology and assigns its tasks. Pure."""
