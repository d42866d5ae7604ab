"""erase, retain: remove rows by a condition or by age, and record their offsets in the ledger.

The rule: an erased offset counts as accounted for, so that audits stay exact, and no job loads it again. An audit adds
deletions by another engine to the ledger, if the table's history shows them.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import BooleanExpression, parser
from pyiceberg.expressions.visitors import bind
from pyiceberg.table.snapshots import Operation

from barnabas_pipeline.errors import UsageError
from barnabas_pipeline.jobs.compact import check_columns
from barnabas_pipeline.jobs.load import new_entry
from barnabas_pipeline.lake import scan
from barnabas_pipeline.lake.columns import PARTITION, lake_schema
from barnabas_pipeline.lake.coordinates import IDENTITY, erased_offsets
from barnabas_pipeline.lake.files import TableWriter, write_erased
from barnabas_pipeline.lake.iceberg import VERSION, Layout, Place, check_writable, explained, summary_of
from barnabas_pipeline.lake.ledger import HOUR_MS, DataFile, Entry
from barnabas_pipeline.lake.scan import Piece
from barnabas_pipeline.lake.table import ConflictError, Table
from barnabas_pipeline.log.model import OffsetRange, TopicIdentity
from barnabas_pipeline.schema import EventSchema

if TYPE_CHECKING:
    from pyiceberg.table.snapshots import Snapshot

    from barnabas_pipeline.data_types import Integers

Coordinates = tuple[str, int]
"""A topic id and a partition."""
TIME_MIN_MS = -62_135_596_800_000  # the year 1
REMOVING = (Operation.DELETE, Operation.OVERWRITE)


@dataclass(slots=True)
class EraseSummary:
    """Figures of one run."""

    version: int = 0
    rows: int = 0
    files_before: int = 0
    files_after: int = 0


def erase(root: Place | str, where: str, *, reason: str = "") -> EraseSummary:
    """Remove the rows that match a condition in Iceberg's syntax, such as `member = 'm1'`. Raises UsageError."""
    table = Table(root)
    table.loaded()
    return _remove(table, "erase", condition_of(table, where), {"name": "erase", "where": where}, reason)


def condition_of(table: Table, where: str) -> BooleanExpression:
    """Return a condition on columns of a table, in Iceberg's syntax. Raises UsageError."""
    try:
        condition = parser.parse(where)
        bind(table.existing.schema(), condition, case_sensitive=True)
    except Exception as error:  # pyparsing's errors, and pyiceberg's for wrong columns or literals
        raise UsageError(f"--where {where!r}: {error}".splitlines()[0]) from None
    return condition


def retain(root: Place | str, *, before_ms: int) -> EraseSummary:
    """Remove the rows of the hours that ended before or at a time, in ms since 1970."""
    table = Table(root)
    state = table.loaded()
    before_ms = before_ms // HOUR_MS * HOUR_MS
    span = str(state.schema["event_time"]), TIME_MIN_MS, before_ms
    condition = scan.within(span, table.existing.schema())
    return _remove(table, "retain", condition, {"name": "retain", "before": before_ms}, "")


def _remove(
    table: Table, kind: str, where: BooleanExpression, job: dict[str, object], note: str
) -> EraseSummary:
    """Remove rows in one commit, which is planned again if another writer was faster."""
    while True:
        check_writable(table.existing)
        state = table.state()
        schema = EventSchema.from_dict(state.schema)
        check_columns(table, schema)
        with explained():
            tasks = list(table.existing.scan(row_filter=where).plan_files())
        pieces = scan.pieces_of(tasks, table.existing.schema())
        identity = TopicIdentity(state.cluster_id, state.topic, state.topic_id)
        entry = new_entry(table, kind, identity, schema, {**job, "id": uuid.uuid4().hex})
        entry.note = note
        summary = EraseSummary(state.version)
        offsets = Offsets()
        for piece in pieces:
            _rewrite(table.layout, piece, schema, where, entry, offsets)
        entry.erased = list(offsets.write(table.layout))
        summary.rows = sum(file.offsets for file in entry.erased)
        is_for_current = kind == "erase" and any(each.kind == "retain" for each in table.entries())
        if (
            not entry.remove and not is_for_current
        ):  # current rows may be of events that were removed by retention
            return summary
        summary.files_before, summary.files_after = len(entry.remove), len(entry.add)
        seen = table.existing.metadata_location
        try:
            table.commit(entry)
        except ConflictError:
            table.refresh()
            if table.existing.metadata_location == seen:
                raise
            continue
        summary.version = entry.version
        return summary


def _rewrite(
    layout: Layout,
    piece: Piece,
    schema: EventSchema,
    where: BooleanExpression,
    entry: Entry,
    offsets: Offsets,
) -> None:
    """Rewrite a file without the rows that match a condition, if it has such rows."""
    metadata, _ = layout.open()
    columns = lake_schema(schema)

    def parts() -> Iterator[tuple[pa.Table, pa.ChunkedArray]]:
        for rows in scan.rows(layout, [piece], columns):
            yield rows, scan.matches(rows, where, metadata.schema())

    if not any(pc.any(mask).as_py() for _, mask in parts()):
        return
    writers: dict[str, TableWriter] = {}
    for rows, mask in parts():
        offsets.add(rows.filter(mask))
        kept = rows.filter(pc.invert(mask))
        for topic_id in pc.unique(kept["_topic_id"]).to_pylist():
            if topic_id not in writers:
                writers[topic_id] = TableWriter(layout, schema, topic_id or "", piece.bounds.partition)
            mine = pc.equal(kept["_topic_id"], topic_id) if topic_id else pc.is_null(kept["_topic_id"])
            writers[topic_id].write(kept.filter(mine))
    entry.add += [file for writer in writers.values() for file in writer.close()]
    entry.remove.append(piece.path)


class Offsets:
    """Offsets of rows, by topic id and partition."""

    def __init__(self) -> None:
        self._parts: dict[Coordinates, list[Integers]] = {}

    def add(self, rows: pa.Table) -> None:
        """Add the offsets of rows that have coordinates; rows of other engines may have none."""
        rows = rows.select(IDENTITY.names).drop_null()
        for topic_id in pc.unique(rows["_topic_id"]).to_pylist():
            mine = rows.filter(pc.equal(rows["_topic_id"], topic_id))
            partitions, values = mine[PARTITION].to_numpy(), mine["_offset"].to_numpy()
            for partition in np.unique(partitions).tolist():
                self._parts.setdefault((topic_id, partition), []).append(values[partitions == partition])

    def items(self) -> Iterator[tuple[Coordinates, Integers]]:
        """Yield the offsets of each partition, rising, each once."""
        for coordinates, parts in sorted(self._parts.items()):
            yield coordinates, np.unique(np.concatenate(parts))

    def without(self, other: Offsets) -> Offsets:
        """Return the offsets that are not in another set."""
        result, theirs = Offsets(), dict(other.items())
        for coordinates, mine in self.items():
            remaining = np.setdiff1d(mine, theirs.get(coordinates, np.empty(0, np.int64)), assume_unique=True)
            if len(remaining):
                result._parts[coordinates] = [remaining]
        return result

    def write(self, layout: Layout) -> Iterator[DataFile]:
        """Write the offsets into files, one for each partition, and yield the files."""
        for (topic_id, partition), offsets in self.items():
            if len(offsets):
                yield write_erased(layout, offsets, topic_id, partition)


# --- deletions by other engines -------------------------------------------------------------------------------------


@dataclass(slots=True)
class Deletions:
    """Rows that snapshots of other engines have deleted and that are still missing; the snapshots, as text."""

    snapshots: list[int] = field(default_factory=list)
    offsets: Offsets = field(default_factory=Offsets)
    told: list[str] = field(default_factory=list)


def deletions_of_others(table: Table, entries: Iterable[Entry]) -> Deletions:
    """Find deletions in the history of the table: for each snapshot of another engine, rows of its parent that it lacks.

    Those in the ledger are skipped.
    """
    noted = {snapshot for entry in entries for snapshot in entry.job.get("snapshots", ())}
    iceberg, result, layout = table.existing, Deletions(), table.layout
    snapshot = iceberg.current_snapshot()
    lost, present = Offsets(), Offsets()
    while snapshot is not None and snapshot.parent_snapshot_id is not None:
        parent = iceberg.snapshot_by_id(snapshot.parent_snapshot_id)
        if parent is not None and snapshot.snapshot_id not in noted and _may_delete(snapshot):
            before, after = (_rows_of(table, each.snapshot_id) for each in (parent, snapshot))
            gone, there = Offsets(), Offsets()
            for offsets, pieces in ((gone, before - after), (there, after - before)):
                for rows in scan.rows(layout, pieces, IDENTITY):
                    offsets.add(rows)
            gone = gone.without(there)
            count = sum(len(values) for _, values in gone.items())
            if count:
                result.snapshots.append(snapshot.snapshot_id)
                result.told.append(
                    f"snapshot {snapshot.snapshot_id} of {_engine(snapshot)} deleted {count} rows"
                )
                for coordinates, values in gone.items():
                    lost._parts.setdefault(coordinates, []).append(values)
        snapshot = parent
    if result.snapshots:
        for rows in scan.rows(layout, table.pieces(), IDENTITY):
            present.add(rows)
        in_ledger = Offsets()
        for entry in entries:
            for file in entry.erased:
                span = OffsetRange(file.partition, file.offset_min, file.offset_max + 1)
                in_ledger._parts.setdefault((file.topic_id, file.partition), []).append(
                    erased_offsets(layout, [file], span)
                )
        result.offsets = lost.without(present).without(in_ledger)
    return result


def _may_delete(snapshot: Snapshot) -> bool:
    summary = snapshot.summary
    return VERSION not in summary_of(snapshot) and summary is not None and summary.operation in REMOVING


def _engine(snapshot: Snapshot) -> str:
    summary = summary_of(snapshot)
    return summary.get("engine-name") or ("Spark" if "spark.app.id" in summary else "another engine")


def _rows_of(table: Table, snapshot_id: int) -> set[Piece]:
    with explained():
        return set(scan.pieces_of(table.existing.scan(snapshot_id=snapshot_id).plan_files(), None))
