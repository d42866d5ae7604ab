"""Workers without processes: what each is started with, when one is started again, and how all are stopped."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.config.loading import BrokerConfig
from barnabas.ending import DONE, FAILED
from barnabas.tools.localcluster import children
from barnabas.tools.localcluster.children import ChildError
from barnabas.tools.localcluster.workers import AGAIN_SECONDS_MAX, Parts, Workers, exit_code
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
        self.end(self.world.code_at_end)
        return self.world.in_time


class FakeZooKeeper:
    address = "localhost:2181"

    def __init__(self, directory: Path, *, credentials: str) -> None:
        self.directory, self.credentials = directory, credentials
        self.closed = 0
        self.server = SimpleNamespace(end_owner_of=lambda _: None)

    async def start(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)

    async def run(self) -> None:
        await trio.sleep_forever()

    async def close(self) -> None:
        self.closed += 1


class World:
    """Processes of workers and their ZooKeepers, as a test says they behave."""

    def __init__(self) -> None:
        self.children: list[FakeChild] = []
        self.zookeepers: list[FakeZooKeeper] = []
        self.switched: list[str] = []
        """The servers that had their features switched on."""
        self.line = ""
        self.in_time, self.code_at_end, self.come_back = True, 0, True

    def zookeeper(self, *arguments: Any, **more: Any) -> Any:
        self.zookeepers.append(FakeZooKeeper(*arguments, **more))
        return self.zookeepers[-1]

    async def switch_on(self, servers: str) -> str:
        self.switched.append(servers)
        return "they are too old" if len(self.switched) > 1 else ""

    def workers_in(self, directory: Path, count: int = 2, **settings: str) -> Workers:
        arguments = {"listeners": "PLAINTEXT://h:9092,CONTROL://h:9094", **settings}
        arguments.setdefault("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,CONTROL:PLAINTEXT")
        config = BrokerConfig({"log.dirs": f"{directory}/a,{directory}/b", **arguments})
        parts = Parts(
            lambda name, words, _: FakeChild(self, name, words),  # type: ignore[arg-type,return-value]
            self.zookeeper,
            self.switch_on,
        )
        return Workers(config, arguments, count, "info", parts)


@pytest.fixture
def world():
    return World()


def settings_of(directory: Path, number: int) -> dict[str, str]:
    return dict(parse_properties((directory / "a" / f"worker-{number}.properties").read_text()))


async def test_worker_numbers_begin_as_set_and_features_switch_once(tmp_path, world, capsys):
    for _ in range(2):
        async with trio.open_nursery() as nursery:
            await world.workers_in(tmp_path, **{"node.id": "40"}).start(nursery)
            nursery.cancel_scope.cancel()
    assert [settings_of(tmp_path, number)["broker.id"] for number in (1, 2)] == ["40", "41"]
    assert "node.id" not in settings_of(tmp_path, 1)
    assert len(world.switched) == 1
    async with trio.open_nursery() as nursery:
        await world.workers_in(tmp_path / "new").start(nursery)
        nursery.cancel_scope.cancel()
    assert capsys.readouterr().err == (
        "barnabas: groups of KIP-848, share groups and streams groups are not served: they are too old\n"
    )


async def test_a_worker_that_says_something_else_does_not_start(tmp_path, world):
    world.line = "a mistake in the settings"
    with pytest.raises(ChildError, match="worker 1 does not start: a mistake in the settings"):
        await world.workers_in(tmp_path, 1).run()


@pytest.fixture
async def running(tmp_path, world, capsys):
    """Two workers that serve, and the exit code once they have ended."""
    group = world.workers_in(tmp_path)
    codes: list[int] = []

    async def run() -> None:
        codes.append(await group.run())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        await trio.testing.wait_all_tasks_blocked()
        capsys.readouterr()
        yield group, codes
        group.end()


async def test_where_no_worker_stays_up_all_ends(autojump_clock, world, running, capsys):
    group, codes = running
    world.come_back = False
    world.children[1].end(1)
    world.children[0].end(1)
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
    assert [child.code for child in world.children] == [code, code]
    assert [zookeeper.closed for zookeeper in world.zookeepers] == [1]
    killed = [f"barnabas: worker {number} was killed: it did not stop in 30 s" for number in (1, 2)]
    assert sorted(capsys.readouterr().err.splitlines()) == ([] if in_time else killed)


def test_a_mistake_is_told_and_fails(tmp_path, world, capsys):
    world.line = "a mistake in the settings"
    assert exit_code(world.workers_in(tmp_path, 1)) == FAILED
    assert capsys.readouterr().err == "barnabas: worker 1 does not start: a mistake in the settings\n"
