"""The active controller of a quorum, as requests reach it.

The rule: `Peers` keeps the connections. The active controller is the leader of the newest epoch in the metadata log, at
its address on the controller listener.
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
    """Return peers through which `ask_controller` asks the active controller; `leader` returns its id and address."""

    def image() -> ClusterImage:
        active = leader()
        if active.id < 0 or not active.host:
            return ClusterImage("")
        endpoints = {listener: (active.host, active.port)}
        return ClusterImage(
            "", controller_id=active.id, brokers={active.id: BrokerInfo(active.id, None, endpoints)}
        )

    return Peers(image, listener, network, settings)
