"""Produce four records and consume them in a group."""

import trio

from barnabas.client import ConsumerSettings, open_consumer, open_producer
from barnabas.testing import RunningBroker


async def main():
    async with RunningBroker() as broker:
        async with open_producer(broker.bootstrap) as producer:
            for n in range(3):
                await producer.send("events", b"event %d" % n, key=b"k")
            delivery = await producer.send("events", b"last", headers={"trace": b"7"})
            print((await delivery.wait()).offset)

        settings = ConsumerSettings(group_id="readers", offset_reset="earliest")
        async with open_consumer(broker.bootstrap, "events", settings=settings) as consumer:
            async for record in consumer:
                print(record.offset, record.value)
                if record.value == b"last":
                    break


trio.run(main)
