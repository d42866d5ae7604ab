"""One fetcher against a leader that answers as the test says: versions, errors by partition, what becomes of records."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.cluster.replicas.fetcher import LOOK_AT_ALL_SECONDS
from barnabas.cluster.replicas.followed import Followed
from tests.support.fetching import BACKOFF_S, PARTITIONS, Follower, Leader


async def test_damaged_records_are_fetched_again_from_the_same_offset(
    autojump_clock: trio.testing.MockClock,
) -> None:
    leader = Leader(damage=lambda data: data[:-1] + bytes([data[-1] ^ 1]))
    follower = Follower(leader)
    leader.append(0, b"a", b"b", b"c")
    await follower.follow()
    async with follower.fetching():
        assert await follower.until(lambda: follower.has(leader)) >= BACKOFF_S - 0.01
    assert follower.storage_errors == []


async def test_leader_without_epochs_is_followed_from_watermark(
    autojump_clock: trio.testing.MockClock,
) -> None:
    leader = Leader(4)
    follower = Follower(leader)
    leader.append(0, b"a", b"b")
    await follower.follow()
    async with follower.fetching():
        await follower.until(lambda: follower.has(leader) and follower.of(0).log.high_watermark == 2)
    leader.lacks = frozenset((23,))
    leader.append(0, b"c")
    await follower.follow(6, is_first=False)
    async with follower.fetching():
        await follower.until(lambda: follower.has(leader))


async def test_a_request_of_a_session_costs_what_has_changed(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = Leader(has_sessions=True)
    follower = Follower(leader)
    await follower.follow()
    looked: Counter[int] = Counter()
    ask = Followed.ask

    def counted(followed: Followed) -> Any:
        looked[followed.replica.index] += 1
        return ask(followed)

    async with follower.fetching():
        await follower.until(lambda: len(leader.told) == PARTITIONS)
        await trio.sleep(2)
        monkeypatch.setattr(Followed, "ask", counted)
        begun, requests = trio.current_time(), len(leader.asked)
        for number in range(100):
            leader.append(1, b"%d" % number)
            await follower.until(lambda: follower.has(leader))
        looks_at_all = (trio.current_time() - begun) / LOOK_AT_ALL_SECONDS + 2
        named = [
            want.partition
            for one in leader.asked[requests:]
            for topic in one.topics
            for want in topic.partitions
        ]
        assert looked[1] >= 100
        assert looked[0] <= looks_at_all
        assert looked[2] <= looks_at_all
        assert set(named) == {1}


async def test_what_is_deleted_here_is_told_to_the_leader_soon(
    autojump_clock: trio.testing.MockClock,
) -> None:
    leader = Leader(has_sessions=True)
    leader.append(1, b"a", b"b", b"c")
    follower = Follower(leader)
    await follower.follow()
    async with follower.fetching():
        await follower.until(lambda: follower.has(leader) and leader.session[1].fetch_offset == 3)
        follower.of(1).log.delete_records_before(2)
        assert (
            await follower.until(lambda: leader.session[1].log_start_offset == 2) <= 2 * LOOK_AT_ALL_SECONDS
        )
