"""One client at one operation, as a process: `python programs.py CLIENT OPERATION BOOTSTRAP TOPIC SIZE COUNT`.

The rule: each client is used as in its documentation, with the same guarantees: acknowledged by all in-sync replicas,
idempotent, checksums checked. The measurement begins once the modules are imported and the client is created, and ends when
the last record is acknowledged, or its value has been read; CPU is that of all threads. The result is a line of JSON.

It needs only its client: each client has a separate environment.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

LINGER_MS, BATCH_BYTES, BATCH_RECORDS = 5, 128 << 10, 500
"""The Trio client's defaults, also used for the others; a call returns up to `BATCH_RECORDS` records."""
WAIT_S = 60


class Run:
    """The work of a client, and the clocks beside it."""

    def __init__(self, bootstrap: str, topic: str, size: int, count: int) -> None:
        self.bootstrap, self.topic, self.size, self.count = bootstrap, topic, size, count
        self.value = b"x" * size
        self.cpu_s = self.wall_s = 0.0

    def begin(self) -> None:
        """Start the clocks."""
        self.cpu_s, self.wall_s = _cpu_s(), time.perf_counter()

    def end(self, read_bytes: int | None = None) -> None:
        """Stop the clocks; a consumer passes the number of bytes that it has read."""
        self.cpu_s, self.wall_s = _cpu_s() - self.cpu_s, time.perf_counter() - self.wall_s
        if read_bytes is not None and read_bytes != self.count * self.size:
            raise RuntimeError(f"read {read_bytes} bytes of {self.count * self.size}")


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def barnabas(operation: str, run: Run) -> str:
    """`barnabas.client`, on Trio."""
    import trio

    from barnabas.client import ConsumerSettings, ProducerSettings, open_consumer, open_producer

    async def produce() -> None:
        run.begin()
        settings = ProducerSettings(linger_ms=LINGER_MS, batch_bytes=BATCH_BYTES)
        async with open_producer(run.bootstrap, settings) as producer:
            for _ in range(run.count):
                await producer.send(run.topic, run.value)
            await producer.flush()
            run.end()

    async def consume(*, in_batches: bool) -> None:
        run.begin()
        missing, read = run.count, 0
        settings = ConsumerSettings(offset_reset="earliest")
        async with open_consumer(run.bootstrap, settings=settings) as consumer:
            consumer.assign([(run.topic, 0)])
            while in_batches and missing:
                for record in await consumer.receive_batch(BATCH_RECORDS):
                    read += len(record.value or b"")
                    missing -= 1
            if not in_batches:
                async for record in consumer:
                    read += len(record.value or b"")
                    missing -= 1
                    if not missing:
                        break
            run.end(read)

    if operation == "produce":
        trio.run(produce)
    else:
        trio.run(lambda: consume(in_batches=operation == "consume-batches"))
    import barnabas.records.scan

    return "interpreted" if barnabas.records.scan.__file__.endswith(".py") else "compiled"


def aiokafka(operation: str, run: Run) -> str:
    """aiokafka, on asyncio."""
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

    async def produce() -> None:
        run.begin()
        producer = AIOKafkaProducer(
            bootstrap_servers=run.bootstrap, acks="all", enable_idempotence=True, linger_ms=LINGER_MS,
            max_batch_size=BATCH_BYTES,
        )  # fmt: skip
        await producer.start()
        try:
            for _ in range(run.count):
                await producer.send(run.topic, run.value)
            await producer.flush()
            run.end()
        finally:
            await producer.stop()

    async def consume(*, in_batches: bool) -> None:
        run.begin()
        missing, read = run.count, 0
        consumer = AIOKafkaConsumer(
            bootstrap_servers=run.bootstrap, auto_offset_reset="earliest", enable_auto_commit=False
        )
        await consumer.start()
        try:
            place = TopicPartition(run.topic, 0)
            consumer.assign([place])
            await consumer.seek_to_beginning(place)
            while in_batches and missing:
                batches = await consumer.getmany(timeout_ms=1000, max_records=BATCH_RECORDS)
                for record in batches.get(place, ()):
                    read += len(record.value)
                    missing -= 1
            if not in_batches:
                async for record in consumer:
                    read += len(record.value)
                    missing -= 1
                    if not missing:
                        break
            run.end(read)
        finally:
            await consumer.stop()

    asyncio.run(produce() if operation == "produce" else consume(in_batches=operation == "consume-batches"))
    return version("aiokafka")


def confluent_kafka(operation: str, run: Run) -> str:
    """confluent-kafka, on librdkafka's threads."""
    from confluent_kafka import Consumer, Producer, TopicPartition, libversion

    def produce() -> None:
        failures: list[Any] = []

        def done(error: Any, _message: Any) -> None:
            if error is not None:
                failures.append(error)

        run.begin()
        producer = Producer({
            "bootstrap.servers": run.bootstrap, "acks": "all", "enable.idempotence": True, "linger.ms": LINGER_MS,
            "batch.size": BATCH_BYTES,
        })  # fmt: skip
        for _ in range(run.count):
            while True:
                try:
                    producer.produce(run.topic, run.value, on_delivery=done)
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)
        unsent = producer.flush(WAIT_S)
        run.end()
        if unsent or failures:
            raise RuntimeError(f"{unsent} records not acknowledged, {len(failures)} failed")

    def consume(*, in_batches: bool) -> None:
        run.begin()
        missing, read = run.count, 0
        consumer = Consumer({
            "bootstrap.servers": run.bootstrap, "group.id": "bench", "auto.offset.reset": "earliest",
            "enable.auto.commit": False, "check.crcs": True,
        })  # fmt: skip
        consumer.assign([TopicPartition(run.topic, 0, 0)])
        while missing:
            messages = consumer.consume(BATCH_RECORDS, 1.0) if in_batches else [consumer.poll(1.0)]
            for message in messages:
                if message is None:
                    continue
                if message.error():
                    raise RuntimeError(message.error())
                read += len(message.value())
                missing -= 1
        run.end(read)
        consumer.close()

    if operation == "produce":
        produce()
    else:
        consume(in_batches=operation == "consume-batches")
    return f"{version('confluent-kafka')}, librdkafka {libversion()[0]}"


CLIENTS: dict[str, Callable[[str, Run], str]] = {
    "barnabas": barnabas,
    "aiokafka": aiokafka,
    "confluent-kafka": confluent_kafka,
}


def main(name: str, operation: str, bootstrap: str, topic: str, size: str, count: str) -> None:
    """Run, and print the result."""
    run = Run(bootstrap, topic, int(size), int(count))
    result = CLIENTS[name](operation, run)
    print(json.dumps({"cpu_s": run.cpu_s, "wall_s": run.wall_s, "version": result}))


if __name__ == "__main__":
    main(*sys.argv[1:])
