"""A table: its state, its ledger, its files, and the one way to commit.

The rule: the catalog's commit is the only step that makes anything visible: the files of a snapshot and the entry of the
ledger that says which offsets they cover, at once. Two writers cannot both follow the same state: the second gets
ConflictError and starts over from the new one.

A snapshot's summary names its entry; so do the table's properties, for when that snapshot has expired.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.update.snapshot import ExpireSnapshots

from barnabas_pipeline import faults
from barnabas_pipeline.errors import IncompleteError, UsageError
from barnabas_pipeline.lake import iceberg, old, scan, store
from barnabas_pipeline.lake.columns import lake_schema
from barnabas_pipeline.lake.iceberg import KIND, PATH, SHA256, VERSION, Catalogs, Layout, Place
from barnabas_pipeline.lake.ledger import BrokenLakeError, DataFile, Entry, Files, State, digest
from barnabas_pipeline.lake.scan import Piece, Span
from barnabas_pipeline.schema import EventSchema

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.table import Table as IcebergTable
    from pyiceberg.table import Transaction

    from barnabas_pipeline.lake.pyiceberg_internals import CachingTransaction

LEDGER = "ledger"
TRIES_MAX = 6  # of a commit while no other run makes progress either
WAIT_SECONDS = 0.05  # before the second try; twice as long before each other
READ_AHEAD_MIN = 32
READ_AHEAD_THREADS = 16
Change = tuple[list[DataFile], list[str]]
"""Files that a snapshot adds, and paths of those that it removes."""


class ConflictError(IncompleteError):
    """Another writer has committed this version."""


class Table:
    """The table at a place, which need not exist yet. What others commit is seen after `refresh` only."""

    def __init__(
        self,
        root: Place | str | Path,
        *,
        may_be_old: bool = False,
        catalogs: Catalogs | None = None,
        sleep: Callable[[float], None] = time.sleep,
        read_ahead_min: int = READ_AHEAD_MIN,
    ) -> None:
        """`sleep` waits between the tries of a commit; so many entries and more are read ahead."""
        self.place = iceberg.place_of(root)
        self.catalogs = catalogs or Catalogs()
        self._may_be_old = may_be_old
        self._sleep = sleep
        self._read_ahead_min = read_ahead_min
        self._iceberg: IcebergTable | None = None
        self._state: State | None = None

    # --- what there is ----------------------------------------------------------------------------------------------

    @property
    def iceberg(self) -> IcebergTable | None:
        """The table as pyiceberg has it, as it was last seen; None if there is none."""
        self.state()
        return self._iceberg

    @property
    def existing(self) -> IcebergTable:
        """The table as it was last seen, by a caller that knows that it exists."""
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
        """The table as workers have to know it."""
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
        version, path, sha256 = iceberg.ledger_of(self._iceberg)
        if not path:
            self._state = State()
        elif self._state is None or (self._state.path, self._state.digest) != (path, sha256):
            self._state = Entry.state(*self._read(path, sha256))
            assert self._state.version == version, (self._state.version, version)
        return self._state

    def state(self, version: int | None = None) -> State:
        """Return the state that was last seen, or an earlier one. Raises UsageError for a version that never was."""
        state = self._state or self.refresh()
        if version is None or version == state.version:
            return state
        if not 0 < version < state.version:
            raise UsageError(f"{self.place.location} has no version {version}")
        later = self.entries(version)[0]
        return Entry.state(*self._read(later.previous_path, later.previous))

    def exists(self) -> bool:
        """Return whether the table has a commit."""
        return self.state().version > 0

    def loaded(self) -> State:
        """Return the state of a table that a topic was loaded into. Raises UsageError if none was yet."""
        if not self.exists():
            raise UsageError(f"nothing was loaded into {self.place.location} yet")
        return self.state()

    def entries(self, after: int = 0) -> list[Entry]:
        """Return the entries after a version, in order. Raises BrokenLakeError if one is not what the next one names."""
        state = self.state()
        ahead = self._read_ahead(after) if state.version - after > self._read_ahead_min else {}
        entries: list[Entry] = []
        path, sha256 = state.path, state.digest
        while path and (not entries or entries[-1].version > after + 1) and state.version > after:
            entry, _, _ = self._read(path, sha256, ahead.get(path))
            entries.append(entry)
            path, sha256 = entry.previous_path, entry.previous
        return entries[::-1]

    def files(self) -> Files:
        """Return the files that the ledger tells of."""
        files = Files()
        for entry in self.entries():
            files.apply(entry)
        return files

    def pieces(self, version: int | None = None, span: Span | None = None) -> list[Piece]:
        """Return the files of a version, those that may have events of some time.

        Raises UsageError if the snapshot of a version has expired.
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
            snapshot = next((candidate.snapshot_id for candidate in named), None)
            if snapshot is None:
                raise UsageError(f"version {version} of {self.place.location} has expired")
        schema = self._iceberg.schema()
        with iceberg.explained():
            tasks = self._iceberg.scan(scan.within(span, schema), snapshot_id=snapshot).plan_files()
            return scan.pieces_of(tasks, schema)

    def _read(self, path: str, sha256: str, data: bytes | None = None) -> tuple[Entry, str, bytes]:
        data = read_entry(self._opened.io, path, sha256, data)
        return Entry.decode(data), path, data

    def _read_ahead(self, after: int) -> dict[str, bytes]:
        """Read many entries at once, by path, whether they count or not. Missing ones are reported when needed."""
        with iceberg.explained():
            listed = store.listing(self._opened.io, f"{self._opened.location()}/{LEDGER}")
            first = f"{after + 1:020d}-"  # by name, so that files of others there are no error
            paths = [file.location for file in listed if file.location.rpartition("/")[2] > first]
            with ThreadPoolExecutor(READ_AHEAD_THREADS) as pool:
                return dict(
                    zip(paths, pool.map(lambda path: store.read(self._opened.io, path), paths), strict=True)
                )

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
            iceberg.evolve(self._iceberg, lake_schema(schema))

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

    def commit(self, entry: Entry, *, keep_snapshots: int = 0, files: list[DataFile] | None = None) -> None:
        """Commit the next entry with its files. Raises ConflictError if there is another one; nothing has changed then.

        `keep_snapshots` expires the older ones in the same commit; 0: none. `files`: instead of those that it adds.
        """
        state = self.state()
        after = state.copy()
        if state.version >= entry.version:
            raise self._conflict(entry)
        after.apply(entry)  # what would make a broken lake is not even written
        entry.after = after.to_dict()
        self.prepare(EventSchema.from_dict(entry.schema))
        path, data = self.write(entry)
        faults.point("commit.before_catalog")
        named = {VERSION: str(entry.version), PATH: path, SHA256: digest(data), KIND: entry.kind}
        change = (entry.add, entry.remove) if files is None else (files, [])
        self._commit(entry, named, change, keep_snapshots)
        faults.point("commit.after_swap")
        self._state = entry.state(path, data)
        faults.point("commit.after")

    def _commit(self, entry: Entry, named: dict[str, str], change: Change, keep_snapshots: int) -> None:
        """Commit until it is known that it has happened, or cannot happen; others' snapshots without an entry are fine."""
        _, before, _ = iceberg.ledger_of(self._opened)
        tries = 0
        while True:
            seen = self._opened.metadata_location
            try:
                self._put(named, change, keep_snapshots)
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
                _, path, _ = iceberg.ledger_of(self._iceberg)
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

    def _put(self, named: dict[str, str], change: Change, keep_snapshots: int) -> None:
        """Try the commit once."""
        table, (files, remove) = self._opened, change
        if any(file.iceberg["spec_id"] != table.metadata.default_spec_id for file in files):
            raise ConflictError(f"{self.place.location} is partitioned in another way now: run again")
        replaced = ConflictError(f"files of {self.place.location} were replaced by another engine: run again")
        transaction = begin(table, named, files, remove, keep_snapshots, replaced)
        faults.point("commit.before_swap")
        transaction.commit_transaction()

    def _conflict(self, entry: Entry) -> ConflictError:
        return ConflictError(
            f"version {entry.version} of {self.place.location} was committed by another writer"
        )


def read_entry(io: FileIO, path: str, sha256: str, data: bytes | None = None) -> bytes:
    """Return an entry of a ledger, of which `data` may be read already. Raises BrokenLakeError, IncompleteError."""
    try:
        if data is None:
            with iceberg.explained():
                data = store.read(io, path)
    except FileNotFoundError:
        raise BrokenLakeError(f"entry {path} of the ledger is missing") from None
    if digest(data) != sha256:
        raise BrokenLakeError(f"entry {path} of the ledger is not what was committed")
    return data


def write_entry(table: IcebergTable, version: int, data: bytes) -> str:
    """Write an entry of a ledger, which counts once a commit names it; returns its path. Raises IncompleteError."""
    path = f"{table.location()}/{LEDGER}/{version:020d}-{uuid.uuid4()}.json"
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
) -> CachingTransaction:
    """Begin the transaction of a snapshot; raises `conflict` if a file that it removes is not there any more."""
    old = iceberg.named_files(table, remove)
    if len(old) != len(remove):
        raise conflict
    transaction = iceberg.changing(table, named, add, old)
    if keep_snapshots:
        expire_all_but(transaction, keep_snapshots)
    return transaction


def expire_all_but(transaction: Transaction, count: int) -> None:
    """Expire the oldest snapshots in a transaction, but for heads of branches and tags."""
    metadata = transaction.table_metadata
    heads = {ref.snapshot_id for ref in metadata.refs.values()}
    by_age = sorted(metadata.snapshots, key=lambda snapshot: snapshot.sequence_number or 0)
    old = [
        snapshot.snapshot_id
        for snapshot in by_age[: max(0, len(by_age) - count)]
        if snapshot.snapshot_id not in heads
    ]
    if old:
        ExpireSnapshots(transaction).by_ids(old).commit()
