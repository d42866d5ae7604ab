"""Each change of a transaction, field by field: what it sets, and that it leaves all else as it was."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from barnabas.coordinators.transactions.transaction import (
    EPOCH_MAX,
    EPOCH_MAX_OF_CLIENTS,
    NO_PRODUCER_ID,
    Producer,
    State,
    Transaction,
)

A, B = ("a", 0), ("b", 3)
NOW_MS = 99
BEFORE = Transaction(
    "id", 11, epoch=12, last_epoch=13, previous_producer_id=14, next_producer_id=NO_PRODUCER_ID, timeout_ms=16,
    state=State.ONGOING, partitions=frozenset({A}), start_ms=17, update_ms=18, client_version=0,
)  # fmt: skip
ENDED = replace(BEFORE, state=State.COMPLETE_COMMIT, partitions=frozenset())
ROTATES = replace(BEFORE, state=State.PREPARE_COMMIT, next_producer_id=15)

CASES: list[tuple[str, Transaction, Transaction, dict[str, Any]]] = [
    (
        "a new epoch", BEFORE, BEFORE.with_epoch(21, 22, 23, NOW_MS),
        {"state": State.EMPTY, "epoch": 21, "last_epoch": 22, "timeout_ms": 23, "partitions": frozenset(),
         "start_ms": -1, "update_ms": NOW_MS},
    ),
    (
        "a new producer id", BEFORE, BEFORE.with_producer_id(21, 22, 23, NOW_MS),
        {"state": State.EMPTY, "producer_id": 21, "previous_producer_id": 11, "epoch": 0, "last_epoch": 22,
         "timeout_ms": 23, "partitions": frozenset(), "start_ms": -1, "update_ms": NOW_MS},
    ),
    (
        "more partitions", BEFORE, BEFORE.with_partitions(frozenset({B}), 2, NOW_MS),
        {"partitions": frozenset({A, B}), "update_ms": NOW_MS, "client_version": 2},
    ),
    (
        "first partitions", replace(ENDED, partitions=frozenset({A})),
        ENDED.with_partitions(frozenset({B}), 2, NOW_MS),
        {"state": State.ONGOING, "partitions": frozenset({B}), "start_ms": NOW_MS, "update_ms": NOW_MS,
         "client_version": 2},
    ),
    (
        "a commit of version 1", BEFORE, BEFORE.prepared(commit=True, client_version=1, now_ms=NOW_MS),
        {"state": State.PREPARE_COMMIT, "update_ms": NOW_MS, "client_version": 1},
    ),
    (
        "an abort of version 2", BEFORE,
        BEFORE.prepared(commit=False, client_version=2, now_ms=NOW_MS, next_producer_id=21),
        {"state": State.PREPARE_ABORT, "epoch": 13, "last_epoch": 12, "next_producer_id": 21, "update_ms": NOW_MS,
         "client_version": 2},
    ),
    (
        "an abort of what has not begun", ENDED, ENDED.prepared(commit=False, client_version=2, now_ms=NOW_MS),
        {"state": State.PREPARE_ABORT, "epoch": 13, "last_epoch": 12, "start_ms": NOW_MS, "update_ms": NOW_MS,
         "client_version": 2},
    ),
    (
        "fenced", replace(BEFORE, next_producer_id=5), replace(BEFORE, next_producer_id=5).fenced(NOW_MS),
        {"state": State.PREPARE_ABORT, "epoch": 13, "last_epoch": 12, "next_producer_id": NO_PRODUCER_ID,
         "update_ms": NOW_MS, "client_version": 2},
    ),
    (
        "fenced in the last epoch", replace(BEFORE, epoch=EPOCH_MAX), replace(BEFORE, epoch=EPOCH_MAX).fenced(NOW_MS),
        {"state": State.PREPARE_ABORT, "last_epoch": EPOCH_MAX, "update_ms": NOW_MS, "client_version": 2},
    ),
    (
        "committed", replace(BEFORE, state=State.PREPARE_COMMIT),
        replace(BEFORE, state=State.PREPARE_COMMIT).completed(NOW_MS),
        {"state": State.COMPLETE_COMMIT, "partitions": frozenset(), "update_ms": NOW_MS},
    ),
    (
        "aborted", replace(BEFORE, state=State.PREPARE_ABORT),
        replace(BEFORE, state=State.PREPARE_ABORT).completed(NOW_MS),
        {"state": State.COMPLETE_ABORT, "partitions": frozenset(), "update_ms": NOW_MS},
    ),
    (
        "committed, and on with a new id", ROTATES, ROTATES.completed(NOW_MS),
        {"state": State.COMPLETE_COMMIT, "partitions": frozenset(), "update_ms": NOW_MS, "producer_id": 15,
         "previous_producer_id": 11, "epoch": 0, "last_epoch": EPOCH_MAX_OF_CLIENTS,
         "next_producer_id": NO_PRODUCER_ID},
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("before", "after", "changes"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_a_change_sets_what_it_is_about_and_nothing_else(before, after, changes):
    found = {
        field.name: getattr(after, field.name)
        for field in fields(Transaction)
        if getattr(after, field.name) != getattr(before, field.name)
    }
    assert found == changes


@pytest.mark.parametrize(
    ("epoch", "is_exhausted"),
    [(EPOCH_MAX_OF_CLIENTS - 1, False), (EPOCH_MAX_OF_CLIENTS, True), (EPOCH_MAX, True)],
)
def test_clients_have_no_epoch_above_the_last_but_one(epoch, is_exhausted):
    transaction = replace(BEFORE, epoch=epoch)
    assert transaction.is_exhausted is is_exhausted
    assert transaction.needs_producer_id(None) is is_exhausted


@pytest.mark.parametrize(
    ("epoch", "last_epoch", "expected", "needs"),
    [
        (EPOCH_MAX_OF_CLIENTS, 5, EPOCH_MAX_OF_CLIENTS, True),
        (EPOCH_MAX_OF_CLIENTS, 5, 5, False),
        (EPOCH_MAX, 5, EPOCH_MAX, True),
        (EPOCH_MAX, 5, 5, True),
        (EPOCH_MAX, 5, 6, False),
        (7, 5, 7, False),
        (7, 5, 5, False),
    ],
)
def test_who_goes_on_needs_a_new_id_where_its_epochs_are_used_up(epoch, last_epoch, expected, needs):
    transaction = replace(BEFORE, epoch=epoch, last_epoch=last_epoch)
    assert transaction.needs_producer_id(Producer(11, expected)) is needs


@pytest.mark.parametrize(
    ("states", "ids", "longer_ms", "matches"),
    [
        (set(), set(), -1, True),
        ({"Ongoing"}, set(), -1, True),
        ({"Empty"}, set(), -1, False),
        ({"Empty", "Ongoing"}, {11}, -1, True),
        (set(), {11, 12}, -1, True),
        (set(), {12}, -1, False),
        ({"Empty"}, {11}, -1, False),
        (set(), set(), NOW_MS - 17 - 1, True),
        (set(), set(), NOW_MS - 17, False),
        ({"Ongoing"}, {12}, 0, False),
    ],
)
def test_each_filter_of_a_list_counts_by_itself(states, ids, longer_ms, matches):
    assert BEFORE.matches(states, ids, longer_ms, NOW_MS) is matches
