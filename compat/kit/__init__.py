"""Shared parts of the comparisons with Apache Kafka: raw requests to any broker, and answers side by side.

The rule: nothing of the broker under test is imported; the wire is read from the schemas by a second, plain reading.
"""
