"""The role that the metadata gives to a broker, and the steps from one role to another."""

from itertools import product

import pytest

from barnabas.cluster.metadata.image import PartitionInfo
from barnabas.cluster.replication.roles import TRANSITIONS, Role, Step, is_stale, steps, target_role


def info(leader: int, *replicas: int, epoch: int = 0, partition_epoch: int = 0) -> PartitionInfo:
    return PartitionInfo(leader, replicas, replicas, epoch, partition_epoch)


def test_the_image_decides_on_the_role() -> None:
    assert target_role(None, 1) is Role.NONE
    assert target_role(info(2, 2, 3), 1) is Role.NONE
    assert target_role(info(1, 1, 2), 1) is Role.LEADER
    assert target_role(info(2, 1, 2), 1) is Role.FOLLOWER
    assert target_role(info(-1, 1, 2), 1) is Role.FOLLOWER
    assert target_role(info(1, 1, 2), 1, is_log_available=False) is Role.OFFLINE
    assert target_role(info(2, 2), 1, is_log_available=False) is Role.NONE


def test_every_transition_is_in_the_table() -> None:
    same = {(Role.LEADER, Role.LEADER), (Role.FOLLOWER, Role.FOLLOWER)}
    assert set(TRANSITIONS) | same == set(product(Role, Role))


@pytest.mark.parametrize(("role", "target"), sorted(TRANSITIONS, key=str))
def test_who_leads_no_longer_wakes_the_waiters_before_all_else(role: Role, target: Role) -> None:
    if role is Role.LEADER:
        assert TRANSITIONS[role, target][0] is Step.CLOSE_WAITERS
    if target is Role.LEADER:
        assert TRANSITIONS[role, target][-2:] == (Step.BEGIN_EPOCH, Step.UPDATE_ISR)
    if Step.DELETE_LOG in TRANSITIONS[role, target]:
        assert target is Role.NONE


def test_a_leader_begins_an_epoch_only_when_it_is_new() -> None:
    before = info(1, 1, 2, epoch=3)
    assert steps(Role.LEADER, Role.LEADER, before, info(1, 1, epoch=3)) == (Step.UPDATE_ISR,)
    assert steps(Role.LEADER, Role.LEADER, before, info(1, 1, 2, epoch=4)) == (
        Step.BEGIN_EPOCH,
        Step.UPDATE_ISR,
    )


def test_a_follower_fetches_from_the_leader_of_the_image() -> None:
    before = info(2, 1, 2, 3, epoch=3)
    assert steps(Role.FOLLOWER, Role.FOLLOWER, before, info(2, 1, 2, epoch=3, partition_epoch=1)) == ()
    again = (Step.STOP_FETCHING, Step.START_FETCHING)
    assert steps(Role.FOLLOWER, Role.FOLLOWER, before, info(3, 1, 2, 3, epoch=4)) == again
    assert steps(Role.FOLLOWER, Role.FOLLOWER, before, info(2, 1, 2, 3, epoch=4)) == again


def test_epochs_never_go_back() -> None:
    before = info(1, 1, epoch=3, partition_epoch=5)
    assert is_stale(before, info(2, 2, epoch=2, partition_epoch=6))
    assert is_stale(before, info(1, 1, epoch=3, partition_epoch=4))
    assert not is_stale(before, info(2, 2, epoch=4, partition_epoch=6))
    assert not is_stale(before, before)
