"""compact: many small files of a partition of the table become few large ones, with exactly the same rows.

The rule: a new file counts only if, read back from the store, it equals the old ones row for row. Old files stay until
`vacuum` removes them, when no snapshot names them and they are old enough, so readers are not disturbed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from barnabas_pipeline import faults
from barnabas_pipeline.errors import IncompleteError, UsageError
from barnabas_pipeline.jobs.load import collected, new_entry
from barnabas_pipeline.lake import scan
from barnabas_pipeline.lake.columns import PARTITION, lake_schema
from barnabas_pipeline.lake.dead import DeadLetters
from barnabas_pipeline.lake.files import TARGET_FILE_BYTES, TableWriter
from barnabas_pipeline.lake.iceberg import Layout, Place
from barnabas_pipeline.lake.ledger import DataFile, State
from barnabas_pipeline.lake.scan import Piece
from barnabas_pipeline.lake.table import ConflictError, Table
from barnabas_pipeline.log.model import TopicIdentity
from barnabas_pipeline.schema import EventSchema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES_MIN = 2
SORT_KEY = [(PARTITION, "ascending"), ("_offset", "ascending")]
NO_LIMIT = 1 << 62


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
    """Files of one partition of the table and one incarnation that are merged into one file."""

    layout: Layout
    topic_id: str
    files: tuple[Piece, ...]
    schema: EventSchema


def compact(
    spark: SparkSession,
    root: Place | str,
    *,
    target_bytes: int = TARGET_FILE_BYTES,
    files_min: int = FILES_MIN,
) -> CompactSummary:
    """Compact a table in one commit. Raises IncompleteError if rows would change."""
    table = Table(root)
    dead = DeadLetters(table)
    dead.publish()
    while True:
        state = table.state()
        groups = list(plan(table, state, target_bytes, files_min))
        partitions = {(group.files[0].spec_id, group.files[0].partition) for group in groups}
        summary = CompactSummary(len(partitions), sum(len(group.files) for group in groups))
        if not groups:
            return summary
        new = collected(spark.sparkContext.parallelize(groups, len(groups)).map(merge))
        summary.files_after, summary.rows = len(new), sum(file.rows for file in new)
        identity = TopicIdentity(state.cluster_id, state.topic, state.topic_id)
        entry = new_entry(
            table, "compact", identity, EventSchema.from_dict(state.schema), {"name": "compact"}
        )
        entry.add, entry.remove = new, [file.path for group in groups for file in group.files]
        faults.point("compact.before_commit")
        seen = table.existing.metadata_location
        try:
            table.commit(entry)
        except ConflictError:
            table.refresh()
            if table.existing.metadata_location == seen:
                raise
            continue  # another run made progress, so plan again
        faults.point("compact.after_commit")
        dead.publish()
        return summary


def plan(table: Table, state: State, target_bytes: int, files_min: int) -> Iterator[_Group]:
    """Yield the groups of small files. Raises UsageError for a table with columns that are not ours."""
    if not state.version:
        return
    schema = EventSchema.from_dict(state.schema)
    layout, spec_id = table.layout, table.existing.metadata.default_spec_id
    small: dict[tuple[str, str], list[Piece]] = {}
    for file in sorted(table.pieces(), key=lambda piece: (*piece.bounds[1:], piece.path)):
        if (
            (file.size < target_bytes // 2 or file.deletes)
            and file.bounds.topic_id
            and file.spec_id == spec_id
        ):
            small.setdefault((repr(file.partition), file.bounds.topic_id), []).append(file)
    for (_, topic_id), files in sorted(small.items()):
        for group in _bins(files, target_bytes):
            if len(group) >= files_min:
                check_columns(table, schema)
                yield _Group(layout, topic_id, tuple(group), schema)


def check_columns(table: Table, schema: EventSchema) -> None:
    """Raise UsageError for a table with columns that are not ours, which rewritten files would lack."""
    columns = {field.name for field in table.existing.schema().fields}
    foreign = columns - set(lake_schema(schema).names)
    if foreign:
        lacking = set(lake_schema(schema).names) - columns
        renamed = f", and lacks {', '.join(sorted(lacking))}: renamed?" if lacking else ""
        raise UsageError(f"{table.place.name} has columns of others ({', '.join(sorted(foreign))}){renamed}")


def _bins(files: list[Piece], target_bytes: int) -> Iterator[list[Piece]]:
    """Yield groups of neighbouring files of about `target_bytes` in total."""
    group: list[Piece] = []
    for file in files:
        if group and sum(file.size for file in group) + file.size > target_bytes:
            yield group
            group = []
        group.append(file)
    yield group


def merge(group: _Group) -> DataFile:
    """Write the rows of a group into one file, by partition and offset, and compare it with the old files."""
    schema = lake_schema(group.schema)
    rows = pa.concat_tables(scan.rows(group.layout, group.files, schema)).sort_by(SORT_KEY)
    partitions = {file.bounds.partition for file in group.files}
    partition = partitions.pop() if len(partitions) == 1 else -1
    writer = TableWriter(group.layout, group.schema, group.topic_id, partition, target_bytes=NO_LIMIT)
    writer.write(rows)
    [merged] = writer.close()
    again = pa.concat_tables(scan.rows(group.layout, [Piece(merged.path)], schema))
    is_whole = any(file.deletes for file in group.files) or merged.rows == sum(
        file.rows for file in group.files
    )
    if not is_whole or not again.equals(rows):
        raise IncompleteError(f"{merged.path} is not what it was made of")
    return merged
