"""The ISR and the high watermark, from what followers have fetched."""

import pytest

from barnabas.cluster.replication.leader import LeaderState

LAG_MS = 100


def leading(
    *isr: int, replicas: tuple[int, ...] = (1, 2, 3), high_watermark: int = 0, start: int = 0
) -> LeaderState:
    return LeaderState(
        1, leader_epoch=5, partition_epoch=7, replicas=replicas, isr=isr, epoch_start_offset=start,
        high_watermark=high_watermark, now_ms=0,
    )  # fmt: skip


def fetched(leader: LeaderState, replica: int, offset: int, end: int, now_ms: int = 0) -> bool:
    return leader.follower_fetched(replica, offset, log_start_offset=0, leader_end_offset=end, now_ms=now_ms)


def test_a_leader_that_is_alone_commits_what_it_has() -> None:
    leader = leading(1, replicas=(1,))
    assert leader.advance_high_watermark(10)
    assert leader.high_watermark == 10
    assert not leader.advance_high_watermark(10)


def test_the_slowest_in_sync_replica_holds_the_high_watermark() -> None:
    leader = leading(1, 2, 3)
    assert not leader.advance_high_watermark(10)  # nobody has fetched in this epoch
    fetched(leader, 2, 10, 10)
    assert not leader.advance_high_watermark(10)
    fetched(leader, 3, 4, 10)
    assert leader.advance_high_watermark(10)
    assert leader.high_watermark == 4


def test_a_replica_that_is_not_in_sync_holds_nothing() -> None:
    leader = leading(1, 2)
    fetched(leader, 2, 8, 10)
    fetched(leader, 3, 1, 10)
    leader.advance_high_watermark(10)
    assert leader.high_watermark == 8


def test_the_high_watermark_never_goes_back() -> None:
    leader = leading(1, 2, high_watermark=9)
    fetched(leader, 2, 3, 10)
    assert not leader.advance_high_watermark(10)
    assert leader.high_watermark == 9


def test_replica_joins_with_all_committed_in_this_epoch() -> None:
    leader = leading(1, 2, high_watermark=5, start=6)
    assert leader.propose_expansion(3) is None  # it has not fetched yet
    fetched(leader, 3, 5, 10)
    assert leader.propose_expansion(3) is None  # the epoch began at 6
    fetched(leader, 3, 6, 10)
    change = leader.propose_expansion(3)
    assert change is not None
    assert (change.isr, change.leader_epoch, change.partition_epoch) == ({1, 2, 3}, 5, 7)
    assert leader.propose_expansion(3) is None  # one change at a time


def test_a_replica_that_is_about_to_join_counts_already() -> None:
    leader = leading(1, 2, high_watermark=5)
    fetched(leader, 2, 10, 10)
    fetched(leader, 3, 6, 10)
    change = leader.propose_expansion(3)
    assert change is not None
    leader.advance_high_watermark(10)
    assert leader.high_watermark == 6
    leader.settled(change, partition_epoch=8)
    assert leader.isr == {1, 2, 3}
    assert leader.partition_epoch == 8


def test_a_refused_change_leaves_the_isr_as_it_was() -> None:
    leader = leading(1, 2)
    fetched(leader, 3, 0, 0)
    change = leader.propose_expansion(3)
    assert change is not None
    leader.settled(change, partition_epoch=None)
    assert leader.isr == {1, 2}
    assert leader.maximal_isr == {1, 2}
    assert leader.propose_expansion(3) is not None


def test_a_replica_leaves_that_has_not_caught_up_for_too_long() -> None:
    leader = leading(1, 2, 3)
    fetched(leader, 2, 10, 10, now_ms=50)
    fetched(leader, 3, 4, 10, now_ms=50)
    assert leader.out_of_sync(10, now_ms=LAG_MS, lag_max_ms=LAG_MS) == set()
    assert leader.out_of_sync(10, now_ms=LAG_MS + 1, lag_max_ms=LAG_MS) == {3}
    change = leader.propose_shrink(10, LAG_MS + 1, LAG_MS)
    assert change is not None
    assert change.isr == {1, 2}


def test_reaching_the_last_fetchs_end_counts_as_caught_up_then() -> None:
    leader = leading(1, 2)
    fetched(leader, 2, 5, 10, now_ms=100)
    fetched(leader, 2, 10, 20, now_ms=200)  # had at 200 what was the end at 100
    state = leader.follower(2)
    assert state is not None
    assert state.last_caught_up_ms == 100


def test_a_replica_without_news_to_fetch_stays() -> None:
    leader = leading(1, 2)
    fetched(leader, 2, 10, 10, now_ms=0)
    assert leader.out_of_sync(10, now_ms=10_000, lag_max_ms=LAG_MS) == set()


def test_metadata_that_is_older_is_not_taken() -> None:
    leader = leading(1, 2, 3)
    assert not leader.update(partition_epoch=6, replicas=(1,), isr=(1,), now_ms=0)
    assert leader.isr == {1, 2, 3}
    assert leader.update(partition_epoch=8, replicas=(1, 2), isr=(1,), now_ms=0)
    assert leader.isr == {1}
    assert leader.follower(3) is None
    assert not fetched(leader, 3, 1, 1)


@pytest.mark.parametrize(("isr", "min_isr", "enough"), [((1,), 1, True), ((1,), 2, False), ((1, 2), 2, True)])
def test_min_insync_replicas(isr: tuple[int, ...], min_isr: int, enough: bool) -> None:
    assert leading(*isr).has_enough_in_sync(min_isr) is enough


def test_the_low_watermark_is_that_of_the_slowest_to_delete() -> None:
    leader = leading(1, 2, replicas=(1, 2))
    assert leader.lowest_log_start_offset(4) == -1
    leader.follower_fetched(2, 10, log_start_offset=3, leader_end_offset=10, now_ms=0)
    assert leader.lowest_log_start_offset(4) == 3


def test_removed_replicas_are_dropped_from_a_received_isr() -> None:
    leader = leading(1, 2, 3, 4, replicas=(1, 2, 3))
    assert leader.isr == {1, 2, 3}
    for follower in (2, 3):
        fetched(leader, follower, 10, 10)
    assert leader.advance_high_watermark(10)  # nobody waits for the one that goes
    assert leader.update(partition_epoch=8, replicas=(1, 2), isr=(1, 2, 3), now_ms=0)
    assert leader.isr == {1, 2}
    assert leader.out_of_sync(20, 10 * LAG_MS, LAG_MS) == {2}
