"""Partitions: first states, elections, and replicas that leave the ISR. Pure.

The rule: decide, write, and after a conflict read, decide and write again; written states are sent to the brokers with the
next `Core.send`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace

from barnabas.cluster.controller import elections
from barnabas.cluster.controller.core import Core
from barnabas.cluster.controller.state import Assignment, PartitionState
from barnabas.cluster.controller.steps import (
    GIVE_WAY,
    PIECE,
    SCANNED,
    CreateStates,
    ReadStates,
    ReadUnclean,
    Steps,
    WriteStates,
    Written,
)
from barnabas.wire.topic_partitions import TopicPartition

Choose = Callable[[TopicPartition, Assignment, PartitionState], PartitionState | None]
"""Returns the next state: None if there is none, the same state if nothing must be written."""

NOBODY = "no replica can be elected"


class Outcome(dict[TopicPartition, str]):
    """Results by partition: why not, empty if the state was written or is as it should be."""


def update(
    core: Core,
    partitions: Iterable[TopicPartition],
    choose: Choose,
    receivers: Callable[[TopicPartition], Iterable[int]] | None = None,
    *,
    elects: bool = False,
) -> Steps[Outcome]:
    """Set partitions to the states that `choose` returns, and send them to `receivers` (by default all their replicas).

    If an election finds no replica, the state is read once more: before 2.7 leaders write the ISR, and the controller
    is notified late.
    """
    state = core.state
    outcome, remaining = Outcome(), list(dict.fromkeys(partitions))
    is_retry = False

    def tell(partition: TopicPartition) -> None:
        core.batch.lead_or_follow(
            state, receivers(partition) if receivers else state.replicas(partition), partition
        )

    while remaining:
        new_states: dict[TopicPartition, PartitionState] = {}
        unread = []
        for number, partition in enumerate(remaining):
            if number % PIECE == PIECE - 1:
                yield GIVE_WAY
            assignment, now = state.assignment(partition), state.states.get(partition)
            if assignment is None or now is None:
                outcome[partition] = "the partition has no state"
                continue
            chosen = choose(partition, assignment, now)
            outcome[partition] = NOBODY if chosen is None else ""
            if chosen is None and elects and not is_retry:
                unread.append(partition)
            elif chosen is not None and chosen is not now:
                new_states[partition] = replace(chosen, controller_epoch=state.epoch)
            elif is_retry:
                tell(partition)  # this may be a write of ours with a lost answer
        remaining = unread
        if new_states:
            written: Written = yield WriteStates(new_states)
            for number, (partition, new) in enumerate(written.done.items()):
                state.states[partition] = new
                tell(partition)
                if number % PIECE == PIECE - 1:
                    yield GIVE_WAY
            outcome.update(written.failed)
            remaining = [*unread, *written.conflicts]
        if remaining:
            yield from refresh(core, remaining)
            is_retry = True
    return outcome


def refresh(core: Core, partitions: Collection[TopicPartition]) -> Steps[None]:
    """Read the states of partitions that their leaders or another controller may have changed."""
    states: dict[TopicPartition, PartitionState] = yield ReadStates(partitions)
    for partition in partitions:
        if partition in states:
            core.state.states[partition] = states[partition]
        else:
            core.state.states.pop(partition, None)


def begin(core: Core, partitions: Iterable[TopicPartition]) -> Steps[None]:
    """Set the first states of partitions; those without a live replica wait for one."""
    state, first_states = core.state, {}
    for number, partition in enumerate(partitions):
        online = state.online(state.replicas(partition), partition)
        first = elections.first_state(online, state.epoch)
        if first is not None:
            first_states[partition] = first
        if number % PIECE == PIECE - 1:
            yield GIVE_WAY
    if not first_states:
        return
    written: Written = yield CreateStates(first_states)
    for number, (partition, new) in enumerate(written.done.items()):
        state.states[partition] = new
        core.batch.lead_or_follow(state, new.isr, partition, new=True)
        if number % PIECE == PIECE - 1:
            yield GIVE_WAY
    if written.conflicts:
        # Made by a write of ours with an answer that was lost, or by the controller before us.
        yield from refresh(core, written.conflicts)
        for partition in written.conflicts:
            if partition in state.states:
                online = state.online(state.replicas(partition), partition)
                core.batch.lead_or_follow(state, online, partition, new=True)
        yield from elect_offline(core, written.conflicts)


def elect_offline(
    core: Core, partitions: Iterable[TopicPartition] | None = None, *, returning: Collection[int] = ()
) -> Steps[None]:
    """Elect leaders for the leaderless partitions among these, or among all.

    If a broker of `returning` is in sync, the election is clean even if the topic allows an unclean one.
    """
    state = core.state
    if partitions is None:
        partitions = [partition for partition, _ in state.partitions()]
    wanting = []
    for number, partition in enumerate(partitions):
        if state.is_offline(partition) and not state.is_deleting(partition[0]):
            wanting.append(partition)
        if number % SCANNED == SCANNED - 1:
            yield GIVE_WAY
    yield from begin(core, [partition for partition in wanting if partition not in state.states])
    offline = [
        partition for partition in wanting if partition in state.states and state.is_offline(partition)
    ]
    yield from elect_after_loss(core, offline, unclean=False, returning=returning)


def elect_after_absence(core: Core) -> Steps[None]:
    """Elect where a broker in sync has left and returned while there was no controller."""
    state = core.state
    wanting = []
    for number, (partition, now) in enumerate(list(state.states.items())):
        if any(state.was_away(replica, now) for replica in now.isr) and not state.is_deleting(partition[0]):
            wanting.append(partition)
        if number % SCANNED == SCANNED - 1:
            yield GIVE_WAY

    def choose(partition: TopicPartition, assignment: Assignment, now: PartitionState) -> PartitionState:
        return elections.after_absence(
            assignment.replicas,
            now,
            online=lambda replica: state.is_online(replica, partition),
            stayed=lambda replica: state.is_online(replica, partition) and not state.was_away(replica, now),
        )

    yield from update(core, wanting, choose)


def elect_after_loss(
    core: Core, partitions: Sequence[TopicPartition], *, unclean: bool, returning: Collection[int] = ()
) -> Steps[Outcome]:
    """Elect leaders for these partitions; `unclean` allows one out of sync, as the topic's own setting does."""
    state = core.state
    without = {
        partition[0]
        for partition in partitions
        if partition in state.states and not state.online(state.states[partition].isr, partition)
    }
    allowed: Collection[str] = without
    if without and not unclean:
        allowed = yield ReadUnclean(without)

    def choose(
        partition: TopicPartition, assignment: Assignment, now: PartitionState
    ) -> PartitionState | None:
        return elections.after_loss(
            assignment.replicas,
            now,
            lambda replica: state.is_online(replica, partition),
            unclean=partition[0] in allowed and not any(replica in returning for replica in now.isr),
            marks_recovery=core.settings.marks_recovery,
        )

    return (
        yield from update(
            core,
            partitions,
            choose,
            lambda partition: state.online(state.replicas(partition), partition),
            elects=True,
        )
    )


def shrink_isr(core: Core, partitions: Iterable[TopicPartition]) -> Steps[Outcome]:
    """Remove unusable replicas from the ISR; if the leader is one of them, the partition becomes leaderless."""
    state = core.state

    def choose(
        partition: TopicPartition, _assignment: Assignment, now: PartitionState
    ) -> PartitionState | None:
        return elections.without_replicas(
            now, lambda replica: state.is_online(replica, partition, also_shutting_down=True)
        )

    return (
        yield from update(
            core, partitions, choose, lambda partition: state.online(state.replicas(partition), partition)
        )
    )


def elect_preferred(core: Core, partitions: Iterable[TopicPartition]) -> Steps[Outcome]:
    """Make the preferred replicas the leaders of these partitions."""
    state = core.state

    def choose(
        partition: TopicPartition, assignment: Assignment, now: PartitionState
    ) -> PartitionState | None:
        return elections.preferred(
            assignment.replicas, now, lambda replica: state.is_online(replica, partition)
        )

    return (yield from update(core, partitions, choose, elects=True))


def next_epoch(core: Core, partition: TopicPartition) -> Steps[bool]:
    """Begin a new leader epoch with the same leader, so that it sees other replicas; nothing is sent yet."""
    outcome = yield from update(
        core, [partition], lambda _, __, now: now.next_epoch(now.leader, now.isr), lambda _: ()
    )
    return not outcome[partition]
