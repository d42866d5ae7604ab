"""The address of a broker that a client is given.

The rule: an advertised address if one is configured for the listener; otherwise the address that the client has
connected to, so that clients of several networks each get one that works for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cluster.image import ClusterImage

if TYPE_CHECKING:
    from barnabas.requests.context import ConnectionInfo


def advertised_endpoint(
    image: ClusterImage, broker_id: int, connection: ConnectionInfo
) -> tuple[str, int, str | None]:
    """(host, port, rack) of a broker for the client at the other end of `connection`; ("", -1, None) if unknown."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        return "", -1, None
    host, port = broker.endpoints.get(connection.listener, connection.local_address)
    return host.removeprefix("::ffff:"), port, broker.rack
