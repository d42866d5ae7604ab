"""`stats`: how much is in a log, and how well it is packed.

The rule: one pass over the batch headers; records are opened only with `deep`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from barnabas.errors import RequestError
from barnabas.log.disk import Disk
from barnabas.log.format import names
from barnabas.log.scan import iter_headers
from barnabas.records.any_magic import iter_any_records
from barnabas.records.batch import BatchHeader
from barnabas.records.compression import CODEC_NAMES, Codec
from barnabas.records.errors import RecordsError
from barnabas.tools.logtool.places import PartitionPlace
from barnabas.tools.logtool.rows import Row


@dataclass(slots=True)
class LogStats:
    """Counts and sums over one log, or many; sizes in bytes, timestamps in ms."""

    segments: int = 0
    log_bytes: int = 0
    other_bytes: int = 0
    batches: int = 0
    records: int = 0
    control_batches: int = 0
    transactional_batches: int = 0
    batch_bytes_max: int = 0
    min_timestamp: int | None = None
    max_timestamp: int | None = None
    first_offset: int | None = None
    end_offset: int | None = None
    codecs: Counter[str] = field(default_factory=Counter)
    codec_bytes: Counter[str] = field(default_factory=Counter)
    magics: Counter[int] = field(default_factory=Counter)
    producers: set[int] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)
    # only with deep
    is_deep: bool = False
    key_bytes: int = 0
    value_bytes: int = 0
    null_keys: int = 0
    tombstones: int = 0
    keys: set[int] = field(default_factory=set)  # hashes of all keys: good enough to count them

    def add(self, header: BatchHeader) -> None:
        """Count a batch."""
        codec = CODEC_NAMES[Codec(header.codec)] if header.codec <= Codec.ZSTD else str(header.codec)
        self.batches += 1
        self.records += max(0, header.records_count)
        self.control_batches += header.is_control
        self.transactional_batches += header.is_transactional
        self.batch_bytes_max = max(self.batch_bytes_max, header.size)
        self.codecs[codec] += 1
        self.codec_bytes[codec] += header.size
        self.magics[header.magic] += 1
        if header.producer_id >= 0:
            self.producers.add(header.producer_id)
        if header.max_timestamp >= 0:
            first = header.base_timestamp if header.base_timestamp >= 0 else header.max_timestamp
            if header.has_delete_horizon:
                first = header.max_timestamp
            self.min_timestamp = first if self.min_timestamp is None else min(first, self.min_timestamp)
            self.max_timestamp = max(header.max_timestamp, self.max_timestamp or 0)
        if self.first_offset is None:
            self.first_offset = header.base_offset
        self.end_offset = header.next_offset

    def open(self, header: BatchHeader, data: bytes) -> None:
        """Count the records of a batch."""
        if header.is_control:
            return
        for record in iter_any_records(data):
            if record.key is None:
                self.null_keys += 1
            else:
                self.key_bytes += len(record.key)
                self.keys.add(hash(record.key))
            if record.value is None:
                self.tombstones += 1
            else:
                self.value_bytes += len(record.value)

    def row(self, name: str) -> Row:
        """Return the statistics as a row."""
        row: Row = {"kind": "stats", "name": name, "segments": self.segments}
        row |= {"log_bytes": self.log_bytes, "other_bytes": self.other_bytes}
        row |= {"first_offset": self.first_offset, "end_offset": self.end_offset}
        row |= {"batches": self.batches, "records": self.records}
        if self.batches:
            row["records_per_batch"] = round(self.records / self.batches, 2)
            row["batch_bytes_mean"] = sum(self.codec_bytes.values()) // self.batches
            row["batch_bytes_max"] = self.batch_bytes_max
        row |= {"min_timestamp": self.min_timestamp, "max_timestamp": self.max_timestamp}
        row |= {
            "codecs": dict(sorted(self.codecs.items())),
            "codec_bytes": dict(sorted(self.codec_bytes.items())),
        }
        row["magics"] = dict(sorted(self.magics.items()))
        row |= {"producers": len(self.producers), "transactional_batches": self.transactional_batches}
        row["control_batches"] = self.control_batches
        if self.is_deep:
            row |= {
                "distinct_keys": len(self.keys),
                "null_keys": self.null_keys,
                "tombstones": self.tombstones,
            }
            row |= {"key_bytes": self.key_bytes, "value_bytes": self.value_bytes}
        if self.problems:
            row["problems"] = self.problems
        return row


def collect(
    disk: Disk, place: PartitionPlace, *, deep: bool = False, on_bytes: Callable[[int], None] = lambda _: None
) -> LogStats:
    """Count the content of a partition; damage ends a segment early and is noted. Raises OSError."""
    stats = LogStats(is_deep=deep)
    for name in place.file_names:
        if not name.endswith(names.LOG):
            stats.other_bytes += disk.stat(f"{place.path}/{name}").size
    for files in place.inventory.segments:
        path = place.file(files.base_offset, names.LOG)
        file = disk.open(path)
        size = file.size()
        stats.segments += 1
        stats.log_bytes += size
        try:
            for position, header in iter_headers(file, 0, size, chunk_bytes=1 << 20):
                stats.add(header)
                on_bytes(header.size)
                if deep:
                    stats.open(header, file.read(header.size, position))
        except (RecordsError, RequestError) as error:
            stats.problems.append(f"{path}: {error.message}")
    return stats
