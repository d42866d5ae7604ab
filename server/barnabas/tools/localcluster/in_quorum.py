"""A cluster of a KRaft quorum of our own: brokers of which the first are controllers, or separate controllers.

The rule: all nodes start at the same time, as controllers need each other; brokers hand over their leaders while a
majority of controllers is running, and controllers end last.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

import trio

from barnabas.broker.serve_options import WITHOUT_FILE
from barnabas.tools.localcluster.children import Child
from barnabas.tools.localcluster.cluster import Cluster, MakeChild
from barnabas.tools.localcluster.defaults import settings_of
from barnabas.tools.localcluster.ports import free_port
from barnabas.tools.localcluster.quorum import (
    FIRST_CONTROLLER,
    Node,
    Quorum,
    command_of,
    controller_ids,
    format_and_write,
    prepare,
    settings_of_node,
)

READY = "bootstrap.controllers="


class QuorumCluster(Cluster):
    """Brokers and controllers."""

    def __init__(
        self,
        options: argparse.Namespace,
        directory: Path,
        shared: Mapping[str, str],
        *,
        make_child: MakeChild = Child,
    ) -> None:
        """`shared` are settings that all nodes are given."""
        super().__init__(options, directory, make_child=make_child)
        self._shared = {
            **({} if options.config else {**WITHOUT_FILE, **settings_of(options.brokers)}),
            **shared,
        }
        self._controllers: dict[int, Child] = {}
        self._quorum = Quorum("", {})

    def children(self) -> list[Child]:
        """Return brokers and controllers."""
        return [*super().children(), *self._controllers.values()]

    async def start(self, nursery: trio.Nursery) -> None:
        """Format new directories, and start all nodes at the same time. Raises ChildError."""
        options = self._options
        quorum = self._quorum = prepare(self._directory, controller_ids(options.brokers, options.controllers))
        async with trio.open_nursery() as starting:
            for node_id in quorum.dedicated:
                child = self.child(f"controller {node_id}", self._command(f"controller-{node_id}", node_id))
                self._controllers[node_id] = child
                starting.start_soon(self.start_child, child, self._controllers, READY, nursery)
            for broker_id in range(1, options.brokers + 1):
                command = self._command(f"broker-{broker_id}", broker_id)
                starting.start_soon(self.start_broker, broker_id, command, nursery)
        self.say_ready(f"{READY}{quorum.addresses}")

    def _command(self, name: str, node_id: int) -> tuple[str, ...]:
        """Return the command that starts a node, once its directory and its file are written. Raises ChildError."""
        settings, listeners = dict(self._shared), []
        if node_id < FIRST_CONTROLLER:
            port = self.port(node_id) or free_port(but=self._quorum.ports.values())
            listeners.append(f"PLAINTEXT://localhost:{port}")
            rack = self.rack(node_id)
            if rack is not None:
                settings["broker.rack"] = rack
        node = Node(node_id, (str(self._directory / name),), tuple(listeners))
        file = self._directory / f"{name}.properties"
        format_and_write(settings_of_node(self._quorum, node, settings), self._quorum.cluster_id, file)
        return command_of(file, self._options.log_level)

    async def stop(self) -> None:
        """Stop the brokers, last one first, while a majority of controllers is running; the others at the same time."""
        ports = self._quorum.ports
        running = {node_id: child for node_id, child in self._brokers.items() if not child.ended.is_set()}
        voters = sum(
            not child.ended.is_set()
            for node_id, child in (*running.items(), *self._controllers.items())
            if node_id in ports
        )
        for node_id, child in sorted(running.items(), reverse=True):
            voters -= node_id in ports
            if voters <= len(ports) // 2:
                break
            await self.stop_children([child])
        await self.stop_children(list(self._brokers.values()))
        await self.stop_children(list(self._controllers.values()))
