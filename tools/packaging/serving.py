"""A broker that some command starts, until it is ready; records through it with stock clients."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice

READY = re.compile(r"is ready: bootstrap\.servers=(\S+).* code=(\S+) data=(.*)")
MESSAGE = b"a message from Klamm"
WAIT_S = 30


@dataclass
class Serving:
    """A broker that runs."""

    bootstrap: str
    code: str
    ready_s: float
    """Seconds from the start of the command to the ready line."""
    lines: list[str] = field(default_factory=list)


@contextmanager
def serving(command: Sequence[str]) -> Iterator[Serving]:
    """Run a command that starts a broker; ends it with SIGTERM and expects a clean end. Raises RuntimeError."""
    begun, lines = time.monotonic(), []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        ready = None
        for line in process.stdout:
            lines.append(line)
            if ready := READY.search(line):
                break
        if ready is None:
            raise RuntimeError(f"it does not start: {''.join(lines)[-3000:]}")
        try:
            yield Serving(ready[1], ready[2], time.monotonic() - begun, lines)
        finally:
            process.send_signal(signal.SIGTERM)
            lines.extend(process.stdout)
    if process.returncode not in (0, 2, -signal.SIGTERM) or any("Traceback" in line for line in lines):
        raise RuntimeError(f"it ends with {process.returncode}: {''.join(lines)[-3000:]}")


def records_through(bootstrap: str, count: int = 1) -> None:
    """Write records with librdkafka's client, and read them with it and with kafka-python. Raises RuntimeError."""
    from confluent_kafka import Consumer, Producer
    from kafka import KafkaConsumer

    written = [MESSAGE, *(b"message %d" % number for number in range(1, count))]
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in written:
        producer.produce("greetings", value)
    if unsent := producer.flush(WAIT_S):
        raise RuntimeError(f"{unsent} records are not acknowledged")
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "village", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["greetings"])
    read = []
    while len(read) < count and (message := consumer.poll(WAIT_S)) is not None:
        read.append(message.value())
    consumer.close()
    other = KafkaConsumer(
        "greetings",
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        consumer_timeout_ms=WAIT_S * 1000,
    )
    read_by_other = [record.value for record in islice(other, count)]
    other.close()
    for name, values in (("librdkafka", read), ("kafka-python", read_by_other)):
        if values != written:
            raise RuntimeError(f"{name} has read {len(values)} of {count} records, the first {values[:1]}")
