"""Rules of a leader, one at a time: a fixture in which no two offsets, times, epochs or brokers are equal."""

from __future__ import annotations

import pytest

from barnabas.cluster.replication.leader import FollowerState, LeaderState

LAG_MS = 100
BEGAN_MS = 1_000


def leading(*isr: int, replicas: tuple[int, ...] = (1, 2, 3), **fields: int) -> LeaderState:
    values = {"leader_epoch": 5, "partition_epoch": 7, "epoch_start_offset": 40, "high_watermark": 30}
    return LeaderState(1, replicas=replicas, isr=isr, now_ms=BEGAN_MS, **values | fields)


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


@pytest.mark.parametrize(("since_ms", "is_late"), [(LAG_MS, False), (LAG_MS + 1, True)])
def test_who_is_in_sync_at_first_has_the_lag_time_from_then_on(since_ms: int, is_late: bool) -> None:
    leader = leading(1, 2)
    late = leader.out_of_sync(60, BEGAN_MS + since_ms, LAG_MS)
    assert late == ({2} if is_late else set())
    change = leader.propose_shrink(60, BEGAN_MS + since_ms, LAG_MS)
    assert (change is not None) is is_late


def test_replica_joining_by_metadata_has_the_whole_lag_time() -> None:
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
def test_joining_replica_behind_the_leader_has_the_lag_time(way: str) -> None:
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


def test_replicas_added_or_removed_by_metadata_are_tracked() -> None:
    leader = leading(1, replicas=(1,))
    assert not leader.has_followers
    assert leader.update(partition_epoch=7, replicas=(1, 2), isr=(1,), now_ms=0)  # the same epoch, said again
    assert leader.has_followers
    assert leader.update(partition_epoch=8, replicas=(1,), isr=(1,), now_ms=0)
    assert not leader.has_followers
    assert leader.follower(2) is None
    assert not leader.update(partition_epoch=7, replicas=(1, 2), isr=(1, 2), now_ms=0)
    assert (leader.partition_epoch, leader.isr, leader.has_followers) == (8, {1}, False)
