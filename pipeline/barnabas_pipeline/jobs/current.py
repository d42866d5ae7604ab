"""current: a table of current rows by key, from the events that `load` writes; and a check of it.

The rule: only the table records which events were applied. A run reads the other events up to the end of the events'
ledger, and commits rows and offsets together. If applied events have changed (dead letters became rows, hours were decoded
again, a topic was recreated), all events are applied again, in one commit. Small increments are merged in this process,
without Spark. Large increments run the same two functions in Spark's tasks: changes of files of events, grouped by bucket,
and merged bucket by bucket.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from barnabas_pipeline import faults
from barnabas_pipeline.errors import UsageError
from barnabas_pipeline.jobs.load import collected
from barnabas_pipeline.jobs.rounds import Round, Rounds
from barnabas_pipeline.lake import scan
from barnabas_pipeline.lake.changes import NO_BUCKET, OFFSET, PLAIN, Form, Moment, Shape, within
from barnabas_pipeline.lake.columns import COORDINATES, PARTITION
from barnabas_pipeline.lake.coordinates import erased_offsets
from barnabas_pipeline.lake.current import Applied, Bucket, CurrentTable, Increment, Merger, Retained
from barnabas_pipeline.lake.iceberg import Place, layout_of
from barnabas_pipeline.lake.ledger import Entry, State
from barnabas_pipeline.lake.scan import Piece
from barnabas_pipeline.lake.table import Table
from barnabas_pipeline.log.model import OffsetRange
from barnabas_pipeline.schema import EventSchema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from barnabas_pipeline.data_types import Integers

IN_PROCESS_ROWS_MAX = 2_000_000
"""Most events and rows of the table in total that are merged in this process; above, Spark is faster."""
AGAIN = ("redrive", "backfill", "erase")  # kinds of entries that change applied events
DIFFERENCES_MAX = 20


@dataclass(slots=True)
class CurrentOptions:
    """Options of a run; `shape` None: the existing table's. `spark` returns a session when one is needed."""

    events: Place
    spark: Callable[[], SparkSession]
    shape: Shape | None = None
    name: str = ""
    rebuild: bool = False
    keep_snapshots: int = 0
    waits: bool = False  # for the first load
    in_process_rows_max: int = IN_PROCESS_ROWS_MAX


@dataclass(slots=True)
class CurrentSummary:
    """Figures of one run; `lost` counts events without a key or of unknown kind, `dead` the topic's dead letters."""

    version: int = 0
    events_version: int = 0
    commits: int = 0
    rebuilt: str = ""
    changes: int = 0
    buckets: int = 0
    rows: int = 0
    lost: int = 0
    dead: int = 0
    removed_orphans: int = 0


@dataclass(slots=True)
class CheckReport:
    """Result of a check."""

    version: int = 0
    rows: int = 0
    differences: int = 0
    examples: list[str] = field(default_factory=list)


class CurrentRows(Rounds["Plan", Round, CurrentSummary]):
    """A table of current rows, and the table of events that it follows."""

    kind = Round

    def __init__(self, options: CurrentOptions) -> None:
        super().__init__()
        self.options = options
        self.events = Table(options.events)
        self.table = CurrentTable(self.events, options.name)
        self.summary = CurrentSummary()
        self._rebuilds = options.rebuild
        self._idle = (-1, -1)  # versions of rows and events with nothing to apply

    def __str__(self) -> str:
        return f"table {self.table.place.name}"

    def poll(self, done: Round) -> Plan | None:
        """Plan the events to apply. Raises IncompleteError, UsageError, BrokenLakeError."""
        with done.step("plan"):
            self.events.refresh()
            return self._plan(self.table.refresh())

    def note(self, done: Round) -> None:
        """Note the present versions and counts of both tables."""
        done.has_more = done.has_done
        state, applied = self.events.state(), self.table.applied
        self.summary.version, self.summary.events_version = applied.version, applied.events_version
        self.summary.rows, self.summary.lost = self.table.rows, applied.lost
        self.summary.dead = sum(total.dead for total in state.totals.values()) - state.redriven

    # --- planning ---------------------------------------------------------------------------------------------------

    def _plan(self, applied: Applied) -> Plan | None:
        """Return the events to apply; None without such events."""
        state = self.events.state()
        if not state.version and self.options.waits:
            return None
        if not state.version:
            raise UsageError(f"there is nothing in {self.events.place.location}: load the topic first")
        if self._idle == (applied.version, state.version) and not self._rebuilds:
            return None
        form = Form(self._shape(applied), EventSchema.from_dict(state.schema)).checked()
        reason = self._reason(applied, state)
        entries = self.events.entries(0 if reason else applied.events_version)
        if form.shape.envelope == PLAIN:
            self._refuse_lost_tombstones(entries)
        starts = {} if reason else applied.ends
        is_moving = self.table.is_endangered
        if not reason and state.ends == applied.ends and not is_moving:
            self._idle = applied.version, state.version
            return None
        ranges = {partition: (starts.get(partition, 0), end) for partition, end in state.ends.items()}
        pieces = _pieces(self.events, state.topic_id, ranges)
        increment = Increment(self.events.layout, form, state.topic_id, ranges)
        return Plan(form, state, reason, increment, pieces, is_moving)

    def _shape(self, applied: Applied) -> Shape:
        shape = self.options.shape
        if applied.shape is None:
            if shape is None:
                raise UsageError("say by --key or --key-from what the key of the new table is")
            return shape
        if shape not in (None, applied.shape):
            raise UsageError(f"{self.table.place.name} is made with {applied.shape}, not with {shape}")
        return applied.shape

    def _reason(self, applied: Applied, state: State) -> str:
        """Return the reason to apply all events again; empty if only new events are applied."""
        if not applied.version:
            return "new"
        if self._rebuilds:
            return "asked for"
        if applied.topic_id != state.topic_id:
            return "the topic was made again"
        if self.table.is_behind:
            return "the table was rolled back"
        if not self._follows(applied, state):
            return "the table of events was rolled back"
        if applied.gone is None and len(state.ends) > 1:
            return "partitions were added"
        for entry in self.events.entries(applied.events_version):
            if entry.kind in AGAIN:
                return entry.kind
        return ""

    def _follows(self, applied: Applied, state: State) -> bool:
        if applied.events_version >= state.version:
            return (applied.events_version, applied.events_digest) == (state.version, state.digest)
        return self.events.entries(applied.events_version)[0].previous == applied.events_digest

    def _refuse_lost_tombstones(self, entries: list[Entry]) -> None:
        letters: dict[str, int] = {}
        for entry in entries:
            letters |= {file.path: file.reasons.get("empty", 0) for file in entry.dead_add}
            for path in entry.dead_remove:
                letters.pop(path, None)
        if sum(letters.values()):
            raise UsageError(
                f"{sum(letters.values())} null values are dead letters, whose rows would stay: load or redrive "
                f"{self.events.place.name} with --tombstones keep"
            )

    # --- applying ---------------------------------------------------------------------------------------------------

    def apply(self, plan: Plan, done: Round) -> None:
        """Apply events and commit the rows. Raises ConflictError if another run was faster."""
        faults.point("current.after_plan")
        applied = self.table.applied
        self.table.prepare(plan.form)
        files = self.table.files()
        truncated = _truncations(self.events, plan) if plan.form.is_debezium else []
        last = max(truncated, default=None)
        if not plan.reason and applied.truncated is not None:
            truncated.append(applied.truncated)
            last = max(truncated)
        is_moving = len(plan.state.ends) > 1
        retained = self._retained(plan.state) if plan.reason else None
        starts_empty = retained == ()
        merger = Merger(
            layout_of(self.table.existing),
            plan.form,
            {} if starts_empty else files,
            {} if starts_empty else applied.gone or {},
            tuple(truncated),
            is_moving,
            retained,
        )
        everywhere = retained or (not plan.reason and (plan.is_moving or last != applied.truncated))
        buckets = range(plan.form.shape.buckets) if everywhere else ()
        written = self._run(plan.increment, merger.write, plan.pieces, buckets)
        faults.point("current.after_buckets")
        gone = dict(merger.gone)
        for bucket in written:
            gone.pop(bucket.number, None)
            gone |= {bucket.number: bucket.gone} if bucket.gone else {}
        old = (piece.path for pieces in files.values() for piece in pieces)
        entry = Applied(
            shape=plan.form.shape,
            events_version=plan.state.version,
            events_digest=plan.state.digest,
            topic_id=plan.state.topic_id,
            ends=dict(plan.state.ends),
            truncated=last,
            gone=gone if is_moving else None,
            lost=sum(bucket.lost for bucket in written) + (0 if plan.reason else applied.lost),
            rebuilt=plan.reason,
        )
        self.table.commit(
            entry,
            [file for bucket in written for file in bucket.add],
            list(old) if plan.reason else [path for bucket in written for path in bucket.remove],
            keep_snapshots=self.options.keep_snapshots,
        )
        self._rebuilds = False
        self.summary.commits += 1
        self.summary.rebuilt = plan.reason or self.summary.rebuilt
        self.summary.changes += sum(bucket.changes for bucket in written)
        self.summary.buckets += sum(bucket.number != NO_BUCKET for bucket in written)
        done.has_done = True

    def _retained(self, state: State) -> tuple[Retained, ...]:
        """Return the events that were removed by retention: their rows stay when all other events are applied again."""
        retained: list[Retained] = []
        erased: list[str] = []
        for entry in reversed(self.events.entries()):
            if entry.topic_id != state.topic_id or self.table.applied.topic_id != state.topic_id:
                break
            if entry.kind == "erase" and "where" in entry.job:
                erased.append(entry.job["where"])
            if entry.kind == "retain" and entry.erased:
                offsets: dict[int, Integers] = {}
                for file in entry.erased:
                    span = OffsetRange(file.partition, file.offset_min, file.offset_max + 1)
                    offsets[file.partition] = erased_offsets(self.events.layout, [file], span)
                retained.append(Retained(offsets, tuple(erased)))
        return tuple(retained)

    def _run(
        self,
        increment: Increment,
        work: Callable[[int, Iterable[pa.Table]], Bucket],
        pieces: list[Piece],
        buckets: Iterable[int],
    ) -> list[Bucket]:
        """Call `work` with the changes of each changed bucket, and of `buckets`; in Spark if they are many."""
        events = sum(end - start for start, end in increment.ranges.values())
        if events + self.table.rows <= self.options.in_process_rows_max:
            tables: dict[int, list[pa.Table]] = {bucket: [] for bucket in buckets}
            for bucket, table in increment.changes(pieces):
                tables.setdefault(bucket, []).append(table)
            return [work(bucket, tables.pop(bucket)) for bucket in sorted(tables)]
        context = self.options.spark().sparkContext
        parallel = context.defaultParallelism

        def changes(files: Iterable[Piece]) -> Iterable[tuple[int, bytes]]:
            return ((bucket, _packed(table)) for bucket, table in increment.changes(files))

        split = context.parallelize(pieces, min(len(pieces), 4 * parallel) or 1).mapPartitions(changes)
        more = context.parallelize([(bucket, b"") for bucket in buckets], 1)
        grouped = split.union(more).groupByKey(max(parallel, increment.form.shape.buckets))
        return collected(
            grouped.map(lambda item: work(item[0], [_unpacked(packed) for packed in item[1] if packed]))
        )

    # --- checking ---------------------------------------------------------------------------------------------------

    def check(self) -> CheckReport:
        """Derive the rows again from all applied events, and compare. Raises UsageError."""
        self.events.refresh()
        applied = self.table.refresh()
        if applied.shape is None:
            raise UsageError(f"there is no table {self.table.place.name}")
        state = self.events.state()
        reason = self._reason(applied, state)
        if reason:
            raise UsageError(f"the events are not those that were applied ({reason}): run current")
        form = Form(applied.shape, EventSchema.from_dict(state.schema)).checked()
        self.table.prepare(form)
        ranges = {partition: (0, end) for partition, end in applied.ends.items()}
        increment = Increment(self.events.layout, form, applied.topic_id, ranges)
        pieces = _pieces(self.events, applied.topic_id, ranges)
        plan = Plan(form, state, "check", increment, pieces)
        truncated = tuple(_truncations(self.events, plan)) if form.is_debezium else ()
        merger = Merger(
            layout_of(self.table.existing),
            form,
            self.table.files(),
            applied.gone or {},
            truncated,
            applied.gone is not None,
            self._retained(state),
        )

        def compare(bucket: int, changed: Iterable[pa.Table]) -> Bucket:
            if bucket == NO_BUCKET:
                return Bucket(bucket)
            expected, _ = merger.merged(list(changed), *merger.base(bucket))
            return _compared(form, bucket, expected, merger.rows(bucket))

        done = self._run(increment, compare, pieces, range(form.shape.buckets))
        examples = [text for bucket in done for text in bucket.remove]
        return CheckReport(
            applied.version,
            self.table.rows,
            sum(bucket.changes for bucket in done),
            examples[:DIFFERENCES_MAX],
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """Events to apply; `reason` is set if all events are applied again."""

    form: Form
    state: State
    reason: str
    increment: Increment
    pieces: list[Piece]
    is_moving: bool = False  # all files are rewritten at the table's present location


def _pieces(events: Table, topic_id: str, ranges: dict[int, tuple[int, int]]) -> list[Piece]:
    """Return the files that may have events of some ranges."""
    return [
        piece
        for piece in events.pieces()
        if piece.bounds.topic_id in (topic_id, "")
        and any(
            start < end and piece.may_have(partition, start, end)
            for partition, (start, end) in ranges.items()
        )
    ]


def _truncations(events: Table, plan: Plan) -> list[Moment]:
    """Return the truncations among the events of a plan, each with the latest moment of its partition up to there."""
    increment = plan.increment
    names = ("_topic_id", PARTITION, OFFSET, "_timestamp")
    told = [plan.form.read.field("op"), *([plan.form.read.field("source")] if plan.form.has_lsn else [])]
    schema = pa.schema([*told, *(coordinate for coordinate in COORDINATES if coordinate.name in names)])
    truncations: dict[int, list[int]] = {}
    for table in scan.rows(increment.layout, plan.pieces, schema):
        chosen = within(table, increment.topic_id, increment.ranges)
        chosen = chosen.filter(pc.equal(chosen["op"], "t"))
        for partition, offset in zip(chosen[PARTITION].to_pylist(), chosen[OFFSET].to_pylist(), strict=True):
            truncations.setdefault(partition, []).append(offset)
    latest = {partition: [(0, 0)] * len(offsets) for partition, offsets in truncations.items()}
    if truncations and len(increment.ranges) > 1:
        truncations = {partition: sorted(offsets) for partition, offsets in truncations.items()}
        latest = {partition: [(-(1 << 63), 0)] * len(offsets) for partition, offsets in truncations.items()}
        ranges = {partition: (0, offsets[-1] + 1) for partition, offsets in truncations.items()}
        for table in scan.rows(increment.layout, _pieces(events, increment.topic_id, ranges), schema):
            _note_latest(within(table, increment.topic_id, ranges), truncations, latest)
    return [
        Moment(*moment, partition, offset)
        for partition, offsets in truncations.items()
        for offset, moment in zip(offsets, accumulate(latest[partition], max), strict=True)
    ]


def _note_latest(
    table: pa.Table, truncations: dict[int, list[int]], latest: dict[int, list[tuple[int, int]]]
) -> None:
    """Note the latest moment before each truncation of a partition, after the previous truncation."""
    partition, offset = table[PARTITION].to_numpy(), table[OFFSET].to_numpy()
    time = table["_timestamp"].cast(pa.int64()).to_numpy()
    lsn = np.zeros(len(table), np.int64)
    if "source" in table.column_names:
        lsn = pc.fill_null(pc.struct_field(table["source"], "lsn"), 0).to_numpy()
    for number, offsets in truncations.items():
        mine = np.flatnonzero(partition == number)
        part = np.searchsorted(offsets, offset[mine])
        order = np.lexsort((lsn[mine], time[mine], part))
        for at in order[np.flatnonzero(np.diff(part[order], append=-1))].tolist():
            moment = int(time[mine[at]]), int(lsn[mine[at]])
            latest[number][part[at]] = max(latest[number][part[at]], moment)


def _packed(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _unpacked(data: bytes) -> pa.Table:
    return pa.ipc.open_stream(data).read_all()


def _compared(form: Form, bucket: int, expected: pa.Table, there: pa.Table) -> Bucket:
    """Compare expected with present rows of a bucket: the number of differences, and the first few as text."""
    if expected.equals(there.sort_by([(name, "ascending") for name in form.keys])):
        return Bucket(bucket)
    rows: list[dict[str, list[str]]] = []
    for table in (expected, there):
        by_key: dict[str, list[str]] = {}
        for row in table.to_pylist():
            by_key.setdefault(repr({name: row[name] for name in form.keys}), []).append(repr(row))
        rows.append(by_key)
    texts = [
        f"{key} is {', '.join(rows[1].get(key, ['not there']))}, should be {', '.join(rows[0].get(key, ['not there']))}"
        for key in sorted({*rows[0], *rows[1]})
        if rows[0].get(key) != rows[1].get(key)
    ]
    return Bucket(bucket, len(texts), remove=tuple(texts[:DIFFERENCES_MAX]))
