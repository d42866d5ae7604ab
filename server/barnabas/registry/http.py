"""Requests of a registry, read and answered over HTTP/1.1.

The rule: a request that cannot be understood is answered with what is wrong with it; one that a web page in a browser may
have sent to an address of this machine alone is refused, as long as nobody has to log in.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Hashable
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

import h11

from barnabas.network.http import HttpReader, is_of_a_web_page
from barnabas.registry.access import Caller
from barnabas.registry.errors import RegistryError
from barnabas.registry.routes import Call, Registry, Text, find

if TYPE_CHECKING:
    from barnabas.network.visitors import Visitor
    from barnabas.registry.access import Logins

log = logging.getLogger(__name__)

BODY_BYTES_MAX = 8 * 1024 * 1024
IDLE_SECONDS_MAX = 300.0
ANSWER_SECONDS_MAX = 60.0
OWN_TYPE = "application/vnd.schemaregistry.v1+json"
TYPES = (OWN_TYPE, "application/vnd.schemaregistry+json", "application/json")
"""Names of the type of answers, the first for who does not mind."""
_HEADER_BYTES_MAX = 64 * 1024


class Answering:
    """Answers requests about one registry."""

    def __init__(
        self, registry: Registry, logins: Logins | None, addresses: set[str], *, is_local: bool
    ) -> None:
        """`addresses` are those that are bound; `is_local` says that this machine alone can connect to them."""
        self._registry = registry
        self._logins = logins
        self._addresses = addresses
        self._refuses_pages = is_local and logins is None

    async def serve(self, visitor: Visitor) -> None:
        """Answer the requests of a connection, one after the other. Raises BrokenResourceError when the peer has gone."""
        reader = HttpReader(visitor, header_bytes_max=_HEADER_BYTES_MAX)

        async def respond(request: h11.Request, body: bytes) -> bool:
            with visitor.waiting():
                answer = await reader.while_there(partial(self._answer, request, body, visitor))
            if answer is None:
                return False
            status, value = answer
            is_head = request.method == b"HEAD"
            return await _send(reader, status, value, _type(request), head_only=is_head)

        async def refuse(status: int, words: str) -> bool:
            return await _send(reader, status, _error(status, words), OWN_TYPE)

        await reader.serve(respond, refuse, idle_seconds_max=IDLE_SECONDS_MAX, body_bytes_max=BODY_BYTES_MAX)

    async def _answer(self, request: h11.Request, body: bytes, connection: Hashable) -> tuple[int, Any]:
        try:
            if self._refuses_pages and is_of_a_web_page(request, self._addresses):
                raise RegistryError(403, 403, "requests of web pages are not answered")
            return 200, await self._called(request, body, connection)
        except RegistryError as error:
            return error.status, _error(error.code, error.message)
        except Exception:
            log.exception("a request of the registry could not be answered")
            return 500, _error(500, "Internal Server Error")

    async def _called(self, request: h11.Request, body: bytes, connection: Hashable) -> Any:
        try:
            target = urlsplit(request.target.decode("ascii"))
            segments = tuple(unquote(one, errors="strict") for one in target.path.split("/") if one)
            query = dict(parse_qsl(target.query, keep_blank_values=True))
        except ValueError:
            raise RegistryError(400, 400, "the target is no URL") from None
        method = request.method.decode("ascii")
        async with AsyncExitStack() as stack:
            caller = Caller()
            if self._logins is not None:
                authorization = dict(request.headers).get(b"authorization", b"")
                caller = await stack.enter_async_context(self._logins.caller(authorization))
            route, parts = find("GET" if method == "HEAD" else method, segments)
            call = Call(caller, parts, query, _body(request, body) if method in ("POST", "PUT") else None)
            call.owner = caller.name or connection
            if "subject" in parts or route.path != "/":
                await caller.check(route.need, call.scope)
            return await route.handle(self._registry, call)


def _body(request: h11.Request, body: bytes) -> Any:
    """Return what is in the body. Raises RegistryError."""
    given = dict(request.headers).get(b"content-type", b"application/json").lower()
    if b"json" not in given and b"octet-stream" not in given:
        raise RegistryError(415, 415, "HTTP 415 Unsupported Media Type")
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RegistryError(400, 400, f"Unrecognized token, or no JSON: {error}") from None


def _type(request: h11.Request) -> str:
    """Return what the answer is called, of what is accepted."""
    accepted = dict(request.headers).get(b"accept", b"").decode("latin-1").lower()
    return next((one for one in TYPES if one in accepted), OWN_TYPE)


def _error(code: int, message: str) -> dict[str, Any]:
    return {"error_code": code, "message": message}


async def _send(
    reader: HttpReader, status: int, value: Any, content_type: str, *, head_only: bool = False
) -> bool:
    text = value if isinstance(value, Text) else json.dumps(value, ensure_ascii=False)
    content = text.encode("utf-8", "surrogatepass")
    headers = [("Content-Type", content_type), ("Content-Length", str(len(content)))]
    if status == 401:
        headers.append(("WWW-Authenticate", 'Basic realm="barnabas"'))
    return await reader.answer(status, headers, [content], seconds=ANSWER_SECONDS_MAX, head_only=head_only)
