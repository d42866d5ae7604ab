"""Reassignments of partitions to other brokers (KIP-455), by AlterPartitionReassignments and the older znode. Pure.

The rule: the znode of the topic has the reassignment in progress, so that the next controller can resume it. It ends
when all replicas of its target are in sync: then the removed replicas leave the ISR, the leader moves if it is one of them,
they are deleted, and last the znode is written. A later reassignment replaces one in progress.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from barnabas.cluster.controller import deletion, elections, partitions
from barnabas.cluster.controller.core import Core
from barnabas.cluster.controller.state import Assignment, PartitionState
from barnabas.cluster.controller.steps import (
    ReadReassignments,
    Steps,
    WatchState,
    WriteAssignment,
    WriteReassignments,
)
from barnabas.cluster.metadata.ports import Results
from barnabas.errors import RequestError, detached
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.topic_partitions import TopicPartition


def alter(
    core: Core, targets: Mapping[TopicPartition, Sequence[int] | None], *, keeps_factor: bool
) -> Steps[Results]:
    """Begin reassignments, or cancel them (None)."""
    results, accepted = Results(), {}
    for partition, target in targets.items():
        try:
            accepted[partition] = _checked(core, partition, target, keeps_factor=keeps_factor)
            results[partition] = None
        except RequestError as error:
            results[partition] = detached(error)
    if accepted:
        yield from _leave_znode(lambda partition, _: partition in accepted)
        for partition, assignment in accepted.items():
            results[partition] = yield from reassign(core, partition, assignment)
        yield from core.send()
    return results


def _unknown(partition: TopicPartition) -> RequestError:
    return RequestError(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {partition[0]}-{partition[1]}"
    )


def _checked(
    core: Core, partition: TopicPartition, target: Sequence[int] | None, *, keeps_factor: bool
) -> Assignment:
    """Return the assignment that a requested reassignment leads to. Raises RequestError."""
    now = core.state.assignment(partition)
    name = f"{partition[0]}-{partition[1]}"
    if now is None or (partition[0] in core.state.deletions and target is not None):
        raise _unknown(partition)
    if target is None:
        if not now.is_reassigned:
            raise RequestError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"{name} is not being reassigned")
        return now.reassigned_to(now.origin)
    if not target or len(set(target)) != len(target) or min(target) < 0:
        raise RequestError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{name} cannot have these {len(target)} replicas: at least one, none of them twice",
        )
    reassigned = now.reassigned_to(target)
    dead = [replica for replica in reassigned.adding if not core.state.is_live(replica)]
    if dead:
        raise RequestError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{name} cannot be given to {dead[:20]}; there are the brokers {sorted(core.state.live_ids())}",
        )
    if keeps_factor and len(target) != len(now.target):
        raise RequestError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"{name} has {len(now.target)} replicas; {len(target)} are asked for, and their number may not change",
        )
    return reassigned


# --- one partition ------------------------------------------------------------------------------------------


def reassign(core: Core, partition: TopicPartition, reassigned: Assignment) -> Steps[RequestError | None]:
    """Begin a reassignment, resume it, or end it if the target is in sync; returns why it cannot begin.

    Removed replicas leave the ISR before the assignment: if the controller ends in between, the ISR is smaller, but has
    no unassigned replicas.
    """
    state = core.state
    now = state.assignment(partition)
    if now is None:
        return _unknown(partition)
    if partition not in state.states:
        yield from partitions.begin(core, [partition])
    dropped = [replica for replica in now.replicas if replica not in reassigned.replicas]
    state.reassigning[partition] = None
    if (
        core.settings.leaders_write_isrs
    ):  # and notify the controller seconds later, as brokers before Kafka 2.7 do
        yield WatchState(partition)
        yield from partitions.refresh(core, [partition])
    if not reassigned.is_reassigned or is_complete(core, partition, reassigned):
        if not (yield from _complete(core, partition, reassigned, dropped)):
            return None
        if not reassigned.is_reassigned:
            return _begun_by(core, partition, now, _would_lose(partition) if reassigned != now else None)
    # The dropped replicas were added by the reassignment before.
    if dropped and partition in state.states and (yield from _restrict(core, partition, reassigned.replicas)):
        return _begun_by(core, partition, now, _would_lose(partition))
    if reassigned != now and not (yield from _write(core, partition, reassigned)):
        return _begun_by(core, partition, now, _unknown(partition))
    if dropped or (yield from partitions.next_epoch(core, partition)):
        core.batch.lead_or_follow(state, reassigned.origin, partition)
        core.batch.lead_or_follow(state, reassigned.adding, partition, new=True)
    for broker in dropped:
        core.batch.stop_replica(state, broker, partition, delete=True)
    return None


def _begun_by(
    core: Core, partition: TopicPartition, now: Assignment, refusal: RequestError | None
) -> RequestError | None:
    """Drop a reassignment that was refused, unless another one is in progress."""
    if refusal is not None and not now.is_reassigned:
        core.state.reassigning.pop(partition, None)
    return refusal


def _would_lose(partition: TopicPartition) -> RequestError:
    return RequestError(
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        f"of {partition[0]}-{partition[1]} no replica that has every record would stay",
    )


def _restrict(
    core: Core, partition: TopicPartition, replicas: Sequence[int], *, all_in_sync: bool = False
) -> Steps[str]:
    """Restrict the ISR to these replicas; returns the reason if that fails: `all_in_sync`: all must be in sync."""

    def choose(_: TopicPartition, __: Assignment, now: PartitionState) -> PartitionState | None:
        if all_in_sync and not set(replicas) <= set(now.isr):
            return None
        return elections.restricted(replicas, now, lambda replica: core.state.is_online(replica, partition))

    outcome = yield from partitions.update(core, [partition], choose, lambda _: replicas)
    return outcome[partition]


def is_complete(core: Core, partition: TopicPartition, assignment: Assignment) -> bool:
    """Return whether all replicas of the target are in sync, and one of them can lead."""
    now = core.state.states.get(partition)
    if now is None or not set(assignment.target) <= set(now.isr):
        return False
    return bool(core.state.online(assignment.target, partition))


def _complete(
    core: Core, partition: TopicPartition, assignment: Assignment, dropped: Sequence[int] = ()
) -> Steps[str]:
    """End a reassignment; returns why it could not end."""
    state, target = core.state, assignment.target
    before = state.assignments[partition[0]][partition[1]]
    # The leader must not take those that go back into the ISR: it gets the target as its replicas.
    state.assignments[partition[0]][partition[1]] = Assignment(target)
    if partition in state.states:
        why = yield from _restrict(core, partition, target, all_in_sync=assignment.is_reassigned)
        if why:
            state.assignments[partition[0]][partition[1]] = before
            return why
    for broker in (*assignment.removing, *dropped):
        core.batch.stop_replica(state, broker, partition, delete=True)
    yield from core.send()
    if before != Assignment(target) and not (yield from _write(core, partition, Assignment(target))):
        return ""
    yield from _leave_znode(lambda named, replicas: named == partition and replicas == target)
    state.reassigning.pop(partition, None)
    core.batch.update_metadata(state.brokers, [partition])
    if partition[0] in state.deletions:
        yield from deletion.proceed(core, [partition[0]])
    return ""


def _write(core: Core, partition: TopicPartition, assignment: Assignment) -> Steps[bool]:
    topic, index = partition
    assignments = {**core.state.assignments[topic], index: assignment}
    written: bool = yield WriteAssignment(topic, core.state.topic_ids.get(topic), assignments)
    if written:
        core.state.assignments[topic][index] = assignment
    return written


def isr_changed(core: Core, changed: Iterable[TopicPartition]) -> Steps[None]:
    """End the reassignments with targets that are in sync now."""
    for partition in changed:
        assignment = core.state.assignment(partition)
        if (
            partition in core.state.reassigning
            and assignment is not None
            and is_complete(core, partition, assignment)
        ):
            yield from _complete(core, partition, assignment)
    yield from core.send()


def resume(
    core: Core, which: Callable[[TopicPartition, Assignment], bool] = lambda _, __: True
) -> Steps[None]:
    """Resume reassignments that a new controller finds, or of which replicas have returned."""
    for partition in list(core.state.reassigning):
        assignment = core.state.assignment(partition)
        if assignment is not None and which(partition, assignment):
            yield from reassign(core, partition, assignment)
    yield from core.send()


# --- /admin/reassign_partitions -----------------------------------------------------------------------------


def from_znode(core: Core) -> Steps[list[TopicPartition]]:
    """Begin the reassignments in the znode, and remove impossible ones from it. Returns those that have begun."""
    targets: dict[TopicPartition, tuple[int, ...]] | None = yield ReadReassignments()
    if targets is None:
        return []
    begun, refused = [], set()
    for partition, target in targets.items():
        now = core.state.assignment(partition)
        if now is None or partition[0] in core.state.deletions or not target:
            refused.add(partition)
            continue
        reassigned = now.reassigned_to(target)
        if now.is_reassigned and reassigned == now:
            begun.append(partition)  # seen before
            continue
        if (yield from reassign(core, partition, reassigned)) is None:
            begun.append(partition)
        else:
            refused.add(partition)
    yield from core.send()
    if refused or not targets:
        yield from _leave_znode(lambda partition, _: partition in refused)
    return begun


def _leave_znode(leaves: Callable[[TopicPartition, tuple[int, ...]], bool]) -> Steps[None]:
    targets: dict[TopicPartition, tuple[int, ...]] | None = yield ReadReassignments()
    if targets is None:
        return
    remaining = {partition: target for partition, target in targets.items() if not leaves(partition, target)}
    if len(remaining) < len(targets) or not remaining:
        yield WriteReassignments(remaining)
