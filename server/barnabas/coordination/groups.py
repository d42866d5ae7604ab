"""The group coordinator, as the handlers see it: shards of groups over the partitions of __consumer_offsets."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.coordination.journal import Journal
from barnabas.coordination.runtime import Runtime
from barnabas.groups.settings import GroupSettings
from barnabas.groups.shard import GroupShard


class GroupCoordinator(Runtime[GroupShard]):
    """Facade for the handlers; lifecycle as of `Runtime`."""

    def __init__(self, journal: Journal, settings: GroupSettings, now_ms: Callable[[], int]) -> None:
        super().__init__(
            journal,
            lambda: GroupShard(settings),
            now_ms,
            commit_timeout_ms=settings.offsets_commit_timeout_ms,
        )
        self.settings = settings

    async def expire_offsets(self) -> None:
        """Forget offsets that are kept too long, and groups of which nothing is left."""
        now_ms = self._now_ms()
        await self.perform_on_all(lambda shard, out: shard.expire_offsets(now_ms, out))

    async def forget_topics(self, topics: set[str]) -> None:
        """These topics are deleted: the offsets committed in them go too."""
        await self.perform_on_all(lambda shard, out: shard.forget_topics(topics, out))
