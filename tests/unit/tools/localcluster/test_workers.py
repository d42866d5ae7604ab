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
from barnabas.tools.localcluster import features, workers
from barnabas.tools.localcluster.children import ChildError
from barnabas.tools.localcluster.workers import AGAIN_SECONDS_MAX, STOP_SECONDS, Workers
from tests.support.whole_steps import parse_properties


class FakeChild:
    """Stands for a worker's process."""

    made: list[FakeChild]
    in_time = True
    code_at_end = 0

    def __init__(self, name: str, words: tuple[str, ...], output: Any) -> None:
        assert output is None
        self.name, self.command = name, words
        self.ended = trio.Event()
        self.code: int | None = None
        self.has_started = False
        self.line: str | None = None
        self.lines_asked = 0
        FakeChild.made.append(self)

    def start(self, *, reads_output: bool) -> None:
        assert reads_output
        self.has_started = True

    async def first_line(self, seconds: float) -> str:
        assert seconds == workers.READY_SECONDS
        self.lines_asked += 1
        if self.line is not None:
            raise ChildError(self.line)
        return f"barnabas is ready: bootstrap.servers=h:{9000 + int(self.name.split()[1])} data=x"

    async def wait(self) -> int:
        await self.ended.wait()
        assert self.code is not None
        return self.code

    def end(self, code: int) -> None:
        self.code = code
        self.ended.set()

    async def stop(self, seconds: float) -> bool:
        assert seconds == STOP_SECONDS
        self.end(self.code_at_end)
        return self.in_time


class FakeZooKeeper:
    address = "localhost:2181"

    def __init__(self, directory: Path, *, credentials: str) -> None:
        self.directory, self.credentials = directory, credentials
        self.closed = 0
        self.owners: list[str] = []
        self.server = SimpleNamespace(end_owner_of=self.owners.append)

    async def start(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)

    async def run(self) -> None:
        await trio.sleep_forever()

    async def close(self) -> None:
        self.closed += 1


@pytest.fixture
def switched(monkeypatch):
    """The servers whose features were switched on."""
    result: list[str] = []
    FakeChild.made = []
    monkeypatch.setattr(FakeChild, "in_time", True)
    monkeypatch.setattr(FakeChild, "code_at_end", 0)
    monkeypatch.setattr(workers, "Child", FakeChild)
    monkeypatch.setattr(workers, "OwnZooKeeper", FakeZooKeeper)

    async def switch_on(servers: str) -> str:
        result.append(servers)
        return "they are too old" if len(result) > 1 else ""

    monkeypatch.setattr(features, "switch_on", switch_on)
    return result


def workers_in(directory: Path, count: int = 2, **settings: str) -> Workers:
    arguments = {"listeners": "PLAINTEXT://h:9092,CONTROL://h:9094", **settings}
    arguments.setdefault("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,CONTROL:PLAINTEXT")
    return Workers(
        BrokerConfig({"log.dirs": f"{directory}/a,{directory}/b", **arguments}), arguments, count, "info"
    )


def settings_of(directory: Path, number: int) -> dict[str, str]:
    return dict(parse_properties((directory / "a" / f"worker-{number}.properties").read_text()))


async def test_worker_numbers_begin_as_set_and_features_switch_once(tmp_path, switched, capsys):
    for _ in range(2):
        async with trio.open_nursery() as nursery:
            await workers_in(tmp_path, **{"node.id": "40"}).start(nursery)
            nursery.cancel_scope.cancel()
    assert [settings_of(tmp_path, number)["broker.id"] for number in (1, 2)] == ["40", "41"]
    assert "node.id" not in settings_of(tmp_path, 1)
    assert len(switched) == 1
    async with trio.open_nursery() as nursery:
        await workers_in(tmp_path / "new").start(nursery)
        nursery.cancel_scope.cancel()
    assert capsys.readouterr().err == (
        "barnabas: groups of KIP-848, share groups and streams groups are not served: they are too old\n"
    )


async def test_a_worker_that_says_something_else_does_not_start(tmp_path, switched, monkeypatch):
    async def first_line(self: Any, seconds: float) -> str:
        return "a mistake in the settings"

    monkeypatch.setattr(FakeChild, "first_line", first_line)
    with pytest.raises(ChildError, match="worker 1 does not start: a mistake in the settings"):
        await workers_in(tmp_path, 1).run()


@pytest.fixture
async def running(tmp_path, switched, capsys):
    """Two workers that serve, and the exit code once they have ended."""
    group = workers_in(tmp_path)
    codes: list[int] = []

    async def run() -> None:
        codes.append(await group.run())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        await trio.testing.wait_all_tasks_blocked()
        capsys.readouterr()
        yield group, codes
        group._work.cancel()


async def test_where_no_worker_stays_up_all_ends(autojump_clock, running, capsys):
    group, codes = running
    FakeChild.made[1].end(1)
    FakeChild.made[0].end(1)
    for _ in range(40):
        await trio.sleep(AGAIN_SECONDS_MAX + 1)
        if codes:
            break
        for child in group.children():
            if child.code is None:
                child.end(1)
                group._workers[[*group.children()].index(child)].serves = False
    assert codes == [FAILED]
    assert "has ended (exit code 1), and no worker stays up: stopping" in capsys.readouterr().err


async def test_a_worker_that_does_not_come_back_is_told(autojump_clock, running, capsys, monkeypatch):
    group, _ = running

    async def first_line(self: Any, seconds: float) -> str:
        raise ChildError("it does not start; see above")

    monkeypatch.setattr(FakeChild, "first_line", first_line)
    FakeChild.made[0].end(1)
    await trio.sleep(1)
    assert not group._workers[0].serves
    assert "barnabas: it does not start; see above\n" in capsys.readouterr().err
    group.is_stopping = True
    FakeChild.made[-1].end(1)
    await trio.sleep(1)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("in_time", "code", "ending"), [(True, 0, DONE), (False, 0, DONE), (True, 1, FAILED)]
)
async def test_workers_are_stopped_and_a_bad_stop_is_a_failure(running, capsys, in_time, code, ending):
    group, codes = running
    FakeChild.in_time, FakeChild.code_at_end = in_time, code
    group._work.cancel()
    await trio.testing.wait_all_tasks_blocked()
    assert codes == [ending]
    assert [child.code for child in FakeChild.made] == [code, code]
    assert group._zookeeper.closed == 1
    killed = [f"barnabas: worker {number} was killed: it did not stop in 30 s" for number in (1, 2)]
    assert sorted(capsys.readouterr().err.splitlines()) == ([] if in_time else killed)


def test_a_mistake_is_told_and_fails(tmp_path, switched, monkeypatch, capsys):
    async def run(self: Any) -> int:
        raise ChildError("worker 1 does not start")

    monkeypatch.setattr(Workers, "run", run)
    arguments = {"log.dirs": str(tmp_path)}
    assert workers.run(BrokerConfig(arguments), arguments, 1, "info") == FAILED
    assert capsys.readouterr().err == "barnabas: worker 1 does not start\n"
