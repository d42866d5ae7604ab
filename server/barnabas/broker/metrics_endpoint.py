"""Metrics over HTTP, for Prometheus and whatever else reads its format: GET /metrics on an address of its own.

The rule: a reader, however slow or malformed, costs the broker nothing but its own connection; there are few of these,
and each has its time. Numbers are copied in the event loop, text is made in a thread, one reader after the other.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import h11
import trio

from barnabas.broker.startup import METRICS, explained
from barnabas.errors import RequestError, StorageError
from barnabas.metrics.of_broker import Sources, broker_families
from barnabas.metrics.of_clients import client_families
from barnabas.network.sockets import BACKLOG, bind_sockets
from barnabas.network.transport import EVERYWHERE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from barnabas.groups.shard import GroupShard
    from barnabas.metrics.meter import RequestMeter

log = logging.getLogger(__name__)

PATH = "/metrics"
CONNECTIONS_MAX = 32
REQUEST_SECONDS_MAX = 30.0
"""How long a reader may take from one request to the end of the answer."""

_HEADER_BYTES_MAX = 16 * 1024
_READ_BYTES = 4096
_PLAIN = "text/plain; charset=utf-8"


class MetricsAddress:
    """Where metrics are to be had. Lifecycle: bound when it is made, `listen`, `close`."""

    def __init__(self, host: str, port: int) -> None:
        """Bind the address. Raises StartupError."""
        self._endpoint = f"{METRICS}={host}:{port}"
        with explained(self._endpoint, host, port):
            self.sockets = bind_sockets(host, port)

    @property
    def url(self) -> str:
        """Where the metrics are."""
        host, port = self.sockets[0].getsockname()[:2]
        if host in EVERYWHERE:
            host = "localhost"
        return f"http://[{host}]:{port}{PATH}" if ":" in host else f"http://{host}:{port}{PATH}"

    def listen(self) -> None:
        """Accept readers from now on. Raises StartupError."""
        for sock in self.sockets:
            host, port = sock.getsockname()[:2]
            with explained(self._endpoint, host, port):
                sock.listen(BACKLOG)

    def close(self) -> None:
        """Stop listening."""
        for sock in self.sockets:
            sock.close()


class MetricsEndpoint:
    """Lifecycle: `run` in a task until cancelled, once its address listens."""

    def __init__(
        self,
        address: MetricsAddress,
        sources: Sources,
        meter: RequestMeter,
        group_shards: Callable[[], Awaitable[list[GroupShard]]],
    ) -> None:
        """`group_shards` gives those of the group coordinator; raises RequestError or StorageError."""
        self.meter = meter
        self._address = address
        self._sources = sources
        self._shards = group_shards
        self._open = 0
        self._one_at_a_time = trio.Lock()

    async def run(self) -> None:
        """Serve until cancelled."""
        listeners = [
            trio.SocketListener(trio.socket.from_stdlib_socket(sock)) for sock in self._address.sockets
        ]
        await trio.serve_listeners(self._serve, listeners)

    async def _serve(self, stream: trio.SocketStream) -> None:
        if self._open >= CONNECTIONS_MAX:
            stream.socket.close()
            return
        self._open += 1
        try:
            async with stream:
                connection = h11.Connection(h11.SERVER, max_incomplete_event_size=_HEADER_BYTES_MAX)
                going_on = True
                while going_on:
                    going_on = False
                    with trio.move_on_after(REQUEST_SECONDS_MAX):
                        going_on = await self._serve_one(stream, connection)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        except Exception:
            log.exception("a reader of metrics could not be answered")
        finally:
            self._open -= 1

    async def _serve_one(self, stream: trio.SocketStream, connection: h11.Connection) -> bool:
        """Answer one request; false when the connection is at its end."""
        try:
            request = await _next_request(stream, connection)
        except h11.RemoteProtocolError as error:
            if connection.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                await _send(stream, connection, error.error_status_hint, b"malformed request\n", _PLAIN)
            return False
        if request is None:
            return False
        status, body, content_type = await self._answer(request)
        await _send(
            stream, connection, status, b"" if request.method == b"HEAD" else body, content_type, len(body)
        )
        if connection.our_state is h11.MUST_CLOSE:
            return False
        connection.start_next_cycle()
        return True

    async def _answer(self, request: h11.Request) -> tuple[int, bytes, str]:
        path = request.target.split(b"?")[0].decode("ascii", "replace")
        if path != PATH:
            return 404, f"metrics are at {PATH}\n".encode(), _PLAIN
        if request.method not in (b"GET", b"HEAD"):
            return 405, b"GET or HEAD, please\n", _PLAIN
        accept = ", ".join(value.decode("latin-1") for name, value in request.headers if name == b"accept")
        body, content_type = await self.text(accept)
        return 200, body, content_type

    async def text(self, accept: str = "") -> tuple[bytes, str]:
        """All metrics as they are now, and the content type."""
        from barnabas.metrics.text import render

        async with self._one_at_a_time:
            families = broker_families(self._sources, self.meter, await self._group_shards())
            telemetry = self._sources.telemetry.if_made
            if telemetry is not None:
                telemetry.expire()
                families.extend(client_families(telemetry.pushed.clients))
            return await trio.to_thread.run_sync(render, families, accept)

    async def _group_shards(self) -> list[GroupShard]:
        try:
            return await self._shards()
        except (RequestError, StorageError) as error:
            log.warning("groups cannot be counted: %s", error)
            return []


async def _next_request(stream: trio.SocketStream, connection: h11.Connection) -> h11.Request | None:
    """The next request, once all of it is there; None when the reader has gone. Raises RemoteProtocolError."""
    request = None
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            if connection.they_are_waiting_for_100_continue:
                await stream.send_all(
                    connection.send(h11.InformationalResponse(status_code=100, headers=[])) or b""
                )
            connection.receive_data(await stream.receive_some(_READ_BYTES))
        elif isinstance(event, h11.Request):
            request = event
        elif isinstance(event, h11.EndOfMessage):
            return request
        elif isinstance(event, h11.ConnectionClosed):
            return None


async def _send(
    stream: trio.SocketStream,
    connection: h11.Connection,
    status: int,
    body: bytes,
    content_type: str,
    length: int | None = None,
) -> None:
    headers = [
        ("Content-Type", content_type),
        ("Content-Length", str(len(body) if length is None else length)),
    ]
    await stream.send_all(
        (connection.send(h11.Response(status_code=status, headers=headers)) or b"")
        + (connection.send(h11.Data(data=body)) or b"")
        + (connection.send(h11.EndOfMessage()) or b"")
    )
