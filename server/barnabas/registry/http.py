"""Requests of a registry, read and answered over HTTP/1.1.

The rule: the response to an invalid request describes its error; a request that a browser sends for a page of another
site is refused. Bodies are bounded before authentication, and parsed as JSON after authorization.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Hashable
from contextlib import AsyncExitStack
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

import h11

from barnabas.network.bodies import SMALL_BYTES_MAX
from barnabas.network.http import (
    HttpReader,
    HttpService,
    refusal_of,
)
from barnabas.network.routes import NoRouteError
from barnabas.registry.access import Caller
from barnabas.registry.errors import RegistryError
from barnabas.registry.records import Version
from barnabas.registry.routes import ROUTER, Call, Registry, Text

if TYPE_CHECKING:
    from barnabas.registry.access import Logins

log = logging.getLogger(__name__)

BODY_BYTES_MAX = 2 * 1024 * 1024 + 64 * 1024
"""Bytes of a request with a schema: the largest number of characters, all of them escaped or of two bytes."""
JSON_BYTES_MAX = 256 * 1024
"""Bytes of any other request, and of JSON outside of strings in a request with a schema; they are parsed in one step."""
ANSWER_SECONDS_MAX = 60.0
OWN_TYPE = "application/vnd.schemaregistry.v1+json"
TYPES = (OWN_TYPE, "application/vnd.schemaregistry+json", "application/json")
"""Names of the type of answers, the first where the client accepts any."""
_PIECE_ITEMS = 500
"""Items of a list that are serialized in one step."""
_PIECE_CHARACTERS = 256 * 1024
"""Length of schemas after which a step has enough of them."""


class RegistryService(HttpService):
    """The HTTP API of one registry."""

    idle_seconds_max = 300.0

    def __init__(
        self, registry: Registry, logins: Logins | None, addresses: set[str], *, is_local: bool
    ) -> None:
        """`addresses` are the bound ones; `is_local` is true if only this machine can connect to them."""
        self._registry = registry
        self._logins = logins
        self._addresses = addresses
        self._is_local = is_local

    async def answer(self, reader: HttpReader, request: h11.Request, body: bytes) -> bool:
        """Send the response to a request; false if the connection ends with it."""
        visitor = reader.visitor
        with visitor.waiting():
            response = await reader.while_there(partial(self._answer, request, body, visitor))
        if response is None:
            return False
        status, value = response
        is_head = request.method == b"HEAD"
        return await _send(reader, status, value, _type(request), head_only=is_head)

    async def refuse(self, reader: HttpReader, status: int, reason: str) -> bool:
        """Send the response to an unreadable request; the connection ends after it."""
        return await _send(reader, status, _error(status, reason), OWN_TYPE)

    def body_bytes_max(self, request: h11.Request) -> int:
        """Return the size limit for the body of a request; it is small if a required login is missing."""
        if self._logins is not None and b"authorization" not in dict(request.headers):
            return SMALL_BYTES_MAX
        return BODY_BYTES_MAX if request.method == b"POST" else JSON_BYTES_MAX

    async def _answer(self, request: h11.Request, body: bytes, connection: Hashable) -> tuple[int, Any]:
        try:
            if refusal := refusal_of(
                request,
                self._addresses,
                is_local=self._is_local,
                has_logins=self._logins is not None,
                server="registry",
            ):
                raise RegistryError(403, 403, refusal)
            return 200, await self._called(request, body, connection)
        except RegistryError as error:
            return error.status, _error(error.code, error.message)
        except NoRouteError as error:
            return error.status, _error(
                error.status, f"HTTP {error.status} {HTTPStatus(error.status).phrase}"
            )
        except Exception:
            log.exception("a request to the registry failed")
            return 500, _error(500, "Internal Server Error")

    async def _called(self, request: h11.Request, body: bytes, connection: Hashable) -> Any:
        try:
            target = urlsplit(request.target.decode("ascii"))
            segments = [unquote(text, errors="strict") for text in target.path.split("/") if text] or [""]
            query = dict(parse_qsl(target.query, keep_blank_values=True))
        except ValueError:
            raise RegistryError(400, 400, "the target is no URL") from None
        method = request.method.decode("ascii")
        async with AsyncExitStack() as stack:
            caller = Caller()
            if self._logins is not None:
                authorization = dict(request.headers).get(b"authorization", b"")
                caller = await stack.enter_async_context(self._logins.caller(authorization))
            route, parts = ROUTER.find_segments("GET" if method == "HEAD" else method, ["", *segments])
            call = Call(caller, parts, query, None, caller.name or connection)
            if route.path != "/":
                await caller.check(route.need, call.scope)
            if method in ("POST", "PUT"):
                call.body = _body(request, body)
            return await route.handle(self._registry, call)


def _body(request: h11.Request, body: bytes) -> Any:
    """Return the decoded body. Raises RegistryError."""
    content_type = dict(request.headers).get(b"content-type", b"application/json").lower()
    if b"json" not in content_type and b"octet-stream" not in content_type:
        raise RegistryError(415, 415, "HTTP 415 Unsupported Media Type")
    if len(body) > JSON_BYTES_MAX and _bytes_outside_of_texts(body) > JSON_BYTES_MAX:
        raise RegistryError(
            413, 413, f"a request has at most {JSON_BYTES_MAX} bytes of JSON beside the text of its schema"
        )
    try:
        return json.loads(body) if body.strip() else None
    except (ValueError, RecursionError) as error:
        raise RegistryError(400, 400, f"Unrecognized token, or no JSON: {error}") from None


def _bytes_outside_of_texts(body: bytes) -> int:
    """Return the number of bytes of JSON outside of its strings, which take long to parse; without parsing it."""
    unescaped = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    if unescaped.count(b'"') > JSON_BYTES_MAX:
        return len(body)
    return sum(map(len, unescaped.split(b'"')[::2]))


def _type(request: h11.Request) -> str:
    """Return the content type of the response, among the accepted types."""
    accepted = dict(request.headers).get(b"accept", b"").decode("latin-1").lower()
    return next((name for name in TYPES if name in accepted), OWN_TYPE)


def _error(code: int, message: str) -> dict[str, Any]:
    return {"error_code": code, "message": message}


async def _send(
    reader: HttpReader, status: int, value: Any, content_type: str, *, head_only: bool = False
) -> bool:
    headers = [("Content-Type", content_type)]
    if isinstance(value, list) and _piece_end(value, 0) < len(value):
        headers.append(("Connection", "close"))
        if head_only:
            return await reader.answer(status, headers, [], seconds=ANSWER_SECONDS_MAX, head_only=True)
        await reader.stream(headers, partial(_send_list, value), seconds=ANSWER_SECONDS_MAX)
        return False
    text = value if isinstance(value, Text) else _json(value)
    content = text.encode("utf-8", "surrogatepass")
    headers.append(("Content-Length", str(len(content))))
    if status == 401:
        headers.append(("WWW-Authenticate", 'Basic realm="barnabas"'))
    return await reader.answer(status, headers, [content], seconds=ANSWER_SECONDS_MAX, head_only=head_only)


async def _send_list(items: list[Any], send: Callable[[bytes], Awaitable[None]]) -> None:
    """Send a long list in pieces, each serialized in one step."""
    begin = 0
    while begin < len(items):
        end = _piece_end(items, begin)
        text = _json(items[begin:end])[1:-1]
        opening, closing = "[" if begin == 0 else ", ", "]" if end == len(items) else ""
        await send(f"{opening}{text}{closing}".encode("utf-8", "surrogatepass"))
        begin = end


def _piece_end(items: list[Any], begin: int) -> int:
    """Return where a piece of a list ends that begins so."""
    characters = 0
    for number, item in enumerate(items[begin : begin + _PIECE_ITEMS], begin):
        characters += len(item.schema.text) if isinstance(item, Version) else 0
        if characters > _PIECE_CHARACTERS:
            return number + 1
    return min(begin + _PIECE_ITEMS, len(items))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=Version.plain)
