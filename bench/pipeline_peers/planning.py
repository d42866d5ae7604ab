"""Planning of a scan over a table with a year of commits, as each arm leaves it.

The rule: the metadata are real and read by pyiceberg; the data files are not there, as no planner opens them. A year is
made by the layout that an arm's commits have: `spark` appends a manifest with each commit (a fast append), `sink` has
manifests merged by the hundred (Iceberg's default for an append), ours are made by our own commits. All snapshots are kept.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from statistics import median
from typing import Any

from bench import commits
from bench.pipeline_peers.tables import NAMESPACE, metadata, path_of

FILES = 4
ROWS = 1_000
MERGED = {"spark": 1, "sink": 100}
"""Commits that a manifest has the files of."""
HOUR_MS = 3_600_000
TRIES = 3
KEPT = 10


def measure(work: Path, layout: str, count: int) -> dict[str, Any]:
    """Return CPU seconds from opening a table of `count` commits to the files of its newest hour, and to all files."""
    path = _ours(work, count) if layout == "barnabas" else _theirs(work, count, MERGED[layout])
    newest: list[float] = []
    whole: list[float] = []
    for _ in range(TRIES):
        for seconds, first_hour, files in ((newest, count - 1, FILES), (whole, 0, count * FILES)):
            began = time.process_time()
            planned = _planned(path, f"ts >= {first_hour * HOUR_MS}")
            seconds.append(time.process_time() - began)
            assert planned == files, (layout, planned, files)
    return {"plan newest hour, s": median(newest), "plan all, s": median(whole)}


def _planned(path: Path, row_filter: str) -> int:
    from pyiceberg.table import StaticTable

    return sum(1 for _ in StaticTable.from_metadata(str(path)).scan(row_filter=row_filter).plan_files())


def _ours(work: Path, count: int) -> Path:
    from barnabas_pipeline.lake.table import Table

    root = work / "lake" / "views"
    held = Table(root)
    for number in range(count):
        commits.commit(held, FILES, KEPT, hour=number)
    facts = metadata(path_of(Table(root).iceberg.metadata_location))
    return _written(work, facts, count)


def _theirs(work: Path, count: int, merged: int) -> Path:
    """Write a table of `count` commits, with the files of `merged` commits in each manifest."""
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.manifest import (
        DataFile,
        DataFileContent,
        FileFormat,
        ManifestEntry,
        ManifestEntryStatus,
        write_manifest,
        write_manifest_list,
    )
    from pyiceberg.schema import Schema
    from pyiceberg.typedef import Record
    from pyiceberg.types import LongType, NestedField, StringType

    work.mkdir(parents=True, exist_ok=True)
    catalog = SqlCatalog("barnabas", uri=f"sqlite:///{work}/catalog.db", warehouse=f"file://{work}")
    catalog.create_namespace(NAMESPACE)
    columns = (NestedField(1, "ts", LongType()), NestedField(2, "session", StringType()))
    table = catalog.create_table(f"{NAMESPACE}.views", Schema(*columns))

    def entry(hour: int, number: int) -> ManifestEntry:
        first, last = (hour * HOUR_MS + more for more in (0, HOUR_MS - 1))
        file = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=f"file:///none/{hour}-{number}.parquet",
            file_format=FileFormat.PARQUET,
            partition=Record(),
            record_count=ROWS,
            file_size_in_bytes=50_000,
            lower_bounds={1: first.to_bytes(8, "little")},
            upper_bounds={1: last.to_bytes(8, "little")},
        )
        return ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=count, data_file=file)

    manifests = []
    for start in range(0, count, merged):
        output = table.io.new_output(f"{work}/{start}.avro")
        with write_manifest(2, table.spec(), table.schema(), output, count, "deflate") as writer:
            for hour in range(start, min(start + merged, count)):
                for number in range(FILES):
                    writer.add_entry(entry(hour, number))
        manifests.append(writer.to_manifest_file())
    output = table.io.new_output(f"{work}/list.avro")
    with write_manifest_list(2, output, count, None, count, "deflate") as listed:
        listed.add_manifests(manifests)
    facts = metadata(path_of(table.metadata_location))
    facts["snapshots"] = [
        {"snapshot-id": count, "sequence-number": count, "timestamp-ms": facts["last-updated-ms"],
         "manifest-list": f"{work}/list.avro", "schema-id": 0, "summary": {"operation": "append"}}
    ]  # fmt: skip
    facts |= {"current-snapshot-id": count, "last-sequence-number": count}
    facts["refs"] = {"main": {"snapshot-id": count, "type": "branch"}}
    return _written(work, facts, count)


def _written(work: Path, facts: dict[str, Any], count: int) -> Path:
    """Write metadata with `count` snapshots (older ones are copies of the newest), and return their path."""
    kept = facts["snapshots"]
    newest = max(kept, key=lambda snapshot: snapshot["sequence-number"])
    older = [newest | {"snapshot-id": -number} for number in range(count - len(kept), 0, -1)]
    facts["snapshots"] = older + kept
    facts["snapshot-log"] = [
        {"snapshot-id": snapshot["snapshot-id"], "timestamp-ms": newest["timestamp-ms"]}
        for snapshot in facts["snapshots"]
    ]
    target = work / "year.metadata.json"
    target.write_text(json.dumps(facts))
    return target
