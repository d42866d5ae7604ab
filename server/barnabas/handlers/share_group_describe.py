"""ShareGroupDescribe v0-v1. State, members and assignments of share groups (KIP-932); both versions are equal."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from barnabas.cluster.metadata.image import ClusterImage
from barnabas.coordinators.groups.shard import GroupShard
from barnabas.coordinators.groups.share.member import ShareMember
from barnabas.handlers.shared.describing import GroupsDescribed, MemberToDescribe, assigned_topics, assignment
from barnabas.wire.generated.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse

if TYPE_CHECKING:
    from barnabas.serving.context import RequestContext

ASSIGNOR = "simple"

Described = ShareGroupDescribeResponse.DescribedGroup
_assignment = partial(
    assignment, ShareGroupDescribeResponse.Assignment, ShareGroupDescribeResponse.TopicPartitions
)


class ShareGroupDescribe(GroupsDescribed):
    """Handler of ShareGroupDescribe."""

    async def handle(
        self, context: RequestContext, request: ShareGroupDescribeRequest
    ) -> ShareGroupDescribeResponse:
        """Describe each group on its own."""
        groups = await self.describe_each(
            context,
            request,
            _describe,
            Described,
            _topics,
        )
        return ShareGroupDescribeResponse(groups=groups)


def _topics(group: Described) -> Iterator[str]:
    """Return the topics in a member's assignment or target."""
    return assigned_topics(member.assignment for member in group.members)


def _describe(group_id: str, shard: GroupShard) -> tuple[Described, Iterator[MemberToDescribe]]:
    group, image = shard.share_group(group_id), shard.metadata.image
    members = tuple(group.members.values())
    described = Described(
        group_id=group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=ASSIGNOR,
    )
    return described, (
        MemberToDescribe(len(member.topics) + len(member.assigned), partial(_member, member, image))
        for member in members
    )


def _member(member: ShareMember, image: ClusterImage) -> ShareGroupDescribeResponse.Member:
    return ShareGroupDescribeResponse.Member(
        member_id=member.id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        assignment=_assignment(member.assigned, image),
    )
