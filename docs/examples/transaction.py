"""Consume, transform and produce in one transaction."""

import trio

from barnabas.client import ConsumerSettings, ProducerSettings, open_consumer, open_producer
from barnabas.testing import RunningBroker


async def main():
    async with RunningBroker() as broker:
        async with open_producer(broker.bootstrap) as producer:
            await producer.send("numbers", b"20")
        reading = ConsumerSettings(group_id="doubling", offset_reset="earliest", is_auto_committing=False)
        writing = ProducerSettings(transactional_id="doubling-1")
        async with (
            open_consumer(broker.bootstrap, "numbers", settings=reading) as consumer,
            open_producer(broker.bootstrap, writing) as producer,
        ):
            records = await consumer.receive_batch()
            async with producer.transaction():
                for record in records:
                    await producer.send("doubled", b"%d" % (int(record.value) * 2))
                offsets = {record.topic_partition: record.offset + 1 for record in records}
                await producer.send_offsets(offsets, consumer.group_metadata())

        committed = ConsumerSettings(offset_reset="earliest", isolation="read_committed")
        async with open_consumer(broker.bootstrap, settings=committed) as consumer:
            consumer.assign([("doubled", 0)])
            print((await consumer.receive()).value)


trio.run(main)
