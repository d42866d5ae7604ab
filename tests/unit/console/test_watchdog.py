"""Every route of the console against a cluster that holds a lot and bodies that want much: no long step, no much memory.

The rule: requests are made from the table of routes, so that a new route is asked too. Time is the CPU's.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import trio

from barnabas.client import ProducerSettings, open_client, open_producer
from barnabas.client.admin import Admin, NewTopic
from barnabas.console.base import Route
from barnabas.console.connect_client import ConnectClient
from barnabas.console.routes import router
from barnabas.registry.client_settings import RegistryAt
from tests.support.console import Console, Visitor, console_beside
from tests.support.effort import EFFORT
from tests.support.registries import standin
from tests.support.step_watch import GROWTH_BYTES_MAX, STEP_SECONDS_MAX, StepWatch, forget_peak, peak

TOPICS = 200 * min(EFFORT, 25)
GROUPS = 50 * min(EFFORT, 10)
SUBJECTS = 50_000 * min(EFFORT, 10)
CONNECTORS = 2_000
WIDE = 256
RECORDS = 300
EVENT_SECONDS, SECONDS_MAX = 0.4, 60.0
NOT_WATCHED = ("tests.", "<test ", "trio._highlevel")
"""Tasks of the test, and of its registry."""
LARGE = {"max.message.bytes": "100000000"}
ANSWERED = (200, 204, 400, 403, 404, 405, 409, 413, 422, 429, 431, 501, 503)
"""Statuses that a request may have: never 500 or 502, which would be a defect."""


class Asked(NamedTuple):
    """A request; `is_stream` if it is answered with events."""

    method: str
    path: str
    query: dict[str, Any]
    body: Any = None


def _varint(number: int) -> bytes:
    number <<= 1
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _registry() -> dict[str, Any]:
    answers: dict[str, Any] = {
        "/subjects": [f"subject-{number}-value" for number in range(SUBJECTS)],
        "/subjects/s/versions": [1, 2],
        "/config/s?defaultToGlobal=true": {"compatibilityLevel": "FULL"},
        "/schemas/ids/7": {"schema": '{"type": "array", "items": "null"}', "schemaType": "AVRO"},
    }
    for version in (1, 2):
        fields = [{"name": f"f{version}_{number}", "type": "string"} for number in range(3_000)]
        schema = json.dumps({"type": "record", "name": "R", "fields": fields})
        answer = {"subject": "s", "version": version, "id": version, "schema": schema, "schemaType": "AVRO"}
        answers |= {f"/subjects/s/versions/{version}{query}": answer for query in ("", "?deleted=true")}
    return answers


def _workers() -> dict[str, Any]:
    """Answers of a worker of Kafka Connect, with many connectors, and one that has failed at length."""
    config = {f"setting.{number}": "v" * 20 for number in range(20)} | {"connector.class": "P"}
    task = {"id": 0, "state": "FAILED", "worker_id": "w", "trace": "at x\n" * 100_000}
    status = {"connector": {"state": "RUNNING"}, "tasks": [task], "type": "sink"}
    listed = {"status": {**status, "tasks": [{"id": 0, "state": "RUNNING"}]}, "info": {"config": config}}
    return {
        "/": {"version": "4.3.1"}, "/connector-plugins": [], "/connector-plugins/P/config": [],
        "/connectors?expand=status&expand=info": {f"connector-{number}": listed for number in range(CONNECTORS)},
        "/connectors/connector-1": {"name": "connector-1", "config": config}, "/connectors/connector-1/config": config,
        "/connectors/connector-1/status": status,
    }  # fmt: skip


async def _fill(console: Console) -> None:
    async with open_client(console.bootstrap) as client, trio.open_nursery() as nursery:
        admin = Admin(client)
        names = [f"topic-{number}" for number in range(TOPICS)]
        topics = [NewTopic(name, 1, 1, {}) for name in names]
        topics += [NewTopic("t", 3, 1, {}), NewTopic("wide", WIDE, 1, {}), NewTopic("bombs", 1, 1, LARGE)]
        for at in range(0, len(topics), 200):
            await admin.create_topics(topics[at : at + 200])
        for number in range(GROUPS):
            await admin.commit_offsets(f"group-{number}", {("t", 0): 0})
        await admin.commit_offsets("g", {("wide", number): 0 for number in range(WIDE)})
        nursery.cancel_scope.cancel()
    settings = ProducerSettings(
        linger_ms=0, compression="zstd", request_bytes_max=10**8, buffer_bytes=2 * 10**8, batch_bytes=1 << 20
    )
    async with open_producer(console.bootstrap, settings) as producer:
        for number in range(RECORDS):
            await producer.send("t", b"x" * 2_000, key=b"k", headers=[("h", b"y" * 500)] * 20, partition=0)
            await producer.send("wide", b"%d" % number)
        for bomb in (
            b"[" + b"[]," * 15_000_000 + b"[]]",  # JSON of very many values
            b"\0\0\0\0\7" + _varint(50_000_000) + b"\0",  # a few bytes that a schema reads as very many items
            b"a" * 1_000_000,
        ):
            await (await producer.send("bombs", bomb, key=b"k")).wait()


@asynccontextmanager
async def _world(directory: Path) -> AsyncIterator[tuple[Console, Visitor]]:
    async with AsyncExitStack() as stack:
        registry = await stack.enter_async_context(standin(_registry()))
        workers = await stack.enter_async_context(standin(_workers()))
        console = await stack.enter_async_context(
            console_beside(
                directory,
                {"message.max.bytes": LARGE["max.message.bytes"]},
                registry=RegistryAt(registry.url),
                connects={"c": ConnectClient(workers.url)},
            )
        )
        await _fill(console)
        yield console, await console.visitor()


PATHS: dict[str, tuple[str, ...]] = {
    "topic": ("t", "wide", "bombs", "topic-1", "a" * 60_000, "%ed%a0%80", "none"), "group": ("g", "group-1", "a" * 60_000),
    "partition": ("0", "1", "9" * 30, "x"), "offset": ("0", "1", "2", "9" * 30, "x"),
    "subject": ("s", "none", "a" * 60_000), "broker": ("1", "9" * 30, "x"), "user": ("u", "a" * 60_000),
    "connect": ("c", "none"), "connector": ("connector-1", "none", "a" * 60_000), "task": ("0", "x"),
    "rest": ("faults", "clock", "snapshots", "x"),
}  # fmt: skip
"""Values of the parts of paths, as they stand in them."""
QUERIES: dict[str, tuple[Any, ...]] = {
    "filter": ("9", "\udcff"), "sort": ("name", "records", "bytes", "rate", "x"), "order": ("desc",), "page": (10**30,),
    "size": (200, -1), "internal": ("true",), "unhealthy": ("true",), "kind": ("classic", "x"), "state": ("Empty",),
    "open": ("true",), "version": (1, 99), "older": (1,), "newer": (2,), "names": ("barnabas_requests_total,x" * 100,),
    "since": (0,), "from": ("oldest", "offset", "time"), "offset": (10**18,), "time": (10**15,), "until": (10**15,),
    "before": ("0:9,1:1", "x" * 5_000), "after": ("0:0", "x"), "partition": ("1", "x"), "committed": ("true",),
    "as": ("text", "hex", "registry", "msgpack"), "limit": (500, 1),
    "format": ("jsonl",), "regex": ("true",), "case": ("true",),
    "text": ("nothing", "(x?){500}(x?){500}z|(.{0,900}y)", "(" * 1_000), "in": ("value", "headers"),
    "where": ("$.total > 60 or not key ~ /a/", "$..*..*..* < $..*..*", "(x?){500}", "(" * 1_000, "x" * 5_000),
    "columns": ("$.a, $..*..*..*, key", "$.a[", "x" * 5_000),
    "api": ("Fetch",), "client_id": ("*",), "errors": ("true",), "topic": ("*",), "group": ("*",),
}  # fmt: skip
WHOLE = {"search": {"text": "nothing"}}
"""Parameters that a route needs, by the end of its path."""
DEEP: Any = json.loads("[" * 500 + "]" * 500)
BODIES: tuple[Any, ...] = (
    {}, [], "x", None,
    {"name": "\ud800", "user": "\ud800", "password": "\ud800", "confirm": "\ud800"},
    {"records": [{"value": "x", "headers": [{"name": "h"}] * 30}] * 1_000},
    {"records": [{"value": "\n" * 3_000}] * 1_000},
    {"records": [{"value": '{"a": [%s 1]}' % ("1, " * 1_000)}] * 100, "value_schema": 7},
    {f"{number:x}": 0 for number in range(300_000)},
    {"set": dict.fromkeys(map(str, range(20_000)), "x"), "settings": dict.fromkeys(map(str, range(20_000)), "x")},
    {"topics": [f"topic-{number}" for number in range(20_000)], "to": "latest", "name": "x", "count": 10**30},
    {"schema": "[" * 200_000, "type": "JSON", "check": True},
    {"schema": '{"a": 1}' * 100_000, "method": "POST", "rules": DEEP, "entity": {"user": "x" * 100_000}, "values": {}},
)  # fmt: skip


def _paths(path: str) -> Iterator[str]:
    """Yield a path with each value of its parts, the others being the first."""
    names = [name for name in PATHS if f"{{{name}}}" in path]
    variants = [{}] + [{name: value} for name in names for value in PATHS[name][1:]]
    for variant in variants:
        filled = path
        for name in names:
            filled = filled.replace(f"{{{name}}}", variant.get(name, PATHS[name][0]))
        yield filled


def requests_of(route: Route) -> Iterator[Asked]:
    """Yield what a route is asked."""
    whole = WHOLE.get(route.path.rpartition("/")[2], {})
    paths = list(_paths(route.path))
    assert not any("{" in path for path in paths), f"PATHS lacks a part of {route.path}"
    missing = {parameter.name for parameter in route.query} - QUERIES.keys()
    assert not missing, f"QUERIES lacks {missing}, which {route.path} has"
    if route.method == "GET":
        yield from (Asked("GET", path, whole) for path in paths)
        for parameter in route.query:
            yield from (
                Asked(
                    "GET", paths[0], {**({} if parameter.name == "where" else whole), parameter.name: value}
                )
                for value in QUERIES[parameter.name]
            )
        return
    yield from (Asked(route.method, path, {}, {}) for path in paths[1:])
    yield from (Asked(route.method, paths[0], {}, body) for body in BODIES)


class Sent(NamedTuple):
    """A request as it is sent: its target, and its body."""

    method: str
    target: str
    content: bytes | None


def _sent(asked: Asked) -> Sent:
    query = urlencode(asked.query, errors="surrogatepass")
    content = None if asked.method == "GET" else json.dumps(asked.body).encode()
    return Sent(asked.method, f"{asked.path}?{query}", content)


def _answer(visitor: Visitor, sent: Sent) -> int:
    """Send a request, and return its status; of events those of a while are read."""
    host, _, port = visitor.host.rpartition(":")
    connection = HTTPConnection(host, int(port), timeout=SECONDS_MAX)
    headers = {"Cookie": visitor.cookie, "Origin": visitor.origin, "X-Console-CSRF": visitor.csrf}
    try:
        connection.request(sent.method, sent.target, sent.content, headers)
        sock = connection.sock
        answer = connection.getresponse()
        if not answer.headers["Content-Type"].startswith("text/event-stream"):
            answer.read()
            return answer.status
        sock.settimeout(EVENT_SECONDS)
        ends_at = time.monotonic() + EVENT_SECONDS
        with suppress(TimeoutError):
            while time.monotonic() < ends_at and (line := answer.readline()):
                assert not line.startswith(b"event: failed"), answer.readline()
        return answer.status
    finally:
        connection.close()


async def test_no_request_of_any_route_makes_a_long_step(tmp_path: Path) -> None:
    worst: list[tuple[float, int, str]] = []
    wrong: list[str] = []
    requests = [(route, asked) for route in router().routes for asked in requests_of(route)]
    sent = [(route, asked, _sent(asked)) for route, asked in requests]
    async with _world(tmp_path) as (_, visitor):
        with StepWatch(*NOT_WATCHED) as watch:
            for route, asked, request in sent:
                before = forget_peak()
                watch.forget()
                status = await trio.to_thread.run_sync(_answer, visitor, request)
                growth = (peak() - before) >> 20
                what = f"{route.method} {route.path} {str(asked)[:150]}: {status}"
                worst.append((watch.worst, growth, f"{what} in {watch.where}"))
                if status not in ANSWERED:
                    wrong.append(what)
    assert not wrong, wrong
    assert not [step for step in worst if step[0] > STEP_SECONDS_MAX]
    assert not [step for step in worst if step[1] > GROWTH_BYTES_MAX >> 20]
