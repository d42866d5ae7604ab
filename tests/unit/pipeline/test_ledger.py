"""Entries of a ledger and the state that each leads to: each count, range and hour, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from barnabas_pipeline.lake.ledger import (
    KINDS,
    BrokenLakeError,
    DataFile,
    Entry,
    Files,
    PartitionCommit,
    State,
    digest,
    hour_number,
)
from tests.unit.pipeline.entries import (
    IDENTITY,
    applied,
    covering,
    data_file,
    folded,
    following,
    load_of,
    of_kind,
)

COUNTS = ("loaded", "dead", "control", "aborted", "compacted")
HOUR, OTHER_HOUR = "2026-11-20T07", "2026-11-20T08"
SEVEN, EIGHT = hour_number(HOUR), hour_number(OTHER_HOUR)
OTHERS = [("other", "logins", "id"), ("c", "other", "id"), ("c", "logins", "other"), ("id", "logins", "c")]


# --- one entry ------------------------------------------------------------------------------------------------------


def test_an_entry_is_read_as_it_was_written():
    entry = of_kind("load", sealed=[HOUR], lost={"1": [3, None]}, redriven={"0": [1]}, note="n")
    entry.partitions = {"0": PartitionCommit(0, 15, 2, 99, 1, 2, 3, 4, 5, "digest")}
    entry.add, entry.dead_add = [data_file("a")], [replace(data_file("d"), reasons={"json": 1}, offsets=2)]
    entry.remove, entry.dead_remove = ["b"], ["e"]
    again = Entry.decode(entry.encode())
    assert again == entry
    assert entry.encode().endswith(b"}\n")
    assert type(again.partitions["0"]) is PartitionCommit
    assert [type(added) for added in (*again.add, *again.dead_add)] == [DataFile, DataFile]


def test_stored_entry_is_the_same_bytes_in_each_release():
    entry = following(State(), "load")
    entry.partitions["7"] = PartitionCommit(100, 131, 3, 140, 1, 2, 4, 8, 16, "of the log")
    entry.add = [replace(data_file("a", rows=0), iceberg={"spec_id": 1})]
    entry.dead_add = [
        DataFile("d", 2, 5, "s", "id", 7, offset_min=0, offset_max=9, offsets=3, reasons={"json": 2})
    ]
    state = State()
    state.apply(entry)
    entry.after = state.to_dict()
    held = json.loads(entry.encode())
    assert held["partitions"] == {
        "7": {
            "start": 100, "end": 131, "leader_epoch": 3, "high_watermark": 140, "loaded": 1, "dead": 2, "control": 4,
            "aborted": 8, "compacted": 16, "log_digest": "of the log",
        }
    }  # fmt: skip
    assert held["add"] == [
        {
            "path": "a", "rows": 0, "size": 99, "sha256": "f" * 64, "topic_id": "id", "partition": 0, "hours": [SEVEN],
            "offsets": 0,
        }
    ]  # fmt: skip
    assert held["dead_add"] == [
        {
            "path": "d", "rows": 2, "size": 5, "sha256": "s", "topic_id": "id", "partition": 7, "offset_min": 0,
            "offset_max": 9, "offsets": 3, "reasons": {"json": 2},
        }
    ]  # fmt: skip
    assert held["after"] == {
        "starts": {"7": 100}, "ends": {"7": 131}, "high_watermarks": {"7": 140}, "leader_epochs": {"7": 3},
        "totals": {"7": [100, 131, 3, 140, 1, 2, 4, 8, 16]}, "hours": [[SEVEN, SEVEN]], "sealed": [], "reopened": [],
        "redriven": 0, "dead_version": 1,
    }  # fmt: skip
    assert (held["format"], held["version"], held["kind"]) == (2, 1, "load")
    assert entry.encode() == json.dumps(held, sort_keys=True, separators=(",", ":")).encode() + b"\n"


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_known(kind):
    assert Entry.decode(of_kind(kind).encode()).kind == kind


@pytest.mark.parametrize(
    "change",
    [
        {"format": 1},
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
def test_an_entry_that_is_not_known_here_is_refused(change):
    raw = json.loads(load_of(0, 10).encode()) | change
    with pytest.raises(BrokenLakeError, match=r"is not known here|cannot be read"):
        Entry.decode(json.dumps(raw).encode())


@pytest.mark.parametrize("missing", ["format", "kind", "partitions", "add", "version"])
def test_an_entry_without_a_field_that_it_needs_is_refused(missing):
    raw = json.loads(load_of(0, 10).encode())
    del raw[missing]
    with pytest.raises(BrokenLakeError, match="cannot be read"):
        Entry.decode(json.dumps(raw).encode())


def test_what_is_no_json_is_refused():
    with pytest.raises(BrokenLakeError, match="cannot be read"):
        Entry.decode(load_of(0, 10).encode()[:-20])


@pytest.mark.parametrize(
    ("file_partition", "offsets", "place", "may_have"),
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
def test_file_may_have_offsets_within_its_bounds(file_partition, offsets, place, may_have):
    file = replace(data_file("a"), partition=file_partition, offset_min=offsets[0], offset_max=offsets[1])
    assert file.may_have(*place) is may_have


# --- the chain ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1, 3])
def test_entry_of_a_later_version_does_not_follow(version):
    state = folded(load_of(0, 10))
    with pytest.raises(BrokenLakeError, match=f"entry {version} does not follow 1"):
        applied(state, replace(following(state), version=version))


@pytest.mark.parametrize(
    "change", [{"previous": ""}, {"previous": "0" * 64}, {"previous_path": "ledger/0"}], ids=str
)
def test_entry_with_another_predecessor_does_not_follow(change):
    state = folded(load_of(0, 10))
    with pytest.raises(BrokenLakeError, match="entry 2 does not follow 1"):
        applied(state, replace(following(state), **change))


def test_what_an_entry_does_not_say_is_not_guessed():
    entry = load_of(0, 10)
    folded(entry)
    for name in entry.after:
        broken = replace(entry, after={key: value for key, value in entry.after.items() if key != name})
        with pytest.raises(BrokenLakeError, match="the state after entry 1 cannot be read"):
            broken.state("", b"")


def test_hours_are_kept_as_ranges():
    state = folded(of_kind("load", add=[replace(data_file("a"), hours=[3, 5, 4, 9, -2])]))
    assert state.hours == {-2, 3, 4, 5, 9}
    assert state.to_dict()["hours"] == [[-2, -2], [3, 5], [9, 9]]


def test_the_state_names_the_last_entry_and_its_schema():
    entry = load_of(0, 10)
    entry.schema = {"name": "newer"}
    last = replace(entry, partitions={"0": covering(10, 20)})
    state = folded(load_of(0, 10), last)
    assert (state.version, state.path, state.digest) == (2, "ledger/2", digest(last.encode()))
    assert state.schema == {"name": "newer"}
    assert (state.cluster_id, state.topic, state.topic_id) == IDENTITY


# --- another incarnation --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("identity", OTHERS)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "restart"])
def test_another_incarnation_is_refused_unless_it_is_a_restart(identity, kind):
    state = folded(load_of(0, 10))
    with pytest.raises(BrokenLakeError, match="entry 2 is of another incarnation of logins"):
        applied(state, following(state, kind, identity))


@pytest.mark.parametrize("identity", OTHERS)
def test_restart_of_a_new_incarnation_resets_positions_only(identity):
    first = load_of(5, 10)
    first.add = [data_file("a")]
    state = folded(first)
    entry = following(state, "restart", identity)
    entry.lost = {"0": [10, 99]}
    state = applied(state, entry)
    assert (state.starts, state.ends, state.high_watermarks, state.leader_epochs) == ({}, {}, {}, {})
    assert (state.cluster_id, state.topic, state.topic_id) == identity
    assert state.totals[0].loaded == 5
    assert state.hours == {SEVEN}
    entry = following(state, identity=identity)
    entry.partitions["0"] = covering(2, 4)
    state = applied(state, entry)
    assert (state.starts, state.ends) == ({0: 2}, {0: 4})
    assert state.totals[0].loaded == 7


def test_restart_of_an_incarnation_skips_lost_offsets():
    state = folded(load_of(0, 10), load_of(0, 10, partition=1), load_of(0, 10, partition=2))
    entry = following(state, "restart")
    entry.lost = {"0": [10, 25], "2": [10, None]}  # of the last nobody has seen an end
    state = applied(state, entry)
    assert state.ends == {0: 25, 1: 10, 2: 10}
    assert state.starts == {0: 0, 1: 0, 2: 0}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "restart"])
def test_what_was_lost_counts_in_a_restart_only(kind):
    state = folded(load_of(0, 10))
    entry = following(state, kind)
    entry.lost = {"0": [10, 25]}
    assert applied(state, entry).ends == {0: 10}


# --- ranges and counts ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", [9, 11])
def test_a_load_begins_exactly_where_the_partition_ended(start):
    state = folded(load_of(0, 10), load_of(30, 40, partition=1))
    entry = following(state)
    entry.partitions["0"] = covering(start, 20)
    with pytest.raises(BrokenLakeError, match=f"entry 3, partition 0: 10 is next, not {start}"):
        applied(state, entry)


@pytest.mark.parametrize("off", [-1, 1])
@pytest.mark.parametrize("wrong", COUNTS)
def test_counts_that_do_not_add_up_to_the_range_are_refused(wrong, off):
    right = PartitionCommit(100, 131, 0, 131, *(1, 2, 4, 8, 16))
    assert folded(replace(load_of(0, 1), partitions={"0": right})).ends == {0: 131}
    entry = load_of(0, 1)
    entry.partitions = {"0": replace(right, **{wrong: getattr(right, wrong) + off})}
    with pytest.raises(BrokenLakeError, match="entry 1, partition 0: its counts do not add up"):
        folded(entry)


def test_partition_totals_sum_commits_with_the_newest_bounds():
    commits = [
        PartitionCommit(100, 131, 3, 140, 1, 2, 4, 8, 16, "one"),
        PartitionCommit(131, 193, 4, 250, 2, 4, 8, 16, 32, "two"),
    ]
    first = commits[0]
    state = folded(*(replace(load_of(0, 1), partitions={"7": commit, "8": commit}) for commit in commits))
    total = PartitionCommit(100, 193, 4, 250, 3, 6, 12, 24, 48)
    assert state.totals == {7: total, 8: total}
    assert state.starts == {7: 100, 8: 100}
    assert state.ends == {7: 193, 8: 193}
    assert state.high_watermarks == {7: 250, 8: 250}
    assert state.leader_epochs == {7: 4, 8: 4}
    assert first == PartitionCommit(100, 131, 3, 140, 1, 2, 4, 8, 16, "one"), "the entry is as it was"


def test_a_copy_is_changed_by_itself():
    state = folded(load_of(0, 10))
    state.sealed, state.reopened = {SEVEN}, {EIGHT}
    before = state.copy()
    assert before == state
    entry = following(state)
    entry.partitions = {"0": covering(10, 20), "1": covering(0, 5)}
    entry.add, entry.dead_add = [data_file("a")], [data_file("d")]
    entry.sealed = [OTHER_HOUR]
    copy = state.copy()
    copy.apply(entry)
    assert state == before
    assert copy.totals[0].loaded == 20


# --- files ----------------------------------------------------------------------------------------------------------


def test_dead_letters_that_are_not_there_cannot_be_removed():
    files = Files()
    files.apply(of_kind("load", add=[data_file("data/a")], dead_add=[data_file("dead/a")]))
    with pytest.raises(BrokenLakeError, match="entry 1 removes data/a, which is not there"):
        files.apply(of_kind("redrive", dead_remove=["data/a"]))


def test_files_are_all_with_rows_and_counting_dead_letters():
    files = Files()
    files.apply(
        of_kind("load", add=[data_file("data/a")], dead_add=[data_file("dead/a"), data_file("dead/b")])
    )
    files.apply(
        of_kind(
            "redrive",
            add=[data_file("data/b")],
            remove=["data/a"],
            dead_remove=["dead/b"],
            dead_add=[data_file("dead/c")],
        )
    )
    assert [*files.rows] == ["data/a", "data/b"], "another engine may have brought back the first"
    assert [*files.dead] == ["dead/a", "dead/c"]


@pytest.mark.parametrize(
    "change", [{"dead_add": [data_file("d")]}, {"dead_remove": ["d"]}], ids=["added", "removed"]
)
def test_the_state_names_the_last_change_of_the_dead_letters(change):
    state = folded(load_of(0, 10), of_kind("redrive", **change), load_of(10, 20))
    assert state.dead_version == 2


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_come_late_reopen_a_sealed_hour_and_no_other(kind):
    state = folded(of_kind("seal", sealed=[HOUR, OTHER_HOUR]))
    entry = following(state, kind)
    entry.add = [data_file("a", hour=HOUR), data_file("b", hour="2026-11-20T09")]
    state = applied(state, entry)
    is_late = kind in ("load", "redrive")
    assert state.sealed == ({EIGHT} if is_late else {SEVEN, EIGHT})
    assert state.reopened == ({SEVEN} if is_late else set())
    state = applied(state, replace(following(state, "seal"), sealed=[HOUR]))
    assert (state.sealed, state.reopened) == ({SEVEN, EIGHT}, set())


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_were_dead_letters_are_counted(kind):
    files = {"add": [data_file("a", rows=3), data_file("b", rows=4)]}
    state = folded(of_kind("redrive", add=[data_file("c", rows=5)]), of_kind(kind, **files))
    assert state.redriven == (12 if kind == "redrive" else 5)
