"""Account of every offset: the log by its batch headers, compared with the files by their coordinates.

The rule: of the load's data only the digest of decoded batches is used, which the log confirms. A run is a range of
consecutive commits; Spark's tasks check its pieces.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from barnabas_pipeline.jobs.load import collected
from barnabas_pipeline.lake.coordinates import (
    FileCheck,
    Seen,
    check_file,
    dead_offsets,
    erased_offsets,
    row_offsets,
)
from barnabas_pipeline.lake.iceberg import Layout
from barnabas_pipeline.lake.ledger import DataFile, Entry, Files, PartitionCommit, State
from barnabas_pipeline.lake.table import Table
from barnabas_pipeline.log import digest
from barnabas_pipeline.log.model import Bounds, Log, LogOptions, OffsetRange
from barnabas_pipeline.log.outline import outline
from barnabas_pipeline.log.planning import split
from barnabas_pipeline.log.transports import open_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUN_OFFSETS = 500_000  # small commits are checked together up to this number
FILE_GROUP_BYTES = 64 << 20
EXAMPLES_MAX = 20
F = TypeVar("F", Seen, DataFile)
_NOTHING = Bounds(0, 0, 0, -1)  # of a partition that no longer exists


@dataclass(slots=True)
class Run:
    """Consecutive commits of one partition: their sums, the part that is still in the log, and the findings."""

    offset_range: OffsetRange
    digest: int | None  # None: a commit has no digest
    control: int
    aborted: int
    accounted: int  # number of offsets that are rows or dead letters
    in_log: OffsetRange  # the part that the log has
    findings: Findings = field(default_factory=lambda: Findings())

    @property
    def is_as_loaded(self) -> bool:
        """True if the log has all batches of the load, unchanged."""
        return self.in_log == self.offset_range and self.findings.digest == self.digest


@dataclass(slots=True)
class Findings:
    """Findings in a piece, or in all pieces of a run."""

    run: int = -1
    digest: int = 0
    control: int = 0
    aborted: int = 0
    rows: int = 0
    letters: int = 0
    accounted: int = 0
    gone: int = 0  # rows and dead letters of offsets that are not in the log
    erased: int = 0
    back_first: list[int] = field(default_factory=list)  # erased offsets that are rows
    missing: int = 0
    missing_first: list[int] = field(default_factory=list)
    doubled_first: list[int] = field(default_factory=list)
    strange_first: list[int] = field(default_factory=list)

    def add(self, other: Findings) -> None:
        """Add the findings in another piece of the same run."""
        self.digest = digest.add(self.digest, other.digest)
        for name in ("control", "aborted", "rows", "letters", "accounted", "gone", "erased", "missing"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("missing_first", "doubled_first", "strange_first", "back_first"):
            setattr(self, name, (getattr(self, name) + getattr(other, name))[:EXAMPLES_MAX])


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a run that one task checks, and the files that may have rows of it."""

    run: int
    offset_range: OffsetRange
    in_log: bool
    rows: tuple[Seen, ...]
    dead: tuple[Seen, ...]
    erased: tuple[DataFile, ...] = ()


Item = Piece | list[Seen]
"""Work of a task: a piece of the log, or files to check."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """The entries of the ledger, files with rows and files of dead letters that count at one state."""

    state: State
    entries: list[Entry]
    rows: list[Seen]
    dead: list[Seen]
    erased: list[DataFile] = field(default_factory=list)

    @property
    def files(self) -> list[Seen]:
        """All files with rows or dead letters."""
        return [*self.rows, *self.dead]


def take_inventory(table: Table) -> Inventory:
    """Return the entries and files that count now."""
    entries = table.entries()
    files = Files()
    for entry in entries:
        files.apply(entry)
    rows = [Seen(files.rows.get(piece.path), piece) for piece in table.pieces()]
    dead = [Seen(file) for file in files.dead.values()]
    return Inventory(table.state(), entries, rows, dead, list(files.erased.values()))


# --- planning -------------------------------------------------------------------------------------------------------


def plan_runs(entries: Iterable[Entry], state: State, bounds: Mapping[int, Bounds]) -> list[Run]:
    """Return the loads of the present incarnation as runs; the run at the start of the log is short."""
    runs: list[Run] = []
    last: dict[int, Run] = {}
    for entry in entries:
        if (entry.cluster_id, entry.topic_id) != (state.cluster_id, state.topic_id):
            continue
        for key, commit in entry.partitions.items():
            partition = int(key)
            bound = bounds.get(partition, _NOTHING)
            run = last.get(partition)
            if run is None or not _goes_on(run, commit, bound):
                nothing = OffsetRange(partition, commit.start, commit.start)
                run = last[partition] = Run(nothing, 0, 0, 0, 0, nothing)
                runs.append(run)
            _extend(run, commit, bound)
    return [run for run in runs if len(run.offset_range)]


def _goes_on(run: Run, commit: PartitionCommit, bound: Bounds) -> bool:
    is_near_start = run.offset_range.start < bound.start < commit.end
    together = commit.end - run.offset_range.start
    has_digest = (run.digest is None) == (not commit.log_digest)
    return (
        run.offset_range.end == commit.start and together <= RUN_OFFSETS and has_digest and not is_near_start
    )


def _extend(run: Run, commit: PartitionCommit, bound: Bounds) -> None:
    new = digest.decode(commit.log_digest)
    run.digest = None if new is None or run.digest is None else digest.add(run.digest, new)
    partition, start = run.offset_range.partition, run.offset_range.start
    run.offset_range = OffsetRange(partition, start, commit.end)
    first = min(max(start, bound.start), commit.end)
    run.in_log = OffsetRange(partition, first, max(first, min(commit.end, bound.end)))
    run.control += commit.control
    run.aborted += commit.aborted
    run.accounted += commit.loaded + commit.dead


def _pieces(inventory: Inventory, log: Log, runs: list[Run]) -> Iterator[Piece]:
    rows, dead = ([file for file in files if file.may_be_of(inventory.state.topic_id)]
                  for files in (inventory.rows, inventory.dead))  # fmt: skip
    erased = [file for file in inventory.erased if file.topic_id == inventory.state.topic_id]
    for n, run in enumerate(runs):
        before = replace(run.in_log, start=run.offset_range.start, end=run.in_log.start)
        behind = replace(run.in_log, start=run.in_log.end, end=run.offset_range.end)
        parts = [(piece, True) for piece in split(log, [run.in_log])]
        for offset_range, in_log in (*parts, (before, False), (behind, False)):
            if len(offset_range):
                near = _near(rows, offset_range), _near(dead, offset_range), _near(erased, offset_range)
                yield Piece(n, offset_range, in_log, *near)


def _near(files: list[F], offset_range: OffsetRange) -> tuple[F, ...]:
    """Return the files that may have rows or dead letters of a range."""
    partition, start, end = offset_range.partition, offset_range.start, offset_range.end
    return tuple(file for file in files if file.may_have(partition, start, end))


# --- looking --------------------------------------------------------------------------------------------------------


def look(
    spark: SparkSession, layout: Layout, inventory: Inventory, log: Log, options: LogOptions, runs: list[Run]
) -> list[FileCheck]:
    """Check all files and all runs, in one Spark job; findings are noted in the runs."""
    items: list[Item] = [*_pieces(inventory, log, runs), *_file_groups(inventory)]
    if not items:
        return []
    topic_id = inventory.state.topic_id

    def work(mine: Iterable[Item]) -> Iterable[Findings | FileCheck]:
        return _look(mine, layout, options, topic_id)

    slices = min(len(items), max(4 * spark.sparkContext.defaultParallelism, len(items) // 16))
    results = collected(spark.sparkContext.parallelize(items, slices).mapPartitions(work))
    for result in results:
        if isinstance(result, Findings):
            runs[result.run].findings.add(result)
    return [result for result in results if isinstance(result, FileCheck)]


def _file_groups(inventory: Inventory) -> Iterator[list[Seen]]:
    group: list[Seen] = []
    size = 0
    for file in inventory.files:
        more = file.entry.size if file.entry is not None else file.piece.size if file.piece is not None else 0
        if group and size + more > FILE_GROUP_BYTES:
            yield group
            group, size = [], 0
        group.append(file)
        size += more
    if group:
        yield group


def _look(
    items: Iterable[Item], layout: Layout, options: LogOptions, topic_id: str
) -> Iterator[Findings | FileCheck]:
    log = None
    try:
        for item in items:
            if not isinstance(item, Piece):
                yield from (check_file(layout, file, topic_id) for file in item)
                continue
            if log is None and item.in_log:
                log = open_log(options)
            yield look_at(layout, item, log, topic_id)
    finally:
        if log is not None:
            log.close()


def look_at(layout: Layout, piece: Piece, log: Log | None, topic_id: str) -> Findings:
    """Compare the offsets in a piece of the log with the offsets in the lake."""
    rows = row_offsets(layout, piece.rows, piece.offset_range, topic_id)
    letters, dead = dead_offsets(layout, piece.dead, piece.offset_range)
    both = np.sort(np.concatenate([rows, dead]))
    is_again = np.append(False, both[1:] == both[:-1])
    findings = Findings(piece.run, rows=len(rows), letters=letters, accounted=len(both))
    findings.doubled_first = np.unique(both[is_again])[:EXAMPLES_MAX].tolist()
    both = both[~is_again]
    erased = erased_offsets(layout, piece.erased, piece.offset_range)
    findings.back_first = np.intersect1d(erased, both, assume_unique=True)[:EXAMPLES_MAX].tolist()
    findings.erased = len(erased) - len(np.intersect1d(erased, both, assume_unique=True))
    findings.accounted += findings.erased
    if not piece.in_log or log is None:
        findings.gone = len(both)
        return findings
    there = outline(log, piece.offset_range)
    findings.digest, findings.control, findings.aborted = (
        there.counts.digest,
        there.counts.control,
        there.counts.aborted,
    )
    findings.missing, findings.missing_first = there.without(np.union1d(both, erased), EXAMPLES_MAX)
    strange = both[~there.has(both)]
    findings.gone, findings.strange_first = len(strange), strange[:EXAMPLES_MAX].tolist()
    return findings
