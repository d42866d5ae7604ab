"""Random histories of a log, on Apache Kafka and on Barnabas: python -m compat.log.histories.

Producers, some in transactions and some with a wrong sequence, write records with times that go back and forth;
transactions are committed and aborted, records deleted; then offsets are looked up by time and the log is read from each
offset, in both isolation levels. The kinds: `plain`, `segments` (small ones), `append` (times of the broker), `compact`
(cleaned). The seeds are those of the day, or `--seed N`. The exit code is 1 when an answer differs in a way that is not
known.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from barnabas.records.batch import check_crc, iter_batches
from barnabas.records.building import encode_batch
from barnabas.records.record import Record
from compat.kit.histories import HistoryRun, await_coordinator, create_topic, main, settled
from compat.kit.known import KnownDifference
from compat.kit.wire import Connection, Values

SETTINGS = {"log.cleaner.backoff.ms": "500"}
DAY_MS, HOUR_MS = 86_400_000, 3_600_000
BEGINNING_MS: Final = time.time_ns() // 1_000_000 // DAY_MS * DAY_MS - 2 * DAY_MS
"""The time that those of records are counted from: some two days ago, the same for both brokers."""
OF_TOPICS: dict[str, dict[str, list[str]]] = {
    "plain": {},
    "segments": {"segment.bytes": ["1048576"], "segment.ms": ["1000", "3600000"], "index.interval.bytes": ["1", "4096"]},
    "append": {"message.timestamp.type": ["LogAppendTime"]},
    "compact": {
        "cleanup.policy": ["compact"], "min.cleanable.dirty.ratio": ["0.01"], "segment.ms": ["3600000"],
        "delete.retention.ms": ["0", "86400000"], "min.compaction.lag.ms": ["0"],
    },
}  # fmt: skip
"""Settings of topics by kind of history, with the values that are drawn from."""
KNOWN = (
    KnownDifference(
        "(segments|compact), seed .*: look up, isolation .*",
        ("/1/2", "/1/3"),
        "Kafka looks for a time only in the first segment that says that it has late enough records: it finds nothing "
        "where the log begins after them, until that segment is deleted, or where they have been cleaned away",
        accepts=lambda difference: difference.whole[0][1][1:3] == [0, -1] and difference.whole[1][1][2] >= 0,
    ),
)
PRODUCERS = 3
GZIP = 1
CLEANED_S = 6.0
"""Time in which a log is cleaned that has just been rolled."""
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
LOOKED_UP_MS = (
    *(-10_000, -5_000, -3_000, -1_000, 0, 1, 2, 1_000, 1_001, 2_000, 2_002, 5_000, 5_003, 5_004),
    *(HOUR_MS, HOUR_MS + 1, 2 * HOUR_MS, 3 * HOUR_MS, 5 * HOUR_MS, 5 * HOUR_MS + 3, 5 * HOUR_MS + 4),
)
"""Times around those of records, after `BEGINNING_MS`."""
CONTROL, APPEND_TIME, HORIZON = 0x20, 0x08, 0x40
"""Attributes of batches with times of the broker's, or of the removal of a tombstone."""


@dataclass
class Producing:
    """A transactional producer of a history."""

    id: str
    producer_id: int
    epoch: int
    sequence: int = 0
    is_open: bool = False

    def by(self) -> Values:
        """Return the fields that identify the producer."""
        return {"TransactionalId": self.id, "ProducerId": self.producer_id, "ProducerEpoch": self.epoch}


class LogHistory:
    """One history on one broker: a topic of one partition, and its producers by number."""

    def __init__(self, kind: str, run: HistoryRun) -> None:
        self.kind = kind
        self.run = run
        self.topic = run.name
        self.connection: Connection = run.connect()
        self.producers: dict[int, Producing] = {}

    def act(self) -> None:
        """Go through all steps, then look at the log."""
        random = self.run.random("topic")
        settings = {"retention.ms": "-1", "message.timestamp.before.max.ms": str(10**15)}
        settings |= {name: random.choice(values) for name, values in OF_TOPICS[self.kind].items()}
        self.run.note("create", create_topic(self.connection, self.topic, settings), settings)
        for _, random in self.run.steps(8, 30):
            drawn = random.random()
            if drawn < 0.45:
                self.produce(random)
            elif drawn < 0.75:
                self.produce_in_transaction(random)
            elif drawn < 0.9:
                self.end_transaction(random)
            elif self.kind != "compact":
                self.delete_records(random)
        if self.kind == "compact":
            for number in range(2):  # two later records close the segments before them
                later = Record(0, BEGINNING_MS + (50 + 20 * number) * HOUR_MS, b"later %d" % number, b"x")
                self.run.note("later record", *self._sent(encode_batch([later])))
            time.sleep(CLEANED_S)
        self.look()
        for producer in self.producers.values():  # lest a transaction stays open for whoever comes later
            if producer.is_open:
                self._end(producer, is_commit=False)

    # --- writing --------------------------------------------------------------------------------------------

    def _records(self, random: Random) -> list[Record]:
        steps = [0, 1_000, 1_000, 2_000, 5_000, HOUR_MS * random.randint(0, 5), -1_000 * random.randint(0, 9)]
        records = []
        for number in range(random.randint(1, 6)):
            at_ms = BEGINNING_MS + random.choice(steps) + random.randint(0, 3)
            value = random.choice([None, b"v" * random.randint(0, 40), b"w" * 300])
            records.append(Record(number, at_ms, b"k%d" % random.randint(0, 6), value))
        if random.random() < 0.03:  # without any time
            records = [Record(record.offset, -1, record.key, record.value) for record in records]
        return records

    def _sent(self, records: bytes, transactional_id: str | None = None) -> tuple[int, int, int]:
        """Produce a batch; return its error code, the offset of its first record, and where the log begins."""
        data = [{"Name": self.topic, "PartitionData": [{"Index": 0, "Records": records}]}]
        request = {"TransactionalId": transactional_id, "Acks": -1, "TimeoutMs": 9_000, "TopicData": data}

        def ask() -> Values:
            answer: Values = self.connection.ask("Produce", 9, request)["Responses"][0]["PartitionResponses"][
                0
            ]
            return answer

        answer = settled(ask, lambda values: int(values["ErrorCode"]))
        if self.kind == "append":
            time.sleep(0.003)  # so that no two batches have the same time
        return answer["ErrorCode"], answer["BaseOffset"], answer["LogStartOffset"]

    def produce(self, random: Random) -> None:
        """A producer without a name writes a batch."""
        records, codec = self._records(random), random.choice([0, 0, GZIP])
        self.run.note("produce", len(records), *self._sent(encode_batch(records, codec=codec)))

    def produce_in_transaction(self, random: Random) -> None:
        """A transactional producer writes a batch, now and then with a wrong sequence."""
        number = random.randrange(PRODUCERS)
        records, codec = self._records(random), random.choice([0, 0, GZIP])
        step = random.choice([-1, 1, 5]) if random.random() < 0.1 else 0
        producer = self._producer(number)
        if not producer.is_open:
            self.run.note("add to transaction", number, self._added(producer))
            producer.is_open = True
        sequence = max(producer.sequence + step, 0)
        batch = encode_batch(
            records, codec=codec, producer_id=producer.producer_id, producer_epoch=producer.epoch,
            base_sequence=sequence, transactional=True,
        )  # fmt: skip
        sent = self._sent(batch, producer.id)
        self.run.note("produce in transaction", number, len(records), sequence - producer.sequence, *sent)
        if sent[0] == 0 and sequence == producer.sequence:
            producer.sequence += len(records)

    def _producer(self, number: int) -> Producing:
        if number not in self.producers:
            name = f"{self.topic}-{number}"
            await_coordinator(self.connection, name, 1)
            asked = {"TransactionalId": name, "TransactionTimeoutMs": 60_000}
            answer = settled(
                lambda: self.connection.ask("InitProducerId", 4, asked),
                lambda values: int(values["ErrorCode"]),
            )
            self.producers[number] = Producing(name, answer["ProducerId"], answer["ProducerEpoch"])
        return self.producers[number]

    def _added(self, producer: Producing) -> int:
        topics = [{"Name": self.topic, "Partitions": [0]}]
        asked = {f"V3AndBelow{name}": value for name, value in producer.by().items()}

        def ask() -> int:
            answer = self.connection.ask("AddPartitionsToTxn", 3, asked | {"V3AndBelowTopics": topics})
            code: int = answer["ResultsByTopicV3AndBelow"][0]["ResultsByPartition"][0]["PartitionErrorCode"]
            return code

        code: int = settled(ask, int)
        return code

    def end_transaction(self, random: Random) -> None:
        """A producer with an open transaction ends it, if there is one."""
        is_commit, drawn = random.random() < 0.5, random.random()
        numbers = sorted(number for number, producer in self.producers.items() if producer.is_open)
        if numbers:
            number = numbers[int(drawn * len(numbers))]
            code = self._end(self.producers[number], is_commit=is_commit)
            self.run.note("end transaction", number, is_commit, code)

    def _end(self, producer: Producing, *, is_commit: bool) -> int:
        asked = producer.by() | {"Committed": is_commit}
        answer = settled(
            lambda: self.connection.ask("EndTxn", 3, asked), lambda values: int(values["ErrorCode"])
        )
        producer.is_open = False

        def state() -> str:
            described = self.connection.ask("DescribeTransactions", 0, {"TransactionalIds": [producer.id]})
            name: str = described["TransactionStates"][0]["TransactionState"]
            return name

        settled(state, lambda name: 0 if name.startswith("Complete") else 51)  # until the markers are written
        code: int = answer["ErrorCode"]
        return code

    def delete_records(self, random: Random) -> None:
        """Delete the records before an offset, some of them, all, or more than there are."""
        where, part = random.choice(["all", "some", "some", "more"]), random.random()
        end = self._looked_up(LATEST, 0)[1]
        offset = {"all": -1, "some": int(part * (end + 1)), "more": end + 1}[where]
        topics = [{"Name": self.topic, "Partitions": [{"PartitionIndex": 0, "Offset": offset}]}]
        answer = self.connection.ask("DeleteRecords", 2, {"Topics": topics, "TimeoutMs": 9_000})
        deleted = answer["Topics"][0]["Partitions"][0]
        self.run.note("delete records", offset, deleted["ErrorCode"], deleted["LowWatermark"])

    # --- reading --------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Look offsets up, read from each offset, and ask for the producers."""
        end = self._looked_up(LATEST, 0)[1]
        at = [LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED]
        for isolation in (0, 1):
            for time_ms in (*at, *(BEGINNING_MS + after_ms for after_ms in LOOKED_UP_MS)):
                self.run.note(f"look up, isolation {isolation}", *self._told(time_ms, isolation))
            for offset in range(end + 2):
                self.run.note(f"fetch, isolation {isolation}", offset, *self._fetched(offset, isolation))
        self.run.note("producers", *sorted(self._described_producers()))

    def _looked_up(self, time_ms: int, isolation: int) -> tuple[int, int, int]:
        partitions = [{"PartitionIndex": 0, "CurrentLeaderEpoch": -1, "Timestamp": time_ms}]
        topics = [{"Name": self.topic, "Partitions": partitions}]
        request = {"ReplicaId": -1, "IsolationLevel": isolation, "Topics": topics}
        partition = self.connection.ask("ListOffsets", 9, request)["Topics"][0]["Partitions"][0]
        return partition["ErrorCode"], partition["Offset"], partition["Timestamp"]

    def _told(self, time_ms: int, isolation: int) -> Iterator[Any]:
        code, offset, found_ms = self._looked_up(time_ms, isolation)
        if time_ms == LATEST and isolation:
            offset = max(offset, self._looked_up(EARLIEST, 0)[1])  # as the last stable offset of a fetch
        yield from (time_ms if time_ms < 0 else time_ms - BEGINNING_MS, code)
        if self.kind != "append" or time_ms < 0:  # the broker's times are its own
            yield offset
        if self.kind != "append":
            yield _since(found_ms)

    def _fetched(self, offset: int, isolation: int) -> Iterator[Any]:
        where = {
            "Partition": 0, "CurrentLeaderEpoch": -1, "FetchOffset": offset, "LastFetchedEpoch": -1, "LogStartOffset": -1,
            "PartitionMaxBytes": 1 << 20,
        }  # fmt: skip
        request = {
            "ReplicaId": -1, "MaxWaitMs": 1, "MinBytes": 1, "MaxBytes": 1 << 24, "IsolationLevel": isolation,
            "SessionEpoch": -1, "Topics": [{"Topic": self.topic, "Partitions": [where]}],
        }  # fmt: skip
        partition = self.connection.ask("Fetch", 12, request)["Responses"][0]["Partitions"][0]
        data = partition["Records"] or b""
        start, stable = partition["LogStartOffset"], partition["LastStableOffset"]
        # Kafka's last stable offset stays before the start of the log while a transaction is open that was deleted.
        yield from (partition["ErrorCode"], partition["HighWatermark"], max(stable, start), start)
        numbers = {producer.producer_id: number for number, producer in self.producers.items()}
        aborted = partition["AbortedTransactions"] if data else []
        yield sorted((numbers[txn["ProducerId"]], txn["FirstOffset"]) for txn in aborted or ())
        for position, header in iter_batches(data):
            is_plain = not header.attributes & (CONTROL | APPEND_TIME | HORIZON)
            is_control = bool(header.attributes & CONTROL)
            yield [
                header.base_offset, header.last_offset, header.records_count, header.attributes, header.base_sequence,
                _since(header.base_timestamp) if is_plain else None,
                None if is_control or header.attributes & APPEND_TIME else _since(header.max_timestamp),
                check_crc(data, position, header), None if header.codec else header.size,
            ]  # fmt: skip

    def _described_producers(self) -> Iterator[tuple[int, ...]]:
        asked = {"Topics": [{"Name": self.topic, "PartitionIndexes": [0]}]}
        partition = self.connection.ask("DescribeProducers", 0, asked)["Topics"][0]["Partitions"][0]
        numbers = {producer.producer_id: number for number, producer in self.producers.items()}
        fields = ("ProducerEpoch", "LastSequence", "CurrentTxnStartOffset", "CoordinatorEpoch")
        for active in partition["ActiveProducers"]:
            yield numbers[active["ProducerId"]], *(active[name] for name in fields)


def _since(time_ms: int) -> int | str:
    """Return a time of a record as counted from the beginning; the time of a marker is that of the broker."""
    if time_ms <= 0:
        return time_ms
    return time_ms - BEGINNING_MS if time_ms - BEGINNING_MS < DAY_MS else "after a day"


def history_of(kind: str) -> Callable[[HistoryRun], None]:
    """Return the function that runs a history of a kind."""
    return lambda run: LogHistory(kind, run).act()


if __name__ == "__main__":
    main(
        "compat.log.histories",
        __doc__,
        SETTINGS,
        {kind: history_of(kind) for kind in OF_TOPICS},
        KNOWN,
        count=6,
    )
