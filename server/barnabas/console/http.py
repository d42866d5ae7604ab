"""Requests of the console, read and answered over HTTP/1.1: imported with the first connection.

The rule: a request is judged (host, origin, token, session) before anything is done with it, and no answer of the
cluster is ever sent as anything that a browser would run.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl, quote, urlsplit

import h11
import trio

from barnabas import __version__
from barnabas.client import ClientError
from barnabas.console.base import ConsoleError, Download, Events, as_json
from barnabas.console.guard import HEADERS, Guard, cookie_of
from barnabas.console.routes import dispatch, failure_of, router
from barnabas.console.static_files import StaticFile, files
from barnabas.environment.lazy import import_modules
from barnabas.errors import AnswerError
from barnabas.network.http import HttpReader, HttpService
from barnabas.network.writing import Piece, Streams, Unsent, join, pieces_of
from barnabas.sandbox import bodies

if TYPE_CHECKING:
    from barnabas.console.live import Live
    from barnabas.console.sessions import Session, Sessions

log = logging.getLogger(__name__)

SESSION_PATH = "/api/session"
CLUSTERS_PATH = "/clusters/"
ANSWER_SECONDS_MAX = 30.0
EVENT_SECONDS_MAX = 20.0
"""Time in which a browser takes an event in: after that, what makes them is broken off."""
CSRF_HEADER = "x-console-csrf"
_USED = (
    "barnabas.client.consumer",
    "barnabas.client.producer",
    *(f"barnabas.wire.generated.{name}" for name in (
        "consumer_group_describe", "create_partitions", "create_topics", "describe_acls", "describe_client_quotas",
        "describe_cluster", "describe_configs", "describe_groups", "describe_log_dirs", "describe_producers",
        "describe_share_group_offsets", "describe_topic_partitions", "describe_transactions",
        "describe_user_scram_credentials", "fetch", "find_coordinator", "list_groups", "list_offsets",
        "list_transactions", "offset_fetch", "share_group_describe",
    )),
    "barnabas.console.exposed",
)  # fmt: skip
"""Modules that requests use: they are imported with this one, in a thread, and not where the broker waits for them."""
import_modules(*_USED)
router(), files()  # as are those of the routes, and the page is read


class ConsoleRequest(NamedTuple):
    """A request with its target split; names of headers are in lower case."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    address: str = ""
    """Address of the machine that it comes from."""


class Place(NamedTuple):
    """Path of a cluster in its console."""

    base: str
    """The beginning of names of cookies, which no other console of this host has."""
    name: str = ""
    names: tuple[str, ...] = ("",)
    """Those of all clusters; a lone one has an empty name."""

    @property
    def path(self) -> str:
        """The path of its page."""
        return f"{CLUSTERS_PATH}{self.name}/" if self.name else "/"

    @property
    def cookie(self) -> str:
        """The name of its cookie."""
        return f"{self.base}-{self.name}" if self.name else self.base


class ConsoleService(HttpService):
    """The page of a console and its routes, for one cluster."""

    idle_seconds_max = 120.0

    def __init__(
        self,
        guard: Guard,
        sessions: Sessions,
        live: Live | None,
        place: Place,
        *,
        has_tls: bool = False,
        is_read_only: bool = False,
    ) -> None:
        self._cookie_rules = f"Path={place.path}; HttpOnly; SameSite=Strict" + ("; Secure" if has_tls else "")
        self._guard = guard
        self._sessions = sessions
        self._live = live
        self._place = place
        self._cookie = place.cookie
        self._is_read_only = is_read_only
        self._unsent = Unsent()
        self._streams = Streams()

    async def answer(self, reader: HttpReader, request: h11.Request, body: bytes) -> bool:
        """Send the response to a request; false if the connection ends with it."""
        try:
            parsed = _request_of(request, body, reader.visitor.address)
        except _MalformedError as error:
            await self.refuse(reader, 400, f"malformed request: {error}")
            return False
        with reader.visitor.waiting():
            return await self.respond(reader, parsed)

    async def refuse(self, reader: HttpReader, status: int, reason: str) -> bool:
        """Send the response to a malformed request, the last one of a connection."""
        return await self._send_json(reader, status, {"error": reason})

    def body_bytes_max(self, request: h11.Request) -> int:
        """Return how large the body of a request may be: large only with the cookie of a session."""
        cookie = next((value for name, value in request.headers if name == b"cookie"), b"").decode("latin-1")
        is_known = self._sessions.find(cookie_of(cookie, self._cookie)) is not None
        is_login = request.target.startswith(SESSION_PATH.encode())
        return bodies.BYTES_MAX if is_known and not is_login else bodies.BYTES_BEFORE_LOGIN_MAX

    async def respond(self, reader: HttpReader, request: ConsoleRequest) -> bool:
        """Send the response to a request that was read; false if the connection ends with it."""
        refusal = self._guard.refusal(request.method, request.headers)
        if refusal:
            return await self._send_json(reader, 403, {"error": refusal})
        if not request.path.startswith("/api/"):
            return await _send_file(reader, request)
        if request.method == "HEAD":
            return await self._send_json(reader, 405, {"error": "HEAD is for the files of the page"})
        if request.path == SESSION_PATH:
            return await self._session_request(reader, request)
        session = self._sessions.find(cookie_of(request.headers.get("cookie", ""), self._cookie))
        try:
            session = await self._allowed(session, request)
            await self._sessions.prove(session)
        except (AnswerError, ClientError) as error:
            return await self._send_json(reader, *failure_of(error, request.path))
        is_going_on = False
        with session.in_use() as scope:
            is_going_on = await self._answer_within(reader, request, session)
        return is_going_on and not scope.cancelled_caught

    async def _answer_within(self, reader: HttpReader, request: ConsoleRequest, session: Session) -> bool:
        """Answer a request of a session, which ends with it."""
        try:
            body = await bodies.read(request.body, self._sessions.sandbox, session.owner)
            reader.release()
            request = request._replace(body=b"")
            backend = await self._sessions.open(session)
        except (AnswerError, ClientError) as error:
            return await self._send_json(reader, *failure_of(error, request.path))
        answer = await reader.while_there(
            partial(dispatch, backend, request.method, request.path, request.query, body)
        )
        if answer is None:
            return False  # the visitor has gone
        status, value = answer
        if not isinstance(value, Events):
            return await self.send(reader, status, value)
        try:
            with self._streams.open(session.owner):
                await self.send_events(reader, value)
        except AnswerError as error:
            return await self._send_json(reader, error.status, {"error": str(error)})
        return False

    async def _allowed(self, session: Session | None, request: ConsoleRequest) -> Session:
        """Return the session of a request that may be answered. Raises ConsoleError."""
        if session is None:
            if request.method != "GET" or self._sessions.needs_token or self._sessions.mechanisms():
                raise ConsoleError(401, "log in first: POST /api/session")
            return await self._sessions.anonymous()  # to look needs no session where nobody logs in
        if request.method != "GET" and request.headers.get(CSRF_HEADER, "") != session.csrf:
            raise ConsoleError(
                403, f"the header {CSRF_HEADER} is missing or wrong: GET /api/session tells it"
            )
        if request.method != "GET" and self._is_read_only and request.path != SESSION_PATH:
            raise ConsoleError(403, "this console changes nothing: it was started with --read-only")
        return session

    async def lead(self, reader: HttpReader, request: h11.Request) -> bool:
        """Send the response to a request without a cluster: a redirect to the first cluster's page, else an error."""
        try:
            parsed = _request_of(request, b"")
        except _MalformedError as error:
            await self.refuse(reader, 400, f"malformed request: {error}")
            return False
        refusal = self._guard.refusal(parsed.method, parsed.headers)
        if refusal:
            return await self._send_json(reader, 403, {"error": refusal})
        name = parsed.path.removeprefix(CLUSTERS_PATH).strip("/")
        if parsed.method == "GET" and (parsed.path == "/" or name in self._place.names):
            path = f"{CLUSTERS_PATH}{name}/" if name else self._place.path
            headers = [*HEADERS, ("Location", path), ("Content-Length", "0")]
            return await reader.answer(307, headers, [], seconds=ANSWER_SECONDS_MAX)
        names = ", ".join(self._place.names)
        return await self._send_json(
            reader, 404, {"error": f"the clusters are at {CLUSTERS_PATH}NAME/: {names}"}
        )

    # --- sessions -------------------------------------------------------------------------------------------

    async def _session_request(self, reader: HttpReader, request: ConsoleRequest) -> bool:
        try:
            if request.method == "GET":
                return await self._show_session(reader, request)
            if request.method == "POST":
                return await self._log_in(reader, request)
            if request.method == "DELETE":
                return await self._log_out(reader, request)
        except (AnswerError, ClientError) as error:
            return await self._send_json(reader, *failure_of(error, request.path))
        return await self._send_json(reader, 405, {"error": "/api/session takes GET, POST, DELETE"})

    async def _show_session(self, reader: HttpReader, request: ConsoleRequest) -> bool:
        """Send the session of the request; begins one where no login is needed."""
        sessions = self._sessions
        session = sessions.find(cookie_of(request.headers.get("cookie", ""), self._cookie))
        cookies: list[tuple[str, str]] = []
        if session is None and not sessions.needs_token and not sessions.mechanisms():
            session = await sessions.begin(address=request.address)
            cookies = [self._cookie_of(session)]
        return await self._send_json(reader, 200, self._described(session), cookies)

    def _described(self, session: Session | None) -> dict[str, Any]:
        return {
            "version": __version__,
            "logged_in": session is not None,
            "user": session.user if session is not None else "",
            "csrf": session.csrf if session is not None else "",
            "needs_token": self._sessions.needs_token,
            "mechanisms": list(self._sessions.mechanisms()),
            "views": sorted(self._live.views) if self._live is not None else [],
            "registry": self._sessions.has_registry,
            "connects": [*self._sessions.connects],
            "read_only": self._is_read_only,
            "cluster": self._place.name,
            "clusters": [name for name in self._place.names if name],
        }

    async def _log_in(self, reader: HttpReader, request: ConsoleRequest) -> bool:
        try:
            body = json.loads(request.body or b"{}")
        except (ValueError, RecursionError):
            raise ConsoleError(400, "the body is not JSON") from None
        names = ("token", "user", "password", "mechanism")
        if not isinstance(body, dict) or not all(_is_text(body.get(name, "")) for name in names):
            raise ConsoleError(400, f"an object of {', '.join(names)} expected, each a text")
        session = await self._sessions.begin(
            **{name: body.get(name, "") for name in names}, address=request.address
        )
        return await self._send_json(reader, 200, self._described(session), [self._cookie_of(session)])

    async def _log_out(self, reader: HttpReader, request: ConsoleRequest) -> bool:
        session = self._sessions.find(cookie_of(request.headers.get("cookie", ""), self._cookie))
        if session is not None:
            await self._allowed(session, request)
            self._sessions.end(session)
        gone = f"{self._cookie}=; Max-Age=0; {self._cookie_rules}"
        return await self._send_json(reader, 200, self._described(None), [("Set-Cookie", gone)])

    def _cookie_of(self, session: Session) -> tuple[str, str]:
        return "Set-Cookie", f"{self._cookie}={session.identity}; {self._cookie_rules}"

    # --- answers --------------------------------------------------------------------------------------------

    async def send(self, reader: HttpReader, status: int, value: Any) -> bool:
        """Send a value as JSON, or a file to save; returns whether the connection may have another request."""
        if isinstance(value, Download):
            headers = [
                *HEADERS,
                ("Content-Type", value.content_type),
                ("Content-Disposition", f"attachment; filename*=UTF-8''{quote(value.name)}"),
            ]
            return await self._send_pieces(reader, 200, headers, value.pieces)
        return await self._send_json(reader, status, value)

    async def _send_json(
        self, reader: HttpReader, status: int, value: Any, headers: Sequence[tuple[str, str]] = ()
    ) -> bool:
        if status == 204:
            return await reader.answer(status, [*HEADERS, *headers], [], seconds=ANSWER_SECONDS_MAX)
        try:
            pieces = await pieces_of(value)
        except AnswerError as error:
            status, pieces = error.status, await pieces_of({"error": str(error)})
        common = [*HEADERS, *headers, ("Content-Type", "application/json; charset=utf-8")]
        return await self._send_pieces(reader, status, common, pieces)

    async def _send_pieces(
        self, reader: HttpReader, status: int, headers: list[tuple[str, str]], pieces: Sequence[Piece]
    ) -> bool:
        headers.append(("Content-Length", str(sum(map(len, pieces)))))
        with self._unsent.sending(pieces):
            return await reader.answer(status, headers, pieces, seconds=ANSWER_SECONDS_MAX)

    async def send_events(self, reader: HttpReader, events: Events) -> None:
        """Send events until the last one, or until the visitor disconnects; an error is sent as the last event."""

        async def work(send: Callable[[bytes], Awaitable[None]]) -> None:
            async def event(name: str, value: Any) -> None:
                pieces = [b"event: %s\ndata: " % name.encode(), *await pieces_of(value), b"\n\n"]
                with self._unsent.sending(pieces):
                    for piece in join(pieces):
                        await send(piece)

            try:
                await events.work(event)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                raise
            except Exception as error:
                await event("failed", failure_of(error, "events")[1])

        headers = [*HEADERS, ("Content-Type", "text/event-stream; charset=utf-8"), ("Connection", "close")]
        await reader.stream(headers, work, seconds=EVENT_SECONDS_MAX)


class _MalformedError(Exception):
    """A target that is no URL."""


def _is_text(value: object) -> bool:
    """Return whether a value is a text that has an encoding."""
    try:
        return isinstance(value, str) and bool(value.encode() or True)
    except UnicodeEncodeError:
        return False


def _request_of(request: h11.Request, body: bytes, address: str = "") -> ConsoleRequest:
    """Return a request with its target split. Raises _MalformedError."""
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers}
    try:
        target = urlsplit(request.target.decode("latin-1"))
        query = dict(parse_qsl(target.query, keep_blank_values=True, max_num_fields=50))
    except ValueError as error:
        raise _MalformedError(f"the target is no URL: {error}") from None
    if not target.path.startswith("/") or target.netloc:
        raise _MalformedError("the target is no path")
    return ConsoleRequest(request.method.decode("latin-1"), target.path, query, headers, body, address)


# --- files ---------------------------------------------------------------------------------------------------------


async def _send_file(reader: HttpReader, request: ConsoleRequest) -> bool:
    file = files().get(request.path)
    if file is None or request.method not in ("GET", "HEAD"):
        problem = f"there is nothing at {request.path}" if file is None else "GET or HEAD, please"
        text = as_json({"error": problem})
        type_and_size = [
            ("Content-Type", "application/json; charset=utf-8"),
            ("Content-Length", str(len(text))),
        ]
        status = 404 if file is None else 405
        return await reader.answer(status, [*HEADERS, *type_and_size], [text], seconds=ANSWER_SECONDS_MAX)
    headers = [header for header in HEADERS if header[0] != "Cache-Control"]
    headers += [("Cache-Control", "no-cache"), ("ETag", file.tag), ("Vary", "Accept-Encoding")]
    if request.headers.get("if-none-match") == file.tag:
        return await reader.answer(304, headers, [], seconds=ANSWER_SECONDS_MAX)
    return await _send_content(reader, request, file, headers)


async def _send_content(
    reader: HttpReader, request: ConsoleRequest, file: StaticFile, headers: list[tuple[str, str]]
) -> bool:
    content = file.content
    if "gzip" in request.headers.get("accept-encoding", ""):
        content = file.compressed
        headers.append(("Content-Encoding", "gzip"))
    headers += [("Content-Type", file.content_type), ("Content-Length", str(len(content)))]
    is_head = request.method == "HEAD"
    return await reader.answer(200, headers, [content], seconds=ANSWER_SECONDS_MAX, head_only=is_head)
