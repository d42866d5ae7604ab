"""The commit of a manifest: one link of a whole file that is on the disk, which one of two writers comes to first."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from barnabas_pipeline import faults
from barnabas_pipeline.errors import EXIT_INCOMPLETE, UsageError
from barnabas_pipeline.lake import checkpoint, table
from barnabas_pipeline.lake.manifest import BrokenLakeError, Manifest
from barnabas_pipeline.lake.table import ConflictError, Table, put_if_absent, write_synced
from tests.support.systems import in_proc, open_descriptors
from tests.unit.pipeline.manifests import covering, data_file, following, next_load, stored


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note what happens to files, in order; nothing is really forced to the disk."""
    steps: list[str] = []

    def synced(descriptor: int) -> None:
        path = in_proc(f"self/fd/{descriptor}").readlink()
        steps.append(f"sync {path.name}" if path.is_dir() else f"sync {path.stat().st_size} bytes")

    def linked(source: Path, target: Path) -> None:
        steps.append(f"link {target.name}")
        link(source, target)

    link = os.link
    monkeypatch.setattr(table, "sync", synced)
    monkeypatch.setattr(os, "link", linked)
    monkeypatch.setattr(faults, "point", steps.append)
    return steps


@contextmanager
def at(point: str, monkeypatch: pytest.MonkeyPatch, act: object) -> Iterator[None]:
    """Do something when a commit comes to a point, once."""
    assert callable(act)
    came: list[str] = []

    def reached(name: str) -> None:
        if name == point and not came:
            came.append(name)
            act()

    with monkeypatch.context() as patched:
        patched.setattr(faults, "point", reached)
        yield
    assert came, f"no commit came to {point}"


def grow(root: Path, count: int) -> Table:
    lake = Table(root)
    for _ in range(count):
        lake.commit(next_load(lake))
    return lake


def name_of(version: int) -> str:
    return f"{version:020d}.json"


# --- one writer -----------------------------------------------------------------------------------------------------


def test_a_commit_is_on_the_disk_before_it_counts_and_its_name_before_it_is_answered(tmp_path, quick):
    lake = Table(tmp_path)
    made = next_load(lake)
    assert not lake.exists()
    lake.commit(made)
    assert quick == [
        f"sync {len(made.encode())} bytes",
        "commit.before_link",
        f"link {name_of(1)}",
        "commit.after_link",
        "sync _log",
        "commit.after",
    ]
    assert lake.exists()
    assert stored(tmp_path) == [name_of(1)]
    assert [*Table(tmp_path).manifests()] == [(made, made.encode())]
    assert lake.state().ends == Table(tmp_path).state().ends == {0: 10}


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        ({"partitions": {"0": covering(11, 20)}}, "10 is next, not 11"),
        ({"partitions": {"1": covering(0, 5, high_watermark=9)}, "remove": ["a"]}, "removes a"),
        ({"version": 3}, "does not follow"),
        ({"previous": "0" * 64}, "does not follow"),
        ({"topic_id": "other"}, "another incarnation"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_a_manifest_that_would_break_the_lake_is_not_even_written(tmp_path, quick, spoil, why):
    lake = grow(tmp_path, 1)
    before = lake.state().copy()
    made = next_load(lake)
    for name, value in spoil.items():
        setattr(made, name, value)
    quick.clear()
    with pytest.raises(BrokenLakeError, match=why):
        lake.commit(made)
    assert quick == []
    assert stored(tmp_path) == [name_of(1)]
    assert lake.state() == Table(tmp_path).state() == before


def test_a_checkpoint_follows_a_commit_when_it_is_due(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "EVERY", 3)
    grow(tmp_path, 7)
    assert sorted(path.name for path in (tmp_path / "_log" / "checkpoints").iterdir()) == [
        name_of(3),
        name_of(6),
    ]


def test_other_files_beside_the_checkpoints_do_not_matter(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "EVERY", 2)
    grow(tmp_path, 2)
    others = ["9x.json", "x9.json", ".json", "9", "9.JSON", ".00009.json", "9.json.tmp"]
    for name in others:
        (tmp_path / "_log" / "checkpoints" / name).write_text("{}")
    assert Table(tmp_path).state().version == 2
    grow(tmp_path, 4)
    left = {path.name for path in (tmp_path / "_log" / "checkpoints").iterdir()}
    assert left == {*others, name_of(4), name_of(6)}


# --- two writers ----------------------------------------------------------------------------------------------------


def other_commits(root: Path, count: int = 1) -> None:
    lake = Table(root)
    for _ in range(count):
        made = following(lake.state())
        made.partitions["1"] = covering(lake.state().ends.get(1, 0), lake.state().ends.get(1, 0) + 5)
        lake.commit(made)


@pytest.mark.parametrize("count", [1, 2])
def test_a_writer_that_sees_that_another_was_faster_has_put_nothing(tmp_path, quick, count):
    lake = grow(tmp_path, 1)
    made = next_load(lake)
    other_commits(tmp_path, count)
    quick.clear()
    with pytest.raises(ConflictError, match=f"version 2 of {tmp_path} was committed by another writer"):
        lake.commit(made)
    assert quick == [], "no file was written"
    assert stored(tmp_path) == [name_of(version) for version in range(1, 2 + count)]


def test_of_two_writers_that_come_to_the_link_at_once_the_second_gives_way(tmp_path, monkeypatch):
    lake = grow(tmp_path, 1)
    made = next_load(lake)
    with (
        at("commit.before_link", monkeypatch, lambda: other_commits(tmp_path)),
        pytest.raises(
            ConflictError, match=f"version 2 of {tmp_path} was committed by another writer"
        ) as raised,
    ):
        lake.commit(made)
    assert raised.value.exit_code == EXIT_INCOMPLETE
    assert stored(tmp_path) == [name_of(1), name_of(2)], "its temporary file is gone"
    assert lake.state().ends == Table(tmp_path).state().ends == {0: 10, 1: 5}
    lake.commit(next_load(lake))  # from the state of the other
    assert Table(tmp_path).state().ends == {0: 20, 1: 5}


def test_of_two_first_writers_one_gives_way(tmp_path, monkeypatch):
    lake = Table(tmp_path)
    made = next_load(lake)
    with at("commit.before_link", monkeypatch, lambda: grow(tmp_path, 1)), pytest.raises(ConflictError):
        lake.commit(made)
    assert (lake.state().version, lake.state().ends) == (1, {0: 10})


# --- what is read ---------------------------------------------------------------------------------------------------


def test_manifests_are_given_after_a_version(tmp_path):
    grow(tmp_path, 4)
    lake = Table(tmp_path)
    assert [manifest.version for manifest, _ in lake.manifests()] == [1, 2, 3, 4]
    assert [manifest.version for manifest, _ in lake.manifests(after=1)] == [2, 3, 4]
    assert [manifest.version for manifest, _ in lake.manifests(after=3)] == [4]
    assert [*lake.manifests(after=4)] == []


@pytest.mark.parametrize("missing", [1, 2, 3])
@pytest.mark.parametrize("after", [0, 1, 2])
def test_a_manifest_that_is_missing_between_others_is_named(tmp_path, missing, after):
    grow(tmp_path, 4)
    (tmp_path / "_log" / name_of(missing)).unlink()
    if missing <= after:
        assert [one.version for one, _ in Table(tmp_path).manifests(after)] == [*range(after + 1, 5)]
        return
    with pytest.raises(BrokenLakeError, match=f"manifest {missing} of {tmp_path} is missing"):
        list(Table(tmp_path).manifests(after))
    with pytest.raises(BrokenLakeError, match="is missing"):
        Table(tmp_path).state()


def test_a_manifest_that_is_missing_at_the_end_cannot_be_known(tmp_path):
    grow(tmp_path, 3)
    (tmp_path / "_log" / name_of(3)).unlink()
    assert Table(tmp_path).state().version == 2


@pytest.mark.parametrize("changed", [1, 2])
@pytest.mark.parametrize("after", [0, 1])
def test_each_manifest_is_held_to_the_one_before(tmp_path, changed, after):
    grow(tmp_path, 3)
    path = tmp_path / "_log" / name_of(changed)
    path.write_bytes(path.read_bytes().replace(b'"note": ""', b'"note": "!"'))
    if changed <= after:
        assert [one.version for one, _ in Table(tmp_path).manifests(after)] == [2, 3]
        return
    with pytest.raises(BrokenLakeError, match=f"manifest {changed + 1} does not follow {changed}"):
        list(Table(tmp_path).manifests(after))


def test_the_first_manifest_has_none_before_it(tmp_path):
    made = next_load(Table(tmp_path))
    made.previous = "0" * 64
    (tmp_path / "_log").mkdir()
    (tmp_path / "_log" / name_of(1)).write_bytes(made.encode())
    with pytest.raises(BrokenLakeError, match="manifest 1 does not follow 0"):
        list(Table(tmp_path).manifests())


@pytest.mark.parametrize("every", [2, 100], ids=["with checkpoints", "without"])
def test_the_state_at_a_version_is_what_the_manifests_up_to_it_come_to(tmp_path, monkeypatch, every):
    monkeypatch.setattr(checkpoint, "EVERY", every)
    lake = grow(tmp_path, 5)
    for version in range(1, 6):
        state = lake.state(version)
        assert (state.version, state.ends) == (version, {0: 10 * version})
    assert lake.state().version == 5, "reading an older version changes nothing"
    with pytest.raises(UsageError, match=f"{tmp_path} has no version 6"):
        lake.state(6)


def test_a_table_that_is_open_reads_only_what_is_new(tmp_path, monkeypatch):
    lake = grow(tmp_path, 3)
    lake.state()
    decode = Manifest.decode
    read: list[int] = []
    monkeypatch.setattr(
        table.Manifest, "decode", lambda data: read.append(decode(data).version) or decode(data)
    )
    other_commits(tmp_path)
    read.clear()
    assert lake.state().version == 4
    assert read == [4]


# --- files that nobody names ----------------------------------------------------------------------------------------


def test_orphans_are_old_files_that_no_manifest_names_and_temporary_ones(tmp_path, monkeypatch):
    lake = Table(tmp_path)
    made = next_load(lake)
    made.add, made.dead_add = [data_file("data/hour/kept")], [data_file("dead/kept")]
    lake.commit(made)
    ages = {
        "data/hour/kept": 999,
        "dead/kept": 999,
        "data/hour/old": 200,
        "data/hour/.old": 200,
        "data/hour/asked": 200,
        "data/hour/young": 50,
        "data/hour/just-old": 100,
        "dead/old": 200,
        "_log/.temporary": 200,
        "_log/.young": 50,
        "_log/old": 200,
        "_log/checkpoints/.temporary": 200,
        "_log/checkpoints/kept": 200,
        "elsewhere/old": 200,
    }
    now = 1_700_000_000.0
    monkeypatch.setattr(table.time, "time", lambda: now)
    for name, age in ages.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.utime(path, (now - age, now - age))
    found = lake.orphans(100, keep=["data/hour/asked"])
    assert [path.relative_to(tmp_path).as_posix() for path in found] == [
        "_log/.temporary",
        "_log/checkpoints/.temporary",
        "data/hour/.old",
        "data/hour/just-old",
        "data/hour/old",
        "dead/old",
    ]


# --- files by name --------------------------------------------------------------------------------------------------


def test_a_file_is_put_whole_or_not_at_all(tmp_path, quick):
    path = tmp_path / "one"
    assert put_if_absent(path, b"first") is True
    assert quick == ["sync 5 bytes", "link one", f"sync {tmp_path.name}"]
    assert put_if_absent(path, b"second") is False
    assert path.read_bytes() == b"first"
    assert [each.name for each in tmp_path.iterdir()] == ["one"]


def test_a_file_that_is_there_is_not_written_over(tmp_path):
    write_synced(tmp_path / "one", b"first")
    with pytest.raises(FileExistsError):
        write_synced(tmp_path / "one", b"second")
    assert (tmp_path / "one").read_bytes() == b"first"


def test_no_descriptor_stays_open(tmp_path):
    before = len(open_descriptors())
    grow(tmp_path, 3)
    assert len(open_descriptors()) == before
