"""lineage: from a row of a table back to its record and its commit, and from an offset of a topic to its outcome.

The rule: the ledger has a load's outcome of an offset, the current snapshot its present row; if these do not suffice,
the log is read. Unknown facts are reported as such, not guessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from barnabas_pipeline.errors import DataLossError
from barnabas_pipeline.jobs.erase import condition_of, deletions_of_others
from barnabas_pipeline.lake import scan
from barnabas_pipeline.lake.changes import within
from barnabas_pipeline.lake.columns import PARTITION, lake_schema
from barnabas_pipeline.lake.coordinates import Seen, dead_offsets, erased_offsets
from barnabas_pipeline.lake.files import read_dead
from barnabas_pipeline.lake.iceberg import VERSION, explained, summary_of
from barnabas_pipeline.lake.ledger import DataFile, Entry, Files, PartitionCommit
from barnabas_pipeline.lake.scan import Piece
from barnabas_pipeline.lake.table import Table
from barnabas_pipeline.log.model import LogOptions, OffsetRange
from barnabas_pipeline.log.outline import outline
from barnabas_pipeline.log.transports import open_log
from barnabas_pipeline.schema import EventSchema

if TYPE_CHECKING:
    from barnabas_pipeline.data_types import Document

ROW, DEAD, ERASED, RETAINED, DELETED = "row", "dead letter", "erased", "removed for its age", "deleted"
NO_RECORD, UNKNOWN, MISSING = "no record", "unknown", "missing"
LOST, NOT_LOADED, BEFORE = "lost", "not loaded", "not asked for"
NOT_DATA = {
    "control": "the marker of a transaction",
    "aborted": "of a transaction that was aborted",
    "compacted": "compacted away before the load",
}
RECORD = "a record"
ROWS_MAX = 20


@dataclass(slots=True)
class Trace:
    """The fate of an offset of one incarnation of a topic: `outcome` is one of this module's words.

    `loaded`, `file` and `removed` are commits, `row` has the values of a row or of a dead letter.
    """

    topic_id: str
    partition: int
    offset: int
    outcome: str
    detail: str = ""
    loaded: Document = field(default_factory=dict)
    file: Document = field(default_factory=dict)
    removed: Document = field(default_factory=dict)
    row: Document = field(default_factory=dict)


class Lineage:
    """The history of a table at the time of construction."""

    def __init__(self, table: Table, log: LogOptions | None = None) -> None:
        """`log`: the topic, to look up offsets that the lake does not explain."""
        self.table = table
        self.state = table.loaded()
        self.entries = table.entries()
        self._log = log
        self._files = Files()
        for entry in self.entries:
            self._files.apply(entry)
        self._snapshots = {
            summary_of(snapshot).get(VERSION): snapshot for snapshot in reversed(table.existing.snapshots())
        }
        self._added = {file.path: entry for entry in self.entries for file in (*entry.add, *entry.dead_add)}

    # --- from rows --------------------------------------------------------------------------------------------------

    def rows(self, where: str, rows_max: int = ROWS_MAX) -> list[Trace]:
        """Trace the first rows that match a condition in Iceberg's syntax. Raises UsageError."""
        condition = condition_of(self.table, where)
        schema, traces = self.table.existing.schema(), []
        with explained():
            tasks = list(self.table.existing.scan(row_filter=condition).plan_files())
        pieces = sorted(scan.pieces_of(tasks, schema), key=lambda piece: (*piece.bounds[1:], piece.path))
        for piece in pieces:
            for rows in scan.rows(self.table.layout, [piece], self._columns):
                for row in rows.filter(scan.matches(rows, condition, schema)).to_pylist():
                    traces.append(self._of_row(row, piece))
                    if len(traces) == rows_max:
                        return traces
        return traces

    @property
    def _columns(self) -> pa.Schema:
        return lake_schema(EventSchema.from_dict(self.state.schema))

    def _of_row(self, row: Document, piece: Piece) -> Trace:
        topic_id, partition, offset = row["_topic_id"], row[PARTITION], row["_offset"]
        if offset is None or partition is None:
            return Trace(
                "",
                -1,
                -1,
                UNKNOWN,
                "another engine has written this row",
                file=self._file(piece.path),
                row=row,
            )
        trace = Trace(topic_id or "", partition, offset, ROW, file=self._file(piece.path), row=row)
        for entry, _ in self._covering(topic_id or "", partition, offset):
            trace.loaded = self._commit(entry)
        trace.detail = self._history(topic_id or "", partition, offset)
        return trace

    # --- from offsets -----------------------------------------------------------------------------------------------

    def offset(self, partition: int, offset: int) -> list[Trace]:
        """Trace an offset in each incarnation of the topic that the table was loaded from, the present one first."""
        topic_ids = dict.fromkeys(entry.topic_id for entry in reversed(self.entries))
        traces = [self._of_offset(topic_id, partition, offset) for topic_id in topic_ids]
        return traces[:1] + [trace for trace in traces[1:] if trace.outcome not in (NOT_LOADED, BEFORE)]

    def _of_offset(self, topic_id: str, partition: int, offset: int) -> Trace:
        at = OffsetRange(partition, offset, offset + 1)
        row = next(self._rows_at(topic_id, at), None)
        if row is not None:
            return self._of_row(*row)
        covering = next(self._covering(topic_id, partition, offset), None)
        if covering is None:
            return self._uncovered(topic_id, partition, offset)
        entry, commit = covering
        trace = Trace(topic_id, partition, offset, MISSING, loaded=self._commit(entry))
        if self._is_dead(trace, at) or self._is_erased(trace, at):
            return trace
        return self._other(trace, at, commit)

    def _uncovered(self, topic_id: str, partition: int, offset: int) -> Trace:
        trace = Trace(topic_id, partition, offset, NOT_LOADED)
        mine = [
            commit
            for entry in self.entries
            if entry.topic_id == topic_id and (commit := entry.partitions.get(str(partition)))
        ]
        for entry in self.entries:
            start, end = entry.lost.get(str(partition), [None, None])
            is_there = start is not None and start <= offset and (end is None or offset < end)
            if is_there and (entry.topic_id == topic_id or not mine or offset >= mine[-1].end):
                trace.outcome, trace.detail, trace.removed = LOST, entry.note, self._commit(entry)
                return trace
        if mine and offset < mine[0].start:
            trace.outcome, trace.detail = BEFORE, f"the first load began at {mine[0].start}"
        elif mine:
            trace.detail = f"the newest load ended before {mine[-1].end}"
        else:
            trace.detail = f"nothing was loaded of partition {partition}"
        return trace

    def _is_dead(self, trace: Trace, at: OffsetRange) -> bool:
        for file in self._dead_files(trace.topic_id, at.partition):
            letters = read_dead(self.table.io, file.path)
            low, high = letters["offset"].to_numpy(), letters["end_offset"].to_numpy()
            mask = (letters["partition"].to_numpy() == at.partition) & (low <= at.start) & (at.start < high)
            for letter in letters.filter(pa.array(mask)).to_pylist():
                trace.outcome, trace.detail = DEAD, str(letter["reason"])
                trace.file, trace.row = self._file(file.path), letter
                return True
        return False

    def _is_erased(self, trace: Trace, at: OffsetRange) -> bool:
        for entry in self.entries:
            for file in entry.erased:
                if file.topic_id != trace.topic_id or not file.may_have(at.partition, at.start, at.end):
                    continue
                if len(erased_offsets(self.table.layout, [file], at)):
                    by_others = entry.job.get("name") == "audit"
                    trace.outcome = RETAINED if entry.kind == "retain" else DELETED if by_others else ERASED
                    trace.detail, trace.removed = entry.note, self._commit(entry)
                    return True
        return False

    def _other(self, trace: Trace, at: OffsetRange, commit: PartitionCommit) -> Trace:
        """Trace an offset that is neither a row nor a dead letter, nor was erased."""
        named = " or ".join(text for name, text in NOT_DATA.items() if getattr(commit, name))
        in_log = self._in_log(trace, at) if named else RECORD
        if named and (self._is_accounted(trace, at.partition, commit) or in_log not in (RECORD, "")):
            trace.outcome, trace.detail = NO_RECORD, in_log if in_log in NOT_DATA.values() else named
        elif not in_log:
            trace.outcome, trace.detail = UNKNOWN, f"{named}, or a record that is missing"
        else:
            deletions = deletions_of_others(self.table, self.entries)
            for (topic_id, partition), offsets in deletions.offsets.items():
                if (topic_id, partition) == (trace.topic_id, at.partition) and at.start in offsets:
                    trace.outcome, trace.detail = DELETED, "; ".join(deletions.told)
        return trace

    def _in_log(self, trace: Trace, at: OffsetRange) -> str:
        """Return the content of the log at an offset: RECORD, one of the texts of NOT_DATA, or "" if it is unknown."""
        if self._log is None or trace.topic_id != self.state.topic_id:
            return ""
        log = open_log(self._log)
        try:
            if log.identity().topic_id != trace.topic_id:
                return ""
            counts = outline(log, at).counts
        except DataLossError:
            return ""  # retention has removed it from the log
        finally:
            log.close()
        return (
            RECORD
            if counts.records
            else next(text for name, text in NOT_DATA.items() if getattr(counts, name))
        )

    def _is_accounted(self, trace: Trace, partition: int, commit: PartitionCommit) -> bool:
        """Return whether all records of a commit are rows, dead letters or erased: then other offsets have no record."""
        span = OffsetRange(partition, commit.start, commit.end)
        erased = [file for entry in self.entries for file in entry.erased if file.topic_id == trace.topic_id]
        near = [file for file in erased if file.may_have(partition, span.start, span.end)]
        files = [Seen(file) for file in self._dead_files(trace.topic_id, partition)]
        there = [
            np.array([row["_offset"] for row, _ in self._rows_at(trace.topic_id, span)], np.int64),
            dead_offsets(self.table.layout, files, span)[1],
            erased_offsets(self.table.layout, near, span),
        ]
        return len(np.unique(np.concatenate(there))) == commit.loaded + commit.dead

    def _dead_files(self, topic_id: str, partition: int) -> list[DataFile]:
        dead = self._files.dead.values()
        return [file for file in dead if file.topic_id == topic_id and file.partition in (partition, -1)]

    # --- parts ------------------------------------------------------------------------------------------------------

    def _rows_at(self, topic_id: str, span: OffsetRange) -> Iterator[tuple[Document, Piece]]:
        for piece in self.table.pieces():
            if piece.bounds.topic_id in (topic_id, "") and piece.may_have(
                span.partition, span.start, span.end
            ):
                for rows in scan.rows(self.table.layout, [piece], self._columns):
                    mine = within(rows, topic_id, {span.partition: (span.start, span.end)})
                    yield from ((row, piece) for row in mine.to_pylist())

    def _covering(
        self, topic_id: str, partition: int, offset: int
    ) -> Iterator[tuple[Entry, PartitionCommit]]:
        for entry in self.entries:
            commit = entry.partitions.get(str(partition))
            if commit is not None and entry.topic_id == topic_id and commit.start <= offset < commit.end:
                yield entry, commit

    def _history(self, topic_id: str, partition: int, offset: int) -> str:
        redrives: Iterable[Entry] = (
            entry
            for entry in self.entries
            if entry.topic_id == topic_id and offset in entry.redriven.get(str(partition), ())
        )
        return "; ".join(f"a dead letter until version {entry.version}" for entry in redrives)

    def _commit(self, entry: Entry) -> Document:
        """Return a commit's version, kind and job, and its snapshot and time, None if the snapshot has expired."""
        snapshot = self._snapshots.get(str(entry.version))
        when = None
        if snapshot is not None:
            when = datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC).isoformat(
                timespec="milliseconds"
            )
        return {
            "version": entry.version,
            "kind": entry.kind,
            "job": entry.job.get("id", ""),
            "snapshot": snapshot.snapshot_id if snapshot is not None else None,
            "at": when,
        }

    def _file(self, path: str) -> Document:
        entry = self._added.get(path)
        return {"path": path} | ({"by": "another engine"} if entry is None else self._commit(entry))


def plain(value: Any) -> Any:
    """Return a value of a row in JSON form."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
