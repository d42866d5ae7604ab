"""AlterPartitionReassignments v0-v1 and ListPartitionReassignments v0 (KIP-455). Pure.

v1 adds an option that forbids a change of the replication factor (KIP-860).

The rule: added replicas join the present ones, and removed replicas stay until all added ones are in sync; the change of
the ISR that completes this ends the reassignment. Cancelling restores the previous replicas; it is refused if none of
them is in sync, unless the topic allows unclean elections.
"""

from __future__ import annotations

from typing import Any

from barnabas.cluster.kraft.controller.batch import Batch
from barnabas.cluster.kraft.controller.conditions import check_size
from barnabas.cluster.kraft.controller.index import Key, index_of
from barnabas.cluster.kraft.controller.outcome import Caller, ControllerState, Handlers, Outcome
from barnabas.cluster.kraft.controller.partition_changes import Election, Target
from barnabas.cluster.kraft.controller.topics import check_assignment
from barnabas.cluster.kraft.image import QuorumImage
from barnabas.cluster.kraft.values import Partition
from barnabas.errors import RequestError
from barnabas.security.authorizer import Operation
from barnabas.wire.generated.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

_Ongoing = ListPartitionReassignmentsResponse.OngoingPartitionReassignment
_Result = AlterPartitionReassignmentsResponse.ReassignablePartitionResponse


def alter(state: ControllerState, request: AlterPartitionReassignmentsRequest, caller: Caller) -> Outcome:
    """Begin, replace or cancel reassignments, each partition on its own."""
    caller.require_on_cluster(Operation.ALTER)
    batch = Batch(state)
    keeps_factor = not request.allow_replication_factor_change
    if not request.topics:
        return Outcome(AlterPartitionReassignmentsResponse())
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change, error_message=None
    )
    for topic in request.topics:
        topic_id = state.image.topic_ids.get(topic.name)
        results = []
        for partition in topic.partitions:
            result = _Result(partition.partition_index, error_message=None)
            try:
                key = (topic_id or b"", partition.partition_index)
                replicas = None if partition.replicas is None else tuple(partition.replicas)
                alter_partition(batch, key, replicas, keeps_factor=keeps_factor)
            except RequestError as error:
                result.error_code, result.error_message = error.code, error.message or None
            results.append(result)
        response.responses.append(
            AlterPartitionReassignmentsResponse.ReassignableTopicResponse(topic.name, results)
        )
    check_size(batch.records)
    return Outcome(response, tuple(batch.records))


def alter_partition(batch: Batch, key: Key, replicas: tuple[int, ...] | None, *, keeps_factor: bool) -> None:
    """Begin, replace or cancel the reassignment of a partition. Raises RequestError."""
    partition = batch.partition(key)
    if partition is None:
        raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such partition")
    if replicas is None:
        batch.change(key, cancelled(batch, key, partition))
        return
    check_assignment(batch.state.image, replicas)
    count = len(set(partition.replicas) - set(partition.removing))
    if keeps_factor and len(replicas) != count:
        raise RequestError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"there are {count} replicas, and {len(replicas)} are asked for: their number may not change",
        )
    removing = tuple(sorted(set(partition.replicas) - set(replicas)))
    adding = (set(replicas) - set(partition.replicas)) | (set(partition.adding) & set(replicas))
    batch.change(key, Target(replicas=replicas + removing, removing=removing, adding=tuple(sorted(adding))))


def cancelled(batch: Batch, key: Key, partition: Partition) -> Target:
    """Return the target that restores a partition as before its reassignment. Raises RequestError if that is impossible."""
    if not partition.adding and not partition.removing:
        raise RequestError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "the partition is not being reassigned")
    replicas = tuple(replica for replica in partition.replicas if replica not in partition.adding)
    isr = tuple(replica for replica in partition.isr if replica not in partition.adding)
    if not replicas:
        raise RequestError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "all replicas are being added")
    election = batch.election_of(key[0])
    if not isr and election is not Election.UNCLEAN:
        raise RequestError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "only replicas that are being added are in sync: without them records would be lost",
        )
    if not isr and not any(batch.can_lead(key, replica) for replica in replicas):
        raise RequestError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "only replicas that are being added are in sync and can lead",
        )
    return Target(replicas=replicas, isr=isr, removing=(), adding=(), election=election)


def list_ongoing(
    state: ControllerState, request: ListPartitionReassignmentsRequest, caller: Caller
) -> Outcome:
    """List the reassignments in progress, of some partitions or of all."""
    caller.require_on_cluster(Operation.DESCRIBE)
    by_topic: dict[str, list[_Ongoing]] = {}
    for name, key in _asked(state, request):
        partition = state.image.partitions.get(key)
        if partition is not None and (partition.adding or partition.removing):
            by_topic.setdefault(name, []).append(_ongoing(key[1], partition))
    topics: list[Any] = [
        ListPartitionReassignmentsResponse.OngoingTopicReassignment(name, partitions)
        for name, partitions in by_topic.items()
    ]
    return Outcome(ListPartitionReassignmentsResponse(error_message=None, topics=topics))


def _asked(state: ControllerState, request: ListPartitionReassignmentsRequest) -> list[tuple[str, Key]]:
    image: QuorumImage = state.image
    if request.topics is None:
        return [(image.topics[key[0]].name, key) for key in index_of(state).reassigning]
    return [
        (topic.name, (image.topic_ids[topic.name], index))
        for topic in request.topics
        if topic.name in image.topic_ids
        for index in topic.partition_indexes
    ]


def _ongoing(index: int, partition: Partition) -> _Ongoing:
    return _Ongoing(index, list(partition.replicas), list(partition.adding), list(partition.removing))


HANDLERS: Handlers = {45: alter, 46: list_ongoing}
