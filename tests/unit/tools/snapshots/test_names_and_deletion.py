"""Names and tags of snapshots, deletion, and works that exclude each other."""

import pytest

from barnabas.tools.snapshots.layout import MANIFESTS, SnapshotStoreError, manifest_key
from barnabas.tools.snapshots.leases import Lease, WorkKind
from barnabas.tools.snapshots.pruning import delete
from barnabas.tools.snapshots.pulling import verify
from barnabas.tools.snapshots.pushing import push
from tests.support.snapshot_stores import log_dir_in, source_of, store_in


@pytest.fixture
def store(tmp_path):
    log_dir_in(tmp_path / "data", size=200_000)
    return store_in(tmp_path / "store")


def test_name_that_exists_is_replaced_only_if_asked(store, tmp_path) -> None:
    push(store, source_of(tmp_path / "data"), "first")
    with pytest.raises(SnapshotStoreError, match=r"there is a snapshot first in .* already"):
        push(store, source_of(tmp_path / "data"), "first")
    log_dir_in(tmp_path / "data", size=300_000)
    push(store, source_of(tmp_path / "data"), "first", is_replaced=True)
    (record,) = store.records()
    assert record.size > 300_000


def test_tag_moves_from_snapshot_to_snapshot(store, tmp_path) -> None:
    push(store, source_of(tmp_path / "data"), "first", tags=["good", "old"])
    push(store, source_of(tmp_path / "data"), "second", tags=["good"])
    assert [(record.name, record.tags) for record in store.records()] == [
        ("first", ("old",)), ("second", ("good",)),
    ]  # fmt: skip
    assert [store.resolve(name).name for name in ("good", "old", "first", None)] == [
        "second", "first", "first", "second",
    ]  # fmt: skip
    with pytest.raises(
        SnapshotStoreError, match=r"there is no snapshot third in .*; there are: first, second"
    ):
        store.resolve("third")


def test_store_without_a_snapshot_says_so(store) -> None:
    with pytest.raises(SnapshotStoreError, match="there is no snapshot in file:"):
        store.resolve(None)


@pytest.mark.parametrize("name", ["", ".hidden", "a/b", "..", "a" * 101])
def test_name_that_is_no_key_is_refused(store, tmp_path, name) -> None:
    with pytest.raises(SnapshotStoreError, match="is no name for a snapshot"):
        push(store, source_of(tmp_path / "data"), name)
    with pytest.raises(SnapshotStoreError, match="is no name for a snapshot"):
        push(store, source_of(tmp_path / "data"), "first", tags=[name])


def test_deletion_keeps_what_other_snapshots_name(store, tmp_path) -> None:
    push(store, source_of(tmp_path / "data"), "first", tags=["old"])
    log_dir_in(tmp_path / "data", size=300_000)
    push(store, source_of(tmp_path / "data"), "second")
    planned = delete(store, ["first"], is_dry=True)
    assert len(store.records()) == 2
    pruned = delete(store, ["first"])
    assert pruned == planned
    assert (pruned.snapshots, pruned.tags) == (["first"], ["old"])
    assert pruned.objects >= 2
    (record,) = store.records()
    assert record.name == "second"
    assert verify(store, store.manifest(record.manifest)) == []
    assert {key for key, _ in store.keys(MANIFESTS)} == {manifest_key(record.manifest)}
    assert delete(store, []).objects == 0


def test_deletion_of_a_tag_keeps_its_snapshot(store, tmp_path) -> None:
    push(store, source_of(tmp_path / "data"), "first", tags=["old"])
    pruned = delete(store, ["old"])
    assert (pruned.snapshots, pruned.tags, pruned.objects) == ([], ["old"], 0)
    with pytest.raises(SnapshotStoreError, match="there is no snapshot or tag old"):
        delete(store, ["old"])


def test_deletion_and_push_exclude_each_other(store, tmp_path) -> None:
    with Lease(store, WorkKind.PUSH, "first"):
        with pytest.raises(SnapshotStoreError, match=r"the push of first by process .* uses file:"):
            delete(store, [])
        push(store, source_of(tmp_path / "data"), "second")
    with (
        Lease(store, WorkKind.DELETION, "second"),
        pytest.raises(SnapshotStoreError, match="the deletion of second by"),
    ):
        push(store, source_of(tmp_path / "data"), "third")
    delete(store, ["second"])


def test_objects_of_others_in_the_store_stay(store, tmp_path) -> None:
    push(store, source_of(tmp_path / "data"), "first")
    other = tmp_path / "store" / "other" / "file"
    other.parent.mkdir()
    other.write_bytes(b"x")
    delete(store, ["first"])
    assert other.read_bytes() == b"x"
    assert [path for path in (tmp_path / "store").rglob("*") if path.is_file()] == [other]
