"""The coordinators side by side with Apache Kafka, state by state."""
