"""First sequence numbers of transactional producers: of producers unknown to a partition, and after a refused batch."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import permutations

from compat.groups.transaction_states import (
    CONCURRENT_TRANSACTIONS,
    NOT_THERE_YET,
    TransactionFixture,
    adding,
    empty,
    producer,
    settle,
)
from compat.kit.records import record_batch
from compat.kit.scenarios import Scenario, ScenarioRun
from compat.kit.wire import Values

ADDS_ITSELF = 12
"""The first version of Produce for transactions of version 2, to which writing adds partitions."""
BEFORE = 11
FIRST = ((0,), (5,), (0, 5), (5, 0), *permutations((0, 1, 5)))
"""Sequences that a producer unknown to the partition sends in turn."""
NEXT = ((2,), (3,), (4,), (2, 3), (4, 3), (4, 2, 3), (3, 4))
"""The same if it has written 0 to 2 in the previous transaction, or in this one."""
REFUSED: tuple[tuple[int, ...], ...] = ((), (0,), (3,), (3, 0))
"""Sequences that are sent before the partition is added, and are refused."""


def _send(
    run: ScenarioRun, fixture: TransactionFixture, version: int, sequence: int, count: int = 1
) -> Values:
    who = (fixture.producer_id, fixture.epoch, sequence)
    now_ms = time.time_ns() // 1_000_000
    records = record_batch([b"v"] * count, now_ms, producer=who, transactional=True)
    data = [{"Name": fixture.id, "PartitionData": [{"Index": 0, "Records": records}]}]
    return run.until(
        f"sequence {sequence}", "Produce",
        lambda answer: answer["Responses"][0]["PartitionResponses"][0]["ErrorCode"]
        not in (*NOT_THERE_YET, CONCURRENT_TRANSACTIONS),
        version=version, TransactionalId=fixture.id, Acks=-1, TimeoutMs=9_000, TopicData=data,
    )  # fmt: skip


def _add(run: ScenarioRun, fixture: TransactionFixture) -> None:
    run.ask("add", "AddPartitionsToTxn", version=3, **adding(fixture, (fixture.id, [0])))


def send(
    version: int, before: str, refused: Sequence[int], sequences: Sequence[int], run: ScenarioRun
) -> None:
    """Send batches with these first sequences, after others that were refused, or after a transaction.

    `before`: `nothing`, or three records in a transaction that is `ended` or is still `open`.
    """
    run.topic(run.group, 1)
    fixture = empty(run)
    adds = version < ADDS_ITSELF
    if before != "nothing":
        if adds:
            _add(run, fixture)
        _send(run, fixture, version, 0, 3)
    if before == "ended":
        run.ask("end", "EndTxn", version=3, **producer(fixture), Committed=True)
        settle(run, fixture, "ended")
    for sequence in refused:
        _send(run, fixture, version, sequence)
    if adds:
        _add(run, fixture)
    for sequence in sequences:
        _send(run, fixture, version, sequence)
    run.ask("end at last", "EndTxn", version=3, **producer(fixture), Committed=False)
    settle(run, fixture, "ended at last")
    run.look("DeleteTopics", 5, TopicNames=[run.group], TimeoutMs=9_000)


def scenarios() -> Iterator[Scenario]:
    """Each version of transactions with each row of sequences."""
    for version in (BEFORE, ADDS_ITSELF):
        of = "of version 1" if version < ADDS_ITSELF else "of version 2"
        rows = [("nothing", refused, row) for refused in REFUSED for row in FIRST]
        rows += [(before, (), row) for before in ("ended", "open") for row in NEXT]
        for before, refused, row in rows:
            if (
                version < ADDS_ITSELF or not refused
            ):  # in version 2 no batch is refused for a missing AddPartitionsToTxn
                after = f"after {before}" + (f" and refused {refused}" if refused else "")
                yield Scenario(
                    f"transaction {of}: sequences {row} {after}", partial(send, version, before, refused, row)
                )
