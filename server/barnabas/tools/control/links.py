"""Connections between the nodes of one process, which can be cut as by a network that loses every packet.

The rule: a cut is silence, not an error: sent bytes wait, and arrived bytes are not delivered, until the nodes are
connected again. Connections of clients are never cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from barnabas.network.transport import Acceptor, Network


class Links:
    """The nodes of a cluster by their ports, and the isolated ones."""

    def __init__(self) -> None:
        self.isolated: set[int] = set()
        """Numbers of the nodes that no other node reaches, and that reach none."""
        self._nodes: dict[int, int] = {}
        self._changed = trio.Event()

    def add(self, node_id: int, ports: Sequence[int]) -> None:
        """Note the ports on which a node listens."""
        self._nodes.update(dict.fromkeys(ports, node_id))

    def node_at(self, port: int) -> int | None:
        """Return the node that listens on a port; None for any other server."""
        return self._nodes.get(port)

    def isolate(self, node_id: int) -> None:
        """Cut a node off from all others."""
        self.isolated.add(node_id)

    def rejoin(self, node_id: int) -> None:
        """Connect an isolated node to the others again."""
        self.isolated.discard(node_id)
        self._changed.set()
        self._changed = trio.Event()

    async def wait(self, node_id: int, other_id: int) -> None:
        """Wait until two nodes reach each other."""
        while not self.isolated.isdisjoint((node_id, other_id)):
            await self._changed.wait()


class LinkedNetwork:
    """The network of one node. Implements `network.transport.Network`."""

    def __init__(self, network: Network, links: Links, node_id: int) -> None:
        self._network = network
        self._links = links
        self._node_id = node_id

    def host_name(self) -> str:
        """Return the name by which other machines know this one."""
        return self._network.host_name()

    def bind(self, host: str, port: int) -> Sequence[Acceptor]:
        """Bind all addresses of a host. Raises OSError."""
        return self._network.bind(host, port)

    async def dial(self, host: str, port: int) -> trio.abc.Stream:
        """Connect to an address. Raises OSError."""
        other_id = self._links.node_at(port)
        if other_id is None or other_id == self._node_id:
            return await self._network.dial(host, port)
        await self._links.wait(self._node_id, other_id)
        return LinkedStream(await self._network.dial(host, port), self._links, self._node_id, other_id)


class LinkedStream(trio.abc.Stream):
    """A connection from one node to another."""

    def __init__(self, stream: trio.abc.Stream, links: Links, node_id: int, other_id: int) -> None:
        self._stream = stream
        self._links = links
        self._ends = node_id, other_id
        self._arrived: bytes | bytearray | None = None

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send data as soon as the nodes reach each other."""
        await self._links.wait(*self._ends)
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until bytes may be sent."""
        await self._links.wait(*self._ends)
        await self._stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """Receive bytes, once the nodes reach each other."""
        if self._arrived is None:
            self._arrived = await self._stream.receive_some(max_bytes)
        await self._links.wait(*self._ends)  # what has come is kept where this is cancelled
        data = self._arrived
        rest = b"" if max_bytes is None else data[max_bytes:]
        self._arrived = rest or None
        return data[: len(data) - len(rest)]

    async def aclose(self) -> None:
        """Close the connection."""
        await self._stream.aclose()
