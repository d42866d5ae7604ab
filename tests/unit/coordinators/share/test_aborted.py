"""Batches of aborted transactions are told from the others."""

from __future__ import annotations

import pytest

from barnabas.coordinators.share.aborted import aborted_batches
from barnabas.records.batch import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader


def batch(first: int, last: int, producer_id: int = -1, attributes: int = 0) -> BatchHeader:
    return BatchHeader(
        first, 100, 0, 2, 0, attributes, last - first, 0, 0, producer_id, 0, 0, last - first + 1
    )


def test_only_batches_of_aborted_transactions_are_hidden() -> None:
    both = TRANSACTIONAL_BIT | CONTROL_BIT
    log = [
        (batch(0, 4), False),
        (batch(5, 9, 1, TRANSACTIONAL_BIT), False),  # aborted
        (batch(10, 14, 2, TRANSACTIONAL_BIT), False),  # committed
        (batch(15, 19, 1), False),  # idempotent, in no transaction
        (batch(20, 20, 1, both), True),
        (batch(21, 21, 2, both), False),
        (batch(22, 24, 1, TRANSACTIONAL_BIT), False),  # the next one of this producer, committed
        (batch(25, 29, 2, TRANSACTIONAL_BIT), False),  # aborted
    ]
    assert aborted_batches(log, [(25, 2), (5, 1)]) == [(5, 9), (25, 29)]
    assert aborted_batches(log, []) == []


@pytest.mark.parametrize("producer_id", [0, 1])
def test_a_transaction_may_have_begun_before(producer_id: int) -> None:
    log = [
        (batch(10, 14, producer_id, TRANSACTIONAL_BIT), False),
        (batch(15, 15, producer_id, TRANSACTIONAL_BIT | CONTROL_BIT), True),
        (batch(16, 19, producer_id, TRANSACTIONAL_BIT), False),
    ]
    assert aborted_batches(log, [(3, producer_id)]) == [(10, 14)]
