"""Offsets that the files of a table really have: read from their coordinate columns, and from nothing else in them.

The rule: a manifest says which files to look into, never what is in them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from barnabas_pipeline.lake.files import sha256_of
from barnabas_pipeline.lake.manifest import DataFile
from barnabas_pipeline.log.model import OffsetRange

UNREADABLE = (OSError, pa.ArrowException, KeyError)


class FileCheck(NamedTuple):
    """Result of a check of a file: the problem, "" if none, and the number of rows, -1 if it cannot be read."""

    path: str
    problem: str
    rows: int


def check_file(path: str, entry: DataFile) -> FileCheck:
    """Compare a file with what its manifest says of it: size, SHA-256, number of rows."""
    try:
        rows = pq.read_metadata(path).num_rows
        with open(path, "rb") as file:
            same = file.seek(0, 2) == entry.size and sha256_of(path) == entry.sha256
    except FileNotFoundError:
        return FileCheck(entry.path, f"{entry.path} is missing: {entry.rows} rows", -1)
    except UNREADABLE:
        return FileCheck(entry.path, f"{entry.path} is not as it was written, and no Parquet", -1)
    if not same:
        return FileCheck(entry.path, f"{entry.path} is not as it was written", rows)
    if rows != entry.rows:
        return FileCheck(entry.path, f"{entry.path} has {rows} rows, its manifest says {entry.rows}", rows)
    return FileCheck(entry.path, "", rows)


def row_offsets(paths: Iterable[str], wanted: OffsetRange) -> Any:
    """The offsets of the rows within a range, rising, each as often as it is there. Unreadable files have none."""
    return _sorted([_read(path, wanted, "_partition", "_offset")[0] for path in paths])


def dead_offsets(paths: Iterable[str], wanted: OffsetRange) -> tuple[int, Any]:
    """(how many dead letters begin within a range, the offsets that they stand for, rising)."""
    letters, parts = 0, []
    for path in paths:
        low, high = _read(path, wanted, "partition", "offset", "end_offset")
        letters += len(low)
        parts += [np.arange(*span) for span in zip(low, high, strict=True)]
    return letters, _sorted(parts)


def _sorted(parts: list[Any]) -> Any:
    found = np.concatenate([np.empty(0, np.int64), *parts])
    found.sort()
    return found


def _read(path: str, wanted: OffsetRange, partition: str, *names: str) -> list[Any]:
    """Columns of the rows of one partition whose offset, the first of `names`, is within the range."""
    nothing = [np.empty(0, np.int64)] * len(names)
    try:
        file = pq.ParquetFile(path)
        groups, is_sure = _choose(file.metadata, wanted, partition, names[0])
        if not groups:
            return nothing
        rows = file.read_row_groups(groups, columns=[*names] if is_sure else [*names, partition])
        arrays = [rows[name].to_numpy() for name in names]
        keep = (arrays[0] >= wanted.start) & (arrays[0] < wanted.end)
        if not is_sure:
            keep &= rows[partition].to_numpy() == wanted.partition
    except UNREADABLE:
        return nothing
    return [array[keep] for array in arrays]


def _choose(metadata: Any, wanted: OffsetRange, partition: str, offset: str) -> tuple[list[int], bool]:
    """Row groups that may have rows of the range, and whether all their rows are of its partition for sure."""
    index = {metadata.schema.column(n).path: n for n in range(metadata.num_columns)}
    groups, is_sure = [], True
    for n in range(metadata.num_row_groups):
        group = metadata.row_group(n)
        partitions = group.column(index[partition]).statistics
        offsets = group.column(index[offset]).statistics
        if partitions is None or offsets is None or not (partitions.has_min_max and offsets.has_min_max):
            groups.append(n)
            is_sure = False
        elif (
            partitions.min <= wanted.partition <= partitions.max
            and offsets.min < wanted.end
            and offsets.max >= wanted.start
        ):
            groups.append(n)
            is_sure = is_sure and partitions.min == partitions.max
    return groups, is_sure
