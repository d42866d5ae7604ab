"""The protocol over HTTP: the SDK's ASGI application behind the HTTP server of the project.

The rule: only loopback addresses are served without a token; a page of a browser is never answered.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any

import trio

from barnabas.network.http import HttpReader, HttpService, is_of_a_web_page
from barnabas.network.visitors import Address, Site

if TYPE_CHECKING:
    import h11


WHAT = "MCP"
PATH = "/mcp"
BODY_BYTES_MAX = 8 << 20
BODY_BYTES_UNKNOWN_MAX = 16 << 10
CONNECTIONS_MAX = 64
ANSWER_SECONDS_MAX = 60.0
IDLE_SECONDS_MAX = 120.0
_UNGUARDED = (
    "other machines reach MCP on {}: give --token-file, or use an address of this machine alone (127.0.0.1)"
)
Message = MutableMapping[str, Any]
Application = Callable[
    [Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]
]
"""An ASGI application."""


class McpSite:
    """The protocol at an address. Lifecycle: bound by its creation; `run` in a task, until cancelled."""

    def __init__(self, address: Address, token: str) -> None:
        """Bind an address. Raises AddressError, also for one that other machines can reach if no token is set."""
        self._token = token.encode()
        self._site = Site(address, WHAT, unguarded="" if token else _UNGUARDED)
        self.url = self._site.url + PATH

    async def run(
        self, application: Application, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve an application until cancelled."""
        service = _Service(application, self._token, self._site.hosts)
        await self._site.serve(CONNECTIONS_MAX, service.serve, task_status=task_status)


class _Service(HttpService):
    """Requests of agents."""

    idle_seconds_max = IDLE_SECONDS_MAX

    def __init__(self, application: Application, token: bytes, hosts: set[str]) -> None:
        self._application = application
        self._token = token
        self._hosts = hosts

    def body_bytes_max(self, request: h11.Request) -> int:
        """Return how many bytes the body of a request may have: few without the token."""
        return BODY_BYTES_MAX if self._is_allowed(request) else BODY_BYTES_UNKNOWN_MAX

    def _is_allowed(self, request: h11.Request) -> bool:
        header = next((value for name, value in request.headers if name == b"authorization"), b"")
        return not self._token or hmac.compare_digest(header, b"Bearer " + self._token)

    async def answer(self, reader: HttpReader, request: h11.Request, body: bytes) -> bool:
        """Send the response to a request; false if the connection ends with it."""
        if not self._token and is_of_a_web_page(request, self._hosts):
            return await self.refuse(reader, 403, "requests of web pages are not answered")
        if not self._is_allowed(request):
            return await self.refuse(
                reader, 401, "the header Authorization: Bearer TOKEN is missing or wrong"
            )
        return await _Exchange(reader, request, body).run(self._application)

    async def refuse(self, reader: HttpReader, status: int, reason: str) -> bool:
        """Send an error."""
        content = json.dumps({"error": reason}).encode()
        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(content)))]
        if status == 401:
            headers.append(("WWW-Authenticate", "Bearer"))
        return await reader.answer(status, headers, [content], seconds=ANSWER_SECONDS_MAX)


class _Exchange:
    """One request of ASGI: the application's messages become a response, whole or as a stream of events."""

    def __init__(self, reader: HttpReader, request: h11.Request, body: bytes) -> None:
        self._reader = reader
        path, _, query = request.target.partition(b"?")
        self._scope: Message = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": request.method.decode("latin-1"),
            "scheme": "http",
            "path": path.decode("latin-1"),
            "raw_path": path,
            "root_path": "",
            "query_string": query,
            "headers": [(name, value) for name, value in request.headers],
            "client": None,
            "server": None,
        }
        self._bodies = [body]
        self._send, self._sent = trio.open_memory_channel[Message](0)

    async def run(self, application: Application) -> bool:
        """Answer the request; false if the connection ends with it."""
        result = False
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._apply, application)
            result = bool(await self._reader.while_there(self._begin)) and await self._finish()
            nursery.cancel_scope.cancel()
        return result

    async def _apply(self, application: Application) -> None:
        async with self._send:
            await application(self._scope, self._receive, self._send.send)

    async def _receive(self) -> Message:
        if self._bodies:
            return {"type": "http.request", "body": self._bodies.pop(), "more_body": False}
        await trio.sleep_forever()
        raise AssertionError

    async def _begin(self) -> bool:
        """Wait for the head of the response and its first piece; false where the application sends none."""
        try:
            self._head = await self._sent.receive()
            self._piece = await self._sent.receive()
        except trio.EndOfChannel:
            return False
        return True

    async def _finish(self) -> bool:
        headers = [
            (name.decode("latin-1"), value.decode("latin-1")) for name, value in self._head.get("headers", ())
        ]
        if not self._piece.get("more_body"):
            return await self._reader.answer(
                self._head["status"], headers, [self._piece.get("body", b"")], seconds=ANSWER_SECONDS_MAX
            )
        await self._reader.stream(
            [*headers, ("Connection", "close")], self._stream, seconds=ANSWER_SECONDS_MAX
        )
        return False

    async def _stream(self, send: Callable[[bytes], Awaitable[None]]) -> None:
        piece = self._piece
        while True:
            if piece.get("body"):
                await send(piece["body"])
            if not piece.get("more_body"):
                return
            piece = await self._sent.receive()
