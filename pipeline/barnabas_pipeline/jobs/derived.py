"""Results from lakes: partial aggregates that merge in any order, and what follows from them.

The rule: a job's result is a function of the set of events, not of how they came. Partials hold whole numbers and sets,
so merging them is exact; fractions appear only in the last step. So a batch, a stream of micro-batches and a replay give
the same bytes.

One commit says at once which lake versions are in and where the merged partials are: `_log/<n>.json`, put if absent.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.csv as pc_csv
import pyarrow.parquet as pq

from barnabas_pipeline.errors import UsageError
from barnabas_pipeline.lake import frames
from barnabas_pipeline.lake.iceberg import Lake, explained, lake_of
from barnabas_pipeline.lake.ledger import State
from barnabas_pipeline.lake.scan import Piece
from barnabas_pipeline.lake.store import put_if_absent
from barnabas_pipeline.lake.table import ConflictError, Table

REPLAY_KINDS = ("backfill",)  # after these, what was aggregated is not what the lake says any more


class DerivedJob(Protocol):
    """Parts that a job is made of."""

    name: str
    kinds: tuple[str, ...]
    """The tables that it reads, by the name of their topic (without prefix)."""

    def partial(self, tables: Mapping[str, Any]) -> Any:
        """Aggregate the events of some frames, one for each kind, into a frame of partials."""
        ...

    def merge(self, partials: Any) -> Any:
        """Merge partials that may say something of the same things; the result is a frame of partials, too."""
        ...

    def finish(self, partials: Any) -> Mapping[str, Any]:
        """Make the results, by name, of merged partials. Each has the columns `order_by` first."""
        ...


@dataclass(slots=True)
class DerivedState:
    """The last commit of a result."""

    version: int = 0
    inputs: dict[str, int] = field(default_factory=dict)
    partials: str = ""
    params: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class DerivedSummary:
    """Figures of one run."""

    version: int = 0
    files_read: int = 0
    is_replay: bool = False
    rows: dict[str, int] = field(default_factory=dict)
    results: dict[str, str] = field(default_factory=dict)


class Derived:
    """The results of one job below `root`, from the lake below `lake`."""

    def __init__(
        self,
        job: DerivedJob,
        *,
        lake: Lake | str,
        root: str,
        prefix: str = "",
        params: dict[str, Any] | None = None,
    ):
        self.job = job
        self.root = Path(root).absolute() / job.name
        self.tables = {kind: Table(lake_of(lake).place(f"{prefix}{kind}")) for kind in job.kinds}
        self.params = params or {}

    def state(self) -> DerivedState:
        """The last commit."""
        versions = sorted((self.root / "_log").glob("*.json"))
        if not versions:
            return DerivedState()
        return DerivedState(**json.loads(versions[-1].read_text()))

    def update(self, spark: Any, *, replay: bool = False) -> DerivedSummary:
        """Take in what is new in the lake (or everything again), and write the results. Raises ConflictError."""
        known = self.state()
        states = {kind: table.refresh() for kind, table in self.tables.items()}
        if not any(state.version for state in states.values()):
            raise UsageError(
                f"there is nothing in {', '.join(table.place.location for table in self.tables.values())}"
            )
        new = (
            None if replay or not known.version or known.params != self.params else self._news(known, states)
        )
        is_replay = new is None
        chosen = {kind: table.pieces() for kind, table in self.tables.items()} if new is None else new
        count = sum(map(len, chosen.values()))
        if count or is_replay:
            read = {kind: frames.read_pieces(spark, self.tables[kind], states[kind], chosen[kind]) for kind in chosen
                    if states[kind].version}  # fmt: skip
            partials = self.job.partial(read)
            if not is_replay:
                partials = self.job.merge(
                    partials.unionByName(spark.read.parquet(str(self.root / known.partials)))
                )
            else:
                partials = self.job.merge(partials)
            known = self._commit(known, states, partials)
        summary = DerivedSummary(known.version, count, is_replay)
        self._write_results(spark, known, summary)
        return summary

    def _news(self, known: DerivedState, states: Mapping[str, State]) -> dict[str, list[Piece]] | None:
        """The files that came after the last commit; None if that cannot be told, or rows have changed since."""
        chosen: dict[str, list[Piece]] = {}
        for kind, table in self.tables.items():
            chosen[kind] = []
            if known.inputs.get(kind, 0) > states[kind].version:
                return None  # the table went back
            for entry in table.entries(known.inputs.get(kind, 0)):
                if entry.kind in REPLAY_KINDS:
                    return None
                if entry.kind != "compact":
                    chosen[kind] += [Piece(file.path) for file in entry.add]
            with explained():
                are_there = all(table.io.new_input(piece.path).exists() for piece in chosen[kind])
            if not are_there:
                return None  # compacted and removed before anybody came
        return chosen

    def _commit(self, known: DerivedState, states: Mapping[str, State], partials: Any) -> DerivedState:
        name = f"partials/{uuid.uuid4().hex}"
        partials.coalesce(1).write.parquet(str(self.root / name))
        inputs = {kind: state.version for kind, state in states.items()}
        state = DerivedState(known.version + 1, inputs, name, self.params)
        log = self.root / "_log"
        log.mkdir(parents=True, exist_ok=True)
        text = json.dumps({one: getattr(state, one) for one in DerivedState.__slots__}, sort_keys=True)
        if not put_if_absent(log / f"{state.version:020d}.json", text.encode()):
            raise ConflictError(f"version {state.version} of {self.root} was committed by another run")
        return state

    def _write_results(self, spark: Any, state: DerivedState, summary: DerivedSummary) -> None:
        partials = spark.read.parquet(str(self.root / state.partials))
        directory = self.root / "results"
        directory.mkdir(exist_ok=True)
        for name, frame in self.job.finish(partials).items():
            table = frame.toArrow()
            table = table.sort_by(
                [(column, "ascending") for column in table.column_names if _is_sortable(table, column)]
            )
            write_table(directory / name, table)
            summary.rows[name] = table.num_rows
            summary.results[name] = str(directory / f"{name}.parquet")

    def result(self, name: str) -> Any:
        """A result as an Arrow table."""
        return pq.read_table(self.root / "results" / f"{name}.parquet")


def _is_sortable(table: Any, column: str) -> bool:
    kind = table.schema.field(column).type
    return not (pa.types.is_list(kind) or pa.types.is_struct(kind))


def write_table(path: Path, table: Any) -> None:
    """Write a result as Parquet and, unless it has lists, as CSV; each replaces the one before as a whole."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    pq.write_table(table, temporary)
    temporary.replace(path.with_name(f"{path.name}.parquet"))
    if all(_is_sortable(table, column) for column in table.column_names):
        pc_csv.write_csv(table, temporary)
        temporary.replace(path.with_name(f"{path.name}.csv"))
