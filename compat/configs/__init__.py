"""Describing and changing settings, compared with Apache Kafka."""
