"""A local cluster without processes: what brokers are started with, the order in which all is stopped, and what is said."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import trio.testing

from barnabas.tools.localcluster import command
from barnabas.tools.localcluster.command import Cluster, parser
from barnabas.tools.localcluster.defaults import settings_of

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


@pytest.fixture
def said(monkeypatch):
    EVENTS.clear()
    found: list[str] = []
    monkeypatch.setattr(command, "say", found.append)
    monkeypatch.setattr(command, "Child", FakeChild)
    monkeypatch.setattr(command, "OwnZooKeeper", Own)
    monkeypatch.setattr(command, "ApacheZooKeeper", Apache)
    monkeypatch.setattr(
        command, "find", lambda **options: SimpleNamespace(origin=f"jars {options['may_fetch']}")
    )
    monkeypatch.setattr(command, "is_free", lambda port: port != 5)
    for name, value in (("lines", {}), ("code_at_end", {}), ("in_time", True)):
        monkeypatch.setattr(FakeChild, name, value)

    async def switch_on(servers: str) -> str:
        EVENTS.append(f"switch on {servers}")
        return "they are too old" if "9003" in servers else ""

    monkeypatch.setattr(command, "switch_on", switch_on)
    return found


def cluster_of(tmp_path: Path, *options: str) -> Cluster:
    return Cluster(parser().parse_args(options), tmp_path)


async def test_brokers_start_together_and_stop_in_turn(tmp_path, said):
    cluster = cluster_of(tmp_path, "--brokers", "3")
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        assert EVENTS[0] == "start Own"
        assert sorted(EVENTS[1:4]) == ["start broker 1", "start broker 2", "start broker 3"]
        assert EVENTS[4:] == ["switch on localhost:9001,localhost:9002,localhost:9003"]
        assert said[0] == "ZooKeeper is ready: localhost:2181, in this process"
        assert sorted(said[1:4]) == [
            f"broker {number} is ready: localhost:{9000 + number} pid=77 log={tmp_path}/broker-{number}.log"
            for number in (1, 2, 3)
        ]
        assert said[4].endswith("are not served: they are too old")
        assert said[5:] == [
            "barnabas cluster is ready: bootstrap.servers=localhost:9001,localhost:9002,localhost:9003 "
            f"zookeeper=localhost:2181 dir={tmp_path}",
            "Ctrl-C stops it.",
        ]
        started = [name.removeprefix("start ") for name in EVENTS[1:4]]
        EVENTS.clear()
        cluster.is_stopping = True
        await cluster.stop()
        assert [f"stop {name}" for name in reversed(started)] + ["close Own"] == EVENTS
        assert said[-3:] == [f"{name} has stopped" for name in reversed(started)]
        assert not cluster.has_failed
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    "way", ["--apache-zookeeper", "--fetch", "--zookeeper-jars=/j", "used before", "own", "given"]
)
async def test_zookeeper_is_the_one_that_is_wanted(tmp_path, said, way):
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
        assert f" zookeeper={where} " in said[-2]
        assert [one.name for one in others] == (["ZooKeeper"] if "ready Apache" in EVENTS else [])
        if others:
            assert f"starting ZooKeeper: jars {way == '--fetch'}" in said
        EVENTS.clear()
        cluster.is_stopping = True
        await cluster.stop()
        last = {"own": ["close Own"], "given": []}.get(way, ["stop ZooKeeper"])
        assert ["stop broker 1", *last] == EVENTS
        nursery.cancel_scope.cancel()


async def test_a_broker_that_ends_is_told_and_the_last_one_ends_it_all(tmp_path, said):
    cluster = cluster_of(tmp_path, "--brokers", "2")
    failed: list[str] = []
    cluster.fail = lambda: failed.append("failed")  # type: ignore[method-assign]
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        first, second = cluster.children()
        said.clear()
        first.end(-9)
        await trio.testing.wait_all_tasks_blocked()
        assert said[0].startswith(f"{first.name} has ended (killed by SIGKILL), 1 of 2 are left; its log is ")
        assert f"  {first.command[0]} -m barnabas serve --zookeeper" in said[0]
        assert failed == []
        second.end(1)
        await trio.testing.wait_all_tasks_blocked()
        assert said[1].startswith(f"{second.name} has ended (exit code 1), 0 of 2 are left")
        assert failed == ["failed"]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("is_stopping", [False, True])
async def test_the_end_of_zookeeper_stops_the_brokers(tmp_path, said, is_stopping):
    cluster = cluster_of(tmp_path, "--brokers", "1", "--apache-zookeeper")
    failed: list[str] = []
    cluster.fail = lambda: failed.append("failed")  # type: ignore[method-assign]
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        said.clear()
        cluster.is_stopping = is_stopping
        for child in cluster.children():
            child.end(1)
        await trio.testing.wait_all_tasks_blocked()
        assert ("ZooKeeper has ended (exit code 1); the brokers are stopped" in said) is not is_stopping
        assert bool(said) is bool(failed) is not is_stopping
        nursery.cancel_scope.cancel()


def value_of(words: tuple[str, ...], option: str) -> str:
    return words[words.index(option) + 1]


@pytest.mark.parametrize(
    ("options", "values"),
    [
        (
            (),
            {1: {"--listen": "localhost:9092"}, 3: {"--listen": "localhost:9094", "--log-level": "warning"}},
        ),
        (("--port", "7000"), {1: {"--listen": "localhost:7000"}, 2: {"--listen": "localhost:7001"}}),
        (
            ("--port", "0"),
            {1: {"--listen": "localhost:0"}, 2: {"--listen": "localhost:4"}, 3: {"--listen": "localhost:0"}},
        ),
        (("--racks", "a,,b"), {1: {"--rack": "a"}, 2: {"--rack": "b"}, 3: {"--rack": "a"}}),
        (("--log-level", "debug"), {2: {"--log-level": "debug", "--broker-id": "2", "--zookeeper": "z"}}),
        (("--config", "file"), {1: {"--config": "file"}}),
    ],
)
def test_what_a_broker_is_started_with(tmp_path, said, options, values):
    (tmp_path / "broker-2.address").write_text("localhost:4\n")
    (tmp_path / "broker-3.address").write_text("localhost:5\n")
    cluster = cluster_of(tmp_path, *options, "--set", "a=b", "--set", "c=d")
    for number, expected in values.items():
        words = tuple(cluster._command(number, "z"))
        assert words[1:4] == ("-m", "barnabas", "serve")
        assert {option: value_of(words, option) for option in expected} == expected
        assert value_of(words, "--data") == str(tmp_path / f"broker-{number}")
        assert ("--rack" in words) is ("--racks" in options)
        pairs = [words[place + 1] for place, word in enumerate(words) if word == "--set"]
        defaults = (
            [] if "--config" in options else [f"{name}={value}" for name, value in settings_of(3).items()]
        )
        assert pairs == [*defaults, "a=b", "c=d"]
