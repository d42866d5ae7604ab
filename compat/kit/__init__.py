"""Shared parts of the comparisons with Apache Kafka: raw requests to any broker, and comparison of responses.

The rule: no module of the broker under test is imported; messages are decoded by the schemas with a second, plain codec.
"""
