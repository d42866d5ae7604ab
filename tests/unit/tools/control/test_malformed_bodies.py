"""Malformed requests of the control API, generated from its OpenAPI document: refused with a text, none a defect."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from barnabas.config.loading import BrokerConfig
from barnabas.tools.control.clock import VirtualClock
from barnabas.tools.control.host import Host
from barnabas.tools.control.openapi import document
from barnabas.tools.control.recorder import Recorder
from barnabas.tools.control.routes import dispatch
from barnabas.tools.control.state import INITIAL, state_of

WRONG: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 10**40, -(10**40), 0.5, 1e308, float("nan"), float("inf"), "", "x", "\x00",
    "\ud800", "\udc80", "0", "-1", [], [None], [[]], ["x"], [1, "a", {}], {}, {"x": None}, {"": {}},
    {"x": {"y": {"z": []}}},
)  # fmt: skip
"""Values of a wrong kind for any part of a body."""
NAMES = ("x", "", "\x00", "..", "a/b", "a" * 300, "é", "\ud800", "\udc80")
ENDS = ("/v1/broker/stop", "/v1/broker/restart", "/v1/fork", "/v1/reset")
"""Requests that stop the broker or start others if they are sound: asked with unsound bodies alone."""
SECONDS_MAX = 5.0


def samples(schema: dict[str, Any], depth: int = 0) -> Iterator[Any]:
    """Values that a schema allows, roughly: what is wrong is put into them."""
    for entry in schema.get("oneOf", ()):
        yield from samples(entry, depth)
    if "enum" in schema:
        yield schema["enum"][0]
    kinds = schema.get("type", "")
    for kind in [kinds] if isinstance(kinds, str) else kinds:
        if kind == "object":
            parts = schema.get("properties", {})
            yield {name: next(samples(part, depth + 1), None) for name, part in parts.items()}
        elif kind == "array":
            yield list(samples(schema.get("items", {}), depth + 1))[:1]
        elif kind:
            yield {"string": "x", "integer": 1, "number": 1, "boolean": True}.get(kind)


def spoilt(schema: dict[str, Any]) -> Iterator[Any]:
    """Bodies in which one part is wrong, at any depth; and such as have no part, or an unknown one."""
    yield from WRONG
    if schema.get("type") == "object" or "properties" in schema:
        yield {"unknown": 1}
        for name, part in schema.get("properties", {}).items():
            for wrong in spoilt(part):
                yield {name: wrong}
                yield {**next(samples(schema), {}), name: wrong}
    for entry in schema.get("oneOf", ()):
        yield from spoilt(entry)
    if "items" in schema:
        for wrong in spoilt(schema["items"]):
            yield [wrong]


SEEDS = {"type": "object", "properties": {
    "topics": {"type": "object", "properties": {"x": {"type": "object", "properties": {
        "partitions": {"type": "integer"}, "config": {"type": "object", "properties": {"x": {}}},
        "records": {"type": "array", "items": {"type": "object", "properties": {
            "key": {}, "value": {}, "partition": {"type": "integer"}, "timestamp": {}, "headers": {}, "count": {}}}}}}}},
    "groups": {"type": "object", "properties": {"x": {"type": "object", "properties": {"x": {}}}}},
    "acls": {"type": "array", "items": {"type": "object", "properties": {"principal": {}, "resource": {}}}},
    "users": {"type": "object", "properties": {"x": {}}}, "quotas": {"type": "array", "items": {}},
}}  # fmt: skip
"""The parts of seeds, which the document leaves open."""


Asked = tuple[str, str, dict[str, str], Any]
"""Method, path, query and body of a request."""
TEXTS = ("", "x", "-1", "1e9", "99999999999999999999", "\x00", "\ud800", "true", "0")
"""Values of parameters of a query."""


def requests(path: str) -> Iterator[Asked]:
    """Everything that may be wrong with the path, the query and the body of a route."""
    sound = re.sub(r"\{\w+\}", "x", path)
    for method, operation in document()["paths"][path].items():
        if path not in ENDS:
            for name in NAMES if "{" in path else ():
                yield method, re.sub(r"\{\w+\}", lambda _, name=name: name, path), {}, {}
            yield method, sound, {}, None
            parameters = [entry for entry in operation.get("parameters", ()) if entry["in"] == "query"]
            soon = {"timeout_ms": "0"} if any(entry["name"] == "timeout_ms" for entry in parameters) else {}
            for parameter in parameters:
                for text in TEXTS:
                    yield method, sound, soon | {parameter["name"]: text}, None
        content = operation.get("requestBody", {}).get("content", {}).get("application/json")
        if content is not None:
            schema = SEEDS if path == "/v1/seeds" else content["schema"]
            for body in spoilt(schema):
                if path not in ENDS or body not in (None, {}):
                    yield method, sound, {}, body


@pytest.mark.parametrize("path", sorted(set(document()["paths"]) - {"/v1/broker/stop", "/v1/reset"}))
def test_no_malformed_request_is_a_defect(
    path: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    failed: list[Any] = []
    asked = list(requests(path))
    clock = VirtualClock()

    async def ask_all() -> None:
        config = BrokerConfig({"log.dirs": str(tmp_path / "data"), "listeners": "PLAINTEXT://127.0.0.1:0"})
        host = Host(config, recorder=Recorder(), clock=clock)
        async with trio.open_nursery() as nursery:
            await nursery.start(host.run)
            await state_of(host).snapshot(INITIAL, replace=True)
            for method, target, query, body in asked:
                status, value = await dispatch(host, method.upper(), target, query, body)
                host.faulting.faults.clear()
                is_text = status < 400 or (isinstance(value, dict) and len(value["error"]) > 3)
                if not 200 <= status < 500 or not is_text or host.broker is None:
                    failed.append((method, target, query, body, status, value))
                json.dumps(value)
            host.stop()

    with caplog.at_level(logging.ERROR):
        trio.run(ask_all, clock=clock)
    assert not failed, f"{len(failed)} of {len(asked)}, as {failed[:5]}"
    assert not [record for record in caplog.records if record.exc_info]
    assert asked
