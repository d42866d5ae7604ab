"""Routes over transactions: open ones by age, and the abort of hanging ones."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from barnabas.client import ClientError
from barnabas.client.admin import ListedTransaction, ProducerState, TransactionInfo
from barnabas.console import paging
from barnabas.console.base import Call, ConsoleError, Parameter, Route
from barnabas.console.history import OPEN
from barnabas.console.outcomes import error_text, good

ORDERS: dict[str, Callable[[ListedTransaction], Any]] = {
    "id": lambda transaction: transaction.transactional_id,
    "state": lambda transaction: (transaction.state, transaction.transactional_id),
    "age": lambda transaction: (transaction.state not in OPEN, transaction.transactional_id),
}


async def list_transactions(call: Call) -> object:
    """Return a page of transactional ids, with the age of open transactions."""
    listed, failures = await call.backend.admin.list_transactions()
    if call.flag("open"):
        listed = [transaction for transaction in listed if transaction.state in OPEN]
    page = paging.page_of(call, listed, ORDERS, lambda transaction: transaction.transactional_id)
    infos = await call.backend.admin.describe_transactions(
        transaction.transactional_id for transaction in page.rows
    )
    rows = [_row(transaction, good(infos[transaction.transactional_id])) for transaction in page.rows]
    if call.query.get("sort") == "age":
        rows.sort(key=lambda row: -(row["age_ms"] or 0))
    return {
        **page.as_json(rows),
        "failures": {broker: error_text(failure) for broker, failure in failures.items()},
    }


def _row(listed: ListedTransaction, info: TransactionInfo | None) -> dict[str, Any]:
    row: dict[str, Any] = {
        "id": listed.transactional_id,
        "producer_id": listed.producer_id,
        "state": listed.state,
        "coordinator": listed.coordinator,
        "epoch": None,
        "timeout_ms": None,
        "age_ms": None,
        "partitions": [],
    }
    if info is not None:
        is_open = info.started_at_ms >= 0 and info.state in OPEN
        row |= {
            "epoch": info.producer_epoch,
            "state": info.state,
            "timeout_ms": info.timeout_ms,
            "age_ms": max(time.time_ns() // 1_000_000 - info.started_at_ms, 0) if is_open else None,
            "partitions": [f"{topic}-{number}" for topic, number in info.partitions],
        }
    return row


async def abort_transaction(call: Call) -> object:
    """Abort the transaction that a producer has open in a partition."""
    topic, partition = call.field("topic", str), call.field("partition", int)
    producer_id = call.field("producer_id", int)
    place = topic, partition
    states = (await call.backend.admin.producers([place]))[place]
    if isinstance(states, ClientError):
        raise states
    producer: ProducerState | None = next(
        (state for state in states if state.producer_id == producer_id), None
    )
    if producer is None or producer.transaction_offset < 0:
        raise ConsoleError(409, f"producer {producer_id} has no open transaction in {topic}-{partition}")
    call.confirmed(f"{topic}-{partition}")
    await call.backend.admin.abort_transaction(place, producer)
    return None


ROUTES = (
    Route("GET", "/api/transactions", list_transactions, "A page of transactional ids, open ones with their age",
          query=(*paging.QUERY, Parameter("open", "true for those alone whose transaction is open (false)"))),
    Route("POST", "/api/transactions/abort", abort_transaction, "Abort a transaction that hangs in a partition",
          body=(Parameter("topic", "of the partition"), Parameter("partition", "its number"),
                Parameter("producer_id", "whose transaction"), Parameter("confirm", "TOPIC-PARTITION, from who is sure"))),
)  # fmt: skip
