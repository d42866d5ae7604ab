"""`barnabas brokers` with what several brokers tell: lags, moves, elections, levels."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from barnabas.client import ClientError, ResponseError
from barnabas.client.administration.cluster import (
    BrokerInfo,
    ClusterInfo,
    LogDir,
    QuorumNode,
    Reassignment,
    ReplicaSize,
)
from barnabas.client.administration.words import PREFERRED, UNCLEAN

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


def test_nodes_of_a_quorum_lag_behind_the_furthest_of_them(cluster: StandIn) -> None:
    nodes = [
        QuorumNode(3, "voter", 90, 0, 5),
        QuorumNode(4, "voter", 100, -1, -1),
        QuorumNode(7, "observer", 1, 8, 0),
    ]
    cluster.answers["quorum"] = (4, 12, nodes)
    out = json.loads(cluster("brokers", "quorum", "--json")[0])
    assert out["quorum"] == {"leader": 4, "epoch": 12}
    assert [tuple(row.values()) for row in out["nodes"]] == [
        (3, "voter", 90, 10, 0, 5), (4, "voter", 100, 0, None, None), (7, "observer", 1, 99, 8, 0),
    ]  # fmt: skip
    cluster.answers["quorum"] = (4, 12, [])
    assert cluster("brokers", "quorum")[0].splitlines()[-1] == "no nodes"


def test_log_dirs_count_replicas_of_named_topics(cluster: StandIn) -> None:
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
    assert [tuple(row.values()) for row in out["log_dirs"]] == [
        (1, "/x", 2, 30, 1000, 0, None),
        (1, "/y", 0, 0, None, None, "gone"),
        (2, "/z", 0, 0, 0, 500, None),
        (2, "/v", 0, 0, 7, None, None),
        (2, "/w", 0, 0, None, 9, None),
        (3, None, None, None, None, None, REFUSED_TEXT),
    ]
    assert [tuple(row.values()) for row in out["replicas"]] == [
        (1, "/x", "a", 0, 10, 3, False), (1, "/x", "a", 2, 20, 0, True),
    ]  # fmt: skip
    every = json.loads(cluster("brokers", "log-dirs", "--broker", "1", "--broker", "2", "--json", code=1)[0])
    assert (every["log_dirs"][0]["replicas"], every["log_dirs"][0]["size_bytes"]) == (3, 430)
    assert cluster.asked_for("log_dirs") == [[None], [(1, 2)]]


def test_what_is_set_is_told_to_who_has_to_agree(
    cluster: StandIn, at_terminal: Callable[[str], None]
) -> None:
    at_terminal("n\n")
    _, err = cluster("brokers", "features", "update", "f=3", "g=0", code=1)
    assert err.startswith("set f to 3, g to 0?")
    assert cluster.asked == []
    _, err = cluster("brokers", "features", "update", "f=3", "g=high", "h=low", "--yes", code=2)
    assert "'high' is no level" in err


@pytest.mark.parametrize("text", ["a:0", "a=1", "a:0=", "a:0=1,", "a:0=1,x", "a:x=1", ":0=1"])
def test_a_placement_names_a_partition_and_brokers(cluster: StandIn, text: str) -> None:
    _, err = cluster("brokers", "reassign", "start", text, "--yes", code=2)
    assert "is not TOPIC" in err
    assert cluster.asked == []


MOVING = {
    ("b", 1): Reassignment((1, 2), (3,), (4,)),
    ("a", 0): Reassignment((5,), (), (6,)),
    ("a", 2): Reassignment((7,), (8,), ()),
    ("ab", 0): Reassignment((1,), (2,), ()),
}


def test_moves_are_listed_by_partition(cluster: StandIn) -> None:
    cluster.answers["reassignments"] = MOVING
    rows = cluster.rows("reassignments", "brokers", "reassign", "list")
    assert [tuple(row.values()) for row in rows] == [
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
    cluster.answers |= {"reassignments": MOVING, "reassign": lambda targets: dict.fromkeys(targets)}
    rows = cluster.rows("partitions", "brokers", "reassign", "cancel", *named, "--yes")
    assert [(row["topic"], row["partition"], row["outcome"]) for row in rows] == [
        (*row, "cancelled") for row in cancelled
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
    assert [tuple(row.values()) for row in rows] == [
        ("a", 0, "leads", None),
        ("b", 3, "failed", REFUSED_TEXT),
    ]
    assert cluster.asked_for("elect_leaders") == [asked]


def test_unclean_election_needs_consent_and_partition_numbers(cluster: StandIn) -> None:
    assert (
        "which are lost then: standard input is no terminal"
        in cluster("brokers", "elect", "--unclean", code=1)[1]
    )
    assert "each partition is written TOPIC:PARTITION" in cluster("brokers", "elect", "a", code=2)[1]
    assert cluster.asked == []
