"""The composition root: from a configuration and an environment to a complete broker.

The rule: every part is created here, complete, from the parts that it names; no part gets the broker, and nothing is added
later. Parts that only some brokers need are created on first use (`lazy.Lazy`).
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import trio

from barnabas.broker.app import Broker, Stopping
from barnabas.broker.authorization import authorizer_of
from barnabas.broker.base_parts import BaseParts
from barnabas.broker.coordinator_parts import coordinator_parts
from barnabas.broker.handlers import Handlers
from barnabas.broker.housekeeping import Housekeeping
from barnabas.broker.image_follower import ImageFollower
from barnabas.broker.optional_parts import optional_parts
from barnabas.broker.quotas import broker_quotas
from barnabas.broker.securing import Securing
from barnabas.broker.services import Services
from barnabas.broker.serving_parts import bound_metrics_address, new_connections, new_memory
from barnabas.broker.startup import advertised_endpoints, check_tiered_topics, open_listeners
from barnabas.broker.storage import opened_storage
from barnabas.broker.storage_parts import Membership, QuorumParts, Storage
from barnabas.cluster.controller.single_node import EmbeddedController
from barnabas.cluster.replicas.in_sync import shrink_periodically
from barnabas.cluster.replicas.moving import LogMover
from barnabas.config import broker as settings
from barnabas.config.keeper import is_in_quorum, is_on_zookeeper
from barnabas.coordinators.image_events import CoordinatorEvents
from barnabas.coordinators.locator import ImageLocator
from barnabas.serving.channel import SECRET_BYTES, LoginParts
from barnabas.serving.connection_limits import ConnectionLimits
from barnabas.serving.context import ContextParts
from barnabas.serving.encoding import CodecWorker
from barnabas.serving.fetch_sessions import FetchSessions
from barnabas.serving.log_limit import LogLimit
from barnabas.serving.loop_budget import LoopBudget
from barnabas.serving.release import ReleaseProfile, profile_of
from barnabas.serving.request_parts import RequestParts
from barnabas.serving.seams import NO_SEAMS, Seams
from barnabas.serving.stalls import StallMeter
from barnabas.serving.step_runner import StepRunner

if TYPE_CHECKING:
    from barnabas.broker.coordinator_parts import CoordinatorParts
    from barnabas.broker.joining import Connect
    from barnabas.broker.membership import MembershipParts
    from barnabas.broker.metrics_endpoint import MetricsAddress, MetricsEndpoint
    from barnabas.broker.optional_parts import OptionalParts
    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.cluster.tiering.manager import TieredStorage
    from barnabas.config.loading import BrokerConfig
    from barnabas.environment import Environment
    from barnabas.security.authorizer import Authorizer
    from barnabas.serving.apis import Api
    from barnabas.serving.listener import Listener
    from barnabas.serving.meter import RequestMeter
    from barnabas.serving.request_quotas import BrokerQuotas


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
    controller_seams: Seams = NO_SEAMS,
) -> AsyncIterator[Broker]:
    """Assemble a complete broker with its background tasks running; it serves after a call of `serve`.

    `release` and `budget` replace the default ones; an `authorizer` replaces that of the settings; without a `membership`
    the broker is a cluster by itself, or joins the cluster of its settings, with `connect_zookeeper` instead of the usual
    connection to ZooKeeper; `seams` wraps its requests and connections, `controller_seams` those of a controller in the
    same node. All parts are closed at the end, in order.

    Raises StartupError or StorageError when the broker cannot start.
    """
    release = release or profile_of(config)
    if not is_on_zookeeper(
        config
    ):  # where ZooKeeper keeps the cluster, there are no eligible leader replicas
        config.keep_for_all(release.kept_for_all)
    listeners = open_listeners(config.listeners(), config.listener_security_protocols(), environment.network)
    async with AsyncExitStack() as stack:
        for listener in listeners:
            stack.callback(listener.close)
        budget, stopping = (
            budget or LoopBudget(clock=environment.monotonic, cpu_clock=time.thread_time),
            Stopping(),
        )
        endpoints = advertised_endpoints(config, environment.network, listeners)
        metrics_address = bound_metrics_address(config)
        if metrics_address is not None:
            stack.callback(metrics_address.close)
        if membership is None and is_on_zookeeper(config):
            from barnabas.broker.joining import joined

            membership = await stack.enter_async_context(
                joined(config, environment, budget, connect_zookeeper)
            )
        elif membership is None and is_in_quorum(config):
            from barnabas.broker.quorum_joining import joined_quorum

            membership = await stack.enter_async_context(
                joined_quorum(config, environment, budget, controller_seams)
            )
        storage = await stack.enter_async_context(
            opened_storage(config, endpoints, environment, budget, stopping.fail, membership)
        )
        async with trio.open_nursery() as background:
            with budget:
                yield _broker(
                    BaseParts(config, release, environment, budget, storage, background),
                    listeners,
                    metrics_address,
                    stopping,
                    authorizer or authorizer_of(config, storage.metadata),
                    _in_cluster(config, environment, budget, storage, endpoints, membership),
                    membership.quorum if membership is not None else None,
                    seams,
                )
            background.cancel_scope.cancel()


def _in_cluster(
    config: BrokerConfig,
    environment: Environment,
    budget: LoopBudget,
    storage: Storage,
    endpoints: Mapping[str, tuple[str, int]],
    membership: Membership | None,
) -> MembershipParts | None:
    """Make the parts of a broker in a cluster; a broker that is alone does not import their modules."""
    if membership is None:
        return None
    if membership.quorum is not None:
        from barnabas.broker.quorum_membership import quorum_parts

        return quorum_parts(config, environment, budget, storage, endpoints, membership.quorum)
    from barnabas.broker.membership import membership_parts

    return membership_parts(config, environment, budget, storage, endpoints, membership)


def _broker(
    base: BaseParts,
    listeners: list[Listener],
    metrics_address: MetricsAddress | None,
    stopping: Stopping,
    authorizer: Authorizer,
    in_cluster: MembershipParts | None,
    quorum: QuorumParts | None,
    seams: Seams,
) -> Broker:
    """Create all other parts, each from those before it, and start their periodic work."""
    config, release, environment, budget, storage, _ = base
    log_limit = LogLimit(environment.monotonic)
    stalls = StallMeter(log_limit)
    budget.on_long_turn = stalls.long_turn
    memory, step_runner = new_memory(config, environment), StepRunner(budget, environment.threads)
    coordinators = coordinator_parts(base)
    optional = optional_parts(base, coordinators, step_runner, log_limit)
    served = release.served_by(config)
    quotas = broker_quotas(config, served, budget, environment.monotonic)
    limits = ConnectionLimits(
        config,
        {listener.name: listener.security_protocol for listener in listeners},
        environment.monotonic,
        log_limit,
    )
    mover = LogMover(config, storage.logs, storage.replicas, storage.failures, environment)
    housekeeping = Housekeeping(
        config, storage.logs, storage.failures, coordinators.groups, coordinators.transactions, budget, environment,
        is_served=storage.replicas.is_served,
    )  # fmt: skip
    events = _follow_metadata(base, coordinators, optional, quotas, limits)
    tiered = _tiered(base, coordinators, seams)
    securing = _securing(base, listeners, optional)
    services = _services(
        base, served, coordinators, optional, step_runner, mover, securing, in_cluster, tiered
    )
    meter = _meter(storage.metadata) if metrics_address is not None else None
    shared = ContextParts(memory, log_limit, authorizer, quotas)
    request_parts = _request_parts(base, served, services, shared, meter, seams)
    connections = new_connections(
        config, environment, base.background, request_parts, limits, stalls,
        on_closed=optional.connection_closed, doorkeeper=seams.doorkeeper,
    )  # fmt: skip
    metrics = None
    if metrics_address is not None and meter is not None:
        metrics = _metrics(
            base, metrics_address, meter, shared, listeners, limits, quotas, optional, coordinators,
            housekeeping, stalls, quorum, tiered,
        )  # fmt: skip
    runs = [memory.run, log_limit.run, housekeeping.run, mover.run, events.run]
    _start(
        base,
        (*runs, tiered.run) if tiered is not None else runs,
        coordinators,
        in_cluster,
    )
    participation = in_cluster.participation if in_cluster is not None else None
    return Broker(
        services,
        memory,
        listeners,
        connections,
        metrics_address,
        metrics,
        stopping,
        participation,
        request_parts,
    )


def _request_parts(
    base: BaseParts,
    served: Mapping[int, Api],
    services: Services,
    shared: ContextParts,
    meter: RequestMeter | None,
    seams: Seams,
) -> RequestParts:
    config, release, environment, budget, storage, _ = base
    return RequestParts(
        served,
        Handlers(services),
        shared,
        CodecWorker(environment.threads, config.get(settings.MAX_REQUEST_ENTRIES)),
        budget=budget,
        failures=storage.failures,
        release=release,
        clock_ms=environment.wall_clock_ms,
        meter=meter,
        interceptor=seams.interceptor,
        sender=seams.sender,
        now_s=environment.monotonic,
    )


def _follow_metadata(
    base: BaseParts,
    coordinators: CoordinatorParts,
    optional: OptionalParts,
    quotas: BrokerQuotas,
    limits: ConnectionLimits,
) -> CoordinatorEvents:
    """Make quotas, limits, replicas and coordinators follow the metadata; return the coordinators' subscriber."""
    storage, now_ms = base.storage, base.environment.wall_clock_ms
    metadata = storage.metadata
    quotas.follow(metadata.image.quotas, metadata.image.quotas)
    limits.quotas_changed(metadata.image.quotas, metadata.image.quotas)
    events = CoordinatorEvents(
        groups=coordinators.groups,
        transactions=coordinators.transactions,
        shares=optional.shares,
        now_ms=now_ms,
    )
    image_follower = ImageFollower(
        base.config,
        storage.broker_id,
        storage.logs,
        storage.replicas,
        telemetry=optional.telemetry,
        quotas=quotas,
        limits=limits,
        now_ms=now_ms,
    )
    metadata.subscribe(image_follower)
    for subscriber in (events, *coordinators.ports.subscribers):
        metadata.subscribe(subscriber)
    return events


def _tiered(base: BaseParts, coordinators: CoordinatorParts, seams: Seams) -> TieredStorage | None:
    """Make the parts of tiered storage; a broker without it does not import their modules. Raises StartupError."""
    check_tiered_topics(base.config, base.storage.metadata.image)
    if not base.config.get(settings.REMOTE_LOG_STORAGE_SYSTEM_ENABLE):
        return None
    from barnabas.broker.tiering import opened_tier

    return opened_tier(base, coordinators.ports.topic_creation, seams)


def _securing(base: BaseParts, listeners: list[Listener], optional: OptionalParts) -> Securing:
    """Secure the listeners, and keep them up to date with their settings."""
    environment = base.environment
    securing = Securing(
        listeners,
        base.config,
        LoginParts(optional.credentials.get, environment, environment.entropy.token_bytes(SECRET_BYTES)),
    )
    securing.begin()
    base.storage.metadata.subscribe(securing)
    return securing


def _services(
    base: BaseParts,
    served: Mapping[int, Api],
    coordinators: CoordinatorParts,
    optional: OptionalParts,
    step_runner: StepRunner,
    mover: LogMover,
    securing: Securing,
    in_cluster: MembershipParts | None,
    tiered: TieredStorage | None,
) -> Services:
    config, release, environment, budget, storage, _ = base
    groups, transactions = coordinators.groups, coordinators.transactions
    return Services(
        config=config,
        release=release,
        broker_id=storage.broker_id,
        clock_ms=environment.wall_clock_ms,
        entropy=environment.entropy,
        threads=environment.threads,
        served=served,
        budget=budget,
        step_runner=step_runner,
        metadata=storage.metadata,
        controller=in_cluster.controller
        if in_cluster is not None
        else EmbeddedController(storage.metadata, storage.replicas, storage.lost_dirs, budget),
        topic_creation=coordinators.ports.topic_creation,
        logs=storage.logs,
        replicas=storage.replicas,
        failures=storage.failures,
        log_mover=mover,
        fetch_sessions=FetchSessions(
            config.get(settings.MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS),
            lambda: environment.entropy.below(2**31),
        ),
        producer_ids=coordinators.ports.producer_ids,
        coordinator_locator=ImageLocator(
            storage.metadata, groups=groups, transactions=transactions, shares=optional.shares
        ),
        group_coordinator=groups,
        markers=coordinators.markers,
        transaction_verifier=coordinators.verifier,
        transaction_coordinator=transactions,
        feature_levels=storage.features,
        consumer_offsets=storage.consumer_offsets,
        lazy_delegation_tokens=optional.delegation_tokens,
        lazy_shares=optional.shares,
        lazy_telemetry=optional.telemetry,
        security=securing,
        forwarder=in_cluster.forwarder if in_cluster is not None else None,
        membership=in_cluster.member if in_cluster is not None else None,
        tiered=tiered,
    )


def _meter(metadata: MetadataStore) -> RequestMeter:
    from barnabas.serving.meter import RequestMeter

    return RequestMeter(lambda topic_id: metadata.image.topic_name(topic_id))


def _metrics(
    base: BaseParts,
    address: MetricsAddress,
    meter: RequestMeter,
    shared: ContextParts,
    listeners: list[Listener],
    limits: ConnectionLimits,
    quotas: BrokerQuotas,
    optional: OptionalParts,
    coordinators: CoordinatorParts,
    housekeeping: Housekeeping,
    stalls: StallMeter,
    quorum: QuorumParts | None,
    tiered: TieredStorage | None,
) -> MetricsEndpoint:
    from barnabas.broker.metrics_endpoint import MetricsEndpoint
    from barnabas.metrics.exposition import BrokerExposition
    from barnabas.metrics.of_broker import MetricsParts

    storage = base.storage
    metrics_parts = MetricsParts(
        broker_id=storage.broker_id,
        metadata=storage.metadata,
        logs=storage.logs,
        replicas=storage.replicas,
        connections=limits,
        quotas=quotas,
        authorizer=shared.authorizer,
        listener_names=[listener.name for listener in listeners],
        telemetry=optional.telemetry,
        cleaner=lambda: housekeeping.cleaner,
        budget=base.budget,
        stall_counts=stalls.counts,
        log_limit=shared.log_limit,
        memory=shared.memory,
        in_quorum=quorum is not None,
        controller=quorum.controller if quorum is not None else None,
        tiered=tiered,
        shares=optional.shares,
    )
    exposition = BrokerExposition(
        metrics_parts, meter, coordinators.groups.machines, base.environment.threads
    )
    return MetricsEndpoint(address, exposition)


def _start(
    base: BaseParts,
    periodic: Iterable[Callable[[], Awaitable[None]]],
    coordinators: CoordinatorParts,
    in_cluster: MembershipParts | None,
) -> None:
    """Start the periodic work of all parts."""
    config, storage, background = base.config, base.storage, base.background
    runs = [
        storage.flusher.run,
        storage.alter_partition.run,
        *periodic,
        coordinators.groups.run,
        coordinators.transactions.run,
        *coordinators.ports.runs,
        *(in_cluster.runs if in_cluster is not None else ()),
    ]
    if storage.features is not None:
        runs.append(storage.features.run)
    if storage.peers is not None and storage.fetchers is not None:
        for follower in (storage.peers, storage.fetchers):
            storage.metadata.subscribe(follower)
            runs.append(follower.run)
    for run in runs:
        background.start_soon(run)
    background.start_soon(
        shrink_periodically,
        storage.replicas,
        base.budget,
        lambda: config.get(settings.REPLICA_LAG_TIME_MAX_MS),
    )
