"""Connections to other machines, of the broker and of clients alike."""

from __future__ import annotations

import trio


async def dial(host: str, port: int) -> trio.SocketStream:
    """Open a TCP connection on which small requests leave at once. Raises OSError."""
    stream = await trio.open_tcp_stream(host, port)
    stream.setsockopt(trio.socket.IPPROTO_TCP, trio.socket.TCP_NODELAY, 1)
    return stream
