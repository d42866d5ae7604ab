"""Files that are gone: those that the broker itself removes, and those that are removed under it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from .conftest import StartBroker

pytestmark = pytest.mark.e2e

LONG_AGO_MS = 1_577_836_800_000  # in 2020: retention drops it at once


def until(condition: Callable[[], bool], what: str, seconds: float = 40) -> None:
    """Wait for a condition on files or processes; fails with `what` if it does not come true."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def make_topic(bootstrap: str, name: str, partitions: int = 1, **config: str) -> None:
    settings = {key.replace("_", "."): value for key, value in config.items()}
    topic = NewTopic(name, partitions, 1, config=settings)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([topic])[name].result(30)


def delete_topic(bootstrap: str, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([name])[name].result(30)


def send(
    bootstrap: str, topic: str, partition: int = 0, *, acks: str = "all", timestamp: int = 0
) -> KafkaError | None:
    """Send one record, once; returns why it was not taken."""
    outcome: list[KafkaError | None] = []

    def report(error: KafkaError | None, _: Message) -> None:
        outcome.append(error)

    producer = Producer(
        {"bootstrap.servers": bootstrap, "acks": acks, "retries": 0, "message.timeout.ms": 3_000}
    )
    producer.produce(topic, b"x", partition=partition, timestamp=timestamp, on_delivery=report)
    assert producer.flush(30) == 0
    return outcome[0]


def test_topic_is_deleted_while_segments_await_removal(start_broker: StartBroker) -> None:
    broker = start_broker("log.retention.check.interval.ms=200")
    for name in ("gone", "again"):
        make_topic(broker.bootstrap, name, file_delete_delay_ms="1000")
        assert send(broker.bootstrap, name, timestamp=LONG_AGO_MS) is None
    for name in ("gone", "again"):
        until(lambda name=name: list((broker.data / f"{name}-0").glob("*.log.deleted")) != [], "not retired")  # type: ignore[misc]
        delete_topic(broker.bootstrap, name)
    make_topic(broker.bootstrap, "again")
    assert send(broker.bootstrap, "again") is None
    until(
        lambda: broker.process.poll() is not None or not list(broker.data.glob("*-delete")),
        "what was deleted is still there",
    )
    assert broker.process.poll() is None, broker.said()
    assert send(broker.bootstrap, "again") is None
    assert "offline" not in broker.said()
    assert broker.stop() == 0


class Sender:
    """A producer that goes on until a record of it is refused."""

    def __init__(self, bootstrap: str, topic: str, partition: int, acks: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "acks": acks, "retries": 0})
        self._topic, self._partition = topic, partition

    def error(self) -> KafkaError | None:
        """Send one more; returns why it was not taken."""
        outcome: list[KafkaError | None] = []

        def report(error: KafkaError | None, _: Message) -> None:
            outcome.append(error)

        self._producer.produce(self._topic, b"x", partition=self._partition, on_delivery=report)
        assert self._producer.flush(30) == 0
        return outcome[0]


def refusal(sender: Sender) -> int:
    """Send until a record is refused; returns the error code."""
    errors: list[KafkaError] = []

    def is_refused() -> bool:
        error = sender.error()
        errors.extend([error] if error is not None else [])
        return error is not None

    until(is_refused, "all records were acknowledged")
    return errors[0].code()


@pytest.mark.parametrize("is_made_again", [False, True])
def test_a_log_dir_that_is_removed_takes_no_more_records(
    start_broker: StartBroker, tmp_path: Path, is_made_again: bool
) -> None:
    first, second = tmp_path / "data", tmp_path / "second"
    broker = start_broker(f"log.dirs={first},{second}")
    make_topic(broker.bootstrap, "t", 4)
    lost = [n for n in range(4) if (second / f"t-{n}").is_dir()]
    kept = [n for n in range(4) if n not in lost]
    assert (len(lost), len(kept)) == (2, 2)
    senders = [Sender(broker.bootstrap, "t", n, acks) for n, acks in zip(lost, ("1", "all"), strict=True)]
    assert [sender.error() for sender in senders] == [None, None]
    shutil.rmtree(second)
    if is_made_again:
        second.mkdir()
    assert [refusal(sender) for sender in senders] == [KafkaError.KAFKA_STORAGE_ERROR] * 2
    assert f"taking log dir {second} offline" in broker.said()
    assert f"is gone, or is another one: '{second}/.lock'" in broker.said()
    for n in kept:
        assert send(broker.bootstrap, "t", n) is None
    make_topic(broker.bootstrap, "new", 2)
    assert all((first / f"new-{n}").is_dir() for n in range(2))
    assert list(second.glob("*")) == [], "nothing is silently made again"
    assert broker.stop() == 0
    assert list(second.glob("*")) == []


def test_partition_with_removed_directory_goes_offline_alone(start_broker: StartBroker) -> None:
    broker = start_broker("log.flush.offset.checkpoint.interval.ms=1000", "auto.create.topics.enable=false")
    make_topic(broker.bootstrap, "t", 3)
    senders = [Sender(broker.bootstrap, "t", n, acks) for n, acks in ((0, "1"), (1, "all"))]
    assert [sender.error() for sender in senders] == [None, None]
    shutil.rmtree(broker.data / "t-0")
    (broker.data / "t-1" / f"{0:020}.log").unlink()
    assert [refusal(sender) for sender in senders] == [KafkaError.KAFKA_STORAGE_ERROR] * 2
    for n in range(2):
        assert f"t-{n} is offline: {broker.data}/t-{n}/{0:020}.log is gone" in broker.said()
    assert send(broker.bootstrap, "t", 2) is None
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_partitions([NewPartitions("t", 4)])["t"].result(30)
    assert send(broker.bootstrap, "t", 3) is None
    assert not (broker.data / "t-0").exists(), "nothing is silently made again"
    delete_topic(broker.bootstrap, "t")
    make_topic(broker.bootstrap, "t", 2)
    assert [send(broker.bootstrap, "t", n) for n in range(2)] == [None, None]
    assert broker.stop() == 0


def test_broker_with_removed_log_dir_says_so_and_stops(start_broker: StartBroker) -> None:
    broker = start_broker()
    make_topic(broker.bootstrap, "t")
    assert send(broker.bootstrap, "t") is None
    shutil.rmtree(broker.data)
    until(lambda: broker.process.poll() is not None, "it runs on")
    output = broker.said()
    assert f"is gone, or is another one: '{broker.data}/.lock'" in output
    assert "no log dir works any more" in output
    assert "Traceback" not in output
    assert not broker.data.exists()


def test_a_broker_whose_log_dir_is_emptied_says_so_and_stops(start_broker: StartBroker) -> None:
    """`rm -r data/*` leaves the directory, and the lock file in it."""
    broker = start_broker()
    make_topic(broker.bootstrap, "t")
    assert send(broker.bootstrap, "t") is None
    for path in broker.data.glob("[!.]*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    until(lambda: broker.process.poll() is not None, "it runs on")
    output = broker.said()
    assert "what was in it was removed while the broker had it open" in output
    assert "Traceback" not in output
    assert {path.name for path in broker.data.iterdir()} == {".lock", ".barnabas-boot-id"}
