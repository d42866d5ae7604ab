"""Contexts of requests that are handled without a connection."""

from barnabas.security.authorizer import AllowEverything
from barnabas.serving.context import ConnectionInfo, ContextParts, RequestContext
from barnabas.serving.log_limit import LogLimit
from barnabas.serving.memory import Memory
from tests.support.logs import NOW_MS


def open_parts() -> ContextParts:
    """Return the parts of contexts in a broker that authorizes every client for everything."""
    return ContextParts(Memory(), LogLimit(lambda: 0.0), AllowEverything())


def new_context(
    api_key: int, version: int, *, is_among_others: bool = False, now_ms: int = NOW_MS
) -> RequestContext:
    """Return the context of a request of a client that is authorized for everything."""
    peer = ConnectionInfo(1, "PLAINTEXT", "PLAINTEXT", ("127.0.0.1", 9092), ("127.0.0.1", 5), "User:a")
    peer.is_among_others = is_among_others
    return RequestContext(open_parts(), peer, api_key, version, 1, "app", now_ms)
