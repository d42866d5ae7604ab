"""Partitions that come while a request waits at the leader: fetched beside it, tried again, then with the others."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.fetch import FetchRequest
from tests.support.fetching import Follower, Leader

WAIT_MS = 5_000


class Counting(Leader):
    """Notes when it was asked for a version, and for what."""

    def __init__(self) -> None:
        super().__init__()
        self.rounds = 0
        self.fetches: list[tuple[float, FetchRequest]] = []

    async def version_of(self, broker_id: int, key: int, **named: Any) -> int:
        self.rounds += 1
        return await super().version_of(broker_id, key, **named)

    async def _fetch(self, request: FetchRequest, version: int) -> Any:
        self.fetches.append((trio.current_time(), request))
        return await super()._fetch(request, version)

    def times(self, begun: float, *, aside: bool) -> list[float]:
        return [round(at - begun, 3) for at, fetch in self.fetches if (fetch.session_epoch == -1) is aside]

    def named(self, *, aside: bool) -> list[list[int]]:
        return [
            [part.partition for topic in fetch.topics for part in topic.partitions]
            for _, fetch in self.fetches
            if (fetch.session_epoch == -1) is aside
        ]


class World:
    """Partitions 0 and 1 are fetched, and the request waits; 2 comes then."""

    def __init__(self, **settings: str) -> None:
        self.leader = Counting()
        self.follower = Follower(
            self.leader, **{"replica.fetch.wait.max.ms": str(WAIT_MS), "replica.fetch.backoff.ms": "800"} | settings
        )  # fmt: skip

    async def begin(self) -> None:
        await self.follower.follow()
        self.follower.fetchers.stop(self.follower.of(2))
        await trio.sleep(1)
        self.leader.fetches.clear()
        self.leader.rounds = 0
        self.begun = trio.current_time()
        self.add()

    def add(self) -> None:
        self.follower.fetchers.start(self.follower.of(2))


@pytest.mark.parametrize(
    ("code", "tries"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, [0.0, 0.02, 0.06, 0.14, 0.3, 0.62]),
        (ErrorCode.UNKNOWN_SERVER_ERROR, [0.0, 0.8, 1.6]),
    ],
)
async def test_after_an_error_it_is_tried_again_and_nothing_spins(
    code: ErrorCode, tries: list[float], autojump_clock: Any
) -> None:
    world = World()
    world.leader.is_stubborn = True
    async with world.follower.fetching():
        world.leader.errors = {2: code}
        await world.begin()
        await trio.sleep(tries[-1] + 0.1)
        assert world.leader.times(world.begun, aside=True) == pytest.approx(tries, abs=0.003)
        assert world.leader.rounds <= 2 * len(tries) + 2


async def test_a_leader_that_is_away_ends_what_is_fetched_aside(autojump_clock: Any) -> None:
    world = World()
    async with world.follower.fetching():
        await world.begin()
        await trio.sleep(0.1)
        world.leader.is_away = True
        count = len(world.leader.times(world.begun, aside=True))
        await trio.sleep(1)
        assert len(world.leader.times(world.begun, aside=True)) <= count + 1
        world.leader.is_away = False
        world.leader.append(2, b"x")
        await world.follower.until(lambda: world.follower.has(world.leader, 2))
