"""Change of one partition: a target in, a PartitionChange record out. Pure.

The rule: an election follows each change, so that a partition has a leader whenever a replica can lead. The leader comes
from the ISR, from the ELR if the ISR is empty, then is the last known leader; an unclean election may take any replica,
which becomes the whole ISR. Once all replicas of a reassignment are in sync, the same record ends it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import Enum
from typing import NamedTuple

from barnabas.cluster.kraft.controller.conditions import NO_BUMP_ON_SHRINK_LEVEL
from barnabas.cluster.kraft.controller.index import Key
from barnabas.cluster.kraft.controller.versions import DIRECTORIES_LEVEL
from barnabas.cluster.kraft.values import NO_LEADER, RECOVERING, Partition
from barnabas.wire.generated.metadata_records.partition_change import PartitionChangeRecord

UNCHANGED_LEADER = -2


class Election(Enum):
    """Ways to elect a leader."""

    PREFERRED = "preferred"
    """The first replica, if it can lead; otherwise like ONLINE."""
    ONLINE = "online"
    """The leader stays, if it can lead; otherwise the first replica that can."""
    UNCLEAN = "unclean"
    """Like ONLINE, but a replica out of sync rather than none."""


class Conditions(NamedTuple):
    """Conditions under which a partition changes."""

    can_lead: Callable[[int], bool]
    """Return whether a replica could lead, if it is in sync."""
    metadata_version: int
    min_isr: int
    has_elr: bool
    default_dir: Callable[[int], bytes]


class Target(NamedTuple):
    """Target values of a partition's fields; None for a field that stays."""

    isr: tuple[int, ...] | None = None
    replicas: tuple[int, ...] | None = None
    removing: tuple[int, ...] | None = None
    adding: tuple[int, ...] | None = None
    leader_recovery_state: int | None = None
    election: Election = Election.ONLINE
    unclean_shutdown: int | None = None
    """Broker that may have lost records: it leaves the ELR."""
    directory: tuple[int, bytes] | None = None
    """A replica, and its log dir."""


class Leader(NamedTuple):
    """Result of an election."""

    id: int
    is_unclean: bool = False


def change(
    key: Key, before: Partition, target: Target, conditions: Conditions
) -> PartitionChangeRecord | None:
    """Return the record that changes a partition to the target, None if it matches already."""
    replicas = before.replicas if target.replicas is None else target.replicas
    removing = before.removing if target.removing is None else target.removing
    adding = before.adding if target.adding is None else target.adding
    isr = before.isr if target.isr is None else target.isr
    completed = completed_reassignment(replicas, isr, removing, adding)
    if completed is not None:
        replicas, isr = completed
        removing = adding = ()
    elr = eligible_replicas(before, replicas, isr, target, conditions) if conditions.has_elr else ()
    record = PartitionChangeRecord(topic_id=key[0], partition_id=key[1])

    leader = elect(before, target.election, replicas, isr, elr, conditions)
    if leader.id != before.leader:
        record.leader = leader.id
        if leader.is_unclean:
            isr, elr = (leader.id,), ()
            record.leader_recovery_state = RECOVERING
        elif leader.id in elr:
            isr, elr = (leader.id,), tuple(replica for replica in elr if replica != leader.id)
    elif not set(before.replicas) <= set(replicas):
        record.leader = before.leader  # a new epoch: removed replicas stop fetching

    if isr != before.isr and (isr or conditions.has_elr):
        record.isr = list(isr)
        shrinks = not set(before.isr) <= set(isr)
        if shrinks and conditions.metadata_version < NO_BUMP_ON_SHRINK_LEVEL:
            record.leader = before.leader if record.leader == UNCHANGED_LEADER else record.leader
    if set(elr) != set(before.elr):
        record.eligible_leader_replicas = list(elr)
    if conditions.has_elr:
        keep_last_leader(before, record)
    assign(before, record, replicas, target, conditions)
    if removing != before.removing:
        record.removing_replicas = list(removing)
    if adding != before.adding:
        record.adding_replicas = list(adding)
    if (
        target.leader_recovery_state is not None
        and target.leader_recovery_state != before.leader_recovery_state
    ):
        record.leader_recovery_state = target.leader_recovery_state
    elif record.leader_recovery_state == before.leader_recovery_state:
        record.leader_recovery_state = -1
    return None if record == PartitionChangeRecord(topic_id=key[0], partition_id=key[1]) else record


def completed_reassignment(
    replicas: tuple[int, ...], isr: tuple[int, ...], removing: Collection[int], adding: Collection[int]
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return replicas and ISR after a reassignment that can end now, None if it cannot.

    All added replicas must be in sync; if the number of replicas shrinks, all remaining ones, too.
    """
    if not removing and not adding:
        return None
    replicas = tuple(replica for replica in replicas if replica not in removing)
    isr = tuple(replica for replica in isr if replica not in removing)
    needed = set(replicas) if len(adding) < len(removing) else set(adding)
    return (replicas, isr) if isr and replicas and needed <= set(isr) and set(adding) <= set(isr) else None


def eligible_replicas(
    before: Partition,
    replicas: tuple[int, ...],
    isr: tuple[int, ...],
    target: Target,
    conditions: Conditions,
) -> tuple[int, ...]:
    """Return the ELR: replicas that left the ISR stay eligible while the ISR is below min.insync.replicas."""
    if len(isr) >= conditions.min_isr:
        return ()
    candidates = (set(before.elr) | set(before.isr)) - set(isr) - {target.unclean_shutdown}
    return tuple(replica for replica in sorted(replicas) if replica in candidates)


# --- elections ------------------------------------------------------------------------------------------------------


def elect(
    before: Partition,
    election: Election,
    replicas: tuple[int, ...],
    isr: tuple[int, ...],
    elr: tuple[int, ...],
    conditions: Conditions,
) -> Leader:
    """Return the leader of a partition with these replicas, ISR and ELR, perhaps its present leader."""
    eligible = isr or elr
    candidates = [before.leader, *replicas]
    if election is Election.PREFERRED:
        candidates.insert(0, replicas[0])
    for replica in candidates:
        if replica in eligible and conditions.can_lead(replica):
            return Leader(replica)
    last_known = before.last_known_elr
    if conditions.has_elr and not eligible and len(last_known) == 1 and conditions.can_lead(last_known[0]):
        return Leader(last_known[0], is_unclean=True)
    if election is Election.UNCLEAN:
        for replica in replicas:
            if conditions.can_lead(replica):
                return Leader(replica, is_unclean=True)
    return Leader(NO_LEADER)


def keep_last_leader(before: Partition, record: PartitionChangeRecord) -> None:
    """Note a leader that leaves without a successor as the last known leader; clear it when there is a successor."""
    if record.leader == NO_LEADER and not before.last_known_elr and before.leader != NO_LEADER:
        record.last_known_elr = [before.leader]
    elif record.leader >= 0 and before.last_known_elr:
        record.last_known_elr = []


def assign(
    before: Partition,
    record: PartitionChangeRecord,
    replicas: tuple[int, ...],
    target: Target,
    conditions: Conditions,
) -> None:
    """Set replicas and their log dirs, if they differ."""
    if replicas != before.replicas:
        record.replicas = list(replicas)
    elif target.directory is None:
        return
    if conditions.metadata_version >= DIRECTORIES_LEVEL:
        directory_of = dict(zip(before.replicas, before.directories, strict=True))
        if target.directory is not None:
            directory_of[target.directory[0]] = target.directory[1]
        directories = tuple(
            directory_of[replica] if replica in directory_of else conditions.default_dir(replica)
            for replica in replicas
        )
        if directories != before.directories:
            record.directories = list(directories)
