"""The metadata log of Apache Kafka, read by Kafka's own tools and by ours."""
