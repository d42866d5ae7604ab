"""A registry over HTTP, by a connection in memory: bodies, kinds of answers, and requests that are no good."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.network.visitors import Visitor
from barnabas.registry.access import Caller, Logins
from barnabas.registry.http import BODY_BYTES_MAX, OWN_TYPE, Answering
from tests.unit.registry.test_requests import Asked

SCHEMA = json.dumps({"schemaType": "JSON", "schema": "{}"}).encode()


async def answered(data: bytes, logins: Any = None) -> tuple[int, dict[str, str], bytes]:
    """Send a request; returns status, headers and content."""
    client, server = trio.testing.memory_stream_pair()
    answering = Answering(Asked().registry, logins, set(), is_local=True)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(answering.serve, Visitor(server))
        await client.send_all(data)
        received = b""
        with trio.fail_after(10):
            while b"\r\n\r\n" not in received:
                received += await client.receive_some()
            head, _, content = received.partition(b"\r\n\r\n")
            lines = head.decode().split("\r\n")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
            while len(content) < int(headers["content-length"]) and not data.startswith(b"HEAD"):
                content += await client.receive_some()
        nursery.cancel_scope.cancel()
    return int(lines[0].split()[1]), headers, content


def request(method: str, path: str, body: bytes = b"", **headers: str) -> bytes:
    given = {"Host": "localhost", "Content-Length": str(len(body))} | {
        name.replace("_", "-"): text for name, text in headers.items()
    }
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {text}" for name, text in given.items()), "", ""]
    return "\r\n".join(lines).encode() + body


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status", "found"),
    [
        ("GET", "/", b"", {}, 200, {}),
        ("GET", "/subjects", b"", {}, 200, []),
        ("GET", "/subjects", b"is not looked at", {}, 200, []),
        ("DELETE", "/subjects/s", b"nor here", {}, 404, 40401),
        ("POST", "/subjects/a%20b/versions", SCHEMA, {}, 200, {"id": 1}),
        ("POST", "/subjects/s/versions", SCHEMA, {"Content_Type": OWN_TYPE}, 200, {"id": 1}),
        (
            "POST",
            "/subjects/s/versions",
            SCHEMA,
            {"Content_Type": "application/octet-stream"},
            200,
            {"id": 1},
        ),
        ("POST", "/subjects/s/versions", SCHEMA, {"Content_Type": "text/plain"}, 415, 415),
        ("POST", "/subjects/s/versions", b"{", {}, 400, 400),
        ("POST", "/subjects/s/versions", b"[" * 100_000, {}, 400, 400),
        ("PUT", "/config", b'{"compatibility": "FULL"}', {}, 200, {"compatibility": "FULL"}),
        ("GET", "/subjects/%ff", b"", {}, 400, 400),
        ("GET", "/nowhere", b"", {}, 404, 404),
        ("GET", "/", b"", {"Origin": "http://evil.example"}, 403, 403),
        ("GET", "/", b"", {"Host": "evil.example"}, 403, 403),
    ],
)
async def test_requests_and_their_answers(
    method: str, path: str, body: bytes, headers: dict[str, str], status: int, found: Any
) -> None:
    got, told, content = await answered(request(method, path, body, **headers))
    answer = json.loads(content)
    assert got == status
    assert told["content-type"] == OWN_TYPE
    if isinstance(answer, dict):
        answer = {
            name: one
            for name, one in answer.items()
            if name not in ("message", "version", "schema", "schemaType")
        }
    assert answer == (found if status == 200 else {"error_code": found})


async def test_an_answer_is_called_what_is_accepted_and_has_no_content_for_its_head() -> None:
    status, headers, _ = await answered(request("GET", "/", Accept="text/html, application/json"))
    assert (status, headers["content-type"]) == (200, "application/json")
    status, headers, content = await answered(request("HEAD", "/schemas/types"))
    assert (status, content) == (200, b"")
    assert int(headers["content-length"]) > 2


async def test_a_body_that_is_too_large_and_what_is_no_http_are_refused() -> None:
    head = request("POST", "/subjects/s/versions", Content_Length=str(BODY_BYTES_MAX + 1))
    status, _, content = await answered(head + bytes(BODY_BYTES_MAX + 1))
    assert (status, json.loads(content)["error_code"]) == (413, 413)
    status, _, content = await answered(b"nonsense\r\n\r\n")
    assert (status, json.loads(content)["error_code"]) == (400, 400)


async def test_who_has_not_logged_in_is_asked_to() -> None:
    status, headers, content = await answered(request("GET", "/"), Logins([], lambda *_: SimpleNamespace()))  # type: ignore[arg-type, return-value]
    assert (status, json.loads(content)["error_code"]) == (401, 40101)
    assert headers["www-authenticate"] == 'Basic realm="barnabas"'


async def test_who_may_not_use_a_subject_is_refused_before_it_is_looked_at() -> None:
    from barnabas.registry.errors import RegistryError

    class Nobody(Caller):
        async def check(self, need: str, subject: str | None) -> None:
            raise RegistryError(403, 40301, f"{need} {subject}")

    class Known:
        @asynccontextmanager
        async def caller(self, authorization: bytes) -> Any:
            assert authorization == b"Basic YTpi"
            yield Nobody()

    async def refused(method: str, path: str, body: bytes = b"") -> str:
        status, _, content = await answered(request(method, path, body, Authorization="Basic YTpi"), Known())
        assert status == 403
        return str(json.loads(content)["message"])

    assert await refused("GET", "/subjects/s/versions") == "read s"
    assert await refused("POST", "/subjects/s/versions", SCHEMA) == "write s"
    assert await refused("DELETE", "/subjects/s") == "delete s"
    assert await refused("PUT", "/config", b"{}") == "change None"
    assert (await answered(request("GET", "/", Authorization="Basic YTpi"), Known()))[0] == 200
