"""A cluster of brokers on ZooKeeper: ours in this process, Apache's in another, or one that runs already.

The rule: ZooKeeper is ready before the first broker starts, and ends after the last.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import trio

from barnabas.tools.localcluster.children import Child, ending
from barnabas.tools.localcluster.cluster import Cluster, MakeChild, say
from barnabas.tools.localcluster.defaults import ON_ZOOKEEPER, settings_of
from barnabas.tools.localcluster.features import switch_on
from barnabas.tools.localcluster.jars import Program, find
from barnabas.tools.localcluster.zookeeper import ApacheZooKeeper, OwnZooKeeper


class Parts(NamedTuple):
    """Parts of a cluster on ZooKeeper."""

    make_child: MakeChild = Child
    own_zookeeper: Callable[[Path], OwnZooKeeper] = OwnZooKeeper
    apache_zookeeper: type[ApacheZooKeeper] = ApacheZooKeeper
    find: Callable[..., Program] = find
    switch_on: Callable[[str], Awaitable[str]] = switch_on


class ZooKeeperCluster(Cluster):
    """Brokers and their ZooKeeper."""

    def __init__(self, options: argparse.Namespace, directory: Path, parts: Parts | None = None) -> None:
        self._parts = parts or Parts()
        super().__init__(options, directory, make_child=self._parts.make_child)
        self._own_zookeeper: OwnZooKeeper | None = None
        self._zookeeper: ApacheZooKeeper | None = None

    def children(self) -> list[Child]:
        """Return brokers and ZooKeeper."""
        return [*super().children(), *([self._zookeeper.child] if self._zookeeper else [])]

    async def start(self, nursery: trio.Nursery) -> None:
        """Start ZooKeeper and then all brokers at the same time. Raises ChildError."""
        options = self._options
        zookeeper = options.zookeeper
        is_new = not zookeeper
        if not zookeeper:
            directory = self._directory / "zookeeper"
            wants_apache = options.apache_zookeeper or options.zookeeper_jars or options.fetch
            if wants_apache or self._parts.apache_zookeeper.was_used_in(directory):
                zookeeper = await self._start_apache(nursery, directory)
            else:
                zookeeper = await self._start_own(nursery, directory)
        async with trio.open_nursery() as starting:
            for broker_id in range(1, options.brokers + 1):
                starting.start_soon(self._start_broker, broker_id, zookeeper, nursery)
        servers = ",".join(self._addresses.values())
        if is_new and (problem := await self._parts.switch_on(servers)):
            say(f"groups of KIP-848, share groups and streams groups are not served: {problem}")
        self.say_ready(f"zookeeper={zookeeper}")

    async def _start_own(self, nursery: trio.Nursery, directory: Path) -> str:
        server = self._parts.own_zookeeper(directory)
        await server.start()
        self._own_zookeeper = server
        nursery.start_soon(server.run)
        say(f"ZooKeeper is ready: {server.address}, in this process")
        return server.address

    async def _start_apache(self, nursery: trio.Nursery, directory: Path) -> str:
        options = self._options
        program = await trio.to_thread.run_sync(
            lambda: self._parts.find(
                may_fetch=options.fetch, jars=options.zookeeper_jars, repository=options.maven, say=say
            )
        )
        say(f"starting ZooKeeper: {program.origin}")
        server = self._parts.apache_zookeeper(program, directory)
        server.start()
        self._zookeeper = server
        nursery.start_soon(self._watch_zookeeper, server)
        await server.ready()
        say(f"ZooKeeper is ready: {server.address} pid={server.child.pid} log={server.child.output}")
        return server.address

    async def _start_broker(self, broker_id: int, zookeeper: str, nursery: trio.Nursery) -> None:
        await self.start_broker(broker_id, self._command(broker_id, zookeeper), nursery)
        child = self._brokers[broker_id]
        listen = f"localhost:{self._addresses[broker_id].rpartition(':')[2]}"  # where it is started again
        child.command = tuple(listen if word == "localhost:0" else word for word in child.command)

    def _command(self, broker_id: int, zookeeper: str) -> list[str]:
        options = self._options
        command = [sys.executable, "-m", "barnabas", "serve", "--zookeeper", zookeeper]
        command += ["--broker-id", str(broker_id), "--listen", f"localhost:{self.port(broker_id)}"]
        command += ["--data", str(self._directory / f"broker-{broker_id}"), "--log-level", options.log_level]
        if rack := self.rack(broker_id):
            command += ["--rack", rack]
        if options.config:
            command += ["--config", options.config]
        else:
            for name, value in {**settings_of(options.brokers), **ON_ZOOKEEPER}.items():
                command += ["--set", f"{name}={value}"]
        for pair in options.set:
            command += ["--set", pair]
        return command

    async def _watch_zookeeper(self, server: ApacheZooKeeper) -> None:
        code = await server.child.wait()
        if not self.is_stopping:
            say(f"ZooKeeper has ended ({ending(code)}); the brokers are stopped")
            self.fail()

    async def stop(self) -> None:
        """Stop the brokers, last one first, each when the one before it has handed over its leaders; then ZooKeeper."""
        for child in reversed(self._brokers.values()):
            await self.stop_children([child])
        if self._zookeeper is not None:
            await self.stop_children([self._zookeeper.child])
        if self._own_zookeeper is not None:
            await self._own_zookeeper.close()
