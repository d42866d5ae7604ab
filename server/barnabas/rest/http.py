"""Requests and responses of the REST API over HTTP/1.1; imported with the first connection.

The rule: host, origin and login of a request are checked first; a response is built in short steps, and the bytes waiting
to be sent are bounded over all clients.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

import h11
import trio

from barnabas.environment.lazy import import_modules
from barnabas.network.bodies import SMALL_BYTES_MAX
from barnabas.network.http import HttpReader, HttpService, refusal_of
from barnabas.network.routes import NoRouteError
from barnabas.network.writing import Piece, Streams, Unsent, pieces_of
from barnabas.rest.base import NAME_BYTES_MAX, OURS, V2, V3, Answer, Call, Conversation, Events, Route, Rows
from barnabas.rest.errors import RestError, failure_of
from barnabas.rest.formats import JSON_TYPE, V2_TYPE, V2_TYPES
from barnabas.rest.openapi import types_of_answer
from barnabas.rest.routes import router
from barnabas.sandbox.bodies import BYTES_MAX

if TYPE_CHECKING:
    from barnabas.rest.backend import Users
    from barnabas.rest.instances import Instances

log = logging.getLogger(__name__)

ANSWER_SECONDS_MAX = 30.0
EVENT_SECONDS_MAX = 20.0
"""Timeout for sending a piece of a stream; slower clients are disconnected."""
OWNER_CONVERSATIONS_MAX = 64
"""Concurrent streamed produce requests of v3 of one user."""
CONVERSATIONS_MAX = 128
"""Limit of conversations of all users."""
HEADERS = (
    ("X-Content-Type-Options", "nosniff"),
    ("Cache-Control", "no-store"),
    ("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"),
)
"""Headers of every answer."""
_USED = (
    "barnabas.client.consumer",
    "barnabas.client.producer",
    *(f"barnabas.wire.generated.{name}" for name in (
        "create_acls", "create_partitions", "create_topics", "delete_acls", "delete_topics", "describe_acls",
        "describe_cluster", "describe_configs", "describe_groups", "describe_topic_partitions", "fetch",
        "find_coordinator", "heartbeat", "incremental_alter_configs", "init_producer_id", "join_group", "leave_group",
        "list_groups", "list_offsets", "list_partition_reassignments", "offset_commit", "offset_fetch", "produce",
        "sync_group",
    )),
)  # fmt: skip
"""Modules that requests use: they are imported with this one, in a thread, so that the event loop does not wait."""
import_modules(*_USED)
router()  # imports the routes' modules


class RestService(HttpService):
    """The REST API of one cluster."""

    idle_seconds_max = 300.0

    def __init__(
        self,
        users: Users,
        instances: Instances,
        addresses: set[str],
        *,
        is_local: bool,
        has_tls: bool = False,
    ) -> None:
        """`addresses` are the bound ones; `is_local` is true if only this machine can connect to them."""
        self._users = users
        self._instances = instances
        self._addresses = addresses
        self._is_local = is_local
        self._scheme = "https" if has_tls else "http"
        self._unsent = Unsent()
        self._streams = Streams()
        self._conversations = Streams(OWNER_CONVERSATIONS_MAX, CONVERSATIONS_MAX)

    # --- heads --------------------------------------------------------------------------------------------------

    def body_bytes_max(self, request: h11.Request) -> int:
        """Return the size limit for the body of a request; it is small if a required login is missing."""
        has_login = not self._users.log_in or any(name == b"authorization" for name, _ in request.headers)
        return BYTES_MAX if has_login and request.method != b"GET" else SMALL_BYTES_MAX

    def is_streamed(self, request: h11.Request) -> bool:
        """Return whether the body of a request is read while it is answered."""
        try:
            return _route_of(request)[0].is_streamed
        except (NoRouteError, RestError):
            return False

    # --- answers ------------------------------------------------------------------------------------------------

    async def answer(self, reader: HttpReader, request: h11.Request, body: bytes) -> bool:
        """Send the response to a request; false if the connection ends with it."""
        with reader.visitor.waiting():
            is_read = not self.is_streamed(request)
            try:
                route, path, query = _route_of(request)
                self._judge(request)
                goes_on = await self._answer(reader, request, route, path, query, body)
            except Exception as error:
                if isinstance(
                    error, trio.BrokenResourceError | trio.ClosedResourceError | h11.LocalProtocolError
                ):
                    raise
                if not reader.may_answer:
                    log.debug("a request broke off: %s", error)
                    return False
                doing = f"{request.method.decode('latin-1')} {request.target.decode('latin-1')}"
                goes_on = await self._refuse(
                    reader, _version_of(request), failure_of(error, doing), is_read=is_read
                )
            return goes_on

    async def refuse(self, reader: HttpReader, status: int, reason: str) -> bool:
        """Send the response to an unreadable request; the connection ends after it."""
        return await self._refuse(reader, V3, RestError(status, status, reason), is_read=False)

    def _judge(self, request: h11.Request) -> None:
        """Raise RestError for a request that a browser may have sent for another site's page."""
        refusal = refusal_of(
            request,
            self._addresses,
            is_local=self._is_local,
            has_logins=self._users.log_in,
            server="REST API",
        )
        if refusal:
            raise RestError(403, 403, refusal)

    async def _answer(
        self, reader: HttpReader, request: h11.Request, route: Route, path: dict[str, str], query: dict[str, str],
        body: bytes,
    ) -> bool:  # fmt: skip
        headers = {name: value.decode("latin-1") for name, value in request.headers}
        content_type = headers.get(b"content-type", "").partition(";")[0].strip().lower()
        accepted = _accepted(headers.get(b"accept", ""))
        usual = _type_of_answer(route, accepted)
        _check_type(route, content_type, has_body=bool(body) or route.is_streamed)
        authorization = headers.get(b"authorization", "").encode("latin-1")
        async with self._users.backend(authorization, reader.visitor.address) as backend:
            call = Call(
                backend, self._instances, path, query, body, content_type, accepted, self._base_url(headers), reader,
                headers.get(b"last-event-id", ""),
            )  # fmt: skip
            if route.is_streamed:
                value = await route.handler(call)
            else:
                result = await reader.while_there(partial(_called, route.handler, call))
                if result is None:
                    return False  # the client has disconnected
                value = result[0]
            owner = str(backend.owner or reader.visitor.address)
            if isinstance(value, Events):
                return await self._send_events(reader, owner, value)
            if isinstance(value, Conversation):
                return await self._converse(reader, owner, value)
        return await self._send(reader, value, usual)

    async def _send(self, reader: HttpReader, value: Any, content_type: str) -> bool:
        answer = value if isinstance(value, Answer) else Answer(value, 204 if value is None else 200)
        if answer.value is None:
            headers = [*HEADERS, *answer.headers]
            if answer.status != 204:
                headers.append(("Content-Length", "0"))
            return await reader.answer(answer.status, headers, [], seconds=ANSWER_SECONDS_MAX)
        content = answer.value
        pieces: Sequence[Piece] = content.pieces if isinstance(content, Rows) else await pieces_of(content)
        headers = [*HEADERS, *answer.headers, ("Content-Type", answer.content_type or content_type)]
        return await self._send_pieces(reader, answer.status, headers, pieces)

    async def _send_pieces(
        self, reader: HttpReader, status: int, headers: list[tuple[str, str]], pieces: Sequence[Piece]
    ) -> bool:
        headers.append(("Content-Length", str(sum(map(len, pieces)))))
        joined = _joined(pieces)
        with self._unsent.sending(joined):
            return await reader.answer(status, headers, joined, seconds=ANSWER_SECONDS_MAX)

    async def _refuse(self, reader: HttpReader, version: str, error: RestError, *, is_read: bool) -> bool:
        """Send an error; the connection ends with it where the body was not read."""
        text = error.text.encode("utf-8", "replace").decode()
        pieces = await pieces_of({"error_code": error.code, "message": text})
        headers = [*HEADERS, ("Content-Type", V2_TYPE if version == V2 else JSON_TYPE)]
        if error.status == 401:
            headers.append(("WWW-Authenticate", 'Basic realm="barnabas"'))
        if not is_read:
            headers.append(("Connection", "close"))
        goes_on = await self._send_pieces(reader, error.status, headers, pieces)
        if not is_read:
            await reader.linger()
        return goes_on and is_read

    async def _send_events(self, reader: HttpReader, owner: str, events: Events) -> bool:
        with self._streams.open(owner):
            headers = [
                *HEADERS,
                ("Content-Type", "text/event-stream; charset=utf-8"),
                ("Connection", "close"),
            ]
            await reader.stream(headers, events.work, seconds=EVENT_SECONDS_MAX)
        return False

    async def _converse(self, reader: HttpReader, owner: str, conversation: Conversation) -> bool:
        with self._conversations.open(owner):
            headers = [*HEADERS, ("Content-Type", JSON_TYPE)]
            return await reader.converse(headers, conversation.work, seconds=EVENT_SECONDS_MAX)

    def _base_url(self, headers: dict[bytes, str]) -> str:
        """Return the beginning of URLs, by the name that the client has for this host."""
        host = headers.get(b"host", "")
        is_name = host and all(char.isalnum() or char in ".:-[]_" for char in host)
        return f"{self._scheme}://{host}" if is_name else ""


async def _called(handler: Callable[[Call], Awaitable[Any]], call: Call) -> tuple[Any]:
    return (await handler(call),)


def _route_of(request: h11.Request) -> tuple[Route, dict[str, str], dict[str, str]]:
    """Return the route of a request, the parts of its path and its query. Raises NoRouteError, RestError."""
    try:
        target = urlsplit(request.target.decode("ascii"))
        segments = [unquote(text, errors="strict") for text in target.path.split("/")]
        query = dict(parse_qsl(target.query, keep_blank_values=True, max_num_fields=50))
    except ValueError:
        raise RestError(400, 400, "the target is no URL") from None
    if any(len(segment.encode()) > NAME_BYTES_MAX for segment in segments):
        raise RestError(414, 414, f"a part of a path has at most {NAME_BYTES_MAX} bytes")
    if len(segments) > 2 and not segments[-1]:
        segments.pop()  # a slash at the end
    method = request.method.decode("latin-1")
    try:
        route, path = router().find_segments("GET" if method == "HEAD" else method, segments)
    except NoRouteError as error:
        raise RestError(error.status, error.status, str(error)[:300]) from None
    return route, path, query


def _version_of(request: h11.Request) -> str:
    return V3 if request.target.startswith(b"/v3") else V2


def _accepted(header: str) -> tuple[str, ...]:
    """Return the types of an `Accept`, the preferred one first; empty: any."""
    weighed = []
    for number, part in enumerate(header.split(",")[:20]):
        name, *parameters = (piece.strip().lower() for piece in part.split(";"))
        weight = 1.0
        for parameter in parameters:
            if parameter.startswith("q="):
                try:
                    weight = float(parameter[2:])
                except ValueError:
                    weight = 0.0
        if name and weight > 0:
            weighed.append((-weight, number, name))
    return tuple(name for _, _, name in sorted(weighed))


_ANY = ("*/*", "application/*")


def _type_of_answer(route: Route, accepted: tuple[str, ...]) -> str:
    """Return the type of the answer, the first that the client accepts. Raises RestError where it accepts none."""
    offered = types_of_answer(route)
    if not accepted or route.version == OURS:
        return offered[0]
    allowed = (*offered, V2_TYPE, JSON_TYPE, *(V2_TYPES if route.has_formats else ()))
    for name in accepted:
        if name in _ANY:
            return offered[0]
        if route.version == V3 and name == JSON_TYPE:
            return JSON_TYPE
        if route.version == V2 and name in allowed:
            return name
    raise RestError(406, 406, f"the answer has the type {' or '.join(offered)}")


def _check_type(route: Route, content_type: str, *, has_body: bool) -> None:
    """Raise RestError for a body of a type that the route does not accept."""
    if not has_body or not content_type:
        return
    if route.version == V3 and content_type != JSON_TYPE:
        raise RestError(415, 415, f"Content-Type is {JSON_TYPE}, not {content_type[:80]!r}")
    if route.version == V2 and content_type not in (V2_TYPE, JSON_TYPE, *V2_TYPES):
        raise RestError(
            415, 415, f"Content-Type is {V2_TYPE}, or that with a format, not {content_type[:80]!r}"
        )


def _joined(pieces: Sequence[Piece]) -> list[bytes]:
    """Return the pieces; small ones are joined, up to 64 KB."""
    joined: list[bytes] = []
    part: list[Piece] = []
    size = 0
    for piece in pieces:
        if part and size + len(piece) > 64 << 10:
            joined.append(b"".join(part))
            part, size = [], 0
        part.append(piece)
        size += len(piece)
    return [*joined, b"".join(part)]
