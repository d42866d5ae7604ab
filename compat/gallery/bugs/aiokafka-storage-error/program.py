"""A producer that meets a disk which fails for a moment."""

import asyncio

from aiokafka import AIOKafkaProducer
from gallery import bootstrap, not_shown, shown


async def main():
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
    await producer.start()
    try:
        sent = await asyncio.wait_for(producer.send_and_wait("orders", b"x"), 40)
    except Exception as error:
        shown(f"the record failed: {type(error).__name__}: {error}")
    not_shown(f"the record is delivered, at offset {sent.offset}")


asyncio.run(main())
