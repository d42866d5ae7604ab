"""ConsumerGroupDescribe v0-v1. State, members and assignments of consumer groups (KIP-848); v1 adds members' types."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from barnabas.cluster.metadata.image import ClusterImage
from barnabas.coordinators.groups.consumer.member import ConsumerMember
from barnabas.coordinators.groups.shard import GroupShard
from barnabas.handlers.shared.describing import GroupsDescribed, MemberToDescribe, assigned_topics, assignment
from barnabas.wire.generated.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from barnabas.wire.topic_partitions import TopicIdPartitions

if TYPE_CHECKING:
    from barnabas.serving.context import RequestContext

Described = ConsumerGroupDescribeResponse.DescribedGroup
_assignment = partial(
    assignment, ConsumerGroupDescribeResponse.Assignment, ConsumerGroupDescribeResponse.TopicPartitions
)

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1


class ConsumerGroupDescribe(GroupsDescribed):
    """Handler of ConsumerGroupDescribe."""

    async def handle(
        self, context: RequestContext, request: ConsumerGroupDescribeRequest
    ) -> ConsumerGroupDescribeResponse:
        """Describe each group on its own."""
        groups = await self.describe_each(
            context,
            request,
            _describe,
            Described,
            _topics,
        )
        return ConsumerGroupDescribeResponse(groups=groups)


def _topics(group: Described) -> Iterator[str]:
    """Return the topics in a member's assignment or target."""
    return assigned_topics(
        assignment for member in group.members for assignment in (member.assignment, member.target_assignment)
    )


def _describe(group_id: str, shard: GroupShard) -> tuple[Described, Iterator[MemberToDescribe]]:
    group, image = shard.consumer_group(group_id), shard.metadata.image
    members = [(member, group.target_of(member)) for member in group.members.values()]
    described = Described(
        group_id=group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor_name(group.members.values()),
    )
    return described, (
        MemberToDescribe(
            len(member.topics) + len(member.assigned) + len(member.revoking) + len(target),
            partial(_member, member, target, image),
        )
        for member, target in members
    )


def _member(
    member: ConsumerMember, target: TopicIdPartitions, image: ClusterImage
) -> ConsumerGroupDescribeResponse.Member:
    return ConsumerGroupDescribeResponse.Member(
        member_id=member.id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.regex,
        assignment=_assignment((*member.assigned, *member.revoking), image),
        target_assignment=_assignment(target, image),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )
