"""Rows about idempotent and transactional producers: what is asked of producers that are not there, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnabas.tools.conformance.fixture import UNKNOWN_ID
from barnabas.tools.conformance.rows import LAST, Row, row
from barnabas.tools.conformance.trial import Trial

TIMEOUT_MS = 30_000


def rows() -> list[Row]:
    """Return the rows of this module."""
    return [*_init(), *_in_transactions(), *_described()]


def initializing(transactional_id: str | None, **changes: Any) -> dict[str, Any]:
    """Return an InitProducerId."""
    return {"transactional_id": transactional_id, "transaction_timeout_ms": TIMEOUT_MS} | changes


def adding(
    transactional_id: str, producer_id: int, epoch: int, topic: str, *partitions: int
) -> dict[str, Any]:
    """Return an AddPartitionsToTxn, in the fields of old versions and of new ones."""
    topics = [{"name": topic, "partitions": list(partitions)}]
    return {
        "transactions": [
            {
                "transactional_id": transactional_id,
                "producer_id": producer_id,
                "producer_epoch": epoch,
                "topics": topics,
            }
        ],
        "v3_and_below_transactional_id": transactional_id,
        "v3_and_below_producer_id": producer_id,
        "v3_and_below_producer_epoch": epoch,
        "v3_and_below_topics": topics,
    }


def _init() -> list[Row]:
    timeout = "The timeout of a transaction is more than 0 and no more than the broker allows: INVALID_TRANSACTION_TIMEOUT."
    half = "A producer that resumes names its id and its epoch, or neither: INVALID_REQUEST."

    def of_new(**changes: Any) -> Callable[[Trial, int], dict[str, Any]]:
        return lambda t, _: initializing(t.fresh("transaction"), **changes)

    return [
        row(
            "InitProducerId",
            "idempotent",
            "A producer without a transactional id is given an id of its own, and epoch 0.",
            "KIP-98",
            initializing(None),
            {"error_code": 0, "producer_id": lambda producer_id: producer_id >= 0, "producer_epoch": 0},
            with_topic=False,
        ),
        row(
            "InitProducerId",
            "an empty id",
            "A transactional id is null or not empty: INVALID_REQUEST.",
            "KIP-98",
            initializing(""),
            {"error_code": "INVALID_REQUEST"},
            with_topic=False,
        ),
        row(
            "InitProducerId",
            "timeout 0",
            timeout,
            "KIP-98",
            of_new(transaction_timeout_ms=0),
            {"error_code": "INVALID_TRANSACTION_TIMEOUT"},
            with_topic=False,
        ),
        row(
            "InitProducerId",
            "timeout -1",
            timeout,
            "KIP-98",
            of_new(transaction_timeout_ms=-1),
            {"error_code": "INVALID_TRANSACTION_TIMEOUT"},
            with_topic=False,
        ),
        row(
            "InitProducerId",
            "timeout too long",
            timeout,
            "KIP-98",
            of_new(transaction_timeout_ms=2**31 - 1),
            {"error_code": "INVALID_TRANSACTION_TIMEOUT"},
            with_topic=False,
        ),
        row(
            "InitProducerId",
            "an id without an epoch",
            half,
            "KIP-360",
            of_new(producer_id=5),
            {"error_code": "INVALID_REQUEST"},
            (3, LAST),
            with_topic=False,
        ),
        row(
            "InitProducerId",
            "an epoch without an id",
            half,
            "KIP-360",
            of_new(producer_epoch=0),
            {"error_code": "INVALID_REQUEST"},
            (3, LAST),
            with_topic=False,
        ),
    ]


def _in_transactions() -> list[Row]:
    unknown = "A transactional id that no producer has begun with is INVALID_PRODUCER_ID_MAPPING."
    nobody = {"INVALID_PRODUCER_ID_MAPPING"}

    def producer(**changes: Any) -> Callable[[Trial, int], dict[str, Any]]:
        return lambda t, _: (
            {"transactional_id": t.unknown_transaction, "producer_id": 1, "producer_epoch": 0} | changes
        )

    def results(code: Any) -> Callable[[Trial, int], dict[str, Any]]:
        end = "results_by_partition.0.partition_error_code"
        return lambda _, v: (
            {f"results_by_transaction.0.topic_results.0.{end}": code}
            if v >= 4
            else {f"results_by_topic_v3_and_below.0.{end}": code}
        )

    return [
        row(
            "AddPartitionsToTxn",
            "an unknown id",
            unknown,
            "KIP-98",
            lambda t, _: adding(t.unknown_transaction, 1, 0, t.topic, 0),
            results("INVALID_PRODUCER_ID_MAPPING"),
        ),
        row(
            "AddPartitionsToTxn",
            "an unknown topic",
            "A topic that does not exist is UNKNOWN_TOPIC_OR_PARTITION.",
            "KIP-98",
            lambda t, _: adding(t.unknown_transaction, 1, 0, "conform-no-such-topic", 0),
            results("UNKNOWN_TOPIC_OR_PARTITION"),
            with_topic=False,
        ),
        row(
            "AddOffsetsToTxn",
            "an unknown id",
            unknown,
            "KIP-98",
            lambda t, _: {
                "transactional_id": t.unknown_transaction,
                "producer_id": 1,
                "producer_epoch": 0,
                "group_id": t.unknown,
            },
            {"error_code": nobody},
            with_topic=False,
        ),
        row(
            "EndTxn",
            "an unknown id",
            unknown,
            "KIP-98",
            producer(committed=True),
            {"error_code": nobody},
            with_topic=False,
        ),
        row(
            "TxnOffsetCommit",
            "an unknown topic",
            "A topic that does not exist is UNKNOWN_TOPIC_OR_PARTITION, a topic id UNKNOWN_TOPIC_ID.",
            "KIP-98, KIP-1319",
            lambda t, _: {
                "transactional_id": t.unknown_transaction,
                "producer_id": 1,
                "producer_epoch": 0,
                "group_id": t.unknown,
                "topics": [
                    {
                        "name": "conform-no-such-topic",
                        "topic_id": UNKNOWN_ID,
                        "partitions": [
                            {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
                        ],
                    }
                ],
            },
            lambda _, v: {
                "topics.0.partitions.0.error_code": (
                    "UNKNOWN_TOPIC_ID" if v >= 6 else "UNKNOWN_TOPIC_OR_PARTITION"
                )
            },
            with_topic=False,
        ),
        row(
            "WriteTxnMarkers",
            "nothing",
            "Nothing is written where nothing is named.",
            "KIP-98",
            {"markers": []},
            {"markers.len": 0},
            with_topic=False,
        ),
    ]


def _described() -> list[Row]:
    return [
        row(
            "DescribeTransactions",
            "an unknown id",
            "A transactional id that no producer has begun with is TRANSACTIONAL_ID_NOT_FOUND.",
            "KIP-664",
            lambda t, _: {"transactional_ids": [t.unknown_transaction]},
            lambda t, _: {
                "transaction_states.0.error_code": "TRANSACTIONAL_ID_NOT_FOUND",
                "transaction_states.0.transactional_id": t.unknown_transaction,
            },
            with_topic=False,
        ),
        row(
            "DescribeTransactions",
            "an empty id",
            "A transactional id is not empty: INVALID_REQUEST.",
            "KIP-664",
            {"transactional_ids": [""]},
            {"transaction_states.0.error_code": "INVALID_REQUEST"},
            with_topic=False,
        ),
        row(
            "DescribeTransactions",
            "nothing",
            "Nothing is described where nothing is named.",
            "KIP-664",
            {"transactional_ids": []},
            {"transaction_states.len": 0},
            with_topic=False,
        ),
        row(
            "ListTransactions",
            "an unknown state",
            "A state that there is not is named in the answer, and nothing is in it.",
            "KIP-664",
            {"state_filters": ["NoSuchState"]},
            {"error_code": 0, "unknown_state_filters": ["NoSuchState"], "transaction_states.len": 0},
            with_topic=False,
        ),
        row(
            "ListTransactions",
            "an unknown producer",
            "No transaction is of a producer that there is not.",
            "KIP-664",
            {"producer_id_filters": [10**15]},
            {"error_code": 0, "transaction_states.len": 0},
            with_topic=False,
        ),
        row(
            "ListTransactions",
            "a pattern that is none",
            "An expression that is none is INVALID_REGULAR_EXPRESSION.",
            "KIP-1152",
            {"transactional_id_pattern": "["},
            {"error_code": "INVALID_REGULAR_EXPRESSION"},
            (2, LAST),
            with_topic=False,
        ),
    ]
