"""Transactions of a producer: its identity from the coordinator, the partitions of a transaction, and its end.

The rule: a transaction that has lost a record can only be aborted, and a fenced producer stops. With transaction version
2 (KIP-890) the broker adds partitions and offsets itself and each end begins a new epoch; before, the producer adds
them, and begins a new epoch after a failure (KIP-360).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from typing import Any

import trio

from barnabas.client.base_client import GROUP, TRANSACTION
from barnabas.client.connection import Connection
from barnabas.client.errors import (
    ClientError,
    CommitFailedError,
    FencedInstanceError,
    ProducerFencedError,
    ResponseError,
    TimedOutError,
    TransactionFailedError,
    UnsupportedVersionError,
    copy_of,
    describe,
    is_retriable,
)
from barnabas.client.producing.identity import INIT_PRODUCER_ID_VERSION_MAX, Identity
from barnabas.client.producing.outbox import NO_PRODUCER, Outbox, Producer
from barnabas.client.values import GroupMetadata, OffsetAndMetadata, TopicPartition
from barnabas.wire.generated.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.wire.generated.add_partitions_to_txn import AddPartitionsToTxnRequest
from barnabas.wire.generated.end_txn import EndTxnRequest
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.init_producer_id import InitProducerIdRequest
from barnabas.wire.generated.txn_offset_commit import TxnOffsetCommitRequest

ADD_PARTITIONS_VERSION_MAX = 3  # later ones are for brokers
END_TXN_VERSIONS = {False: 4, True: 5}
TXN_OFFSET_COMMIT_VERSIONS = {False: 4, True: 5}
"""Versions by whether transactions are those of KIP-890."""
CONCURRENT_PAUSE_S = 0.02
"""Pause while the transaction before is being ended, as Kafka's client makes it."""
FEATURE, V2 = "transaction.version", 2
_LOST_COORDINATOR = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
_FENCED = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
_FATAL = (
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.UNSUPPORTED_VERSION,
)
_NOT_A_MEMBER = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.REBALANCE_IN_PROGRESS,
)


class State(Enum):
    """State of a transactional producer."""

    NEW = "not initialised"
    READY = "without a transaction"
    OPEN = "in a transaction"
    COMMITTING = "committing"
    FAILED = "in a transaction that has failed"
    ABORTING = "aborting"


class Transactions(Identity):
    """Identity of a producer with transactions. `run` is a task of the producer."""

    is_transactional = True
    producer: Producer

    def __init__(self, client: Any, settings: Any, wake: Callable[[], None]) -> None:
        super().__init__(client, settings, wake)
        self.producer = NO_PRODUCER
        self.state = State.NEW
        self.reason: ClientError | None = None
        """Why the transaction has failed."""
        self._id: str = settings.transactional_id
        self.added_outboxes: set[Outbox] = set()
        self.outboxes_to_add: set[Outbox] = set()
        self.groups: set[str] = set()
        self.has_begun = False
        """True if the coordinator may know of the transaction."""
        self.needs_epoch = False

    @property
    def is_aborting(self) -> bool:  # type: ignore[override]
        """True if unsent records are to be dropped."""
        return self.state in (State.FAILED, State.ABORTING)

    # --- for the sender -------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Add partitions to the transaction before records are sent to them."""
        while True:
            await self._needed.wait()
            self._needed = trio.Event()
            adding = self.outboxes_to_add - self.added_outboxes
            try:
                await self._add_partitions(adding)
            except ClientError as error:
                self._fail(error)
            else:
                self.added_outboxes |= adding
            self.outboxes_to_add -= adding
            self._wake()

    def current(self) -> Producer:
        """Return the producer to send with."""
        return self.producer

    def may_send(self, outbox: Outbox) -> bool:
        """Return whether the producer may send to a partition now; if not, wake the sender once it may."""
        if self.failure is not None or self.state is State.READY or self.state is State.NEW:
            return False
        if outbox.queue[0].sequence >= 0:
            return True
        if self.is_aborting:
            return False
        if not self.is_v2 and outbox not in self.added_outboxes:
            self.outboxes_to_add.add(outbox)
            self._needed.set()
            return False
        return True

    def has_sent(self) -> None:
        """Note that a batch was sent."""
        self.has_begun = True

    def refuse_sequences(self, outbox: Outbox) -> None:
        """Note that the sequences of a partition lead nowhere: only a new epoch helps, after an abort."""
        lost = "records were lost, or it is not known whether they are there"
        outbox.is_unresolved = False
        self.needs_epoch = True
        self._fail(TransactionFailedError(f"{outbox}: {lost}"))

    def has_failed(self, error: ClientError) -> None:
        """Note that a batch has failed, and the transaction with it."""
        self.needs_epoch = True
        self._fail(error)

    def _fail(self, error: ClientError) -> None:
        """Note that the transaction cannot be committed, or that the producer can do nothing more."""
        code = error.code if isinstance(error, ResponseError) else None
        if isinstance(error, UnsupportedVersionError | ProducerFencedError) or code in _FATAL:
            self.failure = self.failure or self._fatal(error)
        elif self.state in (State.OPEN, State.COMMITTING):
            self.state = State.FAILED
            self.reason = error
        self._wake()

    def _fatal(self, error: ClientError) -> ClientError:
        if isinstance(error, ResponseError) and error.code in _FENCED:
            return ProducerFencedError(f"another producer has the transactional id {self._id!r}: {error}")
        return error

    # --- the transaction ------------------------------------------------------------------------------------

    async def init(self) -> None:
        """Get the producer's id and epoch, which fences those before it. Raises ClientError."""
        with self._patience("initialising transactions"):
            await self._init()
        self.state = State.READY

    async def _init(self) -> None:
        producer_id, epoch = self.producer
        request = InitProducerIdRequest(
            transactional_id=self._id, transaction_timeout_ms=self._settings.transaction_timeout_ms
        )

        def prepare(connection: Connection) -> int:
            self.is_v2 = connection.features.get(FEATURE, 0) >= V2
            version = connection.version_of(22, INIT_PRODUCER_ID_VERSION_MAX)
            # Before version 3, the epoch is raised without being told which one there was.
            producer = (producer_id, epoch) if version >= 3 else NO_PRODUCER
            request.producer_id, request.producer_epoch = producer
            return version

        response = await self._ask(self._id, TRANSACTION, request, prepare)
        self._check(response.error_code, "initialising transactions")
        self.producer = response.producer_id, response.producer_epoch

    def begin(self) -> None:
        """Begin a transaction. Raises RuntimeError inside one, and the failure of the producer."""
        self._check_alive()
        if self.state is not State.READY:
            raise RuntimeError(f"the producer is {self.state.value}")
        self.state, self.reason = State.OPEN, None

    def check_open(self) -> None:
        """Raise unless records can be sent: RuntimeError without a transaction, TransactionFailedError, ..."""
        self._check_alive()
        if self.state is State.FAILED:
            raise self._failed()
        if self.state is not State.OPEN:
            raise RuntimeError(f"the producer is {self.state.value}; a transaction has to be begun")

    def begin_end(self, *, commit: bool) -> None:
        """Begin to end the transaction; no record can be sent afterwards. Raises as `check_open`."""
        self._check_alive()
        states = (State.OPEN, State.COMMITTING) if commit else (State.OPEN, State.FAILED, State.ABORTING)
        if commit and self.state is State.FAILED:
            raise self._failed()
        if self.state not in states:
            raise RuntimeError(f"the producer is {self.state.value}")
        self.state = State.COMMITTING if commit else State.ABORTING
        self._wake()

    def check_sent(self) -> None:
        """Raise if the transaction failed while the last records were sent."""
        self._check_alive()
        if self.state is State.FAILED:
            raise self._failed()

    async def end(self) -> None:
        """Commit or abort, as was begun; all records are acknowledged or have failed. Raises ClientError."""
        commit = self.state is State.COMMITTING
        with self._patience("committing" if commit else "aborting"):
            if self.has_begun:
                await self._end(commit=commit)
            if self.needs_epoch:
                await self._init()
                self.needs_epoch = False
        self.added_outboxes.clear()
        self.outboxes_to_add.clear()
        self.groups.clear()
        self.state = State.READY

    async def _end(self, *, commit: bool) -> None:
        request = EndTxnRequest(self._id, *self.producer, commit)
        version_max = END_TXN_VERSIONS[self.is_v2]
        response = await self._ask(
            self._id, TRANSACTION, request, lambda connection: connection.version_of(26, version_max)
        )
        self._check(response.error_code, "committing" if commit else "aborting")
        self.has_begun = False
        if response.producer_id >= 0:
            self.producer = response.producer_id, response.producer_epoch
            self.needs_epoch = False

    async def _add_partitions(self, outboxes: set[Outbox]) -> None:
        topics: dict[str, list[int]] = {}
        for outbox in outboxes:
            topics.setdefault(outbox.topic, []).append(outbox.index)
        entry = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=self.producer[0],
            v3_and_below_producer_epoch=self.producer[1],
            v3_and_below_topics=[entry(name, partitions) for name, partitions in topics.items()],
        )

        def codes(response: Any) -> set[int]:
            topics = response.results_by_topic_v3_and_below
            error_codes = {
                part.partition_error_code for topic in topics for part in topic.results_by_partition
            }
            return (error_codes - {ErrorCode.OPERATION_NOT_ATTEMPTED}) or {0}

        self.has_begun = True
        version_max = ADD_PARTITIONS_VERSION_MAX
        response = await self._ask(
            self._id, TRANSACTION, request, lambda connection: connection.version_of(24, version_max), codes
        )
        for code in codes(response):
            self._check(code, f"adding partitions to the transaction of {self._id!r}")

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata
    ) -> None:
        """Add offsets of a group to the transaction. Raises ClientError; the transaction has failed then."""
        try:
            with self._patience(f"committing offsets of {group.group_id!r}"):
                if not self.is_v2 and group.group_id not in self.groups:
                    self.has_begun = True
                    request = AddOffsetsToTxnRequest(self._id, *self.producer, group.group_id)
                    response = await self._ask(
                        self._id, TRANSACTION, request, lambda connection: connection.version_of(25, 4)
                    )
                    self._check(response.error_code, f"adding group {group.group_id!r} to the transaction")
                    self.groups.add(group.group_id)
                await self._commit_offsets(offsets, group)
        except ClientError as error:
            if not isinstance(error, TimedOutError):
                self._fail(error)
            raise

    async def _commit_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata
    ) -> None:
        topics: dict[str, TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic] = {}
        for (name, partition), offset in offsets.items():
            topic = topics.setdefault(name, TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name))
            topic.partitions.append(
                TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
                    partition, offset.offset, offset.leader_epoch, offset.metadata
                )
            )
        request = TxnOffsetCommitRequest(
            self._id, group.group_id, *self.producer, topics=list(topics.values())
        )
        version_max = TXN_OFFSET_COMMIT_VERSIONS[self.is_v2]

        def prepare(connection: Connection) -> int:
            version = connection.version_of(28, version_max)
            if version >= 3:
                request.generation_id_or_member_epoch = group.generation_id
                request.member_id, request.group_instance_id = group.member_id, group.instance_id
            if version < 2:
                for topic in request.topics:
                    for partition in topic.partitions:
                        partition.committed_leader_epoch = -1
            return version

        def codes(response: Any) -> set[int]:
            return {part.error_code for topic in response.topics for part in topic.partitions}

        self.has_begun = True
        response = await self._ask(group.group_id, GROUP, request, prepare, codes)
        doing = f"committing offsets of {group.group_id!r}"
        for code in codes(response):
            if code in _NOT_A_MEMBER:
                raise CommitFailedError(f"{doing}: {describe(code)}")
            if code == ErrorCode.FENCED_INSTANCE_ID:
                raise FencedInstanceError(doing)
            self._check(code, doing)

    # --- the coordinator ------------------------------------------------------------------------------------

    async def _ask(
        self,
        key: str,
        key_type: int,
        request: Any,
        version_of: Callable[[Connection], int],
        codes_of: Callable[[Any], set[int]] = lambda response: {response.error_code},
    ) -> Any:
        """Ask a coordinator until its answer is not a transient error."""
        settings = self._client.settings
        pause_s = settings.retry_backoff_ms / 1000
        while True:
            wait_s = pause_s
            try:
                connection = await self._client.broker(await self._client.coordinator(key, key_type))
                response = await connection.ask(request, version=version_of(connection))
            except ClientError as error:
                if not error.is_retriable:
                    raise
                self._client.forget()
            else:
                codes = codes_of(response)
                if ErrorCode.CONCURRENT_TRANSACTIONS in codes:
                    wait_s = CONCURRENT_PAUSE_S
                elif not any(is_retriable(code) for code in codes):
                    return response
                elif not codes.isdisjoint(_LOST_COORDINATOR):
                    self._client.forget_coordinator(key, key_type)
            await trio.sleep(wait_s)
            pause_s = min(pause_s * 2, settings.retry_backoff_max_ms / 1000)

    def _check(self, code: int, doing: str) -> None:
        """Raise the error of a code, and note its effect on the producer."""
        if not code:
            return
        error: ClientError = ResponseError(code, doing)
        if code in _FENCED or code in _FATAL:
            self.failure = error = self._fatal(error)
            self._wake()
        raise error

    def _check_alive(self) -> None:
        if self.failure is not None:
            raise copy_of(self.failure)

    def _failed(self) -> TransactionFailedError:
        error = TransactionFailedError(f"the transaction has to be aborted: {self.reason}")
        error.__cause__ = self.reason
        return error

    @contextmanager
    def _patience(self, doing: str) -> Iterator[None]:
        """Limit a block to `max_block_ms`. Raises TimedOutError."""
        seconds = self._settings.max_block_ms / 1000
        try:
            with trio.fail_after(seconds):
                yield
        except trio.TooSlowError:
            raise TimedOutError(f"{doing}: not done in {seconds:g} s") from None
