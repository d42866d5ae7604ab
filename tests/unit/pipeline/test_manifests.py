"""Manifests folded into the state of a table: each count, range, file and hour, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from barnabas_pipeline.lake.changes import Changes
from barnabas_pipeline.lake.manifest import (
    KINDS,
    BrokenLakeError,
    DataFile,
    Manifest,
    PartitionCommit,
    TableState,
    digest,
)
from tests.unit.pipeline.manifests import IDENTITY, covering, data_file, folded, following, load_of, of_kind

COUNTS = ("loaded", "dead", "control", "aborted", "compacted")
HOUR, OTHER_HOUR = "2026-11-20T07", "2026-11-20T08"
OTHERS = [("other", "logins", "id"), ("c", "other", "id"), ("c", "logins", "other"), ("id", "logins", "c")]


def applied(state: TableState, manifest: Manifest) -> TableState:
    state.apply(manifest, manifest.encode())
    return state


# --- one manifest ---------------------------------------------------------------------------------------------------


def test_a_manifest_is_read_as_it_was_written():
    made = of_kind("load", sealed=[HOUR], lost={"1": [3, None]}, redriven={"0": [1]}, note="n")
    made.partitions = {"0": PartitionCommit(0, 15, 2, 99, 1, 2, 3, 4, 5, "digest")}
    made.add, made.dead_add = [data_file("a")], [replace(data_file("d"), reasons={"json": 1}, offsets=2)]
    made.remove, made.dead_remove = ["b"], ["e"]
    again = Manifest.decode(made.encode())
    assert again == made
    assert made.encode().endswith(b"}\n")
    assert type(again.partitions["0"]) is PartitionCommit
    assert [type(one) for one in (*again.add, *again.dead_add)] == [DataFile, DataFile]


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_known(kind):
    assert Manifest.decode(of_kind(kind).encode()).kind == kind


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"kind": "merge"},
        {"kind": None},
        {"partitions": {"0": {"start": 0}}},
        {"partitions": None},
        {"add": [{"path": "a"}]},
        {"dead_add": [{"path": "a", "colour": 1}]},
        {"colour": 1},
    ],
    ids=str,
)
def test_a_manifest_that_is_not_known_here_is_refused(change):
    raw = json.loads(load_of(0, 10).encode()) | change
    with pytest.raises(BrokenLakeError, match=r"is not known here|cannot be read"):
        Manifest.decode(json.dumps(raw).encode())


@pytest.mark.parametrize("missing", ["format", "kind", "partitions", "add", "version"])
def test_a_manifest_without_a_field_that_it_needs_is_refused(missing):
    raw = json.loads(load_of(0, 10).encode())
    del raw[missing]
    with pytest.raises(BrokenLakeError, match="cannot be read"):
        Manifest.decode(json.dumps(raw).encode())


def test_what_is_no_json_is_refused():
    with pytest.raises(BrokenLakeError, match="cannot be read"):
        Manifest.decode(load_of(0, 10).encode()[:-20])


@pytest.mark.parametrize(
    ("file_partition", "offsets", "wanted", "may_have"),
    [
        (0, (10, 19), (0, 10, 20), True),
        (0, (10, 19), (0, 19, 30), True),  # the last offset of the file is the first that is wanted
        (0, (10, 19), (0, 0, 11), True),
        (0, (10, 19), (0, 20, 30), False),
        (0, (10, 19), (0, 0, 10), False),
        (0, (0, 0), (0, 0, 1), True),
        (0, (0, 0), (0, 1, 5), False),
        (1, (10, 19), (0, 10, 20), False),
        (0, (10, 19), (1, 10, 20), False),
        (-1, (10, 19), (1, 10, 20), True),  # of all partitions
        (-1, (10, 19), (1, 20, 30), False),
        (-2, (10, 19), (0, 10, 20), False),
        (0, (-1, -1), (0, 10, 20), True),  # an older dead letter, which does not say
        (1, (-1, -1), (0, 10, 20), False),
    ],
)
def test_a_file_may_have_offsets_of_its_partition_and_within_its_bounds(
    file_partition, offsets, wanted, may_have
):
    file = replace(data_file("a"), partition=file_partition, offset_min=offsets[0], offset_max=offsets[1])
    assert file.may_have(*wanted) is may_have


# --- the chain ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1, 3])
def test_a_manifest_of_another_version_than_the_next_does_not_follow(version):
    state = folded(load_of(0, 10))
    with pytest.raises(BrokenLakeError, match=f"manifest {version} does not follow 1"):
        applied(state, replace(following(state), version=version))


@pytest.mark.parametrize("previous", ["", "0" * 64])
def test_a_manifest_of_the_next_version_with_another_predecessor_does_not_follow(previous):
    state = folded(load_of(0, 10))
    with pytest.raises(BrokenLakeError, match="manifest 2 does not follow 1"):
        applied(state, replace(following(state), previous=previous))


def test_the_state_names_the_last_manifest_and_its_schema():
    made = load_of(0, 10)
    made.schema = {"name": "newer"}
    state = folded(load_of(0, 10), replace(made, partitions={"0": covering(10, 20)}))
    last = replace(made, version=2, previous=digest(load_of(0, 10).encode()))
    last.partitions = {"0": covering(10, 20)}
    assert (state.version, state.digest) == (2, digest(last.encode()))
    assert state.schema == {"name": "newer"}
    assert (state.cluster_id, state.topic, state.topic_id) == IDENTITY


# --- another incarnation --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("identity", OTHERS)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "restart"])
def test_another_incarnation_is_refused_unless_it_is_a_restart(identity, kind):
    state = folded(load_of(0, 10))
    with pytest.raises(BrokenLakeError, match="manifest 2 is of another incarnation of logins"):
        applied(state, following(state, kind, identity))


@pytest.mark.parametrize("identity", OTHERS)
def test_a_restart_with_another_incarnation_forgets_where_the_partitions_were_but_not_what_was_loaded(
    identity,
):
    first = load_of(5, 10)
    first.add = [data_file("a")]
    state = folded(first)
    made = following(state, "restart", identity)
    made.lost = {"0": [10, 99]}
    applied(state, made)
    assert (state.starts, state.ends, state.high_watermarks, state.leader_epochs) == ({}, {}, {}, {})
    assert (state.cluster_id, state.topic, state.topic_id) == identity
    assert state.totals[0].loaded == 5
    assert [*state.files] == ["a"]
    made = following(state, identity=identity)
    made.partitions["0"] = covering(2, 4)
    applied(state, made)
    assert (state.starts, state.ends) == ({0: 2}, {0: 4})
    assert state.totals[0].loaded == 7


def test_a_restart_of_the_same_incarnation_skips_what_was_lost_of_each_partition():
    state = folded(load_of(0, 10), load_of(0, 10, partition=1), load_of(0, 10, partition=2))
    made = following(state, "restart")
    made.lost = {"0": [10, 25], "2": [10, None]}  # of the last nobody has seen an end
    applied(state, made)
    assert state.ends == {0: 25, 1: 10, 2: 10}
    assert state.starts == {0: 0, 1: 0, 2: 0}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "restart"])
def test_what_was_lost_counts_in_a_restart_only(kind):
    state = folded(load_of(0, 10))
    made = following(state, kind)
    made.lost = {"0": [10, 25]}
    assert applied(state, made).ends == {0: 10}


# --- ranges and counts ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", [9, 11])
def test_a_load_begins_exactly_where_the_partition_ended(start):
    state = folded(load_of(0, 10), load_of(30, 40, partition=1))
    made = following(state)
    made.partitions["0"] = covering(start, 20)
    with pytest.raises(BrokenLakeError, match=f"manifest 3, partition 0: 10 is next, not {start}"):
        applied(state, made)


@pytest.mark.parametrize("off", [-1, 1])
@pytest.mark.parametrize("wrong", COUNTS)
def test_counts_that_do_not_add_up_to_the_range_are_refused(wrong, off):
    right = PartitionCommit(100, 131, 0, 131, *(1, 2, 4, 8, 16))
    assert folded(replace(load_of(0, 1), partitions={"0": right})).ends == {0: 131}
    made = load_of(0, 1)
    made.partitions = {"0": replace(right, **{wrong: getattr(right, wrong) + off})}
    with pytest.raises(BrokenLakeError, match="manifest 1, partition 0: its counts do not add up"):
        folded(made)


def test_totals_of_a_partition_are_the_sums_of_its_commits_and_its_bounds_are_the_newest():
    commits = [
        PartitionCommit(100, 131, 3, 140, 1, 2, 4, 8, 16, "one"),
        PartitionCommit(131, 193, 4, 250, 2, 4, 8, 16, 32, "two"),
    ]
    first = commits[0]
    state = folded(*(replace(load_of(0, 1), partitions={"7": one, "8": one}) for one in commits))
    total = PartitionCommit(100, 193, 4, 250, 3, 6, 12, 24, 48)
    assert state.totals == {7: total, 8: total}
    assert state.starts == {7: 100, 8: 100}
    assert state.ends == {7: 193, 8: 193}
    assert state.high_watermarks == {7: 250, 8: 250}
    assert state.leader_epochs == {7: 4, 8: 4}
    assert first == PartitionCommit(100, 131, 3, 140, 1, 2, 4, 8, 16, "one"), "the manifest is as it was"


def test_a_copy_is_changed_by_itself():
    state = folded(load_of(0, 10))
    state.sealed, state.reopened = {HOUR}, {OTHER_HOUR}
    before = state.copy()
    assert before == state
    made = following(state)
    made.partitions = {"0": covering(10, 20), "1": covering(0, 5)}
    made.add, made.dead_add = [data_file("a")], [data_file("d")]
    made.sealed = [OTHER_HOUR]
    copy = state.copy()
    applied(copy, made)
    assert state == before
    assert copy.totals[0].loaded == 20


# --- files ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["remove", "dead_remove"])
def test_a_file_that_is_not_there_cannot_be_removed(field):
    first = load_of(0, 10)
    first.add, first.dead_add = [data_file("data/a")], [data_file("dead/a")]
    state = folded(first)
    other = {"remove": "dead/a", "dead_remove": "data/a"}[field]
    with pytest.raises(BrokenLakeError, match=f"manifest 2 removes {other}, which is not there"):
        applied(state, replace(following(state, "compact"), **{field: [other]}))


def test_files_are_added_and_removed_by_path_among_rows_and_among_dead_letters():
    first = load_of(0, 10)
    first.add = [data_file("data/a", hour=OTHER_HOUR), data_file("data/b", hour=HOUR)]
    first.dead_add = [data_file("dead/a"), data_file("dead/b")]
    state = folded(first)
    assert state.hours == [HOUR, OTHER_HOUR]
    made = following(state, "backfill")
    made.remove, made.add = ["data/a"], [data_file("data/c")]
    made.dead_remove, made.dead_add = ["dead/b"], [data_file("dead/c")]
    applied(state, made)
    assert [*state.files] == ["data/b", "data/c"]
    assert [*state.dead] == ["dead/a", "dead/c"]
    assert state.hours == [HOUR]


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_come_late_reopen_a_sealed_hour_and_no_other(kind):
    state = folded(of_kind("seal", sealed=[HOUR, OTHER_HOUR]))
    made = following(state, kind)
    made.add = [data_file("a", hour=HOUR), data_file("b", hour="2026-11-20T09")]
    applied(state, made)
    is_late = kind in ("load", "redrive")
    assert state.sealed == ({OTHER_HOUR} if is_late else {HOUR, OTHER_HOUR})
    assert state.reopened == ({HOUR} if is_late else set())
    applied(state, replace(following(state, "seal"), sealed=[HOUR]))
    assert (state.sealed, state.reopened) == ({HOUR, OTHER_HOUR}, set())


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_were_dead_letters_are_counted(kind):
    files = {"add": [data_file("a", rows=3), data_file("b", rows=4)]}
    state = folded(of_kind("redrive", add=[data_file("c", rows=5)]), of_kind(kind, **files))
    assert state.redriven == (12 if kind == "redrive" else 5)


# --- for those who follow the lake ----------------------------------------------------------------------------------


def test_changes_are_what_several_manifests_come_to():
    first, second, third = load_of(5, 10), load_of(10, 20), of_kind("compact")
    first.partitions["1"] = covering(0, 3)
    first.add, second.add = [data_file("a"), data_file("b")], [data_file("c")]
    third.remove, third.add = ["a", "older"], [data_file("ac")]
    third.topic, third.schema = "renamed", {"name": "newest"}
    changes = Changes(last=6)
    for number, manifest in enumerate((first, second, third), 7):
        manifest.version = number
        changes.take(manifest, manifest.encode())
    assert (changes.first, changes.last, changes.digest) == (7, 9, digest(third.encode()))
    assert (changes.cluster_id, changes.topic, changes.schema) == ("c", "renamed", {"name": "newest"})
    assert changes.kinds == ["load", "compact"]
    assert changes.offsets == {"id": {"0": [5, 20], "1": [0, 3]}}
    assert [*changes.add] == ["b", "c", "ac"]
    assert changes.remove == ["older"], "a file that came and went was never there"
    assert changes.summary() == {
        "barnabas.manifest-first": "7",
        "barnabas.manifest-last": "9",
        "barnabas.manifest-sha256": digest(third.encode()),
        "barnabas.kinds": "load,compact",
        "barnabas.cluster.metadata-id": "c",
        "barnabas.topic": "renamed",
        "barnabas.offsets": '{"id": {"0": [5, 20], "1": [0, 3]}}',
    }


def test_offsets_of_each_incarnation_are_told_by_topic_id():
    changes = Changes(last=0)
    for topic_id, start in (("one", 5), ("two", 0), ("one", 10)):
        made = replace(load_of(start, start + 5), topic_id=topic_id)
        changes.take(made, made.encode())
    assert changes.offsets == {"one": {"0": [5, 15]}, "two": {"0": [0, 5]}}
