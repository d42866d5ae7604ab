"""`barnabas transactions`: list, describe, producers, abort, find-hanging."""

from __future__ import annotations

import time
from typing import Any

import click

from barnabas.client import ClientError
from barnabas.client import admin as administration
from barnabas.commands.errors import CommandError, name_of
from barnabas.commands.output import Table
from barnabas.commands.parsing import duration_ms, topic_partition
from barnabas.commands.session import Session, asking, confirm, destructive

SETTLED_STATES = ("Empty", "CompleteCommit", "CompleteAbort", "Dead")
GRACE_MS = 5 * 60_000
"""As Kafka's tool: a transaction hangs that is older than transaction.max.timeout.ms and this."""

TRANSACTIONS = Table(
    "transactions",
    {
        "transactional_id": "transactional id",
        "coordinator": "broker that coordinates it",
        "producer_id": "producer id",
        "state": "state, as Kafka names it",
        "error": "why a broker does not tell its transactions",
    },
)
DESCRIBED = Table(
    "transactions",
    {
        "transactional_id": "transactional id",
        "coordinator": "broker that coordinates it",
        "producer_id": "producer id",
        "producer_epoch": "producer epoch",
        "state": "state, as Kafka names it",
        "timeout_ms": "transaction timeout in ms",
        "started_at_ms": "when the transaction has begun, in ms since 1970; null for none",
        "partitions": "partitions of the transaction, as TOPIC:PARTITION",
        "error": "error; null for success",
    },
)
PRODUCERS = Table(
    "producers",
    {
        "topic": "topic",
        "partition": "number of the partition",
        "producer_id": "producer id",
        "producer_epoch": "producer epoch",
        "coordinator_epoch": "epoch of the coordinator that wrote its last marker; -1 for none",
        "last_sequence": "last sequence number",
        "last_at_ms": "time of its last batch, in ms since 1970",
        "transaction_offset": "first offset of its open transaction; null for none",
        "error": "error; null for success",
    },
)
ABORTED = Table(
    "transactions",
    {
        "topic": "topic",
        "partition": "partition",
        "producer_id": "producer id",
        "outcome": "result of the change",
    },
)
HANGING = Table(
    "hanging",
    {
        "topic": "topic",
        "partition": "number of the partition",
        "producer_id": "producer id",
        "producer_epoch": "producer epoch",
        "transaction_offset": "first offset of the transaction: consumers of committed records stop there",
        "last_at_ms": "time of its last batch, in ms since 1970",
        "transactional_id": "transactional id; null if no coordinator knows the producer",
        "error": "why a partition's producers are not told",
    },
)


@click.group("transactions")
def COMMAND() -> None:  # noqa: N802
    """Transactions: open and hanging ones."""


@COMMAND.command("list")
@click.option(
    "--state", "states", multiple=True, metavar="STATE", help="Only in this state; may be repeated."
)
@click.option(
    "--producer-id",
    "producer_ids",
    multiple=True,
    type=int,
    metavar="N",
    help="Only of this producer; may be repeated.",
)
@click.option(
    "--running-for",
    type=duration_ms,
    metavar="DURATION",
    help="Only with a transaction that is older, as 5m.",
)
@click.option("--pattern", metavar="RE2", help="Only ids that this regular expression matches.")
@asking(TRANSACTIONS)
async def list_transactions(
    session: Session,
    states: tuple[str, ...],
    producer_ids: tuple[int, ...],
    running_for: int | None,
    pattern: str | None,
) -> None:
    """List transactional ids."""
    transactions, failures = await session.admin.list_transactions(
        states=states,
        producer_ids=producer_ids,
        running_for_ms=-1 if running_for is None else running_for,
        pattern=pattern,
    )
    rows: list[dict[str, Any]] = [
        {
            "transactional_id": transaction.transactional_id,
            "coordinator": transaction.coordinator,
            "producer_id": transaction.producer_id,
            "state": transaction.state,
        }
        for transaction in transactions
    ]
    rows += [{"coordinator": broker, "error": name_of(error)} for broker, error in failures.items()]
    session.output.show(TRANSACTIONS, rows)


@COMMAND.command("describe")
@click.argument("ids", nargs=-1, required=True)
@asking(DESCRIBED)
async def describe(session: Session, ids: tuple[str, ...]) -> None:
    """Show transactions of transactional ids with their partitions."""
    infos = await session.admin.describe_transactions(ids)
    session.output.show(
        DESCRIBED,
        [
            {"transactional_id": name, "error": name_of(info)}
            if isinstance(info, ClientError)
            else {
                "transactional_id": name,
                "coordinator": info.coordinator,
                "producer_id": info.producer_id,
                "producer_epoch": info.producer_epoch,
                "state": info.state,
                "timeout_ms": info.timeout_ms,
                "started_at_ms": info.started_at_ms if info.started_at_ms >= 0 else None,
                "partitions": [f"{topic}:{number}" for topic, number in info.partitions],
            }
            for name, info in infos.items()
        ],
    )


async def _partitions(
    session: Session, selected: tuple[tuple[str, int | None], ...]
) -> list[tuple[str, int]]:
    """Return the partitions that are meant, all without a list. Raises ClientError, CommandError."""
    topics = await session.admin.topics({topic for topic, _ in selected} if selected else None)
    for topic in topics.values():
        if isinstance(topic, ClientError):
            raise topic
    every = administration.partitions_of(topics)
    if not selected:
        return every
    missing = [
        f"{topic}:{number}"
        for topic, number in selected
        if number is not None and (topic, number) not in every
    ]
    if missing:
        raise CommandError(f"there is no partition {', '.join(missing)}")
    return [partition for partition in every if partition in selected or (partition[0], None) in selected]


@COMMAND.command("producers")
@click.argument("partitions", nargs=-1, required=True, type=topic_partition, metavar="TOPIC[:PARTITION]...")
@asking(PRODUCERS)
async def producers(session: Session, partitions: tuple[tuple[str, int | None], ...]) -> None:
    """Show the producers that partitions know, and their open transactions."""
    by_partition = await session.admin.producers(await _partitions(session, partitions))
    rows: list[dict[str, Any]] = []
    for (topic, number), states in by_partition.items():
        if isinstance(states, ClientError):
            rows.append({"topic": topic, "partition": number, "error": name_of(states)})
            continue
        rows += [_producer(topic, number, state) for state in states]
    session.output.show(PRODUCERS, rows)


def _producer(topic: str, number: int, state: administration.ProducerState) -> dict[str, Any]:
    return {
        "topic": topic,
        "partition": number,
        "producer_id": state.producer_id,
        "producer_epoch": state.producer_epoch,
        "coordinator_epoch": state.coordinator_epoch,
        "last_sequence": state.last_sequence,
        "last_at_ms": state.last_at_ms,
        "transaction_offset": state.transaction_offset if state.transaction_offset >= 0 else None,
    }


@COMMAND.command("abort")
@click.argument("partition", type=topic_partition, metavar="TOPIC:PARTITION")
@click.option("--producer-id", type=int, metavar="N", help="Of this producer.")
@click.option("--start-offset", type=int, metavar="N", help="Or the transaction that begins at this offset.")
@destructive
@asking(ABORTED)
async def abort(
    session: Session,
    partition: tuple[str, int | None],
    producer_id: int | None,
    start_offset: int | None,
    yes: bool,
) -> None:
    """Write an abort marker for a transaction that hangs in a partition (`find-hanging`)."""
    topic, number = partition
    if number is None or (producer_id is None) == (start_offset is None):
        raise click.UsageError("give TOPIC:PARTITION, and --producer-id or --start-offset")
    producers = (await session.admin.producers([(topic, number)]))[topic, number]
    if isinstance(producers, ClientError):
        raise producers
    states = [
        state
        for state in producers
        if state.transaction_offset >= 0
        and (state.producer_id == producer_id or state.transaction_offset == start_offset)
    ]
    if not states:
        raise CommandError(
            f"no such transaction is open in {topic}:{number}; `barnabas transactions producers` shows those that are"
        )
    [state] = states
    confirm(
        f"abort the transaction of producer {state.producer_id} in {topic}:{number}, from offset "
        f"{state.transaction_offset} on",
        yes=yes,
    )
    await session.admin.abort_transaction((topic, number), state)
    session.output.show(
        ABORTED,
        [{"topic": topic, "partition": number, "producer_id": state.producer_id, "outcome": "aborted"}],
    )


@COMMAND.command("find-hanging")
@click.argument("partitions", nargs=-1, type=topic_partition, metavar="[TOPIC[:PARTITION]]...")
@click.option(
    "--max-timeout", type=duration_ms, metavar="DURATION", default="15m", show_default=True,
    help="transaction.max.timeout.ms of the brokers.",
)  # fmt: skip
@asking(HANGING)
async def find_hanging(
    session: Session, partitions: tuple[tuple[str, int | None], ...], max_timeout: int
) -> None:
    """Find transactions that are open in a partition and that no coordinator will end; exit code 1 if there are."""
    places = await _partitions(session, partitions)
    producers = await session.admin.producers(places)
    before_ms = int(time.time() * 1000) - max_timeout - GRACE_MS
    rows: list[dict[str, Any]] = []
    old: list[tuple[tuple[str, int], administration.ProducerState]] = []
    for place, states in producers.items():
        if isinstance(states, ClientError):
            rows.append({"topic": place[0], "partition": place[1], "error": name_of(states)})
            continue
        old += [
            (place, state)
            for state in states
            if state.transaction_offset >= 0 and state.last_at_ms < before_ms
        ]
    ids: dict[int, str] = {}
    infos: dict[str, administration.TransactionInfo | ClientError] = {}
    if old:
        listed, failures = await session.admin.list_transactions(
            producer_ids=sorted({state.producer_id for _, state in old})
        )
        if failures:
            raise next(iter(failures.values()))
        ids = {transaction.producer_id: transaction.transactional_id for transaction in listed}
        infos = await session.admin.describe_transactions(ids.values())
    is_found = False
    for place, state in old:
        name = ids.get(state.producer_id)
        if name is not None and not _hangs(infos[name], place, state):
            continue
        is_found = True
        row = _producer(*place, state)
        rows.append({key: row[key] for key in HANGING.columns if key in row} | {"transactional_id": name})
    session.output.show(HANGING, rows)
    session.output.has_failed = session.output.has_failed or is_found


def _hangs(
    info: administration.TransactionInfo | ClientError,
    partition: tuple[str, int],
    state: administration.ProducerState,
) -> bool:
    """Return whether the coordinator will not end it: its transaction has another epoch, or not this partition."""
    if isinstance(info, ClientError):
        raise info
    return (
        info.producer_epoch != state.producer_epoch
        or info.state in SETTLED_STATES
        or partition not in info.partitions
    )
