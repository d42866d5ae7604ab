"""Manifests of a lake of the earlier format, which had no catalog: read once, to become a ledger.

The rule: only files in the chain of manifests count; nothing of the old lake is changed.

    <lake>/<topic>/_log/00000000000000000007.json
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas_pipeline.lake.ledger import (
    BrokenLakeError,
    DataFile,
    Entry,
    PartitionCommit,
    State,
    digest,
    hour_number,
)

if TYPE_CHECKING:
    from barnabas_pipeline.data_types import Document

FORMAT = 1
LOG = "_log"


def exists(root: Path) -> bool:
    """Return whether `root` is a lake of the earlier format."""
    return (root / LOG / f"{1:020d}.json").exists()


def entries(root: Path, prefix: str) -> Iterator[Entry]:
    """Yield manifests as entries, in order; their files are named by `prefix` and their path in the old lake.

    Chains, states and paths in the ledger are for the caller to set. Raises BrokenLakeError.
    """
    version, previous = 1, ""
    while (path := root / LOG / f"{version:020d}.json").exists():
        data = path.read_bytes()
        try:
            raw = json.loads(data)
            if (raw["format"], raw["version"], raw["previous"]) != (FORMAT, version, previous):
                raise BrokenLakeError(f"manifest {version} of {root} does not follow {version - 1}")
            yield _entry(raw, prefix, digest(data))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise BrokenLakeError(f"manifest {version} of {root} cannot be read: {error!r}") from None
        version, previous = version + 1, digest(data)
    if (root / LOG / f"{version + 1:020d}.json").exists():
        raise BrokenLakeError(f"manifest {version} of {root} is missing")


def _entry(raw: Document, prefix: str, sha256: str) -> Entry:
    raw = dict(raw)
    del raw["format"]
    raw["previous"] = raw["previous_path"] = ""
    raw["job"] = {**raw["job"], "manifest_sha256": sha256}
    raw["partitions"] = {key: PartitionCommit(**partition) for key, partition in raw["partitions"].items()}
    for name in ("add", "dead_add"):
        raw[name] = [_file(entry, prefix) for entry in raw[name]]
    for name in ("remove", "dead_remove"):
        raw[name] = [f"{prefix}/{path}" for path in raw[name]]
    return Entry(**raw)


def _file(raw: Document, prefix: str) -> DataFile:
    names = {field.name for field in fields(DataFile)}
    file = DataFile(**{name: value for name, value in raw.items() if name in names})
    file.path = f"{prefix}/{file.path}"
    file.hours = [hour_number(raw["hour"])] if raw.get("hour") else []
    return file


def following(state: State, entry: Entry) -> State:
    """Chain an entry to a state, and return the resulting state. Raises BrokenLakeError if it does not follow."""
    entry.previous, entry.previous_path = state.digest, state.path
    after = state.copy()
    after.apply(entry)
    entry.after = after.to_dict()
    return after
