"""The composition root: from a configuration and an environment to a complete broker.

The rule: every part is made here, whole, from the parts that it names; nobody gets the broker, and nothing is filled in
later. What only some brokers need is made by the first who asks for it (`lazy.Lazy`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import trio

from barnabas.broker.app import Broker, Stopping
from barnabas.broker.authorization import authorizer_of
from barnabas.broker.coordination_parts import coordination_parts
from barnabas.broker.handlers import Handlers
from barnabas.broker.housekeeping import Housekeeping
from barnabas.broker.image_follower import ImageFollower
from barnabas.broker.interpreter import give_back_memory
from barnabas.broker.open_files import allow_open_files, connections_max
from barnabas.broker.quotas import broker_quotas
from barnabas.broker.securing import Securing
from barnabas.broker.services import Services
from barnabas.broker.startup import advertised_endpoints, open_listeners, parse_metrics_address
from barnabas.broker.storage import opened_storage
from barnabas.broker.storage_parts import Membership, Storage
from barnabas.cluster.controller.single_node import EmbeddedController
from barnabas.cluster.metadata.internal_topics import SHARE_TOPIC
from barnabas.cluster.replicas.in_sync import shrink_periodically
from barnabas.cluster.replicas.moving import LogMover
from barnabas.config import broker as settings
from barnabas.config.authorizer import token_secret_key
from barnabas.config.cluster import is_clustered
from barnabas.coordinators.runtime.image_events import CoordinatorEvents
from barnabas.coordinators.runtime.locator import ImageLocator
from barnabas.environment.lazy import Lazy
from barnabas.serving.channel import SECRET_BYTES, LoginParts
from barnabas.serving.connection_limits import ConnectionLimits
from barnabas.serving.connection_parts import ConnectionParts
from barnabas.serving.context import Shared
from barnabas.serving.encoding import CodecWorker
from barnabas.serving.fetch_sessions import FetchSessions
from barnabas.serving.framing import BufferPool
from barnabas.serving.handshakes import Handshakes
from barnabas.serving.listener import Connections
from barnabas.serving.log_limit import LogLimit
from barnabas.serving.loop_budget import LoopBudget
from barnabas.serving.memory import REQUEST_BYTES_MAX, Memory
from barnabas.serving.release import ReleaseProfile, profile_of
from barnabas.serving.request import Request
from barnabas.serving.request_parts import Pipeline
from barnabas.serving.seams import NO_SEAMS, Seams
from barnabas.serving.stalls import StallMeter
from barnabas.serving.step_runner import StepRunner
from barnabas.serving.unauthenticated import UnauthenticatedConnections

if TYPE_CHECKING:
    from barnabas.broker.joining import Connect
    from barnabas.broker.membership import MembershipParts
    from barnabas.broker.metrics_endpoint import MetricsAddress
    from barnabas.cluster.metadata.credentials import ClusterCredentials
    from barnabas.cluster.metadata.delegation_tokens import DelegationTokens
    from barnabas.config.loading import BrokerConfig
    from barnabas.coordinators.runtime.shares import Shares
    from barnabas.environment import Environment
    from barnabas.metrics.client_telemetry import Telemetry
    from barnabas.security.authorizer import Authorizer
    from barnabas.serving.listener import Listener


@asynccontextmanager
async def assembled(
    config: BrokerConfig,
    environment: Environment,
    *,
    release: ReleaseProfile | None = None,
    budget: LoopBudget | None = None,
    authorizer: Authorizer | None = None,
    membership: Membership | None = None,
    connect_zookeeper: Connect | None = None,
    seams: Seams = NO_SEAMS,
) -> AsyncIterator[Broker]:
    """Make a broker, complete and with its background tasks running; it serves when it is told to.

    `release` and `budget` replace the usual ones; an `authorizer` replaces the one of the settings; without a
    `membership` the broker is a cluster by itself, or joins the one that its settings name; `connect_zookeeper`
    replaces the way to ZooKeeper then; `seams` is what stands around its requests and connections.
    Everything is closed again at the end, in order.

    Raises StartupError or StorageError when the broker cannot start.
    """
    release = release or profile_of(config)
    if not is_clustered(config):  # where ZooKeeper keeps the cluster, there are no eligible leader replicas
        config.keep_for_all(release.kept_for_all)
    listeners = open_listeners(config.listeners(), config.listener_security_protocols(), environment.network)
    async with AsyncExitStack() as stack:
        for listener in listeners:
            stack.callback(listener.close)
        budget, stopping = budget or LoopBudget(clock=environment.monotonic), Stopping()
        endpoints = advertised_endpoints(config, environment.network, listeners)
        metrics_address = _metrics_address(config)
        if metrics_address is not None:
            stack.callback(metrics_address.close)
        if membership is None and is_clustered(config):
            from barnabas.broker.joining import joined

            membership = await stack.enter_async_context(
                joined(config, environment, budget, connect_zookeeper)
            )
        storage = await stack.enter_async_context(
            opened_storage(config, endpoints, environment, budget, stopping.fail, membership)
        )
        async with trio.open_nursery() as background:
            with budget:
                yield _assemble(
                    config,
                    release,
                    environment,
                    budget,
                    stopping,
                    storage,
                    listeners,
                    metrics_address,
                    background,
                    authorizer or authorizer_of(config, storage.metadata),
                    _in_cluster(config, environment, budget, storage, endpoints, membership),
                    seams,
                )
            background.cancel_scope.cancel()


def _metrics_address(config: BrokerConfig) -> MetricsAddress | None:
    """Bind the address of metrics, if that is asked for; only then its libraries are imported."""
    address = config.get(settings.METRICS_LISTENER)
    if not address:
        return None
    from barnabas.broker.metrics_endpoint import MetricsAddress

    return MetricsAddress(*parse_metrics_address(address))


def _in_cluster(
    config: BrokerConfig,
    environment: Environment,
    budget: LoopBudget,
    storage: Storage,
    endpoints: Mapping[str, tuple[str, int]],
    membership: Membership | None,
) -> MembershipParts | None:
    """Make the parts that only a broker of a cluster has; nothing of them is imported by one that is alone."""
    if membership is None:
        return None
    from barnabas.broker.membership import membership_parts

    return membership_parts(config, environment, budget, storage, endpoints, membership)


def _assemble(
    config: BrokerConfig,
    release: ReleaseProfile,
    environment: Environment,
    budget: LoopBudget,
    stopping: Stopping,
    storage: Storage,
    listeners: list[Listener],
    metrics_address: MetricsAddress | None,
    background: trio.Nursery,
    authorizer: Authorizer,
    in_cluster: MembershipParts | None,
    seams: Seams,
) -> Broker:
    now_ms, threads = environment.wall_clock_ms, environment.threads
    metadata, logs, replicas = storage.metadata, storage.logs, storage.replicas
    queued = config.get(settings.QUEUED_MAX_REQUEST_BYTES)
    memory = Memory(
        queued if queued > 0 else REQUEST_BYTES_MAX,
        clock=environment.monotonic,
        give_back=lambda: threads.run(give_back_memory),
    )
    log_limit = LogLimit(environment.monotonic)
    stalls = StallMeter(log_limit)
    budget.on_long_turn = stalls.long_turn
    step_runner = StepRunner(budget, threads)

    # --- coordinators ---------------------------------------------------------------------------------------
    coordination = coordination_parts(config, release, environment, budget, storage)
    groups, transactions = coordination.groups, coordination.transactions

    # --- what not every broker needs ------------------------------------------------------------------------
    def make_shares() -> Shares:
        from barnabas.coordinators.runtime.shares import Shares

        made = Shares(
            config, coordination.internal(SHARE_TOPIC), groups=groups, metadata=metadata, replicas=replicas, budget=budget,
            step_runner=step_runner, now_ms=now_ms, steady_ms=environment.monotonic_ms, elsewhere=coordination.share_state,
            high_watermarks=coordination.high_watermarks,
        )  # fmt: skip
        background.start_soon(made.run)
        return made

    def make_telemetry() -> Telemetry:
        from barnabas.metrics.client_telemetry import Telemetry

        made = Telemetry(config, metadata.image.configs, threads, budget, now_ms, environment.entropy)
        background.start_soon(made.run)
        return made

    shares = Lazy(
        make_shares,
        "barnabas.coordinators.runtime.shares",
        "barnabas.coordinators.runtime.entries",
        "encodings.utf_16_be",
        beside=threads.run,
    )
    telemetry = Lazy(
        make_telemetry, "barnabas.metrics.client_telemetry", "barnabas.metrics.telemetry.payload"
    )

    served = release.served_by(config)
    quotas = broker_quotas(config, served, budget, environment.monotonic)
    quotas.follow(metadata.image.quotas, metadata.image.quotas)
    limits = ConnectionLimits(
        config, {one.name: one.security_protocol for one in listeners}, environment.monotonic, log_limit
    )
    limits.quotas_changed(metadata.image.quotas, metadata.image.quotas)

    # --- what follows the metadata and the clock ------------------------------------------------------------
    metadata.subscribe(
        ImageFollower(
            config,
            storage.broker_id,
            logs,
            replicas,
            telemetry=telemetry,
            quotas=quotas,
            limits=limits,
            now_ms=now_ms,
        )
    )
    coordinator_events = CoordinatorEvents(
        groups=groups, transactions=transactions, shares=shares, now_ms=now_ms
    )
    for subscriber in (coordinator_events, *coordination.ports.subscribers):
        metadata.subscribe(subscriber)
    mover = LogMover(config, logs, replicas, storage.failures, environment)
    housekeeping = Housekeeping(
        config, logs, storage.failures, groups, transactions, budget, environment,
        is_served=replicas.is_served,
    )  # fmt: skip

    # --- who logs in ----------------------------------------------------------------------------------------
    def make_credentials() -> ClusterCredentials:
        from barnabas.cluster.metadata.credentials import ClusterCredentials

        return ClusterCredentials(
            metadata,
            token_secret_key(config),
            clock_ms=now_ms,
            entropy=environment.entropy,
            threads=threads,
            budget=budget,
        )

    def make_delegation_tokens() -> DelegationTokens:
        from barnabas.cluster.metadata.delegation_tokens import DelegationTokens

        made = DelegationTokens(
            metadata,
            credentials.get(),
            lifetime_max_ms=config.get(settings.DELEGATION_TOKEN_MAX_LIFETIME_MS),
            expiry_ms=config.get(settings.DELEGATION_TOKEN_EXPIRY_TIME_MS),
            per_owner_max=config.get(settings.DELEGATION_TOKEN_MAX_PER_OWNER),
            check_interval_ms=config.get(settings.DELEGATION_TOKEN_EXPIRY_CHECK_INTERVAL_MS),
            clock_ms=now_ms,
            entropy=environment.entropy,
        )
        background.start_soon(made.run)
        return made

    credentials = Lazy(make_credentials, "barnabas.cluster.metadata.credentials")
    delegation_tokens = Lazy(
        make_delegation_tokens,
        "barnabas.cluster.metadata.credentials",
        "barnabas.cluster.metadata.delegation_tokens",
    )
    if token_secret_key(config) is not None:  # those that have expired are removed, whoever asks for them
        delegation_tokens.get()
    securing = Securing(
        listeners,
        config,
        LoginParts(credentials.get, environment, environment.entropy.token_bytes(SECRET_BYTES)),
    )
    securing.begin()
    metadata.subscribe(securing)

    # --- requests -------------------------------------------------------------------------------------------
    services = Services(
        config=config,
        release=release,
        broker_id=storage.broker_id,
        clock_ms=now_ms,
        entropy=environment.entropy,
        threads=threads,
        served=served,
        budget=budget,
        step_runner=step_runner,
        metadata=metadata,
        controller=in_cluster.controller
        if in_cluster is not None
        else EmbeddedController(metadata, replicas, storage.lost_dirs, budget),
        topic_creation=coordination.ports.topic_creation,
        logs=logs,
        replicas=replicas,
        failures=storage.failures,
        log_mover=mover,
        fetch_sessions=FetchSessions(
            config.get(settings.MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS),
            lambda: environment.entropy.below(2**31),
        ),
        producer_ids=coordination.ports.producer_ids,
        coordinator_locator=ImageLocator(metadata, groups=groups, transactions=transactions, shares=shares),
        group_coordinator=groups,
        markers=coordination.markers,
        transaction_verifier=coordination.verifier,
        transaction_coordinator=transactions,
        feature_levels=storage.features,
        consumer_offsets=storage.consumer_offsets,
        lazy_delegation_tokens=delegation_tokens,
        lazy_shares=shares,
        lazy_telemetry=telemetry,
        security=securing,
        membership=in_cluster.member if in_cluster is not None else None,
    )
    meter = None
    if metrics_address is not None:
        from barnabas.serving.meter import RequestMeter

        meter = RequestMeter(lambda topic_id: metadata.image.topic_name(topic_id))

    def connection_closed(connection_id: int) -> None:
        """End the share sessions and the client instance that began on a connection."""
        if shares.if_made is not None:
            shares.if_made.connection_closed(connection_id)
        if telemetry.if_made is not None:
            telemetry.if_made.instances.connection_closed(connection_id)

    pipeline = Pipeline(
        served,
        Handlers(services),
        Shared(memory, log_limit, authorizer, quotas),
        CodecWorker(threads, config.get(settings.MAX_REQUEST_ENTRIES)),
        budget=budget,
        failures=storage.failures,
        release=release,
        clock_ms=now_ms,
        meter=meter,
        interceptor=seams.interceptor,
        sender=seams.sender,
        now_s=environment.monotonic,
    )
    connections = Connections(
        background,
        ConnectionParts(
            begin=partial(Request, pipeline),
            memory=memory,
            pool=BufferPool(),
            budget=budget,
            stalls=stalls,
            log_limit=log_limit,
            handshakes=Handshakes(threads),
            frame_bytes_max=config.get(settings.SOCKET_REQUEST_MAX_BYTES),
            now_s=environment.monotonic,
            on_closed=connection_closed,
        ),
        limits,
        idle_seconds_max=config.get(settings.CONNECTIONS_MAX_IDLE_MS) / 1000,
        count_max=connections_max(allow_open_files()),
        unauthenticated=UnauthenticatedConnections(
            config.get(settings.MAX_UNAUTHENTICATED_CONNECTIONS),
            config.get(settings.AUTHENTICATION_TIMEOUT_MS) / 1000,
        ),
        doorkeeper=seams.doorkeeper,
    )
    metrics = None
    if metrics_address is not None and meter is not None:
        from barnabas.broker.metrics_endpoint import MetricsEndpoint
        from barnabas.metrics.exposition import Exposition
        from barnabas.metrics.of_broker import Sources

        sources = Sources(
            broker_id=storage.broker_id,
            metadata=metadata,
            logs=logs,
            replicas=replicas,
            connections=limits,
            quotas=quotas,
            authorizer=authorizer,
            listener_names=[listener.name for listener in listeners],
            telemetry=telemetry,
            cleaner=lambda: housekeeping.cleaner,
            budget=budget,
            stall_counts=stalls.counts,
            log_limit=log_limit,
            memory=memory,
        )
        metrics = MetricsEndpoint(metrics_address, Exposition(sources, meter, groups.machines, threads))

    for run in (
        storage.flusher.run, storage.alter_partition.run, housekeeping.run, memory.run, log_limit.run, mover.run,
        groups.run, transactions.run, coordinator_events.run, *coordination.ports.runs,
        *(in_cluster.runs if in_cluster is not None else ()),
    ):  # fmt: skip
        background.start_soon(run)
    if storage.features is not None:
        background.start_soon(storage.features.run)
    if storage.peers is not None and storage.fetchers is not None:
        for member in (storage.peers, storage.fetchers):
            metadata.subscribe(member)
            background.start_soon(member.run)
    background.start_soon(
        shrink_periodically, replicas, budget, lambda: config.get(settings.REPLICA_LAG_TIME_MAX_MS)
    )
    participation = in_cluster.participation if in_cluster is not None else None
    return Broker(services, memory, listeners, connections, metrics_address, metrics, stopping, participation)
