"""A local cluster without processes: what brokers are started with, the order in which all is stopped, and what is told."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio.testing

from barnabas.config.properties import parse_lines
from barnabas.tools.localcluster import children
from barnabas.tools.localcluster.cluster import Cluster
from barnabas.tools.localcluster.command import parser
from barnabas.tools.localcluster.in_quorum import QuorumCluster
from barnabas.tools.localcluster.on_zookeeper import Parts, ZooKeeperCluster

EVENTS: list[str] = []


class FakeChild:
    """Stands for a process."""

    has_started = True

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
        assert seconds == children.READY_SECONDS
        await trio.lowlevel.checkpoint()
        kind, number = self.name.split()
        ready = "servers" if kind == "broker" else "controllers"
        return f"ready: bootstrap.{ready}=localhost:{9000 + int(number)} and more"

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
        assert seconds == children.STOP_SECONDS
        EVENTS.append(f"stop {self.name}")
        self.end(0)
        return True


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


PARTS: Any = Parts(
    FakeChild,  # type: ignore[arg-type]
    Own,  # type: ignore[arg-type]
    Apache,  # type: ignore[arg-type]
    lambda **options: SimpleNamespace(origin=f"jars {options['may_fetch']}"),  # type: ignore[arg-type,return-value]
    switch_on,
)


@pytest.fixture
def new_lines(capsys):
    """Return a function that returns what was told since its last call."""
    EVENTS.clear()
    return lambda: capsys.readouterr().out.splitlines()


def cluster_of(tmp_path: Path, *options: str) -> Cluster:
    return ZooKeeperCluster(parser().parse_args(["--zookeeper", *options]), tmp_path, PARTS)


def quorum_of(tmp_path: Path, *options: str) -> Cluster:
    asked = parser().parse_args(["--port", "0", *options])
    return QuorumCluster(asked, tmp_path, {"num.partitions": "3"}, make_child=PARTS.make_child)


@pytest.mark.parametrize(
    "way", ["--apache-zookeeper", "--fetch", "--zookeeper-jars=/j", "used before", "own", "given"]
)
async def test_zookeeper_is_the_one_that_is_wanted(tmp_path, new_lines, way):
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
        lines = new_lines()
        assert f" zookeeper={where} " in lines[-2]
        assert [process.name for process in others] == (["ZooKeeper"] if "ready Apache" in EVENTS else [])
        if others:
            assert f"starting ZooKeeper: jars {way == '--fetch'}" in lines
        EVENTS.clear()
        cluster.is_stopping = True
        await cluster.stop()
        last = {"own": ["close Own"], "given": []}.get(way, ["stop ZooKeeper"])
        assert ["stop broker 1", *last] == EVENTS
        nursery.cancel_scope.cancel()


async def test_a_broker_that_ends_is_told_and_the_last_one_ends_it_all(tmp_path, new_lines):
    cluster = cluster_of(tmp_path, "--brokers", "2")
    failed: list[str] = []
    cluster.fail = lambda: failed.append("failed")  # type: ignore[method-assign]
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        first, second = cluster.children()
        new_lines()
        first.end(-9)
        await trio.testing.wait_all_tasks_blocked()
        ended, again = new_lines()
        assert ended.startswith(f"{first.name} has ended (killed by SIGKILL), 1 of 2 are left; its log is ")
        assert again.startswith(f"  {first.command[0]} -m barnabas serve --zookeeper")
        assert failed == []
        second.end(1)
        await trio.testing.wait_all_tasks_blocked()
        assert new_lines()[0].startswith(f"{second.name} has ended (exit code 1), 0 of 2 are left")
        assert failed == ["failed"]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("is_stopping", [False, True])
async def test_the_end_of_zookeeper_stops_the_brokers(tmp_path, new_lines, is_stopping):
    cluster = cluster_of(tmp_path, "--brokers", "1", "--apache-zookeeper")
    failed: list[str] = []
    cluster.fail = lambda: failed.append("failed")  # type: ignore[method-assign]
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        new_lines()
        cluster.is_stopping = is_stopping
        for child in cluster.children():
            child.end(1)
        await trio.testing.wait_all_tasks_blocked()
        lines = new_lines()
        assert ("ZooKeeper has ended (exit code 1); the brokers are stopped" in lines) is not is_stopping
        assert bool(lines) is bool(failed) is not is_stopping
        nursery.cancel_scope.cancel()


def value_of(words: tuple[str, ...], option: str) -> str:
    return words[words.index(option) + 1]


async def test_a_broker_on_any_port_is_started_again_where_it_was(tmp_path, new_lines):
    cluster = cluster_of(tmp_path, "--brokers", "1", "--port", "0")
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        (broker,) = cluster.children()
        assert value_of(broker.command, "--listen") == "localhost:9001"
        assert (tmp_path / "broker-1.address").read_text() == "localhost:9001\n"
        nursery.cancel_scope.cancel()


# --- in a quorum ----------------------------------------------------------------------------------------------------


def settings_in(path: Path) -> dict[str, str]:
    return {name: value for _, name, value in parse_lines(path.read_text())}


@pytest.mark.parametrize(
    ("options", "voters", "roles"),
    [
        ((), [1, 2, 3], {1: "broker,controller", 3: "broker,controller"}),
        (("--brokers", "1"), [1], {1: "broker,controller"}),
        (("--brokers", "2"), [1], {1: "broker,controller", 2: "broker"}),
        (("--brokers", "5"), [1, 2, 3], {3: "broker,controller", 4: "broker", 5: "broker"}),
        (("--brokers", "1", "--controllers", "2"), [101, 102], {1: "broker", 101: "controller"}),
    ],
)
async def test_first_brokers_or_own_nodes_are_controllers(tmp_path, new_lines, options, voters, roles):
    cluster = quorum_of(tmp_path, *options, "--racks", "a,b")
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        ready = new_lines()[-2]
        assert ready.startswith("barnabas cluster is ready: bootstrap.servers=localhost:9001")
        for node_id, role in roles.items():
            name = f"{'broker' if 'broker' in role else 'controller'}-{node_id}"
            node = settings_in(tmp_path / f"{name}.properties")
            assert (node["process.roles"], node["node.id"]) == (role, str(node_id))
            static = dict(voter.split("@") for voter in node["controller.quorum.voters"].split(","))
            assert list(map(int, static)) == voters
            assert f" bootstrap.controllers={','.join(static.values())} " in ready
            if "controller" in role:
                assert f"CONTROLLER://{static[str(node_id)]}" in node["listeners"]
            assert node["num.partitions"] == "3"
            assert "cluster.id=" in (tmp_path / name / "meta.properties").read_text()
        assert settings_in(tmp_path / "broker-1.properties")["broker.rack"] == "a"
        nursery.cancel_scope.cancel()


async def test_ports_and_controllers_stay_with_more_brokers(tmp_path, new_lines):
    voters = []
    for brokers in (1, 4):
        async with trio.open_nursery() as nursery:
            await quorum_of(tmp_path, "--brokers", str(brokers)).start(nursery)
            nursery.cancel_scope.cancel()
        voters.append(settings_in(tmp_path / "broker-1.properties")["controller.quorum.voters"])
    assert voters[0] == voters[1] == settings_in(tmp_path / "broker-4.properties")["controller.quorum.voters"]


@pytest.mark.parametrize(
    ("options", "killed", "stops"),
    [
        ((), [], ["3", "2 1"]),
        ((), [2], ["3 1"]),
        (("--brokers", "5"), [], ["5", "4", "3", "2 1"]),
        (("--controllers", "3"), [], ["3", "2", "1", "101 102 103"]),
    ],
)
async def test_brokers_stop_while_controllers_have_a_majority(tmp_path, new_lines, options, killed, stops):
    cluster = quorum_of(tmp_path, *options)
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        by_name = {child.name: child for child in cluster.children()}
        for node_id in killed:
            by_name[f"broker {node_id}"].end(-9)
        await trio.testing.wait_all_tasks_blocked()
        EVENTS.clear()
        cluster.is_stopping = True
        await cluster.stop()
        stopped = [event.split()[-1] for event in EVENTS]
        for together in stops:
            count = len(together.split())
            assert sorted(stopped[:count]) == sorted(together.split())
            del stopped[:count]
        assert stopped == []
        nursery.cancel_scope.cancel()


async def test_end_of_a_node_is_told_with_its_file(tmp_path, new_lines):
    cluster = quorum_of(tmp_path, "--brokers", "1", "--controllers", "2")
    failed: list[str] = []
    cluster.fail = lambda: failed.append("failed")  # type: ignore[method-assign]
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        by_name = {child.name: child for child in cluster.children()}
        new_lines()
        by_name["controller 101"].end(-9)
        await trio.testing.wait_all_tasks_blocked()
        ended, again = new_lines()
        assert ended.startswith("controller 101 has ended (killed by SIGKILL), 1 of 2 are left; its log is ")
        assert again.endswith(f"serve --config {tmp_path / 'controller-101.properties'} --log-level warning")
        assert failed == []
        by_name["broker 1"].end(1)
        await trio.testing.wait_all_tasks_blocked()
        assert failed == ["failed"]
        nursery.cancel_scope.cancel()
