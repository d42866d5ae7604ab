"""Tables as seen by readers: times of commits, records, and files.

The rule: all tables are read alike, by the SQLite catalog of their lake and by pyiceberg.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

NAMESPACE = "barnabas"
POLL_SECONDS = 0.02


def path_of(url: str) -> str:
    """The path of a `file:` URL, or of a path."""
    return url.removeprefix("file://").removeprefix("file:")


def location(lake: Path, table: str) -> str:
    """The path of a table's newest metadata; empty if there is no table."""
    try:
        with closing(sqlite3.connect(f"file:{lake}/catalog.db?mode=ro", uri=True, timeout=5)) as database:
            row = database.execute(
                "SELECT metadata_location FROM iceberg_tables WHERE table_namespace = ? AND table_name = ?",
                (NAMESPACE, table),
            ).fetchone()
    except sqlite3.OperationalError:  # no catalog, or no tables in it yet
        return ""
    return path_of(str(row[0])) if row else ""


def metadata(path: str) -> dict[str, Any]:
    """Read metadata; empty without a path."""
    return dict(json.loads(Path(path).read_text())) if path else {}


def visible_rows(lake: Path, table: str) -> int:
    """The rows that the newest snapshot has."""
    facts = metadata(location(lake, table))
    newest = facts.get("current-snapshot-id")
    for snapshot in facts.get("snapshots", ()):
        if snapshot["snapshot-id"] == newest:
            return int(snapshot["summary"].get("total-records", 0))
    return 0


def catalog(lake: Path) -> Any:
    """Open the catalog of a lake, and create it if missing: two tasks of the sink that create it at once conflict."""
    from pyiceberg.catalog.sql import SqlCatalog

    lake.mkdir(exist_ok=True)
    place = {"uri": f"sqlite:///{lake}/catalog.db", "warehouse": f"file://{lake}"}
    return SqlCatalog("barnabas", **place, schema_version="v1")


def open_table(lake: Path, table: str) -> Any:
    """Open a table as a stock reader does."""
    return catalog(lake).load_table(f"{NAMESPACE}.{table}")


@dataclass(frozen=True, slots=True)
class Account:
    """Records of a topic by their numbers: how many the table lacks, and how many rows are duplicates."""

    lost: int
    doubled: int


def account(lake: Path, table: str, count: int) -> Account:
    """Count the records 0 to `count` of a topic in its table."""
    sessions = open_table(lake, table).scan(selected_fields=("session",)).to_arrow()["session"]
    seen = np.bincount(np.array(sessions.to_pylist(), dtype=np.int64), minlength=count)
    return Account(int((seen == 0).sum()), int((seen - 1).clip(0).sum()))


class Watch(threading.Thread):
    """Notes when each snapshot of a table was seen first, in ms since 1970; its metadata may be removed soon after."""

    def __init__(self, lake: Path, table: str) -> None:
        super().__init__(daemon=True)
        self._lake, self._table = lake, table
        self._stopping = threading.Event()
        self._path = ""
        self.seen: dict[int, float] = {}

    def run(self) -> None:
        """Look until `end`."""
        while not self._stopping.wait(POLL_SECONDS):
            path, now_ms = location(self._lake, self._table), time.time() * 1000
            if path == self._path:
                continue
            with suppress(FileNotFoundError):  # newer metadata exist
                for snapshot in metadata(path).get("snapshots", ()):
                    self.seen.setdefault(snapshot["snapshot-id"], now_ms)
                self._path = path

    def end(self) -> None:
        """Stop looking."""
        self._stopping.set()
        self.join()

    def ages_ms(self, since_ms: float) -> Any:
        """Return for each record from `since_ms` on the time from its production until a reader could see it."""
        import pyarrow.parquet as pq

        table = open_table(self._lake, self._table)
        ages = [np.zeros(0)]
        for snapshot in table.snapshots():
            for manifest in snapshot.manifests(table.io):
                if manifest.added_snapshot_id != snapshot.snapshot_id:
                    continue
                for entry in manifest.fetch_manifest_entry(table.io):
                    if entry.snapshot_id == snapshot.snapshot_id:
                        times = pq.read_table(path_of(entry.data_file.file_path), columns=["ts"])[
                            "ts"
                        ].to_numpy()
                        ages.append(self.seen[snapshot.snapshot_id] - times[times >= since_ms])
        return np.concatenate(ages)


@dataclass(frozen=True, slots=True)
class Left:
    """Files of a table: of data, and all others with their bytes; `commits` are its snapshots."""

    commits: int
    data_files: int
    other_files: int
    other_bytes: int


def files_left(lake: Path, table: str) -> Left:
    """Count the files of a table in its lake."""
    commits = len(metadata(location(lake, table)).get("snapshots", ()))
    paths = [path for path in lake.rglob("*") if path.is_file() and path.name != "catalog.db"]
    data = [path for path in paths if path.suffix == ".parquet"]
    others = [path for path in paths if path.suffix != ".parquet"]
    return Left(commits, len(data), len(others), sum(path.stat().st_size for path in others))
