"""Tables of simulated events, written as a load writes them, without a broker."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa

from barnabas_pipeline.formats.json import JsonDecoder
from barnabas_pipeline.lake.files import TableWriter
from barnabas_pipeline.lake.iceberg import Lake
from barnabas_pipeline.lake.ledger import DataFile, Entry, PartitionCommit
from barnabas_pipeline.lake.table import Table
from barnabas_pipeline.lake.task import to_table
from barnabas_pipeline.log.columns import HEADERS_TYPE, Columns
from barnabas_pipeline.schema import BUILT_IN
from barnabas_pipeline.simulate.model import Event

PARTITIONS = 3


def append(lake: Path, events: Iterable[Event], partitions: int = PARTITIONS) -> int:
    """Commit events to the tables of their kinds, each in the partition of its key; returns how many rows that were."""
    by_kind: dict[str, list[Event]] = {}
    for event in events:
        by_kind.setdefault(event.kind, []).append(event)
    for kind, part in by_kind.items():
        _append(Table(Lake(str(lake)).place(kind)), kind, part, partitions)
    return sum(map(len, by_kind.values()))


def _append(table: Table, kind: str, events: list[Event], partitions: int) -> None:
    schema = BUILT_IN[kind]
    table.prepare(schema)
    state = table.state()
    entry = Entry(
        state.version + 1,
        "load",
        "c",
        kind,
        "id",
        state.digest,
        state.path,
        {"name": "load"},
        schema.to_dict(),
    )
    by_partition: dict[int, list[Event]] = {}
    for event in events:
        by_partition.setdefault(zlib.crc32(event.key.encode()) % partitions, []).append(event)
    for number, part in sorted(by_partition.items()):
        start = state.ends.get(number, 0)
        end = start + len(part)
        entry.partitions[str(number)] = PartitionCommit(start, end, 0, end, len(part), 0, 0, 0, 0)
        entry.add += _files(table, kind, number, start, part)
    table.commit(entry)


def _files(table: Table, kind: str, partition: int, start: int, events: list[Event]) -> list[DataFile]:
    schema, count = BUILT_IN[kind], len(events)
    columns = Columns(
        np.arange(start, start + count),
        np.array([event.delivered for event in events]),
        np.zeros(count, np.int32),
        np.zeros(count, np.int32),
        pa.array([event.key.encode() for event in events], pa.binary()),
        pa.array([event.value for event in events], pa.binary()),
        pa.array([None] * count, HEADERS_TYPE),
    )
    rows, bad = to_table(columns, JsonDecoder(schema), "id", partition)
    assert not bad
    writer = TableWriter(table.layout, schema, "id", partition)
    writer.write(rows)
    return writer.close()
