"""More partitions and connections than there may be open files: nothing is lost, and no answer is wrong."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.testing.running import import_path
from tests.support.systems import in_proc, limit

from .conftest import PROGRAM, ROOT, BrokerProcess, StartBroker

pytestmark = pytest.mark.e2e

FILES_MAX = 256
PARTITIONS = 150
FEW_FILES = ("bash", "-c", f'ulimit -n {FILES_MAX}; exec "$@"', "-", *PROGRAM)


def produce_to_all(producer: Producer, topic: str, value: bytes) -> None:
    """A record to each partition; each must be acknowledged at the first attempt."""
    errors: list[KafkaError] = []
    delivered: list[int] = []

    def report(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            errors.append(error)
        else:
            delivered.append(message.partition() or 0)

    for partition in range(PARTITIONS):
        producer.produce(topic, value, partition=partition, on_delivery=report)
    assert producer.flush(60) == 0
    assert errors == []
    assert sorted(delivered) == list(range(PARTITIONS))


def read_all(bootstrap: str, topic: str, count: int) -> dict[int, list[bytes]]:
    """The values of each partition, in order."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(PARTITIONS)])
    seen: dict[int, list[bytes]] = {index: [] for index in range(PARTITIONS)}
    for _ in range(count):
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None, message.error()
        seen[message.partition() or 0].append(message.value() or b"")
    consumer.close()
    return seen


def crowd(broker: BrokerProcess, count: int, stack: ExitStack) -> None:
    """So many connections that say nothing."""
    host, port = broker.bootstrap.rsplit(":", 1)
    for _ in range(count):
        stack.enter_context(socket.create_connection((host, int(port)), timeout=10))


def test_few_open_files_serve_many_partitions(start_broker: StartBroker) -> None:
    broker = start_broker(program=FEW_FILES)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("t", PARTITIONS, 1)])["t"].result(60)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "retries": 0})
    produce_to_all(producer, "t", b"before")
    with ExitStack() as stack:
        crowd(broker, FILES_MAX, stack)
        produce_to_all(producer, "t", b"x" * 100_000)  # each answer of a fetch is a region of a file
        assert "the system allows" in broker.said()
    values = [b"before", b"x" * 100_000]
    assert read_all(broker.bootstrap, "t", 2 * PARTITIONS) == dict.fromkeys(range(PARTITIONS), values)
    assert "offline" not in broker.said()
    broker.stop(signal.SIGKILL)

    again = start_broker(data=broker.data, program=FEW_FILES)
    assert read_all(again.bootstrap, "t", 2 * PARTITIONS) == dict.fromkeys(range(PARTITIONS), values)
    assert again.stop() == 0


def test_broker_serves_again_once_descriptors_are_free(start_broker: StartBroker) -> None:
    broker = start_broker(options=["--control", "127.0.0.1:0", "--metrics", "127.0.0.1:0"])
    produce_one(broker.bootstrap)
    used = len(os.listdir(in_proc(f"{broker.process.pid}/fd")))
    usual = limit(broker.process.pid, resource.RLIMIT_NOFILE, (used, None))
    with ExitStack() as stack:
        for address in (broker.bootstrap, *map(host_and_port, (broker.control_url, broker.metrics_url))):
            host, port = address.rsplit(":", 1)
            for _ in range(30):
                stack.enter_context(socket.create_connection((host, int(port)), timeout=10))
        wait_until(lambda: "Too many open files" in broker.said())
        time.sleep(0.5)
    limit(broker.process.pid, resource.RLIMIT_NOFILE, usual)
    produce_one(broker.bootstrap)
    for url in (f"{broker.control_url}/v1/broker", broker.metrics_url):
        with urllib.request.urlopen(url, timeout=10) as answer:
            assert answer.status == 200
    assert "connections to PLAINTEXT are accepted again" in broker.said()
    assert "Traceback" not in broker.said()
    assert broker.stop() == 0


def produce_one(bootstrap: str) -> None:
    """A record to a topic, which is acknowledged."""
    errors: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": 30_000})
    producer.produce("t", b"x", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(30) == 0
    assert errors == [None]


def host_and_port(url: str) -> str:
    return urlsplit(url).netloc


def wait_until(holds: Callable[[], bool]) -> None:
    ends = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < ends
        time.sleep(0.02)


def test_too_low_limit_of_files_is_reported_at_start(tmp_path: Path) -> None:
    command = (
        "sh",
        "-c",
        'ulimit -n 20; exec "$@"',
        "-",
        *PROGRAM,
        "serve",
        "--data",
        str(tmp_path / "data"),
    )
    environment = {**os.environ, "PYTHONPATH": import_path(ROOT)}
    done = subprocess.run(
        [*command, "--listen", "127.0.0.1:0"], capture_output=True, text=True, check=False, env=environment
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("barnabas: the limit of open files is 20, and a broker needs at least 128")
    assert done.stderr.count("\n") == 1
