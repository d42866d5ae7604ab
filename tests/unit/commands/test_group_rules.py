"""`barnabas groups` with what several brokers tell: lists, members, offsets set anew, deletions."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas.client import ClientError, ResponseError
from barnabas.client.admin import (
    CommittedOffset,
    GroupInfo,
    GroupMember,
    ListedGroup,
    OffsetAt,
    PartitionInfo,
    TopicInfo,
)

from .conftest import StandIn

REFUSED = ResponseError(30, "asking", None)
REFUSED_TEXT = "GROUP_AUTHORIZATION_FAILED"
AWAY = ClientError("broker 2 is away")
CLASSIC = ListedGroup("old", "classic", "consumer", "Empty", 1)
SHARE = ListedGroup("some", "share", "share", "Empty", 2)
MEMBERS = (
    GroupMember("id-1", "static", "app", "/10.0.0.1", 4, ("a", "b"), (("a", 0), ("a", 1))),
    GroupMember("id-2", None, "other", "/10.0.0.2", 5, ("b",), (("b", 0),)),
)


def info(name: str = "old", kind: str = "consumer", members: tuple[GroupMember, ...] = MEMBERS) -> GroupInfo:
    return GroupInfo(name, kind, "Stable", "uniform", 7, 2, members)


def topic(name: str, *numbers: int) -> TopicInfo:
    partitions = tuple(PartitionInfo(number, 1, 0, (1,), (1,), ()) for number in numbers)
    return TopicInfo(name, "id", False, partitions)


def values(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in rows]


# --- listing -------------------------------------------------------------------------------------------------------


def test_groups_are_listed_with_failing_brokers(cluster: StandIn) -> None:
    unknown = ListedGroup("older", "classic", "", "", 3)
    cluster.answers["list_groups"] = {"old": CLASSIC, "older": unknown, "some": SHARE}, {2: AWAY}
    listed = (
        ("old", "classic", "consumer", "Empty", 1, None), ("older", "classic", "", None, 3, None),
        ("some", "share", "share", "Empty", 2, None), (None, None, None, None, 2, "broker 2 is away"),
    )  # fmt: skip
    assert values(cluster.rows("groups", "groups", "list", code=1)) == list(listed)
    rows = cluster.rows(
        "groups", "groups", "list", "-r", "old.*", "s", "--state", "Empty", "--kind", "share", code=1
    )
    assert values(rows) == [listed[0], listed[1], listed[3]]
    rows = cluster.rows("groups", "groups", "list", "some", "none", code=1)
    assert values(rows) == [listed[2], ("none", *[None] * 4, "GROUP_ID_NOT_FOUND"), listed[3]]
    assert cluster.asked == [
        ("list_groups", {"states": (), "kinds": ()}),
        ("list_groups", {"states": ("Empty",), "kinds": ("share",)}),
        ("list_groups", {"states": (), "kinds": ()}),
    ]


def test_a_group_is_described_with_members_and_lags(cluster: StandIn) -> None:
    cluster.answers |= {
        "list_groups": ({"old": CLASSIC}, {}),
        "describe_groups": {"old": info()},
        "committed": {"old": {("a", 0): CommittedOffset(3), ("b", 0): REFUSED, ("c", 0): CommittedOffset(1)}},
        "share_offsets": {},
        "offsets": {
            ("a", 0): OffsetAt(10, -1, 0), ("a", 1): OffsetAt(5, -1, 0), ("b", 0): OffsetAt(6, -1, 0), ("c", 0): AWAY,
        },
    }  # fmt: skip
    out = json.loads(cluster("groups", "describe", "old", "none", "--json", code=1)[0])
    assert values(out["groups"]) == [
        ("old", "classic", "Stable", "uniform", 7, 1, 2, 7, None), ("none", *[None] * 7, "GROUP_ID_NOT_FOUND"),
    ]  # fmt: skip
    assert values(out["members"]) == [
        ("old", "id-1", "static", "app", "/10.0.0.1", 4, 2, ["a", "b"]),
        ("old", "id-2", None, "other", "/10.0.0.2", 5, 1, ["b"]),
    ]
    assert values(out["offsets"]) == [
        ("old", "a", 0, 3, 10, 7, "app", "/10.0.0.1", "id-1", None),
        ("old", "a", 1, None, 5, None, "app", "/10.0.0.1", "id-1", None),
        ("old", "b", 0, None, 6, None, "other", "/10.0.0.2", "id-2", REFUSED_TEXT),
        ("old", "c", 0, 1, None, None, None, None, None, "broker 2 is away"),
    ]


def test_a_group_may_be_there_while_a_broker_does_not_tell(cluster: StandIn) -> None:
    cluster.answers["list_groups"] = {"old": CLASSIC}, {2: AWAY}
    _, err = cluster("groups", "describe", "old", "none", code=1)
    assert err == "barnabas groups describe: broker 2 is away\n"
    _, err = cluster("groups", "describe", "-r", "n.*", "m", code=1)
    assert err.startswith("barnabas groups describe: no group matches n.*, m;")
    cluster.answers |= {
        "describe_groups": {"old": info(members=())}, "committed": {"old": {}}, "share_offsets": {}, "offsets": {},
    }  # fmt: skip
    assert [row["group"] for row in cluster.rows("groups", "groups", "describe", "old")] == ["old"]


# --- offsets set anew ----------------------------------------------------------------------------------------------

FIRST, LAST = {("a", 0): 10, ("a", 1): 20, ("b", 0): 0}, {("a", 0): 15, ("a", 1): 30, ("b", 0): 0}
EARLIEST, LATEST = -2, -1


@pytest.fixture
def reset(cluster: StandIn) -> StandIn:
    """Partitions with records from FIRST to LAST, and a group that has committed some."""

    def offsets(times: dict[tuple[str, int], int]) -> dict[tuple[str, int], OffsetAt]:
        return {
            entry: OffsetAt(
                {EARLIEST: FIRST[entry], LATEST: LAST[entry]}.get(
                    time, FIRST[entry] + 2 if time < 5000 else -1
                ),
                time,
                0,
            )
            for entry, time in times.items()
        }

    cluster.answers |= {
        "list_groups": ({"old": CLASSIC, "some": SHARE}, {}),
        "committed": {"old": {("a", 1): CommittedOffset(25), ("a", 0): CommittedOffset(12)}},
        "share_offsets": {"some": {("a", 1): CommittedOffset(22)}},
        "topics": {"a": topic("a", 0, 1), "b": topic("b", 0)},
        "offsets": offsets,
        "commit_offsets": lambda group, new: dict.fromkeys(new),
        "set_share_offsets": lambda group, new: dict.fromkeys(new),
    }
    return cluster


@pytest.mark.parametrize(
    "targets",
    [
        [],
        ["--to-offset", "0", "--to-latest"],
        ["--shift-by", "0", "--to-earliest"],
        ["--to-offset", "0", "--shift-by", "0"],
    ],
)
def test_a_reset_has_one_target_also_if_that_is_0(reset: StandIn, targets: list[str]) -> None:
    _, err = reset("groups", "reset-offsets", "old", "--all-topics", *targets, code=2)
    assert "give one of --to-earliest, --to-latest, --to-offset" in err
    assert reset.asked == []


@pytest.mark.parametrize(
    ("topics", "meant"),
    [
        ([], {("a", 0): 11, ("a", 1): 21, ("b", 0): 0}),
        (["-t", "a"], {("a", 0): 11, ("a", 1): 21}),
        (["-t", "a:1"], {("a", 1): 21}),
        (["-t", "a:0", "-t", "b"], {("a", 0): 11, ("b", 0): 0}),
    ],
)
def test_offset_file_is_applied_to_named_partitions(
    reset: StandIn, tmp_path: Path, topics: list[str], meant: dict[tuple[str, int], int]
) -> None:
    file = tmp_path / "offsets"
    file.write_text('# a comment\n\n a,0,11\n"a" 1 21\nb,\t0,9\n')
    arguments = ("--from-file", str(file), "--execute")
    reset("groups", "reset-offsets", "old", *topics, *arguments)
    assert reset.asked_for("commit_offsets") == [["old", meant]]


@pytest.mark.parametrize(
    ("topics", "missing"), [(("a", "c"), "c"), (("a:0", "a:1", "b:7"), "a:1, b:7"), (("a:1",), "a:1")]
)
def test_topics_that_a_file_has_no_offsets_of_are_named(
    reset: StandIn, tmp_path: Path, topics: tuple[str, ...], missing: str
) -> None:
    file = tmp_path / "offsets"
    file.write_text("a,0,11\nb,0,9\n")
    arguments = [word for topic in topics for word in ("-t", topic)]
    _, err = reset(
        "groups", "reset-offsets", "old", "--from-file", str(file), *arguments, "--execute", code=1
    )
    assert err == f"barnabas groups reset-offsets: the file has no offsets of {missing}\n"
    assert not reset.asked_for("commit_offsets")


def test_offsets_of_a_share_group_are_set_as_its_own(reset: StandIn) -> None:
    rows = reset.rows(
        "offsets", "groups", "reset-offsets", "some", "--all-topics", "--shift-by", "1", "--execute"
    )
    assert values(rows) == [("some", "a", 1, 22, 23, True, None)]
    assert reset.asked_for("set_share_offsets") == [["some", {("a", 1): 23}]]
    assert reset.asked_for("commit_offsets") == reset.asked_for("committed") == []


def test_what_cannot_be_reset_is_left_out_and_told(reset: StandIn) -> None:
    arguments = ("groups", "reset-offsets", "old", "-t", "a", "-t", "b", "--shift-by", "1")
    rows = reset.rows("offsets", *arguments, "--execute", code=1)
    assert [(row["new"], row["is_done"], row["error"]) for row in rows] == [
        (13, True, None), (26, True, None), (None, False, "nothing is committed that could be shifted"),
    ]  # fmt: skip
    assert reset.asked_for("commit_offsets") == [["old", {("a", 0): 13, ("a", 1): 26}]]
    reset.answers["commit_offsets"] = {("a", 0): REFUSED, ("a", 1): None}
    rows = reset.rows("offsets", *arguments, "--execute", code=1)
    assert [(row["is_done"], row["error"]) for row in rows] == [
        (False, REFUSED_TEXT), (True, None), (False, "nothing is committed that could be shifted"),
    ]  # fmt: skip
    told = reset.answers["offsets"]
    reset.answers["offsets"] = lambda times: {
        row: REFUSED if row == ("a", 0) and EARLIEST in times.values() else at
        for row, at in told(times).items()
    }
    rows = reset.rows("offsets", "groups", "reset-offsets", "old", "-t", "a", "--to-latest", code=1)
    assert values(rows) == [
        ("old", "a", 0, 12, None, False, REFUSED_TEXT), ("old", "a", 1, 25, 30, False, None),
    ]  # fmt: skip


def test_nothing_is_set_where_nothing_can_be(reset: StandIn) -> None:
    reset("groups", "reset-offsets", "old", "-t", "b", "--shift-by", "1", "--execute", code=1)
    assert reset.asked_for("commit_offsets") == []


def test_dry_run_says_that_nothing_was_changed(reset: StandIn) -> None:
    arguments = ("groups", "reset-offsets", "old", "-t", "a", "--to-latest")
    assert reset(*arguments)[1] == "nothing was changed; --execute does it\n"
    assert reset.asked_for("commit_offsets") == []
    assert reset(*arguments, "--execute")[1] == ""


@pytest.mark.parametrize("state", ["", "Empty", "Dead", "Stable", "PreparingRebalance"])
def test_a_group_with_members_is_not_reset(reset: StandIn, state: str) -> None:
    group = ListedGroup("old", "classic", "consumer", state, 1)
    reset.answers["list_groups"] = {"old": group}, {}
    is_free = state in ("", "Empty", "Dead")
    _, err = reset("groups", "reset-offsets", "old", "-t", "a", "--to-latest", code=0 if is_free else 1)
    assert is_free or f"group 'old' is {state}: stop its members first" in err


def test_a_reset_names_topics_or_means_all_that_are_committed(reset: StandIn) -> None:
    start = ("groups", "reset-offsets")
    assert "give --topic, or --all-topics" in reset(*start, "old", "--to-latest", code=2)[1]
    both = ("-t", "a", "--all-topics", "--to-latest")
    assert "give --topic, or --all-topics" in reset(*start, "old", *both, code=2)[1]
    assert (
        "the group has committed nothing: give --topic"
        in reset(*start, "new", "--all-topics", "--to-latest", code=1)[1]
    )
    _, err = reset(*start, "old", "-t", "a:7", "-t", "a:0", "-t", "b:8", "--to-latest", code=1)
    assert err == "barnabas groups reset-offsets: there is no partition a:7, b:8\n"
    reset.answers["topics"] = {"a": topic("a", 0), "b": ClientError("no b")}
    assert "no b" in reset(*start, "old", "-t", "a", "-t", "b", "--to-latest", code=1)[1]
    reset.answers["committed"] = {"old": REFUSED}
    assert REFUSED_TEXT in reset(*start, "old", "-t", "a", "--to-latest", code=1)[1]


# --- deletions -----------------------------------------------------------------------------------------------------


def test_groups_are_deleted_by_name_or_by_pattern(
    cluster: StandIn, at_terminal: Callable[[str], None]
) -> None:
    cluster.answers |= {
        "list_groups": ({"old": CLASSIC, "older": CLASSIC, "some": SHARE}, {}),
        "delete_groups": lambda names: {name: REFUSED if name == "older" else None for name in names},
    }
    rows = cluster.rows("groups", "groups", "delete", "-r", "old.*", "--yes", code=1)
    assert values(rows) == [("old", "deleted", None), ("older", "failed", REFUSED_TEXT)]
    assert values(cluster.rows("groups", "groups", "delete", "old.*", "--yes")) == [
        ("old.*", "deleted", None)
    ]
    assert cluster.asked_for("delete_groups") == [[["old", "older"]], [["old.*"]]]
    at_terminal("n\n")
    assert cluster("groups", "delete", "x", "y", code=1)[1].startswith("delete x, y with all offsets?")
    assert "no group matches z" in cluster("groups", "delete", "-r", "z", "--yes", code=1)[1]


@pytest.mark.parametrize(
    ("named", "forgotten"),
    [
        (["a"], [("a", 0), ("a", 2)]),
        (["a:2"], [("a", 2)]),
        (["a:2", "b"], [("a", 2), ("b", 0)]),
        (["a:7"], [("a", 7)]),
        (["a", "c:1"], [("a", 0), ("a", 2), ("c", 1)]),
    ],
)
def test_offsets_of_topics_and_partitions_are_forgotten(
    cluster: StandIn, named: list[str], forgotten: list[tuple[str, int]]
) -> None:
    cluster.answers |= {
        "list_groups": ({"old": CLASSIC}, {}),
        "committed": {
            "old": {entry: CommittedOffset(1) for entry in (("a", 0), ("a", 2), ("b", 0), ("ab", 0))}
        },
        "delete_offsets": lambda group, places: {
            entry: REFUSED if entry == ("a", 2) else None for entry in places
        },
    }
    code = int(("a", 2) in forgotten)
    rows = cluster.rows("offsets", "groups", "delete-offsets", "old", *named, "--yes", code=code)
    assert values(rows) == [
        ("old", *entry, "failed", REFUSED_TEXT) if entry == ("a", 2) else ("old", *entry, "deleted", None)
        for entry in forgotten
    ]
    ((group, partitions),) = cluster.asked_for("delete_offsets")
    assert (group, list(partitions)) == ("old", forgotten)


def test_what_is_to_be_forgotten_is_told(cluster: StandIn, at_terminal: Callable[[str], None]) -> None:
    cluster.answers |= {
        "list_groups": ({"old": CLASSIC}, {}),
        "committed": {"old": {("a", 0): CommittedOffset(1)}},
    }
    at_terminal("n\n")
    _, err = cluster("groups", "delete-offsets", "old", "b", "a:1", code=1)
    assert err.startswith("have old forget its offsets of b, a:1?")
    _, err = cluster("groups", "delete-offsets", "old", "b", "c", "--yes", code=1)
    assert err == "barnabas groups delete-offsets: old has committed nothing for b, c\n"
    cluster.answers["committed"] = {"old": REFUSED}
    assert REFUSED_TEXT in cluster("groups", "delete-offsets", "old", "a", "--yes", code=1)[1]


# --- members -------------------------------------------------------------------------------------------------------


@pytest.fixture
def crowd(cluster: StandIn) -> StandIn:
    cluster.answers |= {
        "list_groups": ({"old": CLASSIC}, {}),
        "describe_groups": {"old": info()},
        "remove_members": lambda group, members: {member.member_id: None for member in members},
    }
    return cluster


@pytest.mark.parametrize(
    ("options", "removed"),
    [
        (["--all"], ["id-1", "id-2"]),
        (["--member", "id-2"], ["id-2"]),
        (["--instance", "static"], ["id-1"]),
        (["--member", "id-2", "--instance", "static"], ["id-1", "id-2"]),
    ],
)
def test_members_are_removed_all_or_by_id_or_by_instance(
    crowd: StandIn, options: list[str], removed: list[str]
) -> None:
    rows = crowd.rows("members", "groups", "remove-members", "old", *options, "--yes")
    assert values(rows) == [("old", member, "removed", None) for member in removed]
    ((group, requested),) = crowd.asked_for("remove_members")
    assert (group, [member.member_id for member in requested]) == ("old", removed)
    assert crowd.asked_for("describe_groups") == [[{"old": "classic"}]]


@pytest.mark.parametrize(
    ("options", "unknown"),
    [
        (["--member", "id-1", "--member", "id-3"], "id-3"),
        (["--member", "static"], "static"),
        (["--instance", "id-2"], "id-2"),
        (["--member", "id-2", "--instance", "id-1", "--member", "static"], "static, id-1"),
    ],
)
def test_member_and_instance_ids_are_not_confused(crowd: StandIn, options: list[str], unknown: str) -> None:
    _, err = crowd("groups", "remove-members", "old", *options, "--yes", code=1)
    assert err.startswith(f"barnabas groups remove-members: old has no member {unknown};")
    assert crowd.asked_for("remove_members") == []


def test_members_that_stay_and_groups_without_any(crowd: StandIn, at_terminal: Callable[[str], None]) -> None:
    crowd.answers["remove_members"] = {"id-1": REFUSED, "id-2": None}
    rows = crowd.rows("members", "groups", "remove-members", "old", "--all", "--yes", code=1)
    assert values(rows) == [("old", "id-1", "failed", REFUSED_TEXT), ("old", "id-2", "removed", None)]
    at_terminal("n\n")
    remove = ("groups", "remove-members", "old", "--member", "id-2")
    assert crowd(*remove, code=1)[1].startswith("remove 1 of 2 members of old?")
    crowd.answers["describe_groups"] = {"old": info(members=())}
    assert "old has no members" in crowd("groups", "remove-members", "old", "--all", "--yes", code=1)[1]
    crowd.answers["describe_groups"] = {"old": REFUSED}
    assert REFUSED_TEXT in crowd("groups", "remove-members", "old", "--all", "--yes", code=1)[1]
    assert "there is no group 'new'" in crowd("groups", "remove-members", "new", "--all", "--yes", code=1)[1]
