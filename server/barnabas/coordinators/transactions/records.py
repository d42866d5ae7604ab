"""Records of __transaction_state in Kafka's formats. Pure."""

from __future__ import annotations

from barnabas.coordinators.statemachine.decision import Record
from barnabas.coordinators.transactions.transaction import BY_NUMBER, State, Transaction
from barnabas.wire.errors import DecodeError
from barnabas.wire.generated.records import transaction_log
from barnabas.wire.generated.records.transaction_log import TransactionLogKey, TransactionLogValue

WITH_CLIENT_VERSION_SINCE = 1
"""First version with the fields of transaction version 2; brokers with version 1 alone can read only earlier ones."""


def transaction_record(transaction: Transaction, version: int) -> Record:
    """Return the record of a transactional id, its value in this version."""
    key, _ = transaction_tombstone(transaction.id)
    return key, transaction_log.RECORD.encode_value(_value(transaction, version), version)


def transaction_tombstone(transactional_id: str) -> Record:
    """Return the tombstone of a transactional id."""
    return transaction_log.RECORD.encode_key(TransactionLogKey(transactional_id=transactional_id)), None


def _value(transaction: Transaction, version: int) -> TransactionLogValue:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in transaction.partitions:
        by_topic.setdefault(topic, []).append(partition)
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state.number,
        transaction_partitions=None
        if transaction.state is State.EMPTY
        else [
            TransactionLogValue.PartitionsSchema(topic=topic, partition_ids=sorted(by_topic[topic]))
            for topic in sorted(by_topic)
        ],
        transaction_last_update_timestamp_ms=transaction.update_ms,
        transaction_start_timestamp_ms=transaction.start_ms,
    )
    if version >= WITH_CLIENT_VERSION_SINCE:
        value.previous_producer_id = transaction.previous_producer_id
        value.next_producer_id = transaction.next_producer_id
        value.client_transaction_version = transaction.client_version
    return value


def parse_key(key: bytes) -> str:
    """Return the transactional id of a record. Raises DecodeError."""
    return transaction_log.RECORD.decode_key(key).transactional_id


def parse_transaction(transactional_id: str, data: bytes) -> Transaction:
    """Return the transaction in a record. The last epoch is not in it, as in Kafka. Raises DecodeError."""
    value = transaction_log.RECORD.decode_value(data)
    state = BY_NUMBER.get(value.transaction_status)
    if state is None:
        raise DecodeError(
            f"{value.transaction_status} is no state", "TransactionLogValue.transaction_status", 0
        )
    return Transaction(
        id=transactional_id,
        producer_id=value.producer_id,
        epoch=value.producer_epoch,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        timeout_ms=value.transaction_timeout_ms,
        state=state,
        partitions=frozenset(
            (topic.topic, partition)
            for topic in value.transaction_partitions or ()
            for partition in topic.partition_ids
        ),
        start_ms=value.transaction_start_timestamp_ms,
        update_ms=value.transaction_last_update_timestamp_ms,
        client_version=value.client_transaction_version,
    )
