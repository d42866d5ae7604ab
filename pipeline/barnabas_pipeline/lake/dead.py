"""The table of dead letters, for engines that do not read the ledger: NAME__dead beside NAME.

The rule: the ledger is the truth, and this table follows it. Its summary has the last published entry; a publisher adds
exactly the missing entries, in one snapshot on top of the snapshot that it has read.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError

from barnabas_pipeline import faults
from barnabas_pipeline.errors import IncompleteError
from barnabas_pipeline.lake import store
from barnabas_pipeline.lake.commits import changing, named_files
from barnabas_pipeline.lake.files import dead_columns, describe
from barnabas_pipeline.lake.iceberg import (
    LOCATION,
    MAIN,
    NAME_MAPPING,
    PATH,
    PROPERTIES,
    SHA256,
    VERSION,
    Lineage,
    check_writable,
    explained,
    is_elsewhere,
    ledger_of,
    load_or_none,
    relocate,
)
from barnabas_pipeline.lake.ledger import DataFile, Entry, Files
from barnabas_pipeline.lake.pyiceberg_internals import renumber
from barnabas_pipeline.lake.table import Table

if TYPE_CHECKING:
    from pyiceberg.table import Table as IcebergTable

CONFLICTS_MAX = 20
SUFFIX = "__dead"


class DeadLetters:
    """The table of dead letters that follows a table."""

    def __init__(self, table: Table) -> None:
        self.place = replace(
            table.place,
            name=f"{table.place.name}{SUFFIX}",
            location=f"{table.place.location}/{store.DEAD}",
            branch=MAIN,
        )
        self._table = table
        self._published = 0  # the version up to which entries are published

    def publish(self) -> bool:
        """Commit the ledger's dead letters that this table lacks; False if there are none. Raises IncompleteError."""
        state = self._table.state()
        if self._table.place.branch != MAIN:
            return False  # dead letters of a branch become visible when it is published
        if state.dead_version <= self._published <= state.version:
            return False  # does not hold after a rollback of the table
        with explained():
            for _ in range(CONFLICTS_MAX):
                iceberg = self._open_or_create()
                head = ledger_of(iceberg)
                if (
                    self._follows(iceberg)
                    and state.dead_version <= head.version
                    and not is_elsewhere(iceberg)
                ):
                    self._published = head.version
                    return False
                with suppress(
                    CommitFailedException
                ):  # another publisher was faster, perhaps with the same letters
                    self._commit(iceberg)
                    self._published = state.version
                    return True
        raise IncompleteError(f"table {self.place.name}: others were faster")

    def differences(self, entries: list[Entry]) -> list[str]:
        """Return differences between the table's files and the ledger's published entries; empty if there are none."""
        with explained():
            iceberg = self._open()
            if iceberg is None or not self._follows(iceberg):
                return []
            tasks = list(iceberg.scan().plan_files())
        expected = Files()
        for entry in entries[: ledger_of(iceberg)[0]]:
            expected.apply(entry)
        rows_by_path = {task.file.file_path: task.file.record_count for task in tasks}
        name = f"table {self.place.name}"
        problems = [f"{name} lacks {path}" for path in expected.dead if path not in rows_by_path]
        problems += [
            f"{name} has {path}, which does not count" for path in rows_by_path if path not in expected.dead
        ]
        problems += [
            f"{name} says {rows_by_path[path]} rows of {path}, which has {file.rows}"
            for path, file in expected.dead.items()
            if rows_by_path.get(path, file.rows) != file.rows
        ]
        return problems + [
            f"{name} hides rows of {task.file.file_path}" for task in tasks if task.delete_files
        ]

    def iceberg(self) -> IcebergTable | None:
        """Return pyiceberg's table; None if it does not exist."""
        with explained():
            return self._open()

    def _open(self) -> IcebergTable | None:
        return load_or_none(self._table.catalogs.of(self._table.place), self.place)

    def _open_or_create(self) -> IcebergTable:
        catalog = self._table.catalogs.of(self._table.place)
        table = self._open()
        if table is not None:
            table = self._as_numbered(table)
            if table.location() != self.place.location and self._is_taken_over:
                relocate(table, self.place.location)
            return table
        columns = dead_columns()
        properties = {
            **PROPERTIES,
            LOCATION: self.place.location,
            NAME_MAPPING: columns.name_mapping.model_dump_json(),
        }
        with suppress(TableAlreadyExistsError, CommitFailedException):
            catalog.create_table(
                self.place.name, columns, location=self.place.location, properties=properties
            )
        return self._as_numbered(catalog.load_table(self.place.name))

    def _as_numbered(self, table: IcebergTable) -> IcebergTable:
        """Return a table with the column ids of its files: Nessie numbers the columns of a new table in another order."""
        columns = dead_columns()
        if table.metadata.snapshots or table.schema().fields == columns.fields:
            return table
        with suppress(CommitFailedException):  # another publisher has renumbered it
            renumber(table, columns)
        return self._table.catalogs.of(self._table.place).load_table(self.place.name)

    @property
    def _is_taken_over(self) -> bool:
        """Return whether ledger and dead letters that count are where other engines do not treat them as orphans."""
        return f"/{store.LEDGER}/" in self._table.state().path

    def _follows(self, iceberg: IcebergTable) -> bool:
        """Return whether the newest entry of the table is an entry of the ledger, which a rollback may have undone."""
        version, _, digest, lineage, _ = ledger_of(iceberg)
        if lineage is not Lineage.SURE:
            return False
        state = self._table.state()
        if not 0 < version < state.version:
            return version == state.version and digest == state.digest
        return self._table.entries(version)[0].previous == digest

    def _commit(self, iceberg: IcebergTable) -> None:
        """Commit the state of the ledger to the table; files that do not count are removed."""
        state = self._table.state()
        add: dict[str, DataFile] = {}
        remove: list[str] = []
        if self._follows(iceberg):
            for entry in self._table.entries(ledger_of(iceberg)[0]):
                remove += [path for path in entry.dead_remove if add.pop(path, None) is None]
                add |= {file.path: file for file in entry.dead_add}
        old = named_files(iceberg, remove)
        is_moving = is_elsewhere(iceberg)
        if not self._follows(iceberg) or len(old) != len(remove) or is_moving:
            expected = self._table.files().dead
            present = {task.file.file_path for task in iceberg.scan().plan_files()}
            add = {path: file for path, file in expected.items() if path not in present or is_moving}
            old = named_files(iceberg, present - expected.keys())
        named = {VERSION: str(state.version), PATH: state.path, SHA256: state.digest}
        described = [describe(iceberg.io, iceberg.metadata, file) for file in add.values()]
        check_writable(iceberg)
        transaction = changing(iceberg, named, described, old)
        faults.point("dead.before_commit")
        transaction.commit_transaction()
        faults.point("dead.after_commit")
