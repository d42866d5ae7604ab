"""A producer for Trio programs: records are sent one by one, and reach the brokers in batches.

    async with open_producer("localhost:9092") as producer:
        delivery = await producer.send("events", b"hello", key=b"k")
        print(await delivery.wait())

The rule: `send` waits only for room in the buffer; a record's `Delivery` has its outcome. A failure that the program does
not read there is raised by `flush`, or at the end of the block: no failure is lost.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import trio

from barnabas.client.background import background
from barnabas.client.client import Client, open_client
from barnabas.client.connection import Dial, dial_tcp
from barnabas.client.errors import (
    ClientError,
    ClosedError,
    ProducerFencedError,
    RecordTooLargeError,
    TimedOutError,
    copy_of,
    describe,
)
from barnabas.client.producing.choosing import Partitioner, StickyChoice
from barnabas.client.producing.identity import Identity
from barnabas.client.producing.memory import memory_of
from barnabas.client.producing.outbox import Delivery, Headers, Outbox
from barnabas.client.producing.sender import REQUEST_OVERHEAD, Sender
from barnabas.client.producing.settings import ProducerSettings
from barnabas.client.producing.transactions import State, Transactions
from barnabas.client.settings import ClientSettings, Endpoint
from barnabas.client.topics import TopicInfo, TopicWatch
from barnabas.client.values import GroupMetadata, OffsetAndMetadata, Place, RecordMetadata, TopicPartition

CLOSING_S = 5.0
"""For how long records are still sent, or a transaction is aborted, after the block has failed."""
SENDS_PER_TURN = 32
"""Records after which `send` yields to other tasks: a turn of Trio's loop takes as long as several records."""
HeaderPairs = Iterable[tuple[str, bytes | None]] | Mapping[str, bytes | None]


class Producer:
    """Sends records in batches by partition. Lifecycle: `open_producer`. Any number of tasks may send at the same time."""

    def __init__(self, client: Client, settings: ProducerSettings, partitioner: Partitioner | None) -> None:
        self.settings = settings
        self.client = client
        """The client underneath, for requests of other kinds."""
        self._topics = TopicWatch(client, creates_topics=settings.creates_topics)
        kind = Identity if settings.transactional_id is None else Transactions
        self._identity = kind(client, settings, lambda: self._sender.wake())
        self._sender = Sender(client, self._topics, settings, self._identity)
        self._partitioner = partitioner
        self._sticky = StickyChoice(settings.batch_bytes)
        self._sent_in_turn = 0
        self._is_closed = False

    # --- records --------------------------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: HeaderPairs = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """Add a record to a batch, which is sent in the background; wait while the buffer is full.

        Args:
            topic: name of the topic.
            value: the record's value; None for a tombstone.
            key: the record's key; records of one key go to one partition (murmur2, as in Kafka's Java client).
            headers: pairs of name and value, or a mapping.
            partition: index of the partition; by default chosen by `partitioner`, by the key, or by sticky
                partitioning (KIP-480).
            timestamp_ms: the record's time in ms since 1970, by default the present.

        Returns a `Delivery`; its `wait` returns the record's offset once the record is acknowledged.

        Raises BufferFullError after `max_block_ms`, RecordTooLargeError, ResponseError for an unknown topic,
        TransactionFailedError in a transaction that has failed, RuntimeError in a transactional producer without an open
        transaction, ClosedError.
        """
        self._sent_in_turn += 1
        if self._sent_in_turn >= SENDS_PER_TURN:
            self._sent_in_turn = 0
            await trio.lowlevel.checkpoint()
        else:
            await trio.lowlevel.checkpoint_if_cancelled()
        self._check_open()
        info = self._topics.infos.get(topic)
        if info is None:
            info = await self._topic(topic)
        pairs = _pairs(headers)
        size = self._checked_size(key, value, pairs)
        try:
            self._sender.memory.reserve_nowait(size)
        except trio.WouldBlock:
            self._sender.wake()  # lingering records are sent now
            await self._reserve(size)
        return self._append(info, topic, value, key, pairs, partition, timestamp_ms, size)

    def send_nowait(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: HeaderPairs = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """Add a record as `send` does. Raises trio.WouldBlock if the buffer is full or the topic's metadata are missing."""
        self._check_open()
        info = self._topics.infos.get(topic)
        if info is None:
            self._topics.add(topic)
            raise trio.WouldBlock
        pairs = _pairs(headers)
        size = self._checked_size(key, value, pairs)
        self._sender.memory.reserve_nowait(size)
        return self._append(info, topic, value, key, pairs, partition, timestamp_ms, size)

    async def send_and_wait(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: HeaderPairs = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordMetadata:
        """Send a record, wait until it is acknowledged, and return its partition, offset and timestamp.

        Parameters are those of `send`. Raises as `send` and `Delivery.wait`.
        """
        delivery = await self.send(
            topic, value, key=key, headers=headers, partition=partition, timestamp_ms=timestamp_ms
        )
        return await delivery.wait()

    async def flush(self) -> None:
        """Send all batches now, without lingering, and wait until all records are acknowledged.

        Raises the first ClientError of a record that the program did not read from its `Delivery`.
        """
        await self._settled()
        if (failure := self._sender.first_unseen()) is not None:
            raise copy_of(failure)

    @property
    def buffered_bytes(self) -> int:
        """Memory in bytes of the records that are not acknowledged yet, bounded by `buffer_bytes`."""
        return self._sender.memory.used_bytes

    async def partitions(self, topic: str) -> list[int]:
        """Return the indexes of a topic's partitions, in order. Raises ResponseError, TimedOutError."""
        return sorted((await self._topic(topic)).partitions)

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClosedError("the producer is closed")
        if isinstance(self._identity, Transactions):
            self._identity.check_open()
        elif self._identity.failure is not None:
            raise copy_of(self._identity.failure)

    async def _topic(self, name: str) -> TopicInfo:
        seconds = self.settings.max_block_ms / 1000
        try:
            with trio.fail_after(seconds):
                return await self._topics.topic(name)
        except trio.TooSlowError:
            reason = self._topics.failure or describe(self._topics.errors.get(name, 0))
            raise TimedOutError(f"no metadata of topic {name!r} in {seconds:g} s: {reason}") from None

    async def _reserve(self, size: int) -> None:
        await self._sender.memory.reserve(size, self.settings.max_block_ms / 1000)
        try:
            self._check_open()  # it may have been closed meanwhile, or the transaction ended
        except BaseException:
            self._sender.memory.release(size)
            raise

    def _checked_size(self, key: bytes | None, value: bytes | None, headers: Headers) -> int:
        size = memory_of(key, value, headers)
        largest = min(self.settings.request_bytes_max - REQUEST_OVERHEAD, self.settings.buffer_bytes)
        if size > largest:
            raise RecordTooLargeError(f"a record of {size} bytes; the most is {largest}")
        return size

    def _append(
        self,
        info: TopicInfo,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: Headers,
        partition: int | None,
        timestamp_ms: int | None,
        size: int,
    ) -> Delivery:
        """Append a record with reserved memory to its batch."""
        sender = self._sender
        now = trio.current_time()
        try:
            if partition is None:
                if self._partitioner is None:
                    partition = self._sticky.choose(topic, info, key, size)
                else:
                    partition = self._partitioner(topic, key, sorted(info.partitions))
            if partition not in info.partitions:
                self._topics.need()  # it may have got more
                raise ValueError(f"topic {topic!r} has no partition {partition}")
            outbox = sender.outboxes.get((topic, partition))
            if outbox is None:
                outbox = sender.outboxes[topic, partition] = Outbox(topic, partition)
            batch = outbox.open_batch(size, self.settings.batch_bytes, now)
            if timestamp_ms is None:
                timestamp_ms = time.time_ns() // 1_000_000
            delivery = batch.append(key, value, headers, timestamp_ms, size)
        except BaseException:
            sender.memory.release(size)
            raise
        if batch.count == 1:
            sender.incomplete[batch] = None
            sender.wake()
        elif len(batch.body) >= self.settings.batch_bytes:
            sender.wake()
        return delivery

    async def _settled(self) -> None:
        """Wait until all that was sent so far is acknowledged or has failed."""
        sender = self._sender
        sender.flushers += 1
        sender.wake()
        try:
            for batch in list(sender.incomplete):
                deliveries = batch.deliveries
                while not batch.is_done:
                    await batch.done.wait()
                    batch = deliveries[-1].batch  # the last half, if it was split
            await trio.lowlevel.checkpoint()
        finally:
            sender.flushers -= 1

    # --- transactions ---------------------------------------------------------------------------------------

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """Begin a transaction; commit it at the end of the block, or abort it if the block raises.

        Raises TransactionFailedError, after the abort, if a record could not be sent; ProducerFencedError if another
        producer has the transactional id by now; RuntimeError without `transactional_id`.
        """
        self.begin_transaction()
        try:
            yield
            await self.commit_transaction()
        except BaseException as error:
            if self._transactions().state not in (State.READY, State.COMMITTING):
                with trio.move_on_after(CLOSING_S, shield=True):
                    await self._abort_after(error)
            raise

    def begin_transaction(self) -> None:
        """Begin a transaction. Raises RuntimeError while one is open, ProducerFencedError."""
        self._transactions().begin()

    async def commit_transaction(self) -> None:
        """Send all batches and commit the transaction. May be called again after TimedOutError or a cancellation.

        Raises TransactionFailedError if the transaction has to be aborted, ProducerFencedError, TimedOutError.
        """
        transactions = self._transactions()
        transactions.begin_end(commit=True)
        await self._settled()
        transactions.check_sent()
        await self._end(transactions)

    async def abort_transaction(self) -> None:
        """Drop records that were not sent yet, and abort the transaction. Raises ProducerFencedError, TimedOutError."""
        transactions = self._transactions()
        self._sender.first_unseen()  # failures so far are why it is aborted
        transactions.begin_end(commit=False)
        await self._settled()
        self._sender.first_unseen()
        await self._end(transactions)

    async def send_offsets(
        self, offsets: Mapping[Place, OffsetAndMetadata | int], group: GroupMetadata | str
    ) -> None:
        """Commit offsets of a group as part of the transaction.

        `offsets` maps partitions to the offsets of the next record to read; `group` is `Consumer.group_metadata()`, by
        which members of older generations are fenced (KIP-447), or the id of a group without members.

        Raises TransactionFailedError, CommitFailedError if the group has rebalanced, ProducerFencedError.
        """
        transactions = self._transactions()
        transactions.check_open()
        if not offsets:
            await trio.lowlevel.checkpoint()
            return
        values = {
            TopicPartition(*place): offset
            if isinstance(offset, OffsetAndMetadata)
            else OffsetAndMetadata(offset)
            for place, offset in offsets.items()
        }
        await transactions.send_offsets(values, GroupMetadata(group) if isinstance(group, str) else group)

    async def _end(self, transactions: Transactions) -> None:
        await transactions.end()
        for outbox in self._sender.outboxes.values():
            if outbox.producer != transactions.producer and not outbox.unacknowledged:
                outbox.restart(transactions.producer)

    @property
    def has_transactions_v2(self) -> bool:
        """True if the cluster has transactions of version 2 (KIP-890)."""
        return self._identity.is_v2

    def _transactions(self) -> Transactions:
        if not isinstance(self._identity, Transactions):
            raise RuntimeError("the producer has no transactional_id")
        return self._identity

    async def _abort_after(self, error: BaseException) -> None:
        """Abort; an error of that is raised only if it explains the first one."""
        try:
            await self.abort_transaction()
        except ProducerFencedError:
            if isinstance(error, ClientError):
                raise
        except ClientError:
            pass  # the coordinator aborts the transaction after its timeout, or the next producer does

    # --- lifecycle ------------------------------------------------------------------------------------------

    async def _start(self, nursery: trio.Nursery) -> None:
        nursery.start_soon(self._topics.run)
        nursery.start_soon(self._sender.run)
        nursery.start_soon(self._identity.run)
        if isinstance(self._identity, Transactions):
            await self._identity.init()

    async def _finish(self) -> None:
        """Send all records, and stop. Raises the first failure that the program has not seen."""
        if isinstance(self._identity, Transactions) and self._identity.state in (State.OPEN, State.FAILED):
            await self.abort_transaction()
        self._is_closed = True
        await self.flush()

    async def _finish_quickly(self) -> None:
        """Stop after a failure: send earlier records, for CLOSING_S at most."""
        self._is_closed = True
        with trio.move_on_after(CLOSING_S):
            if isinstance(self._identity, Transactions):
                if self._identity.state in (State.OPEN, State.FAILED):
                    with suppress(ClientError):
                        await self.abort_transaction()
            else:
                await self._settled()


@asynccontextmanager
async def open_producer(
    bootstrap: str | Iterable[Endpoint],
    settings: ProducerSettings | None = None,
    *,
    client_settings: ClientSettings | None = None,
    partitioner: Partitioner | None = None,
    dial: Dial = dial_tcp,
) -> AsyncIterator[Producer]:
    """Create a producer; at the end of the block it flushes. With `transactional_id`, it calls InitProducerId first.

    Args:
        bootstrap: addresses as in `bootstrap.servers`, or (host, port) pairs.
        settings: settings of the producer: acks, batches, compression, idempotence, transactions.
        client_settings: settings of connections: security, timeouts, retries.
        partitioner: function that chooses the partition of a record without one.
        dial: function that opens a connection.

    Raises ProducerFencedError, TimedOutError and other ClientErrors of a transactional producer; at the end, the first
    failure of a record that the program did not read from its `Delivery`. An error of the block is raised as it is, not in
    an exception group, after 5 s at most for the records sent before; a block that is cancelled ends immediately.
    """
    chosen = settings or ProducerSettings()
    common = replace(client_settings or ClientSettings(), creates_topics=chosen.creates_topics)
    async with open_client(bootstrap, common, dial=dial) as client, background() as nursery:
        producer = Producer(client, chosen, partitioner)
        try:
            await producer._start(nursery)
            try:
                yield producer
            except Exception:
                await producer._finish_quickly()
                raise
            await producer._finish()
        finally:
            producer._is_closed = True


def _pairs(headers: HeaderPairs) -> Headers:
    if not headers:
        return []
    return list(headers.items() if isinstance(headers, Mapping) else headers)
