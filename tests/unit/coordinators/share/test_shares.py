"""Share groups are assembled in a broker: the clock and the settings of each part, and the end of a session."""

from __future__ import annotations

from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.config.loading import BrokerConfig
from barnabas.coordinators.share.settings import ShareSettings
from barnabas.coordinators.share.shares import Shares
from barnabas.errors import RequestError
from barnabas.serving.loop_budget import LoopBudget
from barnabas.wire.generated.errors import ErrorCode
from tests.support.clusters import StandingImage
from tests.support.journals import MemoryJournal
from tests.support.peers import ME, cluster, topic

WALL_MS, STEADY_MS = 1_700_000_000_000, 5_000
TOPIC = b"t".rjust(16)
SETTINGS = {
    "share.coordinator.snapshot.update.records.per.snapshot": "77",
    "share.coordinator.write.timeout.ms": "2500",
    "share.coordinator.state.topic.prune.interval.ms": "120000",
    "group.share.max.share.sessions": "3",
    "group.share.record.lock.duration.ms": "20000",
    "group.share.delivery.count.limit": "6",
    "group.share.partition.max.record.locks": "300",
}


def shares_of(metadata: StandingImage | None = None, elsewhere: Any = None) -> Shares:
    """The share groups of a broker with settings that all differ, and clocks that do."""
    return Shares(
        BrokerConfig({"log.dirs": "/x", "listeners": "PLAINTEXT://:0", **SETTINGS}), MemoryJournal(),
        groups=None, metadata=metadata or cluster(topic("t", ME)), replicas=None, budget=LoopBudget(),  # type: ignore[arg-type]
        step_runner=None, now_ms=lambda: WALL_MS, steady_ms=lambda: STEADY_MS, elsewhere=elsewhere,  # type: ignore[arg-type]
        high_watermarks=None,  # type: ignore[arg-type]
    )  # fmt: skip


class Partitions:
    """Stands for share partitions: notes what is released and forgotten, once `gate` is open."""

    def __init__(self, shares: Shares) -> None:
        shares.partitions = self  # type: ignore[assignment]
        self.told: list[Any] = []
        self.gate = trio.Event()
        self.gate.set()

    async def run(self) -> None:
        self.told.append("run")
        await trio.sleep_forever()

    async def release(self, group_id: str, member_id: str, topic_partitions: Any) -> None:
        await self.gate.wait()
        self.told.append((group_id, member_id, list(topic_partitions)))

    def forget_group(self, group_id: str) -> None:
        self.told.append(group_id)

    def unload(self) -> None:
        self.told.append("unload")


@asynccontextmanager
async def running(shares: Shares):
    async with trio.open_nursery() as nursery:
        nursery.start_soon(shares.run)
        await trio.testing.wait_all_tasks_blocked()
        yield
        nursery.cancel_scope.cancel()


def test_each_part_obeys_its_own_settings():
    shares = shares_of()
    defaults = shares.partitions.settings_of("g")
    assert defaults == ShareSettings(record_lock_ms=20_000, deliveries_max=6, records_in_flight_max=300)
    assert shares.state._log._commit_seconds == 2.5
    for member in "abc":
        shares.sessions.open(("g", member), (), 1)
    with pytest.raises(RequestError) as refused:
        shares.sessions.open(("g", "d"), (), 1)
    assert refused.value.code == ErrorCode.SHARE_SESSION_LIMIT_REACHED


@pytest.mark.parametrize("is_cluster", [False, True])
def test_in_a_cluster_states_are_asked_for_wherever_they_are(is_cluster):
    around: list[Any] = []

    def elsewhere(state: Any) -> Any:
        around.append(state)
        return SimpleNamespace()

    shares = shares_of(elsewhere=elsewhere if is_cluster else None)
    assert (shares.state_port is shares.state) is not is_cluster
    assert around == ([shares.state] if is_cluster else [])
    assert shares.groups._state is shares.partitions._state is shares.state_port


async def test_what_is_redundant_is_cleared_away_as_often_as_is_set(autojump_clock):
    shares = shares_of()
    partitions = Partitions(shares)
    times: list[float] = []

    async def prune() -> None:
        times.append(round(trio.current_time() - began))

    shares.state.prune = prune  # type: ignore[method-assign]
    began = trio.current_time()
    async with running(shares):
        await trio.sleep(300)
    assert times == [120, 240]
    assert partitions.told == ["run"]


# --- the end of sessions ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("others", [(), (("g", "n"),), (("other", "m"),)])
async def test_end_of_a_session_releases_its_records(others):
    shares = shares_of()
    partitions = Partitions(shares)
    shares.sessions.open(("g", "m"), [(TOPIC, 0), (TOPIC, 1)], 1)
    for key in others:
        shares.sessions.open(key, (), 1)
    await shares.end_session(("g", "m"))
    is_last = ("g", "n") not in others
    assert partitions.told == [("g", "m", [(TOPIC, 0), (TOPIC, 1)]), *(["g"] if is_last else [])]
    await shares.end_session(("g", "m"))
    assert len(partitions.told) == 1 + is_last, "there is no session any more"


async def test_closed_connection_ends_its_own_sessions(autojump_clock):
    shares = shares_of()
    partitions = Partitions(shares)
    async with running(shares):
        partitions.told.clear()
        partitions.gate = trio.Event()
        for key, connection_id in ((("g", "m"), 1), (("h", "m"), 1), (("g", "n"), 2)):
            shares.sessions.open(key, [(TOPIC, 0)], connection_id)
        shares.connection_closed(1)
        assert [session.key for session in shares.sessions.of_connection(2)] == [("g", "n")]
        assert (len(shares.sessions), partitions.told) == (1, [])
        partitions.gate.set()
        await trio.testing.wait_all_tasks_blocked()
        assert sorted(partitions.told, key=str) == [("g", "m", [(TOPIC, 0)]), ("h", "m", [(TOPIC, 0)]), "h"]


async def test_states_use_wall_clock_and_locks_monotonic_time():
    shares = shares_of()
    assert shares.partitions.lock_clock_ms() == STEADY_MS
    await shares.state.initialize(("g", TOPIC, 0), 0, 0)
    state = await shares.state.summary(("g", TOPIC, 0))
    assert state is not None
    assert state.written_ms == WALL_MS
