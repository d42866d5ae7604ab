"""Snapshots in a store: pushed, pulled, pushed again, interrupted, damaged."""

import json
import signal
import subprocess
import sys

import pytest

from barnabas.log.disk import OsDisk
from barnabas.log.format import names
from barnabas.tiered.storage import RemoteStorageError
from barnabas.tools.snapshots.layout import (
    BLOB_BYTES,
    DamagedSnapshotError,
    Manifest,
    SnapshotStoreError,
    StoredFile,
    decode_manifest,
    digest_of,
)
from barnabas.tools.snapshots.pruning import delete
from barnabas.tools.snapshots.pulling import pull, verify
from barnabas.tools.snapshots.pushing import push
from barnabas.tools.snapshots.urls import open_place
from tests.support.snapshot_stores import (
    CLUSTER,
    SEGMENT,
    files_of,
    log_dir_in,
    source_of,
    store_in,
    store_of,
    write_files,
)


def pulled(store, target, name=None):
    return pull(store, store.manifest(store.resolve(name).manifest), str(target))


def blobs_in(directory):
    return [path for path in (directory / "blobs").rglob("*") if path.is_file()]


def test_pulled_files_are_those_that_were_pushed(tmp_path) -> None:
    content = log_dir_in(tmp_path / "data", size=2 * BLOB_BYTES + 5)
    store = store_in(tmp_path / "store")
    seen = []
    result = push(store, source_of(tmp_path / "data"), "first", note_bytes=lambda done, _: seen.append(done))
    assert (result.record.size, result.record.topics) == (sum(map(len, content.values())), 1)
    assert (result.record.is_clean, result.record.cluster_id) == (True, CLUSTER)
    assert seen == sorted(seen)
    assert seen[-1] == result.record.size
    assert pulled(store_in(tmp_path / "store"), tmp_path / "copy") == [str(tmp_path / "copy")]
    assert files_of(tmp_path / "copy") == content
    assert not (tmp_path / "copy.pulling").exists()


def test_several_log_dirs_stay_apart(tmp_path) -> None:
    contents = [log_dir_in(tmp_path / name, size) for name, size in (("a", 100), ("b", 200_000))]
    store = store_in(tmp_path / "store")
    push(store, source_of(tmp_path / "a", tmp_path / "b"), "both")
    paths = pulled(store, tmp_path / "copy")
    assert paths == [str(tmp_path / "copy" / "1"), str(tmp_path / "copy" / "2")]
    assert [files_of(tmp_path / "copy" / number) for number in ("1", "2")] == contents


def test_second_push_sends_what_has_changed(tmp_path) -> None:
    content = log_dir_in(tmp_path / "data", size=3 * BLOB_BYTES, partitions=200)
    store = store_in(tmp_path / "store")
    push(store, source_of(tmp_path / "data"), "first")
    same = push(store, source_of(tmp_path / "data"), "same")
    assert (same.sent_blobs, same.sent_bytes) == (0, 0)
    write_files(tmp_path / "data", {SEGMENT: content[SEGMENT] + b"more"})
    grown = push(store, source_of(tmp_path / "data"), "grown")
    assert (grown.sent_blobs, grown.sent_bytes) == (1, 4)
    write_files(tmp_path / "data", {"new-0/partition.metadata": b"version: 0\n"})
    assert push(store, source_of(tmp_path / "data"), "new").sent_blobs == 1
    pulled(store, tmp_path / "copy", "first")
    assert files_of(tmp_path / "copy") == content


class Failing:
    """Objects of another store, of which writes fail after some."""

    def __init__(self, objects, writes):
        self._objects = objects
        self._writes = writes

    def __getattr__(self, name):
        return getattr(self._objects, name)

    def put(self, key, source):
        if key.startswith("blobs/"):
            self._writes -= 1
            if self._writes < 0:
                raise RemoteStorageError(f"{key}: the service is not available")
        return self._objects.put(key, source)


def test_push_after_failed_push_sends_the_rest(tmp_path) -> None:
    content = log_dir_in(tmp_path / "data", size=5 * BLOB_BYTES)
    place = open_place(f"file://{tmp_path / 'store'}", {}, {})
    with pytest.raises(RemoteStorageError, match="not available"):
        push(store_of(Failing(place.objects, 2)), source_of(tmp_path / "data"), "first", threads=1)
    store = store_in(tmp_path / "store")
    assert store.records() == []
    result = push(store, source_of(tmp_path / "data"), "first", threads=1)
    assert result.sent_blobs == result.blobs - 2
    pulled(store, tmp_path / "copy")
    assert files_of(tmp_path / "copy") == content


KILLED = """
import os, signal, sys
from pathlib import Path
from tests.support.snapshot_stores import *
from tests.unit.tools.snapshots.test_push_and_pull import *
store = store_in(Path(sys.argv[1]))
def note(done, total):
    os.kill(os.getpid(), signal.SIGKILL)
push(store, source_of(Path(sys.argv[2])), "second", note_bytes=note, threads=1)
"""


def test_killed_push_leaves_earlier_snapshot_whole(tmp_path) -> None:
    content = log_dir_in(tmp_path / "data", size=BLOB_BYTES)
    store = store_in(tmp_path / "store")
    push(store, source_of(tmp_path / "data"), "first")
    log_dir_in(tmp_path / "other", size=3 * BLOB_BYTES + 1)
    arguments = [str(tmp_path / "store"), str(tmp_path / "other")]
    killed = subprocess.run([sys.executable, "-c", KILLED, *arguments], env={"PYTHONPATH": ":".join(sys.path)},
                            check=False)  # fmt: skip
    assert killed.returncode == -signal.SIGKILL
    assert [record.name for record in store.records()] == ["first"]
    blob_count = len(blobs_in(tmp_path / "store"))
    (work,) = push(store, source_of(tmp_path / "data"), "third").interrupted
    assert work.text.startswith("the push of second by process ")
    assert len(blobs_in(tmp_path / "store")) == blob_count
    assert delete(store, [], is_dry=True).objects > 0
    pruned = delete(store, [])
    assert (pruned.snapshots, pruned.objects) == ([], blob_count - len(store.blobs()))
    assert list(store.keys("work")) == []
    assert push(store, source_of(tmp_path / "data"), "fourth").interrupted == []
    pulled(store, tmp_path / "copy", "first")
    assert files_of(tmp_path / "copy") == content


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "has 8388607 bytes, and not 8388608"),
        (lambda path: path.write_bytes(bytes(BLOB_BYTES)), "is damaged: its bytes have another checksum"),
        (lambda path: path.unlink(), "is missing"),
    ],
    ids=["cut-off", "changed", "missing"],
)
def test_damaged_blob_is_named_and_nothing_is_pulled(tmp_path, damage, problem) -> None:
    log_dir_in(tmp_path / "data", size=2 * BLOB_BYTES)
    store = store_in(tmp_path / "store")
    push(store, source_of(tmp_path / "data"), "first")
    path = next(path for path in blobs_in(tmp_path / "store") if path.stat().st_size == BLOB_BYTES)
    damage(path)
    with pytest.raises(DamagedSnapshotError, match=f"{path.name}.*{problem}"):
        pulled(store, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
    (text,) = verify(store, store.manifest(store.resolve("first").manifest))
    assert path.name in text


@pytest.mark.parametrize("folder", ["snapshots", "manifests", "tags"])
def test_cut_off_text_is_said_to_be_damaged(tmp_path, folder) -> None:
    log_dir_in(tmp_path / "data")
    store = store_in(tmp_path / "store")
    push(store, source_of(tmp_path / "data"), "first", tags=["good"])
    (path,) = (tmp_path / "store" / folder).iterdir()
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DamagedSnapshotError, match="is damaged"):
        pulled(store, tmp_path / "copy", "good")


@pytest.mark.parametrize("path", ["../up", "/root", "a/../../up", "a//b", "", "a/b/c/d/e", "a\0b"])
def test_path_that_leaves_the_log_dir_is_refused(path) -> None:
    data = Manifest(((StoredFile(path, 0, ()),),), ()).encode()
    with pytest.raises(DamagedSnapshotError, match="no path below a log dir"):
        decode_manifest(data, digest_of(data))


@pytest.mark.parametrize(
    "change",
    [
        {"log_dirs": [[["a", 3, [[0, 0, 4]]]]]},
        {"log_dirs": [[["a", 9, [[0, 0, 9]]]]]},
        {"log_dirs": [[["a", 4, [[-1, 0, 4]]]]]},
        {"log_dirs": [[["a", 4, [[1, 0, 4]]]]]},
        {"log_dirs": [[["a", 0, []], ["a", 0, []]]]},
        {"log_dirs": []},
        {"blobs": [["0" * 64, BLOB_BYTES + 1]]},
        {"blobs": [["../x", 4]]},
        {"blobs": None},
    ],
)
def test_manifest_that_contradicts_itself_is_refused(change) -> None:
    data = json.dumps({"format": 1, "log_dirs": [[]], "blobs": [["0" * 64, 4]]} | change).encode()
    with pytest.raises(DamagedSnapshotError):
        decode_manifest(data, digest_of(data))


def test_format_of_a_later_version_is_named(tmp_path) -> None:
    log_dir_in(tmp_path / "data")
    store = store_in(tmp_path / "store")
    push(store, source_of(tmp_path / "data"), "first")
    (path,) = (tmp_path / "store" / "snapshots").iterdir()
    path.write_text(path.read_text().replace('"format": 1', '"format": 2'))
    with pytest.raises(SnapshotStoreError, match="has format 2; this version reads format 1"):
        store.records()


def test_directory_with_files_is_not_pulled_into(tmp_path) -> None:
    log_dir_in(tmp_path / "data")
    store = store_in(tmp_path / "store")
    push(store, source_of(tmp_path / "data"), "first")
    with pytest.raises(SnapshotStoreError, match="is not empty"):
        pulled(store, tmp_path / "data")
    (tmp_path / "copy").mkdir()
    write_files(tmp_path / "copy.pulling", {names.LOCK: b"", "copy/of an interrupted pull": b"x"})
    pulled(store, tmp_path / "copy")
    assert files_of(tmp_path / "copy") == files_of(tmp_path / "data")


def test_two_pulls_into_a_directory_exclude_each_other(tmp_path) -> None:
    log_dir_in(tmp_path / "data")
    store = store_in(tmp_path / "store")
    push(store, source_of(tmp_path / "data"), "first")
    (tmp_path / "copy.pulling").mkdir()
    lock = OsDisk().lock(str(tmp_path / "copy.pulling" / ".lock"))
    with pytest.raises(SnapshotStoreError, match="another process pulls into"):
        pulled(store, tmp_path / "copy")
    lock.release()


def test_directory_that_is_no_pulls_keeps_its_files(tmp_path) -> None:
    log_dir_in(tmp_path / "data")
    store = store_in(tmp_path / "store")
    push(store, source_of(tmp_path / "data"), "first")
    write_files(tmp_path / "copy.pulling", {"letters/a": b"not ours"})
    with pytest.raises(SnapshotStoreError, match=r"copy.pulling is in the way"):
        pulled(store, tmp_path / "copy")
    assert files_of(tmp_path / "copy.pulling") == {"letters/a": b"not ours"}
