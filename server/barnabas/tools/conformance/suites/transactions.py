"""Transactions, in both versions of the protocol: what readers see, producers that are fenced, offsets in a transaction."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from barnabas.tools.conformance.batches import batch
from barnabas.tools.conformance.cases import Case, NotApplicableError
from barnabas.tools.conformance.suites.acting import (
    LATER,
    append,
    appended,
    begin,
    case,
    committed,
    offset_at,
    read,
    refused,
    rule_of,
    values_in,
)
from barnabas.tools.conformance.tables.transactions import adding
from barnabas.tools.conformance.trial import Trial
from barnabas.wire.generated.errors import ErrorCode

READ_COMMITTED = 1
V1 = {"Produce": 11, "AddPartitionsToTxn": 3, "EndTxn": 4, "TxnOffsetCommit": 4, "InitProducerId": 4}
"""The newest versions of the first protocol."""
V2 = {"Produce": 12, "EndTxn": 5, "TxnOffsetCommit": 5}
"""The first versions of the second one (KIP-890)."""


def cases() -> Iterator[Case]:
    """Return the cases of this module."""
    apis = (
        "Produce",
        "Fetch",
        "InitProducerId",
        "AddPartitionsToTxn",
        "AddOffsetsToTxn",
        "EndTxn",
        "TxnOffsetCommit",
        "FindCoordinator",
        "ListOffsets",
    )
    both = {
        "committed": _committed,
        "aborted": _aborted,
        "open": _open,
        "fenced": _fenced,
        "offsets": _offsets,
        "offsets aborted": _offsets_aborted,
        "ended twice": _ended_twice,
        "described": _described,
        "one after the other": _several,
    }
    for name, run in both.items():
        rule = rule_of(run)
        yield case(f"transactions/{name}", rule, "KIP-98", partial(_in_v1, run), *apis)
        yield case(
            f"transactions of version 2/{name}",
            rule,
            "KIP-890",
            partial(_in_v2, run),
            *apis,
            feature=("transaction.version", 2),
            Produce=V2["Produce"],
            EndTxn=V2["EndTxn"],
        )
    yield case(
        "transactions/not added",
        rule_of(_not_added),
        "KIP-890",
        partial(_in_v1, _not_added),
        *apis,
        "DescribeProducers",
        feature=("transaction.version", 1),
    )
    yield case(
        "transactions of version 2/epochs",
        rule_of(_epochs),
        "KIP-890",
        partial(_in_v2, _epochs),
        *apis,
        feature=("transaction.version", 2),
        Produce=V2["Produce"],
        EndTxn=V2["EndTxn"],
    )


async def _in_v1(run: Any, trial: Trial) -> None:
    await run(trial, is_v2=False)


async def _in_v2(run: Any, trial: Trial) -> None:
    await run(trial, is_v2=True)


@dataclass
class Producer:
    """A transactional producer, in one of the protocols."""

    trial: Trial
    id: str
    topic: tuple[str, bytes]
    is_v2: bool
    producer_id: int = -1
    epoch: int = -1
    sequences: dict[int, int] = field(default_factory=dict)
    """The next sequence number by partition."""

    def version(self, api: str) -> int:
        """The version of an API that belongs to the protocol."""
        newest = self.trial.fixture.newest(api)
        return newest if self.is_v2 else min(newest, V1.get(api, newest))

    @property
    def named(self) -> dict[str, Any]:
        """The fields that identify the producer."""
        return {"transactional_id": self.id, "producer_id": self.producer_id, "producer_epoch": self.epoch}

    async def begin(self) -> None:
        """Begin, or begin again as a new instance."""
        self.producer_id, self.epoch = await begin(
            self.trial, self.id, version=self.version("InitProducerId")
        )
        self.sequences = {}

    async def add(self, index: int = 0) -> None:
        """Add a partition to the transaction; in version 2 the first append does that."""
        if self.is_v2:
            return
        asked = adding(self.id, self.producer_id, self.epoch, self.topic[0], index)

        def is_done(answer: Any) -> bool:
            [result] = answer.results_by_topic_v3_and_below[0].results_by_partition
            return result.partition_error_code not in LATER

        answer = await self.trial.until(
            "AddPartitionsToTxn", asked, is_done, "the partition is added", self.version("AddPartitionsToTxn")
        )
        self.trial.expect(
            answer, {"results_by_topic_v3_and_below.0.results_by_partition.0.partition_error_code": 0}
        )

    def records(self, *values: bytes, index: int = 0) -> bytes:
        """A transactional batch of this producer."""
        return batch(
            *values,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequences.get(index, 0),
            transactional=True,
        )

    async def write(self, *values: bytes, index: int = 0) -> int:
        """Append records to a partition as part of the transaction; return their base offset."""
        await self.add(index)
        for _ in range(200):
            answer = await append(
                self.trial,
                self.topic,
                self.records(*values, index=index),
                index=index,
                version=self.version("Produce"),
                transactional_id=self.id,
            )
            if answer.error_code not in LATER:
                break
        self.trial.expect(answer, {"error_code": 0})
        self.sequences[index] = self.sequences.get(index, 0) + len(values)
        return int(answer.base_offset)

    async def commit_offset(self, group: str, offset: int) -> None:
        """Commit an offset of a group as part of the transaction."""
        if not self.is_v2:
            asked = self.named | {"group_id": group}
            answer = await self.trial.until(
                "AddOffsetsToTxn",
                asked,
                lambda response: response.error_code not in LATER,
                "offsets are added",
            )
            self.trial.expect(answer, {"error_code": 0})
        place = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
        name, topic_id = self.topic
        topic = {"name": name, "topic_id": topic_id, "partitions": [place]}
        asked = self.named | {"group_id": group, "topics": [topic]}

        def is_done(answer: Any) -> bool:
            return answer.topics[0].partitions[0].error_code not in LATER

        answer = await self.trial.until(
            "TxnOffsetCommit", asked, is_done, "the offset is committed", self.version("TxnOffsetCommit")
        )
        self.trial.expect(answer, {"topics.0.partitions.0.error_code": 0})

    async def end(self, *, commit: bool) -> Any:
        """End the transaction, and adopt the epoch that version 2 returns."""
        asked = self.named | {"committed": commit}
        answer = await self.trial.until(
            "EndTxn",
            asked,
            lambda response: response.error_code not in LATER,
            "EndTxn",
            self.version("EndTxn"),
        )
        self.trial.expect(answer, {"error_code": 0})
        if self.is_v2:
            self.producer_id, self.epoch, self.sequences = answer.producer_id, answer.producer_epoch, {}
        return answer


async def _producer(trial: Trial, *, is_v2: bool) -> Producer:
    if not is_v2 and trial.fixture.versions[0][0] > V1["Produce"]:
        raise NotApplicableError("Produce of the first protocol is not served")
    producer = Producer(trial, await trial.transactional_id(), await trial.new_topic(1), is_v2)
    await producer.begin()
    return producer


async def _stable(trial: Trial, producer: Producer, end: int) -> None:
    """Wait until the last stable offset reaches `end`: markers are written after EndTxn is answered."""
    asked = {
        "replica_id": -1,
        "isolation_level": READ_COMMITTED,
        "topics": [{"name": producer.topic[0], "partitions": [{"partition_index": 0, "timestamp": -1}]}],
    }

    def is_there(answer: Any) -> bool:
        return bool(answer.topics[0].partitions[0].offset == end)

    await trial.until("ListOffsets", asked, is_there, f"the last stable offset is {end}")


async def _committed(trial: Trial, *, is_v2: bool) -> None:
    """Committed records are read by all, and a marker follows them."""
    producer = await _producer(trial, is_v2=is_v2)
    await producer.write(b"a", b"b")
    await producer.end(commit=True)
    await _stable(trial, producer, 3)
    response = await read(trial, producer.topic, isolation_level=READ_COMMITTED)
    trial.check(values_in(response.records) == [b"a", b"b"], f"read {values_in(response.records)}")
    trial.expect(response, {"last_stable_offset": 3, "high_watermark": 3})


async def _aborted(trial: Trial, *, is_v2: bool) -> None:
    """An aborted transaction is named to readers of only committed records."""
    producer = await _producer(trial, is_v2=is_v2)
    await producer.write(b"a")
    producer_id = producer.producer_id
    await producer.end(commit=False)
    await _stable(trial, producer, 2)
    response = await read(trial, producer.topic, isolation_level=READ_COMMITTED)
    aborted = [
        (aborted_transaction.producer_id, aborted_transaction.first_offset)
        for aborted_transaction in response.aborted_transactions or []
    ]
    trial.check(aborted == [(producer_id, 0)], f"aborted are {aborted}, not producer {producer_id} from 0 on")


async def _open(trial: Trial, *, is_v2: bool) -> None:
    """Records of an open transaction, and those after them, are not read by readers of only committed records."""
    producer = await _producer(trial, is_v2=is_v2)
    await appended(trial, producer.topic, batch(b"before"))
    await producer.write(b"a")
    await appended(trial, producer.topic, batch(b"after"))
    response = await read(trial, producer.topic, isolation_level=READ_COMMITTED)
    trial.check(values_in(response.records) == [b"before"], f"read {values_in(response.records)}")
    trial.expect(response, {"last_stable_offset": 1, "high_watermark": 3})
    trial.check(
        await offset_at(trial, producer.topic, -1, isolation=READ_COMMITTED) == 1,
        "ListOffsets does not end at 1",
    )
    response = await read(trial, producer.topic)
    trial.check(
        values_in(response.records) == [b"before", b"a", b"after"],
        f"read {values_in(response.records)} without isolation",
    )
    await producer.end(commit=True)
    await _stable(trial, producer, 4)


async def _fenced(trial: Trial, *, is_v2: bool) -> None:
    """A second instance fences the first, and its open transaction is aborted."""
    producer = await _producer(trial, is_v2=is_v2)
    await producer.write(b"a")
    second = Producer(trial, producer.id, producer.topic, is_v2)
    await second.begin()
    trial.check(
        second.producer_id != producer.producer_id or second.epoch > producer.epoch,
        "the second has no newer epoch",
    )
    await refused(
        trial,
        producer.topic,
        producer.records(b"b"),
        "INVALID_PRODUCER_EPOCH",
        "PRODUCER_FENCED",
        version=producer.version("Produce"),
        transactional_id=producer.id,
    )
    asked = producer.named | {"committed": True}
    answer = await trial.ask("EndTxn", asked, producer.version("EndTxn"))
    fenced = {"PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"}
    trial.expect(answer, {"error_code": fenced})
    await second.write(b"c")
    await second.end(commit=True)
    await _stable(trial, producer, 4)


async def _offsets(trial: Trial, *, is_v2: bool) -> None:
    """Offsets of a transaction are committed with it, and not before."""
    producer = await _producer(trial, is_v2=is_v2)
    group = await trial.group()
    await producer.commit_offset(group, 7)
    offsets = await committed(trial, group, producer.topic)
    trial.check(offsets == [-1], f"committed is {offsets} before the end")
    await producer.end(commit=True)

    await has_committed(trial, group, producer.topic, 7)


async def has_committed(trial: Trial, group: str, topic: tuple[str, bytes], expected: int) -> None:
    """Wait until a group has committed an offset of partition 0, and no transaction may still change it."""
    version = trial.fixture.newest("OffsetFetch")
    named = {"partition_indexes": [0]} | ({"topic_id": topic[1]} if version >= 10 else {"name": topic[0]})
    asked = {
        "group_id": group,
        "topics": [{"name": topic[0], "partition_indexes": [0]}],
        "require_stable": True,
        "groups": [{"group_id": group, "topics": [named]}],
    }

    def is_there(answer: Any) -> bool:
        topics = answer.groups[0].topics if version >= 8 else answer.topics
        return bool(
            topics[0].partitions[0].committed_offset == expected and not topics[0].partitions[0].error_code
        )

    await trial.until("OffsetFetch", asked, is_there, f"{expected} is committed")


async def _offsets_aborted(trial: Trial, *, is_v2: bool) -> None:
    """Offsets of a transaction that is aborted are not committed."""
    producer = await _producer(trial, is_v2=is_v2)
    group = await trial.group()
    await producer.commit_offset(group, 7)
    await producer.end(commit=False)
    await has_committed(trial, group, producer.topic, -1)


async def _ended_twice(trial: Trial, *, is_v2: bool) -> None:
    """A transaction that has ended may be ended again in the same way, and not in the other."""
    producer = await _producer(trial, is_v2=is_v2)
    await producer.write(b"a")
    named = producer.named
    await producer.end(commit=True)
    await _stable(trial, producer, 2)
    version = producer.version("EndTxn")
    for commit, expected in ((True, 0), (False, "INVALID_TXN_STATE")):
        asked = named | {"committed": commit}
        answer = await trial.until(
            "EndTxn", asked, lambda response: response.error_code not in LATER, "EndTxn", version
        )
        trial.expect(answer, {"error_code": expected})


async def _described(trial: Trial, *, is_v2: bool) -> None:
    """A transaction is described while it is open, and when it has ended."""
    if not trial.fixture.serves("DescribeTransactions"):
        raise NotApplicableError("DescribeTransactions is not advertised")
    producer = await _producer(trial, is_v2=is_v2)
    await producer.write(b"a")
    asked = {"transactional_ids": [producer.id]}
    answer = await trial.ask("DescribeTransactions", asked)
    trial.expect(
        answer,
        {
            "transaction_states.0.error_code": 0,
            "transaction_states.0.transaction_state": "Ongoing",
            "transaction_states.0.producer_id": producer.producer_id,
            "transaction_states.0.topics.0.topic": producer.topic[0],
            "transaction_states.0.topics.0.partitions": [0],
            "transaction_states.0.transaction_timeout_ms": 60_000,
        },
    )
    listed = await trial.ask("ListTransactions", {"state_filters": ["Ongoing"], "duration_filter": -1})
    trial.check(
        producer.id
        in [transaction_state.transactional_id for transaction_state in listed.transaction_states],
        "it is not listed",
    )
    await producer.end(commit=True)

    def is_done(answer: Any) -> bool:
        return bool(answer.transaction_states[0].transaction_state == "CompleteCommit")

    await trial.until("DescribeTransactions", asked, is_done, "the transaction is complete")
    listed = await trial.ask("ListTransactions", {"duration_filter": 0})
    trial.check(
        producer.id
        in [transaction_state.transactional_id for transaction_state in listed.transaction_states],
        "how long ago it began counts in its last state, too",
    )


async def _several(trial: Trial, *, is_v2: bool) -> None:
    """Transactions follow each other, and each is committed or aborted by itself."""
    producer = await _producer(trial, is_v2=is_v2)
    for number, commit in enumerate((True, False, True)):
        await producer.write(b"%d" % number)
        await producer.end(commit=commit)
    await _stable(trial, producer, 6)
    response = await read(trial, producer.topic, isolation_level=READ_COMMITTED)
    aborted = [
        aborted_transaction.first_offset for aborted_transaction in response.aborted_transactions or []
    ]
    trial.check(aborted == [2], f"aborted from {aborted} on, not from 2 on")


async def _not_added(trial: Trial, *, is_v2: bool) -> None:
    """A partition that is not in the transaction takes no batch: TRANSACTION_ABORTABLE, INVALID_TXN_STATE before v11."""
    producer = await _producer(trial, is_v2=is_v2)
    for _ in range(200):
        answer = await append(
            trial,
            producer.topic,
            producer.records(b"a"),
            version=producer.version("Produce"),
            transactional_id=producer.id,
        )
        if answer.error_code not in (*LATER, ErrorCode.NOT_ENOUGH_REPLICAS):
            break
    trial.expect(
        answer,
        {"error_code": "TRANSACTION_ABORTABLE" if producer.version("Produce") >= 11 else "INVALID_TXN_STATE"},
    )


async def _epochs(trial: Trial, *, is_v2: bool) -> None:
    """Each end of a transaction gives the producer its next epoch."""
    producer = await _producer(trial, is_v2=is_v2)
    before = producer.producer_id, producer.epoch
    await producer.write(b"a")
    answer = await producer.end(commit=True)
    after = answer.producer_id, answer.producer_epoch
    trial.check(after == (before[0], before[1] + 1), f"after {before} comes {after}")
