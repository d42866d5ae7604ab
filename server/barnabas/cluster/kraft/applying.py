"""Applies the committed records of a metadata log, delivers each change of the image, and keeps snapshots.

The rule: one task applies and never delays the task that appends to the log; another removes old snapshots and log
segments. Each step on the event loop is short; fsync runs in a thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final, Protocol

import trio

from barnabas.cluster.kraft.decisions import SnapshotId
from barnabas.cluster.kraft.durable_log import DurableLog
from barnabas.cluster.kraft.image import EMPTY, QuorumImage, diff_steps
from barnabas.cluster.kraft.loader import ImageDelta, Loader, UnknownMetadataVersionError
from barnabas.cluster.kraft.quorum import Leadership
from barnabas.cluster.kraft.snapshot_times import SnapshotTimer
from barnabas.cluster.kraft.snapshots import snapshot_batches
from barnabas.cluster.kraft.state import MetadataLogError, Snapshot
from barnabas.config.metadata_log import LogSettings
from barnabas.environment import Threads
from barnabas.errors import StorageError

log = logging.getLogger(__name__)

CLEAN_SECONDS: Final = 60.0
"""Interval of the search for old snapshots and for files that are due for deletion, as in Kafka."""


class ImageSubscriber(Protocol):
    """A follower of the image. Its methods do not raise for faults of a disk or a client."""

    async def prepare(self, delta: ImageDelta) -> None:
        """Prepare what the new image needs; other code still sees the old image."""

    def publish(self, delta: ImageDelta) -> None:
        """Follow the new image, which all code sees now. Time: proportional to the changes."""

    async def clean_up(self, delta: ImageDelta) -> None:
        """Remove what only the old image needed."""


class ImageApplier:
    """The image of a log that another task keeps. Lifecycle: `begin` starts the tasks; `committed` and `load` may be
    called while they run.

    A subscriber's first delta leads from EMPTY to the current image. `fault` is the reason why the image stopped
    following the log, empty while it follows.
    """

    def __init__(
        self,
        stored: DurableLog,
        *,
        settings: LogSettings,
        wall_clock_ms: Callable[[], int],
        threads: Threads,
        clean_seconds: float = CLEAN_SECONDS,
    ) -> None:
        """`stored` is open."""
        self.image = EMPTY
        self.fault = ""
        self._stored = stored
        self._wall_clock_ms = wall_clock_ms
        self._threads = threads
        self._clean_seconds = clean_seconds
        self._loader = Loader()
        self._timer = SnapshotTimer(settings.snapshot_bytes, settings.snapshot_interval_ms, 0)
        self._subscribers: list[ImageSubscriber] = []
        self._new_subscribers: list[ImageSubscriber] = []
        self._committed = -1
        self._snapshot: Snapshot | None = stored.loaded
        self._work = trio.Event()
        self._has_image = trio.Event()
        self._is_writing = False

    # --- for subscribers ------------------------------------------------------------------------------------

    @property
    def in_transaction(self) -> bool:
        """True if the applied records end inside a metadata transaction."""
        return self._loader.state.in_transaction

    @property
    def applied_offset(self) -> int:
        """The offset of the last record in the published image; -1 before the first image."""
        return self.image.position.offset

    @property
    def leadership(self) -> Leadership:
        """Voters and kraft.version at the published image."""
        return self._loader.state.leadership

    def subscribe(self, subscriber: ImageSubscriber) -> None:
        """Subscribe to each change, in order, after a first delta with the whole image."""
        self._new_subscribers.append(subscriber)
        self._wake()

    async def wait_for_image(self) -> QuorumImage:
        """Wait for the first image, and return the newest one."""
        await self._has_image.wait()
        return self.image

    # --- for the task that keeps the log ----------------------------------------------------------------------

    def committed(self, high_watermark: int) -> None:
        """Apply the log up to an offset."""
        self._committed = high_watermark
        self._wake()

    def load(self, snapshot: Snapshot) -> None:
        """Replace the image by that of a snapshot, after which the log starts anew."""
        self._snapshot = snapshot

    def begin(self, nursery: trio.Nursery, start: Callable[[Callable[[], Any], str], None]) -> None:
        """Start the tasks; `start` runs a function as a named task, and cancels all of them if it fails."""
        self._timer.reset(0, self._now_ms())
        start(lambda: self._apply(nursery), "metadata apply")
        start(self._clean, "metadata retention")

    @staticmethod
    def _now_ms() -> int:
        return int(trio.current_time() * 1000)

    # --- applying -------------------------------------------------------------------------------------------

    def _wake(self) -> None:
        self._work.set()

    async def _apply(self, nursery: trio.Nursery) -> None:
        try:
            while True:
                self._work = trio.Event()
                await self._apply_committed(nursery)
                await self._work.wait()
        except UnknownMetadataVersionError:
            raise
        except MetadataLogError as error:
            if not self._loader.has_published:
                raise
            self.fault = str(error)
            log.error(
                "the metadata is not followed any more, and stays as of offset %d: %s",
                self.applied_offset,
                error,
            )

    async def _apply_committed(self, nursery: trio.Nursery) -> None:
        loader = self._loader
        await self._admit_subscribers()
        snapshot, self._snapshot = self._snapshot, None
        if snapshot is not None:
            loader.load(snapshot)
            self._timer.reset(loader.bytes_applied, self._now_ms())
        while self._snapshot is None and loader.next_offset < self._committed:
            before = loader.next_offset
            batches = self._stored.read(before, self._committed)
            for _ in loader.apply(batches, upper_offset=self._committed):
                await trio.lowlevel.checkpoint()
            if loader.is_due and self._snapshot is None:
                await self._publish(nursery)
            if loader.next_offset == before:
                break
            await trio.lowlevel.checkpoint()
        if self._snapshot is None and 0 <= self._committed <= loader.next_offset:
            await self._publish(nursery)

    async def _publish(self, nursery: trio.Nursery) -> None:
        loader, delta = self._loader, None
        if not loader.has_published:
            self._subscribers, self._new_subscribers = self._new_subscribers, []
        for delta in loader.take():  # noqa: B007 - the last one is delivered
            await trio.lowlevel.checkpoint()
        if delta is not None:
            await self._deliver(delta, self._subscribers)
            self._has_image.set()
        if (
            not self._is_writing
            and not loader.state.in_transaction
            and self._timer.is_due(loader.bytes_applied, self._now_ms())
        ):
            self._timer.reset(loader.bytes_applied, self._now_ms())
            self._is_writing = True
            nursery.start_soon(self._write_snapshot, self.image, loader.state.leadership)

    async def _deliver(self, delta: ImageDelta, subscribers: list[ImageSubscriber]) -> None:
        for subscriber in subscribers:
            await subscriber.prepare(delta)
        self.image = delta.after
        for subscriber in subscribers:
            subscriber.publish(delta)
        for subscriber in subscribers:
            await subscriber.clean_up(delta)

    async def _admit_subscribers(self) -> None:
        """Deliver the whole image to each new subscriber, as its first delta."""
        while self._new_subscribers and self._loader.has_published:
            subscriber = self._new_subscribers.pop(0)
            changes = []
            for compared in diff_steps(EMPTY, self.image):
                changes += compared
                await trio.lowlevel.checkpoint()
            await self._deliver(ImageDelta(EMPTY, self.image, tuple(changes)), [subscriber])
            self._subscribers.append(subscriber)

    # --- snapshots and retention ----------------------------------------------------------------------------

    async def _write_snapshot(self, image: QuorumImage, leadership: Leadership) -> None:
        """Write the snapshot of an image. A failure of the disk is logged; the next snapshot may succeed."""
        stored, position = self._stored, 0
        snapshot_id = SnapshotId(image.position.offset + 1, image.position.epoch)
        try:
            if not stored.takes_snapshot(snapshot_id):
                return
            for batch in snapshot_batches(image, leadership, now_ms=self._wall_clock_ms()):
                stored.write_piece(snapshot_id, position, batch)
                position += len(batch)
                await trio.lowlevel.checkpoint()
            await stored.sync(self._threads, self._wall_clock_ms)
            await self._threads.run(lambda: stored.finish_snapshot(snapshot_id))
            stored.add_snapshot(snapshot_id, self._wall_clock_ms())
            log.info("snapshot of the metadata up to offset %d: %d bytes", snapshot_id.end_offset, position)
        except (StorageError, OSError) as error:
            log.error("no snapshot of the metadata up to offset %d: %s", snapshot_id.end_offset, error)
        finally:
            self._is_writing = False

    async def _clean(self) -> None:
        while True:
            await trio.sleep(self._clean_seconds)
            now_ms = self._wall_clock_ms()
            self._stored.clean(now_ms)
            removal = self._stored.begin_removal(now_ms)
            if removal is not None:
                await self._threads.run(removal.run)
                removal.finish()


class AppliedImage:
    """A running replica as the subscribers of its image see it: `_applier` has the image."""

    _applier: ImageApplier

    @property
    def image(self) -> QuorumImage:
        """The newest published image."""
        return self._applier.image

    @property
    def fault(self) -> str:
        """Return why the image has stopped following the log; empty while it follows."""
        return self._applier.fault

    @property
    def applied_offset(self) -> int:
        """The offset of the last record in the published image; -1 before the first image."""
        return self._applier.applied_offset

    def subscribe(self, subscriber: ImageSubscriber) -> None:
        """Subscribe to each change, in order, after a first delta with the whole image."""
        self._applier.subscribe(subscriber)

    async def wait_for_image(self) -> QuorumImage:
        """Wait for the first image, and return the newest one."""
        return await self._applier.wait_for_image()
