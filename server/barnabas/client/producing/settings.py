"""Settings of a producer.

The rule: names, meanings and defaults are those of Kafka's producer, except where a comment gives a reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from barnabas.client.named_settings import Readers, boolean, one_of, read_named, whole
from barnabas.records.compression import CODECS_BY_NAME, is_valid_level

IN_FLIGHT_MAX = 5
"""Requests under way to one broker that idempotence allows: a broker remembers that many batches of a producer."""


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """Settings of a producer; times in ms, sizes in bytes."""

    acks: int = -1
    """Replicas that must have a record before it is acknowledged: -1 all in-sync replicas, 1 the leader, 0 none."""
    linger_ms: float = 5
    """For how long a batch that is not full waits for more records."""
    batch_bytes: int = 128 << 10
    """Records of a batch, before compression. Kafka's 16 KiB would mean a request for each few records."""
    request_bytes_max: int = 1 << 20
    buffer_bytes: int = 32 << 20
    """All records that are not acknowledged yet; `send` waits while there are more."""
    max_block_ms: float = 60_000
    """For how long `send` waits for room or metadata, and an end of a transaction for its coordinator."""
    delivery_timeout_ms: float = 120_000
    """From `send` to the acknowledgement, with all retries."""
    ack_timeout_ms: int = 30_000
    """For how long a leader waits for the in-sync replicas."""
    in_flight_max: int = IN_FLIGHT_MAX
    """Requests under way to each broker."""
    compression: str = "none"
    """none, gzip, snappy, lz4 or zstd."""
    compression_level: int | None = None
    is_idempotent: bool = True
    """True if each record is in the log once and in order, in spite of retries."""
    transactional_id: str | None = None
    transaction_timeout_ms: int = 60_000
    """After which the coordinator aborts a transaction that is still open."""
    creates_topics: bool = True

    def __post_init__(self) -> None:
        if self.acks not in (-1, 0, 1):
            raise ValueError(f"acks is 0, 1 or -1, not {self.acks}")
        if self.compression not in CODECS_BY_NAME:
            raise ValueError(f"compression is one of {', '.join(CODECS_BY_NAME)}, not {self.compression!r}")
        level = self.compression_level
        if level is not None and not is_valid_level(CODECS_BY_NAME[self.compression], level):
            raise ValueError(f"{self.compression} has no level {level}")
        if self.is_idempotent and self.acks != -1:
            raise ValueError("an idempotent producer has acks=-1 (all); give is_idempotent=False for others")
        if self.is_idempotent and not 1 <= self.in_flight_max <= IN_FLIGHT_MAX:
            raise ValueError(f"an idempotent producer has 1 to {IN_FLIGHT_MAX} requests in flight")
        if self.transactional_id is not None and not (self.is_idempotent and self.transactional_id):
            raise ValueError("a transactional producer is idempotent, and its transactional id is not empty")
        if min(self.batch_bytes, self.request_bytes_max, self.buffer_bytes, self.in_flight_max) < 1:
            raise ValueError("sizes, and the number of requests in flight, are 1 or more")

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> ProducerSettings:
        """Read settings by their names in Kafka and librdkafka; other names are ignored. Raises ValueError."""
        fields = read_named(_READERS, settings)
        if fields.get("acks", -1) != -1 and "enable.idempotence" not in settings:
            fields["is_idempotent"] = False  # as Kafka: acks decides where idempotence was not asked for
        return cls(**fields)


def _acks(text: str) -> int:
    return {"all": -1, "-1": -1, "1": 1, "0": 0}[one_of("all", "-1", "0", "1")(text)]


def _compression(text: str) -> str:
    return one_of(*CODECS_BY_NAME)(text)


def _signed(text: str) -> Any:
    return int(text)


_READERS: Readers = {
    "acks": ("acks", _acks),
    "request.required.acks": ("acks", _acks),
    "linger.ms": ("linger_ms", float),
    "queue.buffering.max.ms": ("linger_ms", float),
    "batch.size": ("batch_bytes", whole),
    "max.request.size": ("request_bytes_max", whole),
    "message.max.bytes": ("request_bytes_max", whole),
    "buffer.memory": ("buffer_bytes", whole),
    "max.block.ms": ("max_block_ms", float),
    "delivery.timeout.ms": ("delivery_timeout_ms", float),
    "message.timeout.ms": ("delivery_timeout_ms", float),
    "request.timeout.ms": ("ack_timeout_ms", whole),
    "max.in.flight.requests.per.connection": ("in_flight_max", whole),
    "max.in.flight": ("in_flight_max", whole),
    "compression.type": ("compression", _compression),
    "compression.codec": ("compression", _compression),
    "compression.level": ("compression_level", _signed),
    "enable.idempotence": ("is_idempotent", boolean),
    "transactional.id": ("transactional_id", str),
    "transaction.timeout.ms": ("transaction_timeout_ms", whole),
    "allow.auto.create.topics": ("creates_topics", boolean),
}
