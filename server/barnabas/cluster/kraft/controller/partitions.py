"""AlterPartition v2-v3: a leader proposes the ISR of its partitions. Pure.

v3 has the epochs of the brokers in the ISR (KIP-903), so that a broker that has restarted since is refused.

The rule: only the leader of the newest epochs that the controller knows may change the ISR, and only to active brokers
that include itself. If that completes a reassignment, the leader may move; the old leader is answered
NEW_LEADER_ELECTED.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from barnabas.cluster.kraft.controller.batch import Batch
from barnabas.cluster.kraft.controller.conditions import check_epoch, is_active
from barnabas.cluster.kraft.controller.outcome import Caller, ControllerState, Handlers, Outcome, Steps
from barnabas.cluster.kraft.controller.partition_changes import Target
from barnabas.cluster.kraft.image import QuorumImage
from barnabas.cluster.kraft.values import RECOVERED, RECOVERING, Partition
from barnabas.security.authorizer import Operation
from barnabas.wire.generated.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from barnabas.wire.generated.errors import ErrorCode

BROKER_EPOCHS_SINCE = 3
_ANY_EPOCH = -1

_Proposal = AlterPartitionRequest.PartitionData
_Result = AlterPartitionResponse.PartitionData


class _Replica(NamedTuple):
    id: int
    epoch: int


def alter_partition(state: ControllerState, request: AlterPartitionRequest, caller: Caller) -> Steps[Outcome]:
    """Change ISRs as proposed, each partition on its own. Raises STALE_BROKER_EPOCH."""
    caller.require_on_cluster(Operation.CLUSTER_ACTION)
    response = AlterPartitionResponse()
    if not request.topics:
        return Outcome(response)
    check_epoch(state.image, request.broker_id, request.broker_epoch)
    batch = Batch(state)
    for topic in request.topics:
        is_known = topic.topic_id in state.image.topics
        results = AlterPartitionResponse.TopicData(topic_id=topic.topic_id)
        response.topics.append(results)
        for proposal in topic.partitions:
            results.partitions.append(
                _alter(batch, request.broker_id, topic.topic_id, proposal, caller.version)
                if is_known
                else _refused(proposal.partition_index, ErrorCode.UNKNOWN_TOPIC_ID)
            )
            yield
    return Outcome(response, tuple(batch.records), is_atomic=False)


def _alter(batch: Batch, leader_id: int, topic_id: bytes, proposal: _Proposal, version: int) -> _Result:
    index = proposal.partition_index
    key = (topic_id, index)
    partition = batch.partition(key)
    if partition is None:
        return _refused(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    isr = _proposed_isr(proposal, version)
    code = refusal(batch.state.image, leader_id, partition, proposal, isr)
    if code:
        return _refused(index, code)
    target = Target(
        isr=tuple(replica.id for replica in isr),
        leader_recovery_state=proposal.leader_recovery_state,
        election=batch.election_of(topic_id),
    )
    after = batch.change(key, target) or partition
    if after.leader != leader_id:
        return _refused(index, ErrorCode.NEW_LEADER_ELECTED)
    return _Result(
        partition_index=index,
        leader_id=after.leader,
        leader_epoch=after.leader_epoch,
        isr=list(after.isr),
        leader_recovery_state=after.leader_recovery_state,
        partition_epoch=after.partition_epoch,
    )


def _proposed_isr(proposal: _Proposal, version: int) -> tuple[_Replica, ...]:
    if version < BROKER_EPOCHS_SINCE:
        return tuple(_Replica(broker_id, _ANY_EPOCH) for broker_id in proposal.new_isr)
    return tuple(_Replica(broker.broker_id, broker.broker_epoch) for broker in proposal.new_isr_with_epochs)


def refusal(
    image: QuorumImage,
    leader_id: int,
    partition: Partition,
    proposal: _Proposal,
    isr: Sequence[_Replica],
) -> int:
    """Return the error code of a refused proposal, NONE if it is accepted."""
    if proposal.leader_epoch > partition.leader_epoch or proposal.partition_epoch > partition.partition_epoch:
        return ErrorCode.NOT_CONTROLLER  # a later controller has raised these epochs
    if proposal.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if leader_id != partition.leader:
        return ErrorCode.INVALID_REQUEST
    if proposal.partition_epoch < partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    ids = {replica.id for replica in isr}
    if len(ids) < len(isr) or not ids <= set(partition.replicas) or leader_id not in ids:
        return ErrorCode.INVALID_REQUEST
    recovery = proposal.leader_recovery_state
    if recovery not in (RECOVERED, RECOVERING):
        return ErrorCode.INVALID_REQUEST
    if recovery == RECOVERING and (len(isr) > 1 or partition.leader_recovery_state == RECOVERED):
        return ErrorCode.INVALID_REQUEST
    if not all(_is_eligible(image, replica) for replica in isr):
        return ErrorCode.INELIGIBLE_REPLICA
    return ErrorCode.NONE


def _is_eligible(image: QuorumImage, replica: _Replica) -> bool:
    """Return whether a broker can be in sync: it is active, and has not restarted since the leader last heard from it."""
    return is_active(image, replica.id) and replica.epoch in (_ANY_EPOCH, image.brokers[replica.id].epoch)


def _refused(index: int, code: int) -> _Result:
    return _Result(partition_index=index, error_code=code)


HANDLERS: Handlers = {56: alter_partition}
