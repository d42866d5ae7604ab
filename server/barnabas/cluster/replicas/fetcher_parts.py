"""Parts that all fetchers of a broker share, and the two ways of a fetcher to its leader."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from barnabas.cluster.metadata.peers import Peers
    from barnabas.cluster.replicas.followed import Chosen
    from barnabas.cluster.replicas.ports import Throttle, TierStarts
    from barnabas.cluster.replicas.remote_leader import RemoteLeader
    from barnabas.cluster.replicas.replica import Replica
    from barnabas.cluster.replication.fetch_session import FetcherSession
    from barnabas.config.loading import BrokerConfig
    from barnabas.errors import RequestError, StorageError
    from barnabas.serving.loop_budget import LoopBudget


@dataclass(slots=True)
class FetcherParts:
    """Parts that all fetchers of a broker share; `now_ms` is the wall clock, `tiers` is None without tiered storage."""

    peers: Peers
    config: BrokerConfig
    budget: LoopBudget
    storage_failed: Callable[[StorageError], RequestError]
    now_ms: Callable[[], int]
    throttle: Throttle[Replica]
    tiers: TierStarts | None = None


class Way(NamedTuple):
    """A connection to the leader, and the session on it."""

    leader: RemoteLeader
    session: FetcherSession
    chosen: Chosen
    is_aside: bool
    """True for partitions that came while a request was under way."""
