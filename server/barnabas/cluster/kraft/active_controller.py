"""The active controller of a quorum, as requests find it.

The rule: `Peers` keeps the connections; where the active controller is, the metadata log says: the leader of its newest
epoch, by the listener of the controllers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from barnabas.cluster.kraft.replica_values import Leader
from barnabas.cluster.metadata.image import BrokerInfo, ClusterImage
from barnabas.cluster.metadata.peers import Peers

if TYPE_CHECKING:
    from barnabas.client import ClientSettings
    from barnabas.network.transport import Network


def controllers(
    leader: Callable[[], Leader], listener: str, network: Network, settings: ClientSettings
) -> Peers:
    """Return peers of which `ask_controller` asks the active controller; `leader` names it, with its address."""

    def image() -> ClusterImage:
        active = leader()
        if active.id < 0 or not active.host:
            return ClusterImage("")
        endpoints = {listener: (active.host, active.port)}
        return ClusterImage(
            "", controller_id=active.id, brokers={active.id: BrokerInfo(active.id, None, endpoints)}
        )

    return Peers(image, listener, network, settings)
