"""Results from lakes: partial aggregates that merge in any order, and final results.

The rule: a job's result is a function of the set of events, not of their order or batches. Partials have whole numbers and
sets, so merging them is exact; fractions appear only in the last step. So a batch, a stream of micro-batches and a replay
give the same bytes. A run reads the files added since the last commit, and merges their partials into the affected old
parts. The job defines the parts: a day, a bucket, a partition. The cost depends on the new files, and on the condensed form
of the other parts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from barnabas_pipeline import faults
from barnabas_pipeline.errors import UsageError
from barnabas_pipeline.jobs.results import COMMITS_KEPT, PART, Results, ResultState, results_location
from barnabas_pipeline.lake import frames
from barnabas_pipeline.lake.iceberg import Lake, explained, lake_of, store_properties
from barnabas_pipeline.lake.ledger import HOUR_MS, DataFile, Entry, State, hour_number
from barnabas_pipeline.lake.scan import Piece, Span
from barnabas_pipeline.lake.store import StoreIO, local_path
from barnabas_pipeline.lake.table import Table

if TYPE_CHECKING:
    import argparse

    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession

    from barnabas_pipeline.data_types import Document, Json
    from barnabas_pipeline.simulate.model import Truth

NEW_ROWS = ("load", "restart", "redrive")
"""Kinds of commits that add rows; other kinds rewrite existing rows."""
GROUP = "barnabas_pipeline.jobs"
"""Entry point group of jobs of other packages."""


class DerivedJob:
    """Base of jobs. A small job defines `name`, `kinds`, `partial` and `finish`."""

    name: str
    kinds: tuple[str, ...]
    """The tables that the job reads, by the names of their topics (without prefix)."""
    sums: tuple[str, ...] = ("count",)
    """Columns of partials that are added up; rows with equal values in all other columns are merged."""

    def partial(self, tables: Mapping[str, DataFrame]) -> DataFrame:
        """Return a frame of partials, aggregated from frames of events, one for each loaded kind."""
        raise NotImplementedError

    def merge(self, partials: DataFrame) -> DataFrame:
        """Merge partials with common keys; the result is a frame of partials, too."""
        from pyspark.sql import functions as sf

        keys = [column for column in partials.columns if column not in self.sums]
        return partials.groupBy(*keys).agg(*(sf.sum(column).alias(column) for column in self.sums))

    def part(self) -> SparkColumn:
        """Return the column with the part of a partial; a run rewrites the parts with new events.

        Null and the empty text are the part `none`.
        """
        from pyspark.sql import functions as sf

        return sf.lit("all")

    def condense(self, partials: DataFrame) -> DataFrame:
        """Reduce the partials of each part, by the column `part`, to the input of `finish`."""
        return partials

    def by_part(self, partials: DataFrame) -> Mapping[str, DataFrame]:  # noqa: ARG002 - for those that have some
        """Return the results of each part, by name, with the column `part`; results of other parts are kept.

        Files are named by part, URL-encoded.
        """
        return {}

    def finish(self, condensed: DataFrame) -> Mapping[str, DataFrame]:
        """Return the final results, by name, from all condensed parts, which have the column `part`."""
        raise NotImplementedError

    def params(self) -> Document:
        """Return the settings that partials depend on: a change causes a replay."""
        return vars(self)

    def messages(self, derived: Derived) -> Mapping[str, Json]:
        """Return results as messages for a topic, by key; a job without messages does not define it."""
        raise NotImplementedError

    def score(self, derived: Derived, truth: Truth) -> Document:  # noqa: ARG002 - for those that can
        """Return scores of the results, compared with the truth of a simulation."""
        return {}

    @classmethod
    def add_options(cls, parser: argparse.ArgumentParser) -> None:
        """Add the job's command-line options."""

    @classmethod
    def from_options(cls, args: argparse.Namespace) -> DerivedJob:  # noqa: ARG003 - for those that have some
        """Return a job with these options. Raises UsageError."""
        return cls()


@dataclass(slots=True)
class DerivedSummary:
    """Figures of one run: the tables' and partials' data read, the number of parts written."""

    version: int = 0
    files_read: int = 0
    rows_read: int = 0
    partials_read: int = 0
    parts: int = 0
    is_replay: bool = False
    rows: dict[str, int] = field(default_factory=dict)
    results: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _News:
    """Files that a run reads, by kind; `is_replay` if these are all files."""

    pieces: dict[str, list[Piece]]
    is_replay: bool

    @property
    def all(self) -> list[Piece]:
        return [piece for pieces in self.pieces.values() for piece in pieces]


class Derived:
    """The results of one job below `root`, from the lake below `lake`, of all events or of a span of time.

    Both are directories or locations of any store; the lake's properties apply to both stores.
    """

    def __init__(
        self,
        job: DerivedJob,
        *,
        lake: Lake | str,
        root: str,
        prefix: str = "",
        span_ms: tuple[int, int] | None = None,
        commits_kept: int = COMMITS_KEPT,
    ):
        self.job = job
        self.root = f"{results_location(root)}/{job.name}"
        files = StoreIO(store_properties(lake_of(lake)))
        self.store = Results(self.root, files, commits_kept=commits_kept)
        self.tables = {kind: Table(lake_of(lake).place(f"{prefix}{kind}")) for kind in job.kinds}
        self._span_ms = span_ms

    def states(self) -> dict[str, State]:
        """Read the states of the tables. Raises UsageError if none exists."""
        states = {kind: table.refresh() for kind, table in self.tables.items()}
        if not any(state.version for state in states.values()):
            places = ", ".join(table.place.location for table in self.tables.values())
            raise UsageError(f"there is nothing in {places}")
        return states

    def update(
        self,
        spark: SparkSession,
        *,
        replay: bool = False,
        states: Mapping[str, State] | None = None,
        out: str = "",
    ) -> DerivedSummary:
        """Aggregate new events of the lake (with `replay` all of them), commit, and publish results to `out`.

        Raises ConflictError, UsageError.
        """
        earlier = self.store.state()
        states = states or self.states()
        params = json.loads(json.dumps(self.job.params(), default=repr))
        news = (
            None if replay or not earlier.version or earlier.params != params else self.news(earlier, states)
        )
        if news is None:
            news = _News({name: table.pieces(span=self._span(states[name])) for name, table in self.tables.items()
                          if states[name].version}, is_replay=True)  # fmt: skip
        settings = hashlib.sha256(
            json.dumps(vars(self.job), sort_keys=True, default=repr).encode()
        ).hexdigest()
        files = news.all
        summary = DerivedSummary(files_read=len(files), rows_read=sum(file.rows for file in files))
        summary.is_replay = news.is_replay
        newer = replace(
            earlier,
            version=earlier.version + 1,
            inputs={kind: state.version for kind, state in states.items()},
            digests={kind: state.digest for kind, state in states.items()},
            params=params,
            settings=settings,
        )
        if files or news.is_replay or settings != earlier.settings:
            self._make(spark, earlier, newer, states, news, summary)
        if newer != replace(earlier, version=newer.version):
            self.store.commit(newer)
        self._report(summary, out or f"{self.root}/results")
        return summary

    def result(self, name: str) -> pa.Table:
        """Return a result of the newest commit as an Arrow table; a result by parts with the rows of all parts."""
        results = self.store.state().results
        names = [
            path
            for path in sorted(results)
            if path.endswith(".parquet") and path.removesuffix(".parquet").split("/")[0] == name
        ]
        return pa.concat_tables(self.store.read_table(results[path]) for path in names)

    # --- new files --------------------------------------------------------------------------------------------------

    def news(self, earlier: ResultState, states: Mapping[str, State]) -> _News | None:
        """Return the files added after the last commit; None if that is unknown, or rows have changed since."""
        chosen: dict[str, list[Piece]] = {}
        for kind, table in self.tables.items():
            if not states[kind].version:
                continue
            chosen[kind] = []
            entries = table.entries(earlier.inputs.get(kind, 0))
            if earlier.digests.get(kind, "") != (entries[0].previous if entries else states[kind].digest):
                return None  # the table was rolled back, or replaced
            for entry in entries:
                if self._has_changed_rows(entry):
                    return None
                if entry.kind in NEW_ROWS:
                    chosen[kind] += [
                        Piece(file.path, rows=file.rows) for file in entry.add if self.is_in_span(file)
                    ]
            with explained():
                are_there = all(table.io.new_input(piece.path).exists() for piece in chosen[kind])
            if not are_there:
                return None  # compacted and removed before this run
        return _News(chosen, is_replay=False)

    def is_in_span(self, file: DataFile) -> bool:
        """Return whether a file may have events of the requested span."""
        return not file.hours or self._has_any(file.hours)

    def _has_changed_rows(self, entry: Entry) -> bool:
        """Return whether a commit may have changed or removed rows of the span; erasures do not record hours."""
        if entry.kind == "backfill":
            return self._has_any(map(hour_number, entry.job["hours"]))
        return entry.kind == "erase"

    def _has_any(self, hours: Iterable[int]) -> bool:
        """Return whether any of these hours is in the span."""
        if self._span_ms is None:
            return True
        first, last = self._span_ms[0] // HOUR_MS, (self._span_ms[1] - 1) // HOUR_MS
        return any(first <= hour <= last for hour in hours)

    def _span(self, state: State) -> Span | None:
        return None if self._span_ms is None else (str(state.schema["event_time"]), *self._span_ms)

    # --- partials and results ---------------------------------------------------------------------------------------

    def _make(
        self,
        spark: SparkSession,
        earlier: ResultState,
        newer: ResultState,
        states: Mapping[str, State],
        news: _News,
        summary: DerivedSummary,
    ) -> None:
        """Write partials and results of a commit, and name them in it."""
        directory = self.store.begin(newer.version)
        kept = ResultState() if news.is_replay else earlier
        fresh, merged = self._merged(spark, kept, states, news, summary)
        try:
            changed = self.store.write_parts(merged, f"{directory}/partials")
        finally:
            fresh.unpersist()
        summary.parts = len(changed)
        newer.partials = kept.partials | changed
        faults.point("derived.after_partials")
        if newer.settings != kept.settings:  # the other results may change
            changed, kept = newer.partials, ResultState()
        touched = self.store.read_parts(spark, changed, fresh.schema)
        newer.condensed, condensed = newer.partials, touched
        if type(self.job).condense is not DerivedJob.condense:
            condensed = self.job.condense(touched)
            newer.condensed = kept.condensed | self.store.write_parts(condensed, f"{directory}/condensed")
        tables = [(name, frame.toArrow()) for name, frame in self.job.finish(
            self.store.read_parts(spark, newer.condensed, condensed.schema)).items()]  # fmt: skip
        for name, frame in self.job.by_part(touched).items():
            table = frame.toArrow()
            tables += [
                (f"{name}/{quote(part, safe='')}", table.filter(pc.equal(table[PART], part)).drop([PART]))
                for part in pc.unique(table[PART]).to_pylist()
            ]
        by_part = {name: path for name, path in kept.results.items() if "/" in name}
        newer.results = by_part | self.store.write_tables(tables, f"{directory}/results")
        summary.rows = {name: table.num_rows for name, table in tables}

    def _merged(
        self,
        spark: SparkSession,
        kept: ResultState,
        states: Mapping[str, State],
        news: _News,
        summary: DerivedSummary,
    ) -> tuple[DataFrame, DataFrame]:
        """Return (the partials of new events, these merged with the parts that they affect)."""
        tables = {
            kind: frames.read_pieces(
                spark, self.tables[kind], states[kind], pieces, span=self._span(states[kind])
            )
            for kind, pieces in news.pieces.items()
        }
        fresh = self._in_parts(self.job.merge(self.job.partial(tables))).persist()
        touched = [row[PART] for row in fresh.select(PART).distinct().collect()] if kept.partials else []
        old = {part: kept.partials[part] for part in touched if part in kept.partials}
        if not old:
            return fresh, fresh
        before = self.store.read_parts(spark, old, fresh.schema)
        summary.partials_read = sum(self.store.rows(path) for path in old.values())
        return fresh, self._in_parts(self.job.merge(fresh.unionByName(before).drop(PART)))

    def _in_parts(self, partials: DataFrame) -> DataFrame:
        from pyspark.sql import functions as sf

        part = sf.nullif(self.job.part().cast("string"), sf.lit(""))  # Spark writes both to one directory
        return partials.withColumn(PART, sf.coalesce(part, sf.lit("none")))

    def _report(self, summary: DerivedSummary, out: str) -> None:
        self.store.publish(out)
        state = self.store.state()
        summary.version = state.version
        summary.results = {
            name.removesuffix(".parquet"): str(local_path(f"{out}/{name}") or f"{out}/{name}")
            for name in state.results
            if name.endswith(".parquet")
        }


def day(column: str) -> SparkColumn:
    """Return the day of a time in ms, as `2026-11-20`, for `DerivedJob.part`."""
    from pyspark.sql import functions as sf

    return sf.date_format(sf.timestamp_millis(column), "yyyy-MM-dd")
