"""`barnabas transactions` with what several brokers tell: filters, open transactions, those that hang."""

from __future__ import annotations

import json
import time
from dataclasses import replace
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
"""A transaction hangs whose last batch is older, with the default of --max-timeout."""
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


@pytest.mark.parametrize(("started", "shown"), [(0, 0), (5, 5), (-1, None)])
def test_transaction_is_described_with_its_start_if_open(
    cluster: StandIn, started: int, shown: int | None
) -> None:
    info = TransactionInfo("t", 8, 3, "Ongoing", 60_000, started, 2, (("a", 0), ("b", 1)))
    cluster.answers["describe_transactions"] = {"t": info, "u": REFUSED}
    rows = cluster.rows("transactions", "transactions", "describe", "t", "u", code=1)
    assert [tuple(one.values()) for one in rows] == [
        ("t", 2, 8, 3, "Ongoing", 60_000, shown, ["a:0", "b:1"], None), ("u", *[None] * 7, REFUSED_TEXT),
    ]  # fmt: skip
    assert cluster.asked == [("describe_transactions", ("t", "u"))]


def test_producers_have_first_offset_of_open_transaction(cluster: StandIn) -> None:
    states = [ProducerState(8, 1, 41, 1000, 6, 0), ProducerState(9, 2, 42, 2000, -1, -1)]
    cluster.answers |= {"topics": {"a": topic("a", 0, 1)}, "producers": {("a", 0): states, ("a", 1): REFUSED}}
    rows = cluster.rows("producers", "transactions", "producers", "a", code=1)
    assert [tuple(one.values()) for one in rows] == [
        ("a", 0, 8, 1, 6, 41, 1000, 0, None),
        ("a", 0, 9, 2, -1, 42, 2000, None, None),
        ("a", 1, *[None] * 6, REFUSED_TEXT),
    ]


# --- aborting ------------------------------------------------------------------------------------------------------

OPEN, OTHER, SETTLED = (
    ProducerState(8, 1, 41, 1000, 6, 30), ProducerState(9, 2, 42, 2000, 6, 50), ProducerState(7, 1, 40, 500, 6, -1),
)  # fmt: skip


@pytest.mark.parametrize(
    ("options", "state"),
    [
        (["--producer-id", "8"], OPEN),
        (["--producer-id", "9"], OTHER),
        (["--start-offset", "30"], OPEN),
        (["--start-offset", "50"], OTHER),
        (["--producer-id", "50"], None),
        (["--start-offset", "8"], None),
        (["--producer-id", "7"], None),
        (["--start-offset", "-1"], None),
    ],
)
def test_the_open_transaction_that_was_named_is_aborted(
    cluster: StandIn, options: list[str], state: ProducerState | None
) -> None:
    cluster.answers |= {"producers": {("a", 3): [SETTLED, OPEN, OTHER]}, "abort_transaction": None}
    abort = ("transactions", "abort", "a:3", *options, "--yes")
    if state is None:
        assert "no such transaction is open in a:3" in cluster(*abort, code=1)[1]
    else:
        (row,) = cluster.rows("transactions", *abort)
        assert row == {"topic": "a", "partition": 3, "producer_id": state.producer_id, "outcome": "aborted"}
    aborted = [] if state is None else [[("a", 3), state]]
    assert cluster.asked_for("abort_transaction") == aborted


def test_an_abort_that_starts_at_offset_0_is_one(cluster: StandIn) -> None:
    first = replace(OPEN, transaction_offset=0)
    cluster.answers |= {"producers": {("a", 0): [first]}, "abort_transaction": None}
    cluster("transactions", "abort", "a:0", "--start-offset", "0", "--yes")
    assert cluster.asked_for("abort_transaction") == [[("a", 0), first]]


# --- those that hang -----------------------------------------------------------------------------------------------


def hanging(cluster: StandIn, *arguments: str, code: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = cluster.rows(
        "hanging", "transactions", "find-hanging", *arguments, code=code
    )
    return found


KNOWN = TransactionInfo("t", 8, 1, "Ongoing", 60_000, 0, 2, (("a", 4),))
OLD = ProducerState(8, 1, 0, LIMIT_MS - 1, 0, 10)


@pytest.mark.parametrize(
    ("info", "hangs"),
    [
        (KNOWN, False),
        (replace(KNOWN, producer_epoch=2), True),
        (replace(KNOWN, partitions=(("a", 5), ("b", 4))), True),
        (replace(KNOWN, state="PrepareCommit"), False),
        *((replace(KNOWN, state=one), True) for one in ("Empty", "CompleteCommit", "CompleteAbort", "Dead")),
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
    assert [one["transactional_id"] for one in rows] == (["t"] if hangs else [])
    assert cluster.asked_for("list_transactions") == [[{"producer_ids": [8]}]]
    assert [list(one) for [one] in cluster.asked_for("describe_transactions")] == [["t"]]


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
    assert [(one["partition"], one["producer_id"], one["error"]) for one in rows] == [
        (4, None, REFUSED_TEXT), (5, 8, None),
    ]  # fmt: skip
    assert cluster.asked_for("topics") == [[None]], "without names all partitions are looked at"
    cluster.answers["producers"] = {("a", 4): REFUSED, ("a", 5): []}
    assert [one["partition"] for one in hanging(cluster, code=1)] == [4], "what is not told is a failure too"
    cluster.answers["producers"] = {("a", 5): [OLD]}
    cluster.answers["list_transactions"] = [], {2: ClientError("broker 2 is away")}
    _, err = cluster("transactions", "find-hanging", code=1)
    assert err == "barnabas transactions find-hanging: broker 2 is away\n"
    cluster.answers["list_transactions"] = [ListedTransaction("t", 8, "Ongoing", 2)], {}
    cluster.answers["describe_transactions"] = {"t": ClientError("nobody knows")}
    assert "nobody knows" in cluster("transactions", "find-hanging", code=1)[1]


def test_json_of_nothing_that_hangs_is_an_empty_list(cluster: StandIn) -> None:
    cluster.answers |= {"topics": {}, "producers": {}}
    assert json.loads(cluster("transactions", "find-hanging", "--json")[0]) == {"hanging": []}
