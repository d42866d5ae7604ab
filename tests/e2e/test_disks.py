"""A disk that is really full, and one of two that breaks, under a broker process and stock clients.

The full one is a file system of its own in memory (tmpfs), which any user may mount in a namespace of his own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaProducer

from barnabas.testing.running import import_path
from tests.support.systems import in_proc

from .conftest import PROGRAM, StartBroker

pytestmark = pytest.mark.e2e

VOLUME_BYTES = 16 << 20
VALUE_BYTES = 100_000


class Sender:
    """A producer that says what became of each record."""

    def __init__(self, bootstrap: str, **options: object) -> None:
        self.acknowledged: dict[int, list[bytes]] = {}
        self._producer = Producer({"bootstrap.servers": bootstrap, **options})

    def send(self, topic: str, partition: int, value: bytes) -> KafkaError | None:
        """Send a record; returns why it was not taken."""
        outcome: list[KafkaError | None] = []

        def report(error: KafkaError | None, message: Message) -> None:
            outcome.append(error)

        self._producer.produce(topic, value, partition=partition, on_delivery=report)
        assert self._producer.flush(30) == 0
        (error,) = outcome
        if error is None:
            self.acknowledged.setdefault(partition, []).append(value)
        return error


def read(bootstrap: str, topic: str, partitions: Sequence[int], count: int) -> dict[int, list[bytes]]:
    """So many records from the beginning of these partitions, without a group."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in partitions])
    seen: dict[int, list[bytes]] = {}
    for _ in range(count):
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None, message.error()
        seen.setdefault(message.partition() or 0, []).append(message.value() or b"")
    consumer.close()
    return seen


def make_topic(bootstrap: str, topic: str, partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)


def on_a_small_volume(volume: Path, program: Sequence[str] = PROGRAM) -> Sequence[str]:
    """The broker, or another program, that first mounts a small volume there, seen by it alone."""
    unshare = ("unshare", "--user", "--map-root-user", "--mount")
    mount = f'mount -t tmpfs -o size={VOLUME_BYTES} none "$0"'
    tried = subprocess.run((*unshare, "sh", "-c", mount, volume), capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"this machine does not let us mount a volume: {tried.stderr.strip()}")
    return (*unshare, "sh", "-c", f'{mount} && exec "$@"', str(volume), *program)


def test_full_disk_refuses_writes_until_there_is_room(start_broker: StartBroker, tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    volume.mkdir()
    broker = start_broker(data=volume / "data", program=on_a_small_volume(volume))
    seen_by_broker = in_proc(f"{broker.process.pid}/root{volume}")
    ballast = seen_by_broker / "ballast"
    ballast.write_bytes(bytes(VOLUME_BYTES // 2))
    make_topic(broker.bootstrap, "t")
    sender = Sender(broker.bootstrap, retries=0)
    patient = KafkaProducer(bootstrap_servers=broker.bootstrap, retries=1_000, retry_backoff_ms=20)

    error = None
    for n in range(2 * VOLUME_BYTES // VALUE_BYTES):
        if (error := sender.send("t", 0, b"%d " % n * (VALUE_BYTES // 4))) is not None:
            break
    assert error is not None
    assert error.code() == KafkaError.KAFKA_STORAGE_ERROR
    before = list(sender.acknowledged[0])
    assert len(before) > 20
    for _ in range(3):  # it stays like this, and readers do not notice
        refused = sender.send("t", 0, bytes(VALUE_BYTES))
        assert refused is not None
        assert refused.code() == KafkaError.KAFKA_STORAGE_ERROR
        assert read(broker.bootstrap, "t", [0], len(before)) == {0: before}
    assert broker.process.poll() is None
    assert "No space left on device" in broker.said()

    waiting = [patient.send("t", value * VALUE_BYTES, partition=0) for value in (b"w", b"x")]
    threading.Timer(0.5, ballast.unlink).start()  # somebody makes room while a client tries again and again
    assert [future.get(30).offset for future in waiting] == [len(before), len(before) + 1]
    patient.close()
    assert sender.send("t", 0, b"y" * VALUE_BYTES) is None
    expected = [*before, b"w" * VALUE_BYTES, b"x" * VALUE_BYTES, b"y" * VALUE_BYTES]
    assert read(broker.bootstrap, "t", [0], len(expected)) == {0: expected}
    verify = [sys.executable, "-m", "barnabas", "log", "verify", str(seen_by_broker / "data")]
    environment = {**os.environ, "PYTHONPATH": import_path()}
    verified = subprocess.run(verify, capture_output=True, text=True, check=False, env=environment)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert broker.stop() == 0


def test_broken_disk_takes_only_its_own_partitions(start_broker: StartBroker, tmp_path: Path) -> None:
    good, bad, mark = tmp_path / "good", tmp_path / "bad", tmp_path / "broken"
    program = (sys.executable, "-m", "tests.support.broken_disk", str(bad), str(mark))
    broker = start_broker(data=good, program=program)
    make_topic(broker.bootstrap, "t", 6)
    lost = [n for n in range(6) if (bad / f"t-{n}").is_dir()]
    kept = [n for n in range(6) if n not in lost]
    assert (len(lost), len(kept)) == (3, 3)
    sender = Sender(broker.bootstrap, retries=0)
    for n in range(6):
        assert sender.send("t", n, b"before %d" % n) is None

    mark.touch()
    error = sender.send("t", lost[0], b"lost")  # the one that finds out
    assert error is not None
    assert error.code() == KafkaError.KAFKA_STORAGE_ERROR
    hasty = Sender(broker.bootstrap, **{"retries": 0, "message.timeout.ms": 500})
    for n in lost:  # they have no leader, and the client waits for one as long as it is told to
        error = hasty.send("t", n, b"lost")
        assert error is not None
        assert error.code() in (KafkaError.KAFKA_STORAGE_ERROR, KafkaError._MSG_TIMED_OUT)
    for n in 2 * kept:
        assert sender.send("t", n, b"after %d" % n) is None
    kept_values = {n: sender.acknowledged[n] for n in kept}
    assert read(broker.bootstrap, "t", kept, 9) == kept_values
    assert f"taking log dir {bad} offline" in broker.said()
    make_topic(broker.bootstrap, "new", 2)
    assert all((good / f"new-{n}").is_dir() for n in range(2))
    assert broker.stop() == 0

    mark.unlink()  # repaired: the documented way back is a restart
    again = start_broker(data=good, program=program)
    assert read(again.bootstrap, "t", range(6), 12) == sender.acknowledged
    assert Sender(again.bootstrap, retries=0).send("t", lost[0], b"again") is None
    assert again.stop() == 0


def test_broker_killed_on_a_full_disk_starts_and_is_readable(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    volume = tmp_path / "volume"
    volume.mkdir()
    holding = on_a_small_volume(volume, ("sh", "-c", "echo mounted; exec sleep 1000"))
    holder = subprocess.Popen(holding, stdout=subprocess.PIPE)  # the volume outlives the broker
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"mounted\n"
        seen = in_proc(f"{holder.pid}/root{volume}")
        inside = ("nsenter", f"--target={holder.pid}", "--user", "--mount", "--preserve-credentials")
        first = start_broker(data=volume / "data", program=(*inside, *PROGRAM))
        ballast = seen / "ballast"
        ballast.write_bytes(bytes(VOLUME_BYTES // 2))
        make_topic(first.bootstrap, "t")
        sender = Sender(first.bootstrap, retries=0)
        while sender.send("t", 0, bytes(VALUE_BYTES)) is None:
            pass
        with (seen / "filler").open("wb", buffering=0) as file:  # to the last byte
            try:
                while True:
                    file.write(bytes(100))
            except OSError:
                pass
        expected = sender.acknowledged[0]
        first.process.kill()
        first.process.wait()

        again = start_broker(data=volume / "data", program=(*inside, *PROGRAM))
        assert read(again.bootstrap, "t", [0], len(expected)) == {0: expected}
        refused = Sender(again.bootstrap, retries=0).send("t", 0, bytes(VALUE_BYTES))
        assert refused is not None
        assert refused.code() == KafkaError.KAFKA_STORAGE_ERROR
        ballast.unlink()
        assert Sender(again.bootstrap, retries=0).send("t", 0, b"more") is None
        assert read(again.bootstrap, "t", [0], len(expected) + 1) == {0: [*expected, b"more"]}
        assert again.stop() == 0
    finally:
        holder.kill()
        holder.communicate()
