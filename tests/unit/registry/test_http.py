"""A registry over HTTP, by a connection in memory: bodies, kinds of answers, and requests that are no good."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.network.bodies import SMALL_BYTES_MAX
from barnabas.network.visitors import Visitor
from barnabas.registry.access import Caller, Logins
from barnabas.registry.errors import RegistryError
from barnabas.registry.http import BODY_BYTES_MAX, JSON_BYTES_MAX, OWN_TYPE, RegistryService
from barnabas.registry.parsing import SCHEMA_CHARACTERS_MAX
from barnabas.registry.records import Version, schema_record
from barnabas.registry.schemas import Schema
from tests.unit.registry.test_requests import Asked, Everybody

SCHEMA = json.dumps({"schemaType": "JSON", "schema": "{}"}).encode()


class Nobody(Caller):
    """A caller that may do nothing."""

    async def check(self, need: str, subject: str | None) -> None:
        raise RegistryError(403, 40301, f"{need} {subject}")


class Known:
    """Logins that know one caller."""

    def __init__(self, caller: Any) -> None:
        self._caller = caller

    @asynccontextmanager
    async def caller(self, authorization: bytes) -> Any:
        assert authorization == b"Basic YTpi"
        yield self._caller


async def answered(
    data: bytes, logins: Any = None, *, is_local: bool = True, asked: Asked | None = None
) -> tuple[int, dict[str, str], bytes]:
    """Send a request; returns status, headers and content."""
    client, server = trio.testing.memory_stream_pair()
    service = RegistryService((asked or Asked()).registry, logins, set(), is_local=is_local)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(service.serve, Visitor(server))
        await client.send_all(data)
        received = b""
        with trio.fail_after(10):
            while b"\r\n\r\n" not in received:
                received += await client.receive_some()
            head, _, content = received.partition(b"\r\n\r\n")
            lines = head.decode().split("\r\n")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
            if data.startswith(b"HEAD"):
                content = b""
            elif "content-length" in headers:
                while len(content) < int(headers["content-length"]):
                    content += await client.receive_some()
            else:
                while not content.endswith(b"0\r\n\r\n"):
                    content += await client.receive_some()
                content = unchunked(content)
        nursery.cancel_scope.cancel()
    return int(lines[0].split()[1]), headers, content


def unchunked(content: bytes) -> bytes:
    body = b""
    while content:
        size, _, content = content.partition(b"\r\n")
        body += content[: int(size, 16)]
        content = content[int(size, 16) + 2 :]
    return body


def request(method: str, path: str, body: bytes = b"", **headers: str) -> bytes:
    sent_headers = {"Host": "localhost", "Content-Length": str(len(body))} | {
        name.replace("_", "-"): text for name, text in headers.items()
    }
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {text}" for name, text in sent_headers.items()), "", ""]
    return "\r\n".join(lines).encode() + body


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status", "expected"),
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
        ("PATCH", "/subjects/s", b"", {}, 405, 405),
        ("DELETE", "/schemas//types/", b"", {}, 405, 405),
        ("GET", "/", b"", {"Origin": "http://evil.example"}, 403, 403),
        ("GET", "/", b"", {"Host": "evil.example"}, 403, 403),
    ],
)
async def test_requests_and_their_answers(
    method: str, path: str, body: bytes, headers: dict[str, str], status: int, expected: Any
) -> None:
    got, told, content = await answered(request(method, path, body, **headers))
    answer = json.loads(content)
    assert got == status
    assert told["content-type"] == OWN_TYPE
    if isinstance(answer, dict):
        answer = {
            name: value
            for name, value in answer.items()
            if name not in ("message", "version", "schema", "schemaType")
        }
    assert answer == (expected if status == 200 else {"error_code": expected})


async def test_answer_is_named_by_accept_and_empty_for_head() -> None:
    status, headers, _ = await answered(request("GET", "/", Accept="text/html, application/json"))
    assert (status, headers["content-type"]) == (200, "application/json")
    status, headers, content = await answered(request("HEAD", "/schemas/types"))
    assert (status, content) == (200, b"")
    assert int(headers["content-length"]) > 2


@pytest.mark.parametrize(
    ("method", "path", "authorization", "bytes_max"),
    [
        ("POST", "/subjects/s/versions", "", SMALL_BYTES_MAX),
        ("POST", "/subjects/s/versions", "Basic YTpi", BODY_BYTES_MAX),
        ("PUT", "/config", "Basic YTpi", JSON_BYTES_MAX),
        ("GET", "/subjects", "Basic YTpi", JSON_BYTES_MAX),
    ],
)
async def test_a_body_has_the_size_that_its_request_may_need(
    method: str, path: str, authorization: str, bytes_max: int
) -> None:
    headers = {"Authorization": authorization} if authorization else {}
    head = request(method, path, Content_Length=str(bytes_max + 1), **headers)
    status, _, content = await answered(head, Known(Everybody()))
    assert (status, json.loads(content)["error_code"]) == (413, 413)
    assert str(bytes_max) in json.loads(content)["message"]


@pytest.mark.parametrize(
    "body",
    [
        b"[" + b"[]," * 100_000 + b"0]",
        b"{" + b",".join(b'"%x":0' % number for number in range(100_000)) + b"}",
        b"[" + b'"",' * 200_000 + b'""]',
    ],
)
async def test_json_that_takes_long_to_read_is_refused(body: bytes) -> None:
    assert JSON_BYTES_MAX < len(body) < BODY_BYTES_MAX
    status, _, content = await answered(request("POST", "/subjects/s/versions", body))
    assert (status, json.loads(content)["error_code"]) == (413, 413)


@pytest.mark.parametrize("letter", ["a", '\\"', "ä"])
async def test_a_schema_of_the_largest_size_is_taken(letter: str) -> None:
    length = SCHEMA_CHARACTERS_MAX - len('{"title":""}')
    schema = '{"title":"' + letter * (length // len(letter)) + '"}'
    body = json.dumps({"schemaType": "JSON", "schema": schema}, ensure_ascii=False).encode()
    status, _, content = await answered(request("POST", "/subjects/s/versions", body))
    assert (status, json.loads(content)["id"]) == (200, 1)


async def test_a_long_list_comes_in_pieces() -> None:
    asked = Asked()
    for number in range(1201):
        version = Version(f"s{number:04}", 1, number + 1, Schema("JSON", f'{{"title":"{number}"}}'))
        asked.written.state.apply(*schema_record(version))
    status, headers, content = await answered(request("GET", "/subjects"), asked=asked)
    assert (status, json.loads(content)) == (200, [f"s{number:04}" for number in range(1201)])
    assert headers["connection"] == "close"
    _, _, content = await answered(request("GET", "/schemas"), asked=asked)
    assert [version["id"] for version in json.loads(content)] == list(range(1, 1202))
    _, headers, content = await answered(request("GET", "/schemas?offset=600&limit=3"), asked=asked)
    assert [version["id"] for version in json.loads(content)] == [601, 602, 603]
    assert "content-length" in headers
    assert (await answered(request("HEAD", "/schemas"), asked=asked))[0] == 200


async def test_large_schemas_are_sent_one_by_one() -> None:
    asked = Asked()
    for number in range(3):
        version = Version(f"s{number}", 1, number + 1, Schema("JSON", f'{{"title":"{"x" * 300_000}"}}'))
        asked.written.state.apply(*schema_record(version))
    _, headers, content = await answered(request("GET", "/schemas"), asked=asked)
    assert [version["id"] for version in json.loads(content)] == [1, 2, 3]
    assert "content-length" not in headers


OWN = {"Host": "localhost:8081", "Origin": "http://localhost:8081", "Sec_Fetch_Site": "same-origin"}
NAMED = {"Host": "registry.example:8081"}


@pytest.mark.parametrize(
    ("headers", "local", "local_with_logins", "open_", "with_logins"),
    [
        ({}, 200, 200, 200, 200),
        ({"Origin": "http://other.example"}, 403, 403, 403, 403),
        ({"Sec_Fetch_Site": "cross-site"}, 403, 403, 403, 403),
        (OWN, 403, 200, 200, 200),
        (NAMED, 403, 403, 200, 200),
        ({**NAMED, "Origin": "http://registry.example:8081"}, 403, 403, 200, 200),
        ({**NAMED, "Origin": "http://localhost:8081"}, 403, 403, 403, 403),
    ],
)
async def test_a_request_of_a_page_of_another_site_is_refused(
    headers: dict[str, str], local: int, local_with_logins: int, open_: int, with_logins: int
) -> None:
    sent = {"Content_Type": "text/plain;json", "Authorization": "Basic YTpi", **headers}
    data = request("POST", "/subjects/s/versions", SCHEMA, **sent)
    codes = [
        (await answered(data, logins, is_local=is_local))[0]
        for is_local, logins in (
            (True, None),
            (True, Known(Everybody())),
            (False, None),
            (False, Known(Everybody())),
        )
    ]
    assert codes == [local, local_with_logins, open_, with_logins]


async def test_who_has_not_logged_in_is_asked_to() -> None:
    status, headers, content = await answered(request("GET", "/"), Logins([], lambda *_: SimpleNamespace()))  # type: ignore[arg-type, return-value]
    assert (status, json.loads(content)["error_code"]) == (401, 40101)
    assert headers["www-authenticate"] == 'Basic realm="barnabas"'


async def test_unauthorized_subject_is_refused_before_it_is_read() -> None:
    async def refused(method: str, path: str, body: bytes = b"") -> str:
        status, _, content = await answered(
            request(method, path, body, Authorization="Basic YTpi"), Known(Nobody())
        )
        assert status == 403
        return str(json.loads(content)["message"])

    assert await refused("GET", "/subjects/s/versions") == "read s"
    assert await refused("POST", "/subjects/s/versions", SCHEMA) == "write s"
    assert await refused("POST", "/subjects/s/versions", b"{ is not read") == "write s"
    assert await refused("DELETE", "/subjects/s") == "delete s"
    assert await refused("PUT", "/config", b"{}") == "change None"
    assert (await answered(request("GET", "/", Authorization="Basic YTpi"), Known(Nobody())))[0] == 200
