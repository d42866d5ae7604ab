"""The store of a broker that is a cluster by itself: a journal of changes in its log dirs.

The rule: a change is true once its line is on disk, forced; only then is anything done that follows from it, and
only then does anybody see it. The start puts right what a crash has left undone.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import trio

from barnabas.cluster.metadata import encoding
from barnabas.cluster.metadata.changes import BrokerRegistered, ControllerChanged, EpochBegun
from barnabas.cluster.metadata.image import (
    BrokerInfo,
    Change,
    ClusterImage,
    Delta,
    Draft,
)
from barnabas.cluster.metadata.journal import Content, Journal
from barnabas.cluster.metadata.replay import replay
from barnabas.cluster.metadata.store import Decide, Subscriber
from barnabas.environment import Threads
from barnabas.errors import StorageError
from barnabas.log.disk import Disk
from barnabas.serving.loop_budget import LoopBudget

log = logging.getLogger(__name__)

PATIENCE_MS = 10_000
"""Longest wait of a request with a timeout of 0: librdkafka sends that by default, and programs use the topic at once."""

REWRITE_LINES_MIN = 1000
"""A journal is rewritten at start when it has at least so many lines, and most of them are superseded."""


def latest_epoch(dirs: Sequence[str], disk: Disk) -> int:
    """Return the latest leader epoch that the journal in these log dirs knows. Raises StorageError."""
    return _latest_epoch(Journal(dirs, disk).read())


def keep_epoch(dirs: Sequence[str], disk: Disk, epoch: int) -> None:
    """Make a stopped broker's next start begin a leader epoch after this one. Raises StorageError."""
    journal = Journal(dirs, disk)
    content = journal.read()
    content.version = max(content.version, len(content.changes))
    journal.settle(content)
    if epoch > _latest_epoch(content):
        journal.append([[EpochBegun(epoch)]], content.version + 1)
    journal.close()


def _latest_epoch(content: Content) -> int:
    return ClusterImage("").apply(replay(content.changes).changes).latest_epoch


class _PendingChange:
    """A change that a caller waits for: `image` is the one just after it."""

    __slots__ = ("decide", "done", "failure", "image")

    def __init__(self, decide: Decide) -> None:
        self.decide = decide
        self.image: ClusterImage | None = None
        self.failure: Exception | None = None
        self.done: trio.Event = trio.Event()


class EmbeddedStore:
    """A MetadataStore for one broker.

    Lifecycle: `read` (nothing is written, and there are no brokers yet), `open`, changes, `close`. Only one broker may
    have it open, which the locks of the log dirs see to. Changes that come while another one is being kept are kept
    together, with one sync of the journal. They are carried out in a task of their own, so that a caller may
    give up waiting for one; `close` breaks off what makes a new image ready, which the next start does again.
    """

    def __init__(
        self, dirs: Sequence[str], disk: Disk, threads: Threads, budget: LoopBudget | None = None
    ) -> None:
        """`dirs` are the log dirs: the journal is in the first, and copies of it are in all."""
        self._directory = dirs[0]
        self._journal = Journal(dirs, disk)
        self._threads = threads
        self._budget = budget or LoopBudget()
        self.image = ClusterImage("")
        """The newest image for which the subscribers are ready."""
        self._subscribers: list[Subscriber] = []
        self.patience_ms = PATIENCE_MS
        self._waiting: list[_PendingChange] = []
        self._not_kept: list[Change] = []
        self._carrying_out: trio.Event | None = None  # set when nothing is left to do
        self._preparing = trio.CancelScope()
        self._is_open = False
        self.deleted_topics: frozenset[bytes] = frozenset()
        """Ids of topics that the journal knows as deleted: what is left of their logs is to be removed."""
        self.lost_lines = 0
        """Number of places of the journal that could not be read: what was said there is not in the image."""

    def read(self) -> ClusterImage:
        """Read the journal, and write nothing; the image has no brokers yet. Raises StorageError."""
        content = self._journal.read()
        replayed = replay(content.changes)
        self._content = content
        self.deleted_topics = frozenset(replayed.deleted)
        self.lost_lines = len(content.lost)
        if content.lost or replayed.left_out:
            log.error(
                "the metadata journal is damaged, and no copy has what is lost: %s. What follows from it was left out: %s. "
                "Topics are taken from the logs that are there; their settings, and what else was kept there, are lost",
                "; ".join(content.lost) or "unknown", ", ".join(replayed.left_out) or "nothing",
            )  # fmt: skip
            content.data = None
        content.changes = replayed.changes
        self.image = ClusterImage("").apply(replayed.changes)
        return self.image

    async def open(self, cluster_id: str, broker: BrokerInfo) -> None:
        """Put the copies of the journal right, and register the broker. Raises StorageError."""
        content = self._content
        needed = encoding.changes_of(self.image)
        if len(content.changes) >= max(REWRITE_LINES_MIN, 2 * len(needed)):
            content.changes, content.data = needed, None
        content.version = max(content.version, len(content.changes))
        await self._threads.run(lambda: self._journal.settle(content))
        image = ClusterImage(cluster_id).apply(encoding.changes_of(self.image))
        self.image = image.apply([BrokerRegistered(broker), ControllerChanged(broker.id)]).at_version(
            content.version
        )
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
            self._not_kept, self.image = await self._decided(decide, self.image)

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
        self._carrying_out = None
        done.set()

    async def _carry_out(self, pending: Sequence[_PendingChange]) -> None:
        """Decide on all of these, keep what was decided, and publish it; each one gets its image or its failure.

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
        if self._not_kept:
            groups.insert(0, self._not_kept)
        first = old.version + 1 - len(self._not_kept)
        await self._threads.run(lambda: self._journal.append(groups, first))
        self._not_kept = []
        await self._publish(Delta.of(old, new, [change for group in groups for change in group]))

    async def _decided(self, decide: Decide, image: ClusterImage) -> tuple[list[Change], ClusterImage]:
        """Return the changes, and the image after them."""
        changes: list[Change] = []
        draft = Draft(image)
        for change in decide(image):
            if change is not None:
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
        return StorageError(self._directory, ValueError("the metadata store is closed"))

    async def close(self) -> None:
        """Let go of the journal, after the change that is being made; one that comes later fails.

        What a change needs that has been kept is not made ready any more if that takes long.
        """
        self._is_open = False
        self._preparing.cancel()
        if self._carrying_out is not None:
            await self._carrying_out.wait()
        await self._threads.run(self._journal.close)
