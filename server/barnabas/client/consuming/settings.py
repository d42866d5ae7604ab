"""Settings of a consumer.

The rule: names, meanings and defaults are those of Kafka's consumer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from barnabas.client.consuming.assignors import ASSIGNORS, is_cooperative
from barnabas.client.named_settings import Readers, boolean, one_of, read_named, whole

RESETS = ("earliest", "latest", "none")
READ_COMMITTED, READ_UNCOMMITTED = "read_committed", "read_uncommitted"
_RESET_WORDS = {
    "smallest": "earliest",
    "beginning": "earliest",
    "largest": "latest",
    "end": "latest",
    "error": "none",
}


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """Settings of a consumer; times in ms, sizes in bytes."""

    group_id: str | None = None
    """The group that keeps its offsets and, with `subscribe`, shares out the partitions."""
    instance_id: str | None = None
    """The id of a static member, which may go away and come back without a rebalance (KIP-345)."""
    group_protocol: str = "classic"
    """classic, or consumer (KIP-848): the broker assigns, and heartbeats say everything."""
    assignors: tuple[str, ...] = ("range", "cooperative-sticky")
    """Assignors of the classic protocol, the preferred one first; cooperative only if all of them are."""
    server_assignor: str | None = None
    """Assignor of the consumer protocol: uniform or range; None for the broker's choice."""
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    """For how long a program may be busy with a record; after that, its partitions go to others."""
    is_auto_committing: bool = True
    """True to commit offsets of records that the program is done with from time to time."""
    auto_commit_interval_ms: int = 5_000
    offset_reset: str = "latest"
    """Beginning without a committed offset, or with one that is out of range: earliest, latest or none (an error)."""
    isolation: str = READ_UNCOMMITTED
    """read_committed waits for the end of transactions, and leaves aborted ones out."""
    fetch_bytes_min: int = 1
    fetch_wait_ms_max: int = 500
    fetch_bytes_max: int = 50 << 20
    partition_bytes_max: int = 1 << 20
    prefetch_bytes: int = 32 << 20
    """All records that wait to be handed out; no more are fetched while there are more."""
    checks_crcs: bool = True
    rack: str = ""
    """The rack of the consumer, so that it reads from a replica nearby (KIP-392)."""
    creates_topics: bool = False

    def __post_init__(self) -> None:
        if self.offset_reset not in RESETS:
            raise ValueError(f"offset_reset is one of {', '.join(RESETS)}, not {self.offset_reset!r}")
        if self.isolation not in (READ_COMMITTED, READ_UNCOMMITTED):
            raise ValueError(f"isolation is {READ_COMMITTED} or {READ_UNCOMMITTED}, not {self.isolation!r}")
        if self.group_protocol not in ("classic", "consumer"):
            raise ValueError(f"group_protocol is classic or consumer, not {self.group_protocol!r}")
        if not self.assignors or not set(self.assignors) <= ASSIGNORS.keys():
            raise ValueError(f"assignors are some of {', '.join(ASSIGNORS)}, not {self.assignors}")
        if not 0 < self.heartbeat_interval_ms < self.session_timeout_ms:
            raise ValueError("heartbeats come more often than a session lasts")
        if self.group_id == "" or (self.instance_id is not None and self.group_id is None):
            raise ValueError("a group has an id, and a static member a group")
        if min(self.partition_bytes_max, self.fetch_bytes_max, self.prefetch_bytes) < 1:
            raise ValueError("sizes are 1 or more")

    @property
    def is_committed_only(self) -> bool:
        """True if records of open and of aborted transactions are not read."""
        return self.isolation == READ_COMMITTED

    @property
    def is_cooperative(self) -> bool:
        """True if a classic member keeps its partitions while the group rebalances."""
        return is_cooperative(self.assignors)

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> ConsumerSettings:
        """Read settings by their names in Kafka and librdkafka; other names are ignored. Raises ValueError."""
        return cls(**read_named(_READERS, settings))


def _reset(text: str) -> str:
    word = text.lower()
    return one_of(*RESETS)(_RESET_WORDS.get(word, word))


def _assignors(text: str) -> tuple[str, ...]:
    names = []
    for part in text.split(","):
        name = part.strip()
        matching = [assignor for assignor, entry in ASSIGNORS.items() if name in (assignor, entry.java_class)]
        if not matching:
            raise ValueError(f"assignors are {', '.join(ASSIGNORS)}")
        names += matching
    return tuple(names)


_READERS: Readers = {
    "group.id": ("group_id", str),
    "group.instance.id": ("instance_id", str),
    "group.protocol": ("group_protocol", one_of("classic", "consumer")),
    "group.remote.assignor": ("server_assignor", str),
    "partition.assignment.strategy": ("assignors", _assignors),
    "session.timeout.ms": ("session_timeout_ms", whole),
    "heartbeat.interval.ms": ("heartbeat_interval_ms", whole),
    "max.poll.interval.ms": ("max_poll_interval_ms", whole),
    "enable.auto.commit": ("is_auto_committing", boolean),
    "auto.commit.interval.ms": ("auto_commit_interval_ms", whole),
    "auto.offset.reset": ("offset_reset", _reset),
    "isolation.level": ("isolation", one_of(READ_COMMITTED, READ_UNCOMMITTED)),
    "fetch.min.bytes": ("fetch_bytes_min", whole),
    "fetch.max.wait.ms": ("fetch_wait_ms_max", whole),
    "fetch.wait.max.ms": ("fetch_wait_ms_max", whole),
    "fetch.max.bytes": ("fetch_bytes_max", whole),
    "max.partition.fetch.bytes": ("partition_bytes_max", whole),
    "fetch.message.max.bytes": ("partition_bytes_max", whole),
    "check.crcs": ("checks_crcs", boolean),
    "client.rack": ("rack", str),
    "allow.auto.create.topics": ("creates_topics", boolean),
}
