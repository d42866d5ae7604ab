"""Puts a replica of the quorum together: its formatted directory, its connections, its tasks.

The rule: a directory that was not formatted, or for another node or cluster, is refused before anything in it changes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from barnabas.client import ClientSettings, Endpoint
from barnabas.client.background import background
from barnabas.cluster.kraft.durable_log import DurableLog
from barnabas.cluster.kraft.joining import identity_of
from barnabas.cluster.kraft.raft.node import RaftNode
from barnabas.cluster.kraft.raft.peers import PeerConnections, Peers
from barnabas.cluster.kraft.raft.values import RaftSettings
from barnabas.cluster.kraft.raft.voter import Replica
from barnabas.config.quorum import QuorumSettings
from barnabas.environment import Environment
from barnabas.errors import StorageError


@asynccontextmanager
async def taking_part(
    quorum: QuorumSettings,
    settings: RaftSettings,
    environment: Environment,
    client: ClientSettings,
    *,
    peers: Peers | None = None,
) -> AsyncIterator[RaftNode]:
    """Open the directory and take part in the quorum within the block; `client` has the security of the listener.

    The log dir must be locked by the caller. At the end of the block the node resigns first if it leads. `peers` replaces
    the connections in simulations. Raises MetadataLogError and StorageError, also while the block runs, which is cancelled
    then; what the block raises leaves it as it is.
    """
    try:
        identity = identity_of(environment.disk, quorum)
        stored_log = DurableLog(environment.disk, quorum.log_dir, quorum.log)
        stored = await environment.threads.run(lambda: stored_log.open(environment.wall_clock_ms()))
    except OSError as error:
        raise StorageError(quorum.log_dir, error) from error
    try:

        async def dial(endpoint: Endpoint) -> trio.abc.Stream:
            return await environment.network.dial(endpoint.host, endpoint.port)

        connections = PeerConnections(client, request_timeout_ms=settings.request_timeout_ms, dial=dial)
        node = RaftNode(
            Replica(identity, stored, settings, environment.entropy.below),
            stored_log,
            peers or connections,
            log_settings=quorum.log,
            wall_clock_ms=environment.wall_clock_ms,
            threads=environment.threads,
        )
        failures: list[Exception] = []
        async with background() as nursery:

            async def take_part() -> None:
                try:
                    await node.run()
                except Exception as error:
                    failures.append(error)
                    nursery.cancel_scope.cancel()

            nursery.start_soon(take_part)
            yield node
            await node.leave()
        if failures and isinstance(failures[0], OSError):
            raise StorageError(quorum.log_dir, failures[0]) from failures[0]
        if failures:
            raise failures[0]
    finally:
        with trio.CancelScope(shield=True):
            await environment.threads.run(stored_log.close)
