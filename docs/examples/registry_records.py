"""Read records by the registry's schemas: `python registry_records.py localhost:9092 http://localhost:8081`."""

import sys

import trio

from barnabas.client import ConsumerSettings, open_consumer
from barnabas.registry.client import RegistryClient
from barnabas.registry.decoding import Deserializer
from barnabas.sandbox.pool import Sandbox


async def main(bootstrap, registry):
    settings = ConsumerSettings(offset_reset="earliest")
    async with Sandbox() as sandbox, open_consumer(bootstrap, settings=settings) as consumer:
        deserializer = Deserializer(RegistryClient(registry), sandbox)
        consumer.assign([("orders", 0)])
        record = await consumer.receive()
        decoded = await deserializer.decode(record.value)  # None without a schema
        print(decoded.format, decoded.schema_id, decoded.value)
        [shown] = await deserializer.decode_many([record.value], chars_max=1_000)
        print(shown.text)  # JSON, cut after so many characters, or the error


trio.run(main, *sys.argv[1:])
