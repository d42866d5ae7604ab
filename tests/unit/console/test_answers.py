"""Requests of the console before any route: targets, logins, files, downloads, and the headers of each answer."""

from __future__ import annotations

import gzip
import json
from types import SimpleNamespace
from typing import Any

import h11
import pytest
import trio

from barnabas.client import ClientSettings
from barnabas.console.base import ConsoleError, Download, Events
from barnabas.console.guard import HEADERS, Guard
from barnabas.console.http import (
    ANSWER_SECONDS_MAX,
    ConsoleRequest,
    ConsoleService,
    Place,
    _MalformedError,
    _request_of,
)
from barnabas.console.sessions import Session
from barnabas.console.static_files import files
from barnabas.sandbox import bodies

NOBODY: Any = None


class Reader:
    """Answers that were sent."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.content = b""
        self.head_only = False
        self.streamed: Any = None

    async def answer(
        self, status: int, headers: Any, pieces: Any, *, seconds: float, head_only: bool = False
    ) -> bool:
        assert seconds == ANSWER_SECONDS_MAX
        self.status, self.headers, self.content, self.head_only = (
            status,
            dict(headers),
            b"".join(pieces),
            head_only,
        )
        return True

    def release(self) -> None:
        """The body was read."""

    async def while_there(self, work: Any) -> Any:
        return await work()

    async def stream(self, headers: Any, work: Any, *, seconds: float) -> None:
        self.headers, self.content = dict(headers), b""

        async def send(piece: bytes) -> None:
            self.content += piece

        await work(send)

    @property
    def json(self) -> Any:
        return json.loads(self.content)


class Sessions:
    """Sessions of one visitor, which may be let in."""

    def __init__(self, *mechanisms: str, needs_token: bool = False) -> None:
        self.session = Session(NOBODY, "ann", ClientSettings())
        self.needs_token, self.has_registry = needs_token, True
        self.connects: dict[str, Any] = {}
        self.sandbox: Any = None
        self.gone: list[Session] = []
        """Those with a login that the broker does not take any more."""
        self.begun: list[dict[str, str]] = []
        self.ended: list[Session] = []
        self._mechanisms = mechanisms

    def mechanisms(self) -> tuple[str, ...]:
        return self._mechanisms

    def find(self, identity: str) -> Session | None:
        return self.session if identity == self.session.identity else None

    async def begin(self, *, address: str, **login: str) -> Session:
        self.begun.append(login)
        if login.get("token") == "wrong":
            raise ConsoleError(401, "the token is wrong")
        return self.session

    async def anonymous(self) -> Session:
        return self.session

    def end(self, session: Session) -> None:
        self.ended.append(session)

    async def prove(self, session: Session) -> None:
        if session in self.gone:
            raise ConsoleError(401, "log in again")

    async def open(self, session: Session) -> Any:
        assert session.uses == 1, "a session that is being answered stays"
        return SimpleNamespace(operations=None, live=None)


def answering(sessions: Any, **more: Any) -> ConsoleService:
    return ConsoleService(Guard([], is_local=True), sessions, None, Place("cookie"), **more)


async def ask(served: ConsoleService, method: str, path: str, body: bytes = b"", **headers: str) -> Reader:
    reader: Any = Reader()
    sent_headers = {"host": "localhost", **{name.replace("_", "-"): value for name, value in headers.items()}}
    assert await served.respond(reader, ConsoleRequest(method, path, {}, sent_headers, body))
    assert HEADERS[0] in reader.headers.items()
    return reader


def request(target: str) -> h11.Request:
    return h11.Request(method="GET", target=target, headers=[("Host", "a"), ("X-Y", "ä".encode("latin-1"))])


@pytest.mark.parametrize("target", ["*", "http://h/x", "//h/x", "/?" + "&".join(["a=1"] * 51), "//[::1"])
def test_a_target_that_is_no_path_is_malformed(target: str) -> None:
    with pytest.raises(_MalformedError):
        _request_of(request(target), b"")
    _request_of(request("/?" + "&".join(["a=1"] * 50)), b"")


@pytest.mark.parametrize(
    ("body", "login"),
    [
        (b"", {}),
        (b"{}", {}),
        (b'{"token": "t", "user": "ann", "password": "pw", "mechanism": "PLAIN", "more": 1}',
         {"token": "t", "user": "ann", "password": "pw", "mechanism": "PLAIN"}),
    ],
)  # fmt: skip
async def test_a_login_has_a_cookie_for_this_console_alone(body: bytes, login: dict[str, str]) -> None:
    sessions = Sessions()
    reply = await ask(answering(sessions, has_tls=True), "POST", "/api/session", body)
    assert sessions.begun == [{"token": "", "user": "", "password": "", "mechanism": "", **login}]
    assert (
        reply.headers["Set-Cookie"]
        == f"cookie={sessions.session.identity}; Path=/; HttpOnly; SameSite=Strict; Secure"
    )
    assert (reply.status, reply.json["logged_in"], reply.json["csrf"]) == (200, True, sessions.session.csrf)
    plain = await ask(answering(sessions), "POST", "/api/session")
    assert not plain.headers["Set-Cookie"].endswith("Secure")


@pytest.mark.parametrize(
    "body",
    [
        b"[]", b'{"user": 1}', b'{"token": null}', b"no json", b"[" * 10_000,
        b'{"user": "\\ud800", "password": "p"}', b'{"token": "\\udfff"}',
    ],
)  # fmt: skip
async def test_a_login_is_an_object_of_texts(body: bytes) -> None:
    sessions = Sessions()
    assert (await ask(answering(sessions), "POST", "/api/session", body)).status == 400
    assert sessions.begun == []
    refused = await ask(answering(sessions), "POST", "/api/session", b'{"token": "wrong"}')
    assert (refused.status, refused.json) == (401, {"error": "the token is wrong"})


async def test_viewer_is_named_and_admitted_where_no_login_is_needed() -> None:
    free, guarded, named = Sessions(), Sessions(needs_token=True), Sessions("PLAIN")
    assert "Set-Cookie" in (await ask(answering(free), "GET", "/api/session")).headers
    for sessions in (guarded, named):
        reply = await ask(answering(sessions), "GET", "/api/session")
        assert (reply.json["logged_in"], reply.json["user"], reply.json["csrf"], sessions.begun) == (
            False,
            "",
            "",
            [],
        )
        assert "Set-Cookie" not in reply.headers
        assert (reply.json["needs_token"], reply.json["mechanisms"]) == (
            sessions.needs_token,
            list(sessions.mechanisms()),
        )
        cookie = f"other=1; cookie={sessions.session.identity}"
        reply = await ask(answering(sessions), "GET", "/api/session", cookie=cookie)
        assert (reply.json["logged_in"], reply.json["user"], reply.json["registry"], reply.json["views"]) == (
            True,
            "ann",
            True,
            [],
        )
    assert (await ask(answering(free), "PUT", "/api/session")).status == 405


async def test_the_page_is_sent_compressed_to_who_takes_that_and_once() -> None:
    page = files()["/"]
    served = answering(Sessions())
    answer = await ask(served, "GET", "/")
    assert (answer.status, answer.content, answer.head_only) == (200, page.content, False)
    assert (answer.headers["Content-Type"], answer.headers["Cache-Control"]) == (
        "text/html; charset=utf-8",
        "no-cache",
    )
    assert answer.headers["Content-Length"] == str(len(page.content))
    packed = await ask(served, "HEAD", "/index.html", accept_encoding="br, gzip")
    assert (gzip.decompress(packed.content), packed.headers["Content-Encoding"], packed.head_only) == (
        page.content,
        "gzip",
        True,
    )
    again = await ask(served, "GET", "/", if_none_match=answer.headers["ETag"])
    assert (again.status, again.content) == (304, b"")
    assert (await ask(served, "GET", "/", if_none_match='"other"')).status == 200
    missing = await ask(served, "GET", "/nothing")
    assert (missing.status, missing.json) == (404, {"error": "there is nothing at /nothing"})
    assert missing.headers["Cache-Control"] == "no-store"
    assert (await ask(served, "POST", "/")).status == 405


async def test_a_download_has_a_name_that_no_header_breaks() -> None:
    reader: Any = Reader()
    served = answering(Sessions())
    assert await served.send(reader, 200, Download('a"ä\r\n.csv', "text/csv", (b"con", b"tent")))
    assert reader.headers["Content-Disposition"] == "attachment; filename*=UTF-8''a%22%C3%A4%0D%0A.csv"
    assert (reader.headers["Content-Type"], reader.headers["Content-Length"], reader.content) == (
        "text/csv",
        "7",
        b"content",
    )


async def test_events_are_sent_one_by_one_and_a_failure_is_the_last() -> None:
    async def work(send: Any) -> None:
        await send("begun", {"a": "ä\n"})
        raise ConsoleError(404, "gone")

    reader: Any = Reader()
    served = answering(Sessions())
    await served.send_events(reader, Events(work))
    assert reader.headers["Content-Type"] == "text/event-stream; charset=utf-8"
    assert (
        reader.content.decode()
        == 'event: begun\ndata: {"a":"ä\\n"}\n\nevent: failed\ndata: {"error":"gone"}\n\n'
    )

    async def broken(_: Any) -> None:
        raise trio.BrokenResourceError

    with pytest.raises(trio.BrokenResourceError):
        await served.send_events(reader, Events(broken))


async def test_head_requests_of_the_api_are_refused() -> None:
    for path in ("/api/topics", "/api/session"):
        assert (await ask(answering(Sessions()), "HEAD", path)).status == 405


async def test_a_visitor_whose_login_is_taken_no_more_is_told_so() -> None:
    sessions = Sessions("PLAIN")
    sessions.gone.append(sessions.session)
    cookie = f"cookie={sessions.session.identity}"
    refused = await ask(answering(sessions), "GET", "/api/topics", cookie=cookie)
    assert (refused.status, refused.json) == (401, {"error": "log in again"})


async def test_only_who_has_logged_in_sends_large_bodies() -> None:
    sessions = Sessions("PLAIN")
    served, cookie = answering(sessions), f"cookie={sessions.session.identity}"

    def most(path: str, cookie: str) -> int:
        headers = [("Host", "a"), ("Cookie", cookie)]
        return served.body_bytes_max(h11.Request(method="POST", target=path, headers=headers))

    assert most("/api/topics", cookie) == bodies.BYTES_MAX
    assert most("/api/topics", "cookie=other") == most("/api/topics", "") == bodies.BYTES_BEFORE_LOGIN_MAX
    assert most("/api/session", cookie) == bodies.BYTES_BEFORE_LOGIN_MAX
