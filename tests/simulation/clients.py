"""Producers and consumers that do what the stock ones do, on `barnabas.client`, and note what they see.

The rule: a client with no answer, or an error that may pass, asks again, until there is one; so each history ends, or the
world's time runs out, which is a failure of its own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import trio

from barnabas.client import Client, ClientError, ClientSettings, Endpoint, ResponseError, open_client
from barnabas.client.base_client import TRANSACTION
from barnabas.records.batch import iter_batches, read_records
from barnabas.records.building import encode_batch
from barnabas.records.control import parse_type
from barnabas.records.record import Record
from barnabas.testing.simulation.world import BEGIN_MS, World
from barnabas.wire.generated.add_partitions_to_txn import AddPartitionsToTxnRequest
from barnabas.wire.generated.end_txn import EndTxnRequest
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.fetch import FetchRequest
from barnabas.wire.generated.init_producer_id import InitProducerIdRequest
from barnabas.wire.generated.list_offsets import ListOffsetsRequest
from barnabas.wire.generated.produce import ProduceRequest
from tests.simulation.history import Batch, Final, History, Partition, Read, Transaction, Write

TOPIC, OUTPUT, LATEST_OF_KEYS = "events", "results", "latest"
"""The topic of most reads and writes; the output of processors; a compacted topic."""
PARTITIONS = 2
TOPIC_PARTITIONS = 3
"""One more than producers write to; members of groups share them all."""
RETRY_S = 0.05
EARLIEST, LATEST = -2, -1
KEYS = 4
_MAY_PASS = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
}


def top_error(response: Any) -> int:
    """Return the error of a response as a whole."""
    return int(getattr(response, "error_code", 0))


class Asker:
    """One client program on a host of its own."""

    def __init__(self, client: Client, name: str, history: History, random: Random) -> None:
        self.client = client
        self.name = name
        self.history = history
        self.random = random
        self.asked = -1
        """The leader that was asked last."""
        self.topic_ids: dict[str, bytes] = {}
        """Of the topics of the simulation."""

    def note(self, text: str) -> None:
        """Add a line to the history."""
        self.history.note(self.name, text)

    async def learn_topic_ids(self) -> None:
        """Look up the ids of the topics of the simulation."""

        async def ask() -> Any:
            self.topic_ids[TOPIC] = (await self.client.topic(TOPIC)).topic_id
            return None

        await self.until_answered(ask, lambda _: 0)

    async def pause(self, seconds_max: float) -> None:
        """Do nothing for a while."""
        await trio.sleep(self.random.uniform(0, seconds_max))

    async def until_answered(self, ask: Callable[[], Any], error_of: Callable[[Any], int]) -> Any:
        """Ask until there is an answer with no error, or one that will not pass."""
        while True:
            try:
                response = await ask()
            except ClientError as error:
                self.note(f"has no answer: {error}")
            else:
                code = error_of(response)
                if code not in _MAY_PASS:
                    return response
                self.note(f"is told {ErrorCode(code).name}")
            self.client.forget()
            await trio.sleep(self.random.uniform(0.5, 1.5) * RETRY_S)

    async def ask_leader(
        self, partition: Partition, message: Any, version: int, error_of: Callable[[Any], int]
    ) -> Any:
        """Ask the leader of a partition."""

        async def ask() -> Any:
            self.asked = await self.client.leader(*partition)
            return await (await self.client.broker(self.asked)).ask(message, version=version)

        return await self.until_answered(ask, error_of)

    async def ask_coordinator(
        self, key: str, key_type: int, message: Any, version: int, error_of: Callable[[Any], int] = top_error
    ) -> Any:
        """Ask the coordinator of a group or transactional id."""

        async def ask() -> Any:
            node = await self.client.coordinator(key, key_type)
            return await (await self.client.broker(node)).ask(message, version=version)

        return await self.until_answered(ask, error_of)


@asynccontextmanager
async def asking(world: World, bootstrap: str, name: str, history: History) -> AsyncIterator[Asker]:
    """Open a client on a host of its own."""
    host = world.network.host(name)
    settings = ClientSettings(
        client_id=name, request_timeout_ms=3_000, connect_timeout_ms=1_000, retries=0, retry_backoff_ms=50
    )

    async def dial(endpoint: Endpoint) -> trio.abc.Stream:
        return await host.dial(endpoint.host, endpoint.port)

    async with open_client(bootstrap, settings, dial=dial) as client:
        yield Asker(client, name, history, Random(f"{world.seed}/{name}"))


# --- producing ------------------------------------------------------------------------------------------------------


class Producer:
    """Sends batches of one or more values, one at a time to each partition."""

    def __init__(
        self,
        asker: Asker,
        *,
        acks: int = -1,
        transactional_id: str | None = None,
        transaction_version: int = 1,
    ) -> None:
        """From version 2 of transactions on brokers add partitions, and each end gives a new epoch (KIP-890)."""
        self.asker = asker
        self.adds_partitions = transaction_version < 2
        self.acks = acks
        self.transactional_id = transactional_id
        self.producer_id = -1
        self.epoch = -1
        self._sequences: dict[Partition, int] = {}
        self._count = 0

    @property
    def is_idempotent(self) -> bool:
        """Say whether the broker is to drop duplicates."""
        return self.producer_id >= 0

    async def initialize(self) -> None:
        """Get a producer id; a transaction that was open is aborted by it."""
        request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=60_000)
        if self.transactional_id is not None:
            response = await self.asker.ask_coordinator(self.transactional_id, TRANSACTION, request, 4)
        else:

            async def ask() -> Any:
                return await (await self.asker.client.any_connection()).ask(request, version=4)

            response = await self.asker.until_answered(ask, top_error)
        assert not response.error_code, response
        if (response.producer_id, response.producer_epoch) <= (self.producer_id, self.epoch) and (
            response.producer_id == self.producer_id
        ):
            self.asker.history.surprises.append(f"{self.asker.name}: the epoch went back to {response}")
        self.producer_id, self.epoch = response.producer_id, response.producer_epoch
        self._sequences.clear()
        self.asker.note(f"is producer {self.producer_id} in epoch {self.epoch}")

    async def send(
        self,
        partition: Partition,
        count: int,
        transaction: Transaction | None = None,
        *,
        keys: Sequence[bytes] = (),
        tags: Sequence[bytes] = (),
    ) -> int:
        """Send a batch until it is answered, and return the error code.

        `keys` are those of the records, `tags` what their values tell besides; None of either without.
        """
        asker, sequence = self.asker, self._sequences.get(partition, 0)
        writes = []
        for n in range(count):
            value = b"%s-%d" % (asker.name.encode(), self._count)
            self._count += 1
            key = keys[n] if keys else None
            if key is not None or tags:
                value += b":" + (tags[n] if key is None else key)
            writes.append(
                Write(partition, value, asker.name, self.is_idempotent, key, transaction=transaction)
            )
        asker.history.writes += writes
        if transaction is not None:
            transaction.writes += writes
        records = encode_batch(
            [Record(n, BEGIN_MS, write.key, write.value) for n, write in enumerate(writes)],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence if self.is_idempotent else -1,
            transactional=transaction is not None,
        )
        data = ProduceRequest.PartitionProduceData(index=partition[1], records=records)
        request = ProduceRequest(
            acks=self.acks,
            timeout_ms=2_000,
            transactional_id=self.transactional_id,
            topic_data=[ProduceRequest.TopicProduceData(name=partition[0], partition_data=[data])],
        )
        asker.note(f"sends {writes[0].value!r} and {count - 1} more to {partition[1]}")
        response = await asker.ask_leader(
            partition,
            request,
            8 if self.adds_partitions else 12,
            lambda answer: int(answer.responses[0].partition_responses[0].error_code),
        )
        answer = response.responses[0].partition_responses[0]
        asker.note(f"is answered {answer.error_code} at {answer.base_offset}")
        code = int(answer.error_code)
        if code in (0, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            for n, write in enumerate(writes):
                write.is_acknowledged = True
                write.offset = answer.base_offset + n if answer.base_offset >= 0 else None
                write.acknowledged_by = asker.asked
            self._sequences[partition] = sequence + count
            return 0
        if code in (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID):
            asker.history.surprises.append(f"{asker.name}: {ErrorCode(code).name} for {writes[0].value!r}")
        return code

    async def produce(self, batches: int) -> None:
        """Send so many batches to partitions at random."""
        random = self.asker.random
        for _ in range(batches):
            code = await self.send((TOPIC, random.randrange(PARTITIONS)), random.randint(1, 3))
            if code:
                self.asker.history.surprises.append(
                    f"{self.asker.name}: Produce failed with {ErrorCode(code).name}"
                )
                return
            await self.asker.pause(0.02)

    async def produce_keys(self, batches: int) -> None:
        """Send so many batches of values of a few keys to the compacted topic."""
        random = self.asker.random
        for _ in range(batches):
            keys = [b"key%d" % random.randrange(KEYS) for _ in range(random.randint(1, 6))]
            code = await self.send((LATEST_OF_KEYS, 0), len(keys), keys=keys)
            if code:
                self.asker.history.surprises.append(
                    f"{self.asker.name}: Produce failed with {ErrorCode(code).name}"
                )
                return
            await self.asker.pause(0.1)

    async def transact(self, count: int) -> None:
        """Run so many transactions, each committed or aborted; one that fails is aborted by a new epoch."""
        random = self.asker.random
        await self.initialize()
        for number in range(count):
            transaction = Transaction(f"{self.asker.name}.{number}")
            self.asker.history.transactions.append(transaction)
            if not await self._fill(transaction) or random.random() < 0.1:
                await self.initialize()
                transaction.outcome = "aborted"
                continue
            await self.end(transaction, commit=random.random() < 0.7)

    async def _fill(self, transaction: Transaction) -> bool:
        assert self.transactional_id is not None
        random = self.asker.random
        partitions = sorted(random.sample(range(PARTITIONS), random.randint(1, PARTITIONS)))
        added = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=TOPIC, partitions=partitions)
            ],
        )

        async def ask() -> Any:
            node = await self.asker.client.coordinator(self.transactional_id or "", TRANSACTION)
            return await (await self.asker.client.broker(node)).ask(added, version=3)

        def error_of(answer: Any) -> int:
            parts = answer.results_by_topic_v3_and_below[0].results_by_partition
            return max(int(part.partition_error_code) for part in parts)

        if self.adds_partitions and error_of(await self.asker.until_answered(ask, error_of)):
            return False
        for partition in partitions * random.randint(1, 2):
            if await self.send((TOPIC, partition), random.randint(1, 2), transaction):
                return False
        return True

    async def end(self, transaction: Transaction, *, commit: bool) -> None:
        """Commit or abort a transaction; after a refused end it is over by a new epoch, whatever became of it."""
        assert self.transactional_id is not None
        transaction.wants_commit = commit
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )
        version = 3 if self.adds_partitions else 5
        response = await self.asker.ask_coordinator(self.transactional_id, TRANSACTION, request, version)
        self.asker.note(f"ends {transaction.name}, commit={commit}: {response.error_code}")
        if response.error_code:
            await self.initialize()
            return
        transaction.outcome = "committed" if commit else "aborted"
        if not self.adds_partitions:
            self.producer_id, self.epoch = response.producer_id, response.producer_epoch
            self._sequences.clear()


# --- reading --------------------------------------------------------------------------------------------------------


class Reader:
    """Reads partitions from their beginning."""

    def __init__(self, asker: Asker, *, committed_only: bool, topic: str = TOPIC) -> None:
        self.asker = asker
        self.committed_only = committed_only
        self.topic = topic
        self.positions = dict.fromkeys(range(PARTITIONS), 0)
        self._aborted: dict[int, set[int]] = {}

    async def fetch(self, partition: int) -> tuple[Any, list[Batch]]:
        """Fetch once from the position, and go on behind what came."""
        part = FetchRequest.FetchPartition(
            partition=partition, fetch_offset=self.positions[partition], partition_max_bytes=1 << 20
        )
        request = FetchRequest(
            max_wait_ms=100,
            min_bytes=1,
            isolation_level=int(self.committed_only),
            topics=[FetchRequest.FetchTopic(topic=self.topic, partitions=[part])],
        )
        response = await self.asker.ask_leader(
            (self.topic, partition),
            request,
            11,
            lambda answer: int(answer.responses[0].partitions[0].error_code),
        )
        (answer,) = response.responses[0].partitions
        if answer.error_code:
            self.asker.history.surprises.append(
                f"{self.asker.name}: Fetch at {self.positions[partition]} of {partition} failed with "
                f"{ErrorCode(answer.error_code).name}"
            )
        return answer, self._batches(partition, answer)

    def _batches(self, partition: int, answer: Any) -> list[Batch]:
        data = bytes(answer.records or b"")
        pending = sorted((txn.first_offset, txn.producer_id) for txn in answer.aborted_transactions or ())
        aborted: set[int] = set()
        batches = []
        for at, header in iter_batches(data):
            while pending and pending[0][0] <= header.last_offset:
                aborted.add(pending.pop(0)[1])
            records = list(read_records(data, at))
            values = {record.offset: record.value or b"" for record in records}
            if header.is_control:
                if parse_type(records[0].key).name == "ABORT":
                    aborted.discard(header.producer_id)
                values = {}
            elif self.committed_only and header.is_transactional and header.producer_id in aborted:
                values = {}
            if header.last_offset >= self.positions[partition]:
                batches.append(
                    Batch(
                        header.base_offset, header.last_offset, header.is_control, values, header.leader_epoch
                    )
                )
                self.positions[partition] = header.last_offset + 1
        return batches

    async def follow(self, until: trio.Event) -> None:
        """Read on until the others have ended, and note each record."""
        while not until.is_set():
            for partition in self.positions:
                _, batches = await self.fetch(partition)
                for batch in batches:
                    for offset, value in batch.values.items():
                        self.asker.note(f"reads {value!r} at {partition}/{offset}")
                        self.asker.history.reads.append(
                            Read(self.asker.name, (TOPIC, partition), offset, value, self.committed_only)
                        )
            await self.asker.pause(0.2)

    async def list_offset(self, partition: int, timestamp: int) -> int:
        """Return the offset that ListOffsets gives."""
        asked = ListOffsetsRequest.ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=int(self.committed_only),
            topics=[ListOffsetsRequest.ListOffsetsTopic(name=self.topic, partitions=[asked])],
        )
        response = await self.asker.ask_leader(
            (self.topic, partition), request, 5, lambda answer: int(answer.topics[0].partitions[0].error_code)
        )
        return int(response.topics[0].partitions[0].offset)


async def read_finals(asker: Asker) -> None:
    """Read everything at the end, in both ways."""
    for topic, partition in [*((TOPIC, n) for n in range(PARTITIONS)), (OUTPUT, 0), (LATEST_OF_KEYS, 0)]:
        everything = Reader(asker, committed_only=False, topic=topic)
        committed = Reader(asker, committed_only=True, topic=topic)
        final = asker.history.finals[topic, partition] = Final()
        final.start = await everything.list_offset(partition, EARLIEST)
        final.end = await everything.list_offset(partition, LATEST)
        everything.positions[partition] = final.start
        committed.positions[partition] = final.start
        while await committed.list_offset(partition, LATEST) < final.end:
            await trio.sleep(RETRY_S)  # markers of the last transactions are still to come
            final.end = await everything.list_offset(partition, LATEST)
        while everything.positions[partition] < final.end:
            final.batches += (await everything.fetch(partition))[1]
        while committed.positions[partition] < final.end:
            for batch in (await committed.fetch(partition))[1]:
                final.committed |= batch.values
        asker.note(f"finds {len(final.batches)} batches in {topic}-{partition}, up to {final.end}")


__all__ = ["PARTITIONS", "TOPIC", "Asker", "Producer", "Reader", "ResponseError", "asking", "read_finals"]
