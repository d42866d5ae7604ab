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
from barnabas.tools.localcluster.workers import AGAIN_SECONDS_MAX, STEADY_SECONDS, STOP_SECONDS, Workers
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
    found: list[str] = []
    FakeChild.made = []
    monkeypatch.setattr(FakeChild, "in_time", True)
    monkeypatch.setattr(FakeChild, "code_at_end", 0)
    monkeypatch.setattr(workers, "Child", FakeChild)
    monkeypatch.setattr(workers, "OwnZooKeeper", FakeZooKeeper)

    async def switch_on(servers: str) -> str:
        found.append(servers)
        return "they are too old" if len(found) > 1 else ""

    monkeypatch.setattr(features, "switch_on", switch_on)
    return found


def workers_in(directory: Path, count: int = 2, **settings: str) -> Workers:
    given = {"listeners": "PLAINTEXT://h:9092,CONTROL://h:9094", **settings}
    given.setdefault("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,CONTROL:PLAINTEXT")
    return Workers(BrokerConfig({"log.dirs": f"{directory}/a,{directory}/b", **given}), given, count, "info")


def settings_of(directory: Path, number: int) -> dict[str, str]:
    return dict(parse_properties((directory / "a" / f"worker-{number}.properties").read_text()))


async def test_each_worker_has_number_directories_and_ports_of_its_own(tmp_path, switched, capsys):
    group = workers_in(
        tmp_path, 3, **{"advertised.listeners": "PLAINTEXT://out:29092,CONTROL://out:29094", "metrics.listener": "h:9400",
                        "num.io.threads": "5"},
    )  # fmt: skip
    async with trio.open_nursery() as nursery:
        await group.start(nursery)
        assert [(child.name, child.has_started, child.command[1:5]) for child in FakeChild.made] == [
            (f"worker {number}", True, ("-m", "barnabas", "serve", "--config")) for number in (1, 2, 3)
        ]
        assert [child.command[5:] for child in FakeChild.made] == [
            (str(tmp_path / "a" / f"worker-{number}.properties"), "--log-level", "info")
            for number in (1, 2, 3)
        ]
        assert [child.name for child in group.children()] == ["worker 1", "worker 2", "worker 3"]
        nursery.cancel_scope.cancel()
    second = settings_of(tmp_path, 2)
    assert {name: second[name] for name in second if name.endswith(("listeners", "listener", "dirs", "id", "threads"))} == {
        "listeners": "PLAINTEXT://h:9095,CONTROL://h:9097", "advertised.listeners": "PLAINTEXT://out:29095,CONTROL://out:29097",
        "metrics.listener": "h:9401", "broker.id": "2", "log.dirs": f"{tmp_path}/a/worker-2,{tmp_path}/b/worker-2",
        "num.io.threads": "5",
    }  # fmt: skip
    assert settings_of(tmp_path, 1)["listeners"] == "PLAINTEXT://h:9092,CONTROL://h:9094"
    assert settings_of(tmp_path, 3)["broker.id"] == "3"
    assert second["zookeeper.connect"] == "localhost:2181"
    assert second["zookeeper.digest.credentials"] == group._zookeeper.credentials  # type: ignore[attr-defined]
    assert ((tmp_path / "a" / "worker-2.properties").stat().st_mode & 0o777) == 0o600
    assert switched == ["h:9001,h:9002,h:9003"]
    out, err = capsys.readouterr()
    assert (out, err) == (
        f"barnabas is ready: bootstrap.servers=h:9001,h:9002,h:9003 workers=3 data={tmp_path}/a,{tmp_path}/b\n", "",
    )  # fmt: skip


async def test_numbers_begin_where_it_is_said_and_features_are_switched_on_once(tmp_path, switched, capsys):
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


async def test_a_worker_that_ends_is_started_again_later_each_time(autojump_clock, running, capsys):
    group, codes = running
    zookeeper = group._zookeeper
    for number, pause in enumerate((0.2, 0.4, 0.8), 1):
        FakeChild.made[-1 if number > 1 else 0].end(-9)
        await trio.testing.wait_all_tasks_blocked()
        before = len(FakeChild.made)
        assert zookeeper.owners == ["/brokers/ids/1"] * number
        assert not group._workers[0].serves
        await trio.sleep(pause * 0.9)
        assert len(FakeChild.made) == before
        await trio.sleep(pause * 0.2)
        assert len(FakeChild.made) == before + 1
        assert group._workers[0].serves
        assert group.children()[0] is FakeChild.made[-1]
        assert capsys.readouterr().err.splitlines() == [
            f"barnabas: worker 1 has ended (killed by SIGKILL); it is started again in {pause:g} s",
            "barnabas: worker 1 is ready again",
        ]
    await trio.sleep(STEADY_SECONDS + 1)
    FakeChild.made[-1].end(1)
    await trio.testing.wait_all_tasks_blocked()
    assert "(exit code 1); it is started again in 0.2 s" in capsys.readouterr().err
    assert codes == []


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
async def test_all_workers_are_stopped_and_one_that_stops_badly_is_a_failure(
    running, capsys, in_time, code, ending
):
    group, codes = running
    FakeChild.in_time, FakeChild.code_at_end = in_time, code
    group._work.cancel()
    await trio.testing.wait_all_tasks_blocked()
    assert codes == [ending]
    assert [child.code for child in FakeChild.made] == [code, code]
    assert group._zookeeper.closed == 1
    killed = [f"barnabas: worker {number} was killed: it did not stop in 30 s" for number in (1, 2)]
    assert sorted(capsys.readouterr().err.splitlines()) == ([] if in_time else killed)


async def test_workers_that_were_not_started_are_not_stopped(tmp_path, switched):
    group = workers_in(tmp_path)
    group._directory.mkdir()
    group._workers.append(group._worker(0, 1))
    await group.stop()
    assert FakeChild.made[0].code is None
    assert not group.has_failed


def test_a_mistake_is_told_and_fails(tmp_path, switched, monkeypatch, capsys):
    async def run(self: Any) -> int:
        raise ChildError("worker 1 does not start")

    monkeypatch.setattr(Workers, "run", run)
    given = {"log.dirs": str(tmp_path)}
    assert workers.run(BrokerConfig(given), given, 1, "info") == FAILED
    assert capsys.readouterr().err == "barnabas: worker 1 does not start\n"
