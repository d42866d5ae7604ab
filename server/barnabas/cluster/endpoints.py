"""Which address a client is told for a broker.

The rule: what is configured is told; where nothing is, the address that the client itself has dialled, so that a
client on this machine, in a container or on another machine each gets one that works for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cluster.image import ClusterImage

if TYPE_CHECKING:
    from barnabas.broker.context import ConnectionInfo


def advertised_endpoint(
    image: ClusterImage, broker_id: int, connection: ConnectionInfo
) -> tuple[str, int, str | None]:
    """(host, port, rack) of a broker for the client at the other end of `connection`; ("", -1, None) if unknown."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        return "", -1, None
    host, port = broker.endpoints.get(connection.listener, connection.local_address)
    return host.removeprefix("::ffff:"), port, broker.rack
