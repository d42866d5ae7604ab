"""Metrics over HTTP, for Prometheus and whatever else reads its format: GET /metrics on an address of its own.

The rule: a reader, however slow or malformed, costs the broker nothing but its own connection; there are few of these,
each has its time, and the one that has been idle for the longest time gives way to a new one.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import h11
import trio

from barnabas.broker.startup import METRICS, explained
from barnabas.network.sockets import BACKLOG, bind_sockets
from barnabas.network.transport import EVERYWHERE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.metrics.exposition import Exposition

log = logging.getLogger(__name__)

PATH = "/metrics"
CONNECTIONS_MAX = 32
HEAD_SECONDS_MAX = 5.0
"""How long a request may take to arrive, from its first byte; a new connection must begin at once."""
IDLE_SECONDS_MAX = 60.0
"""How long a connection may be without a request after the first one."""
ANSWER_SECONDS_MAX = 10.0
"""How long a reader may take to read an answer."""

_HEADER_BYTES_MAX = 16 * 1024
_READ_BYTES = 4096
_SEND_BYTES = 64 * 1024
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

    def __init__(self, address: MetricsAddress, exposition: Exposition) -> None:
        self._address = address
        self._exposition = exposition
        self._readers: set[_Reader] = set()

    async def run(self) -> None:
        """Serve until cancelled."""
        listeners = [
            trio.SocketListener(trio.socket.from_stdlib_socket(sock)) for sock in self._address.sockets
        ]
        await trio.serve_listeners(self._serve, listeners)

    async def _serve(self, stream: trio.SocketStream) -> None:
        if not self._has_place():
            stream.socket.close()
            return
        reader = _Reader(stream)
        self._readers.add(reader)
        try:
            with reader.scope:
                async with stream:
                    seconds = HEAD_SECONDS_MAX
                    while await self._serve_one(reader, seconds):
                        seconds = IDLE_SECONDS_MAX
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        except Exception:
            log.exception("a reader of metrics could not be answered")
        finally:
            self._readers.discard(reader)

    def _has_place(self) -> bool:
        """Whether there is a place for a new reader, after the one idle for the longest time has given way."""
        if len(self._readers) < CONNECTIONS_MAX:
            return True
        idle = [reader for reader in self._readers if not reader.is_waiting]
        if not idle:
            return False
        longest = min(idle, key=lambda reader: reader.moved_s)
        log.debug("%d readers of metrics: the one idle for the longest time gives way", len(self._readers))
        self._readers.discard(longest)
        longest.scope.cancel()
        return True

    async def _serve_one(self, reader: _Reader, seconds: float) -> bool:
        """Answer the request that begins within `seconds`; false when the connection is at its end."""
        try:
            request = await reader.next_request(begins_within=seconds)
        except h11.RemoteProtocolError as error:
            if reader.connection.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                await reader.answer(error.error_status_hint, _PLAIN, [b"malformed request\n"])
            return False
        if request is None:
            return False
        path = request.target.split(b"?")[0].decode("ascii", "replace")
        if path != PATH:
            return await reader.answer(404, _PLAIN, [f"metrics are at {PATH}\n".encode()])
        if request.method not in (b"GET", b"HEAD"):
            return await reader.answer(405, _PLAIN, [b"GET or HEAD, please\n"])
        accept = ", ".join(value.decode("latin-1") for name, value in request.headers if name == b"accept")
        reader.is_waiting = True
        try:
            text = await self._exposition.text(accept)
        finally:
            reader.is_waiting = False
            reader.moved_s = trio.current_time()
        return await reader.answer(200, text.content_type, text.pieces, head_only=request.method == b"HEAD")


class _Reader:
    """A connection that reads metrics.

    `moved_s` is when a byte was last received or sent; `is_waiting` is true while its answer is being made.
    """

    __slots__ = ("connection", "is_waiting", "moved_s", "scope", "stream")

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self.connection = h11.Connection(h11.SERVER, max_incomplete_event_size=_HEADER_BYTES_MAX)
        self.scope = trio.CancelScope()
        self.is_waiting = False
        self.moved_s = trio.current_time()

    async def next_request(self, *, begins_within: float) -> h11.Request | None:
        """The next request, once all of it is there; None when the reader has gone or is too slow.

        Raises RemoteProtocolError.
        """
        connection = self.connection
        request, has_begun = None, False
        with trio.move_on_after(begins_within) as limit:
            while True:
                event = connection.next_event()
                if event is h11.NEED_DATA:
                    if connection.they_are_waiting_for_100_continue:
                        await self._send(h11.InformationalResponse(status_code=100, headers=[]))
                    connection.receive_data(await self.stream.receive_some(_READ_BYTES))
                    self.moved_s = trio.current_time()
                    if not has_begun:
                        has_begun = True
                        limit.deadline = min(limit.deadline, self.moved_s + HEAD_SECONDS_MAX)
                elif isinstance(event, h11.Request):
                    request = event
                elif isinstance(event, h11.EndOfMessage):
                    return request
                elif isinstance(event, h11.ConnectionClosed):
                    return None
        return None

    async def answer(
        self, status: int, content_type: str, pieces: Sequence[bytes], *, head_only: bool = False
    ) -> bool:
        """Send a response; false when the connection is at its end."""
        size = sum(map(len, pieces))
        headers = [("Content-Type", content_type), ("Content-Length", str(size))]
        with trio.move_on_after(ANSWER_SECONDS_MAX):
            await self._send(h11.Response(status_code=status, headers=headers))
            if not head_only:
                for piece in pieces:
                    await self._send(h11.Data(data=piece))
            await self._send(h11.EndOfMessage())
            if self.connection.our_state is h11.MUST_CLOSE:
                return False
            self.connection.start_next_cycle()
            return True
        return False

    async def _send(self, event: h11.Event) -> None:
        data = memoryview(self.connection.send(event) or b"")
        while data:  # at most so much at a time, so that `moved_s` says what the reader does
            await self.stream.send_all(data[:_SEND_BYTES])
            data = data[_SEND_BYTES:]
            self.moved_s = trio.current_time()
