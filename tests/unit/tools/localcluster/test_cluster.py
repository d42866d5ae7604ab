"""A local cluster without processes: what brokers are started with, the order in which all is stopped, and what is said."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import trio.testing

from barnabas.tools.localcluster import command
from barnabas.tools.localcluster.command import Cluster, Parts, parser

EVENTS: list[str] = []


class FakeChild:
    """Stands for a process."""

    lines: ClassVar[dict[str, str]] = {}
    code_at_end: ClassVar[dict[str, int]] = {}
    in_time = True

    def __init__(self, name: str, words: Any, output: Any) -> None:
        self.name = name
        self.command = tuple(words)
        self.output = output
        self.ended = trio.Event()
        self.code: int | None = None
        self.pid = 77

    def start(self, *, reads_output: bool) -> None:
        assert reads_output
        EVENTS.append(f"start {self.name}")

    async def first_line(self, seconds: float) -> str:
        assert seconds == command.READY_SECONDS
        await trio.lowlevel.checkpoint()
        number = int(self.name.split()[1])
        return self.lines.get(self.name, f"ready: bootstrap.servers=localhost:{9000 + number} and more")

    def last_words(self) -> str:
        return "; its last words"

    async def wait(self) -> int:
        await self.ended.wait()
        assert self.code is not None
        return self.code

    def end(self, code: int) -> None:
        self.code = code
        self.ended.set()

    async def stop(self, seconds: float) -> bool:
        assert seconds == command.STOP_SECONDS
        EVENTS.append(f"stop {self.name}")
        self.end(self.code_at_end.get(self.name, 0))
        return self.in_time


class FakeZooKeeper:
    address = "localhost:2181"

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments
        self.child = FakeChild("ZooKeeper", (), Path("zookeeper.log"))

    @staticmethod
    def was_used_in(directory: Path) -> bool:
        return (directory / "apache").exists()

    def start(self) -> Any:
        EVENTS.append(f"start {type(self).__name__}")
        return trio.lowlevel.checkpoint()

    async def ready(self) -> None:
        EVENTS.append("ready Apache")

    async def run(self) -> None:
        await trio.sleep_forever()

    async def close(self) -> None:
        EVENTS.append("close Own")


class Own(FakeZooKeeper):
    pass


class Apache(FakeZooKeeper):
    def start(self) -> None:  # type: ignore[override]
        EVENTS.append("start Apache")


async def switch_on(servers: str) -> str:
    EVENTS.append(f"switch on {servers}")
    return "they are too old" if "9003" in servers else ""


TOLD: list[str] = []
PARTS: Any = Parts(
    FakeChild,  # type: ignore[arg-type]
    Own,  # type: ignore[arg-type]
    Apache,  # type: ignore[arg-type]
    lambda **options: SimpleNamespace(origin=f"jars {options['may_fetch']}"),  # type: ignore[arg-type,return-value]
    lambda port: port != 5,
    switch_on,
    TOLD.append,
)


@pytest.fixture
def told():
    """Lines that the command tells."""
    EVENTS.clear()
    TOLD.clear()
    FakeChild.lines, FakeChild.code_at_end, FakeChild.in_time = {}, {}, True
    return TOLD


def cluster_of(tmp_path: Path, *options: str) -> Cluster:
    return Cluster(parser().parse_args(options), tmp_path, PARTS)


@pytest.mark.parametrize(
    "way", ["--apache-zookeeper", "--fetch", "--zookeeper-jars=/j", "used before", "own", "given"]
)
async def test_zookeeper_is_the_one_that_is_wanted(tmp_path, told, way):
    options = [way] if way.startswith("--") else ["--zookeeper", "z:1/c"] if way == "given" else []
    if way == "used before":
        (tmp_path / "zookeeper").mkdir()
        (tmp_path / "zookeeper" / "apache").touch()
    cluster = cluster_of(tmp_path, "--brokers", "1", *options)
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        kind = {"own": ["start Own"], "given": []}.get(way, ["start Apache", "ready Apache"])
        asked = [] if way == "given" else ["switch on localhost:9001"]
        assert [*kind, "start broker 1", *asked] == EVENTS
        (broker, *others) = cluster.children()
        where = "z:1/c" if way == "given" else "localhost:2181"
        assert broker.command[4:6] == ("--zookeeper", where)
        assert f" zookeeper={where} " in told[-2]
        assert [one.name for one in others] == (["ZooKeeper"] if "ready Apache" in EVENTS else [])
        if others:
            assert f"starting ZooKeeper: jars {way == '--fetch'}" in told
        EVENTS.clear()
        cluster.is_stopping = True
        await cluster.stop()
        last = {"own": ["close Own"], "given": []}.get(way, ["stop ZooKeeper"])
        assert ["stop broker 1", *last] == EVENTS
        nursery.cancel_scope.cancel()


async def test_a_broker_that_ends_is_told_and_the_last_one_ends_it_all(tmp_path, told):
    cluster = cluster_of(tmp_path, "--brokers", "2")
    failed: list[str] = []
    cluster.fail = lambda: failed.append("failed")  # type: ignore[method-assign]
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        first, second = cluster.children()
        told.clear()
        first.end(-9)
        await trio.testing.wait_all_tasks_blocked()
        assert told[0].startswith(f"{first.name} has ended (killed by SIGKILL), 1 of 2 are left; its log is ")
        assert f"  {first.command[0]} -m barnabas serve --zookeeper" in told[0]
        assert failed == []
        second.end(1)
        await trio.testing.wait_all_tasks_blocked()
        assert told[1].startswith(f"{second.name} has ended (exit code 1), 0 of 2 are left")
        assert failed == ["failed"]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("is_stopping", [False, True])
async def test_the_end_of_zookeeper_stops_the_brokers(tmp_path, told, is_stopping):
    cluster = cluster_of(tmp_path, "--brokers", "1", "--apache-zookeeper")
    failed: list[str] = []
    cluster.fail = lambda: failed.append("failed")  # type: ignore[method-assign]
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        told.clear()
        cluster.is_stopping = is_stopping
        for child in cluster.children():
            child.end(1)
        await trio.testing.wait_all_tasks_blocked()
        assert ("ZooKeeper has ended (exit code 1); the brokers are stopped" in told) is not is_stopping
        assert bool(told) is bool(failed) is not is_stopping
        nursery.cancel_scope.cancel()


def value_of(words: tuple[str, ...], option: str) -> str:
    return words[words.index(option) + 1]


async def test_a_broker_on_any_port_is_started_again_where_it_was(tmp_path, told):
    cluster = cluster_of(tmp_path, "--brokers", "1", "--port", "0")
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        (broker,) = cluster.children()
        assert value_of(broker.command, "--listen") == "localhost:9001"
        assert (tmp_path / "broker-1.address").read_text() == "localhost:9001\n"
        nursery.cancel_scope.cancel()
