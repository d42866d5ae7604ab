"""Rules of a leader, one at a time: a fixture in which no two offsets, times, epochs or brokers are equal."""

from __future__ import annotations

import pytest

from barnabas.cluster.replication.leader import UNKNOWN_OFFSET, FollowerState, LeaderState
from barnabas.cluster.replication.read_replica import ReadReplica

LAG_MS = 100
BEGAN_MS = 1_000


def leading(*isr: int, replicas: tuple[int, ...] = (1, 2, 3), **fields: int) -> LeaderState:
    given = {"leader_epoch": 5, "partition_epoch": 7, "epoch_start_offset": 40, "high_watermark": 30}
    return LeaderState(1, replicas=replicas, isr=isr, now_ms=BEGAN_MS, **given | fields)


def fetched(
    leader: LeaderState, replica: int, offset: int, end: int = 60, now_ms: int = BEGAN_MS, start: int = 0
) -> bool:
    return leader.follower_fetched(
        replica, offset, log_start_offset=start, leader_end_offset=end, now_ms=now_ms, broker_epoch=90
    )


def follower(leader: LeaderState, replica: int) -> FollowerState:
    state = leader.follower(replica)
    assert state is not None
    return state


def test_a_fetch_is_noted_field_by_field() -> None:
    leader = leading(1, 2)
    assert fetched(leader, 2, 50, now_ms=1_234, start=11)
    state = follower(leader, 2)
    assert (state.end_offset, state.log_start_offset, state.last_fetch_ms) == (50, 11, 1_234)
    assert (state.last_fetch_leader_end_offset, state.broker_epoch) == (60, 90)
    assert follower(leader, 3).end_offset == UNKNOWN_OFFSET
    assert not fetched(leader, 1, 50)
    assert not fetched(leader, 4, 50)


@pytest.mark.parametrize(
    ("fetches", "caught_up_ms"),
    [
        ([], BEGAN_MS),
        ([(59, 60, 1_100)], BEGAN_MS),
        ([(60, 60, 1_100)], 1_100),
        ([(61, 60, 1_100)], 1_100),
        ([(50, 60, 1_100), (59, 70, 1_200)], BEGAN_MS),
        ([(50, 60, 1_100), (60, 70, 1_200)], 1_100),
        ([(50, 60, 1_100), (70, 70, 1_200)], 1_200),
        ([(60, 60, 1_100), (60, 70, 1_300), (65, 80, 1_400)], 1_100),
        ([(60, 60, 1_100), (60, 70, 1_300), (70, 80, 1_400)], 1_300),
        ([(0, 0, 1_100), (0, 10, 1_200)], 1_100),
    ],
)
def test_a_follower_has_caught_up_when_it_had_what_the_leader_had_then(
    fetches: list[tuple[int, int, int]], caught_up_ms: int
) -> None:
    leader = leading(1, 2)
    for offset, end, now_ms in fetches:
        fetched(leader, 2, offset, end, now_ms)
    assert follower(leader, 2).last_caught_up_ms == caught_up_ms


@pytest.mark.parametrize(("since_ms", "is_late"), [(LAG_MS, False), (LAG_MS + 1, True)])
def test_who_is_in_sync_at_first_has_the_lag_time_from_then_on(since_ms: int, is_late: bool) -> None:
    leader = leading(1, 2)
    late = leader.out_of_sync(60, BEGAN_MS + since_ms, LAG_MS)
    assert late == ({2} if is_late else set())
    change = leader.propose_shrink(60, BEGAN_MS + since_ms, LAG_MS)
    assert (change is not None) is is_late


def test_who_joins_by_metadata_has_the_lag_time_from_then_on_and_others_keep_theirs() -> None:
    leader = leading(1, 2)
    fetched(leader, 2, 50, now_ms=1_050)
    assert leader.update(partition_epoch=8, replicas=(1, 2, 3, 4), isr=(1, 2, 4), now_ms=2_000)
    assert leader.partition_epoch == 8
    assert (follower(leader, 2).end_offset, follower(leader, 2).last_caught_up_ms) == (50, BEGAN_MS)
    assert follower(leader, 4).last_caught_up_ms == 2_000
    assert follower(leader, 3).last_caught_up_ms < 0
    assert leader.out_of_sync(60, 2_000 + LAG_MS, LAG_MS) == {2}
    assert leader.out_of_sync(60, 2_001 + LAG_MS, LAG_MS) == {2, 4}


@pytest.mark.parametrize("way", ["metadata", "proposal"])
def test_who_joins_with_less_than_the_leader_has_is_given_time_to_catch_up(way: str) -> None:
    leader = leading(1, 2)
    fetched(leader, 2, 60, now_ms=1_900)
    fetched(leader, 3, 50, now_ms=1_900)  # it has what is committed, and no more
    if way == "metadata":
        leader.update(partition_epoch=8, replicas=(1, 2, 3), isr=(1, 2, 3), now_ms=2_000)
    else:
        change = leader.propose_expansion(3)
        assert change is not None
        leader.settled(change, partition_epoch=8, now_ms=2_000)
    assert leader.out_of_sync(60, 2_000 + LAG_MS, LAG_MS) == set()
    assert leader.out_of_sync(60, 2_001 + LAG_MS, LAG_MS) == {3}


def test_replicas_that_come_and_go_by_metadata_are_followers_or_none() -> None:
    leader = leading(1, replicas=(1,))
    assert not leader.has_followers
    assert leader.update(partition_epoch=7, replicas=(1, 2), isr=(1,), now_ms=0)  # the same epoch, said again
    assert leader.has_followers
    assert leader.update(partition_epoch=8, replicas=(1,), isr=(1,), now_ms=0)
    assert not leader.has_followers
    assert leader.follower(2) is None
    assert not leader.update(partition_epoch=7, replicas=(1, 2), isr=(1, 2), now_ms=0)
    assert (leader.partition_epoch, leader.isr, leader.has_followers) == (8, {1}, False)


# --- proposals ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offset", "start", "high_watermark", "may_join"),
    [(40, 40, 30, True), (39, 40, 30, False), (40, 30, 40, True), (39, 30, 40, False), (-1, 0, 0, False)],
)
def test_who_joins_has_both_what_is_committed_and_what_the_epoch_began_with(
    offset: int, start: int, high_watermark: int, may_join: bool
) -> None:
    leader = leading(1, 2, epoch_start_offset=start, high_watermark=high_watermark)
    if offset >= 0:
        fetched(leader, 3, offset)
    assert (leader.propose_expansion(3) is not None) is may_join
    assert leader.propose_expansion(2) is None  # it is in already
    assert leader.propose_expansion(4) is None  # it is no replica


@pytest.mark.parametrize("first", ["expansion", "shrink"])
def test_one_change_is_under_way_at_a_time(first: str) -> None:
    leader = leading(1, 2)
    fetched(leader, 3, 60)
    late = (60, BEGAN_MS + 2 * LAG_MS, LAG_MS)
    change = leader.propose_expansion(3) if first == "expansion" else leader.propose_shrink(*late)
    assert change is not None
    assert change.isr == ({1, 2, 3} if first == "expansion" else {1})
    assert (change.leader_epoch, change.partition_epoch) == (5, 7)
    assert leader.propose_expansion(3) is None
    assert leader.propose_shrink(*late) is None
    assert leader.maximal_isr == ({1, 2, 3} if first == "expansion" else {1, 2})
    leader.settled(change, partition_epoch=None)
    assert leader.maximal_isr == {1, 2}
    assert leader.propose_expansion(3) is not None


@pytest.mark.parametrize(
    ("partition_epoch", "isr", "expected"),
    [
        (8, None, ({1, 2, 3}, 8)),
        (7, None, ({1, 2, 3}, 7)),  # the controller has it so already
        (6, None, ({1, 2}, 7)),
        (9, (1, 3), ({1, 3}, 9)),
        (9, (1, 3, 4), ({1, 3}, 9)),
        (9, (3,), ({1, 3}, 9)),
        (None, (1, 3), ({1, 2}, 7)),
    ],
)
def test_the_answer_to_a_proposal_says_what_is_in_sync(
    partition_epoch: int | None, isr: tuple[int, ...] | None, expected: tuple[set[int], int]
) -> None:
    leader = leading(1, 2)
    fetched(leader, 3, 60)
    change = leader.propose_expansion(3)
    assert change is not None
    leader.settled(change, partition_epoch=partition_epoch, isr=isr)
    assert (leader.isr, leader.partition_epoch) == expected
    leader.settled(change, partition_epoch=20, isr=(1,))  # an answer that comes twice
    assert (leader.isr, leader.partition_epoch) == expected


@pytest.mark.parametrize(("partition_epoch", "is_void"), [(7, False), (8, True)])
def test_metadata_makes_a_proposal_void_that_was_made_for_an_older_epoch(
    partition_epoch: int, is_void: bool
) -> None:
    leader = leading(1, 2)
    fetched(leader, 3, 60)
    change = leader.propose_expansion(3)
    assert change is not None
    leader.update(partition_epoch=partition_epoch, replicas=(1, 2, 3), isr=(1, 2), now_ms=0)
    assert leader.maximal_isr == ({1, 2} if is_void else {1, 2, 3})
    leader.settled(change, partition_epoch=9)
    assert leader.isr == ({1, 2} if is_void else {1, 2, 3})
    assert leader.partition_epoch == (8 if is_void else 9)


# --- what is committed --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("isr", "min_isr", "replicas", "now", "after"),
    [
        ((1, 2), 2, (1, 2, 3), True, True),
        ((1, 2), 3, (1, 2, 3), False, False),
        ((1, 2), 3, (1, 2), True, True),  # there are no more replicas
        ((1,), 2, (1,), True, True),
        ((1,), 2, (1, 2), False, False),
    ],
)
def test_enough_replicas_are_in_sync(
    isr: tuple[int, ...], min_isr: int, replicas: tuple[int, ...], now: bool, after: bool
) -> None:
    leader = leading(*isr, replicas=replicas)
    assert leader.has_enough_in_sync(min_isr) is now
    assert leader.has_enough_after_append(min_isr) is after
    for replica in isr[1:]:
        fetched(leader, replica, 60)
    assert leader.advance_high_watermark(60, min_isr=min_isr) is now
    assert leader.high_watermark == (60 if now else 30)


def test_a_replica_about_to_join_counts_after_an_append_only() -> None:
    leader = leading(1)
    fetched(leader, 2, 60)
    assert leader.propose_expansion(2) is not None
    assert not leader.has_enough_in_sync(2)
    assert leader.has_enough_after_append(2)
    assert not leader.has_enough_after_append(3)


@pytest.mark.parametrize(
    ("live", "now_ms", "high_watermark"),
    [
        ((3,), 1_100 + LAG_MS, 44),  # it may still join
        ((3,), 1_101 + LAG_MS, 55),
        ((2,), 1_100 + LAG_MS, 55),
    ],
)
def test_a_live_follower_that_has_just_been_out_of_sync_holds_the_high_watermark(
    live: tuple[int, ...], now_ms: int, high_watermark: int
) -> None:
    leader = leading(1, 2)
    fetched(leader, 3, 44, 44, now_ms=1_100)
    fetched(leader, 2, 55, now_ms=1_100)
    assert leader.advance_high_watermark(60, live=live, now_ms=now_ms, lag_max_ms=LAG_MS)
    assert leader.high_watermark == high_watermark


def test_the_leaders_own_end_bounds_the_high_watermark() -> None:
    leader = leading(1, 2)
    fetched(leader, 2, 60)
    assert leader.advance_high_watermark(45)  # what it has flushed
    assert leader.high_watermark == 45


@pytest.mark.parametrize(
    ("live", "lowest"), [(None, 4), ((1, 2, 3), 4), ((1, 2), 9), ((1,), 10), ((2,), 9), ((), 10)]
)
def test_the_low_watermark_is_the_lowest_start_of_a_live_replica(
    live: tuple[int, ...] | None, lowest: int
) -> None:
    leader = leading(1, 2)
    fetched(leader, 2, 50, start=9)
    fetched(leader, 3, 50, start=4)
    assert leader.lowest_log_start_offset(10, live) == lowest
    assert leader.lowest_log_start_offset(3, live) == 3


@pytest.mark.parametrize(
    ("fetch_offset", "brokers"),
    [(9, []), (10, [2]), (20, [2, 4]), (50, [2, 4]), (51, [4]), (55, [4]), (56, [])],
)
def test_consumers_may_read_from_followers_in_sync_that_have_the_offset(
    fetch_offset: int, brokers: list[int]
) -> None:
    leader = leading(1, 2, 4, replicas=(1, 2, 3, 4))
    fetched(leader, 2, 50, start=10, now_ms=1_100)
    fetched(leader, 3, 60, start=0, now_ms=1_200)
    fetched(leader, 4, 55, end=55, start=20, now_ms=1_300)
    found = leader.read_replicas(fetch_offset)
    assert [one.broker_id for one in found] == brokers
    known = {2: ReadReplica(50, BEGAN_MS, 2), 4: ReadReplica(55, 1_300, 4)}
    assert found == [known[broker] for broker in brokers]
