"""migrate: a lake of the earlier format, of manifests and no catalog, becomes an Iceberg table with a ledger.

The rule: the table appears in one commit, with all valid files and a ledger with each manifest as an entry. The old lake
is not changed; in a store on the same machine the table uses its files.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyiceberg.schema import Schema

from barnabas_pipeline.errors import UsageError
from barnabas_pipeline.lake import old, store
from barnabas_pipeline.lake.columns import EARLIER_PARTITION, PARTITION
from barnabas_pipeline.lake.dead import DeadLetters
from barnabas_pipeline.lake.files import describe
from barnabas_pipeline.lake.iceberg import NAME_MAPPING, Place, explained
from barnabas_pipeline.lake.ledger import DataFile, Entry, State
from barnabas_pipeline.lake.table import Table
from barnabas_pipeline.schema import EventSchema

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

THREADS = 8


@dataclass(slots=True)
class MigrateSummary:
    """Figures of a migration."""

    version: int = 0
    files: int = 0
    dead_files: int = 0
    rows: int = 0
    bytes_copied: int = 0


def migrate(source: Path, place: Place) -> MigrateSummary:
    """Create a table from the old lake of a topic. Raises UsageError if that is missing, or the table exists."""
    if not old.exists(source):
        raise UsageError(f"{source} is no lake of the earlier format: it has no {old.LOG}/{1:020d}.json")
    table = Table(place, may_be_old=True)
    if table.exists():
        raise UsageError(f"{place.name} has {table.state().version} commits already")
    is_local = store.local_path(place.location) is not None
    prefix = store.location_of(source) if is_local else f"{place.location}/migrated"
    entries = list(old.entries(source, prefix))
    alive, dead = _files(entries)
    last = entries[-1]
    table.prepare(EventSchema.from_dict(last.schema))
    summary = MigrateSummary(last.version, len(alive), len(dead), sum(file.rows for file in alive))
    if not is_local:
        summary.bytes_copied = _copy(table.io, source, prefix, [*alive, *dead])
    as_written = _as_written(table.existing.schema())
    with explained(), ThreadPoolExecutor(THREADS) as pool:
        with table.existing.transaction() as transaction:  # files of the first releases have no field ids
            transaction.set_properties({NAME_MAPPING: as_written.name_mapping.model_dump_json()})
        list(
            pool.map(
                lambda file: describe(table.io, table.existing.metadata, file, as_written=as_written), alive
            )
        )
    _commit(table, entries, alive)
    DeadLetters(table).publish()
    return summary


def _files(entries: Iterable[Entry]) -> tuple[list[DataFile], list[DataFile]]:
    """Return the files that count in the end: (with rows, with dead letters)."""
    alive: dict[str, DataFile] = {}
    dead: dict[str, DataFile] = {}
    for entry in entries:
        for files, add, remove in (
            (alive, entry.add, entry.remove),
            (dead, entry.dead_add, entry.dead_remove),
        ):
            for path in remove:
                files.pop(path, None)
            files |= {file.path: file for file in add}
    return list(alive.values()), list(dead.values())


def _as_written(schema: Schema) -> Schema:
    """Return the columns by their names in files of the old lake."""
    return Schema(
        *(
            field.model_copy(update={"name": EARLIER_PARTITION}) if field.name == PARTITION else field
            for field in schema.fields
        ),
        schema_id=schema.schema_id,
    )


def _copy(io: FileIO, source: Path, prefix: str, files: list[DataFile]) -> int:
    def copy(file: DataFile) -> int:
        data = (source / file.path.removeprefix(f"{prefix}/")).read_bytes()
        store.write(io, file.path, data)
        return len(data)

    with explained(), ThreadPoolExecutor(THREADS) as pool:
        return sum(pool.map(copy, files))


def _commit(table: Table, entries: list[Entry], alive: list[DataFile]) -> None:
    """Write all entries but the last, which is committed with all files."""
    state = State()
    for entry in entries[:-1]:
        old.following(state, entry)
        state = entry.state(*table.write(entry))
    last = entries[-1]
    last.previous, last.previous_path = state.digest, state.path
    table.adopt(state, last, alive)
