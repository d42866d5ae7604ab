"""The addresses of brokers for clients.

The rule: a client gets the addresses of the listener to which it is connected; a broker without that listener is
omitted. A broker without a cluster that advertises nothing returns the address to which the client has connected, so that
clients of several networks each get an address that works for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.cluster.metadata.image import BrokerInfo, ClusterImage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.serving.context import ConnectionInfo


class Node(NamedTuple):
    """A broker as a client can reach it."""

    id: int
    host: str
    port: int
    rack: str | None


def advertised_node(image: ClusterImage, broker_id: int, connection: ConnectionInfo) -> Node | None:
    """Return the address of a broker for the client of `connection`.

    None for a broker that is not alive, or has no listener of that name.
    """
    broker = image.brokers.get(broker_id)
    return None if broker is None else _node(image, broker, connection)


def advertised_nodes(
    image: ClusterImage, connection: ConnectionInfo, broker_ids: Iterable[int] | None = None
) -> list[Node]:
    """Return the addresses of these brokers, or of all, for a client, each once; unreachable ones are excluded."""
    asked = image.brokers if broker_ids is None else image.brokers.keys() & broker_ids
    nodes = (_node(image, image.brokers[broker_id], connection) for broker_id in sorted(asked))
    return [node for node in nodes if node is not None]


def fenced_nodes(image: ClusterImage, connection: ConnectionInfo) -> list[Node]:
    """Return where the client would reach the brokers that are registered and not alive."""
    nodes = (_node(image, broker, connection) for _, broker in sorted(image.fenced.items()))
    return [node for node in nodes if node is not None]


def _node(image: ClusterImage, broker: BrokerInfo, connection: ConnectionInfo) -> Node | None:
    endpoint = broker.endpoints.get(connection.listener)
    if endpoint is None:
        if len(image.brokers) > 1:
            return None
        endpoint = connection.local_address
    host, port = endpoint
    return Node(broker.id, host.removeprefix("::ffff:"), port, broker.rack)
