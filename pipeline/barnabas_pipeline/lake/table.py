"""A table: its state, its ledger, its files, and the one way to commit.

The rule: the catalog's commit is the only step that makes anything visible: the files of a snapshot together with the entry
of the ledger that lists their offsets. Two writers cannot both follow the same state: the second gets ConflictError and
starts over from the new one.

A snapshot's summary names its entry; so do the table's properties, for when that snapshot has expired.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.refs import SnapshotRefType

from barnabas_pipeline import faults
from barnabas_pipeline.errors import IncompleteError, UsageError
from barnabas_pipeline.lake import commits, iceberg, old, scan, store, table_schema
from barnabas_pipeline.lake.columns import lake_schema
from barnabas_pipeline.lake.coordinates import Seen, erased_offsets, row_offsets
from barnabas_pipeline.lake.iceberg import KIND, PATH, SHA256, VERSION, Catalogs, Head, Layout, Lineage, Place
from barnabas_pipeline.lake.ledger import BrokenLakeError, DataFile, Entry, Files, State, digest
from barnabas_pipeline.lake.scan import Piece, Span
from barnabas_pipeline.log.model import OffsetRange
from barnabas_pipeline.schema import EventSchema

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.table import Table as IcebergTable

    from barnabas_pipeline.data_types import Integers
    from barnabas_pipeline.lake.pyiceberg_internals import CachingTransaction

TRIES_MAX = 6  # attempts of a commit while no other run makes progress either
WAIT_SECONDS = 0.05  # before the second attempt; doubled before each later one
READ_AHEAD_MIN = 32
READ_AHEAD_THREADS = 16
MAX_OFFSET = (1 << 63) - 1
Change = tuple[list[DataFile], list[str]]
"""Files that a snapshot adds, and paths of files that it removes."""


class ConflictError(IncompleteError):
    """Another writer has committed this version."""


class Table:
    """The table at a place, which need not exist yet. Commits of other writers are visible only after `refresh`."""

    def __init__(
        self,
        root: Place | str | Path,
        *,
        may_be_old: bool = False,
        catalogs: Catalogs | None = None,
        sleep: Callable[[float], None] = time.sleep,
        read_ahead_min: int = READ_AHEAD_MIN,
    ) -> None:
        """`sleep` waits between the attempts of a commit; more than `read_ahead_min` entries are read ahead."""
        self.place = iceberg.place_of(root)
        self.catalogs = catalogs or Catalogs()
        self._may_be_old = may_be_old
        self._sleep = sleep
        self._read_ahead_min = read_ahead_min
        self._iceberg: IcebergTable | None = None
        self._state: State | None = None

    # --- the last state ---------------------------------------------------------------------------------------------

    @property
    def iceberg(self) -> IcebergTable | None:
        """pyiceberg's table as last read; None if it does not exist."""
        self.state()
        return self._iceberg

    @property
    def existing(self) -> IcebergTable:
        """The table as last read, for a caller that knows that it exists."""
        self.state()
        return self._opened

    @property
    def _opened(self) -> IcebergTable:
        assert self._iceberg is not None, f"there is no table {self.place.name}"
        return self._iceberg

    @property
    def io(self) -> FileIO:
        """The FileIO of a table that exists."""
        return self.existing.io

    @property
    def layout(self) -> Layout:
        """The table in a form for workers. Raises UsageError if another engine has renamed or dropped a column."""
        self._check_columns()
        return iceberg.layout_of(self.existing)

    def refresh(self) -> State:
        """Read the table from the catalog again. Raises IncompleteError, and UsageError for a lake of an earlier format."""
        with iceberg.explained():
            self._iceberg = iceberg.load_or_none(self.catalogs.of(self.place), self.place)
        if self._iceberg is None:
            here = store.local_path(self.place.location)
            if not self._may_be_old and here is not None and old.exists(here):
                raise UsageError(
                    f"{here} is a lake of an earlier format: barnabas-pipeline migrate --from {here.parent} "
                    f"--lake NEW --topic {here.name}"
                )
            self._state = State()
            return self._state
        head = iceberg.ledger_of(self._iceberg)
        if head.lineage is not Lineage.SURE:
            head = self._counting(head)
        if not head.path:
            self._state = State()
        elif self._state is None or (self._state.path, self._state.digest) != (head.path, head.digest):
            self._state = Entry.state(*self._read(head.path, head.digest))
            assert self._state.version == head.version, (self._state.version, head.version)
        return self._state

    def _counting(self, newest: Head) -> Head:
        """Return the newest entry with its rows in the current snapshot, if no ancestor of it names an entry.

        Raises BrokenLakeError if that is uncertain: the rows of the newest entry were deleted, or the table was rolled
        back to before it and changed since.
        """
        head, path, sha256 = newest, newest.path, newest.digest
        is_behind = newest.lineage is Lineage.BEHIND
        pieces = self._pieces(None, None)
        while path:
            entry, _, _ = self._read(path, sha256)
            is_there = self._has_rows_of(entry, pieces)
            path, sha256 = entry.previous_path, entry.previous
            if is_there and not (is_behind and entry.version == newest.version):
                break
            if is_there is False and not is_behind:
                raise BrokenLakeError(
                    f"snapshot {self._opened.metadata.current_snapshot_id} of table {self.place.name} descends from none "
                    f"that names an entry of the ledger, and lacks rows of version {entry.version}: roll the table back "
                    f"or forward to a snapshot that has them, and expire snapshots after the next load only"
                )
            if is_there is not None or entry.version == newest.version:
                head = Head(entry.version - 1, path, sha256)
        return head

    def _has_rows_of(self, entry: Entry, pieces: list[Piece]) -> bool | None:
        """Return whether an entry's changes of rows are in the files of a snapshot; None: the entry changed no rows."""
        mine = [Seen(None, piece) for piece in pieces if piece.bounds.topic_id in (entry.topic_id, "")]
        loaded = {int(key): commit.start for key, commit in entry.partitions.items() if commit.loaded}
        if loaded:
            return all(
                any(file.may_have(number, start, MAX_OFFSET) for file in mine)
                for number, start in loaded.items()
            )
        layout = iceberg.layout_of(self._opened)

        def count(offset_range: OffsetRange, offsets: Integers) -> int:
            partition, start, end = offset_range.partition, offset_range.start, offset_range.end
            near = [file for file in mine if file.may_have(partition, start, end)]
            there = row_offsets(layout, near, offset_range, entry.topic_id)
            return int(np.isin(offsets, there).sum())

        for key, offsets in entry.redriven.items():
            if count(OffsetRange(int(key), min(offsets), max(offsets) + 1), np.array(offsets)) < len(offsets):
                return False
        for file in entry.erased:
            offset_range = OffsetRange(file.partition, file.offset_min, file.offset_max + 1)
            if count(offset_range, erased_offsets(layout, [file], offset_range)):
                return False
        return True if entry.redriven or entry.erased else None

    def state(self, version: int | None = None) -> State:
        """Return the state that was last read, or that of an earlier version. Raises UsageError for an unknown version."""
        state = self._state or self.refresh()
        if version is None or version == state.version:
            return state
        if not 0 < version < state.version:
            raise UsageError(f"{self.place.location} has no version {version}")
        later = self.entries(version)[0]
        return Entry.state(*self._read(later.previous_path, later.previous))

    def _check_columns(self) -> None:
        """Raise UsageError if the table lacks a column of the schema in the ledger: its values would be read as null."""
        if self.state().version:
            schema = lake_schema(EventSchema.from_dict(self.state().schema))
            table_schema.check_columns(self._opened, schema)

    def exists(self) -> bool:
        """Return whether the table has a commit."""
        return self.state().version > 0

    def loaded(self) -> State:
        """Return the state of a table with a commit. Raises UsageError if no topic was loaded into the table yet."""
        if not self.exists():
            raise UsageError(f"nothing was loaded into {self.place.location} yet")
        return self.state()

    def entries(self, after: int = 0) -> list[Entry]:
        """Return the entries after a version, in order.

        Raises BrokenLakeError if an entry is not the one named by the next entry.
        """
        state = self.state()
        ahead = self._read_ahead(after) if state.version - after > self._read_ahead_min else {}
        entries: list[Entry] = []
        path, sha256 = state.path, state.digest
        while path and (not entries or entries[-1].version > after + 1) and state.version > after:
            entry, _, _ = self._read(path, sha256, ahead.get(path.rpartition("/")[2]))
            entries.append(entry)
            path, sha256 = entry.previous_path, entry.previous
        return entries[::-1]

    def files(self) -> Files:
        """Return the files named by the ledger."""
        files = Files()
        for entry in self.entries():
            files.apply(entry)
        return files

    def pieces(self, version: int | None = None, span: Span | None = None) -> list[Piece]:
        """Return the files of a version that may have events within a span.

        Raises UsageError if the snapshot of the version has expired.
        """
        state = self.state()
        if self._iceberg is None or self._iceberg.current_snapshot() is None:
            return []
        snapshot = None
        if version is not None and version != state.version:
            named = (
                candidate
                for candidate in self._iceberg.snapshots()
                if iceberg.summary_of(candidate).get(VERSION) == str(version)
            )
            snapshots = {iceberg.summary_of(candidate)[PATH]: candidate.snapshot_id for candidate in named}
            path = next(iter(snapshots), "") if len(snapshots) < 2 else self.state(version).path
            snapshot = snapshots.get(path)  # branches have versions of the same number
            if snapshot is None:
                raise UsageError(f"version {version} of {self.place.location} has expired")
        return self._pieces(span, snapshot)

    def _pieces(self, span: Span | None, snapshot_id: int | None) -> list[Piece]:
        schema = self._opened.schema()
        with iceberg.explained():
            tasks = self._opened.scan(scan.within(span, schema), snapshot_id=snapshot_id).plan_files()
            return scan.pieces_of(tasks, schema)

    def _read(self, path: str, sha256: str, data: bytes | None = None) -> tuple[Entry, str, bytes]:
        data = read_entry(self._opened.io, path, sha256, data, self.place.location)
        return Entry.decode(data), path, data

    def _read_ahead(self, after: int) -> dict[str, bytes]:
        """Read many entries in parallel, by name, whether they count or not. Missing entries fail when needed."""
        with iceberg.explained():
            first = f"{after + 1:020d}-"  # by name, so that other files there are ignored
            listed = store.listing(self._opened.io, self.state().path.rpartition("/")[0])
            paths = {
                name: file.location for file in listed if (name := file.location.rpartition("/")[2]) > first
            }
            with ThreadPoolExecutor(READ_AHEAD_THREADS) as pool:
                data = pool.map(lambda path: store.read(self._opened.io, path), paths.values())
                return dict(zip(paths, data, strict=True))

    # --- committing -------------------------------------------------------------------------------------------------

    def prepare(self, schema: EventSchema) -> None:
        """Create or evolve the table to the columns of a schema, before files for it are written."""
        self.state()
        with iceberg.explained():
            if self._iceberg is None:
                iceberg.create(self.catalogs.of(self.place), self.place, schema)
                self.refresh()
            if self._iceberg is None:
                raise IncompleteError(f"table {self.place.name} was created, and is gone again")
            iceberg.check_writable(self._iceberg)
            if self.place.branch != iceberg.MAIN:
                iceberg.check_refs(self._iceberg, self.place.branch)
                if commits.begin_main(self._iceberg):
                    self.refresh()
            self._check_columns()
            table_schema.evolve(self._iceberg, lake_schema(schema))
            iceberg.look_at(self._iceberg, self.place.branch)

    def adopt(self, state: State, entry: Entry, files: list[DataFile]) -> None:
        """Commit, as the first snapshot, the last entry of a ledger that was written before, with all files that count."""
        if self.exists():
            raise self._conflict(entry)
        self._state = state
        self.commit(entry, files=files)

    def write(self, entry: Entry) -> tuple[str, bytes]:
        """Write an entry, which counts once a commit names it; returns its path and bytes. Raises IncompleteError."""
        data = entry.encode()
        return write_entry(self._opened, entry.version, data), data

    def commit(
        self,
        entry: Entry,
        *,
        keep_snapshots: int = 0,
        files: list[DataFile] | None = None,
        tag: str = "",
    ) -> None:
        """Commit the next entry with its files. Raises ConflictError, with nothing changed, if another writer was faster.

        `keep_snapshots`: older snapshots expire in the same commit; 0: none. `files` replace those that the entry adds.
        `tag` names the snapshot; raises UsageError for a tag of another run.
        """
        state = self.state()
        after = state.copy()
        if state.version >= entry.version:
            raise self._conflict(entry)
        self._check_tag(tag, entry)
        self._take_over(entry, is_first=files is not None)
        after.apply(entry)  # an entry that would break the lake is not written
        entry.after = after.to_dict()
        self.prepare(EventSchema.from_dict(entry.schema))
        path, data = self.write(entry)
        faults.point("commit.before_catalog")
        named = {VERSION: str(entry.version), PATH: path, SHA256: digest(data), KIND: entry.kind}
        change = (entry.add, entry.remove) if files is None else (files, [])
        self._commit(entry, named, change, keep_snapshots, tag)
        faults.point("commit.after_swap")
        self._state = entry.state(path, data)
        faults.point("commit.after")

    def _take_over(self, entry: Entry, *, is_first: bool) -> None:
        """Copy a ledger of an earlier release, and the dead letters that count, to where no engine treats them as orphans.

        The entry records that the copies count from then on. No file is removed.
        """
        state, root = self.state(), self.place.location
        if not is_first and state.path == store.hidden(state.path, root):
            return
        if self.place.branch != iceberg.MAIN and state.version:
            raise UsageError(f"table {self.place.name} is of an earlier release: load once without --branch")
        dead = {path: file for path, file in self.files().dead.items() if path not in entry.dead_remove}
        moved = {path: file for path, file in dead.items() if path != store.hidden(path, root)}
        added = {file.path: file for file in entry.dead_add} | moved
        entry.dead_remove += moved
        entry.dead_add = [replace(file, path=store.hidden(path, root)) for path, file in added.items()]
        paths = [state.path, *(each.previous_path for each in self.entries()), *added]
        copies = {path: store.hidden(path, root) for path in paths if path != store.hidden(path, root)}
        with iceberg.explained(), ThreadPoolExecutor(READ_AHEAD_THREADS) as pool:
            list(pool.map(lambda path: store.copy(self._opened.io, path, copies[path]), copies))

    def _check_tag(self, tag: str, entry: Entry) -> None:
        """Raise UsageError for a tag that names a snapshot of another run, or a branch."""
        ref = self._opened.metadata.refs.get(tag) if tag and self._iceberg is not None else None
        if ref is None:
            return
        snapshot = self._opened.snapshot_by_id(ref.snapshot_id)
        named = iceberg.summary_of(snapshot) if snapshot is not None else {}
        job = self._read(named[PATH], named[SHA256])[0].job if PATH in named else {}
        is_mine = ref.snapshot_ref_type == SnapshotRefType.TAG and job.get("id") == entry.job.get("id", "")
        if not is_mine:
            raise UsageError(f"--tag {tag}: table {self.place.name} has it already, of another run")

    def _check_foreign(self) -> None:
        """Raise BrokenLakeError if another engine has added rows that no load has covered, such as cherry-picked rows."""
        state = self.state()
        if iceberg.ledger_of(self._opened).is_own:
            return
        for piece in self._pieces(None, None):
            _, partition, _, last = piece.bounds
            if piece.bounds.topic_id == state.topic_id and last >= state.ends.get(partition, MAX_OFFSET):
                raise BrokenLakeError(
                    f"another engine has put rows of partition {partition} up to offset {last} into table "
                    f"{self.place.name}, whose ledger ends before {state.ends[partition]}: roll that snapshot back"
                )

    def _commit(
        self, entry: Entry, named: dict[str, str], change: Change, keep_snapshots: int, tag: str
    ) -> None:
        """Commit, and retry until the outcome is certain; snapshots of others without an entry are accepted."""
        before = self.state().path
        tries = 0
        while True:
            seen = self._opened.metadata_location
            try:
                self._put(named, change, keep_snapshots, tag)
                return
            except Exception as error:  # refused, or unknown: the answer may be lost
                if not iceberg.is_foreign(error):
                    raise
                failure = error
            self._sleep(
                0 if isinstance(failure, CommitFailedException) and not tries else WAIT_SECONDS * 2**tries
            )
            try:
                self.refresh()
            except IncompleteError as error:
                failure = error
            else:
                if self._iceberg is None:
                    raise ConflictError(
                        f"version {entry.version} of {self.place.location}: table {self.place.name} is gone"
                    ) from failure
                path = self.state().path
                if path == named[PATH]:
                    return
                if path != before or (change[1] and self._iceberg.metadata_location != seen):
                    raise self._conflict(entry)
                if self._iceberg.metadata_location != seen:
                    tries = 0
                    continue
            tries += 1
            if tries == TRIES_MAX:
                text = f"version {entry.version} of {self.place.location} cannot be committed: {failure}"
                raise IncompleteError(text.splitlines()[0]) from failure

    def _put(self, named: dict[str, str], change: Change, keep_snapshots: int, tag: str) -> None:
        """Try to commit once."""
        table, (files, remove) = self._opened, change
        self._check_foreign()
        if any(file.iceberg["spec_id"] != table.metadata.default_spec_id for file in files):
            raise ConflictError(f"{self.place.location} is partitioned in another way now: run again")
        replaced = ConflictError(f"files of {self.place.location} were replaced by another engine: run again")
        branch = self.place.branch
        transaction = begin(table, named, files, remove, keep_snapshots, replaced, branch=branch, tag=tag)
        faults.point("commit.before_swap")
        transaction.commit_transaction()
        iceberg.look_at(table, branch)

    def _conflict(self, entry: Entry) -> ConflictError:
        return ConflictError(
            f"version {entry.version} of {self.place.location} was committed by another writer"
        )


def read_entry(io: FileIO, path: str, sha256: str, data: bytes | None = None, root: str = "") -> bytes:
    """Return the bytes of an entry of a ledger, or `data` if read ahead. Raises BrokenLakeError, IncompleteError.

    An entry of an earlier release, of a table at `root`, may have a copy at its present place.
    """
    for place in dict.fromkeys((path, store.hidden(path, root))):
        with suppress(FileNotFoundError), iceberg.explained():
            data = store.read(io, place) if data is None else data
    if data is None:
        raise BrokenLakeError(f"entry {path} of the ledger is missing")
    if digest(data) != sha256:
        raise BrokenLakeError(f"entry {path} of the ledger is not what was committed")
    return data


def write_entry(table: IcebergTable, version: int, data: bytes) -> str:
    """Write an entry of a ledger, which counts once a commit names it; returns its path. Raises IncompleteError."""
    path = f"{table.location()}/{store.LEDGER}/{version:020d}-{uuid.uuid4()}.json"
    with iceberg.explained():
        store.write(table.io, path, data)
    return path


def begin(
    table: IcebergTable,
    named: dict[str, str],
    add: Iterable[DataFile],
    remove: list[str],
    keep_snapshots: int,
    conflict: ConflictError,
    *,
    branch: str = iceberg.MAIN,
    tag: str = "",
) -> CachingTransaction:
    """Begin the transaction of a snapshot; raises `conflict` if a file that it removes no longer exists."""
    old = commits.named_files(table, remove)
    if len(old) != len(remove):
        raise conflict
    if keep_snapshots:
        iceberg.check_collected(table)
    transaction = commits.changing(table, named, add, old, branch=branch, tag=tag)
    if keep_snapshots:
        commits.expire_all_but(transaction, keep_snapshots)
    return transaction
