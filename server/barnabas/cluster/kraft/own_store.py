"""The store of a broker that is a cluster by itself: its changes are records in the metadata log that it alone writes.

The rule: a change is true once its records are on disk, forced; only then is anything done that follows from it, and
only then does anybody see it. The start puts right what a crash has left undone.
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
"""Longest wait of a request with a timeout of 0: librdkafka sends that by default, and programs use the topic at once."""


class _PendingChange:
    """A change that a caller waits for: `image` is the one just after it."""

    __slots__ = ("decide", "done", "failure", "image")

    def __init__(self, decide: Decide) -> None:
        self.decide = decide
        self.image: ClusterImage | None = None
        self.failure: Exception | None = None
        self.done: trio.Event = trio.Event()


class OwnStore:
    """A MetadataStore for one broker.

    Lifecycle: `read` (there are no brokers yet), `open`, changes, `close`. Only one broker may have it open, which the
    locks of the log dirs see to. Changes that come while another one is being kept are kept together, with one sync of
    the log. They are carried out in a task of their own, so that a caller may give up waiting for one; `close` breaks
    off what makes a new image ready, which the next start does again.
    """

    def __init__(self, place: LogPlace, threads: Threads, budget: LoopBudget | None = None) -> None:
        """`place` is where the log is; a new one is made with the first change."""
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
        self._kept = self.image  # as the log has it
        self._carrying_out: trio.Event | None = None  # set when nothing is left to do
        self._preparing = trio.CancelScope()
        self._is_open = False
        self.deleted_topics: frozenset[bytes] = frozenset()
        """Ids of topics that the log knows as deleted: what is left of their logs is to be removed."""
        self.lost: tuple[str, ...] = ()
        """Places of the log that could not be read: what was said there is not in the image."""
        self.is_new = False
        """True if there was no log before."""

    def read(self, *, may_lose: bool = True) -> ClusterImage:
        """Open the log, if there is one, and read it; the image has no brokers yet. Raises StorageError.

        `may_lose` is that of `OwnLog.open`.
        """
        disk, log_dir = self._place.disk, self._place.log_dir
        try:
            self.is_new = not exists(disk, f"{log_dir}/{names.CLUSTER_METADATA_DIR}")
            is_formatted = exists(disk, f"{log_dir}/{names.BOOTSTRAP_CHECKPOINT}")
        except OSError as error:  # it may have a log
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
        """Begin to lead, and register the broker. Raises StorageError, also if the log is that of several brokers.

        A new cluster begins with the settings `for_all` brokers, as Apache Kafka writes them with eligible leader
        replicas (KIP-966).
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
        """Have `subscriber` follow each change, in order."""
        self._subscribers.append(subscriber)

    async def change(self, decide: Decide) -> ClusterImage:
        """See MetadataStore.change; no other writer could be quicker here."""
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
        """Make a change that the start cannot do without, before anybody follows.

        On a full disk it is kept with the next one. Raises StorageError for a disk that fails.
        """
        try:
            await self.change(decide)
        except StorageError as error:
            if not error.is_full:
                raise
            changes, self.image = await self._decided(decide, self.image)
            self._not_kept += changes

    async def _carry_out_all(self, done: trio.Event) -> None:
        """Make one change after the other until none waits."""
        with trio.CancelScope(shield=True):
            while self._waiting:
                pending, self._waiting = self._waiting, []
                try:
                    await self._carry_out(pending)
                except Exception as error:  # a defect: the callers are told, and the next change is made
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

        Raises StorageError, when nothing was kept.
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
        """Write the records of changes to the image that the log has; of each group all count, or none."""
        if self._metadata is None:
            from barnabas.cluster.kraft.own_metadata import OwnMetadata

            metadata = OwnMetadata(self._place)
            metadata.open()
            metadata.lead(self._node, self._broker)
            self._metadata = metadata
        self._metadata.keep(self._kept, groups)

    async def _take_snapshot(self, steps: Iterator[None]) -> None:
        """Make a snapshot by its steps; a disk that fails, and a log that is damaged by now, have a line."""
        try:
            for _ in steps:
                await self._budget.checkpoint()
        except (StorageError, OSError) as error:
            log.warning("no snapshot of the metadata log was made: %s", error)

    async def _decided(self, decide: Decide, image: ClusterImage) -> tuple[list[Change], ClusterImage]:
        """Return the changes, and the image after them. Raises UNSUPPORTED_VERSION for what the log cannot keep."""
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
        """Let go of the log, after the change that is being made; one that comes later fails.

        What a change needs that has been kept is not made ready any more if that takes long.
        """
        self._is_open = False
        self._preparing.cancel()
        if self._carrying_out is not None:
            await self._carrying_out.wait()
        if self._metadata is not None:
            await self._threads.run(self._metadata.close)
