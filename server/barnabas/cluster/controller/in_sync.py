"""Proposals of leaders for the ISRs of their partitions (AlterPartition, KIP-497). Pure.

The rule: a proposal is accepted if it comes from the leader of the present epoch, is based on the present state, and has
only live brokers (KIP-841, KIP-903). A repeated proposal gets the same answer.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.cluster.controller import partitions, reassignment
from barnabas.cluster.controller.core import Core
from barnabas.cluster.controller.state import PartitionState
from barnabas.cluster.controller.steps import GIVE_WAY, PIECE, Steps, WriteStates, Written
from barnabas.cluster.metadata.ports import AcceptedState, ProposedState
from barnabas.errors import RequestError, detached
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.topic_partitions import TopicPartition

ANY_EPOCH = -1
Answer = AcceptedState | RequestError


def check_broker(core: Core, broker_id: int, broker_epoch: int, unknown: int) -> None:
    """Raise STALE_BROKER_EPOCH for another epoch than the broker's, `unknown` for a broker that is not registered."""
    broker = core.state.brokers.get(broker_id)
    if broker is None:
        raise RequestError(unknown, f"there is no broker {broker_id}")
    if broker.epoch != broker_epoch:
        raise RequestError(
            ErrorCode.STALE_BROKER_EPOCH, f"broker {broker_id} has epoch {broker.epoch}, not {broker_epoch}"
        )


def alter(
    core: Core, broker_id: int, broker_epoch: int, proposals: Sequence[ProposedState]
) -> Steps[list[Answer]]:
    """Decide on proposals of a leader, write accepted ones, and send them to all brokers. Raises RequestError."""
    check_broker(core, broker_id, broker_epoch, ErrorCode.STALE_BROKER_EPOCH)
    state = core.state
    answers: list[Answer | None] = []
    new_states: dict[TopicPartition, PartitionState] = {}
    named: dict[TopicPartition, int] = {}
    for number, proposal in enumerate(proposals):
        try:
            partition = _partition(core, proposal)
            decided = _decided(core, broker_id, partition, proposal)
            if partition in named:
                raise RequestError(ErrorCode.INVALID_REQUEST, "the partition is named twice")
            if isinstance(decided, PartitionState):
                named[partition] = number
                new_states[partition] = decided
                answers.append(None)
            else:
                answers.append(decided)
        except RequestError as error:
            answers.append(detached(error))
        if number % PIECE == PIECE - 1:
            yield GIVE_WAY
    if new_states:
        written: Written = yield WriteStates(new_states)
        for partition, new in written.done.items():
            state.states[partition] = new
            answers[named[partition]] = _accepted(new)
        for partition in (*written.conflicts, *written.failed):
            answers[named[partition]] = RequestError(
                ErrorCode.INVALID_UPDATE_VERSION, "the state has been changed by another broker"
            )
        if written.conflicts:
            yield from partitions.refresh(core, written.conflicts)
            # It may be a write of ours with an answer that was lost: the leader would propose to an old version for ever.
            for partition in written.conflicts:
                now = state.states.get(partition)
                if now is not None and now.leader == broker_id and not state.is_deleting(partition[0]):
                    core.batch.tell_replicas([broker_id], partition)
        core.batch.update_metadata(state.brokers, new_states)
        yield from core.send()
    return [answer for answer in answers if answer is not None]


def after(core: Core, answers: Sequence[Answer], proposals: Sequence[ProposedState]) -> Steps[None]:
    """End the reassignments that accepted proposals have completed; done after the leader has its answer."""
    accepted = [
        _partition(core, proposal)
        for proposal, answer in zip(proposals, answers, strict=True)
        if isinstance(answer, AcceptedState)
    ]
    yield from reassignment.isr_changed(core, accepted)


def _partition(core: Core, proposal: ProposedState) -> TopicPartition:
    topic = proposal.topic
    if topic is None:
        topic = core.state.topic_names.get(proposal.topic_id or b"")
        if topic is None:
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_ID, "there is no topic with this id")
    return topic, proposal.index


def _decided(
    core: Core, broker_id: int, partition: TopicPartition, proposal: ProposedState
) -> PartitionState | AcceptedState:
    """Return the state to write, or the present one if the proposal was accepted before. Raises RequestError."""
    now, assignment = core.state.states.get(partition), core.state.assignment(partition)
    if now is None or assignment is None:
        raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such partition")
    if proposal.partition_epoch > now.version or proposal.leader_epoch > now.leader_epoch:
        # the leader has newer state: this broker may not be the controller any longer
        raise RequestError(
            ErrorCode.NOT_CONTROLLER,
            f"known are leader epoch {now.leader_epoch} and partition epoch {now.version}",
        )
    if proposal.leader_epoch < now.leader_epoch:
        raise RequestError(ErrorCode.FENCED_LEADER_EPOCH, f"the leader epoch is {now.leader_epoch}")
    if now.leader != broker_id:
        raise RequestError(ErrorCode.INVALID_REQUEST, f"broker {now.leader} leads")
    isr = tuple(replica for replica, _ in proposal.isr)
    if set(isr) == set(now.isr) and proposal.recovering == now.recovering:
        return _accepted(now)
    if proposal.partition_epoch < now.version:
        raise RequestError(ErrorCode.INVALID_UPDATE_VERSION, f"the partition epoch is {now.version}")
    if broker_id not in isr or len(set(isr)) != len(isr) or not set(isr) <= set(assignment.replicas):
        raise RequestError(ErrorCode.INVALID_REQUEST, "the ISR has the leader, and only replicas, each once")
    if proposal.recovering and (len(isr) > 1 or not now.recovering):
        raise RequestError(
            ErrorCode.INVALID_REQUEST,
            "a leader that recovers is alone in sync, and does not begin that by itself",
        )
    _check_eligible(core, partition, proposal, now)
    return PartitionState(
        broker_id, isr, now.leader_epoch, core.state.epoch, now.version, proposal.recovering
    )


def _check_eligible(
    core: Core, partition: TopicPartition, proposal: ProposedState, now: PartitionState
) -> None:
    """Raise INELIGIBLE_REPLICA for a broker that is absent, shutting down, or has restarted since it caught up."""
    state = core.state
    for replica, epoch in proposal.isr:
        restarted = (
            epoch not in (ANY_EPOCH, state.brokers[replica].epoch) if replica in state.brokers else True
        )
        joins = replica not in now.isr
        if restarted or not state.is_live(replica) or (joins and not state.is_online(replica, partition)):
            raise RequestError(ErrorCode.INELIGIBLE_REPLICA, f"broker {replica} cannot be in sync now")


def _accepted(state: PartitionState) -> AcceptedState:
    return AcceptedState(state.leader, state.leader_epoch, state.version, state.isr, state.recovering)
