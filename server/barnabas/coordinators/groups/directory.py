"""Interface of the shard that holds the groups, as the group protocols need it. Pure."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Protocol, TypeVar

from barnabas.coordinators.groups.classic import ClassicGroup
from barnabas.coordinators.groups.consumer.group import ConsumerGroup
from barnabas.coordinators.groups.group import Group
from barnabas.coordinators.groups.settings import GroupSettings
from barnabas.coordinators.groups.share.group import ShareGroup
from barnabas.coordinators.groups.streams.group import StreamsGroup

G = TypeVar("G", bound=Group)


class GroupDirectory(Protocol):
    """The groups of one shard, by id; implemented by `shard.GroupShard`."""

    settings: GroupSettings

    @property
    def groups(self) -> MutableMapping[str, Group]:
        """All groups by id."""

    def exists(self, group_id: str) -> bool:
        """Return whether a group exists in any form, with members or offsets."""

    def find(self, group_id: str, kind: type[G]) -> G | None:
        """Return a group, None if it does not exist or is of another kind."""

    def group(self, group_id: str) -> ClassicGroup:
        """Return a classic group. Raises UNKNOWN_MEMBER_ID."""

    def consumer_group(self, group_id: str) -> ConsumerGroup:
        """Return a consumer group. Raises GROUP_ID_NOT_FOUND."""

    def streams_group(self, group_id: str) -> StreamsGroup:
        """Return a streams group. Raises GROUP_ID_NOT_FOUND."""

    def new_streams_group(self, group_id: str) -> StreamsGroup:
        """Return a streams group for its first member; its first record registers it."""

    def replayed_streams_group(self, group_id: str) -> StreamsGroup:
        """Return the streams group for its first record: that of `new_streams_group`, if it exists."""

    def share_group(self, group_id: str) -> ShareGroup:
        """Return a share group. Raises GROUP_ID_NOT_FOUND."""

    def new_share_group(self, group_id: str) -> ShareGroup:
        """Return a share group without records."""
