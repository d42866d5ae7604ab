"""No checksum covers the base offset of a batch: another one there never lets a coordinator overlook what was written."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.coordinators.runtime import entries
from barnabas.coordinators.runtime.entries import batch_of, read_entries
from barnabas.log.format import names
from barnabas.log.partition_log import PartitionLog
from barnabas.records.batch import iter_batches
from barnabas.records.errors import CorruptRecordsError
from barnabas.records.validate import Origin
from barnabas.testing.memory_disk import MemoryDisk
from tests.support.logs import NOW_MS, Broker, append

BATCHES = 24
OFFSET_BITS = 64


@pytest.fixture(params=[1, 300, 1 << 20], ids=lambda size: f"{size} bytes at once")
def log(request, monkeypatch) -> PartitionLog:
    """A log of some segments, with one, two or three records a batch, and every other batch in the index."""
    monkeypatch.setattr(entries, "READ_BYTES", request.param)
    disk = MemoryDisk()
    disk.make_dirs("/data")
    log = Broker(Path("/data"), disk=disk, segment_bytes=700, index_interval_bytes=120).log()
    for n in range(BATCHES):
        records = [(b"%d-%d" % (n, number), b"v") for number in range(1 + n % 3)]
        append(log, batch_of(records, NOW_MS, None), origin=Origin.COORDINATOR)
    assert len(log.segments) > 2
    return log


def keys(log: PartitionLog) -> list[bytes]:
    return [key for entry in read_entries(log) for key, _ in entry.records]


def test_a_batch_that_says_another_base_offset_is_read_or_named(log):
    written = keys(log)
    assert len(written) == log.log_end_offset
    overlooked: list[tuple[str, int, int]] = []
    named: list[str] = []
    for segment in log.segments:
        path = segment.path(names.LOG)
        content = log.disk.read(path)
        for position, header in iter_batches(content):
            for bit in range(OFFSET_BITS):
                moved = header.base_offset ^ 1 << bit
                segment.file.write((moved % (1 << 64)).to_bytes(8, "big"), position)
                try:
                    if keys(log) != written:
                        overlooked.append((path, header.base_offset, moved))
                except CorruptRecordsError as error:
                    named.append(error.message)
            segment.file.write(header.base_offset.to_bytes(8, "big"), position)
    assert not overlooked, f"{len(overlooked)} of {BATCHES * OFFSET_BITS}, {overlooked[:5]}"
    assert len(named) > BATCHES * OFFSET_BITS * 3 // 4
    assert all(f"barnabas log repair --salvage {log.dir}" in message for message in named)


@pytest.mark.parametrize("start", range(12))
def test_log_that_begins_within_a_batch_is_read_from_it(log, start):
    written = keys(log)
    log.delete_records_before(start)
    assert keys(log)[-(len(written) - start) :] == written[start:]
    assert len(keys(log)) - (len(written) - start) in (0, 1, 2)
