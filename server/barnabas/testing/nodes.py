"""The nodes of a cluster in one process: a KRaft quorum of any shape, in memory, for tests.

The rule: nodes connect over loopback sockets, as in several processes; a test affects a node by its process and its
network, and the other nodes are not notified.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from barnabas.config.loading import BrokerConfig
from barnabas.environment.real import real_environment
from barnabas.testing.bench import DATA, SETTINGS, Bench
from barnabas.tools.control.links import LinkedNetwork
from barnabas.tools.control.node_group import ClusterNode, NodeGroup
from barnabas.tools.localcluster.defaults import settings_of
from barnabas.tools.localcluster.ports import free_port
from barnabas.tools.localcluster.quorum import (
    Node,
    Quorum,
    controller_ids,
    format_and_write,
    prepare,
    settings_of_node,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


NOTICED_SOON = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "500"}
"""A node that is cut off is noticed after two seconds; the end of a process immediately, whatever is set."""


async def start_nodes(
    bench: Bench,
    directory: str,
    brokers: int,
    controllers: int | None = None,
    settings: Mapping[str, str] | None = None,
    *,
    control: tuple[str, int] = ("127.0.0.1", 0),
    on_end: Callable[[], object] = bool,
) -> NodeGroup:
    """Start brokers on a bench; the first are controllers, too, unless `controllers` are started beside them.

    `control` is the address of the first broker's control API; `on_end` is called when that broker has ended for good.

    Raises StartupError, StorageError, ChildError.
    """
    quorum = prepare(Path(directory), controller_ids(brokers, controllers))
    nodes = _nodes(directory, quorum, brokers)
    group = NodeGroup(bench.control_urls)
    for node_id, port in quorum.ports.items():
        group.links.add(node_id, [port])
    for node in nodes:
        ports = [int(listener.rpartition(":")[2]) for listener in node.listeners]
        group.links.add(node.node_id, ports)
    shared = {**SETTINGS, **settings_of(brokers), **NOTICED_SOON, **(settings or {})}

    async def start(node: Node) -> None:
        own = settings_of_node(quorum, node, shared)
        format_and_write(own, quorum.cluster_id, Path(directory, f"node-{node.node_id}.properties"))
        config = BrokerConfig(own)
        config.has_metadata_log = True
        environment = real_environment()
        network = LinkedNetwork(environment.network, group.links, node.node_id)
        host = await bench.start(
            config,
            control=control if node.node_id == 1 else (control[0], 0),
            on_end=on_end if node.node_id == 1 else bool,
            environment=environment._replace(network=network),
        )
        group.add(ClusterNode(node.node_id, tuple(own["process.roles"].split(",")), host))

    async with trio.open_nursery() as starting:
        for node in nodes:
            starting.start_soon(start, node)
    return group


def _nodes(directory: str, quorum: Quorum, brokers: int) -> Sequence[Node]:
    """Return the places of all nodes."""
    taken = list(quorum.ports.values())
    nodes = []
    for node_id in (*quorum.dedicated, *range(1, brokers + 1)):
        listeners: tuple[str, ...] = ()
        if node_id not in quorum.dedicated:
            taken.append(free_port(but=taken))
            listeners = (f"PLAINTEXT://127.0.0.1:{taken[-1]}",)
        nodes.append(Node(node_id, (f"{directory}/node-{node_id}/{DATA}",), listeners))
    return nodes
