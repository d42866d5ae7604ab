"""Roles of a broker for a partition, and the steps from one to another. Pure.

The rule: only the metadata image decides on the role; the table of transitions has every step of a change of role, so
that none can be forgotten.
"""

from __future__ import annotations

from enum import Enum, auto

from barnabas.cluster.metadata.image import PartitionInfo


class Role(Enum):
    """Role of a broker for a partition."""

    NONE = auto()
    """It has no replica."""
    LEADER = auto()
    FOLLOWER = auto()
    OFFLINE = auto()
    """It should have a replica, and its log dir is not there or does not work."""


class Step(Enum):
    """A step of a change of role."""

    OPEN_LOG = auto()
    """Open the log, or make it where it may be made."""
    BEGIN_EPOCH = auto()
    """Lead in a new epoch, which the log records with its first append; reset the state of followers."""
    UPDATE_ISR = auto()
    """Take the in-sync replicas from the image; the high watermark may advance."""
    START_FETCHING = auto()
    """Fetch from the leader of the image, after truncating where the logs diverge."""
    STOP_FETCHING = auto()
    CLOSE_WAITERS = auto()
    """Wake the waiters on this replica, with the error that a new request would get."""
    DELETE_LOG = auto()


_CLOSE_LEADER = (Step.CLOSE_WAITERS,)
_LEAD = (Step.OPEN_LOG, Step.BEGIN_EPOCH, Step.UPDATE_ISR)
_FOLLOW = (Step.OPEN_LOG, Step.START_FETCHING)

TRANSITIONS: dict[tuple[Role, Role], tuple[Step, ...]] = {
    (Role.NONE, Role.NONE): (),
    (Role.NONE, Role.LEADER): _LEAD,
    (Role.NONE, Role.FOLLOWER): _FOLLOW,
    (Role.NONE, Role.OFFLINE): (),
    (Role.LEADER, Role.NONE): (*_CLOSE_LEADER, Step.DELETE_LOG),
    (Role.LEADER, Role.FOLLOWER): (*_CLOSE_LEADER, Step.START_FETCHING),
    (Role.LEADER, Role.OFFLINE): _CLOSE_LEADER,
    (Role.FOLLOWER, Role.NONE): (Step.STOP_FETCHING, Step.CLOSE_WAITERS, Step.DELETE_LOG),
    (Role.FOLLOWER, Role.LEADER): (Step.STOP_FETCHING, Step.BEGIN_EPOCH, Step.UPDATE_ISR),
    (Role.FOLLOWER, Role.OFFLINE): (Step.STOP_FETCHING, Step.CLOSE_WAITERS),
    (Role.OFFLINE, Role.NONE): (),
    (Role.OFFLINE, Role.LEADER): _LEAD,
    (Role.OFFLINE, Role.FOLLOWER): _FOLLOW,
    (Role.OFFLINE, Role.OFFLINE): (),
}
"""Steps from one role to another; `steps` decides what a leader or follower that keeps its role does."""


def target_role(info: PartitionInfo | None, broker_id: int, *, is_log_available: bool = True) -> Role:
    """Return the role of a broker by a partition's state.

    `info` is None if the partition does not exist. `is_log_available`: the log exists or may be created.
    """
    if info is None or (broker_id not in info.replicas and info.leader != broker_id):
        return Role.NONE
    if not is_log_available:
        return Role.OFFLINE
    return Role.LEADER if info.leader == broker_id else Role.FOLLOWER


def steps(
    role: Role, target: Role, info_before: PartitionInfo | None = None, info: PartitionInfo | None = None
) -> tuple[Step, ...]:
    """Return the steps of a replica in `role`, which follows the state `info_before`, to reach `target` with `info`."""
    if role is not target or role in (Role.NONE, Role.OFFLINE):
        return TRANSITIONS[role, target]
    assert info_before is not None
    assert info is not None
    is_new_epoch = info.leader_epoch != info_before.leader_epoch
    if role is Role.LEADER:
        return (Step.BEGIN_EPOCH, Step.UPDATE_ISR) if is_new_epoch else (Step.UPDATE_ISR,)
    if is_new_epoch or info.leader != info_before.leader:
        return (Step.STOP_FETCHING, Step.START_FETCHING)
    return ()


def is_stale(info_before: PartitionInfo, info: PartitionInfo) -> bool:
    """Return whether `info` is older than the present state: epochs never go back."""
    return (info.leader_epoch, info.partition_epoch) < (info_before.leader_epoch, info_before.partition_epoch)
