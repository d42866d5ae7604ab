"""ShareGroupDescribe v0-v1. State, members and assignments of share groups (KIP-932); both versions say the same."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from barnabas.cluster.image import ClusterImage
from barnabas.errors import RequestError
from barnabas.groups.decision import Decision
from barnabas.groups.shard import GroupShard
from barnabas.groups.topics import Slot, by_topic
from barnabas.handlers.describe_groups import GROUP_OPERATIONS
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse

if TYPE_CHECKING:
    from barnabas.broker.context import RequestContext

ASSIGNOR = "simple"

Described = ShareGroupDescribeResponse.DescribedGroup
Assignment = ShareGroupDescribeResponse.Assignment


async def handle(context: RequestContext, request: ShareGroupDescribeRequest) -> ShareGroupDescribeResponse:
    """Describe each group on its own."""
    image = context.broker.metadata.image
    response = ShareGroupDescribeResponse()
    for group_id in request.group_ids:
        try:
            if not group_id:
                raise RequestError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
            described = await context.broker.groups.perform(group_id, partial(_describe, group_id, image))
        except RequestError as error:
            described = Described(
                group_id=group_id, error_code=error.code, error_message=error.message or None
            )
        if request.include_authorized_operations and not described.error_code:
            described.authorized_operations = GROUP_OPERATIONS
        response.groups.append(described)
    return response


def _describe(group_id: str, image: ClusterImage, shard: GroupShard, out: Decision) -> Described:  # noqa: ARG001
    group = shard.share_group(group_id)
    return Described(
        group_id=group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=ASSIGNOR,
        members=[
            ShareGroupDescribeResponse.Member(
                member_id=member.id,
                rack_id=member.rack_id,
                member_epoch=member.epoch,
                client_id=member.client_id,
                client_host=member.client_host,
                subscribed_topic_names=sorted(member.topics),
                assignment=_assignment(member.assigned, image),
            )
            for member in group.members.values()
        ],
    )


def _assignment(slots: Iterable[Slot], image: ClusterImage) -> Assignment:
    """What a member has, of the topics that still exist."""
    return Assignment(
        topic_partitions=[
            ShareGroupDescribeResponse.TopicPartitions(
                topic_id=topic_id, topic_name=name, partitions=partitions
            )
            for topic_id, partitions in by_topic(slots)
            if (name := image.topic_name(topic_id)) is not None
        ]
    )
