"""Steps by which a broker joins a cluster on ZooKeeper and leaves it.

The rule: cluster and node id are determined before the log dirs are opened; the broker is registered once it serves, and
its registration ends once it has handed over its partitions.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import trio

from barnabas.broker.controlled_shutdown import shut_down_controlled
from barnabas.broker.startup import StartupError
from barnabas.broker.storage_parts import Membership
from barnabas.cluster.metadata import protocol_version
from barnabas.cluster.metadata.protocol_version import protocol_of
from barnabas.cluster.zookeeper.json_znodes import ZnodeError
from barnabas.cluster.zookeeper.registration import IdTakenError, generated_broker_id
from barnabas.cluster.zookeeper.session import ZooKeeper, ZooKeeperError
from barnabas.cluster.zookeeper.store import ZooKeeperStore
from barnabas.cluster.zookeeper.znodes import BrokerRegistration, Endpoint
from barnabas.config import broker as settings
from barnabas.config.authorizer import has_authorizer, token_secret_key
from barnabas.config.cluster import ZooKeeperSettings, zookeeper_settings
from barnabas.errors import StorageError
from barnabas.log.logdir import read_meta
from barnabas.serving.release import KAFKA_4
from barnabas.wire.ids import new_uuid, uuid_text

if TYPE_CHECKING:
    from barnabas.cluster.metadata.image import Delta
    from barnabas.cluster.metadata.peers import Peers
    from barnabas.config.loading import BrokerConfig
    from barnabas.environment import Environment
    from barnabas.log.format.properties import MetaProperties
    from barnabas.log.manager import LogManager
    from barnabas.serving.loop_budget import LoopBudget

log = logging.getLogger(__name__)

KNOWN_SECONDS = 30.0
"""Longest wait at the start for the controller to tell of this broker; without a controller it serves all the same."""

Connect = Callable[[ZooKeeperSettings], Awaitable[ZooKeeper]]


@asynccontextmanager
async def joined(
    config: BrokerConfig,
    environment: Environment,
    budget: LoopBudget,
    connect: Connect | None = None,
) -> AsyncIterator[Membership]:
    """Connect to ZooKeeper, determine the cluster's id and this broker's number, and read the settings in ZooKeeper.

    `connect` replaces kazoo. All parts are closed at the end, and the broker's registration ends with its session.
    Raises StartupError, StorageError.
    """
    metas = await environment.threads.run(lambda: _read_metas(config, environment))
    try:
        zookeeper = await (connect or _kazoo(environment))(zookeeper_settings(config))
    except ZooKeeperError as error:
        raise StartupError(str(error)) from error
    try:
        try:
            store = await _opened_store(config, environment, budget, zookeeper, metas)
        except ZooKeeperError as error:
            raise StartupError(f"ZooKeeper refused a request of the broker: {_text(error)}") from error
        except ZnodeError as error:
            raise StartupError(str(error)) from error
        try:
            yield Membership(store, member=store, zookeeper=zookeeper)
        finally:
            with trio.CancelScope(shield=True):
                await store.close()
    finally:
        with trio.CancelScope(shield=True):
            await zookeeper.close()


def _kazoo(environment: Environment) -> Connect:
    from barnabas.cluster.zookeeper.connection import connect

    return lambda connection: connect(connection, environment.threads)


def _read_metas(config: BrokerConfig, environment: Environment) -> dict[str, MetaProperties]:
    """Read the meta.properties of each log dir; a log dir that cannot be read fails later, when its logs are opened."""
    metas = {}
    for path in config.log_dirs:
        try:
            meta = read_meta(environment.disk, path)
        except (OSError, StorageError):
            continue
        if meta is not None:
            metas[path] = meta
    return metas


async def _opened_store(
    config: BrokerConfig,
    environment: Environment,
    budget: LoopBudget,
    zookeeper: ZooKeeper,
    metas: Mapping[str, MetaProperties],
) -> ZooKeeperStore:
    if not config.is_node_id_set:
        node_id = next((meta.node_id for meta in metas.values() if meta.node_id is not None), None)
        if node_id is None:
            node_id = await generated_broker_id(zookeeper, config.get(settings.RESERVED_BROKER_MAX_ID))
        config.use_node_id(node_id)
    store = ZooKeeperStore(
        zookeeper,
        config.get(settings.NODE_ID),
        environment.wall_clock_ms,
        budget,
        has_topic_ids=protocol_of(config) >= protocol_version.V2_8_IV0,
        has_acls=has_authorizer(config),
        has_tokens=token_secret_key(config) is not None,
    )
    await store.open(uuid_text(new_uuid(environment.entropy)))
    for path, meta in metas.items():
        if meta.cluster_id and meta.cluster_id != store.image.cluster_id:
            raise StorageError(
                path,
                OSError(
                    f"it belongs to cluster {meta.cluster_id} (meta.properties), and the cluster at "
                    f"{settings.ZOOKEEPER_CONNECT.name}={config.get(settings.ZOOKEEPER_CONNECT)} is "
                    f"{store.image.cluster_id}: name the ZooKeeper of its cluster, or give this broker log dirs of its own"
                ),
            )
    return store


def _text(error: ZooKeeperError) -> str:
    return f"{type(error).__name__} {error}"


class Participation:
    """A broker's part in its cluster: `begin` once it serves, `end` while it still does."""

    begins_before_clients = False  # the controller connects to a broker as soon as it is registered

    def __init__(
        self,
        config: BrokerConfig,
        broker_id: int,
        endpoints: Mapping[str, tuple[str, int]],
        store: ZooKeeperStore,
        peers: Peers,
        logs: LogManager,
        clock_ms: Callable[[], int],
    ) -> None:
        self._clock_ms = clock_ms
        self._logs = logs
        self._config = config
        self._broker_id = broker_id
        self._endpoints = endpoints
        self._store = store
        self._peers = peers
        self._is_known = trio.Event()

    async def begin(self) -> None:
        """Register the broker, and wait until the controller has sent it its own registration.

        Then it has the cluster's metadata. After an unclean shutdown, others first take over its partitions. Raises
        StartupError if another broker has its id.
        """
        self._store.subscribe(self)
        try:
            if self._logs.is_unclean:
                await self._store.wait_for_successors(self._registration())
            await self._store.register(self._registration(), version=self._version())
            self._logs.stays_unclean = False
        except IdTakenError as error:
            raise StartupError(str(error)) from error
        except ZooKeeperError as error:
            raise StartupError(f"the broker cannot register in ZooKeeper: {_text(error)}") from error
        with trio.move_on_after(KNOWN_SECONDS) as scope:
            await self._is_known.wait()
        if scope.cancelled_caught:
            log.warning(
                "no controller has announced this broker within %d s; it serves with the metadata that it has",
                KNOWN_SECONDS,
            )
        self._say_features()

    def _say_features(self) -> None:
        """Log the features that the cluster has not finalized: clients that need them are refused."""
        levels = self._store.image.features or {}
        off = [
            f"{feature.name}={feature.finalized_level}"
            for feature in KAFKA_4.features
            if not levels.get(feature.name)
        ]
        if off:
            log.info(
                "features that are off in this cluster: %s; consumer groups of KIP-848, share groups, streams groups and "
                "transactions of version 2 need theirs. Once all brokers know them: kafka-features.sh upgrade --feature %s",
                ", ".join(off), " --feature ".join(off),
            )  # fmt: skip

    def _registration(self) -> BrokerRegistration:
        protocols = self._config.listener_security_protocols()
        return BrokerRegistration(
            tuple(
                Endpoint(name, host, port, protocols.get(name, name))
                for name, (host, port) in self._endpoints.items()
            ),
            self._config.get(settings.BROKER_RACK),
            # Kafka before 3.9 cannot read a level of 0.
            {feature.name: (max(feature.min_level, 1), feature.max_level) for feature in KAFKA_4.features},
            timestamp_ms=self._clock_ms(),
        )

    def _version(self) -> int:
        """The version of the registration's JSON that the oldest broker of the cluster reads."""
        protocol = protocol_of(self._config)
        if protocol >= protocol_version.V2_7_IV0:
            return 5
        return 4 if protocol >= protocol_version.V0_10_0_IV1 else 2

    async def end(self) -> None:
        """Hand over the partitions that this broker leads."""
        await shut_down_controlled(
            self._config,
            self._broker_id,
            self._store.broker_epoch,
            self._peers,
            lambda: self._store.image,
            lambda: self._store.is_connected,
        )

    # --- following the image --------------------------------------------------------------------------------

    async def prepare(self, delta: Delta) -> None:
        """Do nothing."""

    def publish(self, delta: Delta) -> None:
        """See whether the broker knows of itself."""
        if self._broker_id in delta.new.brokers:
            self._is_known.set()

    async def clean_up(self, delta: Delta) -> None:
        """Do nothing."""
