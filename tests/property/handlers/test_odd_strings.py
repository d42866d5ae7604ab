"""Strings that are null where they may be, and as long as they may be: each request is answered, and never fails here.

Each field by itself and all together, to a broker with an authorizer that refuses everything, and to one that allows it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.serving.release import KAFKA_4
from barnabas.testing.simulation.world import SimulatedThreads
from barnabas.wire.headers import decode_response
from codegen.model import Field, Message, Struct
from compat.hostile.messages import STRING_BYTES_MAX, filled, frame
from compat.kit.wire import Values, message
from tests.property.handlers.test_extreme_numbers import SETTINGS, Received, populate
from tests.support.broker import broker_to_ask
from tests.support.effort import drawing
from tests.support.plain_requests import DenyNamed
from tests.support.request_parts import answered, new_connection, request_parts_of

PATIENCE_SECONDS = 5
"""Virtual ones: some requests wait for what does not come, as they should."""
LONG = "a" * STRING_BYTES_MAX
WIDE = "\u20ac" * (STRING_BYTES_MAX // 3)
"""As many bytes in a third of the characters."""
Path = tuple[str, ...]


class DenyAll(DenyNamed):
    """Refuses everything."""

    def allows(self, *asked: Any) -> bool:
        super().allows(*asked)
        return False

    def allows_on_any(self, *_: Any) -> bool:
        return False


def places(api: str, version: int) -> Iterator[tuple[Path, Field]]:
    """Yield each field of a request, with its path."""
    request = message(f"{api}Request")

    def walk(shape: Message | Struct, path: Path) -> Iterator[tuple[Path, Field]]:
        for field in shape.fields:
            if version in field.versions:
                yield (*path, field.name), field
                if field.type.is_struct:
                    yield from walk(request.structs[field.type.name], (*path, field.name))

    yield from walk(request, ())


def with_value(values: Values, path: Path, value: Any) -> Values:
    """Return these values with another one at a path, in each entry of the arrays on the way."""
    name, *rest = path
    inner = values[name]
    if rest and inner is not None:
        value = (
            [with_value(entry, tuple(rest), value) for entry in inner]
            if isinstance(inner, list)
            else with_value(inner, tuple(rest), value)
        )
    return {**values, name: value}


def odd_requests(api: str, version: int) -> Iterator[tuple[str, Values]]:
    """Yield requests with what is odd in them."""
    plain = filled(api, version)
    strings = []
    for path, field in places(api, version):
        if version in field.nullable:
            yield f"{path} null", with_value(plain, path, None)
        if field.type.name == "string":
            strings.append((path, field))
    for text in (LONG, WIDE):
        whole = plain
        for path, field in strings:
            value = [text] if field.type.array else text
            yield f"{path} long", with_value(plain, path, value)
            whole = with_value(whole, path, value)
        yield "all strings long", whole


async def check_strings(api, settings, authorizer, tmp_path, caplog):
    async with broker_to_ask(tmp_path, settings, threads=SimulatedThreads(drawing())) as ask:
        pipeline = request_parts_of(ask.services, ask.broker.memory, authorizer=authorizer)
        await trio.testing.wait_all_tasks_blocked()
        await populate(ask)
        for version in range(api.min_version, api.max_version + 1):
            for label, values in odd_requests(api.name, version):
                peer = Received()
                with trio.move_on_after(PATIENCE_SECONDS):
                    sent = frame(api.name, version, values)[4:]
                    await answered(pipeline, new_connection(), peer, memoryview(bytearray(sent)))
                failures = [r for r in caplog.records if r.exc_info or r.levelno >= logging.ERROR]
                assert not failures, f"{api.name} v{version}, {label}: {failures[0].getMessage()}"
                for data in peer.frames:
                    decode_response(data[4:], api.key, version)


@pytest.mark.parametrize("authorizer", [DenyAll(), DenyNamed()], ids=["refused", "allowed"])
@pytest.mark.parametrize("key", [key for key, api in KAFKA_4.apis.items() if not api.member_only])
async def test_no_string_makes_a_request_fail_here(key, authorizer, tmp_path, caplog, autojump_clock):
    await check_strings(KAFKA_4.apis[key], SETTINGS, authorizer, tmp_path, caplog)
