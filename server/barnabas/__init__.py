"""Barnabas: a broker that speaks Apache Kafka's wire protocol, written in Python on Trio."""

from barnabas import compiled as compiled  # before anything that may be compiled is imported

__version__ = "0.1.0"
