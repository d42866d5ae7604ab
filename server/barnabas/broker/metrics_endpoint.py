"""Metrics over HTTP, for Prometheus and other clients of its format: GET /metrics at a separate address.

The rule: a slow or malformed client costs the broker only that connection: `network.visitors`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import h11

from barnabas.broker.startup import METRICS, explained
from barnabas.network.http import HEAD_SECONDS_MAX, HttpReader, HttpService, is_of_a_web_page
from barnabas.network.sockets import BACKLOG, bind_sockets
from barnabas.network.transport import is_loopback
from barnabas.network.visitors import Visitors, url_of

if TYPE_CHECKING:
    from barnabas.metrics.exposition import Exposition
    from barnabas.metrics.families import Family

PATH = "/metrics"
CONNECTIONS_MAX = 32
IDLE_SECONDS_MAX = 60.0
"""Longest time that a connection may be without a request after the first one."""
ANSWER_SECONDS_MAX = 10.0
"""Longest time that a reader may take to read an answer."""

_HEADER_BYTES_MAX = 16 * 1024
_PLAIN = "text/plain; charset=utf-8"


class MetricsAddress:
    """Address at which metrics can be read. Lifecycle: bound by its creation, `listen`, `close`."""

    def __init__(self, host: str, port: int) -> None:
        """Bind the address. Raises StartupError."""
        self._endpoint = f"{METRICS}={host}:{port}"
        with explained(self._endpoint, host, port):
            self.sockets = bind_sockets(host, port)

    @property
    def hosts(self) -> set[str]:
        """The addresses that are bound."""
        return {sock.getsockname()[0] for sock in self.sockets}

    @property
    def is_local(self) -> bool:
        """True where this machine alone can connect to it."""
        return all(map(is_loopback, self.hosts))

    @property
    def url(self) -> str:
        """URL of the metrics."""
        return f"{url_of(self.sockets)}{PATH}"

    def listen(self) -> None:
        """Begin to accept connections. Raises StartupError."""
        for sock in self.sockets:
            host, port = sock.getsockname()[:2]
            with explained(self._endpoint, host, port):
                sock.listen(BACKLOG)

    def close(self) -> None:
        """Stop listening."""
        for sock in self.sockets:
            sock.close()


class MetricsEndpoint(HttpService):
    """Lifecycle: `run` in a task until cancelled, once its address listens."""

    first_within = HEAD_SECONDS_MAX  # a new connection must begin at once
    idle_seconds_max = IDLE_SECONDS_MAX
    header_bytes_max = _HEADER_BYTES_MAX

    def __init__(self, address: MetricsAddress, exposition: Exposition) -> None:
        self._address = address
        self._exposition = exposition

    async def families(self) -> list[Family]:
        """Return the metrics as data, with one value for all topics together."""
        return await self._exposition.families()

    async def run(self) -> None:
        """Serve until cancelled."""
        await Visitors("metrics", CONNECTIONS_MAX, self.serve).serve(self._address.sockets)

    def body_bytes_max(self, request: h11.Request) -> int:  # noqa: ARG002
        """Return the same bound for all requests, which have no body."""
        return _HEADER_BYTES_MAX

    async def refuse(self, reader: HttpReader, status: int, reason: str) -> bool:  # noqa: ARG002
        """Send the response to a malformed request, the last one of a connection."""
        return await _answer(reader, status, b"malformed request\n")

    async def answer(self, reader: HttpReader, request: h11.Request, body: bytes) -> bool:  # noqa: ARG002
        """Send the response to a request; false if the connection ends with it."""
        if self._address.is_local and is_of_a_web_page(request, self._address.hosts):
            return await _answer(reader, 403, b"requests of web pages are not answered\n")
        path = request.target.split(b"?")[0].decode("ascii", "replace")
        if path != PATH:
            return await _answer(reader, 404, f"metrics are at {PATH}\n".encode())
        if request.method not in (b"GET", b"HEAD"):
            return await _answer(reader, 405, b"GET or HEAD, please\n")
        accept = ", ".join(value.decode("latin-1") for name, value in request.headers if name == b"accept")
        with reader.visitor.waiting():
            text = await self._exposition.text(accept)
        headers = _headers(text.content_type, sum(map(len, text.pieces)))
        return await reader.answer(
            200, headers, text.pieces, seconds=ANSWER_SECONDS_MAX, head_only=request.method == b"HEAD"
        )


async def _answer(reader: HttpReader, status: int, text: bytes) -> bool:
    return await reader.answer(status, _headers(_PLAIN, len(text)), [text], seconds=ANSWER_SECONDS_MAX)


def _headers(content_type: str, size: int) -> list[tuple[str, str]]:
    return [("Content-Type", content_type), ("Content-Length", str(size))]
