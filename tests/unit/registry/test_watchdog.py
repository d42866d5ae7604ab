"""Every route of the registry among many subjects, and bodies that lead to very much: no long step, no much memory.

The rule: requests are made from the table of routes, so that a new route is asked too. Time is the CPU's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import trio

from barnabas.client import ProducerSettings, open_producer
from barnabas.registry.records import Version, schema_record
from barnabas.registry.routes import ROUTES, Route
from barnabas.registry.schemas import Schema
from barnabas.testing import start_thread
from tests.support import odd_schemas
from tests.support.effort import EFFORT
from tests.support.registries import registry
from tests.support.step_watch import GROWTH_BYTES_MAX, STEP_SECONDS_MAX, StepWatch, forget_peak, peak

SUBJECTS = 20_000 * min(EFFORT, 10)
SECONDS_MAX = 60.0
NOT_WATCHED = ("tests.", "<test ", "trio._highlevel")
"""Tasks of the test."""
ANSWERED = (200, 400, 401, 403, 404, 405, 409, 413, 415, 422, 503)
"""Statuses that a request may have: never 500, which would be a defect."""
SIMPLE = '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "string"}]}'
PATHS = {
    "subject": ("s", "subject-1", "none", "a" * 60_000, "%ed%a0%80"),
    "version": ("1", "latest", "9" * 30, "x"),
    "id": ("1", "7", "9" * 30, "x"),
}
QUERIES = (
    "", "deleted=true", "deletedOnly=true", "subjectPrefix=s", "limit=10", "offset=19990", "latestOnly=true",
    "normalize=true", "verbose=true", "permanent=true", "format=resolved", "format=serialized", "force=true",
    "defaultToGlobal=true", f"key={'x' * 5_000}",
)  # fmt: skip
KINDS = {"avro": "AVRO", "json": "JSON", "protobuf": "PROTOBUF"}


def bodies() -> Iterator[Any]:
    """The bodies that are sent: odd ones, and schemas that are small and lead to very much."""
    yield from (
        {},
        [],
        "x",
        {"schema": SIMPLE},
        {"schema": "[" * 100_000},
        {"compatibility": "FULL"},
        {"mode": "READONLY"},
    )
    yield {
        "schema": SIMPLE,
        "references": [{"name": f"n{n}", "subject": "s", "version": 1} for n in range(2_000)],
    }
    yield {f"{number:x}": 0 for number in range(100_000)}
    for name in dir(odd_schemas):
        prefix, _, shape = name.partition("_")
        if prefix in KINDS and shape:
            make: odd_schemas.Make = getattr(odd_schemas, name)
            yield {"schema": make("long", 200), "schemaType": KINDS[prefix]}


def paths_of(route: Route) -> Iterator[str]:
    """Paths of a route with each value of its parts, the others being the first."""
    names = [name for name in PATHS if f"{{{name}}}" in route.path]
    for changed in ({}, *({name: value} for name in names for value in PATHS[name][1:])):
        path = route.path
        for name in names:
            path = path.replace(f"{{{name}}}", changed.get(name, PATHS[name][0]))
        assert "{" not in path, f"PATHS lacks a part of {route.path}"
        yield path


def requests() -> Iterator[tuple[str, str, bytes | None]]:
    """Methods, targets and bodies of all requests, those that delete last."""
    encoded = [json.dumps(body).encode() for body in bodies()]
    for route in sorted(ROUTES, key=lambda route: (route.method == "DELETE", route.method == "PUT")):
        paths = list(paths_of(route))
        if route.method in ("POST", "PUT"):
            yield from ((route.method, path, b"{}") for path in paths[1:])
            yield from ((route.method, paths[0], body) for body in encoded)
        else:
            yield from ((route.method, path, None) for path in paths)
            yield from ((route.method, f"{paths[0]}?{query}", None) for query in QUERIES)


def answer(netloc: str, method: str, target: str, body: bytes | None) -> int:
    """Send a request, and return its status."""
    connection = HTTPConnection(netloc, timeout=SECONDS_MAX)
    try:
        connection.request(method, target, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        response.read()
        return response.status
    finally:
        connection.close()


async def fill(bootstrap: str) -> None:
    """Write the records of many subjects, as a registry would have."""
    async with open_producer(bootstrap, ProducerSettings(linger_ms=5)) as producer:
        subjects = ["s", *(f"subject-{number}" for number in range(SUBJECTS))]
        for number, subject in enumerate(subjects, 1):
            text = SIMPLE.replace('"R"', f'"R{number}"') if number > 1 else SIMPLE
            key, value = schema_record(Version(subject, 1, number, Schema("AVRO", text)))
            delivery = await producer.send("_schemas", value, key=key)
        await delivery.wait()


async def test_no_request_of_any_route_makes_a_long_step() -> None:
    wrong: list[str] = []
    worst: list[tuple[float, int, str]] = []
    seeds = {"topics": {"_schemas": {"partitions": 1, "settings": {"cleanup.policy": "compact"}}}}
    broker = start_thread(seeds=seeds)
    try:
        await fill(broker.bootstrap)
        async with registry(broker.bootstrap) as client:
            netloc = urlsplit(client.url).netloc
            with StepWatch(*NOT_WATCHED) as watch:
                for method, target, body in requests():
                    before = forget_peak()
                    watch.forget()
                    status = await trio.to_thread.run_sync(answer, netloc, method, target, body)
                    what = f"{method} {target[:60]} {(body or b'')[:60]!r}: {status} in {watch.where}"
                    worst.append((watch.worst, peak() - before, what))
                    if status not in ANSWERED:
                        wrong.append(what)
    finally:
        broker.close()
    assert len(worst) > 400
    assert not wrong, wrong
    assert not [entry for entry in worst if entry[0] > STEP_SECONDS_MAX]
    assert not [entry for entry in worst if entry[1] > GROWTH_BYTES_MAX]
