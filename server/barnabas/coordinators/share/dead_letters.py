"""Records that a share group gives up, and what is written of them into its dead letter queue (KIP-1191). Pure.

The rule: a record in the queue has the headers of Kafka's, in its order, and is as large as the topic allows; of a record
that is gone, or too large to be copied, there are the headers alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from barnabas.records.batch import HEADER_SIZE
from barnabas.records.building import encode_batch
from barnabas.records.record import Record, encode_body

REJECTED = "Offset rejected by client."
EXCEEDED = "Offset delivery count exceeded the threshold."
"""Causes, with the words of Kafka's, which clients may compare."""


class DeadLetters(NamedTuple):
    """Offsets `first` to `last` of a partition, delivered `deliveries` times, and why they are given up."""

    first: int
    last: int
    deliveries: int
    cause: str


class Original(NamedTuple):
    """Key and value of a record that is given up."""

    key: bytes | None = None
    value: bytes | None = None


class Origin(NamedTuple):
    """Partition and share group that records in a dead letter queue are from."""

    topic: str
    partition: int
    group_id: str


NOTHING = Original()
RECORDS_MAX = 500
"""Of one batch: so many are encoded in some milliseconds."""


def headers_of(origin: Origin, letters: DeadLetters, offset: int) -> list[tuple[str, bytes | None]]:
    """Return the headers that say where a record is from and what became of it."""
    texts = {
        "topic": origin.topic,
        "partition": str(origin.partition),
        "offset": str(offset),
        "group": origin.group_id,
        "delivery.count": str(letters.deliveries),
        "message": letters.cause,
    }
    return [(f"__dlq.errors.{name}", text.encode()) for name, text in texts.items()]


def next_batch(
    origin: Origin,
    letters: DeadLetters,
    originals: Mapping[int, Original],
    *,
    now_ms: int,
    bytes_max: int,
) -> tuple[bytearray, int]:
    """Encode as many records as one batch of the queue may have, at least one; returns it, and the offset after them."""
    records: list[Record] = []
    size = HEADER_SIZE
    for offset in range(letters.first, min(letters.last, letters.first + RECORDS_MAX - 1) + 1):
        original = originals.get(offset, NOTHING)
        headers = headers_of(origin, letters, offset)
        record = Record(len(records), now_ms, original.key, original.value, headers)
        size += len(encode_body([record], 0, now_ms))
        if size > bytes_max and records:
            break
        records.append(record)
    return bytearray(encode_batch(records)), letters.first + len(records)
