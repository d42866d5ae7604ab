"""Checkpoints of the manifests: the same state from less reading, and nothing is lost with them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas_pipeline.lake import checkpoint, table
from barnabas_pipeline.lake.manifest import BrokenLakeError, DataFile, Manifest, PartitionCommit, TableState
from barnabas_pipeline.lake.table import Table

ROOT = Path(__file__).resolve().parents[3]
EVERY = 10


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "EVERY", EVERY)


def following(state: TableState) -> Manifest:
    """A load of ten offsets with a file and a dead letter; the seventh replaces a file, the ninth seals."""
    start = state.ends.get(0, 0)
    made = Manifest(state.version + 1, "load", "c", "logins", "id", state.digest, {}, {"name": "logins"})
    made.partitions["0"] = PartitionCommit(start, start + 10, 1, start + 10, 9, 1, 0, 0, 0)
    hour = f"2026-11-20T{made.version % 24:02d}"
    made.add = [DataFile(f"data/{made.version}", 9, 99, "f" * 64, "id", 0, hour, start, start + 9)]
    made.dead_add = [
        DataFile(f"dead/{made.version}", 1, 9, "d" * 64, "id", 0, offsets=1, reasons={"json": 1})
    ]
    if made.version % 7 == 0:
        made.remove = [next(iter(state.files))]
    if made.version % 9 == 0:
        made.sealed = [hour]
    return made


def grow(root: Path, count: int) -> Table:
    lake = Table(root)
    for _ in range(count):
        lake.commit(following(lake.state()))
    return lake


def folded(root: Path) -> TableState:
    """The state by the manifests, each of them read."""
    state = TableState()
    for manifest, data in Table(root).manifests():
        state.apply(manifest, data)
    return state


def checkpoints(root: Path) -> list[int]:
    return sorted(int(path.stem) for path in (root / "_log" / "checkpoints").glob("[0-9]*.json"))


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The versions of the manifests that are decoded."""
    versions: list[int] = []
    decode: Callable[[bytes], Manifest] = Manifest.decode

    def note(data: bytes) -> Manifest:
        manifest = decode(data)
        versions.append(manifest.version)
        return manifest

    monkeypatch.setattr(table.Manifest, "decode", note)
    return versions


def test_an_opening_reads_a_checkpoint_and_the_manifests_after_it(tmp_path: Path, read: list[int]) -> None:
    grow(tmp_path, 2 * EVERY + 5)
    assert checkpoints(tmp_path) == [EVERY, 2 * EVERY]
    read.clear()
    state = Table(tmp_path).state()
    assert read == [2 * EVERY + n for n in range(1, 6)]
    assert state == folded(tmp_path)
    assert state.sealed
    assert state.dead
    read.clear()
    older = Table(tmp_path).state(EVERY + 2)
    assert read[:2] == [EVERY + 1, EVERY + 2]
    assert older.version == EVERY + 2


def test_the_last_two_checkpoints_are_kept(tmp_path: Path) -> None:
    grow(tmp_path, 4 * EVERY + 1)
    assert checkpoints(tmp_path) == [3 * EVERY, 4 * EVERY]


def test_a_checkpoint_that_is_lost_is_made_again_by_the_next_commit(tmp_path: Path) -> None:
    grow(tmp_path, EVERY + 3)
    (tmp_path / "_log" / "checkpoints" / f"{EVERY:020d}.json").unlink()
    assert Table(tmp_path).state() == folded(tmp_path)
    grow(tmp_path, 1)
    assert checkpoints(tmp_path) == [EVERY + 4]
    assert Table(tmp_path).state() == folded(tmp_path)


@pytest.mark.parametrize("spoil", ["cut", "bit", "format", "of other manifests"])
def test_a_checkpoint_that_cannot_be_trusted_does_not_count(
    tmp_path: Path, read: list[int], spoil: str
) -> None:
    grow(tmp_path, EVERY + 1)
    path = tmp_path / "_log" / "checkpoints" / f"{EVERY:020d}.json"
    data = path.read_bytes()
    if spoil == "cut":
        path.write_bytes(data[:-20])
    elif spoil == "bit":
        path.write_bytes(data.replace(b'"loaded"', b'"loadeD"', 1))
    elif spoil == "format":
        body = data.partition(b"\n")[2].replace(b'"format":1', b'"format":2')
        path.write_bytes(checkpoint.digest(body).encode() + b"\n" + body)
    else:
        state = checkpoint.decode(data)
        assert state is not None
        state.digest, state.ends = "0" * 64, {0: 7}
        path.write_bytes(checkpoint.encode(state))
    read.clear()
    state = Table(tmp_path).state()
    assert read == list(range(1, EVERY + 2))
    assert state == folded(tmp_path)


def test_a_checkpoint_of_a_release_with_fewer_fields_is_read(tmp_path: Path, read: list[int]) -> None:
    grow(tmp_path, EVERY)
    state = Table(tmp_path).state()
    data = checkpoint.encode(state).partition(b"\n")[2]
    assert b',"reasons"]' in data
    rows = data.replace(b',"reasons"]', b"]").replace(b',{"json":1}]', b"]").replace(b",{}]", b"]")
    path = tmp_path / "_log" / "checkpoints" / f"{EVERY:020d}.json"
    path.write_bytes(checkpoint.digest(rows).encode() + b"\n" + rows)
    read.clear()
    again = Table(tmp_path).state()
    assert read == []
    assert again.files == state.files
    assert {file.reasons.get("json") for file in again.dead.values()} == {None}


def test_manifests_before_a_checkpoint_are_still_held_to_their_chain(tmp_path: Path) -> None:
    grow(tmp_path, EVERY + 1)
    path = tmp_path / "_log" / f"{5:020d}.json"
    path.write_text(path.read_text().replace('"note": ""', '"note": "!"'))
    assert Table(tmp_path).state().version == EVERY + 1
    with pytest.raises(BrokenLakeError, match="manifest 6 does not follow 5"):
        list(Table(tmp_path).manifests())


def test_a_checkpoint_that_cannot_be_written_does_not_matter(tmp_path: Path) -> None:
    lake = grow(tmp_path, EVERY - 1)
    (tmp_path / "_log" / "checkpoints").write_text("a file is in the way")
    lake.commit(following(lake.state()))
    assert Table(tmp_path).state().version == EVERY


@pytest.mark.parametrize("point", ["checkpoint.before_link", "checkpoint.after_link"])
def test_a_writer_that_dies_at_a_checkpoint_has_committed(tmp_path: Path, point: str) -> None:
    grow(tmp_path, EVERY - 1)
    code = "from tests.unit.pipeline.test_checkpoints import *; "
    code += f"checkpoint.EVERY = {EVERY}; grow(Path({str(tmp_path)!r}), 1)"
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([f"{ROOT}/server", f"{ROOT}/pipeline", str(ROOT)]),
        "BARNABAS_FAULT": point,
    }
    done = subprocess.run([sys.executable, "-c", code], env=environment, cwd=ROOT, timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert Table(tmp_path).state() == folded(tmp_path)
    assert Table(tmp_path).state().version == EVERY
    grow(tmp_path, EVERY)
    assert Table(tmp_path).state() == folded(tmp_path)
    left = [path.name for path in Table(tmp_path).orphans(0) if path.parent.name == "checkpoints"]
    assert len(left) == 1, "the dead left a temporary file, which a vacuum removes"
