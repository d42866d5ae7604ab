"""Steps by which a broker joins the cluster of a KRaft quorum, and leaves it (KIP-500, KIP-631).

The rule: all committed metadata is read before the log dirs are opened; the broker registers when it can serve, is
unfenced when it has read its own registration, and accepts no connection before. An absent controller delays a stop only
by seconds.
"""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import trio

from barnabas.broker.peer_security import for_controllers
from barnabas.broker.startup import StartupError
from barnabas.broker.storage_parts import LogConfigs, Membership, QuorumParts, new_log_manager
from barnabas.client import ClientSettings
from barnabas.cluster.kraft.active_controller import controllers
from barnabas.cluster.kraft.image import METADATA_VERSION
from barnabas.cluster.kraft.joining import observing
from barnabas.cluster.kraft.lifecycle import Identity, Lifecycle, RegistrationRefusedError, State
from barnabas.cluster.kraft.state import MetadataLogError
from barnabas.cluster.kraft.store import Projection, QuorumStore
from barnabas.cluster.kraft.values import Endpoint, LevelRange
from barnabas.cluster.metadata.image import BROKER, TOPIC
from barnabas.cluster.metadata.peers import Peers, PeerUnavailableError
from barnabas.config import broker as settings
from barnabas.config.keeper import Keeper, keeper_of
from barnabas.config.listeners import PROTOCOLS
from barnabas.config.quorum import cordoned_log_dirs
from barnabas.config.quorum_broker import quorum_settings
from barnabas.config.setting import SettingError
from barnabas.errors import StorageError
from barnabas.log.format import CorruptFileError
from barnabas.log.logdir import read_meta
from barnabas.serving.release import IN_QUORUM
from barnabas.serving.seams import NO_SEAMS
from barnabas.wire.generated.broker_registration import BrokerRegistrationRequest
from barnabas.wire.ids import new_uuid

if TYPE_CHECKING:
    from barnabas.cluster.metadata.image import Delta
    from barnabas.config.loading import BrokerConfig
    from barnabas.environment import Environment
    from barnabas.log.config import LogConfig
    from barnabas.log.disk import Disk
    from barnabas.log.manager import LogManager
    from barnabas.log.partition_log import PartitionLog
    from barnabas.metrics.of_controller import ControllerParts
    from barnabas.serving.loop_budget import LoopBudget
    from barnabas.serving.seams import Seams

log = logging.getLogger(__name__)

CORDONED_DIRS_SINCE = 30
"""The metadata.version from which heartbeats name cordoned log dirs (KIP-1066)."""


@asynccontextmanager
async def joined_quorum(
    config: BrokerConfig, environment: Environment, budget: LoopBudget, seams: Seams = NO_SEAMS
) -> AsyncIterator[Membership]:
    """Follow the metadata of the quorum, and yield once all committed metadata are read.

    `seams` wrap the requests and connections of a controller in this process. Raises StartupError, StorageError; also
    out of the block, when the disk of the metadata fails.
    """
    quorum = quorum_settings(config)
    store: QuorumStore | None = None

    def config_for(topic: str) -> LogConfig:
        assert store is not None, "logs are opened after the metadata"
        return LogConfigs(config).of(store.image.settings_of(TOPIC, topic))

    logs = new_log_manager(config, environment, config_for)
    await environment.threads.run(lambda: logs.lock(quorum.log_dir))
    follow = partial(_voting, seams=seams) if keeper_of(config) is Keeper.COMBINED else _observing
    try:
        _check_clusters(environment.disk, logs, quorum.log_dir)
        async with follow(config, environment, budget) as (store, peers, wait_for_image, controller):
            log.info("following the metadata of cluster %s", store.image.cluster_id)
            await wait_for_image()
            yield Membership(store, quorum=QuorumParts(store, peers, logs, quorum.log_dir, controller))
    except MetadataLogError as error:
        raise StartupError(f"the metadata of the quorum cannot be followed: {error}") from error
    finally:
        logs.unlock()


Followed = tuple[QuorumStore, Peers, Callable[[], Awaitable[object]], "ControllerParts | None"]
"""The store, the way to the active controller, a wait until the store has all that is committed, and the own controller."""


@asynccontextmanager
async def _observing(
    config: BrokerConfig, environment: Environment, budget: LoopBudget
) -> AsyncIterator[Followed]:
    """Follow the controllers of other nodes."""
    quorum = quorum_settings(config)
    broker_id = quorum.node_id
    client = for_controllers(
        config, quorum, ClientSettings(client_id=f"broker-{broker_id}", software_name="barnabas")
    )
    async with observing(quorum, environment, client) as follower:
        store = QuorumStore(follower.observer.identity.cluster_id or "", broker_id, budget)
        follower.subscribe(Projection(store, lambda: follower.leadership.kraft_version))
        peers = controllers(lambda: follower.observer.leader, quorum.listener, environment.network, client)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(peers.run)
            yield store, peers, follower.wait_for_image, None
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def _voting(
    config: BrokerConfig, environment: Environment, budget: LoopBudget, seams: Seams
) -> AsyncIterator[Followed]:
    """Follow the controller of this node, which serves as long: it ends after the broker."""
    from barnabas.broker.controller_node import controlling  # not needed by a broker

    async with controlling(config, environment, budget, seams) as node, trio.open_nursery() as nursery:
        await nursery.start(node.serve)
        yield node.store, node.peers, node.voter.wait_for_image, node.parts
        node.stop()


def _check_clusters(disk: Disk, logs: LogManager, metadata_dir: str) -> None:
    """See that the log dirs are new or of the cluster that `metadata_dir` belongs to. Raises StorageError."""
    cluster_id = _cluster_id(disk, metadata_dir)
    for path in logs.online:
        other = _cluster_id(disk, path)
        if None not in (cluster_id, other) and other != cluster_id:
            raise StorageError(
                path,
                OSError(
                    f"it belongs to cluster {other} (meta.properties), and {metadata_dir}, which has the metadata, to "
                    f"cluster {cluster_id}: give this broker log dirs of its own"
                ),
            )


def _cluster_id(disk: Disk, path: str) -> str | None:
    try:
        meta = read_meta(disk, path)
    except (OSError, CorruptFileError):
        return None  # an error is raised when the dir is opened
    return meta.cluster_id if meta is not None else None


def cordon_log_dirs(config: BrokerConfig, logs: LogManager) -> None:
    """Exclude the log dirs that the settings cordon from new logs, while there are others (KIP-1066)."""
    try:
        logs.cordoned = cordoned_log_dirs(config)
    except SettingError as error:
        log.error("%s; the cordoned log dirs stay as they were", error)


class QuorumParticipation:
    """A broker's part in its cluster: `begin` before it serves, `end` while it still does; `run` in a task between."""

    begins_before_clients = True

    @property
    def active_controller(self) -> int:
        """The id of the active controller, -1 while none is known."""
        return self._peers.controller_id

    def __init__(
        self,
        config: BrokerConfig,
        environment: Environment,
        endpoints: Mapping[str, tuple[str, int]],
        quorum: QuorumParts,
        logs: LogManager,
        give_up: Callable[[str], None],
    ) -> None:
        """`give_up` stops the broker with a reason."""
        self._config = config
        self._environment = environment
        self._endpoints = endpoints
        self._store = quorum.store
        self._peers = quorum.controllers
        self._logs = logs
        self._give_up = give_up
        self._directory_ids = {
            path: meta.directory_id for path, meta in logs.meta.items() if meta.directory_id
        }
        self._lifecycle: Lifecycle | None = None
        self._untold_until = math.inf
        self._answered_at = -math.inf
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
        self._cordon()
        lifecycle.ready()
        self._wake.set()
        limit_ms = self._config.get(settings.INITIAL_BROKER_REGISTRATION_TIMEOUT_MS)
        with trio.move_on_after(limit_ms / 1000):
            while lifecycle.state is State.REGISTERING and self._failure is None:
                await self._changed.wait()
        if self._failure is not None:
            raise StartupError(
                "; ".join([f"the controllers refuse this broker: {self._failure}", *self._unsupported()])
            )
        if lifecycle.state is State.REGISTERING:
            raise StartupError(
                f"the broker is not registered within {settings.INITIAL_BROKER_REGISTRATION_TIMEOUT_MS.name}={limit_ms}: "
                f"{lifecycle.problem or 'no active controller answers'}"
            )
        while lifecycle.state is State.FENCED:
            await self._changed.wait()

    def _unsupported(self) -> list[str]:
        """Return a sentence for each feature that is finalized at a level beyond those of this broker."""
        levels = self._store.image.features or {}
        return [
            f"{feature.name} is finalized at level {levels[feature.name]}, this broker supports {feature.min_level} to "
            f"{feature.max_level}"
            for feature in IN_QUORUM.features
            if not feature.min_level <= levels.get(feature.name, feature.min_level) <= feature.max_level
        ]

    def report_lost_dirs(self, _logs: Iterable[PartitionLog]) -> None:
        """Report offline log dirs to the controller; the broker stops if that does not succeed in time."""
        lifecycle = self._lifecycle
        if lifecycle is not None:
            lifecycle.lose_dirs(
                [self._directory_ids[path] for path in self._logs.offline if path in self._directory_ids]
            )
            if lifecycle.has_untold_dirs and self._untold_until == math.inf:
                limit_ms = self._config.get(settings.LOG_DIR_FAILURE_TIMEOUT_MS)
                self._untold_until = trio.current_time() + limit_ms / 1000
            self._wake.set()

    def _cordon(self) -> None:
        """Create no new logs in the log dirs that the settings cordon, and report these dirs to the controller."""
        cordon_log_dirs(self._config, self._logs)
        if self._lifecycle is not None:
            self._lifecycle.cordon_dirs(
                [self._directory_ids[path] for path in self._logs.cordoned if path in self._directory_ids]
            )
            self._wake.set()

    async def prepare(self, delta: Delta) -> None:
        """Do nothing."""

    def publish(self, delta: Delta) -> None:
        """Do nothing: the settings are obeyed by all once the image is cleaned up."""

    async def clean_up(self, delta: Delta) -> None:
        """Follow the setting of cordoned log dirs."""
        if any(kind == BROKER for kind, _ in delta.configs):
            self._cordon()

    async def end(self) -> None:
        """Hand over the partitions that this broker leads, and leave; soon, if the controller does not answer."""
        lifecycle = self._lifecycle
        if lifecycle is None or not self._config.get(settings.CONTROLLED_SHUTDOWN_ENABLE):
            return
        lifecycle.shut_down()
        self._wake.set()
        began_at, silence_s = trio.current_time(), silence_seconds(self._config)
        while lifecycle.state is not State.SHUT_DOWN:
            until = min(began_at + SHUTDOWN_SECONDS, max(began_at, self._answered_at) + silence_s)
            if trio.current_time() >= until:
                log.warning("stopping though not everything that this broker leads could be handed over")
                break
            with trio.move_on_at(until):
                await self._changed.wait()

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
            tuple(
                (feature.name, LevelRange(feature.min_level, feature.max_level))
                for feature in IN_QUORUM.features
            ),
            self._logs.previous_broker_epoch,
        )

    async def run(self) -> None:
        """Register and send heartbeats until cancelled, or shut down."""
        while True:
            await self._wake.wait()
            self._wake = trio.Event()
            assert self._lifecycle is not None
            while (wait_ms := await self._turn(self._lifecycle)) is not None:
                self._check_told(self._lifecycle)
                with trio.move_on_after(wait_ms / 1000):
                    await self._wake.wait()
                self._wake = trio.Event()

    def _check_told(self, lifecycle: Lifecycle) -> None:
        """Stop the broker if no controller has received the report of an offline log dir (KIP-858)."""
        if not lifecycle.has_untold_dirs:
            self._untold_until = math.inf
        elif trio.current_time() >= self._untold_until:
            self._untold_until = math.inf
            self._give_up(
                "no controller could be told of the log dirs that are offline within "
                f"{settings.LOG_DIR_FAILURE_TIMEOUT_MS.name}={self._config.get(settings.LOG_DIR_FAILURE_TIMEOUT_MS)}"
            )

    async def _turn(self, lifecycle: Lifecycle) -> int | None:
        """Send one request; returns the wait (ms) before the next, None after the last."""
        level = (self._store.image.features or {}).get(METADATA_VERSION, 0)
        request = lifecycle.request(self._store.offset, has_cordoned_dirs=level >= CORDONED_DIRS_SINCE)
        if request is None:
            return None
        before, problem_before = lifecycle.state, lifecycle.problem
        timeout_s = max(self._config.get(settings.BROKER_HEARTBEAT_INTERVAL_MS) / 1000, 0.5)
        try:
            response = await self._peers.ask_controller(request, timeout_s=timeout_s, channel="heartbeat")
            self._answered_at = trio.current_time()
            if isinstance(request, BrokerRegistrationRequest):
                wait_ms = lifecycle.take_registration(response)
                if lifecycle.broker_epoch >= 0:
                    self._logs.broker_epoch = lifecycle.broker_epoch
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


def silence_seconds(config: BrokerConfig) -> float:
    """Return the longest wait for an answer during a controlled shutdown: a slow election, and a second; 6 by default."""
    missed_ms = config.get(settings.CONTROLLER_QUORUM_FETCH_TIMEOUT_MS)
    elected_ms = 2 * config.get(settings.CONTROLLER_QUORUM_ELECTION_TIMEOUT_MS)
    again_ms = config.get(settings.CONTROLLER_QUORUM_ELECTION_BACKOFF_MAX_MS)
    return float(1000 + missed_ms + elected_ms + again_ms) / 1000
