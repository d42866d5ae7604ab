"""A partition as its fetcher sees it: its stage, and the time of its next action."""

from __future__ import annotations

import math
from enum import Enum, auto
from typing import TYPE_CHECKING

from barnabas.cluster.replicas.remote_leader import NO_TOPIC_ID, Ask
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.cluster.replicas.following import FollowerLog
    from barnabas.cluster.replicas.replica import Replica
    from barnabas.wire.topic_partitions import TopicPartition


RETRY_MS_MIN = 20
"""The first wait after an error that passes once both brokers have the newest metadata; doubled with each further one, up
to `replica.fetch.backoff.ms`."""

PASSING = frozenset((
    ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID, ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.FENCED_LEADER_EPOCH,
))  # fmt: skip
"""Errors that mean that the leader, or this broker, has older metadata than the other."""


class Stage(Enum):
    """Stage of a partition that a fetcher follows."""

    NEW = auto()
    TRUNCATING = auto()
    """The leader must be asked where the logs diverge before records are fetched."""
    FETCHING = auto()
    OUT_OF_RANGE = auto()
    """The leader must be asked for the start and end of its log."""
    TIERED = auto()
    """Its log is being restarted after the records in tiered storage; until then nothing is fetched."""
    FAILED = auto()
    """Nothing is done until the metadata name another leader epoch."""


class Followed:
    """A partition of a fetcher; `again_at` is trio's clock (s)."""

    __slots__ = (
        "again_at", "failures", "follower", "is_aside", "is_in_sync", "last_error", "replica", "stage",
    )  # fmt: skip

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.follower: FollowerLog | None = None
        self.stage = Stage.NEW
        self.again_at = -math.inf
        self.failures = 0
        self.is_in_sync = False
        self.is_aside = False
        """True if it came while a request was under way, and is fetched beside it until that is answered."""
        self.last_error = ""

    def ask(self) -> Ask:
        """Return the parameters of the fetch from the leader."""
        assert self.follower is not None
        replica = self.replica
        return Ask(replica.topic, replica.index, replica.log.topic_id or NO_TOPIC_ID, self.follower.position)

    def delay(self, why: str, now_s: float, *, backoff_ms: int, is_passing: bool) -> bool:
        """Pause the partition after an error, for less time after a transient one; returns whether `why` is a new error."""
        if is_passing:
            backoff_ms = min(backoff_ms, RETRY_MS_MIN << min(self.failures, 10))
        self.failures += 1
        self.again_at = now_s + backoff_ms / 1000
        self.is_in_sync = False
        is_news = why != self.last_error
        self.last_error = why
        return is_news

    def went_well(self) -> None:
        """Take note that a request has brought no error."""
        self.failures = 0
        self.last_error = ""


class Chosen:
    """The partitions in the requests of one way, with their fetch parameters; kept from one request to the next."""

    __slots__ = ("_changed", "asks", "followed")

    def __init__(self) -> None:
        self.followed: dict[TopicPartition, Followed] = {}
        self.asks: dict[TopicPartition, Ask] = {}
        """Partitions that have changed are last: they are served after those that got no records."""
        self._changed: dict[TopicPartition, None] = {}

    def put(self, key: TopicPartition, followed: Followed, ask: Ask) -> None:
        """Ask for a partition, from where it stands now."""
        self.followed[key] = followed
        if self.asks.get(key) != ask:
            self.asks.pop(key, None)
            self.asks[key] = ask
            self._changed[key] = None

    def drop(self, key: TopicPartition) -> None:
        """Stop fetching a partition."""
        if self.followed.pop(key, None) is not None:
            del self.asks[key]
            self._changed[key] = None

    def clear(self) -> None:
        """Ask for nothing."""
        self.followed.clear()
        self.asks.clear()
        self._changed.clear()

    def take_changed(self) -> list[TopicPartition]:
        """Return the partitions in which `asks` has changed since this was called before."""
        changed, self._changed = list(self._changed), {}
        return changed
