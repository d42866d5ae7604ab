"""`barnabas.testing`, and the examples of the documentation that use it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import trio
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from barnabas.system.processes import is_running
from barnabas.testing import BrokerFailedError, RunningBroker

pytestmark = pytest.mark.e2e


def topics_of(bootstrap: str) -> dict[str, object]:
    return AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=10).topics


def pids(broker: RunningBroker) -> int:
    process = broker._process
    assert process is not None
    return process.pid


def test_a_broker_for_a_block() -> None:
    with RunningBroker({"num.partitions": "3"}) as broker:
        pid = pids(broker)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce("t", b"value")
        assert producer.flush(10) == 0
        assert len(topics_of(broker.bootstrap)["t"].partitions) == 3  # type: ignore[attr-defined]
    assert not is_running(pid)


def test_the_broker_ends_with_a_block_that_fails() -> None:
    broker = RunningBroker()
    result = []

    def fail() -> None:
        with broker:
            result.append(pids(broker))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not is_running(result[0])


def test_a_broker_that_cannot_start_says_why() -> None:
    with pytest.raises(BrokerFailedError, match=r"num\.partitions=none: a whole number"):
        RunningBroker({"num.partitions": "none"}).__enter__()


def test_records_outlive_a_crash_where_the_data_is_kept(tmp_path: Path) -> None:
    with RunningBroker(data=tmp_path / "data") as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce("t", b"value")
        assert producer.flush(10) == 0
        broker.kill()
        broker.start()
        assert "t" in topics_of(broker.bootstrap)
        consumer = Consumer(
            {"bootstrap.servers": broker.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe(["t"])
        message = consumer.poll(20)
        assert message is not None
        assert message.value() == b"value"
        consumer.close()
        broker.stop()
        broker.stop()
    assert (tmp_path / "data").is_dir()


def test_a_broker_cannot_be_started_twice() -> None:
    with RunningBroker() as broker, pytest.raises(RuntimeError, match="runs already"):
        broker.start()


async def test_in_trio() -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await trio.sleep(0)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(tick)
        async with RunningBroker() as broker:
            assert ticks > 1
            assert await trio.to_thread.run_sync(topics_of, broker.bootstrap) is not None
        nursery.cancel_scope.cancel()


def test_in_asyncio() -> None:
    async def main() -> int:
        async with RunningBroker() as broker:
            assert await asyncio.to_thread(topics_of, broker.bootstrap) is not None
            return pids(broker)

    assert not is_running(asyncio.run(main()))
