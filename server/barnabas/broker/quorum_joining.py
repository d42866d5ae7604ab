"""Steps by which a broker joins a cluster whose metadata a KRaft quorum keeps, and leaves it (KIP-500, KIP-631).

The rule: the metadata are read up to what is committed before the log dirs are opened; the broker registers when it can
serve, and is unfenced when it has followed its own registration.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import trio

from barnabas.broker.peer_security import for_controllers
from barnabas.broker.startup import StartupError
from barnabas.broker.storage_parts import Membership, QuorumParts
from barnabas.client import ClientError, ClientSettings, Connection
from barnabas.client import Endpoint as Address
from barnabas.client.connection import start_connection
from barnabas.cluster.kraft.active_controller import controllers
from barnabas.cluster.kraft.image import diff
from barnabas.cluster.kraft.lifecycle import Identity, Lifecycle, RegistrationRefusedError, State
from barnabas.cluster.kraft.observer import Leader, Observer
from barnabas.cluster.kraft.state import MetadataLogError
from barnabas.cluster.kraft.store import QuorumStore
from barnabas.cluster.kraft.values import Endpoint, LevelRange
from barnabas.cluster.metadata.peers import PeerUnavailableError
from barnabas.config import broker as settings
from barnabas.config.listeners import PROTOCOLS
from barnabas.config.quorum import QuorumSettings, quorum_settings
from barnabas.log.logdir import read_meta
from barnabas.serving.release import IN_QUORUM
from barnabas.wire.generated.broker_registration import BrokerRegistrationRequest
from barnabas.wire.ids import new_uuid

if TYPE_CHECKING:
    from barnabas.config.loading import BrokerConfig
    from barnabas.environment import Environment
    from barnabas.log.format.properties import MetaProperties
    from barnabas.log.manager import LogManager
    from barnabas.log.partition_log import PartitionLog
    from barnabas.serving.loop_budget import LoopBudget

log = logging.getLogger(__name__)

CORDONED_DIRS_SINCE = 30
"""The metadata.version from which heartbeats name cordoned log dirs (KIP-1066)."""


@asynccontextmanager
async def joined_quorum(
    config: BrokerConfig, environment: Environment, budget: LoopBudget
) -> AsyncIterator[Membership]:
    """Follow the metadata of the quorum, and yield once the committed ones are known.

    Raises StartupError, StorageError.
    """
    quorum = quorum_settings(config)
    metas = await environment.threads.run(lambda: _read_metas(config, environment))
    cluster_id = _cluster_id(config, metas)
    client = for_controllers(
        config,
        quorum,
        ClientSettings(client_id=f"broker-{config.get(settings.NODE_ID)}", software_name="barnabas"),
    )
    store = QuorumStore(cluster_id, config.get(settings.NODE_ID), budget)
    follower = _Follower(quorum, environment, client, store)
    peers = controllers(follower.leader, quorum.listener, environment.network, client)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(follower.run)
        nursery.start_soon(peers.run)
        await follower.caught_up.wait()
        if follower.failure is not None:
            raise StartupError(f"the metadata of the quorum cannot be followed: {follower.failure}")
        yield Membership(store, quorum=QuorumParts(store, peers, metas))
        nursery.cancel_scope.cancel()


def _read_metas(config: BrokerConfig, environment: Environment) -> dict[str, MetaProperties]:
    metas = {}
    for path in config.log_dirs:
        try:
            meta = read_meta(environment.disk, path)
        except OSError:
            continue  # whoever opens the logs takes it offline
        if meta is not None:
            metas[path] = meta
    return metas


def _cluster_id(config: BrokerConfig, metas: Mapping[str, MetaProperties]) -> str:
    """Return the cluster's id of the formatted log dirs. Raises StartupError for those that are not formatted."""
    ids = {meta.cluster_id for meta in metas.values() if meta.cluster_id}
    if len(ids) != 1:
        problem = (
            "have no meta.properties" if not ids else f"belong to several clusters ({', '.join(sorted(ids))})"
        )
        raise StartupError(
            f"the log dirs {', '.join(config.log_dirs)} {problem}: format them for the cluster first, with the id that "
            "`kafka-cluster.sh cluster-id` or `barnabas metadata show` prints: barnabas storage format --cluster-id ID "
            "--config FILE"
        )
    return ids.pop()


class _Follower:
    """Follows the metadata log in memory. Lifecycle: `run` until cancelled."""

    def __init__(
        self, quorum: QuorumSettings, environment: Environment, client: ClientSettings, store: QuorumStore
    ) -> None:
        self._quorum = quorum
        self._network = environment.network
        self._client = client
        self._store = store
        self._observer = Observer()
        self._image = self._observer.state.image
        self._turn = 0
        self.caught_up = trio.Event()
        self.failure: MetadataLogError | None = None

    def leader(self) -> Leader:
        """Return the leader with its address, as answers or the settings have it."""
        leader = self._observer.leader
        if leader.id >= 0 and not leader.host and leader.id in self._quorum.voters:
            host, port = self._quorum.voters[leader.id]
            return leader._replace(host=host, port=port)
        return leader

    async def run(self) -> None:
        while True:
            try:
                async with trio.open_nursery() as nursery:
                    connection = await start_connection(
                        nursery, self._address(), self._client, dial=self._dial
                    )
                    await self._ask(connection)
                    nursery.cancel_scope.cancel()
            except* (ClientError, OSError) as group:
                log.debug("controller: %s", group.exceptions[0])
                self._turn += 1
            except* MetadataLogError as group:
                self.failure = group.exceptions[0]  # type: ignore[assignment]
                log.error("the metadata are followed no further: %s", self.failure)
                self.caught_up.set()
            if self.failure is not None:
                return
            await trio.sleep(0.02 if self._turn < 10 else 0.5)

    async def _ask(self, connection: Connection) -> None:
        while True:
            request = self._observer.request(max_wait_ms=500)
            response = await connection.ask(request, timeout_ms=2_500)
            taken = self._observer.take(response)
            image = self._observer.state.image
            if taken.steps:
                changes = [change for step in taken.steps for change in step.changes]
            else:
                changes = list(diff(self._image, image)) if image.position != self._image.position else []
            if image.position != self._image.position:
                await self._store.follow(changes, image)
                self._image = image
            if self._observer.is_caught_up:
                self.caught_up.set()
            if taken.must_wait:
                await trio.sleep(0.05)
            if taken.asks_elsewhere:
                self._turn += 1
                return

    def _address(self) -> Address:
        leader = self.leader()
        if leader.id >= 0 and leader.host and self._turn % 2 == 0:
            return Address(leader.host, leader.port)
        return Address(*self._quorum.bootstrap[self._turn // 2 % len(self._quorum.bootstrap)])

    async def _dial(self, endpoint: Address) -> trio.abc.Stream:
        return await self._network.dial(endpoint.host, endpoint.port)


class QuorumParticipation:
    """A broker's part in its cluster: `begin` once it serves, `end` while it still does; `run` in a task between."""

    def __init__(
        self,
        config: BrokerConfig,
        environment: Environment,
        endpoints: Mapping[str, tuple[str, int]],
        quorum: QuorumParts,
        logs: LogManager,
    ) -> None:
        self._config = config
        self._environment = environment
        self._endpoints = endpoints
        self._store = quorum.store
        self._peers = quorum.controllers
        self._logs = logs
        self._lifecycle: Lifecycle | None = None
        self._changed = trio.Event()
        self._wake = trio.Event()
        self._failure: RegistrationRefusedError | None = None

    @property
    def broker_epoch(self) -> int:
        """The epoch of this broker's registration, -1 before the first."""
        return self._lifecycle.broker_epoch if self._lifecycle is not None else -1

    async def begin(self) -> None:
        """Register the broker and wait until it is unfenced. Raises StartupError."""
        lifecycle = self._lifecycle = Lifecycle(
            self._identity(), interval_ms=self._config.get(settings.BROKER_HEARTBEAT_INTERVAL_MS)
        )
        lifecycle.ready()
        self._wake.set()
        limit_ms = self._config.get(settings.INITIAL_BROKER_REGISTRATION_TIMEOUT_MS)
        with trio.move_on_after(limit_ms / 1000):
            while lifecycle.state is State.REGISTERING and self._failure is None:
                await self._changed.wait()
        if self._failure is not None:
            raise StartupError(f"the controllers refuse this broker: {self._failure}")
        if lifecycle.state is State.REGISTERING:
            raise StartupError(
                f"the broker is not registered within {settings.INITIAL_BROKER_REGISTRATION_TIMEOUT_MS.name}={limit_ms}: "
                f"{lifecycle.problem or 'no active controller answers'}"
            )
        while lifecycle.state is State.FENCED:
            await self._changed.wait()

    def report_lost_dirs(self, _logs: Iterable[PartitionLog]) -> None:
        """Tell the controller of the log dirs that are offline."""
        if self._lifecycle is not None:
            metas = self._logs.meta
            self._lifecycle.lose_dirs(
                [
                    meta.directory_id
                    for path in self._logs.offline
                    if (meta := metas.get(path)) and meta.directory_id
                ]
            )
            self._wake.set()

    async def end(self) -> None:
        """Hand over what this broker leads, and leave."""
        lifecycle = self._lifecycle
        if lifecycle is None or not self._config.get(settings.CONTROLLED_SHUTDOWN_ENABLE):
            return
        lifecycle.shut_down()
        self._wake.set()
        with trio.move_on_after(SHUTDOWN_SECONDS) as scope:
            while lifecycle.state is not State.SHUT_DOWN:
                await self._changed.wait()
        if scope.cancelled_caught:
            log.warning("stopping though not everything that this broker leads could be handed over")
        self._logs.broker_epoch = lifecycle.broker_epoch

    def _identity(self) -> Identity:
        config = self._config
        protocols = config.listener_security_protocols()
        return Identity(
            config.get(settings.NODE_ID),
            self._store.image.cluster_id,
            new_uuid(self._environment.entropy),
            tuple(
                Endpoint(name, host, port, PROTOCOLS.index(protocols.get(name, name)))
                for name, (host, port) in self._endpoints.items()
            ),
            config.get(settings.BROKER_RACK),
            tuple(
                meta.directory_id
                for path, meta in self._logs.meta.items()
                if meta.directory_id is not None and path in self._logs.online
            ),
            tuple((one.name, LevelRange(one.min_level, one.max_level)) for one in IN_QUORUM.features),
            self._logs.previous_broker_epoch,
        )

    async def run(self) -> None:
        """Register and send heartbeats until cancelled, or shut down."""
        while True:
            await self._wake.wait()
            self._wake = trio.Event()
            assert self._lifecycle is not None
            while (wait_ms := await self._turn(self._lifecycle)) is not None:
                with trio.move_on_after(wait_ms / 1000):
                    await self._wake.wait()
                self._wake = trio.Event()

    async def _turn(self, lifecycle: Lifecycle) -> int | None:
        """Send one request; returns the wait (ms) before the next, None after the last."""
        level = (self._store.image.features or {}).get("metadata.version", 0)
        request = lifecycle.request(self._store.offset, has_cordoned_dirs=level >= CORDONED_DIRS_SINCE)
        if request is None:
            return None
        before, problem_before = lifecycle.state, lifecycle.problem
        timeout_s = max(self._config.get(settings.BROKER_HEARTBEAT_INTERVAL_MS) / 1000, 0.5)
        try:
            response = await self._peers.ask_controller(request, timeout_s=timeout_s, channel="heartbeat")
            if isinstance(request, BrokerRegistrationRequest):
                wait_ms = lifecycle.take_registration(response)
            else:
                wait_ms = lifecycle.take_heartbeat(response)
        except PeerUnavailableError as error:
            wait_ms = lifecycle.failed(str(error))
        except RegistrationRefusedError as error:
            self._failure = error
            wait_ms = None
        if lifecycle.problem and lifecycle.problem != problem_before:
            log.warning("the controller and this broker (%s): %s", lifecycle.state.value, lifecycle.problem)
        if lifecycle.state is not before:
            log.info("this broker is %s, with broker epoch %d", lifecycle.state.value, lifecycle.broker_epoch)
        self._changed.set()
        self._changed = trio.Event()
        return wait_ms


SHUTDOWN_SECONDS = 300.0
"""Longest wait for a controlled shutdown, as Kafka's broker waits for its lifecycle manager."""
