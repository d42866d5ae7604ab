"""Periods of what a broker does from time to time, each by the setting that says so; and what checkpoints leave."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from barnabas.broker import housekeeping as module
from barnabas.broker.housekeeping import Housekeeping
from barnabas.config.loading import BrokerConfig
from barnabas.environment.real import real_environment
from barnabas.log.format import checkpoints
from barnabas.testing.memory_disk import MemoryDisk
from tests.unit.broker.test_housekeeping import many_logs

PERIODS = {
    "log.retention.check.interval.ms": ("apply_retention", 7),
    "log.flush.offset.checkpoint.interval.ms": ("write_checkpoints", 11),
    "transaction.remove.expired.transaction.cleanup.interval.ms": ("expire_ids", 13),
    "offsets.retention.check.interval.ms": ("expire_offsets", 17),
}
NOBODY: Any = None


class Counting:
    """Notes when each piece of work is done."""

    def __init__(self) -> None:
        self.done: dict[str, list[float]] = {}

    def __getattr__(self, name: str) -> Any:
        async def work(**_: Any) -> None:
            self.done.setdefault(name, []).append(trio.current_time())

        return work


class Here:
    """Does at once what would be done in a thread."""

    async def run(self, work: Any) -> Any:
        return work()


class Logs:
    """No logs, with checkpoints that are up to date."""

    checkpoints = type("", (), {"is_outdated": False})


async def test_each_thing_is_done_as_often_as_its_setting_says(
    autojump_clock: trio.testing.MockClock,
) -> None:
    counting: Any = Counting()
    values = {name: str(seconds * 1000) for name, (_, seconds) in PERIODS.items()}
    config = BrokerConfig({**values, "log.cleaner.enable": "false"})
    logs: Any = Logs()
    work = Housekeeping(
        config, logs, NOBODY, counting, counting, NOBODY, real_environment(), is_served=lambda _: True
    )
    for name in ("apply_retention", "remove_due", "flush_due", "find_missing", "write_checkpoints"):
        setattr(work, name, getattr(counting, name))
    began = trio.current_time()
    with trio.move_on_after(60):
        await work.run()
    periods: dict[str, float] = dict(PERIODS.values())
    periods |= {"remove_due": module.REMOVE_INTERVAL_SECONDS, "flush_due": module.FLUSH_INTERVAL_SECONDS}
    for name, seconds in periods.items():
        times = [at - began for at in counting.done[name]]
        assert times == pytest.approx([seconds * (n + 1) for n in range(len(times))], abs=0.01), name
        assert len(times) in (int(60 / seconds), int(60 / seconds) - 1), name
    assert len(counting.done["find_missing"]) >= 59 + 5, "each second, and with each checkpoint"


async def test_the_cleaner_looks_as_often_as_its_backoff_says(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[float] = []

    async def clean_logs(*_: Any) -> None:
        looked.append(trio.current_time())

    config = BrokerConfig({"log.cleaner.backoff.ms": "9000", "log.cleaner.threads": "1"})
    logs: Any = Logs()
    idle: Any = Counting()
    environment = real_environment()._replace(threads=Here())  # type: ignore[arg-type]
    work = Housekeeping(config, logs, NOBODY, idle, idle, NOBODY, environment, is_served=lambda _: True)
    monkeypatch.setattr(work, "clean_logs", clean_logs)
    began = trio.current_time()
    with trio.move_on_after(40):
        await work.clean_forever()
    assert [at - began for at in looked] == pytest.approx([18, 27, 36], abs=0.1)
    config.set_dynamic({"log.cleaner.backoff.ms": "0"}, {})
    looked.clear()
    with trio.move_on_after(3.5):
        await work.clean_forever()
    assert len(looked) == 2, "once a second at the most"


async def test_checkpoints_hold_recovery_points_of_all_logs() -> None:
    disk = MemoryDisk()
    logs, housekeeping, _, _ = many_logs(disk, 2)

    def recovery_points() -> dict[tuple[str, int], int]:
        return checkpoints.decode_offsets(disk.read("/a/recovery-point-offset-checkpoint"))

    await housekeeping.write_checkpoints()
    assert recovery_points() == {("t", 0): 0, ("t", 1): 0}
    logs.log("t", 1).flush(0)
    assert recovery_points()["t", 1] == 0
    await housekeeping.write_checkpoints()
    assert recovery_points() == {("t", 0): 0, ("t", 1): 1}
    assert not logs.manager.checkpoints.is_outdated
    logs.log("u", 0)
    assert logs.manager.checkpoints.is_outdated
    await housekeeping.look_for_dirs()
    assert not logs.manager.checkpoints.is_outdated, "one that was made is noted soon"
    assert ("u", 0) in recovery_points()
