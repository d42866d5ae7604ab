"""Reading files of a snapshot of a table: columns by field id, without the rows that another engine has deleted.

The rule: only plain values are sent to a worker; pyiceberg's objects are created there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, GreaterThanOrEqual, LessThan, Reference
from pyiceberg.expressions.literals import literal
from pyiceberg.expressions.visitors import bind
from pyiceberg.io.pyarrow import ArrowScan, expression_to_pyarrow, schema_to_pyarrow
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.table import FileScanTask
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import TimestamptzType

from barnabas_pipeline.formats.base import event_ms
from barnabas_pipeline.lake.columns import EARLIER_PARTITION, PARTITION
from barnabas_pipeline.lake.iceberg import FileBounds, Layout, bounds_of
from barnabas_pipeline.lake.pyiceberg_internals import positional_deletes

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.schema import Schema
    from pyiceberg.table.metadata import TableMetadata

    from barnabas_pipeline.data_types import Integers, Value

UNKNOWN_SPEC = -1
UNKNOWN_BOUNDS = FileBounds("", -1, -1, -1)
BATCH_ROWS = 10_000
FIELD_ID = b"PARQUET:field_id"
Span = tuple[str, int, int]
"""The field with the event time, and times in ms: start (inclusive) and end (exclusive)."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A data file, and the files of its deleted positions."""

    path: str
    format: str = "PARQUET"
    size: int = 0
    rows: int = 0
    spec_id: int = UNKNOWN_SPEC
    partition: tuple[Value, ...] = ()
    deletes: tuple[tuple[str, str], ...] = ()  # path and format
    bounds: FileBounds = UNKNOWN_BOUNDS

    def may_have(self, partition: int, start: int, end: int) -> bool:
        """Return whether the file may have rows of offsets [start, end) of a partition."""
        mine = self.bounds
        return mine.partition in (partition, -1) and (
            mine.offset_max < 0 or (mine.offset_min < end and start <= mine.offset_max)
        )

    def task(self) -> FileScanTask:
        """Return the file as a scan task of pyiceberg."""
        file = IcebergFile.from_args(
            content=DataFileContent.DATA,
            file_path=self.path,
            file_format=FileFormat[self.format],
            partition=Record(*self.partition),
            record_count=self.rows,
            file_size_in_bytes=self.size,
        )
        file.spec_id = self.spec_id
        return FileScanTask(file, {_delete_file(*delete) for delete in self.deletes})


def _delete_file(path: str, form: str) -> IcebergFile:
    return IcebergFile.from_args(
        content=DataFileContent.POSITION_DELETES, file_path=path, file_format=FileFormat[form]
    )


def pieces_of(tasks: Iterable[FileScanTask], schema: Schema | None) -> list[Piece]:
    """Return scan tasks as plain values; without a schema their coordinates are unknown."""
    return [
        Piece(
            task.file.file_path,
            task.file.file_format.name,
            task.file.file_size_in_bytes,
            task.file.record_count,
            task.file.spec_id,
            tuple(task.file.partition[n] for n in range(len(task.file.partition))),
            tuple((deleted.file_path, deleted.file_format.name) for deleted in task.delete_files),
            UNKNOWN_BOUNDS if schema is None else bounds_of(task.file, schema),
        )
        for task in tasks
    ]


def within(span: Span | None, schema: Schema) -> BooleanExpression:
    """Return the filter for events of a span of event time; None: all events."""
    if span is None:
        return AlwaysTrue()
    name, low, high = span
    is_time = isinstance(schema.find_field(name).field_type, TimestamptzType)

    def bound(time_ms: int) -> str | int:
        return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat() if is_time else time_ms

    from_low = GreaterThanOrEqual(term=Reference(name), value=literal(bound(low)))
    return And(from_low, LessThan(term=Reference(name), value=literal(bound(high))))


def matches(rows: pa.Table, where: BooleanExpression, schema: Schema) -> pa.ChunkedArray:
    """Return whether each row matches a condition on columns of a schema. Raises ValueError for another column."""
    condition = expression_to_pyarrow(bind(schema, where, case_sensitive=True), schema)
    met = ds.dataset(rows).to_table(columns={"matches": condition})["matches"]
    return pc.fill_null(met.cast(pa.bool_()), False)


def rows(
    layout: Layout, pieces: Iterable[Piece], schema: pa.Schema, span: Span | None = None
) -> Iterator[pa.Table]:
    """Yield the rows of files within a span, as tables with the columns of `schema`; missing columns are null."""
    metadata, io = layout.open()
    columns = schema
    if span is not None and span[0] not in schema.names:
        field = metadata.schema().find_field(span[0])
        columns = schema.append(schema_to_pyarrow(metadata.schema().select(field.name)).field(0))
    for piece in pieces:
        for table in (_parquet if piece.format == "PARQUET" else _other)(metadata, io, piece, columns):
            chosen = table
            if span is not None:
                times = event_ms(chosen[span[0]])
                chosen = chosen.filter(pa.array((times >= span[1]) & (times < span[2])))
            if chosen.num_rows:
                yield chosen.select(schema.names)


def _parquet(metadata: TableMetadata, io: FileIO, piece: Piece, schema: pa.Schema) -> Iterator[pa.Table]:
    """Read a file batch by batch. pyiceberg's own reader loads whole files, and reads null lists of structs as empty."""
    gone = _deleted(io, piece)
    with io.new_input(piece.path).open() as stream:
        file = pq.ParquetFile(stream)
        there = names_in(file.schema_arrow, metadata.schema())
        columns = [there[name] for name in schema.names if name in there]
        others = _partition_values(metadata, piece)
        at = 0
        for batch in file.iter_batches(BATCH_ROWS, columns=columns):
            arrays = [
                batch.column(there[field.name]).cast(field.type)
                if field.name in there
                else pa.repeat(pa.scalar(others.get(field.name), field.type), len(batch))
                for field in schema
            ]
            table = pa.Table.from_arrays(arrays, schema=schema)
            if len(gone):
                table = table.filter(pa.array(~np.isin(np.arange(at, at + len(batch)), gone)))
            at += len(batch)
            yield table


def _partition_values(metadata: TableMetadata, piece: Piece) -> dict[str | None, Value]:
    """Return the partition columns of a file: files of a former Hive table lack them."""
    spec, name_of = metadata.specs().get(piece.spec_id), metadata.schema().find_column_name
    fields = spec.fields if spec is not None else ()
    return {
        name_of(field.source_id): value
        for field, value in zip(fields, piece.partition, strict=False)
        if isinstance(field.transform, IdentityTransform)
    }


def _other(metadata: TableMetadata, io: FileIO, piece: Piece, schema: pa.Schema) -> Iterator[pa.Table]:
    """Read a file that another engine has written in another format."""
    scan = ArrowScan(metadata, io, metadata.schema().select(*schema.names), AlwaysTrue())
    for batch in scan.to_record_batches([piece.task()]):
        yield pa.Table.from_batches([batch]).select(schema.names).cast(schema)


def _deleted(io: FileIO, piece: Piece) -> Integers:
    """Return the positions of the rows of a file that another engine has deleted."""
    if not piece.deletes:
        return np.empty(0, np.int64)
    deletes = positional_deletes(io, [piece.task()]).get(piece.path, [])
    return np.concatenate([np.empty(0, np.int64), *(positions.to_numpy() for positions in deletes)])


def names_in(file: pa.Schema, table: Schema) -> dict[str, str]:
    """Return the names in a file of the columns of a table that it has: matched by field id, else by name."""
    ids = {int(field.metadata[FIELD_ID]): field.name for field in file if FIELD_ID in (field.metadata or {})}
    if ids:
        return {field.name: ids[field.field_id] for field in table.fields if field.field_id in ids}
    earlier = {PARTITION: EARLIER_PARTITION} if EARLIER_PARTITION in file.names else {}
    return {field.name: field.name for field in table.fields if field.name in file.names} | earlier
