"""Brokers in the hands of tests: in a thread, in Trio's loop, in a process; what they hold, and going back to it."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial

import pytest
import trio
from confluent_kafka import Consumer, Producer

from barnabas.system.processes import is_running
from barnabas.testing import (
    AsyncKafkaBroker,
    BrokerFailedError,
    ControlFailedError,
    KafkaBroker,
    open_broker,
    start_process,
    start_thread,
)
from barnabas.testing.running import import_path
from tests.support.systems import has_ended

pytestmark = pytest.mark.e2e

SEEDS = {
    "topics": {"orders": {"partitions": 2, "records": [{"key": "k", "value": "seeded", "partition": 0}]}}
}
END_SECONDS_MAX = 60
WAIT_SECONDS_MAX = 60


@pytest.fixture(scope="module", params=[start_thread, start_process], ids=["thread", "process"])
def shared(request: pytest.FixtureRequest) -> Iterator[KafkaBroker]:
    with request.param(seeds=SEEDS) as broker:
        yield broker


@pytest.fixture
def broker(shared: KafkaBroker) -> KafkaBroker:
    if shared.was_used:
        shared.reset()
    shared.was_used = True
    return shared


def values(broker: KafkaBroker, topic: str = "orders") -> list[bytes | None]:
    return [record.value for record in broker.records(topic)]


def produce(broker: KafkaBroker, *sent: bytes, **settings: object) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, **settings})
    if "transactional.id" in settings:
        producer.init_transactions(30)
        producer.begin_transaction()
    for value in sent:
        producer.produce("orders", value, partition=1)
    if "transactional.id" in settings:
        producer.commit_transaction(30)
    assert producer.flush(30) == 0


def consumer(broker: KafkaBroker, group: str = "g") -> Consumer:
    created = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": group, "auto.offset.reset": "earliest",
         "enable.auto.commit": False, "reconnect.backoff.max.ms": 200}
    )  # fmt: skip
    created.subscribe(["orders"])
    return created


def consumed(client: Consumer, count: int) -> list[bytes]:
    values: list[bytes] = []
    while len(values) < count:
        message = client.poll(30)
        assert message is not None, f"{len(values)} of {count} records came"
        if message.error() is None:
            values.append(message.value())
    return values


def test_it_begins_with_its_seeds(broker: KafkaBroker) -> None:
    assert broker.topics() == ["orders"]
    (record,) = broker.records("orders")
    assert (record.partition, record.offset, record.key, record.value) == (0, 0, b"k", b"seeded")


def test_records_are_put_in_and_looked_at(broker: KafkaBroker) -> None:
    broker.create_topic("t", 2, settings={"retention.ms": -1}, records=["text", b"\xff"])
    places = broker.produce(
        "t", {"key": b"k", "value": None, "headers": {"h": b"1"}, "partition": 1, "timestamp": 7}
    )
    assert places == [(1, 1)]
    assert broker.topic("t")["settings"] == {"retention.ms": "-1"}
    assert values(broker, "t") == [b"text", b"\xff", None]
    last = broker.records("t", 1, offset=1)[0]
    assert (last.key, last.headers, last.timestamp) == (b"k", (("h", b"1"),), 7)
    broker.delete_topic("t")
    assert broker.topics() == ["orders"]


def test_a_client_is_waited_for_without_sleeps(broker: KafkaBroker) -> None:
    produce(broker, b"one", b"two")
    broker.wait_for_records("orders", 3, timeout=WAIT_SECONDS_MAX)
    client = consumer(broker)
    assert sorted(consumed(client, 3)) == [b"one", b"seeded", b"two"]
    assert len(broker.wait_for_group("g", members=1, timeout=WAIT_SECONDS_MAX)["members"]) == 1
    client.commit(asynchronous=False)
    broker.wait_until_read("g", "orders", timeout=WAIT_SECONDS_MAX)
    assert broker.committed("g") == {("orders", 0): 1, ("orders", 1): 2}
    request = broker.wait_for_request("OffsetCommit", group="g", timeout=WAIT_SECONDS_MAX)
    assert request.request["group_id"] == "g"
    assert request.error_codes == ()
    client.close()
    broker.wait_for_request("LeaveGroup", group="g", timeout=WAIT_SECONDS_MAX)


def test_what_does_not_come_is_told(broker: KafkaBroker) -> None:
    with pytest.raises(TimeoutError, match="orders holds 1 of 5 records after 20 ms"):
        broker.wait_for_records("orders", 5, timeout=0.02)
    with pytest.raises(TimeoutError, match="there is no group none"):
        broker.wait_for_group("none", timeout=0.02)
    with pytest.raises(TimeoutError):
        broker.wait_for_request("Heartbeat", timeout=0.02)
    with pytest.raises(ControlFailedError, match="there is no topic none") as caught:
        broker.records("none")
    assert caught.value.status == 404
    with pytest.raises(ControlFailedError, match="there is no snapshot none; there are: initial"):
        broker.restore("none")


def test_aborted_records_are_not_among_those_that_are_read(broker: KafkaBroker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "t"})
    producer.init_transactions(30)
    for end in (producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        producer.produce("orders", end.__name__.encode(), partition=1)
        assert producer.flush(30) == 0
        end(30)
    assert values(broker) == [b"seeded", b"commit_transaction"]
    assert [record.value for record in broker.records("orders", 1, committed=False)] == [
        b"abort_transaction",
        b"commit_transaction",
    ]


def test_a_snapshot_brings_everything_back(broker: KafkaBroker) -> None:
    produce(broker, b"kept")
    produce(broker, b"kept too", **{"transactional.id": "t"})
    broker.set_offsets("g", {"orders": {0: "latest", 1: 1}})
    broker.snapshot("one", replace=True)
    broker.create_topic("new")
    produce(broker, b"dropped")
    broker.set_offsets("g", {"orders": {1: 0}})
    broker.restore("one")
    assert broker.topics() == ["orders"]
    assert values(broker) == [b"seeded", b"kept", b"kept too"]
    assert broker.committed("g") == {("orders", 0): 1, ("orders", 1): 1}
    client = consumer(broker)
    assert consumed(client, 1) == [b"kept too"]
    client.close()
    produce(broker, b"after", **{"transactional.id": "t"})
    assert values(broker)[-1] == b"after"


def test_a_snapshot_stays_as_it_was_whatever_follows(broker: KafkaBroker) -> None:
    large = [
        b"%d" % number + bytes(100_000) for number in range(24)
    ]  # more than is copied: a segment is rolled
    produce(broker, *large)
    broker.snapshot("large", replace=True)
    for _ in range(2):
        produce(broker, b"later")
        broker.restore("large")
        assert values(broker) == [b"seeded", *large]
    broker.reset()
    assert values(broker) == [b"seeded"]


def test_a_client_goes_on_after_the_broker_has_gone_back(broker: KafkaBroker) -> None:
    broker.snapshot("one", replace=True)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "reconnect.backoff.max.ms": 200})
    producer.produce("orders", b"dropped", partition=1)
    assert producer.flush(30) == 0
    broker.restore("one")
    producer.produce("orders", b"after", partition=1)
    assert producer.flush(60) == 0
    assert values(broker) == [b"seeded", b"after"]


def test_a_fork_holds_the_same_and_goes_its_own_way(broker: KafkaBroker) -> None:
    produce(broker, b"both")
    with broker.fork() as fork:
        assert fork.bootstrap != broker.bootstrap
        produce(fork, b"fork")
        produce(broker, b"first")
        assert values(fork) == [b"seeded", b"both", b"fork"]
        assert values(broker) == [b"seeded", b"both", b"first"]
        with fork.fork("initial") as second:
            assert values(second) == [b"seeded", b"both"]


def test_reset_removes_snapshots_younger_than_the_baseline() -> None:
    with start_process() as broker:
        broker.snapshot("before")
        broker.set_baseline()
        broker.create_topic("t")
        for _ in range(2):
            broker.snapshot("mine")
            broker.reset()
            with pytest.raises(ControlFailedError, match="there are: before, initial"):
                broker.restore("mine")
        broker.restore("before")


def test_faults_and_requests_are_gone_after_a_reset(broker: KafkaBroker) -> None:
    broker.fault("Produce topic=orders -> error=INVALID_RECORD")
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    errors: list[object] = []
    producer.produce("orders", b"refused", partition=1, on_delivery=lambda error, _: errors.append(error))
    producer.flush(30)
    assert len(errors) == 1
    assert broker.requests("Produce")[0].error_codes
    broker.reset()
    assert broker.requests("Produce") == []
    produce(broker, b"taken")
    assert values(broker) == [b"seeded", b"taken"]


def test_a_clock_is_moved_and_stopped_while_a_test_waits(broker: KafkaBroker) -> None:
    broker.create_topic("t", settings={"retention.ms": 3_600_000, "segment.ms": 1000})
    broker.control("POST", "/v1/clock/freeze")
    with pytest.raises(TimeoutError, match="t holds 0 of 1 records after 20 ms"):
        broker.wait_for_records("t", 1, timeout=0.02)
    (before,) = broker.records("orders")
    broker.advance_clock(7200)
    broker.produce("t", "later")
    (after,) = broker.records("t")
    assert after.timestamp - before.timestamp >= 7_200_000
    broker.reset()
    assert not broker.control("GET", "/v1/clock")["frozen"]


async def test_in_the_loop_of_trio() -> None:
    async with open_broker(seeds=SEEDS) as broker:
        await use(broker)


def test_in_asyncio() -> None:
    with start_thread(seeds=SEEDS) as broker:
        asyncio.run(use(AsyncKafkaBroker(broker)))


async def use(broker: AsyncKafkaBroker) -> None:
    """Whatever the loop is: it goes on while a method of the broker waits."""
    assert await broker.produce("orders", {"value": "two", "partition": 0}) == [(0, 1)]
    await broker.wait_for_records("orders", 2, timeout=WAIT_SECONDS_MAX)
    await broker.reset()
    assert [record.value for record in await broker.records("orders")] == [b"seeded"]
    fork = await broker.fork()
    assert await fork.topics() == ["orders"]


async def test_a_loop_goes_on_while_a_broker_is_waited_for() -> None:
    async with open_broker() as broker, trio.open_nursery() as nursery:
        nursery.start_soon(partial(broker.wait_for_records, "t", 1, timeout=WAIT_SECONDS_MAX))
        await broker.create_topic("t", records=["a"])


def test_a_broker_that_has_ended_says_so() -> None:
    broker = start_thread()
    broker.close()
    broker.close()
    with pytest.raises(BrokerFailedError, match="the broker has ended"):
        broker.topics()


@pytest.mark.parametrize("start", [start_thread, start_process])
def test_a_broker_that_cannot_start_says_why(start: Callable[..., KafkaBroker]) -> None:
    with pytest.raises((BrokerFailedError, ValueError), match=r"num\.partitions=none: a whole number"):
        start({"num.partitions": "none"})
    with pytest.raises((BrokerFailedError, ControlFailedError, ValueError), match="INVALID_CONFIG"):
        start(seeds={"topics": {"t": {"settings": {"cleanup.policy": "none"}}}})


def test_broker_starts_for_a_test_with_many_open_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(2_048, hard)), hard))
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(1_100)]
    try:
        assert files[-1] > 1_023  # which select() takes no more
        with start_process(seeds=SEEDS) as broker:
            assert [record.value for record in broker.records("orders")] == [b"seeded"]
    finally:
        for file in files:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# --- the process ------------------------------------------------------------------------------------------------


def begin(*options: str, **how: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "barnabas", "test-server", *options],
        text=True, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": import_path()}, **how,
    )  # type: ignore[call-overload, no-any-return]  # fmt: skip


def test_test_server_prints_json_and_ends_with_its_input() -> None:
    with begin("--topic", "t:2", stdin=subprocess.PIPE) as server:
        assert server.stdout is not None
        line = json.loads(server.stdout.readline())
        assert sorted(line) == ["bootstrap_servers", "control_url", "listeners", "pid", "version"]
        assert line["pid"] == server.pid
        assert line["listeners"] == {"PLAINTEXT": line["bootstrap_servers"]}
        assert is_running(server.pid)
        server.stdin.close()  # type: ignore[union-attr]
        assert server.wait(END_SECONDS_MAX) == 0
        assert server.stdout.read() == ""


def test_a_test_server_ends_with_its_parent() -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", "import subprocess, sys; subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL); input()",
         sys.executable, "-m", "barnabas", "test-server"],
        text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": import_path()},
    )  # fmt: skip
    assert parent.stdout is not None
    line = json.loads(parent.stdout.readline())
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    assert parent.stdout.read() == ""  # its output ends when it does
    parent.stdout.close()
    parent.stdin.close()  # type: ignore[union-attr]
    assert has_ended(line["pid"])


@pytest.mark.parametrize(
    ("options", "code", "why"),
    [
        (["--topic", "a:x"], 2, "barnabas: 'a:x': 'x' is no number of partitions"),
        (
            ["--set", "num.partition=3"],
            2,
            "barnabas: --set: unknown setting 'num.partition'; did you mean num.partitions?",
        ),
        (
            ["--control", "0.0.0.0:0"],
            1,
            "barnabas: every client of the control API can do everything: 0.0.0.0:0 needs a token",
        ),
    ],
)
def test_a_test_server_that_cannot_start_says_why_in_a_line(options: list[str], code: int, why: str) -> None:
    with begin(*options, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE) as server:
        output, errors = server.communicate(timeout=END_SECONDS_MAX)
        assert (server.returncode, output) == (code, "")
        assert errors.startswith(why)


def test_a_token_is_asked_for() -> None:
    with begin("--control-token", "secret", stdin=subprocess.PIPE) as server:
        from barnabas.testing.process import HttpControl

        assert server.stdout is not None
        url = json.loads(server.stdout.readline())["control_url"]
        status, answer = HttpControl(url).ask("GET", "/v1/topics", {}, None)
        assert (status, answer) == (
            401,
            {"error": "the header Authorization: Bearer TOKEN is missing or wrong"},
        )
        server.stdin.close()  # type: ignore[union-attr]
        server.wait(END_SECONDS_MAX)
