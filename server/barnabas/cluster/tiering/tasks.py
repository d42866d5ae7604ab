"""Tasks of a leader, which copies closed segments, and deletes expired segments.

The rule: local records are deleted only after their copy is recorded as finished, remote records only after the log start
has passed them. Files are read and written in threads; decisions are made in the event loop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import UUID

import trio

from barnabas.cluster.tiering.counts import COPIES, BytesLimit, TierCounts
from barnabas.cluster.tiering.expiry import TieredLog, plan_expiry
from barnabas.cluster.tiering.lineage import entries_between, first_offset, highest_offset
from barnabas.cluster.tiering.metadata import RefusedRecordError, new_segment_id
from barnabas.cluster.tiering.partition import raise_log_start
from barnabas.config import broker as settings
from barnabas.log.format import checkpoints, names
from barnabas.log.producer_replay import ProducerReplay
from barnabas.tiered.segment import RemoteSegment, SegmentState
from barnabas.tiered.storage import RemoteStorageError, SegmentFiles

if TYPE_CHECKING:
    from barnabas.cluster.tiering.metadata import RemoteMetadata
    from barnabas.cluster.tiering.partition import TieredPartition
    from barnabas.cluster.tiering.reading import RemoteIndexes
    from barnabas.config.loading import BrokerConfig
    from barnabas.environment import Environment
    from barnabas.log.partition_log import PartitionLog
    from barnabas.log.segment import Segment
    from barnabas.tiered.storage import RemoteStorage

log = logging.getLogger(__name__)

THROTTLED_SECONDS_MAX: Final = 1.0
"""Longest wait until a copy checks its limit again, which may have changed."""
FORMER_LEADER_SECONDS: Final = 60.0
"""Time for which a new leader neither deletes nor repeats unfinished copies of a former leader that is alive."""
SIZE_MAX: Final = (1 << 31) - 1


class SegmentTasks:
    """Tasks that copy, delete and expire segments."""

    def __init__(
        self,
        config: BrokerConfig,
        storage: RemoteStorage,
        indexes: RemoteIndexes,
        metadata: RemoteMetadata,
        counts: TierCounts,
        environment: Environment,
        broker_id: int,
        live_brokers: Callable[[], Container[int]],
    ) -> None:
        get = config.get
        self._config = config
        self._storage = storage
        self._indexes = indexes
        self._metadata = metadata
        self._counts = counts
        self._environment = environment
        self._broker_id = broker_id
        self._live_brokers = live_brokers
        self.in_use: set[UUID] = set()
        """Ids of the segments that are being copied or deleted."""
        self._copiers = trio.CapacityLimiter(get(settings.REMOTE_LOG_MANAGER_COPIER_THREAD_POOL_SIZE))
        self._deleters = trio.CapacityLimiter(get(settings.REMOTE_LOG_MANAGER_EXPIRATION_THREAD_POOL_SIZE))
        self._turns = trio.Lock()
        self._limit = BytesLimit(config, COPIES, environment.monotonic_ms)

    def follow_settings(self) -> None:
        """Adjust the number of threads to the settings."""
        get = self._config.get
        self._copiers.total_tokens = get(settings.REMOTE_LOG_MANAGER_COPIER_THREAD_POOL_SIZE)
        self._deleters.total_tokens = get(settings.REMOTE_LOG_MANAGER_EXPIRATION_THREAD_POOL_SIZE)

    # --- copying ----------------------------------------------------------------------------------------------

    async def look(self, partition: TieredPartition) -> None:
        """Determine, for a new leader, the log start and the highest remote offset.

        All records of former leaders count. Raises RequestError, StorageError.
        """
        if partition.is_seen:
            self._metadata.check_ready(partition.key)
            return
        await self._metadata.catch_up(partition.key)
        if partition.is_seen or not partition.is_led:
            return
        replica, segments = partition.replica, partition.segments
        start = first_offset(segments, replica.log.epochs)
        raise_log_start(replica, replica.log.local_log_start_offset if start is None else start)
        replica.log.highest_remote_offset = highest_offset(segments, replica.log)
        partition.is_seen = True

    async def copy(self, partition: TieredPartition) -> None:
        """Copy the closed segments that are not stored yet, until one fails.

        Raises RequestError and StorageError if the metadata cannot be written, RemoteStorageError for a failed copy.
        """
        await self.look(partition)
        partition_log = partition.replica.log
        try:
            for segment, next_offset in candidates(partition_log, self._environment.wall_clock_ms()):
                await self._wait_for_turn(segment.size)
                if (
                    not partition.is_led
                    or partition.is_stopped
                    or partition_log.config.remote_log_copy_disable
                ):
                    return
                # A former leader may have finished copies since the last check.
                stored = highest_offset(partition.segments, partition_log)
                partition_log.highest_remote_offset = max(partition_log.highest_remote_offset, stored)
                if segment not in partition_log.segments or stored >= next_offset - 1:
                    continue
                if any(copy.end_offset >= segment.base_offset for copy in self._of_former_leader(partition)):
                    return
                await self._copy_segment(partition, segment, next_offset)
        finally:
            note_lag(partition, self._environment.wall_clock_ms())

    async def _wait_for_turn(self, size: int) -> None:
        async with self._turns:
            while wait_ms := self._limit.throttle_ms():
                self._counts.throttled_copies_ms += wait_ms
                await trio.sleep(min(wait_ms / 1000, THROTTLED_SECONDS_MAX))
            self._limit.record(size)

    async def _copy_segment(self, partition: TieredPartition, segment: Segment, next_offset: int) -> None:
        counts, partition_log = self._counts.of(partition.key.topic), partition.replica.log
        segment.seal()  # it writes only if index files are incomplete
        if next_offset not in partition_log.store.snapshots.offsets:
            await self._make_snapshot(partition_log, next_offset)
        files = files_of(partition_log, segment, next_offset)
        remote = RemoteSegment(
            partition=partition.key,
            segment_id=new_segment_id(self._environment),
            start_offset=segment.base_offset,
            end_offset=next_offset - 1,
            broker_id=self._broker_id,
            max_timestamp=segment.largest_timestamp,
            event_timestamp=self._environment.wall_clock_ms(),
            leader_epochs=tuple(
                entries_between(partition_log.epochs.entries, segment.base_offset, next_offset)
            ),
            size=segment.size,
            is_transaction_index_empty=files.transaction_index is None,
        )
        self.in_use.add(remote.segment_id)
        try:
            await self._metadata.add(remote)
            counts.copies += 1
            try:
                custom = await self._environment.threads.run(
                    partial(self._storage.copy, remote, files), limiter=self._copiers
                )
            except (RemoteStorageError, OSError):
                counts.failed_copies += 1
                await self.delete(remote)
                raise
            await self._finish(partition, remote, custom)
        finally:
            self.in_use.discard(remote.segment_id)

    async def _make_snapshot(self, partition_log: PartitionLog, offset: int) -> None:
        """Write a missing snapshot of producers, in place of a damaged one. Raises OSError, RecordsError."""
        log.warning(
            "%s has no snapshot of producers at offset %d: it is made again", partition_log.name, offset
        )
        replay = ProducerReplay(partition_log, offset)
        producers = await self._environment.threads.run(replay.run)
        partition_log.store.snapshots.save(producers)

    async def _finish(self, partition: TieredPartition, remote: RemoteSegment, custom: bytes | None) -> None:
        """Record that a segment is stored, or delete it if it is not to be stored any longer."""
        counts, partition_log = self._counts.of(partition.key.topic), partition.replica.log
        custom_max = self._config.get(settings.REMOTE_LOG_METADATA_CUSTOM_METADATA_MAX_BYTES)
        if custom is not None and len(custom) > custom_max:
            counts.failed_copies += 1
            partition.is_stopped = True
            log.error(
                "segments of %s are no longer copied: the store's metadata of one have %d bytes, "
                "remote.log.metadata.custom.metadata.max.bytes is %d",
                partition_log.name, len(custom), custom_max,
            )  # fmt: skip
            await self.delete(remote)
            return
        if not partition.is_led:
            await self.delete(remote)
            return
        try:
            await self._metadata.advance(remote, SegmentState.COPY_FINISHED, custom)
        except RefusedRecordError:
            # Another leader has deleted the segment meanwhile, perhaps before the copy was complete.
            await self._environment.threads.run(partial(self._storage.delete, remote), limiter=self._deleters)
            raise
        counts.copied_bytes += remote.size
        partition_log.highest_remote_offset = max(partition_log.highest_remote_offset, remote.end_offset)
        log.info("copied offsets %d to %d of %s", remote.start_offset, remote.end_offset, partition_log.name)

    # --- deleting ---------------------------------------------------------------------------------------------

    async def delete(self, segment: RemoteSegment) -> bool:
        """Delete a segment from the store; returns whether it is deleted. Raises RequestError, StorageError."""
        counts = self._counts.of(segment.partition.topic)
        current = self._metadata.of(segment.partition).get(segment.segment_id)
        if current is None:  # it was deleted since it was chosen
            return True
        segment = current
        try:
            if segment.state is not SegmentState.DELETE_STARTED:
                segment = await self._metadata.advance(segment, SegmentState.DELETE_STARTED)
        except RefusedRecordError as error:
            if error.is_gone:
                return True
            raise
        counts.deletions += 1
        try:
            await self._environment.threads.run(
                partial(self._storage.delete, segment), limiter=self._deleters
            )
        except (RemoteStorageError, OSError) as error:
            counts.failed_deletions += 1
            log.warning(
                "offsets %d to %d of %s-%d could not be deleted in the store, and are tried again: %s",
                segment.start_offset, segment.end_offset, segment.partition.topic, segment.partition.partition, error,
            )  # fmt: skip
            return False
        self._indexes.forget(segment)
        try:
            await self._metadata.advance(segment, SegmentState.DELETE_FINISHED)
        except RefusedRecordError as error:
            if not error.is_gone:
                raise
        return True

    async def delete_unused(self, segment: RemoteSegment) -> None:
        """Delete a segment, unless it is being copied or deleted. Raises RequestError, StorageError."""
        if segment.segment_id in self.in_use:
            return
        self.in_use.add(segment.segment_id)
        try:
            await self.delete(segment)
        finally:
            self.in_use.discard(segment.segment_id)

    async def expire(self, partition: TieredPartition) -> None:
        """Delete expired segments of a partition, and the rest of failed copies. Raises RequestError, StorageError."""
        await self.look(partition)
        replica = partition.replica
        partition_log = replica.log
        facts = TieredLog(
            partition_log.epochs.entries,
            partition_log.log_start_offset,
            partition_log.log_end_offset,
            partition.only_local_bytes,
        )
        expiry = plan_expiry(
            partition.segments.segments(),
            facts,
            partition_log.config,
            now_ms=self._environment.wall_clock_ms(),
            in_use=self.in_use | {copy.segment_id for copy in self._of_former_leader(partition)},
            replaced={segment.segment_id for segment in partition.segments.unreferenced()},
        )
        raise_log_start(replica, expiry.log_start_offset)
        for segment in expiry.segments:
            if not partition.is_led:
                return
            await self.delete_unused(segment)

    def _of_former_leader(self, partition: TieredPartition) -> list[RemoteSegment]:
        """Return the copies of a live former leader, which may still finish them, or removes them itself."""
        if self._environment.monotonic() - partition.led_since_s > FORMER_LEADER_SECONDS:
            return []
        live = self._live_brokers()
        return [
            segment
            for segment in partition.segments.segments()
            if segment.state is SegmentState.COPY_STARTED
            and segment.broker_id != self._broker_id
            and segment.broker_id in live
        ]


def candidates(partition_log: PartitionLog, now_ms: int) -> Iterator[tuple[Segment, int]]:
    """Yield the closed segments to copy, each with the offset after it, oldest first.

    All end before the last stable offset and the flushed offset, so that a power cut loses no stored record.
    """
    config = partition_log.config
    lag_ms, lag_bytes = config.copy_lag_ms, config.copy_lag_bytes
    upper = min(partition_log.last_stable_offset, partition_log.recovery_point)
    start = max(partition_log.highest_remote_offset + 1, partition_log.log_start_offset)
    first = partition_log.store.index_of(start)
    segments = partition_log.segments[first:]
    following_bytes = sum(segment.size for segment in segments)
    for segment, following in pairwise(segments):
        if following.base_offset > upper:
            return
        following_bytes -= segment.size
        if lag_ms and following_bytes < lag_bytes and 0 <= now_ms - segment.largest_timestamp < lag_ms:
            return
        if segment.size and segment.size <= SIZE_MAX:
            yield segment, following.base_offset


def note_lag(partition: TieredPartition, now_ms: int) -> None:
    """Count the closed segments to copy, and their bytes."""
    segments = [segment for segment, _ in candidates(partition.replica.log, now_ms)]
    partition.lag_segments, partition.lag_bytes = len(segments), sum(segment.size for segment in segments)


def files_of(partition_log: PartitionLog, segment: Segment, next_offset: int) -> SegmentFiles:
    """Return the files of a closed segment, with the snapshot of producers at its end. Raises OSError."""
    epochs = [(epoch, start) for epoch, start in partition_log.epochs.entries if start < next_offset]
    snapshots = partition_log.store.snapshots
    has_aborted = segment.has_txn_index and bool(segment.aborted)
    return SegmentFiles(
        log=Path(segment.path(names.LOG)),
        offset_index=Path(segment.path(names.OFFSET_INDEX)),
        time_index=Path(segment.path(names.TIME_INDEX)),
        producer_snapshot=Path(snapshots.path(next_offset)),
        leader_epochs=checkpoints.encode_epochs(epochs),
        transaction_index=Path(segment.path(names.TXN_INDEX)) if has_aborted else None,
    )
