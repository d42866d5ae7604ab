"""The store of a broker that is a cluster by itself: its changes are records in the metadata log that it alone writes.

The rule: a change counts once its records are synced to disk; only then does it take effect and become visible. The
next start completes effects that a crash interrupted.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

import trio

from barnabas.cluster.kraft.own_log_place import LogPlace, Node
from barnabas.cluster.metadata.changes import BrokerRegistered, ConfigChanged, ControllerChanged
from barnabas.cluster.metadata.image import BROKER, BrokerInfo, Change, ClusterImage, Delta, Draft
from barnabas.cluster.metadata.store import Decide, Subscriber
from barnabas.errors import StorageError
from barnabas.log.format import names
from barnabas.log.logdir import exists
from barnabas.serving.loop_budget import LoopBudget

if TYPE_CHECKING:
    from barnabas.cluster.kraft.own_metadata import OwnMetadata
    from barnabas.environment import Threads

log = logging.getLogger(__name__)

PATIENCE_MS = 10_000
"""Longest wait of a request with a timeout of 0: librdkafka's default, and programs use a new topic immediately."""


class _PendingChange:
    """A change, with a waiting caller; `image` is the image directly after it."""

    __slots__ = ("decide", "done", "failure", "image")

    def __init__(self, decide: Decide) -> None:
        self.decide = decide
        self.image: ClusterImage | None = None
        self.failure: Exception | None = None
        self.done: trio.Event = trio.Event()


class OwnStore:
    """A MetadataStore for one broker.

    Lifecycle: `read` (the image has no brokers yet), `open`, changes, `close`. The locks of the log dirs ensure that
    only one broker has it open. Changes that arrive during a write are written together, with one sync of the log. A
    separate task carries them out, so that a caller may stop waiting; `close` cancels subscribers that prepare for a new
    image, and the next start repeats their work.
    """

    def __init__(self, place: LogPlace, threads: Threads, budget: LoopBudget | None = None) -> None:
        """`place` is the place of the log, which the first change creates if it is missing."""
        self._place = place
        self._metadata: OwnMetadata | None = None
        self._threads = threads
        self._budget = budget or LoopBudget()
        self.image = ClusterImage("")
        """The newest image for which the subscribers are ready."""
        self._subscribers: list[Subscriber] = []
        self.patience_ms = PATIENCE_MS
        self._waiting: list[_PendingChange] = []
        self._not_kept: list[Change] = []
        self._kept = self.image  # set when no change is pending
        self._carrying_out: trio.Event | None = None  # set when nothing is left to do
        self._preparing = trio.CancelScope()
        self._is_open = False
        self.deleted_topics: frozenset[bytes] = frozenset()
        """Ids of topics that were deleted in the log: the rest of their files is to be removed."""
        self.lost: tuple[str, ...] = ()
        """Unreadable places of the log; the image lacks their records."""
        self.is_new = False
        """True if there was no log at the start."""

    def read(self, *, may_lose: bool = True) -> ClusterImage:
        """Open the log, if it exists, and read it; the image has no brokers yet. Raises StorageError.

        `may_lose` is as in `OwnLog.open`.
        """
        disk, log_dir = self._place.disk, self._place.log_dir
        try:
            self.is_new = not exists(disk, f"{log_dir}/{names.CLUSTER_METADATA_DIR}")
            is_formatted = exists(disk, f"{log_dir}/{names.BOOTSTRAP_CHECKPOINT}")
        except OSError as error:  # the log may exist
            raise StorageError(log_dir, error) from error
        if is_formatted or not self.is_new:
            self._metadata = self._opened(may_lose=may_lose)
        return self.image

    def _opened(self, *, may_lose: bool) -> OwnMetadata:
        from barnabas.cluster.kraft.own_metadata import OwnMetadata

        metadata = OwnMetadata(self._place)
        content = metadata.open(may_lose=may_lose)
        self.deleted_topics, self.lost = content.deleted, content.lost
        if content.lost:
            log.error(
                "the metadata log is damaged: %s. What follows from it was left out. Topics are taken from the logs that "
                "are there; their settings, and what else was kept there, are lost", "; ".join(content.lost),
            )  # fmt: skip
        self.image = content.image
        return metadata

    async def open(
        self,
        cluster_id: str,
        broker: BrokerInfo,
        node: Node,
        for_all: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Take over the log, and register the broker. Raises StorageError, also if the log belongs to several brokers.

        A new cluster gets the settings `for_all` brokers, as Apache Kafka writes them for eligible leader replicas
        (KIP-966).
        """
        self._node, self._broker = node, broker
        if self._metadata is not None:
            metadata = self._metadata
            await self._take_snapshot(await self._threads.run(lambda: metadata.lead(node, broker)))
        self.image = self.image._replace(cluster_id=cluster_id).apply(
            [BrokerRegistered(broker), ControllerChanged(broker.id)]
        )
        self._kept = self.image = self.image.at_version(
            self._metadata.end_offset if self._metadata is not None else 0
        )
        if self.is_new and for_all:
            self._not_kept = [ConfigChanged(BROKER, "", tuple(for_all.items()))]
            self.image = self.image.apply(self._not_kept)
        self._is_open = True

    def subscribe(self, subscriber: Subscriber) -> None:
        """Subscribe to each change, in order."""
        self._subscribers.append(subscriber)

    async def change(self, decide: Decide) -> ClusterImage:
        """See MetadataStore.change; there is no other writer with which a change could conflict."""
        pending_change = _PendingChange(decide)
        self._waiting.append(pending_change)
        if self._carrying_out is None:
            self._carrying_out = trio.Event()
            trio.lowlevel.spawn_system_task(self._carry_out_all, self._carrying_out)
        try:
            await pending_change.done.wait()
        except trio.Cancelled:
            if pending_change in self._waiting:
                self._waiting.remove(pending_change)
            raise
        if pending_change.failure is not None:
            raise pending_change.failure
        assert pending_change.image is not None
        return pending_change.image

    async def change_even_if_full(self, decide: Decide) -> None:
        """Make a change that the start needs, before there are subscribers.

        On a full disk it is written with the next change. Raises StorageError for other disk errors.
        """
        try:
            await self.change(decide)
        except StorageError as error:
            if not error.is_full:
                raise
            changes, self.image = await self._decided(decide, self.image)
            self._not_kept += changes

    async def _carry_out_all(self, done: trio.Event) -> None:
        """Carry out pending changes until none is pending."""
        with trio.CancelScope(shield=True):
            while self._waiting:
                pending, self._waiting = self._waiting, []
                try:
                    await self._carry_out(pending)
                except Exception as error:  # a bug: the callers get the error, and the next changes are made
                    for pending_change in pending:
                        pending_change.failure = pending_change.failure or error
                for pending_change in pending:
                    pending_change.done.set()
                if self._metadata is not None and self._metadata.wants_snapshot:
                    await self._take_snapshot(self._metadata.snapshot_steps())
        self._carrying_out = None
        done.set()

    async def _carry_out(self, pending: Sequence[_PendingChange]) -> None:
        """Decide on these changes, write and publish their records; each change gets its image or its error.

        Raises StorageError if none of them could be written.
        """
        old = new = self.image
        groups: list[list[Change]] = []
        for pending_change in pending:
            try:
                changes, new = await self._decided(pending_change.decide, new)
            except Exception as error:
                pending_change.failure = error
                continue
            pending_change.image = new
            if changes:
                groups.append(changes)
        if not groups:
            return
        if not self._is_open:
            raise self._closed()
        await self._threads.run(lambda: self._keep([self._not_kept, *groups]))
        self._kept, self._not_kept = new, []
        await self._publish(Delta.of(old, new, [change for group in groups for change in group]))

    def _keep(self, groups: Sequence[Sequence[Change]]) -> None:
        """Write the records of changes to the log's image; each group counts completely or not at all."""
        if self._metadata is None:
            from barnabas.cluster.kraft.own_metadata import OwnMetadata

            metadata = OwnMetadata(self._place)
            metadata.open()
            metadata.lead(self._node, self._broker)
            self._metadata = metadata
        self._metadata.keep(self._kept, groups)

    async def _take_snapshot(self, steps: Iterator[None]) -> None:
        """Make a snapshot; a disk error or a damaged log is only logged."""
        try:
            for _ in steps:
                await self._budget.checkpoint()
        except (StorageError, OSError) as error:
            log.warning("no snapshot of the metadata log was made: %s", error)

    async def _decided(self, decide: Decide, image: ClusterImage) -> tuple[list[Change], ClusterImage]:
        """Return the changes, and the image after them. Raises UNSUPPORTED_VERSION if the log cannot record one."""
        changes: list[Change] = []
        draft = Draft(image)
        for change in decide(image):
            if change is not None:
                if self._metadata is not None:
                    self._metadata.check(change)
                changes.append(change)
                draft.add(change)
            await self._budget.checkpoint()
        return changes, draft.image() if changes else image

    async def _publish(self, delta: Delta) -> None:
        with trio.CancelScope() as self._preparing:
            if not self._is_open:
                self._preparing.cancel()
            for subscriber in self._subscribers:
                await subscriber.prepare(delta)
        if self._preparing.cancelled_caught:
            raise self._closed()
        self.image = delta.new
        for subscriber in self._subscribers:
            subscriber.publish(delta)
        for subscriber in self._subscribers:
            await subscriber.clean_up(delta)

    def _closed(self) -> StorageError:
        return StorageError(self._place.log_dir, ValueError("the metadata store is closed"))

    async def close(self) -> None:
        """Close the log after the change in progress; later changes fail.

        A written change may not reach the subscribers any more: the next start repeats their work.
        """
        self._is_open = False
        self._preparing.cancel()
        if self._carrying_out is not None:
            await self._carrying_out.wait()
        if self._metadata is not None:
            await self._threads.run(self._metadata.close)
