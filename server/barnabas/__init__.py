"""Barnabas: a broker that speaks Apache Kafka's wire protocol, written in Python on Trio."""

__version__ = "0.1.0"
