"""What the describing of groups with epochs has in common: consumer, streams and share groups.

The rule: each group has an answer of its own, and an error of one is not the others'.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from barnabas.cluster.image import ClusterImage
from barnabas.errors import RequestError
from barnabas.groups.shard import GroupShard
from barnabas.groups.topics import by_topic
from barnabas.handlers.describe_groups import GROUP_OPERATIONS
from barnabas.statemachine.decision import Decision
from barnabas.topic_partitions import TopicIdPartition
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.coordination.groups import GroupCoordinator


class Described(Protocol):
    """What the responses' descriptions of a group share."""

    group_id: str
    error_code: int
    error_message: str | None
    authorized_operations: int


D = TypeVar("D", bound=Described)


async def describe_each(
    group_ids: Iterable[str],
    describe: Callable[[str, GroupShard], D],
    empty: Callable[[], D],
    *,
    with_operations: bool,
    group_coordinator: GroupCoordinator,
) -> list[D]:
    """Describe each group on its own; where `describe` raises a RequestError, `empty` is filled with that."""

    def perform(group_id: str, shard: GroupShard, out: Decision) -> D:  # noqa: ARG001
        return describe(group_id, shard)

    groups = []
    for group_id in group_ids:
        try:
            if not group_id:
                raise RequestError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
            described = await group_coordinator.perform(group_id, partial(perform, group_id))
        except RequestError as error:
            described = empty()
            described.group_id = group_id
            described.error_code = error.code
            described.error_message = error.message or None
        else:
            if with_operations:
                described.authorized_operations = GROUP_OPERATIONS
        groups.append(described)
    return groups


def named_partitions(
    topic_partitions: Iterable[TopicIdPartition], image: ClusterImage
) -> Iterator[tuple[bytes, str, list[int]]]:
    """The slots as (topic id, topic, partitions), of the topics that still exist."""
    for topic_id, partitions in by_topic(topic_partitions):
        if (name := image.topic_name(topic_id)) is not None:
            yield topic_id, name, partitions
