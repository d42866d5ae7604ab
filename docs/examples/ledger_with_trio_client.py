"""Save the payments of a topic, each once, read by the Trio client."""

import sys

import trio
from ledger import Ledger

from barnabas.client import ConsumerSettings, open_consumer


async def main(bootstrap, path):
    ledger = Ledger(path)
    settings = ConsumerSettings(offset_reset="earliest", isolation="read_committed")
    async with open_consumer(bootstrap, settings=settings) as consumer:
        partitions = await consumer.partitions("payments")
        consumer.assign([("payments", partition) for partition in partitions])
        for partition in partitions:
            consumer.seek(("payments", partition), ledger.next_offset(partition))
        while True:
            records = [(r.partition, r.offset, r.value) for r in await consumer.receive_batch()]
            await trio.to_thread.run_sync(ledger.save, records)


trio.run(main, *sys.argv[1:])
