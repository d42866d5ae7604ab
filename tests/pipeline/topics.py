"""A topic in files, made by hand as a broker leaves them, and tasks that run here instead of in Spark."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from barnabas.log.format import checkpoints, names, properties
from barnabas.records.building import encode_batch
from barnabas.records.control import encode_end_marker
from barnabas.records.record import Record
from barnabas_pipeline.lake.ledger import HOUR_MS
from barnabas_pipeline.log.model import LogOptions
from tests.pipeline.tables import BEGAN_MS

WRITTEN_MS = BEGAN_MS + 10 * HOUR_MS
"""The time of records, some hours after their events."""


class Topic:
    """Partitions of `logins` in one log dir; what is appended can be read at once."""

    def __init__(self, directory: Path, partitions: int = 1, *, topic_id: bytes = b"t" * 16) -> None:
        self.directory = directory
        self.ends = dict.fromkeys(range(partitions), 0)
        self._starts: dict[int, int] = {}
        directory.mkdir(exist_ok=True)
        meta = properties.MetaProperties(cluster_id="cluster", node_id=1)
        (directory / names.META_PROPERTIES).write_bytes(meta.encode())
        for number in self.ends:
            self.path(number).mkdir(exist_ok=True)
            self.file(number).write_bytes(b"")
            (self.path(number) / names.PARTITION_METADATA).write_bytes(
                properties.encode_partition_metadata(topic_id)
            )
        self._write_checkpoints()

    def path(self, partition: int) -> Path:
        return self.directory / f"logins-{partition}"

    def file(self, partition: int) -> Path:
        """Return its only segment."""
        return self.path(partition) / f"{0:020d}.log"

    @property
    def options(self) -> LogOptions:
        return LogOptions("logins", transport="disk", log_dirs=(str(self.directory),))

    def append(self, *values: bytes, partition: int = 0, time_ms: int = WRITTEN_MS, **batch: Any) -> None:
        """Append a batch."""
        first = self.ends[partition]
        records = [Record(first + n, time_ms, b"key", value) for n, value in enumerate(values)]
        self._write(partition, encode_batch(records, base_offset=first, **batch), len(values))

    def end_transaction(self, producer_id: int, *, commit: bool, partition: int = 0) -> None:
        """Append a marker."""
        marker = encode_end_marker(
            commit=commit, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp_ms=WRITTEN_MS,
            base_offset=self.ends[partition],
        )  # fmt: skip
        self._write(partition, marker, 1)

    def _write(self, partition: int, data: bytes, count: int) -> None:
        with self.file(partition).open("ab") as file:
            file.write(data)
        self.ends[partition] += count
        self._write_checkpoints()

    def trim(self, partition: int, offset: int) -> None:
        """Delete the records before an offset, as retention does."""
        self._starts[partition] = offset
        self._write_checkpoints()

    def _write_checkpoints(self) -> None:
        for name, offsets in (
            (names.HIGH_WATERMARK_CHECKPOINT, self.ends),
            (names.LOG_START_CHECKPOINT, self._starts),
        ):
            content = checkpoints.encode_offsets({("logins", number): at for number, at in offsets.items()})
            (self.directory / name).write_bytes(content)


def login(hour: int, member: str = "m", **more: Any) -> bytes:
    """Return the value of a good record."""
    return json.dumps(
        {"ts": BEGAN_MS + hour * HOUR_MS, "member": member, "ip": "i", "ok": True} | more
    ).encode()


class Here:
    """Spark as far as jobs have it run their tasks; here they run one after the other."""

    defaultParallelism = 2  # noqa: N815 - Spark's name

    def __init__(self, before: Callable[[], None] = lambda: None) -> None:
        """`before` is called before each batch of tasks."""
        self.sparkContext = self
        self.slices: list[int] = []
        self._before = before

    def parallelize(self, items: Iterable[Any], slices: int) -> Tasks:
        self.slices.append(slices)
        listed = list(items)
        return Tasks([listed[number::slices] for number in range(slices)], self._before)


def _lazily(work: Callable[[Any], Any], items: Any) -> Iterator[Any]:
    yield from work(iter(items))


class Tasks:
    """Items in slices, and what is done with them."""

    def __init__(self, slices: list[Any], before: Callable[[], None]) -> None:
        self._slices = slices
        self._before = before

    def map(self, work: Callable[[Any], Any]) -> Tasks:
        return self.mapPartitions(lambda items: map(work, items))

    def mapPartitions(self, work: Callable[[Any], Any]) -> Tasks:  # noqa: N802 - Spark's name
        return Tasks([_lazily(work, part) for part in self._slices], self._before)

    def union(self, other: Tasks) -> Tasks:
        return Tasks([*self._slices, *other._slices], self._before)

    def groupByKey(self, slices: int) -> Tasks:  # noqa: N802 - Spark's name
        by_key: dict[Any, list[Any]] = {}
        for key, value in (pair for part in self._slices for pair in part):
            by_key.setdefault(key, []).append(value)
        pairs = [*by_key.items()]
        return Tasks([pairs[number::slices] for number in range(slices)], self._before)

    def collect(self) -> list[Any]:
        self._before()
        return [item for part in self._slices for item in part]
