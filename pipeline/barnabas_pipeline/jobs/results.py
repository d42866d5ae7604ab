"""Files of a result: partials, results, and the commits that name them, below one location of any store.

The rule: a commit names the version of each table that was read, the partials of these versions, and their results. A file
that no commit names does not exist, so a killed run has committed nothing, or all of its work.

    commits/<version>.json     put if absent
    files/<version>-<uuid>/    files of a run: partials and their condensed form, by part; results
    results/<name>             the newest commit's, for readers; each is replaced atomically
    published/                 the last published version, for each location with published results
"""

from __future__ import annotations

import hashlib
import io
import json
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pc_csv
import pyarrow.parquet as pq

from barnabas_pipeline import faults
from barnabas_pipeline.errors import UsageError
from barnabas_pipeline.lake import conditional, frames, store
from barnabas_pipeline.lake.files import OpenFile
from barnabas_pipeline.lake.iceberg import explained, is_foreign
from barnabas_pipeline.lake.scan import BATCH_ROWS
from barnabas_pipeline.lake.store import LOCAL, StoreIO
from barnabas_pipeline.lake.table import TRIES_MAX, WAIT_SECONDS, ConflictError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from barnabas_pipeline.data_types import Document

COMMITS_KEPT = 10
"""Number of commits that are kept with their files, for runs that still read or extend them."""
PART = "part"
SCHEMES = {LOCAL, "hdfs", *conditional.SCHEMES}
"""Schemes of stores with conditional puts (put if absent)."""


def results_location(name: str) -> str:
    """Return the location that a path or URL names. Raises UsageError for a store that cannot keep results."""
    location = store.location_of(name)
    if location.partition(":")[0] not in SCHEMES:
        raise UsageError(
            f"{name}: results are kept in a directory, or in {', '.join(sorted(SCHEMES - {LOCAL}))}"
        )
    return location


@dataclass(slots=True)
class ResultState:
    """A commit of a result; paths are below its location."""

    version: int = 0
    inputs: dict[str, int] = field(default_factory=dict)
    """Version up to which each table was read."""
    digests: dict[str, str] = field(default_factory=dict)
    """Digest of the entry of that version, which differs after a rollback, or in a new table of that name."""
    params: Document = field(default_factory=dict)
    settings: str = ""
    partials: dict[str, str] = field(default_factory=dict)
    condensed: dict[str, str] = field(default_factory=dict)
    results: dict[str, str] = field(default_factory=dict)

    @property
    def paths(self) -> set[str]:
        """The paths of all its files."""
        return {*self.partials.values(), *self.condensed.values(), *self.results.values()}


class Results:
    """Commits and files of a result below a location."""

    def __init__(
        self, root: str, files: StoreIO, *, commits_kept: int = COMMITS_KEPT, tries_max: int = TRIES_MAX
    ) -> None:
        self.root = results_location(root)
        self.io = files
        self._commits_kept = commits_kept
        self._tries_max = tries_max

    @explained("the place of results")
    def state(self) -> ResultState:
        """Return the newest commit; version 0 before the first commit."""
        return next(self._commits(newest_first=True), ResultState())

    def begin(self, version: int) -> str:
        """Return a new location for the files of a version."""
        return self.path(f"files/{version:020d}-{uuid.uuid4().hex}")

    @explained("the place of results")
    def commit(self, state: ResultState) -> None:
        """Commit a version. Raises ConflictError if another run has committed it."""
        faults.point("derived.before_commit")
        data = json.dumps(asdict(state), sort_keys=True).encode()
        is_mine = self._put(self._commit_file(state.version), data)
        if not is_mine or self.state().version >= state.version + self._commits_kept:  # removed since
            raise ConflictError(f"version {state.version} of {self.root} was committed by another run")
        faults.point("derived.after_commit")
        self._vacuum(state.version)

    @explained("the place of results")
    def publish(self, directory: str) -> None:
        """Copy the newest results below a location, each atomically, and remove results of earlier kept commits there.

        Other files stay. A file that exists, and is older than the commits kept at the last copy, is not copied again; so a
        late copy of an overtaken run is replaced by the next copy.
        """
        mark = self.path(f"published/{hashlib.sha256(directory.encode()).hexdigest()[:16]}")
        before, published = 0, -1
        with suppress(FileNotFoundError):
            before = int(store.read(self.io, mark))
        while (state := self.state()).version != published:
            there = {
                file.location.removeprefix(f"{directory}/") for file in store.listing(self.io, directory)
            }
            for name, path in state.results.items():
                if name not in there or _version_of(path) > min(before, state.version) - self._commits_kept:
                    store.replace(self.io, f"{directory}/{name}", store.read(self.io, self.path(path)))
                    faults.point("derived.during_publish")
            for name in {
                name for commit in self._commits() for name in commit.results
            } - state.results.keys():
                with suppress(FileNotFoundError):
                    self.io.delete(f"{directory}/{name}")
            published = state.version
        if published != before:
            store.replace(self.io, mark, b"%d" % published)

    def path(self, path: str) -> str:
        """Return the location of a file that a commit names."""
        return f"{self.root}/{path}"

    def below(self, location: str) -> str:
        """Return the path of a location in a commit."""
        return location.removeprefix(f"{self.root}/")

    def write_parts(self, frame: DataFrame, directory: str) -> dict[str, str]:
        """Write a frame with the column `part`, each part into a separate file; returns the files by part.

        Files of repeated tasks have other names, and no commit names them.
        """
        files, schema = self.io, frames.arrow_schema(frame.sparkSession, frame.schema)

        def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            pieces = ((part, rows) for batch in batches for part, rows in _runs(batch))
            for part, group in groupby(pieces, lambda piece: piece[0]):
                file = OpenFile(files, f"{directory}/{uuid.uuid4().hex}.parquet", schema)
                for _, rows in group:
                    file.write(rows.cast(schema))
                file.finish()
                yield pa.RecordBatch.from_pydict({PART: [part], "location": [file.location]})

        named = (
            frame.repartition(PART)
            .sortWithinPartitions(PART)
            .mapInArrow(write, "part string, location string")
        )
        return {row[PART]: self.below(row["location"]) for row in named.collect()}

    def read_parts(self, spark: SparkSession, parts: Mapping[str, str], schema: StructType) -> DataFrame:
        """Return the rows of some parts, with the columns of a Spark schema; columns that a file lacks are null."""
        files, arrow = self.io, frames.arrow_schema(spark, schema)

        def read(locations: list[bytes]) -> Iterator[pa.Table]:
            for location in locations:
                with files.new_input(location.decode()).open() as stream:
                    for batch in pq.ParquetFile(stream).iter_batches(BATCH_ROWS):
                        yield _with_columns(batch, arrow)

        return frames.read_items(spark, [self.path(part).encode() for part in parts.values()], schema, read)

    @explained("the place of results")
    def rows(self, path: str) -> int:
        """Return the number of rows of a part."""
        with self.io.new_input(self.path(path)).open() as stream:
            return int(pq.read_metadata(stream).num_rows)

    @explained("the place of results")
    def read_table(self, path: str) -> pa.Table:
        """Return a result as an Arrow table."""
        return pq.read_table(pa.BufferReader(store.read(self.io, self.path(path))))

    @explained("the place of results")
    def write_tables(self, tables: Iterable[tuple[str, pa.Table]], directory: str) -> dict[str, str]:
        """Write tables, each as Parquet and, unless it has lists, as CSV; returns the files by their names."""
        named = {}
        for name, table in tables:
            rows = table.sort_by(
                [(column, "ascending") for column in table.column_names if _is_plain(table, column)]
            )
            formats = {"parquet": pq.write_table}
            if all(_is_plain(table, column) for column in table.column_names):
                formats["csv"] = pc_csv.write_csv
            for ending, write in formats.items():
                buffer = io.BytesIO()
                write(rows, buffer)
                store.write(self.io, f"{directory}/{name}.{ending}", buffer.getvalue())
                named[f"{name}.{ending}"] = self.below(f"{directory}/{name}.{ending}")
        return named

    def _commit_file(self, version: int) -> str:
        return self.path(f"commits/{version:020d}.json")

    def _put(self, location: str, data: bytes) -> bool:
        """Write a commit unless it exists, and retry until the outcome is known; returns whether it is this run's."""
        tries = 0
        while True:
            try:
                return store.put_if_absent(self.io, location, data) or store.read(self.io, location) == data
            except FileNotFoundError:
                return False  # another run's, removed after many more commits
            except Exception as error:
                tries += 1
                if not is_foreign(error) or tries == self._tries_max:
                    raise
                time.sleep(WAIT_SECONDS * 2**tries)

    def _commits(self, *, newest_first: bool = False) -> Iterator[ResultState]:
        """Yield the existing commits, oldest first, without commits that another run removes meanwhile."""
        there = (file.location for file in store.listing(self.io, self.path("commits")))
        for location in sorted((path for path in there if path.endswith(".json")), reverse=newest_first):
            with suppress(FileNotFoundError):
                yield ResultState(**json.loads(store.read(self.io, location)))

    def _vacuum(self, newest: int) -> None:
        """Remove older commits than the kept ones, with files that only they name, and unnamed files."""
        commits = [*self._commits()]
        if len(commits) <= self._commits_kept:
            return
        kept = {path for commit in commits[-self._commits_kept :] for path in commit.paths}
        there = sorted(self.below(file.location) for file in store.listing(self.io, self.path("files")))
        for run, paths in groupby(there, lambda path: "/".join(path.split("/")[:2])):
            if _version_of(run) <= newest - self._commits_kept:
                self._clean(run, [*paths], kept)
        for commit in commits[: -self._commits_kept]:
            with suppress(FileNotFoundError):
                self.io.delete(self._commit_file(commit.version))

    def _clean(self, run: str, paths: list[str], kept: set[str]) -> None:
        """Remove the files of a run that are not kept; another run may do the same."""
        with suppress(FileNotFoundError):
            if kept.isdisjoint(paths):
                system, place = self.io.file_system(self.path(run))
                system.delete_dir(place)
                return
        for path in paths:
            if path not in kept:
                with suppress(FileNotFoundError):
                    self.io.delete(self.path(path))


def _version_of(path: str) -> int:
    """Return the version of the run that has written a file."""
    return int(path.split("/")[1].partition("-")[0])


def _runs(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.Table]]:
    """Yield the parts of a batch sorted by part, each with its rows."""
    table, start = pa.Table.from_batches([batch]), 0
    parts = pc.run_end_encode(batch.column(PART))
    for part, end in zip(parts.values.to_pylist(), parts.run_ends.to_pylist(), strict=True):
        yield part, table.slice(start, end - start)
        start = end


def _with_columns(batch: pa.RecordBatch, schema: pa.Schema) -> pa.Table:
    there = {*batch.schema.names}
    columns = [
        batch.column(field.name).cast(field.type) if field.name in there else pa.nulls(len(batch), field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _is_plain(table: pa.Table, column: str) -> bool:
    kind = table.schema.field(column).type
    return not (pa.types.is_list(kind) or pa.types.is_struct(kind))
