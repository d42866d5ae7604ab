"""The transactional ids of one partition of __transaction_state: checks of producers, and transitions. Pure.

The rule: an event decides on a new value of the transaction and writes it; `replay` makes it the current one. The
coordinator that runs the machine writes the end of a transaction to its partitions: the decision carries an `Ending`, and
`complete` is to be called when all of them have it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from barnabas.coordinators.statemachine.decision import Decision, Refused, slices
from barnabas.coordinators.transactions.records import (
    parse_key,
    parse_transaction,
    transaction_record,
    transaction_tombstone,
)
from barnabas.coordinators.transactions.settings import TransactionSettings
from barnabas.coordinators.transactions.transaction import (
    EPOCH_BUMPED_SINCE,
    EPOCH_MAX_OF_CLIENTS,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMEOUT_MS,
    Producer,
    State,
    Transaction,
)
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.topic_partitions import TopicPartition

TIMEOUT = "timeout"
IDS_PER_EVENT = 500
"""Transactional ids searched in one event."""


class Ending(NamedTuple):
    """A prepared transaction: its partitions must get markers, with this producer id and epoch."""

    transactional_id: str
    producer: Producer
    commit: bool
    partitions: frozenset[TopicPartition]
    client_version: int


class ProducerIdNeededError(Exception):
    """The event needs a new producer id; nothing has changed, and it must be repeated with one."""


class TransactionShard:
    """The transactional ids of one shard."""

    def __init__(self, settings: TransactionSettings) -> None:
        self.settings = settings
        self.transactions: dict[str, Transaction] = {}
        self._decided: dict[str, Transaction] = {}

    # --- producers ------------------------------------------------------------------------------------------

    def init_producer(
        self,
        transactional_id: str,
        timeout_ms: int | None,
        expected: Producer | None,
        new_producer_id: int | None,
        now_ms: int,
        out: Decision,
    ) -> Producer | Refused:
        """Initialize a producer, or resume one after an error with its former id and epoch (KIP-360).

        `timeout_ms` is None for transactions of two-phase commit, which have none (KIP-939). Raises
        INVALID_TRANSACTION_TIMEOUT, PRODUCER_FENCED, or CONCURRENT_TRANSACTIONS until its last transaction has ended; if
        one is open it is aborted first, and the request refused with the same error. Raises ProducerIdNeededError when
        `new_producer_id` is None and one is needed.
        """
        if timeout_ms is None:
            timeout_ms = NO_TIMEOUT_MS
        elif not 0 < timeout_ms <= self.settings.timeout_ms_max:
            raise RequestError(
                ErrorCode.INVALID_TRANSACTION_TIMEOUT,
                f"transaction.timeout.ms {timeout_ms} is outside of 1 to {self.settings.timeout_ms_max}",
            )
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            if new_producer_id is None:
                raise ProducerIdNeededError
            transaction = Transaction(transactional_id, new_producer_id)
        _check_not_pending(transaction)
        if expected is not None and not _is_known(transaction, expected):
            raise _fenced(transaction, expected)
        if transaction.state is State.ONGOING:
            self._fence(transaction, now_ms, out)
            return Refused(
                RequestError(ErrorCode.CONCURRENT_TRANSACTIONS, "the open transaction is aborted first")
            )
        if transaction.needs_producer_id(expected):
            if new_producer_id is None:
                raise ProducerIdNeededError
            last_epoch = NO_EPOCH if expected is None else expected.epoch
            new = transaction.with_producer_id(new_producer_id, last_epoch, timeout_ms, now_ms)
        else:
            epoch, last_epoch = _next_epoch(transaction, expected)
            new = transaction.with_epoch(epoch, last_epoch, timeout_ms, now_ms)
        self._become(new, out)
        return new.producer

    def _fence(self, transaction: Transaction, now_ms: int, out: Decision) -> None:
        self._end(transaction.fenced(now_ms), out)

    # --- partitions -----------------------------------------------------------------------------------------

    def add_partitions(
        self,
        transactional_id: str,
        producer: Producer,
        topic_partitions: frozenset[TopicPartition],
        client_version: int,
        now_ms: int,
        out: Decision,
    ) -> None:
        """Add partitions to the transaction; the first ones begin it.

        Raises INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS.
        """
        transaction = self._known(transactional_id)
        _check_not_pending(transaction)
        _check_producer(transaction, producer)
        if producer.epoch > EPOCH_MAX_OF_CLIENTS:
            raise _fenced(transaction, producer)  # no higher epoch is left that could fence it later
        if transaction.state is State.ONGOING and topic_partitions <= transaction.partitions:
            return
        if transaction.state is not State.ONGOING and transaction.timeout_ms != NO_TIMEOUT_MS:
            out.timers[(TIMEOUT, transactional_id)] = now_ms + transaction.timeout_ms
        self._become(transaction.with_partitions(topic_partitions, client_version, now_ms), out)

    def partition_count(self, transactional_id: str) -> int:
        """Return the number of partitions of the transaction, 0 if it does not exist."""
        transaction = self.transactions.get(transactional_id)
        return 0 if transaction is None else len(transaction.partitions)

    def verify_partitions(self, transactional_id: str, producer: Producer) -> frozenset[TopicPartition]:
        """Return the partitions of the open transaction, for brokers that verify it (KIP-890).

        Raises as `add_partitions`.
        """
        transaction = self._known(transactional_id)
        _check_producer(transaction, producer)
        _check_not_pending(transaction)
        return transaction.partitions if transaction.state is State.ONGOING else frozenset()

    def _known(self, transactional_id: str) -> Transaction:
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            raise RequestError(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"there is no transactional id {transactional_id!r}"
            )
        return transaction

    # --- ending ---------------------------------------------------------------------------------------------

    def end(
        self,
        transactional_id: str,
        producer: Producer,
        *,
        commit: bool,
        client_version: int,
        new_producer_id: int | None,
        now_ms: int,
        out: Decision,
    ) -> Producer:
        """Commit or abort for the producer; returns the id and epoch for its next transaction.

        A repeated request gets the first answer again. Raises INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED,
        INVALID_TXN_STATE, CONCURRENT_TRANSACTIONS; ProducerIdNeededError as `init_producer`.
        """
        transaction = self._known(transactional_id)
        bumps = client_version >= EPOCH_BUMPED_SINCE
        state = transaction.state
        if bumps:
            _check_not_pending(transaction)
        # repeated by a client that did not get its new epoch, or its new id
        after_bump = bumps and transaction.epoch == producer.epoch + 1
        after_rotation = (
            bumps
            and transaction.previous_producer_id == producer.id
            and producer.epoch == EPOCH_MAX_OF_CLIENTS
            and transaction.epoch == 0
        )
        repeated = after_bump or after_rotation
        if transaction.producer_id != producer.id and not after_rotation:
            raise _wrong_id(transaction, producer)
        if not _may_end(transaction, producer, repeated=repeated):
            raise _fenced(transaction, producer)
        _check_not_pending(transaction)
        repeated = repeated or not bumps
        if state is not State.ONGOING:
            was_same = state is (State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT)
            if repeated and was_same:
                return transaction.producer
            if commit or repeated or not bumps:
                raise _impossible(transaction, commit=commit)
            # version 2 may abort a transaction that has not begun: the epoch bump prevents late requests from beginning
            # it
        if bumps and transaction.epoch > EPOCH_MAX_OF_CLIENTS:
            # fenced by the coordinator in its last epoch: only a new instance, with a new id, can continue
            raise _fenced(transaction, producer)
        next_id = NO_PRODUCER_ID
        if bumps and transaction.is_exhausted:
            if new_producer_id is None:
                raise ProducerIdNeededError
            next_id = new_producer_id
        new = transaction.prepared(
            commit=commit, client_version=client_version, now_ms=now_ms, next_producer_id=next_id
        )
        self._end(new, out)
        return Producer(next_id, 0) if next_id != NO_PRODUCER_ID else new.producer

    def _end(self, prepared: Transaction, out: Decision) -> None:
        out.timers[(TIMEOUT, prepared.id)] = None
        self._become(prepared, out)
        out.effects.append(_ending(prepared))

    def complete(self, ending: Ending, now_ms: int, out: Decision) -> None:
        """Complete a transaction after all partitions have its marker."""
        transaction = self.transactions.get(ending.transactional_id)
        if transaction is not None and transaction.state.is_prepared:
            self._become(transaction.completed(now_ms), out)

    # --- time -----------------------------------------------------------------------------------------------

    def expire(self, timer: Hashable, now_ms: int, out: Decision) -> None:
        """Abort a transaction that has exceeded its timeout."""
        assert isinstance(timer, tuple)
        transaction = self.transactions.get(timer[1])
        if transaction is not None and transaction.state is State.ONGOING:
            self._fence(transaction, now_ms, out)

    def expiring(self, now_ms: int) -> Iterator[Callable[[TransactionShard, Decision], None]]:
        """Yield events that remove expired transactional ids, some of them in each."""
        for ids in slices(tuple(self.transactions), IDS_PER_EVENT):
            yield partial(_expire, ids, now_ms)

    # --- replaying ------------------------------------------------------------------------------------------

    def _become(self, new: Transaction, out: Decision) -> None:
        self._decided[new.id] = new
        out.records.append(transaction_record(new, self.settings.record_version()))

    def replay(self, key: bytes, value: bytes | None, *, loading: bool) -> None:
        """Replay a record; `loading` when it is read again after a start. Raises DecodeError."""
        transactional_id = parse_key(key)
        if value is None:
            self.transactions.pop(transactional_id, None)
            self._decided.pop(transactional_id, None)
        elif loading:
            self.transactions[transactional_id] = parse_transaction(transactional_id, value)
        else:
            self.transactions[transactional_id] = self._decided.pop(transactional_id)

    def loaded(self, now_ms: int, out: Decision) -> None:
        """Resume open and prepared transactions, once all records have been replayed."""
        for transaction in self.transactions.values():
            if transaction.state is State.ONGOING and transaction.timeout_ms != NO_TIMEOUT_MS:
                due_ms = transaction.start_ms + transaction.timeout_ms
                out.timers[(TIMEOUT, transaction.id)] = max(due_ms, now_ms)
            elif transaction.state.is_prepared:
                out.effects.append(_ending(transaction))


def _expire(ids: Sequence[str], now_ms: int, shard: TransactionShard, out: Decision) -> None:
    limit_ms = now_ms - shard.settings.id_expiration_ms
    for transaction in filter(None, map(shard.transactions.get, ids)):
        idle = transaction.state in (State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT)
        if idle and transaction.update_ms <= limit_ms:
            out.records.append(transaction_tombstone(transaction.id))


def _ending(prepared: Transaction) -> Ending:
    return Ending(
        prepared.id,
        prepared.producer,
        prepared.state is State.PREPARE_COMMIT,
        prepared.partitions,
        prepared.client_version,
    )


def _is_known(transaction: Transaction, expected: Producer) -> bool:
    """Return whether a resuming producer is the current one of this id, or that before its epochs were used up."""
    if transaction.epoch == NO_EPOCH or expected.id == transaction.producer_id:
        return True
    return expected.id == transaction.previous_producer_id and expected.epoch >= EPOCH_MAX_OF_CLIENTS


def _next_epoch(transaction: Transaction, expected: Producer | None) -> tuple[int, int]:
    """Return epoch and last epoch for a producer that begins or resumes. Raises PRODUCER_FENCED."""
    if expected is None:
        return transaction.epoch + 1, NO_EPOCH
    if transaction.epoch in (NO_EPOCH, expected.epoch):
        return transaction.epoch + 1, transaction.epoch
    if expected.epoch == transaction.last_epoch:
        # a repeated request: the producer did not get the answer
        return transaction.epoch, transaction.last_epoch
    raise _fenced(transaction, expected)


def _may_end(transaction: Transaction, producer: Producer, *, repeated: bool) -> bool:
    """Return whether the epoch may end the transaction, or has ended it before."""
    return producer.epoch == transaction.epoch or (repeated and transaction.state.is_complete)


def _check_not_pending(transaction: Transaction) -> None:
    """Raise CONCURRENT_TRANSACTIONS while an end is prepared: the producer's state is about to change."""
    if transaction.state.is_prepared:
        raise RequestError(
            ErrorCode.CONCURRENT_TRANSACTIONS, f"the last transaction of {transaction.id!r} is being ended"
        )


def _check_producer(transaction: Transaction, producer: Producer) -> None:
    """Raise INVALID_PRODUCER_ID_MAPPING or PRODUCER_FENCED unless the producer is the current one."""
    if transaction.producer_id != producer.id:
        raise _wrong_id(transaction, producer)
    if transaction.epoch != producer.epoch:
        raise _fenced(transaction, producer)


def _wrong_id(transaction: Transaction, producer: Producer) -> RequestError:
    return RequestError(
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        f"{transaction.id!r} belongs to producer {transaction.producer_id}, not to {producer.id}",
    )


def _fenced(transaction: Transaction, producer: Producer) -> RequestError:
    return RequestError(
        ErrorCode.PRODUCER_FENCED,
        f"{transaction.id!r} is used by producer {transaction.producer_id} in epoch {transaction.epoch}; "
        f"producer {producer.id} came with epoch {producer.epoch}",
    )


def _impossible(transaction: Transaction, *, commit: bool) -> RequestError:
    return RequestError(
        ErrorCode.INVALID_TXN_STATE,
        f"{transaction.id!r} cannot {'commit' if commit else 'abort'} in state {transaction.state.title}",
    )
