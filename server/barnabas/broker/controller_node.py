"""A process with the role controller: a voter of a KRaft quorum, its listeners, and the active controller while it leads.

The rule: the dirs are locked and known to be of this cluster and node before anything is read; listeners accept as soon as
the voter runs, since voters need each other to elect a leader. An error that ends the voter ends the process.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, closing, nullcontext
from typing import TYPE_CHECKING, NamedTuple

import trio

from barnabas.broker.app import Stopping
from barnabas.broker.authorization import authorizer_of
from barnabas.broker.controller_apis import CONTROLLER
from barnabas.broker.controller_handlers import ControllerHandlers, ControllerServices
from barnabas.broker.controller_registration import ControllerRegistration
from barnabas.broker.image_follower import obey_settings
from barnabas.broker.peer_security import for_controllers
from barnabas.broker.quotas import broker_quotas
from barnabas.broker.securing import Securing
from barnabas.broker.serving_parts import bound_metrics_address, new_connections, new_memory
from barnabas.broker.startup import (
    StartupError,
    bootstrap_of,
    listen,
    open_listeners,
)
from barnabas.client import ClientSettings
from barnabas.cluster.kraft.active_controller import controllers
from barnabas.cluster.kraft.controller.active import ActiveController
from barnabas.cluster.kraft.controller.machine import machine
from barnabas.cluster.kraft.controller.processes import BrokerProcesses
from barnabas.cluster.kraft.formatting import read_bootstrap
from barnabas.cluster.kraft.joining import identity_of
from barnabas.cluster.kraft.raft.running import taking_part
from barnabas.cluster.kraft.raft.values import RaftSettings
from barnabas.cluster.kraft.state import MetadataLogError
from barnabas.cluster.kraft.store import Projection, QuorumStore
from barnabas.cluster.metadata.credentials import ClusterCredentials
from barnabas.cluster.metadata.image import BROKER
from barnabas.config import broker as settings
from barnabas.config.authorizer import token_secret_key
from barnabas.config.controller import advertised_controllers, controller_settings
from barnabas.environment.lazy import Lazy
from barnabas.errors import RequestError, StorageError
from barnabas.log.ownership import Ownership
from barnabas.metrics.of_controller import ControllerParts
from barnabas.network.transport import EVERYWHERE
from barnabas.serving.channel import SECRET_BYTES, LoginParts
from barnabas.serving.connection_limits import ConnectionLimits
from barnabas.serving.context import ContextParts
from barnabas.serving.encoding import CodecWorker
from barnabas.serving.log_limit import LogLimit
from barnabas.serving.loop_budget import LoopBudget
from barnabas.serving.meter import RequestMeter
from barnabas.serving.request_parts import RequestParts
from barnabas.serving.seams import NO_SEAMS
from barnabas.serving.stalls import StallMeter
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.ids import new_uuid

if TYPE_CHECKING:
    from barnabas.broker.metrics_endpoint import MetricsAddress, MetricsEndpoint
    from barnabas.cluster.kraft.controller.active import Machine
    from barnabas.cluster.kraft.raft.node import RaftNode
    from barnabas.cluster.metadata.image import Delta
    from barnabas.cluster.metadata.peers import Peers
    from barnabas.config.controller import ControllerSettings
    from barnabas.config.loading import BrokerConfig
    from barnabas.config.quorum import Address, QuorumSettings
    from barnabas.environment import Environment
    from barnabas.serving.listener import Connections, Listener
    from barnabas.serving.request_quotas import BrokerQuotas
    from barnabas.serving.seams import Seams

log = logging.getLogger(__name__)


class ControllerNode:
    """A controller. Lifecycle: created by `controller`, `serve` in a task, `stop`."""

    def __init__(
        self,
        config: BrokerConfig,
        cluster_id: str,
        listeners: list[Listener],
        connections: Connections,
        voter: RaftNode,
        active: ActiveController,
        store: QuorumStore,
        peers: Peers,
        stopping: Stopping,
        parts: ControllerParts,
        metrics_address: MetricsAddress | None,
        metrics: MetricsEndpoint | None,
    ) -> None:
        """`parts` are those with metrics to export, here or by the broker of the same process."""
        self.config = config
        self.cluster_id = cluster_id
        self.listeners = listeners
        self.voter = voter
        self.active = active
        self.store = store
        """The committed metadata, as a broker has them."""
        self.peers = peers
        """The way to the active controller."""
        self.stopping = stopping
        self.parts = parts
        self.metrics_address = metrics_address
        self._metrics = metrics
        self._connections = connections

    @property
    def bootstrap(self) -> str:
        """`host:port` of the first listener, as other nodes on this machine can connect to it."""
        return bootstrap_of(self.listeners[0])

    def stop(self) -> None:
        """Request a clean stop; `serve` returns when no connection is left."""
        self.stopping.ask()

    async def serve(self, *, task_status: trio.TaskStatus[ControllerNode] = trio.TASK_STATUS_IGNORED) -> None:
        """Accept other nodes, and serve them until `stop`; a leader resigns first. Raises StartupError."""
        for listener in self.listeners:
            listen(listener)
        if self.metrics_address is not None:
            self.metrics_address.listen()
        async with trio.open_nursery() as accepting:
            for listener in self.listeners:
                accepting.start_soon(listener.accept_forever, self._connections)
            accepting.start_soon(self._connections.close_idle_forever)
            accepting.start_soon(self._connections.close_excess_forever)
            if self._metrics is not None:
                accepting.start_soon(self._metrics.run)
            task_status.started(self)
            await self.stopping.wait()
            if self.active.is_active:
                self.voter.resign(self.voter.epoch)
            accepting.cancel_scope.cancel()
        for listener in self.listeners:
            listener.close()
        await self._connections.drain()


@asynccontextmanager
async def controller(
    config: BrokerConfig, environment: Environment, *, seams: Seams = NO_SEAMS
) -> AsyncIterator[ControllerNode]:
    """Assemble a complete, voting controller that is no broker; it serves after a call of `serve`.

    `seams` wraps its requests and connections. Raises StartupError and StorageError, also out of the block, when the
    disk of the metadata fails.
    """
    quorum = controller_settings(config).quorum
    ownership = Ownership(environment.disk, quorum.node_id)
    try:
        try:
            await environment.threads.run(lambda: _take_dirs(config, quorum, ownership))
        except OSError as error:
            raise StorageError(quorum.log_dir, error) from error
        budget = LoopBudget(clock=environment.monotonic, cpu_clock=time.thread_time)
        metrics_address = bound_metrics_address(config)
        with closing(metrics_address) if metrics_address is not None else nullcontext():
            async with controlling(config, environment, budget, seams, metrics_address) as node:
                with budget:
                    yield node
    finally:
        ownership.release()


@asynccontextmanager
async def controlling(
    config: BrokerConfig,
    environment: Environment,
    budget: LoopBudget,
    seams: Seams = NO_SEAMS,
    metrics_address: MetricsAddress | None = None,
) -> AsyncIterator[ControllerNode]:
    """Make a controller as `controller` does, of a node that has locked its dirs."""
    own = controller_settings(config)
    node_id = own.quorum.node_id
    addresses = [
        text
        for text in config.get(settings.LISTENERS)
        if text.partition("://")[0].strip().upper() in own.protocols
    ]
    listeners = open_listeners(addresses, own.protocols, environment.network)
    async with AsyncExitStack() as stack:
        for listener in listeners:
            stack.callback(listener.close)
        try:
            cluster_id = identity_of(environment.disk, own.quorum).cluster_id or ""
            bootstrap = read_bootstrap(environment.disk, own.quorum.log_dir)
        except MetadataLogError as error:
            raise StartupError(str(error)) from error
        except OSError as error:
            raise StorageError(own.quorum.log_dir, error) from error
        client = for_controllers(
            config, own.quorum, ClientSettings(client_id=f"controller-{node_id}", software_name="barnabas")
        )
        endpoints = _advertised(config, environment, listeners)
        raft_settings = RaftSettings.of(
            own.quorum,
            [(name, host, port) for name, (host, port) in endpoints.items()],
            election_timeout_ms=own.election_timeout_ms,
            election_backoff_max_ms=own.election_backoff_max_ms,
            linger_ms=own.append_linger_ms,
            joins=own.joins_by_itself,
        )
        try:
            async with (
                taking_part(own.quorum, raft_settings, environment, client) as voter,
                trio.open_nursery() as background,
            ):
                base = _Base(
                    config,
                    environment,
                    own,
                    cluster_id,
                    listeners,
                    endpoints,
                    client,
                    budget,
                    background,
                    seams,
                    metrics_address,
                )
                yield _node(base, voter, machine(bootstrap))
                background.cancel_scope.cancel()
        except MetadataLogError as error:
            raise StartupError(f"the log of the quorum cannot be continued: {error}") from error


class _Base(NamedTuple):
    """Parts of a controller from which all others are created."""

    config: BrokerConfig
    environment: Environment
    own: ControllerSettings
    cluster_id: str
    listeners: list[Listener]
    endpoints: Mapping[str, Address]
    client: ClientSettings
    budget: LoopBudget
    background: trio.Nursery
    seams: Seams
    metrics_address: MetricsAddress | None


def _take_dirs(config: BrokerConfig, quorum: QuorumSettings, ownership: Ownership) -> None:
    """Lock all dirs, and see that they are formatted, and of one cluster. Raises StorageError, StartupError, OSError."""
    dirs = list(dict.fromkeys((*(path.rstrip("/") for path in config.log_dirs), quorum.log_dir)))
    for path in dirs:
        ownership.take(path)
        ownership.read(path)
    ownership.check(dirs)
    for path in dirs:
        if path not in ownership.meta:
            raise StartupError(
                f"{path} is not formatted: format it first, with the id of the cluster (barnabas storage format -t ID)"
            )


def _node(base: _Base, voter: RaftNode, rules: Machine) -> ControllerNode:
    """Create all other parts, each from those before it, and start their periodic work."""
    active = _active(base, voter, rules)
    processes = BrokerProcesses(active, base.environment.network)
    store = QuorumStore(base.cluster_id, base.own.quorum.node_id, base.budget)
    services = _services(base, voter, active, store, processes)
    parts = ControllerParts(voter, active, base.budget, base.environment.wall_clock_ms)
    connections, metrics = _connections(base, store, services, processes, parts)
    peers = controllers(
        lambda: voter.replica.log.leader, base.own.quorum.listener, base.environment.network, base.client
    )
    registration = ControllerRegistration(
        base.own.quorum.node_id,
        new_uuid(base.environment.entropy),
        base.endpoints,
        base.own.protocols,
        active,
        peers,
    )
    voter.subscribe(Projection(store, lambda: voter.leadership.kraft_version))
    voter.subscribe(registration)
    voter.listen(active)
    voter.listen(processes)
    for run in (active.run, processes.run, peers.run, registration.run):
        base.background.start_soon(run)
    return ControllerNode(
        base.config,
        base.cluster_id,
        base.listeners,
        connections,
        voter,
        active,
        store,
        peers,
        Stopping(),
        parts,
        base.metrics_address,
        metrics,
    )


def _active(base: _Base, voter: RaftNode, rules: Machine) -> ActiveController:
    """Make the active controller, which acts while the voter leads."""
    active = ActiveController(
        base.config,
        base.environment,
        rules,
        lambda: voter.image,
        lambda: voter.in_transaction,
        cluster_id=base.cluster_id,
        batch_bytes_max=base.own.quorum.log.batch_bytes_max,
        budget=base.budget,
    )
    active.attach(voter)
    return active


def _services(
    base: _Base, voter: RaftNode, active: ActiveController, store: QuorumStore, processes: BrokerProcesses
) -> ControllerServices:
    """Gather the parts that answers to requests need."""
    return ControllerServices(
        config=base.config,
        release=CONTROLLER,
        broker_id=base.own.quorum.node_id,
        clock_ms=base.environment.wall_clock_ms,
        threads=base.environment.threads,
        served=CONTROLLER.apis,
        budget=base.budget,
        metadata=store,
        codecs=CodecWorker(base.environment.threads, base.config.get(settings.MAX_REQUEST_ENTRIES)),
        raft=voter,
        active=active,
        committed=lambda: voter.image,
        on_heartbeat=processes.heard,
    )


def _connections(
    base: _Base,
    store: QuorumStore,
    services: ControllerServices,
    processes: BrokerProcesses,
    controller: ControllerParts,
) -> tuple[Connections, MetricsEndpoint | None]:
    """Create the connections of all listeners, with their limits, logins and memory, which follow the settings.

    Also returns their metrics, if these are enabled.
    """
    config, environment = base.config, base.environment
    log_limit = LogLimit(environment.monotonic)
    stalls = StallMeter(log_limit)
    base.budget.on_long_turn = stalls.long_turn
    limits = ConnectionLimits(config, base.own.protocols, environment.monotonic, log_limit)
    quotas = broker_quotas(config, CONTROLLER.apis, base.budget, environment.monotonic)
    store.subscribe(_Settings(config, services.broker_id, limits, quotas))
    securing = Securing(base.listeners, config, _login_parts(config, environment, store, base.budget))
    securing.begin()
    store.subscribe(securing)
    memory = new_memory(config, environment)
    shared = ContextParts(memory, log_limit, authorizer_of(config, store), quotas)
    meter = (
        RequestMeter(lambda topic_id: store.image.topic_name(topic_id))
        if base.metrics_address is not None
        else None
    )
    parts = RequestParts(
        CONTROLLER.apis,
        ControllerHandlers(services),
        shared,
        services.codecs,
        budget=base.budget,
        failures=_Failures(),
        release=CONTROLLER,
        clock_ms=environment.wall_clock_ms,
        now_s=environment.monotonic,
        interceptor=base.seams.interceptor,
        sender=base.seams.sender,
        meter=meter,
    )
    for run in (memory.run, log_limit.run):
        base.background.start_soon(run)
    connections = new_connections(
        config, environment, base.background, parts, limits, stalls,
        on_closed=processes.closed, doorkeeper=base.seams.doorkeeper,
    )  # fmt: skip
    if base.metrics_address is None or meter is None:
        return connections, None
    from barnabas.broker.metrics_endpoint import MetricsEndpoint
    from barnabas.metrics.exposition import ControllerExposition
    from barnabas.metrics.of_broker import ServerParts

    server = ServerParts(
        connections=limits,
        listener_names=[listener.name for listener in base.listeners],
        quotas=quotas,
        authorizer=shared.authorizer,
        budget=base.budget,
        stall_counts=stalls.counts,
        log_limit=log_limit,
        memory=memory,
    )
    exposition = ControllerExposition(server, controller, meter, environment.threads)
    return connections, MetricsEndpoint(base.metrics_address, exposition)


def _advertised(
    config: BrokerConfig, environment: Environment, listeners: list[Listener]
) -> dict[str, Address]:
    """Return host and port by which others reach each listener."""
    bound = {listener.name: listener.port for listener in listeners}
    return {
        name: (
            environment.network.host_name() if not host or host in EVERYWHERE else host,
            port or bound[name],
        )
        for name, (host, port) in advertised_controllers(config).items()
    }


def _login_parts(
    config: BrokerConfig, environment: Environment, store: QuorumStore, budget: LoopBudget
) -> LoginParts:
    """Return the data for logins: users and tokens of the committed metadata."""
    credentials = Lazy(
        lambda: ClusterCredentials(
            store,
            token_secret_key(config),
            clock_ms=environment.wall_clock_ms,
            entropy=environment.entropy,
            threads=environment.threads,
            budget=budget,
        )
    )
    return LoginParts(credentials.get, environment, environment.entropy.token_bytes(SECRET_BYTES))


class _Settings:
    """Has a controller obey settings that are changed while it runs (KIP-226). Implements `store.Subscriber`."""

    def __init__(
        self, config: BrokerConfig, node_id: int, limits: ConnectionLimits, quotas: BrokerQuotas
    ) -> None:
        self._config = config
        self._node_id = node_id
        self._limits = limits
        self._quotas = quotas

    async def prepare(self, delta: Delta) -> None:
        """Do nothing."""

    def publish(self, delta: Delta) -> None:
        """Obey settings of brokers that have changed, and quotas of clients and connections."""
        if any(kind == BROKER for kind, _ in delta.configs):
            obey_settings(self._config, delta.new, self._node_id)
            self._limits.settings_changed()
        if delta.quotas:
            self._quotas.follow(delta.new.quotas, delta.quotas)
            self._limits.quotas_changed(delta.new.quotas, delta.quotas)

    async def clean_up(self, delta: Delta) -> None:
        """Do nothing."""


class _Failures:
    """Disk errors in requests. Implements `request_parts.Failures`: the voter ends with its disk."""

    def failed(self, error: StorageError) -> RequestError:
        """Return the error for the request that met it."""
        log.error("%s", error)
        return RequestError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
