"""Manifests of a small lake, for the tests of its commits."""

from __future__ import annotations

from pathlib import Path

from barnabas_pipeline.lake.manifest import DataFile, Manifest, PartitionCommit, TableState
from barnabas_pipeline.lake.table import Table

IDENTITY = ("c", "logins", "id")


def following(state: TableState, kind: str = "load", identity: tuple[str, str, str] = IDENTITY) -> Manifest:
    """Return an empty manifest that follows a state."""
    cluster_id, topic, topic_id = identity
    return Manifest(state.version + 1, kind, cluster_id, topic, topic_id, state.digest, {}, {"name": topic})


def covering(start: int, end: int, *, leader_epoch: int = 1, high_watermark: int = -1) -> PartitionCommit:
    """Return what became of offsets that were all loaded."""
    known = end if high_watermark < 0 else high_watermark
    return PartitionCommit(start, end, leader_epoch, known, end - start, 0, 0, 0, 0)


def data_file(path: str, *, hour: str = "2026-11-20T07", rows: int = 1) -> DataFile:
    """Return a file of an hour."""
    return DataFile(path, rows, 99, "f" * 64, "id", 0, hour)


def folded(*made: Manifest) -> TableState:
    """Return the state after these manifests; the chain is made here, so that they need not know it."""
    state = TableState()
    for manifest in made:
        manifest.version, manifest.previous = state.version + 1, state.digest
        state.apply(manifest, manifest.encode())
    return state


def load_of(start: int, end: int, *, partition: int = 0) -> Manifest:
    """Return a load of a range of one partition."""
    made = following(TableState())
    made.partitions[str(partition)] = covering(start, end)
    return made


def of_kind(kind: str, **more: object) -> Manifest:
    """Return a manifest of a kind with some of its fields."""
    made = following(TableState(), kind)
    for name, value in more.items():
        assert hasattr(made, name), name
        setattr(made, name, value)
    return made


def next_load(lake: Table) -> Manifest:
    """Return a load of the next ten offsets."""
    state = lake.state()
    start = state.ends.get(0, 0)
    made = following(state)
    made.partitions["0"] = covering(start, start + 10)
    return made


def stored(root: Path) -> list[str]:
    """Return the names of what lies beside the manifests, temporary files included."""
    return sorted(path.name for path in (root / "_log").iterdir() if path.is_file())
