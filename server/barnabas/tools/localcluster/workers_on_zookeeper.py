"""Workers in a directory with a ZooKeeper of ours, created before workers formed a quorum.

The rule: their common metadata stays in the ZooKeeper server in this process, which only they can use.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import trio

from barnabas.config.properties import format_properties
from barnabas.tools.localcluster.children import Child
from barnabas.tools.localcluster.defaults import SESSION_MS
from barnabas.tools.localcluster.quorum import Node, write
from barnabas.tools.localcluster.workers import ZOOKEEPER_DIRECTORY, MakeChild, Workers
from barnabas.tools.localcluster.zookeeper import OwnZooKeeper


class Parts(NamedTuple):
    """Parts of workers on ZooKeeper."""

    make_child: MakeChild = Child
    zookeeper: Callable[..., OwnZooKeeper] = OwnZooKeeper


class ZooKeeperWorkers(Workers):
    """Workers and their ZooKeeper."""

    def __init__(self, *arguments: Any, parts: Parts | None = None) -> None:
        parts = parts or Parts()
        super().__init__(*arguments, make_child=parts.make_child)
        self._password = secrets.token_hex(16)
        self._zookeeper = parts.zookeeper(
            self.directory / ZOOKEEPER_DIRECTORY, credentials=f"worker:{self._password}"
        )

    def check(self) -> None:
        """See nothing: each worker does."""

    async def begin(self, _: Collection[int], nursery: trio.Nursery) -> None:
        """Start ZooKeeper. Raises ChildError."""
        await self._zookeeper.start()
        nursery.start_soon(self._zookeeper.run)

    def prepare(self, node: Node, shared: Mapping[str, str], file: Path) -> None:
        """Write a worker's file of settings. Raises ChildError."""
        own = {
            "zookeeper.session.timeout.ms": str(SESSION_MS),
            **shared,
            "broker.id": str(node.node_id),
            "listeners": ",".join(node.listeners),
            "log.dirs": ",".join(node.log_dirs),
            "zookeeper.connect": self._zookeeper.address,
            "zookeeper.digest.credentials": f"worker:{self._password}",
        }
        write(file, format_properties(own))

    def has_ended(self, broker_id: int) -> None:
        """End the session of a worker after its process has ended."""
        self._zookeeper.server.end_owner_of(f"/brokers/ids/{broker_id}")

    async def stop(self) -> None:
        """Stop all workers at the same time, and then ZooKeeper."""
        await self.stop_workers(self.workers)
        await self._zookeeper.close()
