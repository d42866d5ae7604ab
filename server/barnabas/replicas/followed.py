"""A partition as its fetcher sees it: in which stage it is, and when something may be done for it."""

from __future__ import annotations

import math
from enum import Enum, auto
from typing import TYPE_CHECKING

from barnabas.replicas.remote_leader import NO_TOPIC_ID, Ask

if TYPE_CHECKING:
    from barnabas.replicas.following import FollowerLog
    from barnabas.replicas.replica import Replica


class Stage(Enum):
    """Where a partition stands."""

    NEW = auto()
    TRUNCATING = auto()
    """The leader must be asked where the logs part before anything is fetched."""
    FETCHING = auto()
    OUT_OF_RANGE = auto()
    """The leader must be asked where its log begins and ends."""
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
        """Whether it came while a request was under way, and is fetched beside it until that is answered."""
        self.last_error = ""

    def ask(self) -> Ask:
        """Return what to ask the leader for."""
        assert self.follower is not None
        replica = self.replica
        return Ask(replica.topic, replica.index, replica.log.topic_id or NO_TOPIC_ID, self.follower.position)
