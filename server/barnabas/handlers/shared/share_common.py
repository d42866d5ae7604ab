"""Common part of ShareFetch and ShareAcknowledge: the requester, the acknowledgements, and the current leaders."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from barnabas.cluster.metadata.endpoints import advertised_nodes
from barnabas.coordinators.share.acknowledgement import Acknowledgement, check_acknowledgements
from barnabas.coordinators.share.sessions import SessionKey
from barnabas.errors import RequestError, detached
from barnabas.security.authorizer import Operation, ResourceType
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.topic_partitions import TopicIdPartition

if TYPE_CHECKING:
    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.coordinators.share.shares import Shares
    from barnabas.serving.context import RequestContext
    from barnabas.serving.loop_budget import LoopBudget

MEMBER_ID_LENGTH_MAX = 36
RENEW_SINCE = 2
"""The version of both APIs from which on locks can be renewed (KIP-1222)."""

Outcomes = dict[TopicIdPartition, RequestError | None]
"""For each addressed slot: the error, None for success."""

_MOVED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


def check_asker(request: Any) -> SessionKey:
    """The group and the member that ask. Raises INVALID_REQUEST."""
    if request.group_id is None:
        raise RequestError(ErrorCode.INVALID_REQUEST, "there is no group id")
    member_id = request.member_id
    if not member_id or len(member_id) > MEMBER_ID_LENGTH_MAX:
        raise RequestError(
            ErrorCode.INVALID_REQUEST, f"a member id of 1 to {MEMBER_ID_LENGTH_MAX} characters is expected"
        )
    return request.group_id, member_id


async def acknowledgements_of(
    request: Any, *, budget: LoopBudget
) -> dict[TopicIdPartition, list[Acknowledgement]]:
    """Return the acknowledgements of a request, for each partition that it names."""
    acknowledgements: dict[TopicIdPartition, list[Acknowledgement]] = {}
    for topic in request.topics:
        await budget.checkpoint()
        for partition in topic.partitions:
            of_partition = acknowledgements[topic.topic_id, partition.partition_index] = []
            await budget.checkpoint()
            for batch in partition.acknowledgement_batches:
                of_partition.append(
                    Acknowledgement(batch.first_offset, batch.last_offset, batch.acknowledge_types)
                )
                await budget.checkpoint()
    return acknowledgements


async def acknowledge(
    context: RequestContext,
    key: SessionKey,
    acknowledgements_by_partition: dict[TopicIdPartition, list[Acknowledgement]],
    *,
    is_renew: bool,
    metadata: MetadataStore,
    shares: Shares,
    budget: LoopBudget,
) -> Outcomes:
    """Process the acknowledgements of each partition on its own; there may be none."""
    outcomes: Outcomes = {}
    group_id, member_id = key
    for topic_partition, acknowledgements in acknowledgements_by_partition.items():
        await budget.checkpoint()
        outcomes[topic_partition] = None
        try:
            check_acknowledgements(
                acknowledgements, knows_renew=context.api_version >= RENEW_SINCE, is_renew=is_renew
            )
            check_readable(context, topic_partition, metadata=metadata)
            if acknowledgements:
                await shares.partitions.acknowledge((group_id, *topic_partition), member_id, acknowledgements)
        except RequestError as error:
            outcomes[topic_partition] = detached(error)
    return outcomes


def check_readable(
    context: RequestContext, topic_partition: TopicIdPartition, *, metadata: MetadataStore
) -> None:
    """Raise unless the partition exists and the requester may read it.

    UNKNOWN_TOPIC_ID, TOPIC_AUTHORIZATION_FAILED or UNKNOWN_TOPIC_OR_PARTITION, in this order.
    """
    image = metadata.image
    name = image.topic_name(topic_partition[0])
    if name is None:
        raise RequestError(ErrorCode.UNKNOWN_TOPIC_ID, "there is no topic with this id")
    if not context.authorizes(Operation.READ, ResourceType.TOPIC, name):
        raise RequestError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if not 0 <= topic_partition[1] < len(image.topics[name].partitions):
        raise RequestError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {name}-{topic_partition[1]}"
        )


async def tell_leaders(
    context: RequestContext,
    response: Any,
    answers: Iterable[tuple[TopicIdPartition, Any]],
    *,
    metadata: MetadataStore,
    budget: LoopBudget,
) -> None:
    """Add the leader and its address to the answers for partitions that are led by another broker (KIP-951)."""
    image = metadata.image
    nodes = set()
    for (topic_id, index), answer in answers:
        await budget.checkpoint()
        name = image.topic_name(topic_id)
        if answer.error_code not in _MOVED or name is None:
            continue
        info = image.topics[name].partitions[index]
        answer.current_leader.leader_id, answer.current_leader.leader_epoch = info.leader, info.leader_epoch
        nodes.add(info.leader)
    for node in advertised_nodes(image, context.connection, nodes):
        response.node_endpoints.append(
            type(response).NodeEndpoint(node_id=node.id, host=node.host, port=node.port, rack=node.rack)
        )
