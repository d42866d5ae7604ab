"""Records that a share group gives up, and their form in its dead letter queue (KIP-1191). Pure.

The rule: a record in the queue has Kafka's headers, in Kafka's order, and is at most as large as the topic allows; for a
missing or too large record there are only the headers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from barnabas.records.batch import HEADER_SIZE
from barnabas.records.building import batch_of_body
from barnabas.records.record import append_record

REJECTED = "Offset rejected by client."
EXCEEDED = "Offset delivery count exceeded the threshold."
"""Causes, in Kafka's words, which clients may compare."""


class DeadLetters(NamedTuple):
    """Offsets `first` to `last` of a partition, delivered `deliveries` times, and the cause for giving them up."""

    first: int
    last: int
    deliveries: int
    cause: str


class Original(NamedTuple):
    """Key and value of a given-up record."""

    key: bytes | None = None
    value: bytes | None = None


class Origin(NamedTuple):
    """Origin of records in a dead letter queue: partition and share group."""

    topic: str
    partition: int
    group_id: str


NOTHING = Original()
RECORDS_MAX = 500
"""Records of one batch: they are encoded in some milliseconds."""


def headers_of(origin: Origin, letters: DeadLetters, offset: int) -> list[tuple[str, bytes | None]]:
    """Return the headers with the origin of a record and the cause."""
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
    """Encode the records of one batch of the queue, at least one; returns the batch, and the offset after them."""
    body = bytearray()
    count = 0
    for offset in range(letters.first, min(letters.last, letters.first + RECORDS_MAX - 1) + 1):
        original = originals.get(offset, NOTHING)
        size = len(body)
        append_record(body, 0, count, original.key, original.value, headers_of(origin, letters, offset))
        if HEADER_SIZE + len(body) > bytes_max and count:
            del body[size:]
            break
        count += 1
    return batch_of_body(body, count, now_ms), letters.first + count
