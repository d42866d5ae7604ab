"""Tables made without a broker and Spark: commits as the jobs do them, and what stock readers see of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

from barnabas_pipeline.formats.json import JsonDecoder as Decoder
from barnabas_pipeline.jobs.compact import FILES_MIN, merge, plan
from barnabas_pipeline.lake.columns import DEAD_SCHEMA
from barnabas_pipeline.lake.files import TableWriter, write_dead
from barnabas_pipeline.lake.iceberg import CATALOG_FILE, Catalogs, Lake, Place
from barnabas_pipeline.lake.ledger import HOUR_MS, DataFile, Entry, PartitionCommit
from barnabas_pipeline.lake.table import Table
from barnabas_pipeline.lake.task import to_table
from barnabas_pipeline.log.columns import HEADERS_TYPE, Columns
from barnabas_pipeline.schema import BUILT_IN, EventSchema, Field

SCHEMA = BUILT_IN["logins"]
GROWN = EventSchema("logins", "ts", (*SCHEMA.fields, Field("device", "string")))
BEGAN_MS = 490_000 * HOUR_MS
Script = Callable[[str, Callable[[], Any]], Any]


class ScriptedCatalogs(Catalogs):
    """Catalogs that answer as a test says: `on_commit` and `on_load` get the table's name, and what does as it should."""

    def __init__(self, on_commit: Script | None = None, on_load: Script | None = None) -> None:
        super().__init__()
        self.on_commit, self.on_load = on_commit, on_load

    def of(self, place: Place) -> Any:
        catalog = super().of(place)
        if not isinstance(catalog, ScriptedCatalog):
            catalog.__class__ = ScriptedCatalog
        catalog.scripts = self  # type: ignore[attr-defined]
        return catalog


class ScriptedCatalog(SqlCatalog):
    scripts: ScriptedCatalogs

    def commit_table(self, table: Any, *more: Any) -> Any:
        script = self.scripts.on_commit
        commit = partial(super().commit_table, table, *more)
        return commit() if script is None else script(table.name()[-1], commit)

    def load_table(self, identifier: Any) -> Any:
        script = self.scripts.on_load
        load = partial(super().load_table, identifier)
        return load() if script is None else script(str(identifier).rpartition(".")[2], load)


def failing(*outcomes: Callable[[], BaseException] | None, is_late: bool = False) -> tuple[Script, list[str]]:
    """A script that fails one after the other, `is_late`: after it has been done; and the tries. None lets one be done."""
    remaining, tries = [*outcomes], []

    def script(name: str, do: Callable[[], Any]) -> Any:
        tries.append(name)
        outcome = remaining.pop(0) if remaining else None
        answer = do() if is_late or outcome is None else None
        if outcome is not None:
            raise outcome()
        return answer

    return script, tries


def local_place(directory: Path, partition_by: str = "") -> Place:
    """The place of a table in a lake on this machine."""
    return Lake(str(directory / "lake")).place("logins", partition_by=partition_by)


def catalog(place: Place) -> Any:
    """Opened by pyiceberg alone, as by a reader that knows nothing of us."""
    from pyiceberg.catalog import load_catalog

    lake = place.location.rpartition("/")[0]
    path = lake.removeprefix("file://")
    properties = dict(place.properties) or {"type": "sql", "uri": f"sqlite:///{path}/{CATALOG_FILE}"}
    return load_catalog("barnabas", **properties)


def stock(place: Place) -> Any:
    """The table as such a reader has it."""
    return catalog(place).load_table(place.name)


def scan(place: Place, **more: Any) -> list[int]:
    """The offsets that such a reader sees, rising."""
    return sorted(stock(place).scan(**more).to_arrow()["_offset"].to_pylist())


def versions(place: Place) -> list[str | None]:
    """The version of the ledger that each snapshot names."""
    return [s.summary.additional_properties.get("barnabas.ledger-version") for s in stock(place).snapshots()]


def rows(start: int, count: int, schema: EventSchema = SCHEMA) -> Any:
    """Decoded events, one hour after each ten."""
    offsets = np.arange(start, start + count)
    values = [
        b'{"ts":%d,"member":"m%d","ip":"i","ok":true,"device":"d%d"}' % (BEGAN_MS + n // 10 * HOUR_MS, n, n)
        for n in offsets.tolist()
    ]
    times = BEGAN_MS + offsets // 10 * HOUR_MS
    headers = pa.array([[("kind", b"login")]] * count, HEADERS_TYPE)
    keys = pa.array([b"%d" % n for n in offsets.tolist()], pa.binary())
    columns = Columns(
        offsets, times, np.zeros(count, np.int32), np.zeros(count, np.int32), keys, pa.array(values, pa.binary()), headers
    )  # fmt: skip
    table, bad = to_table(columns, Decoder(schema), "id", 0)
    assert not bad
    return table


def entry_of(table: Table, kind: str, schema: EventSchema = SCHEMA) -> Entry:
    """An entry that follows the state that a table has seen."""
    state = table.state()
    return Entry(
        state.version + 1,
        kind,
        "c",
        "logins",
        "id",
        state.digest,
        state.path,
        {"name": kind},
        schema.to_dict(),
    )


def staged(table: Table, count: int, schema: EventSchema = SCHEMA, dead: int = 0) -> Entry:
    """A load with its files, of rows and then of dead letters, not committed yet."""
    table.prepare(schema)
    start = table.state().ends.get(0, 0)
    entry = entry_of(table, "load", schema)
    end = start + count + dead
    entry.partitions["0"] = PartitionCommit(start, end, 0, end, count, dead, 0, 0, 0)
    writer = TableWriter(table.layout, schema, "id", 0)
    if count:
        writer.write(rows(start, count, schema))
    entry.add = writer.close()
    if dead:
        letters = [
            {"topic_id": "id", "partition": 0, "offset": n, "end_offset": n + 1, "value": b"no JSON", "reason": "json",
             "timestamp_ms": BEGAN_MS} for n in range(start + count, end)
        ]  # fmt: skip
        entry.dead_add = [write_dead(table.layout, pa.Table.from_pylist(letters, DEAD_SCHEMA), "id", 0)]
    return entry


def load(place: Place, count: int, schema: EventSchema = SCHEMA, dead: int = 0, **more: Any) -> Entry:
    """Commit as a load does."""
    table = Table(place)
    entry = staged(table, count, schema, dead)
    table.commit(entry, **more)
    return entry


def compact(place: Place) -> list[DataFile]:
    """Commit as a compaction does, and return the files that it adds."""
    table = Table(place)
    state = table.state()
    groups = list(plan(table, state, 128 << 20, FILES_MIN))
    entry = entry_of(table, "compact", EventSchema.from_dict(state.schema))
    entry.add = [merge(group) for group in groups]
    entry.remove = [file.path for group in groups for file in group.files]
    table.commit(entry)
    return entry.add


def add_snapshot(place: Place) -> None:
    """Commit as another engine does, which knows nothing of the ledger."""
    with stock(place).transaction() as transaction:
        transaction.update_snapshot(snapshot_properties={"who": "somebody"}).fast_append().commit()


def entries_of(place: Place) -> list[Path]:
    """The files of the ledger of a table on this machine, whether they count or not."""
    return sorted(Path(f"{place.location}/_ledger".removeprefix("file://")).iterdir())
