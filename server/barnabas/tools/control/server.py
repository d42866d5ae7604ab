"""Listener of the control API.

The rule: every client that connects can do everything, so it listens on loopback addresses unless a token is set. The
modules that read and answer requests are imported with the first connection, in a thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import trio

from barnabas.broker.startup import StartupError
from barnabas.environment.lazy import Lazy
from barnabas.network import visitors
from barnabas.network.visitors import AddressError, Visitors

if TYPE_CHECKING:
    from socket import socket

    from barnabas.network.visitors import Visitor
    from barnabas.tools.control.host import Host
    from barnabas.tools.control.http import ControlService

CONNECTIONS_MAX = 256
WHAT = "the control API"


def bind(host: str, port: int, *, token: str = "") -> list[socket]:
    """Bind an address, port 0 for a free one.

    Raises StartupError, also for an address that other machines can reach if no token is set.
    """
    unguarded = (
        "every client of the control API can do everything: {} needs a token (--control-token), or use an address of this "
        "machine alone (127.0.0.1)"
    )
    try:
        return visitors.bind(host, port, WHAT, unguarded="" if token else unguarded)
    except AddressError as error:
        raise StartupError(str(error)) from error


async def serve(
    host: Host,
    sockets: Sequence[socket],
    token: str = "",
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve the API of one broker until cancelled; closes the sockets then. Raises StartupError."""
    own = {sock.getsockname()[0] for sock in sockets}

    def make() -> ControlService:
        from barnabas.tools.control.http import ControlService

        return ControlService(host, token, own)

    service = Lazy(make, "barnabas.tools.control.http", beside=trio.to_thread.run_sync)

    async def answer(visitor: Visitor) -> None:
        await (await service.ready()).serve(visitor)

    try:
        visitors.listen(sockets, WHAT)
    except AddressError as error:
        raise StartupError(str(error)) from error
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Visitors(WHAT, CONNECTIONS_MAX, answer).serve, sockets)
        task_status.started()
