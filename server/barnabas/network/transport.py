"""Ports of connections and networks, of any kind: plain sockets, TLS, or a simulated network.

The rule: a call that would block waits through trio, and nothing is awaited between a read and its return, so that
buffers may be shared by all connections.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import trio

    from barnabas.wire.regions import Chunk

Address = tuple[str, int]
EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Hosts that mean every interface, as "" does, with the loopback address of each."""


def host_and_port(address: str) -> tuple[str, int] | None:
    """Split `HOST:PORT`, with an IPv6 address in brackets; None for anything else."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        return None
    return host.removeprefix("[").removesuffix("]"), int(port)


def url_address(host: str, port: int) -> str:
    """`host:port`, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Return whether only this machine can connect to an address."""
    return host.startswith("127.") or host == "::1"


class UnknownHostError(OSError):
    """A host has no address."""


class Reader(Protocol):
    """Observer of the peer's reads."""

    def fell_behind(self, size: int) -> None:
        """Call when nothing more can be sent and up to `size` bytes of a response stay in memory."""

    def took_some(self) -> None:
        """Call when more could be sent."""

    def caught_up(self) -> None:
        """Note that the response was sent completely."""


class Transport(Protocol):
    """One accepted connection, owned by one task, which closes it."""

    @property
    def local_address(self) -> Address:
        """The address that the peer has connected to."""

    @property
    def peer_address(self) -> Address:
        """The address of the peer."""

    def report_to(self, reader: Reader) -> None:
        """Tell `reader` how the peer reads."""

    async def wait_readable(
        self, *, soon: bool = True, is_crowded: bool = False, arrived: Callable[[], bool] | None = None
    ) -> None:
        """Wait until data may be readable, or the peer has closed.

        `soon` is true if data is expected soon, `is_crowded` if it is for many other connections too. Of connections
        that are not expected to be active, or are among many, only as many return in each turn of the event loop as it
        has time for. For these `arrived`, which must not raise, may be called when data has arrived: while it returns
        false the wait continues.
        """

    def is_only_readable(self, seconds: float) -> bool:
        """Return whether this connection, and no other, is readable; polls for up to `seconds`.

        False is always allowed: then the connection waits as any other.
        """

    def expect(self, size: int) -> None:
        """Announce that at least `size` more bytes are expected, so that one wait may cover many; 0 cancels that."""

    def wake(self) -> None:
        """Make a task that waits for data return from its wait, though there may be none."""

    def receive_now(self, view: memoryview) -> int | None:
        """Read available data into `view`: 0 means that the peer has closed, None that no data is available."""

    def send_now(self, data: bytes | bytearray | memoryview) -> int:
        """Send as much as possible without waiting; returns the number of bytes; pass the rest to `send`.

        Raises OSError when the peer has disconnected.
        """

    async def send(self, chunks: list[Chunk]) -> None:
        """Send all chunks in order. Raises OSError when the peer has disconnected."""

    def reset(self) -> None:
        """Make `close` reset the connection: the peer gets an error in place of the end of the stream."""

    def close(self) -> None:
        """Close the connection; tasks that wait on it are woken with trio.ClosedResourceError."""


class Acceptor(Protocol):
    """One bound address. Connections are refused until `listen`."""

    @property
    def address(self) -> Address:
        """The address that is really bound."""

    def listen(self) -> None:
        """Start to accept connections. Raises OSError."""

    async def wait_acceptable(self) -> None:
        """Wait until there may be a connection to accept."""

    def accept_now(self) -> Transport | None:
        """Return the next connection; None if none is waiting. Raises OSError."""

    def close(self) -> None:
        """Stop listening; tasks that wait are woken with trio.ClosedResourceError."""


class Network(Protocol):
    """Binds and dials addresses."""

    def host_name(self) -> str:
        """Return the name by which other machines know this one."""

    def bind(self, host: str, port: int) -> Sequence[Acceptor]:
        """Bind all addresses of a host; "" is every interface, port 0 a free one.

        Raises OSError, with UnknownHostError for an unknown host.
        """

    async def dial(self, host: str, port: int) -> trio.abc.Stream:
        """Connect to an address. Raises OSError."""
