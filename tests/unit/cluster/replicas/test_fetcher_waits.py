"""Waits of a fetcher: how long the leader may wait, when it is asked again, and how often others run meanwhile."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import trio

from barnabas.cluster.metadata.changes import BrokerRegistered, TopicCreated
from barnabas.cluster.metadata.image import BrokerInfo, PartitionInfo, TopicInfo
from barnabas.cluster.replicas import fetcher as fetchers
from barnabas.cluster.replicas.fetching import ReplicaFetchers
from barnabas.serving.loop_budget import LoopBudget
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.fetch import FetchRequest
from barnabas.wire.generated.list_offsets import ListOffsetsRequest
from barnabas.wire.generated.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from tests.support.fetching import LEADER, ME, PARTITIONS, TOPIC_ID, Follower, Leader, at

RUNS_SOURCES = True
"""A budget that counts stands in here, which compiled code does not take."""

SETTINGS = {"replica.fetch.wait.max.ms": "700", "replica.fetch.backoff.ms": "300"}


class Timed(Leader):
    """Notes when it was asked for a version, and the requests with their times."""

    def __init__(self, version: int = 17) -> None:
        super().__init__(version)
        self.looks: list[float] = []
        self.times: list[tuple[float, Any]] = []

    async def version_of(self, broker_id: int, key: int, **named: Any) -> int:
        if key == 1:
            self.looks.append(trio.current_time())
        return await super().version_of(broker_id, key, **named)

    async def ask(self, broker_id: int, request: Any, **named: Any) -> Any:
        self.times.append((trio.current_time(), request))
        return await super().ask(broker_id, request, **named)

    def fetches(self) -> list[FetchRequest]:
        return [one for _, one in self.times if isinstance(one, FetchRequest)]


def gaps(times: list[float]) -> list[float]:
    return [round(later - sooner, 3) for sooner, later in pairwise(times)]


async def test_the_leader_waits_as_long_as_is_set(autojump_clock: Any) -> None:
    leader = Timed()
    follower = Follower(leader, **SETTINGS)
    await follower.follow()
    async with follower.fetching():
        await trio.sleep(3)
    assert {one.max_wait_ms for one in leader.fetches()} == {700}
    assert gaps([when for when, _ in leader.times])[:3] == pytest.approx([0.7] * 3, abs=0.01)


async def test_the_leader_waits_no_longer_than_a_partition_that_failed(autojump_clock: Any) -> None:
    leader = Timed()
    follower = Follower(leader, **SETTINGS)
    leader.errors = {1: ErrorCode.UNKNOWN_SERVER_ERROR}
    await follower.follow()
    async with follower.fetching():
        await trio.sleep(2)
    waits = [one.max_wait_ms for one in leader.fetches()]
    named = [
        sorted(part.partition for topic in one.topics for part in topic.partitions)
        for one in leader.fetches()
    ]
    assert waits[:3] == [700, 300, 700]
    assert named[:3] == [[0, 1, 2], [0, 2], [0, 1, 2]]


async def test_a_leader_that_is_away_is_asked_after_each_backoff_and_told_of_once(
    autojump_clock: Any, caplog: pytest.LogCaptureFixture
) -> None:
    leader = Timed()
    follower = Follower(leader, **SETTINGS)
    await follower.follow()
    async with follower.fetching():
        for _ in range(2):
            await trio.sleep(1)
            caplog.clear()
            leader.is_away = True
            await trio.sleep(1)
            leader.looks.clear()
            await trio.sleep(3)
            assert gaps(leader.looks) == pytest.approx([0.3] * (len(leader.looks) - 1), abs=0.01)
            assert caplog.text.count("the leader cannot be asked") == 1
            leader.is_away = False


async def test_an_away_leader_is_asked_at_once_for_a_partition_that_comes(autojump_clock: Any) -> None:
    leader = Timed()
    follower = Follower(leader, **SETTINGS | {"replica.fetch.backoff.ms": "5000"})
    await follower.follow()
    follower.fetchers.stop(follower.of(2))
    async with follower.fetching():
        leader.is_away = True
        await trio.sleep(1)
        leader.is_away = False
        leader.append(2, b"x")
        follower.fetchers.start(follower.of(2))
        assert await follower.until(lambda: follower.has(leader, 2)) < 0.1


@pytest.mark.parametrize("backoff_ms", [0, 5, 300])
async def test_with_nothing_to_ask_it_looks_again_after_the_backoff(
    backoff_ms: int, autojump_clock: Any
) -> None:
    class Held:
        def holds(self, _: object) -> bool:
            return True

        def used(self, *_: object) -> None: ...

    leader = Timed()
    follower = Follower(leader, **SETTINGS | {"replica.fetch.backoff.ms": str(backoff_ms)})
    follower.fetchers = ReplicaFetchers(ME, replace(follower.fetchers._parts, throttle=Held()), lambda: 22)
    await follower.follow()
    async with follower.fetching():
        await trio.sleep(1)
        leader.looks.clear()
        await trio.sleep(1)
    assert gaps(leader.looks) == pytest.approx(
        [max(backoff_ms, 10) / 1000] * (len(leader.looks) - 1), abs=0.002
    )
    assert len(leader.looks) > 1


async def test_where_all_partitions_have_failed_it_waits_for_the_first_that_may_be_asked_again(
    autojump_clock: Any,
) -> None:
    """However long the broker has been running."""
    leader = Timed()
    follower = Follower(leader, **SETTINGS)
    leader.errors = dict.fromkeys(range(PARTITIONS), ErrorCode.UNKNOWN_SERVER_ERROR)
    await trio.sleep(1_000)
    await follower.follow()
    async with follower.fetching():
        await trio.sleep(2)
    assert gaps([when for when, _ in leader.times])[0] == pytest.approx(0.3, abs=0.01)


async def test_errors_before_the_logs_agree_do_not_lengthen_the_waits_after_it(autojump_clock: Any) -> None:
    class FailingLater(Timed):
        async def ask(self, broker_id: int, request: Any, **named: Any) -> Any:
            if isinstance(request, FetchRequest) and not self.fetches():
                self.errors = {0: ErrorCode.UNKNOWN_LEADER_EPOCH}
            return await super().ask(broker_id, request, **named)

    leader = FailingLater(11)
    follower = Follower(leader, **SETTINGS)
    leader.append(0, b"x")
    await follower.follow()
    for index in (1, 2):
        follower.fetchers.stop(follower.of(index))
    follower.of(0).log.append_as_follower(at(0, b"x", 5), now_ms=0)
    leader.answer_epochs[0] = (5, 1)
    leader.errors = {0: ErrorCode.UNKNOWN_LEADER_EPOCH}
    async with follower.fetching():
        await trio.sleep(0.5)
    kinds = [isinstance(one, FetchRequest) for _, one in leader.times]
    assert kinds[:4] == [False, False, True, True]
    assert gaps([when for when, _ in leader.times])[:3] == pytest.approx([0.02, 0, 0.02], abs=0.005)


# --- what is asked first ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [11, 12])
@pytest.mark.parametrize("has_records", [False, True])
async def test_ends_of_epochs_are_asked_for_first_where_fetches_do_not_tell_them(
    version: int, has_records: bool, autojump_clock: Any
) -> None:
    leader = Timed(version)
    leader.epoch = 0
    follower = Follower(leader, **SETTINGS)
    for index in range(PARTITIONS):
        leader.append(index, b"x", b"y")
        leader.answer_epochs[index] = (0, 2)
    await follower.follow(epoch=0)
    if has_records:
        for index in range(PARTITIONS):
            follower.of(index).log.append_as_follower(at(0, b"x", 0), now_ms=0)
    async with follower.fetching():
        await follower.until(lambda: follower.has(leader))
    first = leader.times[0][1]
    asks = has_records and version < 12
    assert isinstance(first, OffsetForLeaderEpochRequest if asks else FetchRequest)
    if asks:
        [topic] = first.topics
        assert [one.leader_epoch for one in topic.partitions] == [0] * PARTITIONS
        assert [one.partition for one in topic.partitions] == list(range(PARTITIONS))
        second = leader.times[1]
        assert isinstance(second[1], FetchRequest)
        assert second[0] == leader.times[0][0], "at once"


async def test_an_epoch_that_diverges_is_asked_for_until_the_logs_agree(autojump_clock: Any) -> None:
    leader = Timed(11)
    follower = Follower(leader, **SETTINGS)
    leader.append(0, b"x")
    await follower.follow()
    log = follower.of(0).log
    for offset in range(3):
        log.append_as_follower(at(offset, b"z", 5), now_ms=0)
    leader.answer_epochs[0] = (5, 1)
    async with follower.fetching():
        await follower.until(lambda: log.log_end_offset == 1)
        leader.append(0, b"y")
        await follower.until(lambda: log.log_end_offset == 2)
    assert sum(isinstance(one, OffsetForLeaderEpochRequest) for _, one in leader.times) == 1


async def test_out_of_range_the_ends_are_asked_for_and_only_those(autojump_clock: Any) -> None:
    leader = Timed()
    follower = Follower(leader, **SETTINGS)
    leader.start = 5
    leader.append(0, b"x")
    leader.append(1, b"x")
    leader.append(2, b"x")
    await follower.follow()
    async with follower.fetching():
        await follower.until(lambda: follower.has(leader))
        await trio.sleep(2)
    kinds = [type(one) for _, one in leader.times]
    assert kinds[:4] == [FetchRequest, ListOffsetsRequest, ListOffsetsRequest, FetchRequest]
    assert kinds.count(ListOffsetsRequest) == 2
    assert leader.times[3][0] == leader.times[0][0], "at once"


# --- many ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [99, 100, 201])
async def test_others_run_while_many_partitions_are_chosen(
    count: int, autojump_clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Budget(LoopBudget):
        turns = 0

        async def checkpoint(self) -> None:
            self.turns += 1
            await trio.lowlevel.checkpoint()

    leader = Timed()
    follower = Follower(leader, **SETTINGS)
    budget = Budget()
    follower.fetchers = ReplicaFetchers(ME, replace(follower.fetchers._parts, budget=budget), lambda: 22)
    info = PartitionInfo(LEADER, (LEADER, ME), (LEADER,), 5, 5)
    await follower.apply([
        *(BrokerRegistered(BrokerInfo(one, None, {})) for one in (1, 2)),
        TopicCreated(TopicInfo("t", TOPIC_ID, (info,) * count)),
    ])  # fmt: skip
    leader.logs = {index: [] for index in range(count)}
    for index in range(count):
        follower.fetchers.start(follower.of(index))
    [fetcher] = follower.fetchers._fetchers.values()
    await fetcher._begin(fetcher._main, 17)
    budget.turns = 0
    await fetcher._choose(fetcher._main)
    assert budget.turns == count // fetchers.PARTITIONS_PER_STEP
