"""Kafka Streams applications of the streams protocol (KIP-1071), side by side on Apache Kafka and on Barnabas."""
