"""A table of current rows by key, which follows a table of events: NAME__current beside NAME.

The rule: its snapshot names an entry of a separate ledger, with the offsets of the events, by partition, up to which the
rows are current. Rows and offsets are committed together, on the snapshot that was read; so a run that is killed or
started twice changes nothing.

It is partitioned by a bucket of the key. A commit rewrites only the buckets with changes.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError
from pyiceberg.expressions import parser
from pyiceberg.transforms import BucketTransform, IdentityTransform, Transform

from barnabas_pipeline import faults
from barnabas_pipeline.errors import UsageError
from barnabas_pipeline.lake import iceberg, scan, store, table_schema
from barnabas_pipeline.lake.changes import (
    BUCKET,
    DELETED,
    NO_BUCKET,
    OFFSET,
    Form,
    Moment,
    Shape,
    changes,
    merge,
    within,
)
from barnabas_pipeline.lake.columns import PARTITION
from barnabas_pipeline.lake.files import TARGET_FILE_BYTES, OpenFile
from barnabas_pipeline.lake.iceberg import (
    KIND,
    LOCATION,
    PATH,
    PROPERTIES,
    SHA256,
    VERSION,
    Head,
    Layout,
    Lineage,
    explained,
)
from barnabas_pipeline.lake.ledger import BrokenLakeError, DataFile, digest
from barnabas_pipeline.lake.pyiceberg_internals import file_statistics
from barnabas_pipeline.lake.scan import Piece
from barnabas_pipeline.lake.table import ConflictError, Table, begin, read_entry, write_entry
from barnabas_pipeline.lake.vacuum import named

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.io import FileIO
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table as IcebergTable
    from pyiceberg.table.metadata import TableMetadata

    from barnabas_pipeline.data_types import Integers

SUFFIX = "__current"
FORMAT = 1
ROWS_PER_BLOCK = 200_000


@dataclass(slots=True)
class Applied:
    """An entry of the ledger: the applied events, and the table's parameters.

    `truncated` is the last truncation; `gone` has, by bucket, the file with the moments of deleted rows, and is None where
    these are not kept: the topic has one partition.
    """

    version: int = 0
    path: str = ""
    digest: str = ""
    previous: str = ""
    previous_path: str = ""
    shape: Shape | None = None
    events_version: int = 0
    events_digest: str = ""
    topic_id: str = ""
    ends: dict[int, int] = field(default_factory=dict)
    truncated: Moment | None = None
    gone: dict[int, str] | None = None
    lost: int = 0
    rebuilt: str = ""

    def encode(self) -> bytes:
        """Return the stored form."""
        held = asdict(self)
        for name in ("path", "digest"):
            del held[name]
        return (json.dumps({**held, "format": FORMAT}, sort_keys=True, separators=(",", ":")) + "\n").encode()

    @classmethod
    def decode(cls, path: str, data: bytes) -> Applied:
        """Decode an entry from its stored form. Raises BrokenLakeError."""
        try:
            held = json.loads(data)
            if held.pop("format") != FORMAT:
                raise BrokenLakeError(f"{path} is of a format that is not known here")
            shape = held.pop("shape")
            applied = cls(**held, path=path, digest=digest(data))
            applied.shape = Shape(tuple(shape["key"]), shape["envelope"], shape["buckets"])
            applied.ends = {int(partition): end for partition, end in applied.ends.items()}
            applied.truncated = None if applied.truncated is None else Moment(*applied.truncated)
            applied.gone = (
                None
                if applied.gone is None
                else {int(partition): place for partition, place in applied.gone.items()}
            )
            return applied
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise BrokenLakeError(f"{path} cannot be read: {error!r}") from None


class CurrentTable:
    """The table of current rows of a table of events. Commits of other writers are visible only after `refresh`."""

    def __init__(self, events: Table, name: str = "") -> None:
        name = iceberg.checked_name(name or f"{events.place.name}{SUFFIX}")
        self.events = events
        self.place = replace(
            events.place,
            name=name,
            location=f"{events.place.location}/{store.CURRENT}/{name}",
            branch=iceberg.MAIN,
        )
        self.iceberg: IcebergTable | None = None
        self.applied = Applied()
        self.is_behind = False  # the current snapshot precedes `applied`, after a rollback

    @property
    def is_endangered(self) -> bool:
        """Return whether files are where an earlier release wrote them: other engines treat those as orphans."""
        return self.iceberg is not None and (
            self.iceberg.location() != self.place.location or iceberg.is_elsewhere(self.iceberg)
        )

    @property
    def existing(self) -> IcebergTable:
        """The table as last read, for a caller that knows that it exists."""
        assert self.iceberg is not None, f"there is no table {self.place.name}"
        return self.iceberg

    @property
    def _catalog(self) -> Catalog:
        return self.events.catalogs.of(self.events.place)

    def refresh(self) -> Applied:
        """Read the table from the catalog again, and return its newest entry. Raises IncompleteError, BrokenLakeError."""
        with explained():
            self.iceberg = iceberg.load_or_none(self._catalog, self.place)
            head = Head() if self.iceberg is None else iceberg.ledger_of(self.iceberg)
            path, sha256, self.is_behind = head.path, head.digest, head.lineage is Lineage.BEHIND
            if (path, sha256) != (self.applied.path, self.applied.digest):
                self.applied = self._read(path, sha256) if path else Applied()
        return self.applied

    def _read(self, path: str, sha256: str) -> Applied:
        return Applied.decode(path, read_entry(self.existing.io, path, sha256))

    def prepare(self, form: Form) -> None:
        """Create or evolve the table to the columns of a form, before files for it are written.

        Raises UsageError if another engine has partitioned it in another way.
        """
        with explained():
            if self.iceberg is None:
                self._create(form)
                self.iceberg = self._catalog.load_table(self.place.name)
            iceberg.check_writable(self.iceberg)
            if self.iceberg.location() != self.place.location:
                iceberg.relocate(self.iceberg, self.place.location)
            name_of = self.iceberg.schema().find_column_name
            column, transform, _ = _bucketing(form)
            fields = [
                (name_of(field.source_id), str(field.transform)) for field in self.iceberg.spec().fields
            ]
            if fields != [(column, str(transform))]:
                raise self._partitioned_otherwise()
            columns = {field.name for field in self.iceberg.schema().fields}
            lacking, foreign = {*form.arrow.names} - columns, columns - {*form.arrow.names}
            if lacking and foreign:
                raise UsageError(
                    f"{self.place.name} lacks {', '.join(sorted(lacking))}, and has {', '.join(sorted(foreign))}: "
                    "undo it if another engine has renamed a column, else drop the foreign one"
                )
            table_schema.evolve(self.iceberg, form.arrow)

    def _create(self, form: Form) -> None:
        iceberg.create_namespace(self._catalog, self.place)
        transaction = self._catalog.create_table_transaction(
            self.place.name,
            schema=form.arrow,
            location=self.place.location,
            properties={**PROPERTIES, LOCATION: self.place.location},
        )
        with transaction.update_spec() as spec:
            spec.add_field(*_bucketing(form))
        with suppress(TableAlreadyExistsError, CommitFailedException):
            transaction.commit_transaction()

    def files(self) -> dict[int, tuple[Piece, ...]]:
        """Return the files of each bucket, after `prepare`. Raises UsageError for files with another partitioning."""
        if self.iceberg is None:
            return {}
        with explained():
            pieces = scan.pieces_of(self.iceberg.scan().plan_files(), None)
        by_bucket: dict[int, tuple[Piece, ...]] = {}
        for piece in pieces:
            if piece.spec_id != self.iceberg.metadata.default_spec_id:
                raise self._partitioned_otherwise()
            by_bucket[piece.partition[0]] = (*by_bucket.get(piece.partition[0], ()), piece)
        return by_bucket

    def _partitioned_otherwise(self) -> UsageError:
        return UsageError(f"{self.place.name} was partitioned in another way: --rebuild into a new table")

    @property
    def rows(self) -> int:
        """The number of rows, from the snapshot."""
        snapshot = None if self.iceberg is None else self.iceberg.current_snapshot()
        return 0 if snapshot is None else int(iceberg.summary_of(snapshot).get("total-records", 0))

    def commit(
        self, entry: Applied, add: Iterable[DataFile], remove: list[str], *, keep_snapshots: int
    ) -> None:
        """Commit the next entry with files of buckets. Raises ConflictError if it has to be planned again."""
        entry.version, entry.previous, entry.previous_path = (
            self.applied.version + 1, self.applied.digest, self.applied.path,
        )  # fmt: skip
        data = entry.encode()
        entry.path, entry.digest = write_entry(self.existing, entry.version, data), digest(data)
        kind = "rebuild" if entry.rebuilt else "apply"
        named = {VERSION: str(entry.version), PATH: entry.path, SHA256: entry.digest, KIND: kind}
        conflict = ConflictError(
            f"version {entry.version} of {self.place.name} was committed by another writer"
        )
        with explained():
            faults.point("current.before_commit")
            transaction = begin(self.existing, named, add, remove, keep_snapshots, conflict)
        try:
            transaction.commit_transaction()
        except Exception as error:  # refused, or unknown: the answer may be lost
            if not iceberg.is_foreign(error):
                raise
            if self.refresh().path != entry.path:
                raise conflict from error
        faults.point("current.after_commit")
        self.applied = entry

    def vacuum(self, age_seconds: float) -> int:
        """Remove objects that no snapshot names and that are at least `age_seconds` old. Returns the number of objects."""
        before = time.time() - age_seconds
        iceberg.check_collected(self.existing)
        with explained():
            places = [f"{self.place.location}/{directory}" for directory in ("data", "metadata", store.GONE)]
            listed = [file for place in places for file in store.listing(self.existing.io, place)]
            self.refresh()  # after the listing, so that files committed meanwhile do not count as unused
            if self.iceberg is None:
                return 0  # the table may have been renamed
            kept = named(self.iceberg)
            for summary in map(iceberg.summary_of, self.iceberg.snapshots()):
                if PATH in summary:
                    kept |= {*(self._read(summary[PATH], summary[SHA256]).gone or {}).values()}
            kept = {*map(store.comparable, kept)}
            old = [
                file.location
                for file in listed
                if store.comparable(file.location) not in kept and file.modified <= before
            ]
            for location in old:
                with suppress(FileNotFoundError):  # removed by another run
                    self.iceberg.io.delete(location)
        return len(old)


def _bucketing(form: Form) -> tuple[str, Transform[Any, Any], str]:
    """Return the column and the transform that a table is partitioned by, and the name of the partition field."""
    if len(form.keys) > 1:
        return BUCKET, IdentityTransform(), f"{BUCKET}_number"
    return form.keys[0], BucketTransform(form.shape.buckets), f"{form.keys[0]}_bucket"


# --- work of a task -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Increment:
    """Events to apply, in a form for workers: of one incarnation, offsets [start, end) by partition."""

    layout: Layout
    form: Form
    topic_id: str
    ranges: dict[int, tuple[int, int]]

    def changes(self, pieces: Iterable[Piece]) -> Iterator[tuple[int, pa.Table]]:
        """Yield (bucket, changes) of some files of events."""
        for table in blocks_of(scan.rows(self.layout, pieces, self.form.read), ROWS_PER_BLOCK):
            chosen = within(table, self.topic_id, self.ranges)
            if len(chosen):
                yield from changes(self.form, chosen)


def blocks_of(tables: Iterable[pa.Table], rows_min: int) -> Iterator[pa.Table]:
    """Yield the rows of tables as tables of at least `rows_min` rows; the last table may have fewer."""
    held: list[pa.Table] = []
    for table in tables:
        held.append(table)
        if sum(map(len, held)) >= rows_min:
            yield pa.concat_tables(held)
            held = []
    if held:
        yield pa.concat_tables(held)


@dataclass(frozen=True, slots=True)
class Retained:
    """Events that were removed together by retention: offsets by partition, and the conditions of later erasures."""

    offsets: dict[int, Integers]
    erased: tuple[str, ...]

    def of(self, rows: pa.Table, schema: Schema) -> pa.Table:
        """Return the rows of these events; none if the columns do not determine which of them were erased later."""
        partition, offset = rows[PARTITION].to_numpy(), rows[OFFSET].to_numpy()
        mask = np.zeros(len(rows), bool)
        for number, offsets in self.offsets.items():
            mask |= (partition == number) & np.isin(offset, offsets)
        kept = rows.filter(pa.array(mask))
        for where in self.erased:
            try:
                erased = scan.matches(kept, parser.parse(where), schema)
            except ValueError:  # a column that current rows lack, such as one of an envelope
                return rows[:0]
            kept = kept.filter(pc.invert(erased))
        return kept


@dataclass(frozen=True, slots=True)
class Merger:
    """All data for a worker to rewrite a bucket; `files` and `gone` are the present files of each bucket.

    `retained` None: changes are merged into all rows; else only into rows of events that were removed by retention.
    """

    layout: Layout
    form: Form
    files: dict[int, tuple[Piece, ...]]
    gone: dict[int, str]
    truncated: tuple[Moment, ...]
    is_moving: bool
    retained: tuple[Retained, ...] | None = None

    def write(self, bucket: int, changed: Iterable[pa.Table]) -> Bucket:
        """Merge the changes of a bucket into its rows, and rewrite its files."""
        parts = list(changed)
        if bucket == NO_BUCKET:
            return Bucket(bucket, lost=sum(part["lost"][0].as_py() for part in parts))
        rows, gone = self.merged(parts, *self.base(bucket))
        old = tuple(file.path for file in self.files.get(bucket, ()))
        metadata, io = self.layout.open()
        gone_path = ""
        if len(gone):
            gone_path = f"{metadata.location}/{store.GONE}/{uuid.uuid4().hex}.parquet"
            file = OpenFile(io, gone_path, self.form.gone)
            file.write(gone)
            file.finish()
        return Bucket(
            bucket, sum(map(len, parts)), tuple(data_files(metadata, io, bucket, rows)), old, gone_path
        )

    def merged(self, changed: list[pa.Table], rows: pa.Table, gone: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Merge changes into rows and kept deletions; returns (rows, gone)."""
        if not changed:
            changed = [self.form.arrow.append(DELETED).empty_table()]
        return merge(
            self.form, rows, gone, pa.concat_tables(changed), self.truncated, is_moving=self.is_moving
        )

    def base(self, bucket: int) -> tuple[pa.Table, pa.Table]:
        """Return the base of a merge: the rows of a bucket, and its kept deletions."""
        rows, gone = self.rows(bucket), self._gone(bucket)
        if self.retained is None:
            return rows, gone
        schema = self.layout.open()[0].schema()
        kept = [retained.of(rows, schema) for retained in self.retained]
        deletions = [replace(retained, erased=()).of(gone, schema) for retained in self.retained]
        return pa.concat_tables([rows[:0], *kept]), pa.concat_tables([gone[:0], *deletions])

    def rows(self, bucket: int) -> pa.Table:
        """Return the present rows of a bucket."""
        parts = list(scan.rows(self.layout, self.files.get(bucket, ()), self.form.arrow))
        return pa.concat_tables([self.form.arrow.empty_table(), *parts])

    def _gone(self, bucket: int) -> pa.Table:
        if bucket not in self.gone:
            return self.form.gone.empty_table()
        _, io = self.layout.open()
        with io.new_input(self.gone[bucket]).open() as stream:
            return pq.ParquetFile(stream).read()


@dataclass(frozen=True, slots=True)
class Bucket:
    """A rewritten bucket: the number of changes, its new files, and the files that they replace."""

    number: int
    changes: int = 0
    add: tuple[DataFile, ...] = ()
    remove: tuple[str, ...] = ()
    gone: str = ""
    lost: int = 0


def data_files(metadata: TableMetadata, io: FileIO, bucket: int, rows: pa.Table) -> Iterator[DataFile]:
    """Write the rows of a bucket, into several files if they are many, and yield the files."""
    schema = table_schema.numbered(rows.schema, metadata.schema())
    count = -(-rows.nbytes // TARGET_FILE_BYTES)
    size = -(-len(rows) // max(count, 1))
    for start in range(0, len(rows), max(size, 1)):
        file = OpenFile(io, f"{metadata.location}/data/{uuid.uuid4().hex}.parquet", schema)
        file.write(rows.slice(start, size).cast(schema))
        written, sha256, footer = file.finish()
        column_statistics = file_statistics(
            metadata.schema(), metadata.properties, footer
        ).to_serialized_dict()
        entry = DataFile(file.location, file.rows, written, sha256, "")
        entry.iceberg = {"partition": (bucket,), "spec_id": metadata.default_spec_id, **column_statistics}
        yield entry
