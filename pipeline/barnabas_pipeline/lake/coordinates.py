"""The actual offsets in the files of a table, read only from their coordinate columns.

The rule: snapshot and ledger name the files to read, but their content is not trusted. The SHA-256 proves that a file is as
a load wrote it; files of another engine or with deleted rows have no proof.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from barnabas_pipeline.lake import scan
from barnabas_pipeline.lake.columns import COORDINATES, EARLIER_PARTITION, PARTITION
from barnabas_pipeline.lake.iceberg import Layout
from barnabas_pipeline.lake.ledger import DataFile
from barnabas_pipeline.lake.scan import Piece
from barnabas_pipeline.lake.store import sha256_of
from barnabas_pipeline.log.model import OffsetRange

if TYPE_CHECKING:
    from barnabas_pipeline.data_types import Integers

UNREADABLE = (OSError, pa.ArrowException, KeyError, ValueError)
IDENTITY = pa.schema(
    [coordinate for coordinate in COORDINATES if coordinate.name in ("_topic_id", PARTITION, "_offset")]
)


@dataclass(frozen=True, slots=True)
class Seen:
    """A file that counts: its description in the ledger and, unless it has dead letters, in the snapshot."""

    entry: DataFile | None  # None: written by another engine
    piece: Piece | None = None

    @property
    def path(self) -> str:
        """The URI of the file."""
        return (
            self.piece.path if self.piece is not None else self.entry.path if self.entry is not None else ""
        )

    @property
    def is_ours(self) -> bool:
        """Return whether the file is as a load wrote it, and no engine has deleted rows of it."""
        return self.entry is not None and (self.piece is None or not self.piece.deletes)

    def may_have(self, partition: int, start: int, end: int) -> bool:
        """Return whether the file may have rows of offsets [start, end) of a partition."""
        described = self.entry if self.entry is not None else self.piece
        return described is not None and described.may_have(partition, start, end)

    def may_be_of(self, topic_id: str) -> bool:
        """Return whether the file may have rows of an incarnation of the topic."""
        owner = (
            self.entry.topic_id
            if self.entry is not None
            else self.piece.bounds.topic_id
            if self.piece
            else ""
        )
        return owner in (topic_id, "")


class FileCheck(NamedTuple):
    """Result of a check of a file: the problem, "" if none; its rows of the incarnation, -1 if it cannot be read."""

    path: str
    problem: str
    rows: int
    is_ours: bool


def check_file(layout: Layout, seen: Seen, topic_id: str) -> FileCheck:
    """Compare a file with its entries in the ledger and the snapshot: size, SHA-256, number of rows."""
    path, entry, piece = seen.path, seen.entry, seen.piece
    _, io = layout.open()
    try:
        if entry is None or not seen.is_ours:
            assert piece is not None
            count = sum(int((rows["_topic_id"].to_numpy(zero_copy_only=False) == topic_id).sum())
                        for rows in scan.rows(layout, [piece], IDENTITY))  # fmt: skip
            return FileCheck(path, "", count, False)
        with io.new_input(path).open() as stream:
            rows = pq.read_metadata(stream).num_rows
        same = sha256_of(io, path) == (entry.size, entry.sha256)
    except FileNotFoundError:
        expected = entry.rows if entry is not None else piece.rows if piece is not None else 0
        return FileCheck(path, f"{path} is missing: {expected} rows", -1, seen.is_ours)
    except UNREADABLE:
        return FileCheck(path, f"{path} is not as it was written, and no Parquet", -1, seen.is_ours)
    problem = ""
    if not same:
        problem = f"{path} is not as it was written"
    elif rows != entry.rows:
        problem = f"{path} has {rows} rows, the ledger says {entry.rows}"
    elif piece is not None and rows != piece.rows:
        problem = f"{path} has {rows} rows, the snapshot says {piece.rows}"
    return FileCheck(path, problem, rows, True)


def row_offsets(layout: Layout, files: Iterable[Seen], offset_range: OffsetRange, topic_id: str) -> Integers:
    """Return the offsets of the rows within a range, rising, with repetitions. Unreadable files have none."""
    parts = []
    for file in files:
        if file.is_ours:
            parts.append(_read(layout, file.path, offset_range, PARTITION, "_offset")[0])
        elif file.piece is not None:
            parts.append(_scanned(layout, file.piece, offset_range, topic_id))
    return _sorted(parts)


def dead_offsets(layout: Layout, files: Iterable[Seen], offset_range: OffsetRange) -> tuple[int, Integers]:
    """Return (number of dead letters that begin within a range, the offsets that they cover, rising)."""
    letters, parts = 0, []
    for file in files:
        low, high = _read(layout, file.path, offset_range, "partition", "offset", "end_offset")
        letters += len(low)
        parts += [np.arange(*span) for span in zip(low, high, strict=True)]
    return letters, _sorted(parts)


def erased_offsets(layout: Layout, files: Iterable[DataFile], offset_range: OffsetRange) -> Integers:
    """Return the offsets within a range of rows that were removed on purpose, rising, each once."""
    parts = [_read(layout, file.path, offset_range, "partition", "offset")[0] for file in files]
    return np.unique(np.concatenate([np.empty(0, np.int64), *parts]))


def _scanned(layout: Layout, piece: Piece, offset_range: OffsetRange, topic_id: str) -> Integers:
    """Return offsets of a file of another engine, which may have rows of several incarnations."""
    parts = [np.empty(0, np.int64)]
    try:
        for rows in scan.rows(layout, [piece], IDENTITY):
            offsets = rows["_offset"].to_numpy()
            keep = (rows[PARTITION].to_numpy() == offset_range.partition) & (offsets >= offset_range.start)
            keep &= (offsets < offset_range.end) & (
                rows["_topic_id"].to_numpy(zero_copy_only=False) == topic_id
            )
            parts.append(offsets[keep])
    except UNREADABLE:
        return parts[0]
    return np.concatenate(parts)


def _sorted(parts: list[Integers]) -> Integers:
    offsets = np.concatenate([np.empty(0, np.int64), *parts])
    offsets.sort()
    return offsets


def _read(
    layout: Layout, path: str, offset_range: OffsetRange, partition: str, *names: str
) -> Sequence[Integers]:
    """Return columns of the rows of one partition with offsets, the first of `names`, within the range."""
    nothing = [np.empty(0, np.int64)] * len(names)
    _, io = layout.open()
    try:
        with io.new_input(path).open() as stream:
            file = pq.ParquetFile(stream)
            if partition not in file.schema_arrow.names:
                partition = EARLIER_PARTITION
            groups, is_sure = choose(file.metadata, offset_range, partition, names[0])
            if not groups:
                return nothing
            rows = file.read_row_groups(groups, columns=[*names] if is_sure else [*names, partition])
        arrays = [rows[name].to_numpy() for name in names]
        keep = (arrays[0] >= offset_range.start) & (arrays[0] < offset_range.end)
        if not is_sure:
            keep &= rows[partition].to_numpy() == offset_range.partition
    except UNREADABLE:
        return nothing
    return [array[keep] for array in arrays]


def choose(
    metadata: pq.FileMetaData, offset_range: OffsetRange, partition: str, offset: str
) -> tuple[list[int], bool]:
    """Return the row groups that may have rows of the range, and whether all their rows are certainly of its partition."""
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
            partitions.min <= offset_range.partition <= partitions.max
            and offsets.min < offset_range.end
            and offsets.max >= offset_range.start
        ):
            groups.append(n)
            is_sure = is_sure and partitions.min == partitions.max
    return groups, is_sure
