"""A lake of the earlier format, made of a table: the same commits as manifests, the same rows in files by the old names."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from barnabas_pipeline.lake.ledger import DataFile, hour_name
from barnabas_pipeline.lake.store import local_path
from barnabas_pipeline.lake.table import Table
from barnabas_pipeline.log.columns import HEADERS_TYPE


def make(table: Table, root: Path, *, with_ids: bool = True) -> None:
    """Write it; without field ids as the first releases did."""
    previous = ""
    (root / "_log").mkdir(parents=True)
    for entry in table.entries():
        manifest: dict[str, Any] = {
            name: getattr(entry, name)
            for name in (
                "version", "kind", "cluster_id", "topic", "topic_id", "job", "schema", "sealed", "lost", "redriven", "note",
            )
        }  # fmt: skip
        manifest |= {"format": 1, "previous": previous}
        manifest["partitions"] = {key: asdict(commit) for key, commit in entry.partitions.items()}
        for name, directory in (("add", "data"), ("dead_add", "dead")):
            manifest[name] = [_file(file, root, directory, with_ids) for file in getattr(entry, name)]
        for name, directory in (("remove", "data"), ("dead_remove", "dead")):
            manifest[name] = [f"{directory}/{path.rpartition('/')[2]}" for path in getattr(entry, name)]
        data = (json.dumps(manifest, sort_keys=True, indent=1) + "\n").encode()
        (root / "_log" / f"{entry.version:020d}.json").write_bytes(data)
        previous = hashlib.sha256(data).hexdigest()


def _file(file: DataFile, root: Path, directory: str, with_ids: bool) -> dict[str, Any]:
    source = local_path(file.path)
    assert source is not None
    target = root / directory / source.name
    target.parent.mkdir(exist_ok=True)
    rows = pq.ParquetFile(source).read()
    rows = rows.rename_columns(
        [{"_topic_partition": "_partition"}.get(name, name) for name in rows.column_names]
    )
    if not with_ids:
        rows = _without_ids(rows)
    pq.write_table(rows, target)
    data = target.read_bytes()
    entry = {name: value for name, value in asdict(file).items() if name not in ("hours", "iceberg")}
    entry |= {
        "path": f"{directory}/{target.name}",
        "size": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
    }
    entry["hour"] = hour_name(file.hours[0]) if file.hours else ""
    return entry


def _without_ids(rows: Any) -> Any:
    plain = [
        pa.field(field.name, HEADERS_TYPE if field.name in ("_headers", "headers") else field.type)
        for field in rows.schema
    ]
    return rows.cast(pa.schema(plain))
