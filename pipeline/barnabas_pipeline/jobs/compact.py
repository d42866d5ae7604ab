"""compact: many small files of an hour become few large ones, with exactly the same rows.

The rule: a new file counts only if, read back from the disk, it equals the old ones row for row. Old files stay until
`vacuum` finds that no manifest names them and nobody has touched them for a while, so readers are not disturbed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from barnabas_pipeline import faults
from barnabas_pipeline.errors import IncompleteError, UsageError
from barnabas_pipeline.jobs.load import new_manifest, unwrap
from barnabas_pipeline.lake.files import TARGET_FILE_BYTES, OpenFile, lake_schema, note_bounds, numbered
from barnabas_pipeline.lake.iceberg import IcebergOptions, Publisher, is_published, publisher
from barnabas_pipeline.lake.manifest import DataFile, TableState
from barnabas_pipeline.lake.table import DATA, ConflictError, Table
from barnabas_pipeline.log.model import TopicIdentity
from barnabas_pipeline.schema import EventSchema

FILES_MIN = 2
SORT_KEY = [("_partition", "ascending"), ("_offset", "ascending")]
CONFLICTS_MAX = 5


@dataclass(slots=True)
class CompactSummary:
    """Figures of one run."""

    hours: int = 0
    files_before: int = 0
    files_after: int = 0
    rows: int = 0
    removed_orphans: int = 0


@dataclass(frozen=True, slots=True)
class _Group:
    """Files of one hour and one incarnation that become one."""

    root: str
    hour: str
    topic_id: str
    files: tuple[DataFile, ...]
    schema: EventSchema


def compact(
    spark: Any,
    root: str,
    *,
    target_bytes: int = TARGET_FILE_BYTES,
    files_min: int = FILES_MIN,
    iceberg: IcebergOptions | None = None,
) -> CompactSummary:
    """Compact a table in one commit. Raises IncompleteError if rows would not stay what they are."""
    table = Table(root)
    publish = publisher(table, iceberg)
    publish()
    for attempt in range(CONFLICTS_MAX):
        state = table.state()
        groups = list(_plan(table, state, target_bytes, files_min))
        summary = CompactSummary(len({one.hour for one in groups}), sum(len(one.files) for one in groups))
        if not groups:
            return summary
        try:
            new = list(spark.sparkContext.parallelize(groups, len(groups)).map(merge).collect())
        except Exception as error:
            raise unwrap(error) from None
        summary.files_after, summary.rows = len(new), sum(file.rows for file in new)
        identity = TopicIdentity(state.cluster_id, state.topic, state.topic_id)
        manifest = new_manifest(
            table, "compact", identity, EventSchema.from_dict(state.schema), {"name": "compact"}
        )
        manifest.add, manifest.remove = new, [file.path for group in groups for file in group.files]
        faults.point("compact.before_commit")
        try:
            table.commit(manifest)
        except ConflictError:
            if attempt == CONFLICTS_MAX - 1:
                raise
            continue
        faults.point("compact.after_commit")
        publish()
        return summary
    raise AssertionError("not reached")


def vacuum(root: str, *, age_seconds: float, iceberg: IcebergOptions | None = None) -> int:
    """Remove files that do not count and were not touched for so long; returns how many.

    Of an Iceberg table, snapshots so old are expired first; what those name that are left stays. Raises UsageError if
    there is one and nobody said so.
    """
    table = Table(root)
    if iceberg is not None:
        follower = Publisher(table, iceberg)
        follower.publish()
        keep, unused = follower.expire(int((time.time() - age_seconds) * 1000))
        orphans = table.orphans(age_seconds, keep) + unused
    elif is_published(root):
        raise UsageError(
            f"{root} is an Iceberg table too, which may name files that the lake does not: --table iceberg"
        )
    else:
        orphans = table.orphans(age_seconds)
    for path in orphans:
        path.unlink(missing_ok=True)
    return len(orphans)


def _plan(table: Table, state: TableState, target_bytes: int, files_min: int) -> Iterator[_Group]:
    small: dict[tuple[str, str], list[DataFile]] = {}
    for file in sorted(state.files.values(), key=lambda file: (file.partition, file.offset_min, file.path)):
        if file.size < target_bytes // 2:
            small.setdefault((file.hour, file.topic_id), []).append(file)
    schema = EventSchema.from_dict(state.schema)
    for (hour, topic_id), files in sorted(small.items()):
        for group in _bins(files, target_bytes):
            if len(group) >= files_min:
                yield _Group(str(table.root), hour, topic_id, tuple(group), schema)


def _bins(files: list[DataFile], target_bytes: int) -> Iterator[list[DataFile]]:
    """Neighbouring files that are about `target_bytes` together."""
    group: list[DataFile] = []
    for file in files:
        if group and sum(one.size for one in group) + file.size > target_bytes:
            yield group
            group = []
        group.append(file)
    yield group


def merge(group: _Group) -> DataFile:
    """Write the rows of a group into one file, by partition and offset, and compare it with the old ones."""
    root = Path(group.root)
    schema = lake_schema(group.schema)
    parts = [widen(pq.ParquetFile(root / file.path).read(), schema) for file in group.files]
    rows = pa.concat_tables(parts).sort_by(SORT_KEY)
    file = OpenFile(root, f"{DATA}/event_hour={group.hour}", numbered(schema))
    file.write(rows)
    partitions = {one.partition for one in group.files}
    entry = DataFile(
        file.relative, rows.num_rows, 0, "", group.topic_id, partitions.pop() if len(partitions) == 1 else -1, group.hour
    )  # fmt: skip
    note_bounds(entry, rows, group.schema.event_time)
    entry.size, entry.sha256 = file.finish()
    if entry.rows != sum(one.rows for one in group.files) or not pq.ParquetFile(file.target).read().equals(
        rows
    ):
        raise IncompleteError(f"{file.relative} is not what it was made of")
    return entry


def widen(rows: Any, schema: Any) -> Any:
    """Rows of an older schema with the columns of a newer one."""
    arrays = [
        rows[field.name] if field.name in rows.column_names else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)
