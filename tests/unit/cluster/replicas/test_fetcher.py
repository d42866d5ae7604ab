"""One fetcher against a leader that answers as the test says: versions, errors by partition, what becomes of records."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.cluster.replicas.fetcher import LOOK_AT_ALL_SECONDS
from barnabas.cluster.replicas.followed import Followed
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from tests.support.fetching import BACKOFF_S, ME, PARTITIONS, Follower, Leader


@pytest.mark.parametrize("version", [*range(4, 18)])
async def test_each_version_of_fetch_replicates(autojump_clock: trio.testing.MockClock, version: int) -> None:
    leader = Leader(version)
    follower = Follower(leader)
    leader.append(0, b"a", b"b")
    await follower.follow()
    async with follower.fetching():
        await follower.until(lambda: follower.has(leader))
        leader.append(1, b"c")
        await follower.until(lambda: follower.has(leader))
        assert follower.of(0).log.high_watermark == 2
    request = leader.asked[0]
    if version < 15:
        assert (request.replica_id, request.replica_state.replica_id) == (ME, -1)
    else:
        state = request.replica_state
        assert (request.replica_id, state.replica_id, state.replica_epoch) == (-1, ME, 22)
    want = request.topics[0].partitions[0]
    assert (want.current_leader_epoch, want.last_fetched_epoch) == (5, -1)


PASSING = [
    ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID,
]  # fmt: skip


@pytest.mark.parametrize(
    "code",
    [*PASSING, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.CORRUPT_MESSAGE, 999],
)
async def test_an_error_holds_up_its_partition_alone(
    autojump_clock: trio.testing.MockClock, code: int
) -> None:
    leader = Leader()
    follower = Follower(leader)
    leader.errors = {1: code}
    for index in range(PARTITIONS):
        leader.append(index, b"x")
    await follower.follow()
    async with follower.fetching():
        assert await follower.until(lambda: follower.has(leader, 0, 2)) < 0.01
        took_s = await follower.until(lambda: follower.has(leader))
        assert took_s < 0.1 if code in PASSING else BACKOFF_S - 0.05 < took_s < BACKOFF_S + 0.05


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


@pytest.mark.parametrize("version", [9, 11, 12, 17])
@pytest.mark.parametrize("end", [1, 2])
async def test_what_the_leader_does_not_have_is_cut_off_first(
    autojump_clock: trio.testing.MockClock, version: int, end: int
) -> None:
    leader = Leader(version)
    follower = Follower(leader)
    leader.append(0, b"a", b"b", b"c")
    await follower.follow()
    async with follower.fetching():
        await follower.until(lambda: follower.has(leader))
    leader.epoch = 6
    del leader.logs[0][end:]
    leader.append(0, b"other", b"others", b"more")
    leader.answer_epochs = {index: (5, end if index == 0 else 0) for index in range(PARTITIONS)}
    await follower.follow(6, is_first=False)
    async with follower.fetching():
        await follower.until(lambda: follower.has(leader))
    kinds = [type(request) for request in leader.asked]
    assert (OffsetForLeaderEpochRequest in kinds) is (version < 12)


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
            for request in leader.asked[requests:]
            for topic in request.topics
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
