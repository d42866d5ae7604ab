"""`barnabas brokers` with what several brokers tell: lags, moves, elections, levels."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas.client import ClientError, ResponseError
from barnabas.client.administration.cluster import (
    PREFERRED,
    SAFE_DOWNGRADE,
    UNCLEAN,
    UNSAFE_DOWNGRADE,
    UPGRADE,
    BrokerInfo,
    ClusterInfo,
    Feature,
    LogDir,
    QuorumNode,
    Reassignment,
    ReplicaSize,
)

from .conftest import StandIn

REFUSED = ResponseError(29, "asking", "not you")
REFUSED_TEXT = "TOPIC_AUTHORIZATION_FAILED: not you"
BROKERS = (BrokerInfo(1, "one", 9092, "a", False), BrokerInfo(2, "two", 9093, None, True))


@pytest.mark.parametrize(("controller", "shown"), [(2, 2), (0, 0), (-1, None)])
def test_the_controller_is_none_or_any_number_from_0_on(
    cluster: StandIn, controller: int, shown: int | None
) -> None:
    cluster.answers["describe_cluster"] = ClusterInfo("id-of-it", controller, BROKERS)
    assert cluster.rows("cluster", "brokers", "list") == {
        "cluster_id": "id-of-it", "controller": shown, "brokers": 2,
    }  # fmt: skip


def test_fenced_brokers_are_asked_for_and_marked_only_on_request(cluster: StandIn) -> None:
    cluster.answers["describe_cluster"] = ClusterInfo("id", 1, BROKERS)
    rows = cluster.rows("brokers", "brokers", "list", "--fenced")
    assert rows == [
        {"broker": 1, "host": "one", "port": 9092, "rack": "a", "is_fenced": False},
        {"broker": 2, "host": "two", "port": 9093, "rack": None, "is_fenced": True},
    ]
    assert [one["is_fenced"] for one in cluster.rows("brokers", "brokers", "list")] == [None, None]
    assert cluster.asked_for("describe_cluster") == [[{"fenced": True}], [{"fenced": False}]]
    assert "FENCED" not in cluster("brokers", "list")[0]
    assert cluster("brokers", "list", "--fenced")[0].splitlines()[-1].split() == [
        "2",
        "two",
        "9093",
        "-",
        "yes",
    ]


def test_nodes_of_a_quorum_lag_behind_the_furthest_of_them(cluster: StandIn) -> None:
    nodes = [
        QuorumNode(3, "voter", 90, 0, 5),
        QuorumNode(4, "voter", 100, -1, -1),
        QuorumNode(7, "observer", 1, 8, 0),
    ]
    cluster.answers["quorum"] = (4, 12, nodes)
    out = json.loads(cluster("brokers", "quorum", "--json")[0])
    assert out["quorum"] == {"leader": 4, "epoch": 12}
    assert [tuple(one.values()) for one in out["nodes"]] == [
        (3, "voter", 90, 10, 0, 5), (4, "voter", 100, 0, None, None), (7, "observer", 1, 99, 8, 0),
    ]  # fmt: skip
    cluster.answers["quorum"] = (4, 12, [])
    assert cluster("brokers", "quorum")[0].splitlines()[-1] == "no nodes"


def test_log_dirs_count_only_replicas_of_the_topics_that_are_named(cluster: StandIn) -> None:
    replicas = (
        ReplicaSize("a", 0, 10, 3, False), ReplicaSize("a", 2, 20, 0, True), ReplicaSize("b", 1, 400, 0, False),
    )  # fmt: skip
    cluster.answers["log_dirs"] = {
        1: [LogDir(1, "/x", 1000, 0, None, replicas), LogDir(1, "/y", -1, -1, ClientError("gone"), ())],
        2: [
            LogDir(2, "/z", 0, 500, None, ()),
            LogDir(2, "/v", 7, -1, None, ()),
            LogDir(2, "/w", -1, 9, None, ()),
        ],
        3: REFUSED,
    }
    cluster.answers["topics"] = {}
    out = json.loads(cluster("brokers", "log-dirs", "--topic", "a", "--topic", "c", "--json", code=1)[0])
    assert [tuple(one.values()) for one in out["log_dirs"]] == [
        (1, "/x", 2, 30, 1000, 0, None),
        (1, "/y", 0, 0, None, None, "gone"),
        (2, "/z", 0, 0, 0, 500, None),
        (2, "/v", 0, 0, 7, None, None),
        (2, "/w", 0, 0, None, 9, None),
        (3, None, None, None, None, None, REFUSED_TEXT),
    ]
    assert [tuple(one.values()) for one in out["replicas"]] == [
        (1, "/x", "a", 0, 10, 3, False), (1, "/x", "a", 2, 20, 0, True),
    ]  # fmt: skip
    every = json.loads(cluster("brokers", "log-dirs", "--broker", "1", "--broker", "2", "--json", code=1)[0])
    assert (every["log_dirs"][0]["replicas"], every["log_dirs"][0]["size_bytes"]) == (3, 430)
    assert cluster.asked_for("log_dirs") == [[None], [(1, 2)]]


def test_replicas_are_listed_for_people_only_on_request(cluster: StandIn) -> None:
    cluster.answers["log_dirs"] = {1: [LogDir(1, "/x", 1, 1, None, (ReplicaSize("a", 0, 10, 3, False),))]}
    assert "OFFSET-LAG" not in cluster("brokers", "log-dirs")[0]
    assert "OFFSET-LAG" in cluster("brokers", "log-dirs", "--replicas")[0]


def test_replicas_are_moved_to_the_dir_that_is_named(cluster: StandIn) -> None:
    cluster.answers["move_replicas"] = {("a", 0): None, ("a", 3): REFUSED}
    arguments = ("brokers", "move", "a:0", "a:3", "--broker", "2", "--to", "/y")
    rows = cluster.rows("partitions", *arguments, code=1)
    assert [tuple(one.values()) for one in rows] == [
        ("a", 0, "begun", None),
        ("a", 3, "failed", REFUSED_TEXT),
    ]
    assert cluster.asked == [("move_replicas", 2, {("a", 0): "/y", ("a", 3): "/y"})]
    wrong = ("brokers", "move", "a:0", "a", "--broker", "2", "--to", "/y")
    assert "each partition is written TOPIC:PARTITION" in cluster(*wrong, code=2)[1]
    assert len(cluster.asked) == 1


def test_features_are_those_of_the_broker_that_is_named(cluster: StandIn) -> None:
    cluster.answers["features"] = [Feature("f", 1, 3, 2), Feature("g", 0, 1, None)]
    rows = cluster.rows("features", "brokers", "features", "list", "--broker", "4")
    assert [tuple(one.values()) for one in rows] == [("f", 1, 3, 2), ("g", 0, 1, None)]
    cluster("brokers", "features", "list")
    assert cluster.asked_for("features") == [[4], [None]]


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ([], UPGRADE),
        (["--downgrade"], SAFE_DOWNGRADE),
        (["--unsafe"], UNSAFE_DOWNGRADE),
        (["--downgrade", "--unsafe"], UNSAFE_DOWNGRADE),
    ],
)
def test_levels_are_lowered_only_as_far_as_was_said(cluster: StandIn, options: list[str], kind: int) -> None:
    cluster.answers["update_features"] = {"f": None, "g": REFUSED}
    update = ("brokers", "features", "update", "f=3", "g=0", *options)
    rows = cluster.rows("features", *update, "--yes", code=1)
    assert [tuple(one.values()) for one in rows] == [("f", 3, "set", None), ("g", 0, "failed", REFUSED_TEXT)]
    dry = cluster.rows("features", *update, "--dry-run", code=1)
    assert [one["outcome"] for one in dry] == ["would be set", "failed"], "nobody has to agree to a check"
    assert cluster.asked_for("update_features") == [
        [{"f": 3, "g": 0}, {"kind": kind, "only_check": only_check}] for only_check in (False, True)
    ]


def test_what_is_set_is_told_to_who_has_to_agree(
    cluster: StandIn, at_terminal: Callable[[str], None]
) -> None:
    at_terminal("n\n")
    _, err = cluster("brokers", "features", "update", "f=3", "g=0", code=1)
    assert err.startswith("set f to 3, g to 0?")
    assert cluster.asked == []
    _, err = cluster("brokers", "features", "update", "f=3", "g=high", "h=low", "--yes", code=2)
    assert "'high' is no level" in err


def test_partitions_are_moved_to_the_brokers_of_the_command_line_and_of_a_file(
    cluster: StandIn, tmp_path: Path, at_terminal: Callable[[str], None]
) -> None:
    cluster.answers["reassign"] = lambda wanted: dict.fromkeys(wanted)
    file = tmp_path / "plan.json"
    plan = [
        {"topic": "c", "partition": 5, "replicas": [9, 8]},
        {"topic": "a", "partition": 1, "replicas": [7]},
    ]
    file.write_text(json.dumps({"partitions": plan}))
    start = ("brokers", "reassign", "start", "a:0=3,1,2", "b:4=1", "--file", str(file))
    rows = cluster.rows("partitions", *start, "--yes")
    assert [(one["topic"], one["partition"], one["outcome"]) for one in rows] == [
        ("a", 0, "begun"), ("b", 4, "begun"), ("c", 5, "begun"), ("a", 1, "begun"),
    ]  # fmt: skip
    assert cluster.asked == [
        ("reassign", {("a", 0): (3, 1, 2), ("b", 4): (1,), ("c", 5): (9, 8), ("a", 1): (7,)})
    ]
    at_terminal("n\n")
    assert cluster(*start, code=1)[1].startswith("move 4 partitions?")
    nothing = cluster("brokers", "reassign", "start", "--yes", code=2)[1]
    assert "give TOPIC:PARTITION=BROKER,... or --file" in nothing
    assert len(cluster.asked) == 1


@pytest.mark.parametrize("text", ["a:0", "a=1", "a:0=", "a:0=1,", "a:0=1,x", "a:x=1", ":0=1"])
def test_a_placement_names_a_partition_and_brokers(cluster: StandIn, text: str) -> None:
    _, err = cluster("brokers", "reassign", "start", text, "--yes", code=2)
    assert "is not TOPIC" in err
    assert cluster.asked == []


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "is expected"),
        ("[]", "is expected"),
        ('{"partitions": [{"topic": "a", "partition": 0}]}', "is expected: KeyError('replicas')"),
        ('{"partitions": [{"topic": "a", "partition": "x", "replicas": []}]}', "is expected"),
        (None, "No such file or directory"),
    ],
)
def test_a_file_that_is_no_plan_is_named(
    cluster: StandIn, tmp_path: Path, content: str | None, said: str
) -> None:
    file = tmp_path / "plan.json"
    if content is not None:
        file.write_text(content)
    _, err = cluster("brokers", "reassign", "start", "--file", str(file), "--yes", code=1)
    assert err.startswith(f"barnabas brokers reassign start: {file}: ")
    assert said in err


MOVING = {
    ("b", 1): Reassignment((1, 2), (3,), (4,)),
    ("a", 0): Reassignment((5,), (), (6,)),
    ("a", 2): Reassignment((7,), (8,), ()),
    ("ab", 0): Reassignment((1,), (2,), ()),
}


def test_moves_are_listed_by_partition(cluster: StandIn) -> None:
    cluster.answers["reassignments"] = MOVING
    rows = cluster.rows("reassignments", "brokers", "reassign", "list")
    assert [tuple(one.values()) for one in rows] == [
        ("a", 0, [5], [], [6], None), ("a", 2, [7], [8], [], None),
        ("ab", 0, [1], [2], [], None), ("b", 1, [1, 2], [3], [4], None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("named", "cancelled"),
    [
        ([], [("b", 1), ("a", 0), ("a", 2), ("ab", 0)]),
        (["a"], [("a", 0), ("a", 2)]),
        (["a:2"], [("a", 2)]),
        (["a:2", "b"], [("b", 1), ("a", 2)]),
        (["a:0", "a:7"], [("a", 0)]),
    ],
)
def test_moves_are_cancelled_all_or_of_topics_or_of_partitions(
    cluster: StandIn, named: list[str], cancelled: list[tuple[str, int]]
) -> None:
    cluster.answers |= {"reassignments": MOVING, "reassign": lambda wanted: dict.fromkeys(wanted)}
    rows = cluster.rows("partitions", "brokers", "reassign", "cancel", *named, "--yes")
    assert [(one["topic"], one["partition"], one["outcome"]) for one in rows] == [
        (*one, "cancelled") for one in cancelled
    ]
    assert cluster.asked_for("reassign") == [[dict.fromkeys(cancelled)]]


def test_what_does_not_move_is_not_cancelled(cluster: StandIn, at_terminal: Callable[[str], None]) -> None:
    cluster.answers["reassignments"] = MOVING
    _, err = cluster("brokers", "reassign", "cancel", "a:7", "c", "--yes", code=1)
    assert "nothing of this is being moved" in err
    at_terminal("n\n")
    assert cluster("brokers", "reassign", "cancel", "a", code=1)[1].startswith("cancel 2 moves?")
    assert cluster.asked_for("reassign") == []


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        ([], [None, {"kind": PREFERRED}]),
        (["a:0", "b:3"], [[("a", 0), ("b", 3)], {"kind": PREFERRED}]),
        (["a:0", "--unclean", "--yes"], [[("a", 0)], {"kind": UNCLEAN}]),
    ],
)
def test_leaders_are_elected_unclean_only_if_that_was_said(
    cluster: StandIn, arguments: list[str], asked: list[Any]
) -> None:
    cluster.answers["elect_leaders"] = {("a", 0): None, ("b", 3): REFUSED}
    rows = cluster.rows("partitions", "brokers", "elect", *arguments, code=1)
    assert [tuple(one.values()) for one in rows] == [
        ("a", 0, "leads", None),
        ("b", 3, "failed", REFUSED_TEXT),
    ]
    assert cluster.asked_for("elect_leaders") == [asked]


def test_an_unclean_election_needs_somebody_who_agrees_and_partitions_have_numbers(cluster: StandIn) -> None:
    assert (
        "which are lost then: standard input is no terminal"
        in cluster("brokers", "elect", "--unclean", code=1)[1]
    )
    assert "each partition is written TOPIC:PARTITION" in cluster("brokers", "elect", "a", code=2)[1]
    assert cluster.asked == []


def test_a_broker_is_unregistered_by_its_id(cluster: StandIn, at_terminal: Callable[[str], None]) -> None:
    cluster.answers["unregister_broker"] = None
    rows = cluster.rows("brokers", "brokers", "unregister", "7", "--yes")
    assert rows == [{"broker": 7, "outcome": "unregistered"}]
    at_terminal("n\n")
    assert cluster("brokers", "unregister", "8", code=1)[1].startswith("unregister broker 8?")
    assert cluster.asked == [("unregister_broker", 7)]
