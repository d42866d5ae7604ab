"""Parts that only a broker of a cluster on ZooKeeper has: it may be the controller, and takes part in the cluster.

The rule: only this module decides whether a broker has one of these parts.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import trio

from barnabas.broker.joining import Participation as ZooKeeperParticipation
from barnabas.broker.peer_security import for_peers
from barnabas.client import ClientSettings
from barnabas.cluster.controller.channels import ConnectedChannels
from barnabas.cluster.controller.contact import ControllerContact
from barnabas.cluster.controller.core import ControllerSettings
from barnabas.cluster.controller.runtime import ControllerRuntime
from barnabas.cluster.metadata.image import BROKER, TOPIC
from barnabas.cluster.zookeeper.missed_elections import MissedElections
from barnabas.cluster.zookeeper.session import ZooKeeperError
from barnabas.config import broker as settings
from barnabas.config.listeners import inter_broker_listener

if TYPE_CHECKING:
    from barnabas.broker.app import Participation
    from barnabas.broker.storage_parts import Membership, Storage
    from barnabas.cluster.kraft.forwarding import Forwarder
    from barnabas.cluster.metadata.image import Delta
    from barnabas.cluster.metadata.ports import Controller, Member
    from barnabas.cluster.zookeeper.store import ZooKeeperStore
    from barnabas.config.loading import BrokerConfig
    from barnabas.environment import Environment
    from barnabas.log.partition_log import PartitionLog
    from barnabas.serving.loop_budget import LoopBudget

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MembershipParts:
    """The local controller, the follower of the elected one, their tasks, and the participation in the cluster."""

    controller: Controller
    member: Member | None
    runs: tuple[Callable[[], Awaitable[None]], ...]
    participation: Participation
    forwarder: Forwarder | None = None
    """The way of requests to the active controller of a KRaft quorum."""


def membership_parts(
    config: BrokerConfig,
    environment: Environment,
    budget: LoopBudget,
    storage: Storage,
    endpoints: Mapping[str, tuple[str, int]],
    membership: Membership,
) -> MembershipParts | None:
    """Make them; None where the membership has neither and its store is all there is of a cluster."""
    store, zookeeper, peers = membership.member, membership.zookeeper, storage.peers
    if store is None or zookeeper is None or peers is None:
        return None
    channels = ConnectedChannels(
        inter_broker_listener(config),
        environment.network,
        for_peers(
            config,
            ClientSettings(client_id=f"broker-{storage.broker_id}-controller", software_name="barnabas"),
        ),
        timeout_ms=config.get(settings.CONTROLLER_SOCKET_TIMEOUT_MS),
    )

    controller = ControllerRuntime(
        ControllerSettings.of(config, storage.broker_id),
        zookeeper,
        channels,
        budget=budget,
        entropy=environment.entropy,
        wall_clock_ms=environment.wall_clock_ms,
        allows_unclean=lambda own: allows_unclean(config, own),
        known_topic_id=lambda topic: store.image.topic_id(topic),
        image=lambda: store.image,
    )
    contact = ControllerContact(
        storage.broker_id,
        lambda: store.image,
        inter_broker_listener(config),
        environment.network,
        for_peers(config, ClientSettings(client_id=f"broker-{storage.broker_id}", software_name="barnabas")),
        gone=controller.controller_gone,
    )
    store.subscribe(contact)
    store.subscribe(UncleanElections(config, controller))
    reporter = FailureReporter(store)
    storage.failures.on_lost.append(reporter.lost)
    participation = ZooKeeperParticipation(
        config, storage.broker_id, endpoints, store, peers, storage.logs, environment.wall_clock_ms
    )
    missed = MissedElections(storage.broker_id, zookeeper, store, peers, budget)
    runs = (store.run, channels.run, controller.run, contact.run, reporter.run, missed.run)
    return MembershipParts(controller, store, runs, participation)


def allows_unclean(config: BrokerConfig, own: Mapping[str, str]) -> bool:
    """Return whether a topic with these own settings allows a leader out of sync."""
    return bool(config.topic_values(own)["unclean.leader.election.enable"])


class UncleanElections:
    """Has the controller elect leaders where a setting has begun to allow replicas that are not in sync."""

    def __init__(self, config: BrokerConfig, controller: ControllerRuntime) -> None:
        self._config = config
        self._controller = controller

    async def prepare(self, delta: Delta) -> None:
        """Do nothing."""

    def publish(self, delta: Delta) -> None:
        """Do nothing."""

    async def clean_up(self, delta: Delta) -> None:
        """Hold unclean elections if changed settings now allow them: those of a topic, or the default for all."""
        for kind, name in delta.configs:
            if kind == BROKER:
                if allows_unclean(self._config, {}):
                    self._controller.unclean_election_allowed(None)
            elif kind == TOPIC:
                before = allows_unclean(self._config, delta.old.settings_of(TOPIC, name))
                if not before and allows_unclean(self._config, delta.new.settings_of(TOPIC, name)):
                    self._controller.unclean_election_allowed(name)


class FailureReporter:
    """Reports failed log dirs to the controller, so that others lead their partitions."""

    def __init__(self, store: ZooKeeperStore) -> None:
        self._store = store
        self._lost = trio.Event()

    def lost(self, _logs: Iterable[PartitionLog]) -> None:
        """Note that logs went offline."""
        self._lost.set()

    async def run(self) -> None:
        """Report until cancelled."""
        while True:
            await self._lost.wait()
            self._lost = trio.Event()
            try:
                await self._store.report_log_dir_failure()
            except ZooKeeperError as error:
                log.error("the failure of a log dir cannot be reported to the controller: %s", error)
