"""Schemas of records: a registry that Confluent's clients use, kept in a topic, and what reads records by it.

The rule: nothing here knows a broker from the inside; a registry of any Kafka is the same one. Nothing is imported before a
registry is asked for.
"""
