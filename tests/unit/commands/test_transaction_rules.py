"""`barnabas transactions` with what several brokers tell: filters, open transactions, those that hang."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from barnabas.client import ClientError, ResponseError
from barnabas.client.admin import ListedTransaction, PartitionInfo, ProducerState, TopicInfo, TransactionInfo
from barnabas.commands.transactions import GRACE_MS

from .conftest import StandIn

REFUSED = ResponseError(53, "asking", None)
REFUSED_TEXT = "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
NOW_MS = 1_700_000_000_000
MINUTE_MS = 60_000
LIMIT_MS = NOW_MS - 15 * MINUTE_MS - GRACE_MS
"""A transaction hangs if its last batch is older, with the default of --max-timeout."""
COLUMNS = [
    "topic",
    "partition",
    "producer_id",
    "producer_epoch",
    "transaction_offset",
    "last_at_ms",
    "transactional_id",
    "error",
]


def topic(name: str, *numbers: int) -> TopicInfo:
    partitions = tuple(PartitionInfo(number, 1, 0, (1,), (1,), ()) for number in numbers)
    return TopicInfo(name, "id", False, partitions)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: NOW_MS / 1000)


def test_transactions_are_filtered_by_the_brokers_that_tell_them(cluster: StandIn) -> None:
    result = [ListedTransaction("t", 8, "Ongoing", 2), ListedTransaction("u", 9, "Empty", 1)]
    cluster.answers["list_transactions"] = result, {3: REFUSED}
    rows = cluster.rows("transactions", "transactions", "list", code=1)
    assert [tuple(row.values()) for row in rows] == [
        ("t", 2, 8, "Ongoing", None), ("u", 1, 9, "Empty", None), (None, 3, None, None, REFUSED_TEXT),
    ]  # fmt: skip
    arguments = "--state Ongoing --state Empty --producer-id 8 --producer-id 0 --running-for 0s --pattern a.*"
    cluster("transactions", "list", *arguments.split(), code=1)
    assert cluster.asked_for("list_transactions") == [
        [{"states": (), "producer_ids": (), "running_for_ms": -1, "pattern": None}],
        [{"states": ("Ongoing", "Empty"), "producer_ids": (8, 0), "running_for_ms": 0, "pattern": "a.*"}],
    ]


@pytest.mark.parametrize(("started", "shown"), [(0, 0), (5, 5), (-1, None)])
def test_transaction_is_described_with_its_start_if_open(
    cluster: StandIn, started: int, shown: int | None
) -> None:
    info = TransactionInfo("t", 8, 3, "Ongoing", 60_000, started, 2, (("a", 0), ("b", 1)))
    cluster.answers["describe_transactions"] = {"t": info, "u": REFUSED}
    rows = cluster.rows("transactions", "transactions", "describe", "t", "u", code=1)
    assert [tuple(row.values()) for row in rows] == [
        ("t", 2, 8, 3, "Ongoing", 60_000, shown, ["a:0", "b:1"], None), ("u", *[None] * 7, REFUSED_TEXT),
    ]  # fmt: skip
    assert cluster.asked == [("describe_transactions", ("t", "u"))]


@pytest.mark.parametrize(
    ("named", "meant"),
    [(["a"], [("a", 0), ("a", 1)]), (["a:1"], [("a", 1)]), (["b", "a:0"], [("a", 0), ("b", 0), ("b", 1)])],
)
def test_producers_are_those_of_the_partitions_that_are_named(
    cluster: StandIn, named: list[str], meant: list[tuple[str, int]]
) -> None:
    cluster.answers |= {"topics": {"a": topic("a", 0, 1), "b": topic("b", 0, 1)}, "producers": {}}
    assert cluster("transactions", "producers", *named)[0] == "no producers\n"
    assert cluster.asked == [("topics", {place.partition(":")[0] for place in named}), ("producers", meant)]


def test_producers_have_first_offset_of_open_transaction(cluster: StandIn) -> None:
    states = [ProducerState(8, 1, 41, 1000, 6, 0), ProducerState(9, 2, 42, 2000, -1, -1)]
    cluster.answers |= {"topics": {"a": topic("a", 0, 1)}, "producers": {("a", 0): states, ("a", 1): REFUSED}}
    rows = cluster.rows("producers", "transactions", "producers", "a", code=1)
    assert [tuple(row.values()) for row in rows] == [
        ("a", 0, 8, 1, 6, 41, 1000, 0, None),
        ("a", 0, 9, 2, -1, 42, 2000, None, None),
        ("a", 1, *[None] * 6, REFUSED_TEXT),
    ]


def test_partitions_that_there_are_not_are_named(cluster: StandIn) -> None:
    cluster.answers["topics"] = {"a": topic("a", 0), "b": topic("b", 0)}
    _, err = cluster("transactions", "producers", "a:0", "a:7", "b:2", "b", code=1)
    assert err == "barnabas transactions producers: there is no partition a:7, b:2\n"
    cluster.answers["topics"] = {"a": topic("a", 0), "b": REFUSED}
    assert REFUSED_TEXT in cluster("transactions", "producers", "a", "b", code=1)[1]


# --- aborting ------------------------------------------------------------------------------------------------------

OPEN, OTHER, SETTLED = (
    ProducerState(8, 1, 41, 1000, 6, 30), ProducerState(9, 2, 42, 2000, 6, 50), ProducerState(7, 1, 40, 500, 6, -1),
)  # fmt: skip


def test_an_abort_that_starts_at_offset_0_is_one(cluster: StandIn) -> None:
    first = OPEN._replace(transaction_offset=0)
    cluster.answers |= {"producers": {("a", 0): [first]}, "abort_transaction": None}
    cluster("transactions", "abort", "a:0", "--start-offset", "0", "--yes")
    assert cluster.asked_for("abort_transaction") == [[("a", 0), first]]


def test_what_is_aborted_is_told_to_who_has_to_agree(
    cluster: StandIn, at_terminal: Callable[[str], None]
) -> None:
    cluster.answers["producers"] = {("a", 3): [OPEN]}
    at_terminal("n\n")
    _, err = cluster("transactions", "abort", "a:3", "--producer-id", "8", code=1)
    assert err.startswith("abort the transaction of producer 8 in a:3, from offset 30 on?")
    cluster.answers["producers"] = {("a", 3): REFUSED}
    assert REFUSED_TEXT in cluster("transactions", "abort", "a:3", "--producer-id", "8", "--yes", code=1)[1]
    assert cluster.asked_for("abort_transaction") == []


# --- those that hang -----------------------------------------------------------------------------------------------


def hanging(cluster: StandIn, *arguments: str, code: int) -> list[dict[str, Any]]:
    result: list[dict[str, Any]] = cluster.rows(
        "hanging", "transactions", "find-hanging", *arguments, code=code
    )
    return result


@pytest.mark.parametrize(
    ("state", "options", "hangs"),
    [
        (ProducerState(8, 1, 0, LIMIT_MS - 1, 0, 0), [], True),
        (ProducerState(8, 1, 0, LIMIT_MS, 0, 0), [], False),
        (ProducerState(8, 1, 0, LIMIT_MS - 1, 0, -1), [], False),
        (ProducerState(8, 1, 0, LIMIT_MS - 1, 0, 0), ["--max-timeout", "16m"], False),
        (ProducerState(8, 1, 0, LIMIT_MS - MINUTE_MS - 1, 0, 5), ["--max-timeout", "16m"], True),
        (ProducerState(8, 1, 0, LIMIT_MS, 0, 7), ["--max-timeout", "14m"], True),
    ],
)
@pytest.mark.usefixtures("clock")
def test_open_transaction_hangs_after_max_timeout_and_grace(
    cluster: StandIn, state: ProducerState, options: list[str], hangs: bool
) -> None:
    cluster.answers |= {
        "topics": {"a": topic("a", 4)}, "producers": {("a", 4): [state]}, "list_transactions": ([], {}),
        "describe_transactions": {},
    }  # fmt: skip
    rows = hanging(cluster, *options, code=int(hangs))
    row = ("a", 4, 8, 1, state.transaction_offset, state.last_at_ms, None, None)
    assert [tuple(row.values()) for row in rows] == ([row] if hangs else [])
    assert len(cluster.asked_for("list_transactions")) == int(hangs), "coordinators are asked only of those"


KNOWN = TransactionInfo("t", 8, 1, "Ongoing", 60_000, 0, 2, (("a", 4),))
OLD = ProducerState(8, 1, 0, LIMIT_MS - 1, 0, 10)


@pytest.mark.parametrize(
    ("info", "hangs"),
    [
        (KNOWN, False),
        (KNOWN._replace(producer_epoch=2), True),
        (KNOWN._replace(partitions=(("a", 5), ("b", 4))), True),
        (KNOWN._replace(state="PrepareCommit"), False),
        *((KNOWN._replace(state=s), True) for s in ("Empty", "CompleteCommit", "CompleteAbort", "Dead")),
    ],
)
@pytest.mark.usefixtures("clock")
def test_transaction_known_to_its_coordinator_does_not_hang(
    cluster: StandIn, info: TransactionInfo, hangs: bool
) -> None:
    young = ProducerState(9, 1, 0, NOW_MS, 0, 10)
    cluster.answers |= {
        "topics": {"a": topic("a", 4)},
        "producers": {("a", 4): [OLD, young]},
        "list_transactions": ([ListedTransaction("t", 8, "Ongoing", 2)], {}),
        "describe_transactions": {"t": info},
    }
    rows = hanging(cluster, "a", code=int(hangs))
    assert [row["transactional_id"] for row in rows] == (["t"] if hangs else [])
    assert cluster.asked_for("list_transactions") == [[{"producer_ids": [8]}]]
    assert [list(ids) for [ids] in cluster.asked_for("describe_transactions")] == [["t"]]


@pytest.mark.usefixtures("clock")
def test_failing_partitions_and_coordinators_are_reported(cluster: StandIn) -> None:
    cluster.answers |= {
        "topics": {"a": topic("a", 4, 5)},
        "producers": {("a", 4): REFUSED, ("a", 5): [OLD]},
        "list_transactions": ([], {}),
        "describe_transactions": {},
    }
    rows = hanging(cluster, code=1)
    assert list(rows[0]) == COLUMNS
    assert [(row["partition"], row["producer_id"], row["error"]) for row in rows] == [
        (4, None, REFUSED_TEXT), (5, 8, None),
    ]  # fmt: skip
    assert cluster.asked_for("topics") == [[None]], "without names all partitions are looked at"
    cluster.answers["producers"] = {("a", 4): REFUSED, ("a", 5): []}
    assert [row["partition"] for row in hanging(cluster, code=1)] == [4], "what is not told is a failure too"
    cluster.answers["producers"] = {("a", 5): [OLD]}
    cluster.answers["list_transactions"] = [], {2: ClientError("broker 2 is away")}
    _, err = cluster("transactions", "find-hanging", code=1)
    assert err == "barnabas transactions find-hanging: broker 2 is away\n"
    cluster.answers["list_transactions"] = [ListedTransaction("t", 8, "Ongoing", 2)], {}
    cluster.answers["describe_transactions"] = {"t": ClientError("nobody knows")}
    assert "nobody knows" in cluster("transactions", "find-hanging", code=1)[1]
