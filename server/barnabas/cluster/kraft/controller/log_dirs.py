"""AssignReplicasToDirs v0: a broker reports the log dirs of its replicas (KIP-858). Pure.

The rule: a replica in a log dir that is not registered as online is lost: the partition's ISR and leadership lose it
immediately.
"""

from __future__ import annotations

from barnabas.cluster.kraft.controller.batch import Batch
from barnabas.cluster.kraft.controller.conditions import (
    check_epoch,
    has_directories,
    has_online_dir,
)
from barnabas.cluster.kraft.controller.index import Key
from barnabas.cluster.kraft.controller.outcome import Caller, ControllerState, Handlers, Outcome, Steps
from barnabas.cluster.kraft.controller.partition_changes import Target
from barnabas.cluster.kraft.controller.versions import DIRECTORIES_LEVEL
from barnabas.cluster.kraft.image import METADATA_VERSION
from barnabas.errors import RequestError
from barnabas.security.authorizer import Operation
from barnabas.wire.generated.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from barnabas.wire.generated.errors import ErrorCode

_Response = AssignReplicasToDirsResponse


def assign(state: ControllerState, request: AssignReplicasToDirsRequest, caller: Caller) -> Steps[Outcome]:
    """Assign replicas to log dirs. Raises STALE_BROKER_EPOCH, UNSUPPORTED_VERSION."""
    caller.require_on_cluster(Operation.CLUSTER_ACTION)
    if not has_directories(state.image):
        raise RequestError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"there are log dirs from {METADATA_VERSION} {DIRECTORIES_LEVEL} on",
        )
    broker = check_epoch(state.image, request.broker_id, request.broker_epoch)
    batch = Batch(state)
    response = _Response()
    lost: dict[Key, None] = {}
    for directory in request.directories:
        topics = []
        for topic in directory.topics:
            partitions = []
            for partition in topic.partitions:
                key = (topic.topic_id, partition.partition_index)
                code = _refusal(batch, key, broker.id)
                if not code:
                    batch.change(key, Target(directory=(broker.id, directory.id)))
                    if not has_online_dir(broker, directory.id):
                        lost[key] = None
                partitions.append(_Response.PartitionData(partition.partition_index, code))
                yield
            topics.append(_Response.TopicData(topic.topic_id, partitions))
        response.directories.append(_Response.DirectoryData(directory.id, topics))
    yield from batch.update(lost, removed=broker.id)
    return Outcome(response, tuple(batch.records), is_atomic=False)


def _refusal(batch: Batch, key: Key, broker_id: int) -> int:
    """Return why a replica is not assigned, 0 if it is."""
    if key[0] not in batch.state.image.topics:
        return ErrorCode.UNKNOWN_TOPIC_ID
    partition = batch.partition(key)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE if broker_id in partition.replicas else ErrorCode.NOT_LEADER_OR_FOLLOWER


HANDLERS: Handlers = {73: assign}
