"""Workers without processes: what each is started with, when one is started again, and how all are stopped."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.config.loading import BrokerConfig
from barnabas.config.setting import SettingError
from barnabas.ending import DONE, FAILED, USAGE_ERROR
from barnabas.tools.localcluster import children
from barnabas.tools.localcluster.children import ChildError
from barnabas.tools.localcluster.workers import AGAIN_SECONDS_MAX, Workers
from barnabas.tools.localcluster.workers_command import exit_code, run, workers_of
from barnabas.tools.localcluster.workers_in_quorum import QuorumWorkers
from barnabas.tools.localcluster.workers_on_zookeeper import Parts, ZooKeeperWorkers
from tests.support.whole_steps import parse_properties


class FakeChild:
    """Stands for a worker's process."""

    def __init__(self, world: World, name: str, words: Any) -> None:
        self.world, self.name, self.command = world, name, words
        self.ended = trio.Event()
        self.code: int | None = None
        self.has_started = False
        self.is_first = not any(child.name == name for child in world.children)
        world.children.append(self)

    def start(self, *, reads_output: bool) -> None:
        assert reads_output
        self.has_started = True

    async def first_line(self, seconds: float) -> str:
        assert seconds == children.READY_SECONDS
        if not self.is_first and not self.world.come_back:
            raise ChildError("it does not start; see above")
        return self.world.line or f"barnabas is ready: bootstrap.servers=h:{9000 + int(self.name[-1])} data=x"

    def last_words(self) -> str:
        return ""

    async def wait(self) -> int:
        await self.ended.wait()
        assert self.code is not None
        return self.code

    def end(self, code: int) -> None:
        self.code = code
        self.ended.set()

    async def stop(self, seconds: float) -> bool:
        assert seconds == children.STOP_SECONDS
        self.world.stops.append(self.name)
        await trio.lowlevel.checkpoint()
        self.end(self.world.code_at_end)
        return self.world.in_time


class FakeZooKeeper:
    address = "localhost:2181"

    def __init__(self, world: World, directory: Path, *, credentials: str) -> None:
        self.world, self.directory, self.credentials = world, directory, credentials
        self.server = SimpleNamespace(end_owner_of=world.ended_sessions.append)

    async def start(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)

    async def run(self) -> None:
        await trio.sleep_forever()

    async def close(self) -> None:
        self.world.stops.append("ZooKeeper")


LISTENERS = "PLAINTEXT://h:9092,CONTROL://h:9094"


class World:
    """Processes of workers and their ZooKeepers, as a test says they behave."""

    def __init__(self) -> None:
        self.children: list[FakeChild] = []
        self.stops: list[str] = []
        self.ended_sessions: list[str] = []
        self.line = ""
        self.in_time, self.code_at_end, self.come_back = True, 0, True

    def child(self, name: str, words: Any, _: Any) -> Any:
        return FakeChild(self, name, words)

    def zookeeper(self, *arguments: Any, **more: Any) -> Any:
        return FakeZooKeeper(self, *arguments, **more)

    def workers_in(
        self, directory: Path, count: int = 2, *, on_zookeeper: bool = False, **settings: str
    ) -> Workers:
        config, shared = configured(directory, **settings)
        if on_zookeeper:
            return ZooKeeperWorkers(config, shared, count, "info", parts=Parts(self.child, self.zookeeper))
        return QuorumWorkers(config, shared, count, "info", make_child=self.child)


def configured(directory: Path, **settings: str) -> tuple[BrokerConfig, dict[str, str]]:
    shared = {
        "log.dirs": f"{directory}/a,{directory}/b",
        "listeners": LISTENERS,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROL:PLAINTEXT",
        **settings,
    }
    return BrokerConfig(shared), shared


async def start(workers: Workers) -> None:
    """Start workers, and leave them without a stop."""
    async with trio.open_nursery() as nursery:
        await workers.start(nursery)
        nursery.cancel_scope.cancel()


@pytest.fixture
def world():
    return World()


def settings_of(directory: Path, number: int) -> dict[str, str]:
    return dict(parse_properties((directory / "a" / f"worker-{number}.properties").read_text()))


# --- settings ---------------------------------------------------------------------------------------------------


async def test_first_worker_is_the_controller_of_all(tmp_path, world):
    await start(world.workers_in(tmp_path, **{"node.id": "40", "num.partitions": "7"}))
    first, second = settings_of(tmp_path, 1), settings_of(tmp_path, 2)
    assert [first["node.id"], second["node.id"]] == ["40", "41"]
    assert [first["process.roles"], second["process.roles"]] == ["broker,controller", "broker"]
    voters = first["controller.quorum.voters"]
    assert second["controller.quorum.voters"] == voters
    assert first["listeners"] == f"{LISTENERS},CONTROLLER://{voters.removeprefix('40@')}"
    assert second["listeners"] == "PLAINTEXT://h:9095,CONTROL://h:9097"
    assert second["log.dirs"] == f"{tmp_path}/a/worker-2,{tmp_path}/b/worker-2"
    assert second["num.partitions"] == "7"
    for name in ("a/worker-1", "b/worker-1", "a/worker-2", "b/worker-2"):
        assert "cluster.id=" in (tmp_path / name / "meta.properties").read_text()


async def test_cluster_and_controller_stay_with_more_workers(tmp_path, world):
    await start(world.workers_in(tmp_path))
    before = (tmp_path / "a" / "cluster.properties").read_text()
    await start(world.workers_in(tmp_path, 3))
    assert (tmp_path / "a" / "cluster.properties").read_text() == before
    assert settings_of(tmp_path, 3)["process.roles"] == "broker"


async def test_controller_wants_a_login_that_is_new_each_time(tmp_path, world):
    logins = []
    for _ in range(2):
        await start(
            world.workers_in(
                tmp_path,
                **{
                    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                    "super.users": "User:a",
                },
            )
        )
        first, second = settings_of(tmp_path, 1), settings_of(tmp_path, 2)
        jaas = "listener.name.controller.plain.sasl.jaas.config"
        assert first[jaas] == second[jaas]
        assert first["listener.security.protocol.map"].endswith(",CONTROLLER:SASL_PLAINTEXT")
        users = first["super.users"].split(";")
        assert users[0] == "User:a"
        assert f'username="{users[1].removeprefix("User:")}"' in first[jaas]
        logins.append((users[1], first[jaas]))
        assert (tmp_path / "a" / "worker-1.properties").stat().st_mode & 0o77 == 0
    assert logins[0] != logins[1]
    await start(world.workers_in(tmp_path))
    assert "super.users" not in settings_of(tmp_path, 1), "nobody is refused anything"


@pytest.mark.parametrize(
    ("settings", "refusal"),
    [
        ({"kafka.version": "3.9"}, "--as-version"),
        ({"listeners": "CONTROLLER://h:1"}, "give the one for clients another name"),
        ({"node.id": "7"}, "is 1 since its first start, and broker.id is 7"),
        ({"remote.log.storage.system.enable": "true"}, "names no store"),
    ],
)
async def test_settings_that_do_not_go_with_workers_are_refused(tmp_path, world, settings, refusal, capsys):
    await start(world.workers_in(tmp_path))
    protocols = {"listener.security.protocol.map": "CONTROLLER:PLAINTEXT"} if "listeners" in settings else {}
    workers = world.workers_in(tmp_path, **settings, **protocols)
    with pytest.raises(SettingError, match=refusal):
        workers.check()
    assert exit_code(workers) == USAGE_ERROR
    assert refusal in capsys.readouterr().err


def test_old_workers_stay_on_zookeeper_and_new_ones_have_none(tmp_path, capsys):
    assert isinstance(workers_of(*configured(tmp_path), 2, "info"), QuorumWorkers)
    (tmp_path / "a" / "metadata").mkdir(parents=True)
    assert isinstance(workers_of(*configured(tmp_path), 2, "info"), ZooKeeperWorkers)
    assert "are on ZooKeeper since their first start, and start so again" in capsys.readouterr().err


async def test_data_without_the_file_of_their_cluster_is_refused(tmp_path, world, capsys):
    await start(world.workers_in(tmp_path))
    config, shared = configured(tmp_path, **{"log.dirs": f"{tmp_path}/b,{tmp_path}/a"})
    assert run(config, shared, 2, "info") == USAGE_ERROR
    assert "name the log dirs in the order of their first start" in capsys.readouterr().err


async def test_old_workers_share_their_zookeeper(tmp_path, world):
    workers = world.workers_in(tmp_path, on_zookeeper=True, **{"node.id": "40"})
    await start(workers)
    first, second = settings_of(tmp_path, 1), settings_of(tmp_path, 2)
    assert [first["broker.id"], second["broker.id"]] == ["40", "41"]
    assert "node.id" not in first
    assert first["zookeeper.connect"] == second["zookeeper.connect"] == FakeZooKeeper.address
    assert first["zookeeper.digest.credentials"] == second["zookeeper.digest.credentials"]
    assert (tmp_path / "a" / "metadata").is_dir()


async def test_a_worker_that_says_something_else_does_not_start(tmp_path, world):
    world.line = "a mistake in the settings"
    with pytest.raises(ChildError, match="worker 1 does not start: a mistake in the settings"):
        await world.workers_in(tmp_path, 1).run()


# --- watching, and the stop ---------------------------------------------------------------------------------------


@pytest.fixture(params=["quorum", "zookeeper"])
async def running(request, tmp_path, world, capsys):
    """Three workers that serve, and the exit code once they have ended."""
    group = world.workers_in(tmp_path, 3, on_zookeeper=request.param == "zookeeper")
    codes: list[int] = []

    async def run_all() -> None:
        codes.append(await group.run())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run_all)
        await trio.testing.wait_all_tasks_blocked()
        capsys.readouterr()
        yield group, codes
        group.end()


async def test_where_no_worker_stays_up_all_ends(autojump_clock, world, running, capsys):
    group, codes = running
    world.come_back = False
    for child in world.children[:]:
        child.end(1)
    for _ in range(40):
        await trio.sleep(AGAIN_SECONDS_MAX + 1)
        if codes:
            break
        for child in group.children():
            if child.code is None:
                child.end(1)
    assert codes == [FAILED]
    assert "has ended (exit code 1), and no worker stays up: stopping" in capsys.readouterr().err


async def test_a_worker_that_does_not_come_back_is_told(autojump_clock, world, running, capsys):
    group, _ = running
    world.come_back = False
    world.children[0].end(1)
    await trio.sleep(1)
    assert "barnabas: it does not start; see above\n" in capsys.readouterr().err
    is_on_zookeeper = isinstance(group, ZooKeeperWorkers)
    assert world.ended_sessions == (["/brokers/ids/1"] if is_on_zookeeper else [])
    group.is_stopping = True
    world.children[-1].end(1)
    await trio.sleep(1)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("in_time", "code", "ending"), [(True, 0, DONE), (False, 0, DONE), (True, 1, FAILED)]
)
async def test_workers_are_stopped_and_a_bad_stop_is_a_failure(world, running, capsys, in_time, code, ending):
    group, codes = running
    world.in_time, world.code_at_end = in_time, code
    group.end()
    await trio.testing.wait_all_tasks_blocked()
    assert codes == [ending]
    assert [child.code for child in world.children] == [code] * 3
    if isinstance(group, ZooKeeperWorkers):
        assert world.stops[-1] == "ZooKeeper"
    else:
        assert world.stops[-1] == "worker 1", "the controller is told of the others' ends"
    killed = [f"barnabas: worker {number} was killed: it did not stop in 30 s" for number in (1, 2, 3)]
    assert sorted(capsys.readouterr().err.splitlines()) == ([] if in_time else killed)


def test_a_mistake_is_told_and_fails(tmp_path, world, capsys):
    world.line = "a mistake in the settings"
    assert exit_code(world.workers_in(tmp_path, 1)) == FAILED
    assert capsys.readouterr().err == "barnabas: worker 1 does not start: a mistake in the settings\n"
