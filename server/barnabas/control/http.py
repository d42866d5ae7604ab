"""Requests of the control API, read and answered over HTTP/1.1: imported with the first connection.

The rule: requests that a web page in a browser may have caused are refused, and so are those without the token, if there is
one. A connection that is slow costs nobody else anything.
"""

from __future__ import annotations

import hmac
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

import h11
import trio

from barnabas.control.openapi import document
from barnabas.control.routes import dispatch, routes

if TYPE_CHECKING:
    from barnabas.control.host import Host

BODY_BYTES_MAX = 16 * 1024 * 1024
IDLE_SECONDS_MAX = 300.0
READ_BYTES = 64 * 1024
_HEADER_BYTES_MAX = 64 * 1024
_LOCAL_NAMES = ("localhost", "127.0.0.1", "::1", "")
routes()  # their modules are imported with this one


class Answering:
    """Answers requests about one broker."""

    def __init__(self, host: Host, token: str, addresses: set[str]) -> None:
        self._host = host
        self._token = token
        self._addresses = addresses

    async def serve(self, stream: trio.SocketStream) -> None:
        """Answer the requests of a connection, one after the other. Raises BrokenResourceError when the peer has gone."""
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=_HEADER_BYTES_MAX)
        while await self._serve_one(stream, connection):
            connection.start_next_cycle()

    async def _serve_one(self, stream: trio.SocketStream, connection: h11.Connection) -> bool:
        """Answer a request; false when the connection is at its end."""
        try:
            received = None
            with trio.move_on_after(IDLE_SECONDS_MAX):
                received = await _receive(stream, connection)
            if received is None:
                return False
            status, value = await self._answer(*received)
            await _send(stream, connection, status, value)
            return connection.our_state is h11.DONE and connection.their_state is h11.DONE
        except _TooLargeError:
            await _send(stream, connection, 413, {"error": f"a body has at most {BODY_BYTES_MAX} bytes"})
        except h11.RemoteProtocolError as error:
            if connection.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                await _send(
                    stream, connection, error.error_status_hint, {"error": f"malformed request: {error}"}
                )
        return False

    async def _answer(self, request: h11.Request, body: bytes) -> tuple[int, Any]:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers}
        refusal = self._refusal(headers)
        if refusal is not None:
            return refusal
        target = urlsplit(request.target.decode("latin-1"))
        method = request.method.decode("latin-1")
        if target.path == "/openapi.json":
            return (200, document()) if method == "GET" else (405, {"error": "/openapi.json takes GET"})
        try:
            value = json.loads(body) if body else None
        except (ValueError, RecursionError) as error:
            return 400, {"error": f"the body is not JSON: {error}"}
        query = dict(parse_qsl(target.query, keep_blank_values=True))
        return await dispatch(self._host, method, target.path, query, value)

    def _refusal(self, headers: dict[str, str]) -> tuple[int, Any] | None:
        """Why a request is not even looked at: no token, or a page of another site in a browser."""
        if self._token:
            given = headers.get("authorization", "").removeprefix("Bearer ")
            if not hmac.compare_digest(given.encode(), self._token.encode()):
                return 401, {"error": "the header Authorization: Bearer TOKEN is missing or wrong"}
            return None
        name = urlsplit(f"//{headers.get('host', '')}").hostname or ""
        if "origin" in headers or not (name in _LOCAL_NAMES or name in self._addresses):
            return 403, {"error": "requests of web pages are not answered"}
        return None


class _TooLargeError(Exception):
    """A body is larger than anything that is expected."""


async def _receive(stream: trio.SocketStream, connection: h11.Connection) -> tuple[h11.Request, bytes] | None:
    """Return the next request with its body; None when the peer has gone. Raises RemoteProtocolError."""
    request: h11.Request | None = None
    pieces: list[bytes] = []
    size = 0
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            if connection.they_are_waiting_for_100_continue:
                proceed = connection.send(h11.InformationalResponse(status_code=100, headers=[]))
                await stream.send_all(proceed or b"")
            connection.receive_data(await stream.receive_some(READ_BYTES))
        elif isinstance(event, h11.Request):
            request = event
        elif isinstance(event, h11.Data):
            size += len(event.data)
            if size > BODY_BYTES_MAX:
                raise _TooLargeError
            pieces.append(bytes(event.data))
        elif isinstance(event, h11.EndOfMessage):
            assert request is not None
            return request, b"".join(pieces)
        else:
            return None


async def _send(stream: trio.SocketStream, connection: h11.Connection, status: int, value: Any) -> None:
    content = (
        b""
        if status == 204
        else json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogateescape") + b"\n"
    )
    headers = [("Cache-Control", "no-store")]
    if status != 204:
        headers += [("Content-Type", "application/json"), ("Content-Length", str(len(content)))]
    data = connection.send(h11.Response(status_code=status, headers=headers)) or b""
    if content:
        data += connection.send(h11.Data(data=content)) or b""
    data += connection.send(h11.EndOfMessage()) or b""
    await stream.send_all(data)
