"""Writing a task's rows: one Parquet file per partition of the table and size, under a unique name.

The rule: a written file does not count until a commit names it.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table.locations import load_location_provider

from barnabas_pipeline import faults
from barnabas_pipeline.formats.base import event_ms
from barnabas_pipeline.lake import store
from barnabas_pipeline.lake.columns import DEAD_SCHEMA, event_hours, lake_schema, span_of
from barnabas_pipeline.lake.iceberg import Layout
from barnabas_pipeline.lake.ledger import DataFile
from barnabas_pipeline.lake.pyiceberg_internals import by_partition, file_statistics, schema_without_ids
from barnabas_pipeline.lake.store import Digesting
from barnabas_pipeline.lake.table_schema import numbered
from barnabas_pipeline.schema import EventSchema

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.io.pyarrow import DataFileStatistics
    from pyiceberg.partitioning import PartitionKey
    from pyiceberg.table.metadata import TableMetadata

    from barnabas_pipeline.data_types import Integers

OPEN_FILES_MAX = 64
TARGET_FILE_BYTES = 128 << 20
COMPRESSION = "zstd"
ERASED_SCHEMA = pa.schema([pa.field("partition", pa.int32()), pa.field("offset", pa.int64())])


class OpenFile:
    """A Parquet file that is being written."""

    def __init__(self, io: FileIO, location: str, schema: pa.Schema) -> None:
        self._sink = Digesting(io, location)
        self._schema = schema
        self._footer: list[pq.FileMetaData] = []
        self._writer = pq.ParquetWriter(
            self._sink, schema, compression=COMPRESSION, metadata_collector=self._footer
        )
        self.location = location
        self.rows = 0
        self.bytes = 0

    def write(self, table: pa.Table) -> None:
        """Append rows."""
        self._writer.write_table(table)
        self.rows += table.num_rows
        self.bytes += table.nbytes

    def finish(self) -> tuple[int, str, pq.FileMetaData]:
        """Finish the file. Returns (size in bytes, SHA-256 in hex, the footer)."""
        self._writer.close()
        faults.point("task.before_whole")
        self._sink.close()
        return self._sink.size, self._sink.sha256, self._footer[0]


class TableWriter:
    """Writer of rows into the files of their partition of the table.

    A file is finished when it has `target_bytes`, or when more than OPEN_FILES_MAX partitions are open and it is the least
    recently written.
    """

    def __init__(
        self,
        layout: Layout,
        schema: EventSchema,
        topic_id: str,
        partition: int,
        *,
        target_bytes: int = TARGET_FILE_BYTES,
    ) -> None:
        self.done: list[DataFile] = []
        self._metadata, self._io = layout.open()
        self._locations = load_location_provider(self._metadata.location, self._metadata.properties)
        self._event_time = schema.event_time
        self._schema = numbered(lake_schema(schema), self._metadata.schema())
        self._topic_id = topic_id
        self._partition = partition
        self._target_bytes = target_bytes
        self._open: dict[tuple[object, ...], tuple[OpenFile, DataFile]] = {}

    def write(self, table: pa.Table) -> None:
        """Write rows of the lake's schema, in their order."""
        table = table.cast(self._schema)
        spec = self._metadata.spec()
        if spec.is_unpartitioned():
            self._write(None, table)
            return
        for partition, rows in by_partition(spec, self._metadata.schema(), table):
            self._write(partition, rows)

    def close(self) -> list[DataFile]:
        """Finish all files and describe them."""
        for key in list(self._open):
            self._finish(key)
        return self.done

    def _write(self, partition: PartitionKey | None, part: pa.Table) -> None:
        key = (
            ()
            if partition is None
            else tuple(partition.partition[n] for n in range(len(partition.partition)))
        )
        if key not in self._open:
            if len(self._open) == OPEN_FILES_MAX:
                self._finish(next(iter(self._open)))
            location = self._locations.new_data_location(f"{uuid.uuid4().hex}.parquet", partition)
            entry = DataFile(location, 0, 0, "", self._topic_id, self._partition)
            self._open[key] = (OpenFile(self._io, location, self._schema), entry)
        file, entry = self._open[key] = self._open.pop(key)
        file.write(part)
        _note(entry, part, self._event_time)
        if file.bytes >= self._target_bytes:
            self._finish(key)

    def _finish(self, key: tuple[object, ...]) -> None:
        file, entry = self._open.pop(key)
        entry.rows = file.rows
        entry.size, entry.sha256, footer = file.finish()
        entry.iceberg = {
            "partition": key,
            "spec_id": self._metadata.default_spec_id,
            **file_statistics(
                self._metadata.schema(), self._metadata.properties, footer
            ).to_serialized_dict(),
        }
        self.done.append(entry)


def _note(entry: DataFile, part: pa.Table, event_time: str) -> None:
    """Widen a file's bounds by those of a part; an offset of -1 means that there are none yet."""
    is_first = entry.offset_min < 0
    times = event_ms(part[event_time])
    for (least, most), low, high in (
        (span_of(part["_offset"]), "offset_min", "offset_max"),
        ((int(times.min()), int(times.max())), "event_time_min", "event_time_max"),
    ):
        setattr(entry, low, least if is_first else min(getattr(entry, low), least))
        setattr(entry, high, most if is_first else max(getattr(entry, high), most))
    entry.hours = sorted({*entry.hours, *np.unique(event_hours(part[event_time])).tolist()})


def describe(
    io: FileIO, metadata: TableMetadata, file: DataFile, *, as_written: Schema | None = None
) -> DataFile:
    """Return the snapshot's description of an existing file, from its footer; `as_written`: with its own column names."""
    with io.new_input(file.path).open() as stream:
        column_statistics = file_statistics(
            as_written or metadata.schema(), metadata.properties, pq.read_metadata(stream)
        )
    partition = _partition_of(column_statistics, metadata)
    file.iceberg = {
        "partition": partition,
        "spec_id": metadata.default_spec_id,
        **column_statistics.to_serialized_dict(),
    }
    return file


def _partition_of(column_statistics: DataFileStatistics, metadata: TableMetadata) -> tuple[object, ...]:
    record = column_statistics.partition(metadata.spec(), metadata.schema())
    return tuple(record[n] for n in range(len(record)))


# --- dead letters ---------------------------------------------------------------------------------------------------


def dead_columns() -> Schema:
    """Return the columns of dead letters, with Iceberg's column ids."""
    return assign_fresh_schema_ids(schema_without_ids(DEAD_SCHEMA))


def write_dead(layout: Layout, letters: pa.Table, topic_id: str, partition: int) -> DataFile:
    """Write dead letters, rows of DEAD_SCHEMA, into one file."""
    metadata, io = layout.open()
    columns = dead_columns()
    file = OpenFile(
        io, f"{metadata.location}/{store.DEAD}/{uuid.uuid4().hex}.parquet", numbered(DEAD_SCHEMA, columns)
    )
    file.write(letters.cast(DEAD_SCHEMA))
    entry = DataFile(file.location, letters.num_rows, 0, "", topic_id, partition)
    entry.size, entry.sha256, _ = file.finish()
    entry.offset_min = pc.min(letters["offset"]).as_py()
    entry.offset_max = pc.max(letters["end_offset"]).as_py() - 1
    entry.offsets = pc.sum(pc.subtract(letters["end_offset"], letters["offset"])).as_py()
    entry.reasons = {row["values"]: row["counts"] for row in pc.value_counts(letters["reason"]).to_pylist()}
    return entry


def write_erased(layout: Layout, offsets: Integers, topic_id: str, partition: int) -> DataFile:
    """Write the offsets of rows that were removed on purpose, rising, into one file."""
    metadata, io = layout.open()
    file = OpenFile(io, f"{metadata.location}/{store.ERASED}/{uuid.uuid4().hex}.parquet", ERASED_SCHEMA)
    partitions = pa.array(np.full(len(offsets), partition, np.int32))
    file.write(pa.table([partitions, pa.array(offsets, pa.int64())], schema=ERASED_SCHEMA))
    entry = DataFile(file.location, len(offsets), 0, "", topic_id, partition, offsets=len(offsets))
    entry.size, entry.sha256, _ = file.finish()
    entry.offset_min, entry.offset_max = int(offsets[0]), int(offsets[-1])
    return entry


def read_dead(io: FileIO, location: str) -> pa.Table:
    """Read a file of dead letters; files of an earlier version have timestamps in us only."""
    with io.new_input(location).open() as stream:
        letters = pq.ParquetFile(stream).read()
    if "timestamp_ms" not in letters.column_names:
        letters = letters.append_column(
            "timestamp_ms", pc.divide(letters["timestamp"].cast(pa.int64()), 1000)
        )
    return letters.select(DEAD_SCHEMA.names).cast(DEAD_SCHEMA)
