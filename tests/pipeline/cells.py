"""Tables that other engines change, in some store and catalog, with the logs that they were loaded from."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from barnabas_pipeline.jobs.audit import AuditReport, audit, raise_if_lossy
from barnabas_pipeline.jobs.compare import Differences
from barnabas_pipeline.jobs.load import LoadOptions
from barnabas_pipeline.jobs.loading import load
from barnabas_pipeline.lake import scan, store
from barnabas_pipeline.lake.columns import lake_schema
from barnabas_pipeline.lake.coordinates import UNREADABLE
from barnabas_pipeline.lake.iceberg import CATALOG_FILE, Place
from barnabas_pipeline.lake.store import StoreIO
from barnabas_pipeline.lake.table import Table

from .tables import BEGAN_MS, SCHEMA, local_place, stock
from .topics import Here, Topic, login

LOADS, ROWS, BAD = 3, 4, 2
IP = "i"
"""The value of a column in each record."""


@dataclass
class Cell:
    """A table of three loads, and the log that it was loaded from; `database` is the file of its catalog."""

    topic: Topic
    options: LoadOptions
    database: Path
    io: StoreIO = field(default_factory=lambda: StoreIO({}))

    @classmethod
    def made(cls, directory: Path, place: Place | None = None, database: Path | None = None) -> Cell:
        topic, place = Topic(directory / "data"), place or local_place(directory)
        database = database or directory / "lake" / CATALOG_FILE
        cell = cls(
            topic, LoadOptions(topic.options, place, SCHEMA), database, StoreIO(dict(place.properties))
        )
        for _ in range(LOADS):
            cell.load()
        return cell

    @property
    def place(self) -> Any:
        return self.options.root

    @property
    def iceberg(self) -> Any:
        return stock(self.place)

    def load(self) -> None:
        first = self.topic.ends[0]
        values = (b"no JSON" if n == BAD else login(n % 3, f"m{n}") for n in range(first, first + ROWS))
        self.topic.append(*values)
        load(Here(), self.options)

    def audit(self) -> AuditReport:
        report = audit(Here(), self.options, now_ms=BEGAN_MS, lateness_ms=0, comparing=compared)
        raise_if_lossy(report)
        return report

    def ips(self) -> dict[int, str]:
        """A column by offset."""
        table = Table(self.place)
        tables = list(scan.rows(table.layout, table.pieces(), lake_schema(SCHEMA)))
        rows = (
            pa.concat_tables(tables).select(["_offset", "ip"])
            if tables
            else pa.table({"_offset": [], "ip": []})
        )
        rows = rows.filter(pc.is_valid(rows["_offset"]))
        offsets = rows["_offset"].to_pylist()
        assert len(offsets) == len(set(offsets)), "an offset is there twice"
        return dict(sorted(zip(offsets, rows["ip"].to_pylist(), strict=True)))

    def offsets(self) -> list[int]:
        return [*self.ips()]

    def snapshot(self, version: int) -> Any:
        return self.iceberg.snapshots()[version - 1]

    # --- kept and restored ------------------------------------------------------------------------------------------

    def objects(self) -> dict[str, bytes]:
        """All objects of the table and of those beside it."""
        return {
            listed.location: store.read(self.io, listed.location)
            for listed in store.listing(self.io, self.place.location)
        }

    def keep(self) -> Kept:
        """Return all that there is."""
        with sqlite3.connect(self.database) as connection:
            rows = connection.execute("SELECT * FROM iceberg_tables").fetchall()
        log = {path: path.read_bytes() for path in self.topic.directory.rglob("*") if path.is_file()}
        return Kept(self.objects(), rows, dict(self.topic.ends), log)

    def restore(self, kept: Kept) -> None:
        """Let all be as it was."""
        present = self.objects()
        for location in present.keys() - kept.objects.keys():
            self.io.delete(location)
        for location, data in kept.objects.items():
            if present.get(location) != data:
                store.write(self.io, location, data)
        with sqlite3.connect(self.database) as connection:
            connection.execute("DELETE FROM iceberg_tables")
            for row in kept.rows:
                connection.execute(f"INSERT INTO iceberg_tables VALUES ({','.join('?' * len(row))})", row)
        self.topic.ends = dict(kept.ends)
        for path, data in kept.log.items():
            path.write_bytes(data)


@dataclass
class Kept:
    """Objects of a table, rows of its catalog, and the log."""

    objects: dict[str, bytes]
    rows: list[tuple[Any, ...]]
    ends: dict[int, int]
    log: dict[Path, bytes]


def compared(_spark: Any, table: Table, inventory: Any, *more: Any) -> Differences:
    """Compare a column of all rows within some ranges with the log, as an audit does by Spark."""
    _, _, ranges, unreadable = more
    differences = Differences()
    for row in inventory.rows:
        if row.path in unreadable:
            continue
        try:
            parts = list(scan.rows(table.layout, [row.piece], lake_schema(SCHEMA)))
        except UNREADABLE:
            continue
        for offset, ip in ((each["_offset"], each["ip"]) for part in parts for each in part.to_pylist()):
            if offset is not None and any(part.start <= offset < part.end for part in ranges):
                differences.rows += 1
                if ip != IP:
                    differences.altered += 1
                    differences.altered_first.append((0, offset))
    return differences
