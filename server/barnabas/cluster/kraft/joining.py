"""Assembles an observer of a KRaft quorum: its formatted directory, its connections, its tasks.

The rule: a directory that is not formatted, or belongs to another node or cluster, is refused before anything in it
changes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import trio

from barnabas.client import ClientSettings, Endpoint
from barnabas.client.background import background
from barnabas.client.connection import Dial
from barnabas.cluster.kraft.contacts import Contacts
from barnabas.cluster.kraft.controllers import ControllerConnections
from barnabas.cluster.kraft.durable_log import DurableLog
from barnabas.cluster.kraft.follower import Controllers, MetadataFollower
from barnabas.cluster.kraft.observer import Observer
from barnabas.cluster.kraft.replica_values import Identity, StoredLog
from barnabas.cluster.kraft.state import MetadataLogError
from barnabas.config.quorum import QuorumSettings
from barnabas.environment import Environment
from barnabas.errors import StorageError
from barnabas.log.disk import Disk
from barnabas.log.format import CorruptFileError
from barnabas.log.format.names import META_PROPERTIES
from barnabas.log.format.properties import MetaProperties
from barnabas.log.logdir import read_meta


def identity_of(disk: Disk, settings: QuorumSettings) -> Identity:
    """Return the identity in `meta.properties` of the metadata log's dir. Raises MetadataLogError, OSError."""
    path = f"{settings.log_dir}/{META_PROPERTIES}"
    try:
        meta = read_meta(disk, settings.log_dir)
    except CorruptFileError as error:
        raise MetadataLogError(f"{settings.log_dir}: {error}") from None
    if meta is None:
        raise MetadataLogError(
            f"{path} is missing: format the directory first, with the id of the cluster (kafka-storage format -t ID)"
        )
    node_id, cluster_id, directory_id = require_whole(meta, path)
    if node_id != settings.node_id:
        raise MetadataLogError(f"{path} says node.id={node_id}, and node.id={settings.node_id} is set")
    return Identity(node_id, directory_id, cluster_id)


def require_whole(meta: MetaProperties, path: str) -> tuple[int, str, bytes]:
    """Return node, cluster and directory id of a formatted directory. Raises MetadataLogError if any is missing."""
    if meta.version != 1 or meta.node_id is None or meta.cluster_id is None or meta.directory_id is None:
        raise MetadataLogError(
            f"{path} is not of a KRaft cluster: it needs version=1, node.id, cluster.id and directory.id"
        )
    return meta.node_id, meta.cluster_id, meta.directory_id


@asynccontextmanager
async def opened(
    settings: QuorumSettings, environment: Environment
) -> AsyncIterator[tuple[Identity, DurableLog, StoredLog]]:
    """Open the directory for the block, and yield its identity, its log, and the content of the log.

    Raises MetadataLogError, StorageError. The caller must hold the lock of the log dir.
    """
    try:
        identity = identity_of(environment.disk, settings)
        stored_log = DurableLog(environment.disk, settings.log_dir, settings.log)
        stored = await environment.threads.run(lambda: stored_log.open(environment.wall_clock_ms()))
    except OSError as error:
        raise StorageError(settings.log_dir, error) from error
    try:
        yield identity, stored_log, stored
    finally:
        with trio.CancelScope(shield=True):
            await environment.threads.run(stored_log.close)


@asynccontextmanager
async def running(run: Callable[[], Awaitable[None]], log_dir: str) -> AsyncIterator[trio.Nursery]:
    """Run a replica within the block, and yield a nursery for further tasks; if the replica fails, the block is cancelled.

    Raises the errors of `run`, OSError as StorageError; errors of the block propagate unchanged.
    """
    failures: list[Exception] = []
    async with background() as nursery:

        async def until_it_fails() -> None:
            try:
                await run()
            except Exception as error:
                failures.append(error)
                nursery.cancel_scope.cancel()

        nursery.start_soon(until_it_fails)
        yield nursery
    if failures and isinstance(failures[0], OSError):
        raise StorageError(log_dir, failures[0]) from failures[0]
    if failures:
        raise failures[0]


def dial_in(environment: Environment) -> Dial:
    """Return a function that connects by the network of an environment."""

    async def dial(endpoint: Endpoint) -> trio.abc.Stream:
        return await environment.network.dial(endpoint.host, endpoint.port)

    return dial


@asynccontextmanager
async def observing(
    settings: QuorumSettings,
    environment: Environment,
    client: ClientSettings,
    *,
    controllers: Controllers | None = None,
) -> AsyncIterator[MetadataFollower]:
    """Open the directory and follow the quorum within the block; `client` has the security of the controllers' listener.

    The caller must hold the lock of the log dir. `controllers` replaces the connections in simulations. Raises
    MetadataLogError and StorageError; if either occurs while the block runs, the block is cancelled. Errors of the block
    propagate unchanged.
    """
    async with opened(settings, environment) as (identity, stored_log, stored):
        observer = Observer(
            identity,
            stored,
            static_voters=settings.static_voters,
            listener=settings.listener,
            fetch_bytes_max=settings.fetch_bytes_max,
            snapshot_bytes_max=settings.snapshot_bytes_max,
        )
        contacts = Contacts(
            settings.bootstrap,
            first=environment.entropy.below(len(settings.bootstrap)),
            backoff_ms=settings.retry_backoff_ms,
            fetch_timeout_ms=settings.fetch_timeout_ms,
        )
        connections = ControllerConnections(
            client, request_timeout_ms=settings.request_timeout_ms, dial=dial_in(environment)
        )
        follower = MetadataFollower(
            observer,
            contacts,
            controllers or connections,
            stored_log,
            settings=settings.log,
            wall_clock_ms=environment.wall_clock_ms,
            threads=environment.threads,
        )
        async with running(follower.run, settings.log_dir) as nursery:
            nursery.start_soon(connections.run)
            yield follower
