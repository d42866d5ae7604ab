"""Waits of a fetcher: how long the leader may wait, when it is asked again, and how often others run meanwhile."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import trio

from barnabas.cluster.metadata.changes import BrokerRegistered, TopicCreated
from barnabas.cluster.metadata.image import BrokerInfo, PartitionInfo, TopicInfo
from barnabas.cluster.replicas import fetcher as fetchers
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.fetch import FetchRequest
from tests.support.at_once import CheckpointCount
from tests.support.fetching import LEADER, ME, PARTITIONS, TOPIC_ID, Follower, Leader, at

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
        return [request for _, request in self.times if isinstance(request, FetchRequest)]


def gaps(times: list[float]) -> list[float]:
    return [round(later - sooner, 3) for sooner, later in pairwise(times)]


async def test_fetcher_waits_for_the_first_failed_partitions_backoff(autojump_clock: Any) -> None:
    """However long the broker has been running."""
    leader = Timed()
    follower = Follower(leader, **SETTINGS)
    leader.errors = dict.fromkeys(range(PARTITIONS), ErrorCode.UNKNOWN_SERVER_ERROR)
    await trio.sleep(1_000)
    await follower.follow()
    async with follower.fetching():
        await trio.sleep(2)
    assert gaps([when for when, _ in leader.times])[0] == pytest.approx(0.3, abs=0.01)


async def test_errors_before_logs_agree_do_not_lengthen_later_waits(autojump_clock: Any) -> None:
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
    kinds = [isinstance(request, FetchRequest) for _, request in leader.times]
    assert kinds[:4] == [False, False, True, True]
    assert gaps([when for when, _ in leader.times])[:3] == pytest.approx([0.02, 0, 0.02], abs=0.005)


# --- many ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [99, 100, 201])
async def test_others_run_while_many_partitions_are_chosen(count: int, autojump_clock: Any) -> None:
    leader, turns = Timed(), CheckpointCount()
    follower = Follower(leader, budget=turns.budget, **SETTINGS)
    info = PartitionInfo(LEADER, (LEADER, ME), (LEADER,), 5, 5)
    await follower.apply([
        *(BrokerRegistered(BrokerInfo(broker, None, {})) for broker in (1, 2)),
        TopicCreated(TopicInfo("t", TOPIC_ID, (info,) * count)),
    ])  # fmt: skip
    leader.logs = {index: [] for index in range(count)}
    for index in range(count):
        follower.fetchers.start(follower.of(index))
    async with follower.fetching():
        await follower.until(lambda: len(leader.fetches()) == 1)
        before = turns.count
        await follower.until(lambda: len(leader.fetches()) == 2)
    assert turns.count - before >= count // fetchers.PARTITIONS_PER_STEP
    assert before >= 2 * (count // fetchers.PARTITIONS_PER_STEP)
