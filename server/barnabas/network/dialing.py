"""Connections to other machines, of the broker and of clients alike."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from barnabas.errors import leaves

if TYPE_CHECKING:
    import trio

CLOSED_BY_BROKER = "the broker closed the connection"


async def dial(host: str, port: int) -> trio.SocketStream:
    """Open a TCP connection without delay of small requests (TCP_NODELAY).

    Raises OSError: of a host's addresses, an error other than a refused connection takes precedence; ConnectionRefusedError
    means that all have refused.
    """
    import trio  # which a client without an event loop does without

    try:
        stream = await trio.open_tcp_stream(host, port)
    except OSError as error:
        if error.__cause__ is None:  # the name of the host is not known
            raise
        causes = [leaf for leaf in leaves(error.__cause__) if isinstance(leaf, OSError)]
        raise first_reason(causes) from None
    stream.setsockopt(trio.socket.IPPROTO_TCP, trio.socket.TCP_NODELAY, 1)
    return stream


def first_reason(causes: Sequence[OSError]) -> OSError:
    """Return the reason why a host cannot be reached: errors other than a refused connection take precedence."""
    return next((cause for cause in causes if not isinstance(cause, ConnectionRefusedError)), causes[0])


def reason_of(error: BaseException) -> str:
    """Return in a few words why a connection could not be opened, or has ended."""
    if isinstance(error, ConnectionRefusedError) and error.errno:
        return "nothing listens there (connection refused)"
    if (
        isinstance(error, OSError)
        and error.errno
        and (error.strerror or "").startswith("Error connecting to")
    ):
        return os.strerror(error.errno)  # Trio's own text repeats the address
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
