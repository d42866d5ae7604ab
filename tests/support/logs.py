"""Helpers of the tests of the log: batches to append, and a manager over a temporary directory."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from barnabas.log.config import LogConfig
from barnabas.log.disk import Disk
from barnabas.log.flushing import FlushTask
from barnabas.log.format import names
from barnabas.log.manager import LogManager
from barnabas.log.partition_log import PartitionLog
from barnabas.log.workers import Workers
from barnabas.records.batch import iter_batches, place_batch, read_header, read_records
from barnabas.records.building import encode_batch
from barnabas.records.control import encode_end_marker
from barnabas.records.record import Record

NOW_MS = 1_700_000_000_000
TOPIC_ID = bytes(range(16))


def batch(*values: bytes, timestamp: int = NOW_MS, key: bytes | None = b"k", **options) -> bytearray:
    """Return a producer's batch, in writable memory as that of a request."""
    records = [Record(n, timestamp, key, value) for n, value in enumerate(values or (b"v",))]
    return bytearray(encode_batch(records, **options))


def rebase(buf: bytearray | memoryview, pos: int, base_offset: int, leader_epoch: int) -> None:
    """Set base offset and leader epoch of the batch (magic 2) at `pos`, as a leader does; the checksum omits both."""
    header = read_header(buf, pos)
    header.base_offset, header.leader_epoch = base_offset, leader_epoch
    place_batch(memoryview(buf)[pos:], header)


def marker(
    *, commit: bool, producer_id: int, producer_epoch: int = 0, coordinator_epoch: int = 0
) -> bytearray:
    """The control batch that ends a transaction."""
    return bytearray(
        encode_end_marker(
            commit=commit,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=coordinator_epoch,
            timestamp_ms=NOW_MS,
        )
    )


def quick_directory() -> Path:
    """Create a directory, in memory if possible: for tests with a thousand syncs."""
    memory = Path("/dev/shm")
    return Path(tempfile.mkdtemp(prefix="barnabas-test-", dir=memory if os.access(memory, os.W_OK) else None))


class Broker:
    """A log manager that can be stopped, crashed and started again."""

    def __init__(
        self, *dirs: Path, disk: Disk | None = None, workers: Workers | None = None, **settings
    ) -> None:
        self.dirs = [str(path) for path in dirs]
        self.disk = disk
        self.workers = workers
        self.config = LogConfig(**settings)
        self.recovery_threads = 1
        self.start()

    def start(self, now_ms: int = NOW_MS) -> LogManager:
        self.manager = LogManager(
            self.dirs,
            config_for=lambda topic: self.config,
            disk=self.disk,
            workers=self.workers,
            recovery_threads=self.recovery_threads,
        )
        self.manager.open(now_ms)
        return self.manager

    def crash(self) -> None:
        """End without closing the logs, as after kill -9."""
        for log in self.manager:
            log.abandon()
        self.manager.ownership.release()

    def reboot(self) -> None:
        """Make the next start assume a reboot of the machine, after which unsynced data may be lost."""
        for path in self.dirs:
            Path(path, names.BOOT_ID).unlink(missing_ok=True)

    def restart(self, *, clean: bool, now_ms: int = NOW_MS) -> LogManager:
        if clean:
            self.manager.close()
        else:
            self.crash()
        return self.start(now_ms)

    def log(self, topic: str = "t", partition: int = 0) -> PartitionLog:
        log = self.manager.get(topic, partition)
        return log if log is not None else self.manager.create(topic, partition, TOPIC_ID, now_ms=NOW_MS)


def flushes_due(logs: Iterable[PartitionLog], now_ms: int) -> list[FlushTask]:
    """Begin the flushes that are due, as the broker's housekeeping does."""
    tasks = [log.begin_due_flush(now_ms) for log in logs]
    return [task for task in tasks if task is not None]


def append(log: PartitionLog, records: bytearray, *, epoch: int = 0, now_ms: int = NOW_MS, **options):
    """Append as the leader, and advance the high watermark immediately, as with one replica."""
    result = log.append_as_leader(records, leader_epoch=epoch, now_ms=now_ms, **options)
    log.advance_high_watermark(log.log_end_offset)
    return result


def content_of(log: PartitionLog) -> bytes:
    """All bytes of the log."""
    return b"".join(segment.file.read(segment.size, 0) for segment in log.segments)


def read_all(log: PartitionLog, offset: int | None = None, *, max_bytes: int = 1 << 20) -> list[Record]:
    """Return the records that a consumer gets from `offset`, or the log start, to the high watermark."""
    start = log.log_start_offset if offset is None else offset
    records: list[Record] = []
    offset = start
    while offset < log.high_watermark:
        data = log.read(offset, max_bytes=max_bytes, upper_offset=log.high_watermark).to_bytes()
        before = offset
        for position, header in iter_batches(data):
            if header.next_offset > offset:
                records += [record for record in read_records(data, position) if record.offset >= start]
                offset = header.next_offset
        if offset == before:
            break
    return records
