"""The four-letter words that administrators and scripts send instead of a request. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from barnabas import __version__


@dataclass(frozen=True, slots=True)
class Status:
    """Figures of a server, for the four-letter words."""

    zxid: int
    nodes: int
    ephemerals: int
    watches: int
    sessions: int
    connections: int
    received: int
    sent: int
    port: int
    timeout_min_ms: int
    timeout_max_ms: int


def _server(status: Status) -> str:
    return "\n".join(
        (
            f"Zookeeper version: Barnabas {__version__}",
            f"Received: {status.received}",
            f"Sent: {status.sent}",
            f"Connections: {status.connections}",
            "Outstanding: 0",
            f"Zxid: {status.zxid:#x}",
            "Mode: standalone",
            f"Node count: {status.nodes}",
            "",
        )
    )


def _monitor(status: Status) -> str:
    figures = {
        "version": f"Barnabas {__version__}",
        "server_state": "standalone",
        "num_alive_connections": status.connections,
        "packets_received": status.received,
        "packets_sent": status.sent,
        "znode_count": status.nodes,
        "watch_count": status.watches,
        "ephemerals_count": status.ephemerals,
        "global_sessions": status.sessions,
    }
    return "".join(f"zk_{name}\t{value}\n" for name, value in figures.items())


def _configuration(status: Status) -> str:
    return (
        f"clientPort={status.port}\n"
        f"minSessionTimeout={status.timeout_min_ms}\n"
        f"maxSessionTimeout={status.timeout_max_ms}\n"
        "serverId=0\n"
    )


WORDS: Mapping[bytes | None, Callable[[Status], str]] = {
    b"ruok": lambda _status: "imok",
    b"srvr": _server,
    b"stat": _server,
    b"mntr": _monitor,
    b"conf": _configuration,
    b"isro": lambda _status: "rw",
}
