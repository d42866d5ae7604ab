"""Net effect of the manifests up to some version, in one file, so that opening a table does not read them all.

The rule: a checkpoint is derived. It counts only if its own digest and that of its manifest are right; whoever finds none
folds the manifests from the first, and gets the same.

    _log/checkpoints/00000000000000000100.json        a line with the SHA-256 of the rest, then JSON
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

from barnabas_pipeline import faults
from barnabas_pipeline.lake.manifest import DataFile, PartitionCommit, TableState, digest

EVERY = 100  # manifests from one checkpoint to the next
FORMAT = 1
_BY_PARTITION = ("starts", "ends", "high_watermarks", "leader_epochs")
_PLAIN = ("version", "digest", "cluster_id", "topic", "topic_id", "schema", "redriven")


def encode(state: TableState) -> bytes:
    """As it is stored: files and totals as rows, without the names of their fields in each."""
    body: dict[str, Any] = {"format": FORMAT}
    body |= {name: getattr(state, name) for name in (*_PLAIN, *_BY_PARTITION)}
    body["sealed"], body["reopened"] = sorted(state.sealed), sorted(state.reopened)
    body["partitions"] = list(state.totals)
    body["totals"] = _rows(PartitionCommit, state.totals.values())
    body["files"] = _rows(DataFile, state.files.values())
    body["dead"] = _rows(DataFile, state.dead.values())
    data = json.dumps(body, separators=(",", ":")).encode() + b"\n"
    return f"{digest(data)}\n".encode() + data


def decode(stored: bytes) -> TableState | None:
    """Read a stored one; None if it is damaged, or not of a format that is known here."""
    said, _, data = stored.partition(b"\n")
    if said.decode("ascii", "replace") != digest(data):
        return None
    try:
        body = json.loads(data)
        if body["format"] != FORMAT:
            return None
        state = TableState(**{name: body[name] for name in _PLAIN})
        for name in _BY_PARTITION:
            setattr(state, name, {int(partition): value for partition, value in body[name].items()})
        state.totals = dict(zip(body["partitions"], _objects(PartitionCommit, body["totals"]), strict=True))
        state.files = {file.path: file for file in _objects(DataFile, body["files"])}
        state.dead = {file.path: file for file in _objects(DataFile, body["dead"])}
        state.sealed, state.reopened = set(body["sealed"]), set(body["reopened"])
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    return state


def _rows(kind: Any, objects: Any) -> dict[str, Any]:
    names = [one.name for one in fields(kind)]
    return {"fields": names, "rows": [[getattr(one, name) for name in names] for one in objects]}


def _objects(kind: Any, table: dict[str, Any]) -> Iterator[Any]:
    names = table["fields"]
    if names == [one.name for one in fields(kind)]:
        return (kind(*row) for row in table["rows"])
    return (kind(**dict(zip(names, row, strict=True))) for row in table["rows"])  # of another release


class Checkpoints:
    """The checkpoints of one table, in `directory`; `manifest_path(version)` is where its manifests are."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._newest = 0  # the last that was read or written here

    def load(self, version_max: int | None = None) -> TableState | None:
        """The newest that counts, up to a version."""
        for version in sorted(self._versions(), reverse=True):
            if version_max is not None and version > version_max:
                continue
            try:
                state = decode(self._path(version).read_bytes())
                manifest = (self._directory.parent / f"{version:020d}.json").read_bytes()
            except OSError:
                continue  # removed meanwhile, or of manifests that are not there any more
            if state is not None and (state.version, state.digest) == (version, digest(manifest)):
                self._newest = max(self._newest, version)
                return state
        return None

    def is_due(self, version: int) -> bool:
        """Say whether a commit of this version should be followed by a checkpoint."""
        return version - self._newest >= EVERY

    def put(self, state: TableState) -> None:
        """Put one if absent, and remove all but the one before. What goes wrong does not matter: see the rule."""
        self._newest = state.version
        target = self._path(state.version)
        temporary = self._directory / f".{target.name}.{os.getpid()}-{time.time_ns()}"
        try:
            self._directory.mkdir(exist_ok=True)
            temporary.write_bytes(encode(state))
            faults.point("checkpoint.before_link")
            os.link(temporary, target)
            faults.point("checkpoint.after_link")
            earlier = [version for version in self._versions() if version < state.version]
            for version in self._versions():
                if version != state.version and version != max(earlier, default=0):
                    self._path(version).unlink(missing_ok=True)
        except OSError:
            pass
        finally:
            with suppress(OSError):
                temporary.unlink()

    def _versions(self) -> list[int]:
        try:
            names = os.listdir(self._directory)
        except OSError:
            return []
        return [int(name[:-5]) for name in names if name.endswith(".json") and name[:-5].isdigit()]

    def _path(self, version: int) -> Path:
        return self._directory / f"{version:020d}.json"
