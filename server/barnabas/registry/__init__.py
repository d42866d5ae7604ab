"""Schemas of records: a registry for Confluent's clients, stored in a topic, with serializers and deserializers.

The rule: nothing here depends on the broker's own modules, so the registry works with any Kafka. Modules are imported
when a registry is first needed.
"""
