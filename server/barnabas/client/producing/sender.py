"""Sender of a producer: distributes batches to brokers, and handles the outcomes.

The rule: one task decides, `run`; it never waits for a broker. Each request is a task that ends with its batches
settled: acknowledged, failed, or back in their outboxes to be sent again. The rules for sequences are in `outbox`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import trio

from barnabas.client.client import Client
from barnabas.client.connection import Begun, Connection
from barnabas.client.errors import (
    ClientError,
    DeliveryTimeoutError,
    ResponseError,
    TransactionAbortedError,
    UnsupportedVersionError,
    copy_of,
    is_retriable,
)
from barnabas.client.producing.identity import Identity
from barnabas.client.producing.memory import Memory
from barnabas.client.producing.outbox import Batch, Outbox
from barnabas.client.producing.settings import ProducerSettings
from barnabas.client.topics import TopicWatch
from barnabas.records.compression import CODECS_BY_NAME, Codec
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.produce import ProduceRequest, ProduceResponse

LANE = "records"
PRODUCE = 0
BY_NAME_VERSION = 12  # from 13 on topics have ids, and a recreated topic is another one
BEFORE_TRANSACTIONS_V2 = 11
MAGIC_2_SINCE, ZSTD_SINCE = 3, 7
COMPRESSED_IN_THREAD_BYTES = 64 << 10
"""Size from which records are compressed in a thread: gzip takes some 3 ms for it."""
REQUEST_OVERHEAD = 512
_METADATA_IS_OLD = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_TOPIC_ID,
)
PartitionResponse = ProduceResponse.PartitionProduceResponse


class _Broker:
    """State of the requests in flight to one broker."""

    def __init__(self) -> None:
        self.in_flight = 0
        self.is_busy = False
        """True if a request is being written; the next one waits for that, so that they keep their order."""


class Sender:
    """Sends batches. `run` is a task of the producer."""

    def __init__(
        self, client: Client, topics: TopicWatch, settings: ProducerSettings, identity: Identity
    ) -> None:
        self.settings = settings
        self.memory = Memory(settings.buffer_bytes)
        self.outboxes: dict[tuple[str, int], Outbox] = {}
        self.incomplete: dict[Batch, None] = {}
        self.unseen: dict[Batch, None] = {}
        """Batches that have failed, until the program has read the failure."""
        self.flushers = 0
        """Tasks that require everything to be sent now."""
        self._client = client
        self._topics = topics
        self._identity = identity
        self._brokers: dict[int, _Broker] = {}
        self._nursery: trio.Nursery
        self._wakes = trio.Event()
        self._codec = CODECS_BY_NAME[settings.compression]

    def wake(self) -> None:
        """Wake the sender: there is something to send, or the state has changed."""
        self._wakes.set()

    async def run(self) -> None:
        """Send batches when they are due, for ever."""
        async with trio.open_nursery() as self._nursery:
            while True:
                next_look = self.look(trio.current_time())
                with trio.move_on_at(next_look):
                    await self._wakes.wait()
                self._wakes = trio.Event()

    # --- deciding -------------------------------------------------------------------------------------------

    def look(self, now: float) -> float:
        """Start the requests that are due, and return the time of the next ones."""
        next_look = self._expire(now)
        self.give_up_unsent()
        for outbox in self.outboxes.values():
            if outbox.is_unresolved and outbox.needs_restart():
                self._identity.refuse_sequences(outbox)
        current = self._identity.current()
        due: dict[int, list[Batch]] = {}
        for outbox in self.outboxes.values():
            if not outbox.queue:
                continue
            batch = outbox.queue[0]
            at = self._due_at(outbox, batch)
            if at > now:
                next_look = min(next_look, at)
            elif self._identity.may_send(outbox) and outbox.may_send(current, self.settings.in_flight_max):
                leader = self._topics.leader(outbox.topic, outbox.index)
                if leader >= 0:
                    due.setdefault(leader, []).append(batch)
                else:
                    # metadata has been requested; its arrival does not wake the sender
                    next_look = min(next_look, now + self._client.settings.retry_backoff_ms / 1000)
        for leader, batches in due.items():
            broker = self._brokers.setdefault(leader, _Broker())
            if not broker.is_busy and broker.in_flight < self.settings.in_flight_max:
                self._start(leader, broker, batches)
        return next_look

    def _due_at(self, outbox: Outbox, batch: Batch) -> float:
        if batch.retry_at:
            return batch.retry_at
        is_full = len(batch.body) >= self.settings.batch_bytes or len(outbox.queue) > 1
        if is_full or self.flushers or self.memory.is_scarce:
            return -math.inf
        return batch.created_at + self.settings.linger_ms / 1000

    def _expire(self, now: float) -> float:
        """Fail batches that took too long; returns the time at which the next one expires."""
        timeout_s = self.settings.delivery_timeout_ms / 1000
        for batch in list(self.incomplete):  # in the order in which they were made, but for halves
            if batch.created_at + timeout_s > now:
                return batch.created_at + timeout_s
            text = f"{batch.outbox}: no acknowledgement in {timeout_s:g} s"
            self.fail(batch, DeliveryTimeoutError(text))
        return math.inf

    def give_up_unsent(self) -> None:
        """Fail unsent records: the producer has failed for good, or its transaction has to be aborted."""
        if (failure := self._identity.failure) is not None:
            for batch in [batch for batch in self.incomplete if not batch.is_sending]:
                self.fail(batch, copy_of(failure))
        elif self._identity.is_aborting:
            unsent = [batch for batch in self.incomplete if batch.sequence < 0]
            self.drop(unsent, TransactionAbortedError("the transaction was aborted"))

    def _start(self, leader: int, broker: _Broker, batches: list[Batch]) -> None:
        """Take as many of the batches as a request holds, and send them in a task."""
        taken: list[Batch] = []
        size = 0
        # the longest waiting first, or others would always fill the request
        for batch in sorted(batches, key=lambda batch: batch.created_at):
            size += len(batch.body) + REQUEST_OVERHEAD
            if taken and size > self.settings.request_bytes_max:
                self.wake()
                break
            outbox = batch.outbox
            outbox.queue.popleft()
            outbox.sending += 1
            batch.is_sending = True
            if (producer := self._identity.producer) is not None:
                outbox.number(batch, producer)
            self._identity.has_sent()
            taken.append(batch)
        broker.in_flight += 1
        broker.is_busy = True
        self._nursery.start_soon(self._send, leader, broker, taken)

    # --- sending --------------------------------------------------------------------------------------------

    async def _send(self, leader: int, broker: _Broker, batches: list[Batch]) -> None:
        begun: Begun | None = None
        try:
            try:
                begun = await self._begin(leader, batches)
            finally:
                broker.is_busy = False
                self.wake()
            response = await begun.response()
        except ClientError as error:
            self._topics.need()
            for batch in batches:
                self._settle_error(batch, error)
        else:
            self.settle_all(batches, response)
        finally:
            broker.in_flight -= 1
            self.wake()

    async def _begin(self, leader: int, batches: list[Batch]) -> Begun:
        """Write the request. Raises ClientError."""
        connection = await self._client.broker(leader, lane=LANE)
        version = self.version_for(connection)
        large = [
            batch
            for batch in batches
            if batch.payload is None and len(batch.body) > COMPRESSED_IN_THREAD_BYTES
        ]
        if large and self._codec:
            await trio.to_thread.run_sync(self._close, large)
        self._close(batches)
        request = ProduceRequest(
            transactional_id=self.settings.transactional_id,
            acks=self.settings.acks,
            timeout_ms=self.settings.ack_timeout_ms,
        )
        topics: dict[str, ProduceRequest.TopicProduceData] = {}
        for batch in batches:
            if batch.is_done:
                continue  # it took too long by now
            outbox = batch.outbox
            topic = topics.setdefault(outbox.topic, ProduceRequest.TopicProduceData(outbox.topic))
            data = batch.encoded(transactional=self.settings.transactional_id is not None)
            topic.partition_data.append(ProduceRequest.PartitionProduceData(outbox.index, data))
        request.topic_data = list(topics.values())
        return await connection.begin(
            request, version=version, timeout_ms=self._client.settings.request_timeout_ms
        )

    def version_for(self, connection: Connection) -> int:
        """Return the version of Produce for a broker. Raises UnsupportedVersionError."""
        newest = BY_NAME_VERSION
        if self.settings.transactional_id is not None and not self._identity.is_v2:
            newest = BEFORE_TRANSACTIONS_V2
        version = connection.version_of(PRODUCE, newest)
        if version < (ZSTD_SINCE if self._codec == Codec.ZSTD else MAGIC_2_SINCE):
            raise UnsupportedVersionError(
                f"{connection.peer} is too old for such batches (Produce v{version})"
            )
        return version

    def _close(self, batches: list[Batch]) -> None:
        for batch in batches:
            batch.close(self._codec, self.settings.compression_level)

    # --- settling -------------------------------------------------------------------------------------------

    def settle_all(self, batches: list[Batch], response: ProduceResponse | None) -> None:
        """Take the response to a request with these batches; None with acks=0."""
        if response is None:  # acks=0
            for batch in batches:
                self._has_returned(batch)
                self._complete(batch, -1, -1)
            return
        answers = {
            (topic.name, partition.index): partition
            for topic in response.responses
            for partition in topic.partition_responses
        }
        for batch in batches:
            answer = answers.get((batch.outbox.topic, batch.outbox.index))
            if answer is None:
                lacking = ResponseError(ErrorCode.UNKNOWN_SERVER_ERROR, f"appending to {batch.outbox}")
                self._settle_error(batch, lacking)
            else:
                self.settle(batch, answer)

    def settle(self, batch: Batch, answer: PartitionResponse) -> None:
        """Take the answer of a partition: its batch is complete, is tried again, or has failed."""
        self._has_returned(batch)
        code = answer.error_code
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            # a duplicate so old that the broker no longer knows its offset
            self._complete(batch, answer.base_offset if not code else -1, answer.log_append_time_ms)
            return
        if batch.is_done:
            return
        if code in _METADATA_IS_OLD:
            self._topics.need()
        if code == ErrorCode.MESSAGE_TOO_LARGE and batch.count > 1:
            del self.incomplete[batch]
            halves = dict.fromkeys(batch.outbox.split(batch))
            self.incomplete = halves | self.incomplete  # they are older than the unsent ones
        elif self.may_retry(batch, code, answer.log_start_offset):
            self.retry(batch)
        else:
            error = ResponseError(code, f"appending to {batch.outbox}", answer.error_message)
            self.fail(batch, error, _single_failures(batch, answer))

    def _settle_error(self, batch: Batch, error: ClientError) -> None:
        """Settle a batch that got no answer."""
        self._has_returned(batch)
        if batch.is_done:
            return
        if error.is_retriable:
            self.retry(batch)
        else:
            self.fail(batch, error)

    def _has_returned(self, batch: Batch) -> None:
        batch.is_sending = False
        batch.outbox.sending -= 1

    def may_retry(self, batch: Batch, code: int, log_start_offset: int) -> bool:
        """Return whether to send a batch again; if only a new epoch helps, request it."""
        outbox = batch.outbox
        if self._identity.producer is None:
            return is_retriable(code)
        if code == ErrorCode.UNKNOWN_PRODUCER_ID:
            if log_start_offset < 0 or batch.was_restarted:
                return True
            if not self._identity.is_transactional:
                self._identity.refuse_sequences(outbox)
                return True
            if outbox.last_offset < log_start_offset:
                # Retention has removed all that the broker knew of the producer: it takes 0 for the next sequence.
                outbox.restart(outbox.producer)
                return True
        elif code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            if not outbox.is_unresolved and (batch.was_restarted or not outbox.is_next(batch)):
                return True  # one before it failed, and will be sent again before it
            if not self._identity.is_transactional:
                self._identity.refuse_sequences(outbox)
                return True
        return is_retriable(code)

    def retry(self, batch: Batch) -> None:
        """Put a batch back, to be sent again after a pause."""
        settings = self._client.settings
        pause_ms = min(settings.retry_backoff_ms * 2**batch.attempts, settings.retry_backoff_max_ms)
        batch.attempts += 1
        batch.retry_at = trio.current_time() + pause_ms / 1000
        batch.outbox.put_back(batch)

    def _complete(self, batch: Batch, base_offset: int, append_time_ms: int) -> None:
        batch.outbox.acknowledge(batch, base_offset)
        if not batch.is_done:
            batch.base_offset, batch.append_time_ms = base_offset, append_time_ms
            self._end(batch)

    def fail(self, batch: Batch, error: ClientError, failures: dict[int, ClientError] | None = None) -> None:
        """Give a batch up."""
        batch.outbox.give_up(batch)
        batch.failures = failures or {}
        self.unseen[batch] = None
        self._identity.has_failed(error)
        self._end(batch, error)

    def _end(self, batch: Batch, failure: ClientError | None = None) -> None:
        self.incomplete.pop(batch, None)
        memory_bytes, batch.memory_bytes = batch.memory_bytes, 0
        batch.end(failure)
        self.memory.release(memory_bytes)
        self.wake()

    # --- for the producer -----------------------------------------------------------------------------------

    def drop(self, batches: Iterable[Batch], error: ClientError) -> None:
        """Give up batches that were never sent; their failures count as read."""
        for batch in batches:
            batch.is_seen = True
            batch.outbox.queue.remove(batch)
            self._end(batch, error)

    def first_unseen(self) -> ClientError | None:
        """Return the first failure that the program has not read, and discard all of them."""
        failures = [batch.failure for batch in self.unseen if not batch.is_seen]
        self.unseen.clear()
        return failures[0] if failures else None


def _single_failures(batch: Batch, answer: PartitionResponse) -> dict[int, ClientError]:
    """Return the failures of single records that the broker names (KIP-467); the others fail with the batch."""
    failures: dict[int, ClientError] = {}
    for failure in answer.record_errors:
        message = failure.batch_index_error_message or answer.error_message
        failures[failure.batch_index] = ResponseError(
            answer.error_code, f"appending a record to {batch.outbox}", message
        )
    return failures
