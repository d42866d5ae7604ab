"""Requests of the control API, read and answered over HTTP/1.1: imported with the first connection.

The rule: requests that a web page in a browser may have caused are refused, and so are those without the token, if one is
set. A connection that is slow delays no other.
"""

from __future__ import annotations

import hmac
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

import h11

from barnabas.network.http import HttpReader, HttpService, is_of_a_web_page
from barnabas.tools.control.openapi import document
from barnabas.tools.control.routes import dispatch, router

if TYPE_CHECKING:
    from barnabas.tools.control.host import Host

BODY_BYTES_MAX = 16 * 1024 * 1024
ANSWER_SECONDS_MAX = 60.0
router()  # their modules are imported with this one


class ControlService(HttpService):
    """The control API of one broker."""

    idle_seconds_max = 300.0

    def __init__(self, host: Host, token: str, addresses: set[str]) -> None:
        self._host = host
        self._token = token
        self._addresses = addresses

    def body_bytes_max(self, request: h11.Request) -> int:  # noqa: ARG002
        """Return the same bound for all requests."""
        return BODY_BYTES_MAX

    async def answer(self, reader: HttpReader, request: h11.Request, body: bytes) -> bool:
        """Send the response to a request as JSON; false if the connection ends with it."""
        with reader.visitor.waiting():
            status, value = await self._answer(request, body)
        return await _send(reader, status, value)

    async def refuse(self, reader: HttpReader, status: int, reason: str) -> bool:
        """Send the response to a malformed request, the last one of a connection."""
        return await _send(reader, status, {"error": reason})

    async def _answer(self, request: h11.Request, body: bytes) -> tuple[int, Any]:
        refusal = self._refusal(request)
        if refusal is not None:
            return refusal
        try:
            target = urlsplit(request.target.decode("latin-1"))
        except ValueError as error:
            return 400, {"error": f"the target is no URL: {error}"}
        method = request.method.decode("latin-1")
        if target.path == "/openapi.json":
            return (200, document()) if method == "GET" else (405, {"error": "/openapi.json takes GET"})
        try:
            value = json.loads(body) if body else None
        except (ValueError, RecursionError) as error:
            return 400, {"error": f"the body is not JSON: {error}"}
        query = dict(parse_qsl(target.query, keep_blank_values=True))
        return await dispatch(self._host, method, target.path, query, value)

    def _refusal(self, request: h11.Request) -> tuple[int, Any] | None:
        """Return the response to a request without the token, or of a web page of another site; None for all others."""
        if self._token:
            token = dict(list(request.headers)).get(b"authorization", b"").removeprefix(b"Bearer ")
            if not hmac.compare_digest(token, self._token.encode()):
                return 401, {"error": "the header Authorization: Bearer TOKEN is missing or wrong"}
            return None
        if is_of_a_web_page(request, self._addresses):
            return 403, {"error": "requests of web pages are not answered"}
        return None


async def _send(reader: HttpReader, status: int, value: Any) -> bool:
    headers = [("Cache-Control", "no-store")]
    content = b""
    if status != 204:
        content = json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogateescape") + b"\n"
        headers += [("Content-Type", "application/json"), ("Content-Length", str(len(content)))]
    pieces = [content] if content else []
    return await reader.answer(status, headers, pieces, seconds=ANSWER_SECONDS_MAX)
