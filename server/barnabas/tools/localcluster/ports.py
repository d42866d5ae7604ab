"""TCP ports of loopback for processes of one command.

The rule: a port is not reserved: another process may take it before it is used.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Collection

PORTS = (20_000, 30_000)


def free_port(*, but: Collection[int] = ()) -> int:
    """Return a TCP port of loopback that was free a moment ago, and is not in `but`.

    It is outside of the system's range for outgoing connections: connecting to such a port may connect to itself.
    """
    while True:
        port = random.randrange(*PORTS)
        if port not in but and is_free(port):
            return port


def is_free(port: int) -> bool:
    """Return whether no process listens on a port of loopback."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
