"""All services for handlers, by name.

The rule: a handler names the services that it needs in its fields, and gets no others; a test checks that names and
types agree. Services that few brokers need are created when a handler with them is first used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from barnabas.cluster.kraft.forwarding import Forwarder
    from barnabas.cluster.metadata.delegation_tokens import DelegationTokens
    from barnabas.cluster.metadata.ports import ConsumerOffsets, Controller, FeatureLevels, Member
    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.cluster.metadata.topic_creation import TopicCreation
    from barnabas.cluster.replicas.failures import LogDirFailures
    from barnabas.cluster.replicas.manager import Replicas
    from barnabas.cluster.replicas.moving import LogMover
    from barnabas.cluster.tiering.manager import TieredStorage
    from barnabas.config.listeners import ListenerSecurity
    from barnabas.config.loading import BrokerConfig
    from barnabas.coordinators.groups.coordinator import GroupCoordinator
    from barnabas.coordinators.locator import CoordinatorLocator
    from barnabas.coordinators.share.shares import Shares
    from barnabas.coordinators.transactions.coordinator import TransactionCoordinator
    from barnabas.coordinators.transactions.markers import LocalMarkers
    from barnabas.coordinators.transactions.ports import ProducerIds, TransactionVerifier
    from barnabas.environment import Entropy, Threads
    from barnabas.environment.lazy import Lazy
    from barnabas.log.manager import LogManager
    from barnabas.metrics.client_telemetry import Telemetry
    from barnabas.serving.apis import Api
    from barnabas.serving.fetch_sessions import FetchSessions
    from barnabas.serving.loop_budget import LoopBudget
    from barnabas.serving.release import ReleaseProfile
    from barnabas.serving.step_runner import StepRunner


class Services(NamedTuple):
    """The parts of one broker that requests are about."""

    config: BrokerConfig
    release: ReleaseProfile
    broker_id: int
    clock_ms: Callable[[], int]
    entropy: Entropy
    threads: Threads
    served: Mapping[int, Api]
    budget: LoopBudget
    step_runner: StepRunner
    metadata: MetadataStore
    controller: Controller
    topic_creation: TopicCreation
    logs: LogManager
    replicas: Replicas
    failures: LogDirFailures
    log_mover: LogMover
    fetch_sessions: FetchSessions
    producer_ids: ProducerIds
    coordinator_locator: CoordinatorLocator
    group_coordinator: GroupCoordinator
    markers: LocalMarkers
    transaction_coordinator: TransactionCoordinator
    transaction_verifier: TransactionVerifier
    feature_levels: FeatureLevels | None
    consumer_offsets: ConsumerOffsets | None
    lazy_delegation_tokens: Lazy[DelegationTokens]
    lazy_shares: Lazy[Shares]
    lazy_telemetry: Lazy[Telemetry]
    security: ListenerSecurity
    forwarder: Forwarder | None = None
    """The way to the active controller of a KRaft quorum; None without one."""
    membership: Member | None = None
    """None where the broker is alone."""
    tiered: TieredStorage | None = None
    """None without tiered storage."""

    @property
    def member(self) -> Member:
        """Part of the broker that follows the controller; only APIs that a broker in a cluster serves ask for it."""
        assert self.membership is not None, "a broker that is alone serves nothing that asks for this"
        return self.membership

    def load(self, names: Iterable[str]) -> None:
        """Import the modules of those of these services that are created on first use; best in a thread."""
        for name in names:
            part = getattr(self, f"lazy_{name}", None)
            if part is not None:
                part.load()

    @property
    def delegation_tokens(self) -> DelegationTokens:
        """Delegation tokens; created on first use."""
        return self.lazy_delegation_tokens.get()

    @property
    def shares(self) -> Shares:
        """Share groups; created on first use."""
        return self.lazy_shares.get()

    @property
    def telemetry(self) -> Telemetry:
        """Client telemetry; created on first use."""
        return self.lazy_telemetry.get()
