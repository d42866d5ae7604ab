"""Transactional ids in every state that a transaction may be in, and the requests that bring them there."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from compat.kit.records import record_batch
from compat.kit.scenarios import ScenarioError, ScenarioRun
from compat.kit.wire import Values

TOPICS = 64
"""So many share the work, lest lists of producers grow long."""
TIMEOUT_MS = 600_000
CONCURRENT_TRANSACTIONS = 51
NOT_THERE_YET = (3, 6, 100)
"""UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_ID, of a topic that has just been made."""


def topic_of(transactional_id: str) -> str:
    """The topic of an id's transactions."""
    return f"transacted-{crc32(transactional_id.encode()) % TOPICS}"


@dataclass
class TransactionFixture:
    """A transactional id and its users."""

    id: str
    producer_id: int = 5
    epoch: int = 0
    sequence: int = 0

    @property
    def topic(self) -> str:
        """The topic that is written to."""
        return topic_of(self.id)

    @property
    def group(self) -> str:
        """The group with offsets in the transaction."""
        return f"group-{self.id}"


def initializing(fixture: TransactionFixture, **changes: Any) -> Values:
    """An InitProducerId of a new instance."""
    return {"TransactionalId": fixture.id, "TransactionTimeoutMs": TIMEOUT_MS} | changes


def producer(fixture: TransactionFixture, **changes: Any) -> Values:
    """The fields that identify the producer."""
    return {
        "TransactionalId": fixture.id,
        "ProducerId": fixture.producer_id,
        "ProducerEpoch": fixture.epoch,
    } | changes


def adding(
    fixture: TransactionFixture, *topics: tuple[str, list[int]], verify: bool = False, **changes: Any
) -> Values:
    """Return an AddPartitionsToTxn, with the fields of old and new versions."""
    who = producer(fixture, **changes)
    places = [{"Name": name, "Partitions": partitions} for name, partitions in topics]
    return {
        "Transactions": [who | {"VerifyOnly": verify, "Topics": places}],
        **{f"V3AndBelow{name}": value for name, value in who.items()},
        "V3AndBelowTopics": places,
    }


def committing(fixture: TransactionFixture, *topics: str, **changes: Any) -> Values:
    """A TxnOffsetCommit."""
    entries = [
        {
            "Name": name,
            "Partitions": [{"PartitionIndex": 0, "CommittedOffset": 3, "CommittedMetadata": "in it"}],
        }
        for name in topics or (fixture.topic,)
    ]
    return producer(fixture) | {"GroupId": fixture.group, "Topics": entries} | changes


def producing(run: ScenarioRun, fixture: TransactionFixture, topic_id: bytes, **changes: Any) -> Values:
    """Return a Produce of one transactional record to partition 0."""
    who = (fixture.producer_id, fixture.epoch, fixture.sequence)
    now_ms = time.time_ns() // 1_000_000
    records = record_batch([b"v"], now_ms, producer=changes.pop("who", who), transactional=True)
    data = {"PartitionData": [{"Index": 0, "Records": records}]}
    return {"TransactionalId": fixture.id, "Acks": -1, "TimeoutMs": 9_000} | {
        "TopicData": [data | ({"TopicId": topic_id} if run.version("Produce") >= 13 else {"Name": fixture.topic})]
    } | changes  # fmt: skip


def absent(run: ScenarioRun) -> TransactionFixture:
    """This id has not been used."""
    return TransactionFixture(run.group)


def empty(run: ScenarioRun, **changes: Any) -> TransactionFixture:
    """An initialized producer without a transaction."""
    fixture = TransactionFixture(run.group)
    answer = run.ask("set-up: begin", "InitProducerId", **initializing(fixture, **changes))
    if answer["ErrorCode"]:
        raise ScenarioError(f"InitProducerId is answered {answer['ErrorCode']}")
    fixture.producer_id, fixture.epoch = answer["ProducerId"], answer["ProducerEpoch"]
    return fixture


def ongoing(run: ScenarioRun) -> TransactionFixture:
    """A transaction with a partition without records."""
    fixture = empty(run)
    run.ask(
        "set-up: add",
        "AddPartitionsToTxn",
        version=min(3, run.version("AddPartitionsToTxn")),
        **adding(fixture, (fixture.topic, [0, 1])),
    )
    return fixture


def _write(run: ScenarioRun, fixture: TransactionFixture) -> None:
    """Write the first record of a transaction, once the topic exists."""
    topic_id = run.topic(topic_of(run.group))
    run.until(
        "set-up: write", "Produce",
        lambda answer: answer["Responses"][0]["PartitionResponses"][0]["ErrorCode"] not in NOT_THERE_YET,
        **producing(run, fixture, topic_id),
    )  # fmt: skip
    fixture.sequence = 1


def ongoing_written(run: ScenarioRun) -> TransactionFixture:
    """A transaction with a record, and offsets of a group."""
    fixture = ongoing(run)
    _write(run, fixture)
    run.ask("set-up: add offsets", "AddOffsetsToTxn", **producer(fixture), GroupId=fixture.group)
    run.ask("set-up: commit offsets", "TxnOffsetCommit", **committing(fixture))
    return fixture


def ongoing_at_once(run: ScenarioRun) -> TransactionFixture:
    """An open transaction of version 2 of the protocol, to which writing adds partitions."""
    fixture = empty(run)
    _write(run, fixture)
    run.ask("set-up: commit offsets", "TxnOffsetCommit", **committing(fixture))
    return fixture


def _ended(run: ScenarioRun, fixture: TransactionFixture, *, commit: bool) -> TransactionFixture:
    answer = run.ask("set-up: end", "EndTxn", **producer(fixture), Committed=commit)
    if answer.get("ProducerId", -1) >= 0:
        fixture.producer_id, fixture.epoch, fixture.sequence = (
            answer["ProducerId"],
            answer["ProducerEpoch"],
            0,
        )
    settle(run, fixture, "set-up: ended")
    return fixture


def committed(run: ScenarioRun) -> TransactionFixture:
    """The last transaction has been committed."""
    return _ended(run, ongoing_written(run), commit=True)


def aborted(run: ScenarioRun) -> TransactionFixture:
    """The last transaction has been aborted."""
    return _ended(run, ongoing_written(run), commit=False)


def fenced(run: ScenarioRun) -> TransactionFixture:
    """A second instance has begun; the request is of the first."""
    fixture = empty(run)
    run.ask("set-up: second", "InitProducerId", **initializing(fixture))
    return fixture


def fenced_ongoing(run: ScenarioRun) -> TransactionFixture:
    """A second instance has begun while a transaction of the first was open."""
    fixture = ongoing_written(run)
    run.until(
        "set-up: second", "InitProducerId",
        lambda answer: answer["ErrorCode"] != CONCURRENT_TRANSACTIONS, **initializing(fixture),
    )  # fmt: skip
    return fixture


def timed_out(run: ScenarioRun) -> TransactionFixture:
    """The coordinator has aborted a transaction that was open for too long."""
    # Long enough for all requests of the next transaction on a busy machine.
    fixture = empty(run, TransactionTimeoutMs=1000)
    add = min(3, run.version("AddPartitionsToTxn"))
    run.ask("set-up: add", "AddPartitionsToTxn", version=add, **adding(fixture, (fixture.topic, [0, 1])))
    run.until(
        "set-up: timed out", "DescribeTransactions",
        lambda answer: answer["TransactionStates"][0]["TransactionState"] == "CompleteAbort",
        TransactionalIds=[fixture.id],
    )  # fmt: skip
    return fixture


STATES: dict[str, Callable[[ScenarioRun], TransactionFixture]] = {
    state.__name__.replace("_", " "): state
    for state in (
        absent,
        empty,
        ongoing,
        ongoing_written,
        ongoing_at_once,
        committed,
        aborted,
        fenced,
        fenced_ongoing,
        timed_out,
    )
}


def settle(run: ScenarioRun, fixture: TransactionFixture, label: str) -> None:
    """Wait until an ending transaction has ended, and note its description."""
    run.until(
        label, "DescribeTransactions",
        lambda answer: not answer["TransactionStates"][0]["TransactionState"].startswith("Prepare"),
        TransactionalIds=[fixture.id],
    )  # fmt: skip
