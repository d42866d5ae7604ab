"""Common part of the APIs that describe groups with epochs: consumer, streams and share groups.

The rule: each group has its own result; an error of one does not affect the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from barnabas.cluster.metadata.image import ClusterImage
from barnabas.coordinators.groups.shard import GroupShard
from barnabas.coordinators.groups.topics import by_topic
from barnabas.coordinators.statemachine.decision import EVENT_SIZE_MAX
from barnabas.errors import RequestError
from barnabas.security.authorizer import Operation, ResourceType
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.topic_partitions import TopicIdPartition

if TYPE_CHECKING:
    from barnabas.coordinators.groups.coordinator import GroupCoordinator
    from barnabas.environment import Threads
    from barnabas.serving.context import RequestContext
    from barnabas.serving.loop_budget import LoopBudget


class DescribeRequest(Protocol):
    """Fields that the requests share."""

    group_ids: list[str]
    include_authorized_operations: bool


class Described(Protocol):
    """Fields that the responses' descriptions of a group share."""

    group_id: str
    error_code: int
    error_message: str | None
    authorized_operations: int
    members: list[Any]


class MemberToDescribe(NamedTuple):
    """Creates a member's description from immutable values; and the number of topics and partitions in it."""

    size: int
    make: Callable[[], Any]


D = TypeVar("D", bound=Described)
A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(eq=False)
class GroupsDescribed:
    """Fields of the handlers, and how they describe groups."""

    group_coordinator: GroupCoordinator
    budget: LoopBudget
    threads: Threads

    async def describe_each(
        self,
        context: RequestContext,
        request: DescribeRequest,
        describe: Callable[[str, GroupShard], tuple[D, Iterator[MemberToDescribe]]],
        empty: Callable[[], D],
        topics_of: Callable[[D], Iterable[str]],
        *,
        is_large: Callable[[str, GroupShard], bool] | None = None,
    ) -> list[D]:
        """Describe each group on its own, once; if `describe` raises a RequestError, `empty` is filled with that.

        `describe` returns a description without members, and an iterator that builds these, with other tasks in between as
        they may be many. Groups for which `is_large` is true are described in a thread, their members included. A group is
        not described if the requester may not describe one of its `topics_of`.
        """
        groups = []
        for group_id in dict.fromkeys(request.group_ids):
            await self.budget.checkpoint()
            try:
                context.require(Operation.DESCRIBE, ResourceType.GROUP, group_id)
                if not group_id:
                    raise RequestError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
                described, members = await self.group_coordinator.read(
                    group_id,
                    partial(describe, group_id),
                    is_large=partial(is_large, group_id) if is_large is not None else None,
                )
                for member in members:
                    described.members.append(
                        await self.threads.run(member.make) if member.size > EVENT_SIZE_MAX else member.make()
                    )
                    await self.budget.checkpoint()
                topics = topics_of(described)
                await context.require_each(Operation.DESCRIBE, ResourceType.TOPIC, topics, self.budget)
            except RequestError as error:
                described = empty()
                described.group_id = group_id
                described.error_code = error.code
                described.error_message = error.message or None
            else:
                if request.include_authorized_operations:
                    described.authorized_operations = context.authorized_operations(
                        ResourceType.GROUP, group_id
                    )
            groups.append(described)
        return groups


class _Assigned(Protocol):
    """A topic in the assignment of a member, of either response."""

    topic_name: str


class _Assignment(Protocol):
    """Assignment of a member."""

    @property
    def topic_partitions(self) -> Sequence[_Assigned]:
        """The partitions by topic."""


def assigned_topics(assignments: Iterable[_Assignment]) -> Iterator[str]:
    """Return the names of the topics in assignments."""
    for assignment in assignments:
        for topic in assignment.topic_partitions:
            yield topic.topic_name


class _MakeTopic(Protocol[T_co]):
    """Makes the partitions of a topic, of either response."""

    def __call__(self, *, topic_id: bytes, topic_name: str, partitions: list[int]) -> T_co: ...


class _MakeAssignment(Protocol[T, A_co]):
    """Makes an assignment, of either response."""

    def __call__(self, *, topic_partitions: list[T]) -> A_co: ...


def assignment(
    make: _MakeAssignment[T, A],
    make_topic: _MakeTopic[T],
    topic_partitions: Iterable[TopicIdPartition],
    image: ClusterImage,
) -> A:
    """Return partitions as a response's assignment, of the topics that still exist."""
    return make(
        topic_partitions=[
            make_topic(topic_id=topic_id, topic_name=name, partitions=partitions)
            for topic_id, partitions in by_topic(topic_partitions)
            if (name := image.topic_name(topic_id)) is not None
        ]
    )
