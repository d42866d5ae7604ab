"""Values of a replica of the quorum: its role, its settings, and its requests. Pure.

The rule: times are in ms of any monotonic clock; a directory id of zeros is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, Final, NamedTuple

from barnabas.cluster.kraft.quorum import Leadership
from barnabas.cluster.kraft.replica_values import Vote
from barnabas.cluster.kraft.values import MIGRATING, LevelRange, Voter
from barnabas.config.quorum import Address, QuorumSettings

KRAFT_VERSIONS: Final = LevelRange(0, 1)
"""Supported levels of kraft.version: from 1 on, voters are in the log (KIP-853)."""
BATCH_BYTES_MAX: Final = 8 << 20
"""Bytes of one answer to a Fetch, and of one batch, as in Kafka."""


class Role(Enum):
    """Role of a replica in its epoch (KIP-595, KIP-996)."""

    UNATTACHED = "unattached"
    PROSPECTIVE = "prospective"
    CANDIDATE = "candidate"
    LEADER = "leader"
    FOLLOWER = "follower"
    RESIGNED = "resigned"


class ReplicaKey(NamedTuple):
    """A replica: its node, and its metadata directory."""

    id: int
    directory_id: bytes = MIGRATING


class RaftSettings(NamedTuple):
    """Settings of a replica with Kafka's defaults; times in ms."""

    listener: str = "CONTROLLER"
    """The listener at which voters are reached."""
    endpoints: tuple[tuple[str, str, int], ...] = ()
    """This node's listeners: name, host and port, as other nodes reach them."""
    bootstrap: tuple[Address, ...] = ()
    static_voters: Mapping[int, Address] = {}
    election_timeout_ms: int = 1_000
    election_backoff_max_ms: int = 1_000
    fetch_timeout_ms: int = 2_000
    request_timeout_ms: int = 2_000
    retry_backoff_ms: int = 20
    linger_ms: int = 25
    fetch_bytes_max: int = 1 << 20
    snapshot_bytes_max: int = 1 << 20
    kraft_versions: LevelRange = KRAFT_VERSIONS
    joins: bool = False
    """True if this node asks to become a voter (controller.quorum.auto.join.enable, KIP-1186)."""

    @classmethod
    def of(
        cls, quorum: QuorumSettings, endpoints: Iterable[tuple[str, str, int]], **times: Any
    ) -> RaftSettings:
        """Return the settings of a voter; `times` are those that an observer does not have."""
        return cls(
            listener=quorum.listener,
            endpoints=tuple(endpoints),
            bootstrap=quorum.bootstrap,
            static_voters=quorum.static_voters,
            fetch_timeout_ms=quorum.fetch_timeout_ms,
            request_timeout_ms=quorum.request_timeout_ms,
            retry_backoff_ms=quorum.retry_backoff_ms,
            fetch_bytes_max=quorum.fetch_bytes_max,
            snapshot_bytes_max=quorum.snapshot_bytes_max,
            **times,
        )

    def voters(self, leadership: Leadership) -> tuple[Voter, ...]:
        """Return the voters: from kraft.version 1 on those of the log, else the static ones."""
        if leadership.kraft_version:
            return leadership.voters
        return tuple(
            Voter(voter_id, endpoints=((self.listener, host, port),))
            for voter_id, (host, port) in sorted(self.static_voters.items())
        )

    def address_of(self, voter: Voter) -> Address | None:
        """Return the address of a voter at the listener of the quorum; None without that listener."""
        return address_by(voter.endpoints, self.listener)


def address_by(endpoints: Iterable[tuple[str, str, int]], listener: str) -> Address | None:
    """Return host and port of a listener, by its name; None if it is absent."""
    return next(((host, port) for name, host, port in endpoints if name == listener), None)


def is_same(named: Voter | Vote | ReplicaKey, key: ReplicaKey) -> bool:
    """Return whether two names are of the same replica; without a directory id, any replica with the node id is."""
    return named.id == key.id and named.directory_id in (MIGRATING, key.directory_id)


class Send(NamedTuple):
    """A request to another replica; its outcome goes to `Replica.answered` or `Replica.failed`.

    `key` is the receiving voter, or `FETCHING` for the fetch of the log.
    """

    number: int
    key: int
    address: Address
    message: Any
