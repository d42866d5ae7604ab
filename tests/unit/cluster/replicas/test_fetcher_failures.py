"""A fetcher where something fails: the disk here, one partition, the leader, a request that waits."""

from __future__ import annotations

import errno
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.cluster.metadata.changes import ConfigChanged
from barnabas.cluster.metadata.image import BROKER, TOPIC, Delta
from barnabas.cluster.replicas.followed import RETRY_MS_MIN, Chosen, Followed, Stage
from barnabas.cluster.replicas.following import FollowerLog
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.list_offsets import ListOffsetsRequest
from barnabas.wire.generated.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from tests.support.fetching import BACKOFF_S, LEADER, PARTITIONS, Follower, Leader

Clock = trio.testing.MockClock


async def test_a_partition_whose_disk_has_failed_waits_and_others_go_on(autojump_clock: Clock) -> None:
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


async def test_a_partition_that_fails_for_a_reason_of_ours_is_left_and_others_go_on(
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


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.UNKNOWN_SERVER_ERROR])
async def test_an_epochs_end_that_is_not_answered_is_asked_for_again(
    autojump_clock: Clock, code: int
) -> None:
    leader = Leader(11)
    follower = Follower(leader)
    leader.append(0, b"a", b"b")
    leader.append(1, b"a", b"b")
    await follower.follow()
    async with follower.fetching():
        await follower.until(lambda: follower.has(leader))
    leader.errors = {1: code}
    leader.answer_epochs = {0: (5, 2), 1: (5, 1), 2: (5, 0)}
    leader.epoch = 6
    del leader.logs[1][1:]
    leader.append(0, b"c")
    leader.append(1, b"d")
    await follower.follow(6, is_first=False)
    async with follower.fetching():
        await follower.until(lambda: follower.has(leader, 0))
        assert not follower.has(leader, 1)
        took_s = await follower.until(lambda: follower.has(leader))
        assert took_s < 0.1 if code == ErrorCode.UNKNOWN_LEADER_EPOCH else took_s > BACKOFF_S - 0.05
    asked = [one for one in leader.asked if isinstance(one, OffsetForLeaderEpochRequest)]
    assert [len(one.topics[0].partitions) for one in asked] == [2, 1]
    (topic,) = asked[0].topics
    assert [(one.partition, one.current_leader_epoch, one.leader_epoch) for one in topic.partitions] == [
        (0, 6, 5), (1, 6, 5),
    ]  # fmt: skip


async def test_a_leader_that_is_away_while_it_is_asked_for_epochs_is_asked_again(
    autojump_clock: Clock,
) -> None:
    leader = Leader(11)
    follower = Follower(leader)
    leader.append(0, b"a")
    await follower.follow()
    async with follower.fetching():
        await follower.until(lambda: follower.has(leader))
    leader.answer_epochs = dict.fromkeys(range(PARTITIONS), (5, 1))
    await follower.follow(6, is_first=False)
    leader.is_away = True
    async with follower.fetching():
        await trio.sleep(3)
        leader.is_away = False
        leader.append(0, b"b")
        assert await follower.until(lambda: follower.has(leader)) <= BACKOFF_S


@pytest.mark.parametrize("start", [0, 50])
async def test_a_partition_out_of_range_asks_where_the_leader_is(autojump_clock: Clock, start: int) -> None:
    leader = Leader()
    follower = Follower(leader)
    for index in range(PARTITIONS):
        leader.append(index, b"a", b"b", b"c")
    await follower.follow()
    async with follower.fetching():
        await follower.until(lambda: follower.has(leader))
        if start:
            for log in leader.logs.values():
                log.clear()
            leader.start = start
        else:  # an unclean election
            del leader.logs[1][1:]
        leader.errors = {1: ErrorCode.OFFSET_OUT_OF_RANGE}
        end = leader.start + len(leader.logs[1])
        await follower.until(lambda: follower.of(1).log.log_end_offset == end)
        assert follower.of(1).log.log_start_offset == start
    asked = [one for one in leader.asked if isinstance(one, ListOffsetsRequest)]
    assert {one.replica_id for one in asked} == {follower.broker_id}
    partitions = [one for request in asked for topic in request.topics for one in topic.partitions]
    assert {one.timestamp for one in partitions if one.partition_index == 1} == {-1, -2}


@pytest.mark.parametrize("errors", [(75, 0), (0, 75), (-1, -1)])
async def test_where_a_leader_is_is_not_believed_of_an_answer_with_an_error(
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
        assert sum(isinstance(one, ListOffsetsRequest) for one in leader.asked) > 1
        leader.offset_errors, leader.errors = {}, {}
        assert await follower.until(lambda: follower.has(leader)) <= BACKOFF_S + 0.1


async def test_a_leader_that_calls_what_it_has_out_of_range_is_not_asked_as_fast_as_can_be(
    autojump_clock: Clock,
) -> None:
    leader = Leader(is_stubborn=True, errors={1: ErrorCode.OFFSET_OUT_OF_RANGE})
    follower = Follower(leader)
    leader.append(1, b"a")
    await follower.follow()
    async with follower.fetching():
        await trio.sleep(10)
        asked = [one for one in leader.asked if isinstance(one, ListOffsetsRequest)]
        assert 5 < len(asked) < 50
        assert follower.has(leader, 0, 2)
        leader.errors = {}
        assert await follower.until(lambda: follower.has(leader)) <= BACKOFF_S


async def test_what_comes_for_a_partition_that_is_followed_no_more_is_left_out(autojump_clock: Clock) -> None:
    leader = Leader()
    follower = Follower(leader)
    await follower.follow()
    async with follower.fetching():
        await trio.sleep(0.1)  # a request is under way, which the leader answers after half a second
        gone = follower.of(1)
        follower.fetchers.stop(gone)
        leader.append(1, b"x")
        leader.append(0, b"x")
        await trio.sleep(2)
        assert follower.has(leader, 0)
        assert gone.log.log_end_offset == 0
        follower.fetchers.start(gone)
        await follower.until(lambda: follower.has(leader))


async def test_a_replica_without_a_leader_or_with_one_here_is_not_fetched_for(autojump_clock: Clock) -> None:
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


async def test_broker_0_is_a_leader_like_any_other() -> None:
    follower = Follower(Leader())
    await follower.follow()
    follower.of(0).leader_id = 0
    follower.fetchers.start(follower.of(0))
    assert {leader_id for leader_id, _ in follower.fetchers._fetchers} == {0, LEADER}


async def test_another_number_of_fetchers_spreads_the_partitions_anew(autojump_clock: Clock) -> None:
    leader = Leader()
    follower = Follower(leader)
    await follower.follow()
    fetchers, config = follower.fetchers, follower.fetchers._parts.config
    changes = [ConfigChanged(BROKER, "", {"num.replica.fetchers": "3"}), ConfigChanged(TOPIC, "t", {})]

    def publish(change: ConfigChanged) -> int:
        new = follower.image.apply([change])
        fetchers.publish(Delta.of(follower.image, new, [change]))
        return len({id(one) for one in fetchers._homes.values()})

    assert publish(changes[0]) == 1  # the setting that counts is the broker's, which has not changed yet
    config.set_dynamic({"num.replica.fetchers": "3"}, {})
    assert publish(changes[1]) == 1
    assert publish(changes[0]) == 3
    homes = dict(fetchers._homes)
    followed = [one for home in homes.values() for one in home._followed.values()]
    assert publish(changes[0]) == 3  # nothing begins anew
    assert [one for home in homes.values() for one in home._followed.values()] == followed
    async with follower.fetching():
        for index in range(PARTITIONS):
            leader.append(index, b"x")
        await follower.until(lambda: follower.has(leader))


# --- a partition as its fetcher sees it ---------------------------------------------------------------------------


async def followed() -> tuple[Followed, Follower]:
    follower = Follower(Leader())
    await follower.follow()
    return Followed(follower.of(0)), follower


async def test_waits_after_passing_errors_double_up_to_the_backoff_and_end_when_it_goes_well() -> None:
    one, _ = await followed()
    assert one.stage is Stage.NEW
    first = RETRY_MS_MIN
    for wait_ms in (first, 2 * first, 4 * first, 8 * first, 10 * first, 10 * first):
        one.delay("why", 100.0, backoff_ms=10 * first, is_passing=True)
        assert one.again_at == pytest.approx(100.0 + wait_ms / 1000)
    one.went_well()
    one.delay("why", 200.0, backoff_ms=10 * first, is_passing=True)
    assert one.again_at == pytest.approx(200.0 + first / 1000)
    one.delay("why", 300.0, backoff_ms=10 * first, is_passing=False)
    assert one.again_at == pytest.approx(300.0 + 10 * first / 1000)


async def test_waits_after_passing_errors_do_not_double_for_ever() -> None:
    one, _ = await followed()
    for _ in range(14):
        one.delay("why", 0.0, backoff_ms=1 << 40, is_passing=True)
    assert one.again_at == pytest.approx((RETRY_MS_MIN << 10) / 1000)


async def test_an_error_is_told_once_until_it_is_another_or_all_went_well() -> None:
    one, _ = await followed()
    told = [one.delay(why, 0, backoff_ms=1, is_passing=True) for why in ("a", "a", "b", "a")]
    one.went_well()
    told.append(one.delay("a", 0, backoff_ms=1, is_passing=True))
    assert told == [True, False, True, True, True]


async def test_only_what_has_changed_is_named_and_last() -> None:
    one, _ = await followed()
    one.follower = FollowerLog(one.replica, lambda: 0)
    ask, chosen = one.ask(), Chosen()
    for index in range(3):
        chosen.put(("t", index), one, ask)
    assert chosen.take_changed() == [("t", index) for index in range(3)]
    chosen.put(("t", 0), one, ask)
    assert chosen.take_changed() == []
    chosen.put(("t", 0), one, ask._replace(partition=7))
    chosen.drop(("t", 1))
    chosen.drop(("t", 5))
    assert chosen.take_changed() == [("t", 0), ("t", 1)]
    assert list(chosen.asks) == [("t", 2), ("t", 0)]
    assert set(chosen.followed) == {("t", 0), ("t", 2)}
    chosen.put(("t", 1), one, ask)
    chosen.clear()
    assert (chosen.take_changed(), chosen.asks, chosen.followed) == ([], {}, {})
