"""Produce an Avro record whose schema the registry keeps: `python schema_producer.py localhost:9092 http://localhost:8081`."""

import sys

from confluent_kafka import SerializingProducer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer

ORDER = '{"type": "record", "name": "Order", "fields": [{"name": "number", "type": "int"}]}'

bootstrap, registry = sys.argv[1:]
serializer = AvroSerializer(SchemaRegistryClient({"url": registry}), ORDER)
producer = SerializingProducer({"bootstrap.servers": bootstrap, "value.serializer": serializer})
producer.produce("orders", value={"number": 7})
print(producer.flush(10))
