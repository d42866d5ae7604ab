"""Effects of metadata changes, from any broker, on groups, transactions and share groups.

The rule: shards are unloaded and loaded in the same step that publishes the new image. Offsets and states of deleted
topics are removed after that, in slices and in the background, so that no metadata change waits for that.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import trio

from barnabas.cluster.metadata.internal_topics import OFFSETS_TOPIC, SHARE_TOPIC, TRANSACTION_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.cluster.metadata.image import Delta
    from barnabas.coordinators.groups.coordinator import GroupCoordinator
    from barnabas.coordinators.share.shares import Shares
    from barnabas.coordinators.transactions.coordinator import TransactionCoordinator
    from barnabas.environment.lazy import Lazy


class DeletedTopics(NamedTuple):
    """Deleted topics, by name and by id, and the time: later commits belong to new topics of the same name."""

    names: frozenset[str]
    ids: frozenset[bytes]
    deleted_ms: int


class CoordinatorEvents:
    """Implements `cluster.metadata.store.Subscriber` for the coordinators. Lifecycle: `run` in a task, until cancelled."""

    def __init__(
        self,
        *,
        groups: GroupCoordinator,
        transactions: TransactionCoordinator,
        shares: Lazy[Shares],
        now_ms: Callable[[], int],
    ) -> None:
        self._groups = groups
        self._transactions = transactions
        self._shares = shares
        self._now_ms = now_ms
        self._deleted: deque[DeletedTopics] = deque()
        self._share_topic_exists = False
        self._changed = trio.Event()

    async def prepare(self, delta: Delta) -> None:
        """Do nothing."""

    def publish(self, delta: Delta) -> None:
        """Unload partitions that are led elsewhere or deleted, load those led here, and remember deleted topics."""
        self._unload(delta)
        if OFFSETS_TOPIC in delta.topics:
            self._groups.leadership_changed()
        if TRANSACTION_TOPIC in delta.topics:
            self._transactions.leadership_changed()
        if SHARE_TOPIC in delta.topics and (shares := self._shares.if_made) is not None:
            shares.state.leadership_changed()
        deleted = [delta.old.topics[name] for name in delta.deleted]
        if deleted:
            self._share_topic_exists = SHARE_TOPIC in delta.new.topics
            self._deleted.append(
                DeletedTopics(
                    frozenset(topic.name for topic in deleted),
                    frozenset(topic.id for topic in deleted),
                    self._now_ms(),
                )
            )
            self._changed.set()

    async def clean_up(self, delta: Delta) -> None:
        """Unload shards that were read again while the logs of a deleted internal topic still existed."""
        self._unload(delta)

    def _unload(self, delta: Delta) -> None:
        for name in delta.topics:
            if not delta.replaced(name):
                continue
            if name == OFFSETS_TOPIC:
                self._groups.unload()
            elif name == TRANSACTION_TOPIC:
                self._transactions.unload()
            elif name == SHARE_TOPIC and (shares := self._shares.if_made) is not None:
                shares.unload()

    async def run(self) -> None:
        """Remove the state of deleted topics from the coordinators, until cancelled."""
        while True:
            while self._deleted:
                deleted = self._deleted.popleft()
                await self._groups.forget_topics(deleted.names, deleted.ids, deleted.deleted_ms)
                if self._share_topic_exists:
                    await (await self._shares.ready()).state.forget_topics(deleted.ids)
            self._changed = trio.Event()
            if not self._deleted:
                await self._changed.wait()
