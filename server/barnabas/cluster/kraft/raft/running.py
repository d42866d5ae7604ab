"""Assembles a replica of the quorum: its formatted directory, its connections, its tasks.

The rule: a directory that is not formatted, or belongs to another node or cluster, is refused before anything in it
changes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from barnabas.client import ClientSettings
from barnabas.cluster.kraft.joining import dial_in, opened, running
from barnabas.cluster.kraft.raft.node import RaftNode
from barnabas.cluster.kraft.raft.peers import PeerConnections, Peers
from barnabas.cluster.kraft.raft.values import RaftSettings
from barnabas.cluster.kraft.raft.voter import Replica
from barnabas.config.quorum import QuorumSettings
from barnabas.environment import Environment


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

    The caller must hold the lock of the log dir. At the end of the block a leader resigns first. `peers` replaces the
    connections in simulations. Raises MetadataLogError and StorageError; if either occurs while the block runs, the
    block is cancelled. Errors of the block propagate unchanged.
    """
    async with opened(quorum, environment) as (identity, stored_log, stored):
        connections = PeerConnections(
            client, request_timeout_ms=settings.request_timeout_ms, dial=dial_in(environment)
        )
        node = RaftNode(
            Replica(identity, stored, settings, environment.entropy.below),
            stored_log,
            peers or connections,
            log_settings=quorum.log,
            wall_clock_ms=environment.wall_clock_ms,
            threads=environment.threads,
        )
        async with running(node.run, quorum.log_dir):
            yield node
            await node.leave()
