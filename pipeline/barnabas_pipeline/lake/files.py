"""Writing a task's rows: one Parquet file per event hour and size, with digest, under a name that nobody else uses.

The rule: a file gets its final name only when it is whole and on the disk. Names hold no meaning; manifests do.
"""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from barnabas.system.files import sync
from barnabas_pipeline import faults
from barnabas_pipeline.lake.manifest import DataFile
from barnabas_pipeline.lake.table import DATA, DEAD, sync_directory
from barnabas_pipeline.log.columns import HEADERS_TYPE, TIMESTAMP_TYPE
from barnabas_pipeline.schema import EventSchema

EPOCH = datetime(1970, 1, 1)
HOUR_MS = 3_600_000
OPEN_FILES_MAX = 64
TARGET_FILE_BYTES = 128 << 20
COMPRESSION = "zstd"

COORDINATES = [
    pa.field("_extra", pa.string()),
    pa.field("_topic_id", pa.string()),
    pa.field("_partition", pa.int32()),
    pa.field("_offset", pa.int64()),
    pa.field("_timestamp", TIMESTAMP_TYPE),
    pa.field("_leader_epoch", pa.int32()),
    pa.field("_key", pa.binary()),
    pa.field("_headers", HEADERS_TYPE),
]
DEAD_SCHEMA = pa.schema(
    [
        pa.field("topic_id", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("end_offset", pa.int64()),  # offset + 1, or more for a span of damaged bytes
        pa.field("timestamp", TIMESTAMP_TYPE),  # null for what is no time of the years 1 to 9999
        pa.field("leader_epoch", pa.int32()),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS_TYPE),
        pa.field("reason", pa.string()),
        pa.field("detail", pa.string()),
        pa.field("decoder_version", pa.int32()),
        pa.field("schema_name", pa.string()),
        pa.field("timestamp_ms", pa.int64()),  # as it came; null for a span, and in files of earlier versions
    ]
)


def lake_schema(schema: EventSchema) -> Any:
    """The columns of a table for events of a schema."""
    return pa.schema([*schema.arrow, *COORDINATES])


def numbered(schema: Any) -> Any:
    """The columns of a table with the field ids that they have in Parquet files, the same for ever.

    First the coordinates with what is nested in them, then the fields of the event, to which others may be added.
    """
    ids = {field.name: n for n, field in enumerate(COORDINATES, 1)}
    n = len(ids)
    element, key, value = (str(n + m).encode() for m in (1, 2, 3))
    fields = [field.name for field in schema if field.name not in ids]
    ids |= {name: n + 4 + m for m, name in enumerate(fields)}
    entry = HEADERS_TYPE.value_type
    struct = pa.struct([_with_id(entry.field(0), key), _with_id(entry.field(1), value)])
    headers = pa.list_(_with_id(HEADERS_TYPE.value_field.with_type(struct), element))
    typed = (field.with_type(headers) if field.name == "_headers" else field for field in schema)
    return pa.schema([_with_id(field, str(ids[field.name]).encode()) for field in typed])


def _with_id(field: Any, number: bytes) -> Any:
    return field.with_metadata({b"PARQUET:field_id": number})


def hour_name(hour: int) -> str:
    """Hours since 1970, in the years 1 to 9999, as `2023-11-14T22`."""
    return (EPOCH + timedelta(hours=hour)).isoformat()[: len("2023-11-14T22")]


def hour_number(name: str) -> int:
    """The reverse of `hour_name`. Raises ValueError."""
    return (datetime.fromisoformat(f"{name}:00") - EPOCH) // timedelta(hours=1)


class OpenFile:
    """A Parquet file that is being written under a hidden name."""

    def __init__(self, root: Path, relative_dir: str, schema: Any) -> None:
        name = f"{uuid.uuid4().hex}.parquet"
        self.relative = f"{relative_dir}/{name}"
        self.directory = root / relative_dir
        self.directory.mkdir(parents=True, exist_ok=True)
        self.hidden = self.directory / f".{name}"
        self.target = self.directory / name
        self.writer = pq.ParquetWriter(self.hidden, schema, compression=COMPRESSION)
        self.rows = 0
        self.bytes = 0

    def write(self, table: Any) -> None:
        """Append rows."""
        self.writer.write_table(table)
        self.rows += table.num_rows
        self.bytes += table.nbytes

    def finish(self) -> tuple[int, str]:
        """Close it, force it to the disk, give it its name. Returns (size, SHA-256)."""
        self.writer.close()
        faults.point("task.before_fsync")
        sha256 = hashlib.sha256()
        with open(self.hidden, "rb+") as file:
            while chunk := file.read(1 << 20):
                sha256.update(chunk)
            sync(file.fileno())
        os.rename(self.hidden, self.target)
        sync_directory(self.directory)
        return self.target.stat().st_size, sha256.hexdigest()


class HourWriter:
    """Puts rows into the file of their event hour.

    A file that has grown to `target_bytes` is followed by another, and so is the one that has waited longest where more
    than OPEN_FILES_MAX hours are open.
    """

    def __init__(
        self,
        root: Path,
        schema: EventSchema,
        topic_id: str,
        partition: int,
        *,
        target_bytes: int = TARGET_FILE_BYTES,
    ) -> None:
        self.done: list[DataFile] = []
        self._root = root
        self._event_time = schema.event_time
        self._schema = numbered(lake_schema(schema))
        self._topic_id = topic_id
        self._partition = partition
        self._target_bytes = target_bytes
        self._open: dict[int, tuple[OpenFile, DataFile]] = {}

    def write(self, table: Any) -> None:
        """Write rows of the lake's schema, in the order they have."""
        for hour, part in split_by_hour(table, self._event_time):
            if hour not in self._open:
                if len(self._open) == OPEN_FILES_MAX:
                    self._finish(next(iter(self._open)))
                name = hour_name(hour)
                entry = DataFile("", 0, 0, "", self._topic_id, self._partition, name)
                self._open[hour] = (OpenFile(self._root, f"{DATA}/event_hour={name}", self._schema), entry)
            file, entry = self._open[hour] = self._open.pop(hour)
            file.write(part)
            note_bounds(entry, part, self._event_time)
            if file.bytes >= self._target_bytes:
                self._finish(hour)

    def close(self) -> list[DataFile]:
        """Finish all files and describe them."""
        for hour in list(self._open):
            self._finish(hour)
        return self.done

    def _finish(self, hour: int) -> None:
        file, entry = self._open.pop(hour)
        entry.path, entry.rows = file.relative, file.rows
        entry.size, entry.sha256 = file.finish()
        self.done.append(entry)


def split_by_hour(table: Any, event_time: str) -> Iterator[tuple[int, Any]]:
    """Yield (hour, its rows), hours rising, rows in their order."""
    hours = table[event_time].to_numpy() // HOUR_MS
    for hour in np.unique(hours).tolist():
        mask = hours == hour
        yield hour, table if mask.all() else table.filter(pa.array(mask))


def note_bounds(entry: DataFile, part: Any, event_time: str) -> None:
    """Widen a file's bounds of offset and event time; offsets are never negative, so -1 says that there are none yet."""
    is_first = entry.offset_min < 0
    for column, low, high in (
        ("_offset", "offset_min", "offset_max"),
        (event_time, "event_time_min", "event_time_max"),
    ):
        found = pc.min_max(part[column]).as_py()
        setattr(entry, low, found["min"] if is_first else min(getattr(entry, low), found["min"]))
        setattr(entry, high, found["max"] if is_first else max(getattr(entry, high), found["max"]))


def write_dead(root: Path, letters: Any, topic_id: str, partition: int) -> DataFile:
    """Write dead letters, rows of DEAD_SCHEMA, into one file."""
    file = OpenFile(root, DEAD, DEAD_SCHEMA)
    file.write(letters)
    entry = DataFile(file.relative, letters.num_rows, 0, "", topic_id, partition)
    entry.size, entry.sha256 = file.finish()
    entry.offset_min = pc.min(letters["offset"]).as_py()
    entry.offset_max = pc.max(letters["end_offset"]).as_py() - 1
    entry.offsets = pc.sum(pc.subtract(letters["end_offset"], letters["offset"])).as_py()
    entry.reasons = {one["values"]: one["counts"] for one in pc.value_counts(letters["reason"]).to_pylist()}
    return entry


def read_dead(path: str | Path) -> Any:
    """Read a file of dead letters; one of an earlier version has their timestamps in us alone."""
    letters = pq.ParquetFile(path).read()
    if "timestamp_ms" not in letters.column_names:
        letters = letters.append_column(
            "timestamp_ms", pc.divide(letters["timestamp"].cast(pa.int64()), 1000)
        )
    return letters.select(DEAD_SCHEMA.names).cast(DEAD_SCHEMA)


def sha256_of(path: str | Path) -> str:
    """The digest of a file's bytes."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
