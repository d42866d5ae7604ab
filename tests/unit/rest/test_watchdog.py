"""Every route of the REST API among many topics, and bodies that lead to very much: no long step, no much memory.

The rule: requests are made from the table of routes, so that a new route is asked too. Time is the CPU's.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPConnection
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

import trio

from barnabas.client import ProducerSettings, open_client, open_producer
from barnabas.client.admin import Admin, NewTopic
from barnabas.registry.client_settings import RegistryAt
from barnabas.rest.base import V3, Route
from barnabas.rest.formats import V2_TYPES
from barnabas.rest.openapi import types_of_request
from barnabas.rest.routes import router
from barnabas.testing import start_thread
from tests.support.effort import EFFORT
from tests.support.registries import standin
from tests.support.rest import SECONDS_MAX, rest
from tests.support.step_watch import GROWTH_BYTES_MAX, STEP_SECONDS_MAX, StepWatch, forget_peak, peak

TOPICS = 300 * min(EFFORT, 25)
GROUPS = 50 * min(EFFORT, 10)
WIDE = 256
EVENT_SECONDS = 0.4
NOT_WATCHED = ("tests.", "<test ", "trio._highlevel")
"""Tasks of the test, and of its registry."""
LARGE = {"max.message.bytes": "100000000"}
ANSWERED = (200, 201, 204, 207, 400, 403, 404, 405, 406, 408, 409, 413, 415, 414, 422, 429, 501, 503)
"""Statuses that a request may have: never 500, which would be a defect, but for what a broker takes too long for."""
PATHS: dict[str, tuple[str, ...]] = {
    "topic": ("t", "wide", "bombs", "topic-1", "a" * 60_000, "none"), "partition": ("0", "1", "9" * 30, "x"),
    "group": ("g", "a" * 60_000), "instance": ("json", "avro", "x", "a" * 60_000),
    "name": ("retention.ms", "x", "a" * 60_000),
    "topic_name": ("t", "wide", "a" * 60_000, "%ed%a0%80", "none"), "partition_id": ("0", "9" * 30, "x"),
    "broker_id": ("1", "9" * 30, "x"), "consumer_group_id": ("g", "wide", "a" * 60_000, "none"),
    "consumer_id": ("x", "a" * 60_000), "cluster_id": ("", "other", "a" * 60_000),
}  # fmt: skip
"""Values of the parts of paths, as they stand in them; an empty one stands for the cluster's id."""
QUERIES: dict[str, tuple[Any, ...]] = {
    "offset": (0, 10**18, "x"), "count": (1_000, -1), "timeout": (100, "x"), "max_bytes": (1, 10**30),
    "from": ("earliest", "0", "x"), "format": ("json", "avro", "string", "x"), "partition": ("1", "x"),
    "include_authorized_operations": ("true",), "includeAuthorizedOperations": ("true", "x"),
    "offset_type": ("max_timestamp",),
    **dict.fromkeys(
        ("resource_type", "resource_name", "pattern_type", "principal", "host", "operation", "permission"),
        ("any", "x" * 5_000),
    ),
}  # fmt: skip
DEEP: Any = json.loads("[" * 400 + "]" * 400)
PLACES = [{"topic": "wide", "partition": number % WIDE, "offset": 0} for number in range(10_000)]
CHANGE = {"name": "retention.ms", "value": "1"}
BODIES: tuple[Any, ...] = (
    {}, [], "x", None, DEEP,
    {"records": [{"value": "aGk=", "key": "aGk="}] * 10_000},
    {"records": [{"value": "A" * 200_000}] * 30},
    {"records": [{"value": [[[]]] * 15_000}]},
    {"records": [{"value": "x"}] * 5_000, "value_schema_id": 7},
    {"records": [{"value": "x"}], "value_schema": "[" * 200_000},
    {f"{number:x}": 0 for number in range(200_000)},
    {"topics": [f"topic-{number}" for number in range(9_000)]}, {"topics": ["a" * 60_000, "\ud800"]},
    {"topic_pattern": "(x?){500}(x?){500}z"}, {"topic_pattern": ".*"},
    {"partitions": PLACES[:WIDE]}, {"offsets": PLACES[:WIDE]}, {"partitions": PLACES}, {"offsets": PLACES * 2},
    {"name": "\ud800", "format": "json"}, {"name": "x" * 100_000}, {"value": "x" * 1_000_000},
    {"data": [{"name": f"n{number}", "value": "x"} for number in range(20_000)]},
    {"data": [{"topic_name": f"topic-{number}", "configs": [CHANGE]} for number in range(999)]},
    {"topic_name": "x", "partitions_count": 10**9},
    {"topic_name": "x" * 100_000, "configs": [CHANGE] * 9_000}, {"topic_name": "x", "configs": [CHANGE] * 5_000},
    {"entries": [{"id": str(number), "value": {"type": "JSON", "data": [1] * 400}} for number in range(100)]},
    {"value": {"type": "JSON", "data": DEEP}, "headers": [{"name": "h", "value": "aGk="}] * 5_000},
    {"partitions_count": 10**12},
)  # fmt: skip
STREAMS: tuple[bytes, ...] = (
    b"{}" * 5_000, b'{"value":{"type":"BINARY","data":"!"}}' * 3_000, b"[" * 1_000_000, b'{"a":' * 300_000,
    b'{"a":"' + b"\\" * 3_000_000,
    b'{"value":{"type":"JSON","data":[' + b"1," * 900_000 + b"1]}}",
    b'{"value":{"type":"STRING","data":"%s"}}' % (b"x" * 1_500_000),
)  # fmt: skip


class Asked(NamedTuple):
    """A request."""

    method: str
    target: str
    content: bytes | None
    content_type: str


def varint(number: int) -> bytes:
    """Return a number as Avro writes it."""
    number <<= 1
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def paths_of(route: Route, cluster_id: str) -> Iterator[str]:
    """Yield a path with each value of its parts, the others being the first."""
    names = [part[1:-1] for part in route.path.split("/") if part.startswith("{")]
    for changed in ({}, *({name: value} for name in names for value in PATHS[name][1:])):
        path = route.path
        for name in names:
            path = path.replace(f"{{{name}}}", changed.get(name, PATHS[name][0]) or cluster_id)
        yield path


def requests_of(route: Route, cluster_id: str) -> Iterator[Asked]:
    """Yield what a route is asked."""
    paths = list(paths_of(route, cluster_id))
    content_type = (types_of_request(route) or ("",))[0]
    if route.is_streamed:
        yield from (Asked("POST", paths[0], content, content_type) for content in STREAMS)
    if route.method in ("GET", "DELETE"):
        yield from (Asked(route.method, path, None, "") for path in paths)
        for parameter in route.query:
            for value in QUERIES[parameter.name]:
                query = urlencode({parameter.name: value})
                yield Asked(route.method, f"{paths[0]}?{query}", None, "")
        return
    yield from (Asked(route.method, path, b"{}", content_type) for path in paths[1:])
    types = [*V2_TYPES] if route.version != V3 and "produce" in route.handler.__name__ else [content_type]
    for body in BODIES:
        yield from (Asked(route.method, paths[0], json.dumps(body).encode(), name) for name in types[:3])


def answer(netloc: str, asked: Asked) -> int:
    """Send a request, and return its status; of events those of a while are read."""
    connection = HTTPConnection(netloc, timeout=SECONDS_MAX)
    try:
        connection.request(asked.method, asked.target, asked.content, {"Content-Type": asked.content_type})
        sock = connection.sock
        response = connection.getresponse()
        if not response.headers.get("Content-Type", "").startswith("text/event-stream"):
            response.read()
            return response.status
        sock.settimeout(EVENT_SECONDS)
        ends_at = time.monotonic() + EVENT_SECONDS
        with suppress(TimeoutError):
            while time.monotonic() < ends_at and response.readline():
                pass
        return response.status
    finally:
        connection.close()


async def fill(bootstrap: str) -> None:
    """Make many topics and groups, records of every kind, and records that lead to very much."""
    async with open_client(bootstrap) as client:
        admin = Admin(client)
        topics = [NewTopic(f"topic-{number}", 1, 1, {}) for number in range(TOPICS)]
        topics += [NewTopic("t", 3, 1, {}), NewTopic("wide", WIDE, 1, {}), NewTopic("bombs", 1, 1, LARGE)]
        for begin in range(0, len(topics), 200):
            await admin.create_topics(topics[begin : begin + 200])
        for number in range(GROUPS):
            await admin.commit_offsets(f"group-{number}", {("t", 0): 0})
        await admin.commit_offsets("g", {("t", 0): 0})
        await admin.commit_offsets("wide", {("wide", number): 0 for number in range(WIDE)})
    settings = ProducerSettings(
        linger_ms=0, compression="zstd", request_bytes_max=10**8, buffer_bytes=2 * 10**8, batch_bytes=1 << 20
    )
    async with open_producer(bootstrap, settings) as producer:
        for number in range(300):
            await producer.send("t", b'"%s"' % (b"x" * 2_000), headers=[("h", b"y" * 500)] * 20, partition=0)
            await producer.send("wide", b"%d" % number)
        for bomb in (
            b"[" + b"[]," * 15_000_000 + b"[]]",  # JSON of very many values
            b"\0\0\0\0\7" + varint(50_000_000) + b"\0",  # a few bytes that a schema reads as very many items
            b"a" * 1_000_000,
        ):
            await (await producer.send("bombs", bomb, key=b"k")).wait()


async def test_no_request_of_any_route_makes_a_long_step() -> None:
    wrong: list[str] = []
    worst: list[tuple[float, int, str]] = []
    schema = {"schema": '{"type": "array", "items": "null"}', "schemaType": "AVRO"}
    broker = start_thread(settings={"message.max.bytes": LARGE["max.message.bytes"]})
    try:
        await fill(broker.bootstrap)
        async with (
            standin({"/schemas/ids/7": schema}) as registry,
            rest(broker.bootstrap, RegistryAt(registry.url)) as server,
        ):
            netloc = urlsplit(server.url).netloc
            cluster_id = (await server.cluster()).rpartition("/")[2]
            for name in ("json", "avro"):
                body = {"name": name, "format": name, "auto.offset.reset": "earliest"}
                assert (await server.ask("POST", "/consumers/g", body)).status == 200
                places = {"partitions": [{"topic": "bombs" if name == "avro" else "t", "partition": 0}]}
                await server.ask("POST", f"/consumers/g/instances/{name}/assignments", places)
            with StepWatch(*NOT_WATCHED) as watch:
                for route in sorted(router().routes, key=lambda route: route.method == "DELETE"):
                    for asked in requests_of(route, cluster_id):
                        before = forget_peak()
                        watch.forget()
                        status = await trio.to_thread.run_sync(answer, netloc, asked)
                        asked_for = f"{route.method} {asked.target[:90]} {(asked.content or b'')[:60]!r}"
                        what = f"{asked_for}: {status} in {watch.where}"
                        growth, seconds = peak() - before, watch.worst
                        if (
                            seconds > STEP_SECONDS_MAX
                        ):  # a host that is busy itself slows the CPU: the lesser of two counts
                            watch.forget()
                            await trio.to_thread.run_sync(answer, netloc, asked)
                            seconds = min(seconds, watch.worst)
                        worst.append((seconds, growth, what))
                        if status not in ANSWERED:
                            wrong.append(what)
    finally:
        broker.close()
    assert len(worst) > 600
    assert not wrong, wrong
    assert not [entry for entry in worst if entry[0] > STEP_SECONDS_MAX]
    assert not [entry for entry in worst if entry[1] > GROWTH_BYTES_MAX]
