"""The topic that stores a registry: read continuously, and written by one registry at a time.

The rule: a registry that writes owns the transactional id of the topic, and has read all records written before it got the
id. Changes are decided on that state; if another registry has fenced it meanwhile, nothing is written and the change is
decided again. So an id is never assigned twice, whatever fails, and registries need not know each other.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import trio

from barnabas.client import (
    ClientError,
    Consumer,
    ConsumerSettings,
    LogTruncatedError,
    OffsetOutOfRangeError,
    Producer,
    ProducerFencedError,
    ProducerSettings,
    RecordTooLargeError,
    ResponseError,
    TransactionFailedError,
    open_client,
    open_consumer,
    open_producer,
)
from barnabas.client.admin import Admin
from barnabas.client.administration.configs import Resource
from barnabas.client.administration.topics import NewTopic
from barnabas.registry import refusals
from barnabas.registry.errors import RegistryError
from barnabas.registry.records import Record, noop_record
from barnabas.registry.state import State
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.client import ClientSettings, ConsumedRecord, Endpoint

log = logging.getLogger(__name__)
T = TypeVar("T")

TOPIC_NAME = "_schemas"
REPLICAS = 3
WRITE_SECONDS_MAX = 60.0
TRIES_MAX = 20
"""Times that a change is decided upon, while other registries change something."""
AGAIN_SECONDS = 1.0
APPLIED_BYTES = 100_000
RECORD_BYTES = 1_000
"""`RECORD_BYTES` is added for each record; after `APPLIED_BYTES`, some 3 ms of work, other tasks may run."""
DEADLINE_MS = 15_000
_TAKEN = (
    ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_TXN_STATE,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.PRODUCER_FENCED, ErrorCode.UNKNOWN_PRODUCER_ID,
)  # fmt: skip
"""Errors of a producer after another registry has ended its transaction."""
Decision = tuple[Sequence[Record], T]
"""Records to write, and the result once they are written."""
Decide = Callable[[State], Awaitable[Decision[T]]]


@dataclass(eq=False, slots=True)
class _Change:
    """A change with a request that waits for it."""

    decide: Decide[Any]
    done: trio.Event = field(default_factory=trio.Event)
    answer: Any = None
    error: Exception | None = None
    tries: int = 0
    is_abandoned: bool = False

    def fail(self, error: Exception) -> None:
        self.error = error
        self.done.set()


class Clients(NamedTuple):
    """Clients of the brokers that keep the topic."""

    open_client: Callable[..., AbstractAsyncContextManager[Any]] = open_client
    admin: Callable[[Any], Admin] = Admin
    open_consumer: Callable[..., AbstractAsyncContextManager[Consumer]] = open_consumer
    open_producer: Callable[..., AbstractAsyncContextManager[Producer]] = open_producer


CLIENTS = Clients()


class Store:
    """Lifecycle: `run` in a task until cancelled; `state` is complete once that reports that it has started."""

    def __init__(
        self,
        bootstrap: Sequence[Endpoint],
        settings: ClientSettings,
        topic: str = TOPIC_NAME,
        clients: Clients = CLIENTS,
    ) -> None:
        self._clients = clients
        self.state = State()
        self.topic = topic
        self._bootstrap = list(bootstrap)
        self._settings = settings
        self._place = (topic, 0)
        self._read = -1
        self._moved = trio.Event()
        self._changes, self._to_do = trio.open_memory_channel[_Change](0)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Make the topic if it is not there; read and write it until cancelled. Raises RegistryError, ClientError."""
        await self._prepare()
        async with trio.open_nursery() as nursery:
            await nursery.start(self._follow)
            nursery.start_soon(self._write_forever)
            task_status.started()

    async def write(self, decide: Decide[T]) -> T:
        """Write the records that `decide` returns for the current contents; they are part of `state` when this returns.

        Raises RegistryError, and the errors of `decide`.
        """
        change = _Change(decide)
        with trio.move_on_after(WRITE_SECONDS_MAX):
            await self._changes.send(change)
            await change.done.wait()
        if not change.done.is_set():
            change.is_abandoned = True
            raise refusals.timed_out()
        if change.error is not None:
            raise change.error
        answer: T = change.answer
        return answer

    # --- the topic --------------------------------------------------------------------------------------------

    async def _prepare(self) -> None:
        async with self._clients.open_client(self._bootstrap, self._settings) as client:
            admin = self._clients.admin(client)
            description = (await admin.topics([self.topic]))[self.topic]
            if (
                isinstance(description, ResponseError)
                and description.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            ):
                brokers = len((await admin.describe_cluster()).brokers)
                new_topic = NewTopic(self.topic, 1, min(REPLICAS, brokers), {"cleanup.policy": "compact"})
                error = (await admin.create_topics([new_topic]))[self.topic]
                if error is not None and not (
                    isinstance(error, ResponseError) and error.code == ErrorCode.TOPIC_ALREADY_EXISTS
                ):
                    raise error
                if error is None:
                    return
                description = (await admin.topics([self.topic]))[self.topic]
            if isinstance(description, ClientError):
                raise description
            if len(description.partitions) != 1:
                raise refusals.store_failed(
                    f"topic {self.topic} has {len(description.partitions)} partitions: a registry's has one"
                )
            resource = Resource("topic", self.topic)
            entries = (await admin.describe_configs([resource]))[resource]
            if isinstance(entries, ClientError):
                raise entries
            policy = next((entry.value for entry in entries if entry.name == "cleanup.policy"), "compact")
            if policy != "compact":
                raise refusals.store_failed(
                    f"topic {self.topic} has cleanup.policy={policy}: schemas would be removed after a time; set it to "
                    "compact"
                )

    # --- reading ----------------------------------------------------------------------------------------------

    async def _follow(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Read all committed records of the topic, then new ones, until cancelled."""
        settings = ConsumerSettings(offset_reset="none", isolation="read_committed", is_auto_committing=False)
        has_started = False
        while True:
            try:
                async with self._clients.open_consumer(
                    self._bootstrap, settings=settings, client_settings=self._settings
                ) as consumer:
                    consumer.assign([self._place])
                    if self._read >= 0:
                        consumer.seek(self._place, self._read + 1)
                    else:
                        consumer.seek_to_beginning(self._place)
                        ends = await consumer.end_offsets([self._place])
                        while records := await consumer.receive_until(ends):
                            await self._apply(records)
                        consumer.resume(self._place)
                    if not has_started:
                        has_started = True
                        task_status.started()
                    while True:
                        await self._apply(await consumer.receive_batch())
            except (OffsetOutOfRangeError, LogTruncatedError) as error:
                log.warning("topic %s has changed: %s; reading it again", self.topic, error)
                self.state.clear()
                self._read = -1
            except ClientError as error:
                if not has_started:
                    raise
                log.warning("reading topic %s failed: %s; retrying", self.topic, error)
                await trio.sleep(AGAIN_SECONDS)

    async def _apply(self, records: Sequence[ConsumedRecord]) -> None:
        """Apply records, yielding to other tasks; these see an earlier state of the topic meanwhile."""
        size = 0
        for record in records:
            self.state.apply(record.key, record.value)
            self._read = record.offset
            size += RECORD_BYTES + len(record.value or b"")
            if size >= APPLIED_BYTES:
                size = 0
                await trio.lowlevel.checkpoint()
        self._moved.set()
        self._moved = trio.Event()

    async def _has_read(self, offset: int) -> None:
        while self._read < offset:
            await self._moved.wait()

    # --- writing ----------------------------------------------------------------------------------------------

    async def _write_forever(self) -> None:
        """Write changes, one by one; after a fencing, acquire the transactional id again for the next change."""
        settings = ProducerSettings(
            transactional_id=f"barnabas-registry-{self.topic}", linger_ms=0, creates_topics=False,
            max_block_ms=DEADLINE_MS, delivery_timeout_ms=DEADLINE_MS, ack_timeout_ms=DEADLINE_MS,
            transaction_timeout_ms=DEADLINE_MS,
        )  # fmt: skip
        change: _Change | None = None
        while True:
            if change is None:
                change = await self._to_do.receive()
            try:
                async with self._clients.open_producer(
                    self._bootstrap, settings, client_settings=self._settings
                ) as producer:
                    await self._commit(
                        producer, [noop_record()]
                    )  # read back, it proves that all earlier records were read
                    while True:
                        await self._make(producer, change)
                        change = None
                        change = await self._to_do.receive()
            except ClientError as error:
                change = await self._after(error, change)

    async def _after(self, error: ClientError, change: _Change | None) -> _Change | None:
        """Return the change to retry after an error; otherwise the change fails, and None is returned."""
        if change is None:
            log.debug("topic %s: %s", self.topic, error)  # if it lasts, the next change fails with it
            return None
        change.tries += 1
        if _may_pass(error) and change.tries < TRIES_MAX and not change.is_abandoned:
            await trio.sleep(random.uniform(0, AGAIN_SECONDS * change.tries / TRIES_MAX))
            return change
        code = getattr(error, "code", None)
        if code == ErrorCode.MESSAGE_TOO_LARGE or isinstance(error, RecordTooLargeError):
            change.fail(refusals.too_large())
        else:
            change.fail(refusals.store_failed(f"Operation failed while writing to the Kafka store: {error}"))
        return None

    async def _make(self, producer: Producer, change: _Change) -> None:
        """Decide upon a change and write it. Raises ClientError."""
        try:
            records, answer = await change.decide(self.state)
        except RegistryError as error:
            change.fail(error)
            return
        except Exception as error:
            log.exception("a change failed")
            change.fail(error)
            return
        if records:
            await self._commit(producer, records)
        change.answer = answer
        change.done.set()

    async def _commit(self, producer: Producer, records: Sequence[Record]) -> None:
        """Write records in a transaction, and wait until they are read back. Raises ClientError."""
        try:
            async with producer.transaction():
                sent = [
                    await producer.send(self.topic, value, key=key, partition=0) for key, value in records
                ]
        except TransactionFailedError as error:
            raise error.__cause__ if isinstance(error.__cause__, ClientError) else error from None
        await self._has_read(sent[-1].result().offset)


def _may_pass(error: ClientError) -> bool:
    """Return whether a change may be retried after an error, perhaps after acquiring the transactional id again."""
    return (
        isinstance(error, ProducerFencedError) or error.is_retriable or getattr(error, "code", None) in _TAKEN
    )
