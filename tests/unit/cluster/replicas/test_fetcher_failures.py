"""A fetcher where something fails: the disk here, one partition, the leader, a request that waits."""

from __future__ import annotations

import errno
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.cluster.metadata.changes import ConfigChanged
from barnabas.cluster.metadata.image import BROKER, TOPIC, Delta
from barnabas.cluster.replicas.followed import Followed
from barnabas.cluster.replicas.following import FollowerLog
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.list_offsets import ListOffsetsRequest
from tests.support.fetching import BACKOFF_S, PARTITIONS, Follower, Leader

Clock = trio.testing.MockClock


async def test_partition_on_a_failed_disk_waits_and_others_continue(autojump_clock: Clock) -> None:
    leader = Leader()
    follower = Follower(leader)
    for index in range(PARTITIONS):
        leader.append(index, b"x")
    await follower.follow()
    with follower.disk.failing("write", "t-1/00000000000000000000.log", number=errno.ENOSPC):
        async with follower.fetching():
            await follower.until(lambda: follower.has(leader, 0, 2))
            await trio.sleep(2.5 * BACKOFF_S)
            assert not follower.has(leader, 1)
            assert len(follower.storage_errors) == 3  # at once, and with each further try
            follower.disk.fault = None
            assert await follower.until(lambda: follower.has(leader)) <= BACKOFF_S


async def test_own_fault_stops_one_partition_and_others_continue(
    autojump_clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    leader = Leader()
    follower = Follower(leader)
    for index in range(PARTITIONS):
        leader.append(index, b"x")
    await follower.follow()
    fetched, tries = FollowerLog.fetched, 0

    def failing(log: FollowerLog, *arguments: Any) -> bool:
        nonlocal tries
        if log.replica.index == 1:
            tries += 1
            raise ZeroDivisionError
        return fetched(log, *arguments)

    monkeypatch.setattr(FollowerLog, "fetched", failing)
    async with follower.fetching():
        await follower.until(lambda: follower.has(leader, 0, 2))
        await trio.sleep(10)
        assert tries == 1
        assert "t-1 is not followed any more" in caplog.text
        named = [want.partition for want in leader.asked[-1].topics[0].partitions]
        assert named == [0, 2]
        monkeypatch.undo()
        await follower.follow(6, is_first=False)  # until there is another leader epoch
        await follower.until(lambda: follower.has(leader))


@pytest.mark.parametrize("errors", [(75, 0), (0, 75), (-1, -1)])
async def test_offsets_beside_an_error_code_are_not_used(
    autojump_clock: Clock, errors: tuple[int, int]
) -> None:
    leader = Leader(offset_errors={1: errors}, is_stubborn=True)
    follower = Follower(leader)
    leader.append(1, b"a", b"b", b"c")
    await follower.follow()
    async with follower.fetching():
        await follower.until(lambda: follower.has(leader))
        leader.errors = {1: ErrorCode.OFFSET_OUT_OF_RANGE}
        del leader.logs[1][1:]
        await trio.sleep(2.5 * BACKOFF_S)
        assert follower.of(1).log.log_end_offset == 3
        assert sum(isinstance(request, ListOffsetsRequest) for request in leader.asked) > 1
        leader.offset_errors, leader.errors = {}, {}
        assert await follower.until(lambda: follower.has(leader)) <= BACKOFF_S + 0.1


async def test_contradictory_out_of_range_is_retried_with_backoff(autojump_clock: Clock) -> None:
    leader = Leader(is_stubborn=True, errors={1: ErrorCode.OFFSET_OUT_OF_RANGE})
    follower = Follower(leader)
    leader.append(1, b"a")
    await follower.follow()
    async with follower.fetching():
        await trio.sleep(10)
        asked = [request for request in leader.asked if isinstance(request, ListOffsetsRequest)]
        assert 5 < len(asked) < 50
        assert follower.has(leader, 0, 2)
        leader.errors = {}
        assert await follower.until(lambda: follower.has(leader)) <= BACKOFF_S


async def test_replica_without_a_remote_leader_is_not_fetched(autojump_clock: Clock) -> None:
    leader = Leader()
    follower = Follower(leader)
    await follower.follow()
    for leader_id in (-1, follower.broker_id):
        for index in range(PARTITIONS):
            follower.of(index).leader_id = leader_id
            follower.fetchers.start(follower.of(index))
        async with follower.fetching():
            await trio.sleep(2)
    assert leader.asked == []


async def test_another_number_of_fetchers_spreads_the_partitions_anew(autojump_clock: Clock) -> None:
    leader = Leader()
    follower = Follower(leader)
    await follower.follow()
    fetchers, config = follower.fetchers, follower.fetchers._parts.config
    changes = [ConfigChanged(BROKER, "", {"num.replica.fetchers": "3"}), ConfigChanged(TOPIC, "t", {})]

    def publish(change: ConfigChanged) -> int:
        new = follower.image.apply([change])
        fetchers.publish(Delta.of(follower.image, new, [change]))
        return len(homes())

    def homes() -> set[Any]:
        return set(fetchers._homes.values())

    def followed() -> set[Any]:
        return {id(partition) for home in homes() for partition in home._followed.values()}

    assert publish(changes[0]) == 1  # the setting that counts is the broker's, which has not changed yet
    config.set_dynamic({"num.replica.fetchers": "3"}, {})
    assert publish(changes[1]) == 1
    assert publish(changes[0]) == 3
    before = homes(), followed()
    assert publish(changes[0]) == 3  # nothing begins anew
    assert (homes(), followed()) == before
    async with follower.fetching():
        for index in range(PARTITIONS):
            leader.append(index, b"x")
        await follower.until(lambda: follower.has(leader))


# --- a partition as its fetcher sees it ---------------------------------------------------------------------------


async def followed() -> tuple[Followed, Follower]:
    follower = Follower(Leader())
    await follower.follow()
    return Followed(follower.of(0)), follower
