"""A registry with schemas worked on in child processes: limits, which requests wait, and which clients have gone."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio

from barnabas.network.visitors import Visitor
from barnabas.registry import references
from barnabas.registry.decoding import DecodedText, Deserializer
from barnabas.registry.errors import RegistryError, SchemaError
from barnabas.registry.http import RegistryService
from barnabas.registry.parsing import Parsing
from barnabas.registry.registering import Registering, SchemaRequest
from barnabas.registry.schemas import Reference, Schema
from barnabas.sandbox.pool import Sandbox
from tests.support import odd_schemas
from tests.support.inline import Inline
from tests.support.registries import Standin, Written, standin
from tests.unit.registry.test_http import request
from tests.unit.registry.test_requests import Asked

SLOW = odd_schemas.protobuf_union("string", 20_000)
"""A text that takes minutes to be read."""
SLOW_REQUEST = {"schemaType": "PROTOBUF", "schema": SLOW}
QUICK = {"schema": '"string"'}


def asked(sandbox: Any) -> Asked:
    return Asked(sandbox=sandbox)


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox(seconds_max=2.0) as sandbox:
        yield sandbox


async def test_schema_that_takes_too_long_is_refused(sandbox: Sandbox) -> None:
    registry = asked(sandbox)
    with pytest.raises(RegistryError, match="of type PROTOBUF, details: it takes more than 2 s") as refused:
        await registry("POST", "/subjects/s/versions", SLOW_REQUEST)
    assert (refused.value.status, refused.value.code) == (422, 42201)
    assert (await registry("POST", "/subjects/s/versions", QUICK))["id"] == 1


async def test_schema_that_takes_much_memory_is_refused() -> None:
    lists = ",".join(["[" * 400 + "]" * 400] * 1_200)
    body = {"schemaType": "JSON", "schema": f'{{"default":[{lists}]}}'}
    async with Sandbox(memory_bytes=48 << 20, seconds_max=30) as sandbox:
        registry = asked(sandbox)
        with pytest.raises(RegistryError, match="details: it needs more than 48 MiB of memory") as refused:
            await registry("POST", "/subjects/s/versions", body)
        assert (refused.value.status, refused.value.code) == (422, 42201)


def nested(format_name: str, depth: int) -> str:
    """Return a schema of arrays, or messages, within each other."""
    if format_name == "AVRO":
        return '{"type":"array","items":' * depth + '"int"' + "}" * depth
    if format_name == "JSON":
        return '{"items":' * depth + "{}" + "}" * depth
    return 'syntax = "proto3"; ' + "".join(f"message M{n} {{ " for n in range(depth)) + "}" * depth


@pytest.mark.parametrize("depth", [30, 90, 200, 450, 900, 960, 990, 5_000])
@pytest.mark.parametrize("format_name", ["AVRO", "JSON", "PROTOBUF"])
async def test_depth_is_worked_on_or_refused(format_name: str, depth: int) -> None:
    """A schema that is taken can be compared, printed and looked up afterwards."""
    body = {"schemaType": format_name, "schema": nested(format_name, depth)}
    async with Sandbox(seconds_max=20) as sandbox:
        registry = asked(sandbox)
        try:
            await registry("POST", "/subjects/s/versions", body)
        except RegistryError:
            assert depth >= 90
            assert await registry.refused("POST", "/subjects/s/versions", body) == (422, 42201)
            return
        for path in ("resolved", "serialized"):
            assert (await registry("GET", f"/subjects/s/versions/1?format={path}"))["version"] == 1
        assert (await registry("POST", "/compatibility/subjects/s/versions/1", body))["is_compatible"]
        assert (await registry("POST", "/subjects/s?normalize=true", body))["version"] == 1


async def test_others_register_while_a_schema_is_worked_on(sandbox: Sandbox) -> None:
    registry = asked(sandbox)
    async with trio.open_nursery() as nursery:

        async def register_slowly() -> None:
            with pytest.raises(RegistryError):
                await registry("POST", "/subjects/slow/versions", SLOW_REQUEST)

        nursery.start_soon(register_slowly)
        await trio.sleep(0.5)
        with trio.fail_after(1.4):  # before the slow one is over; a second child starts meanwhile
            assert (await registry("POST", "/subjects/s/versions", QUICK))["id"] == 1


async def test_work_ends_when_the_client_goes() -> None:
    """Its place is free for others, long before the work would be over."""
    async with Sandbox(processes_max=1, seconds_max=60) as sandbox, trio.open_nursery() as nursery:
        registry = asked(sandbox)
        service = RegistryService(registry.registry, None, set(), is_local=True)

        async def serve(stream: trio.SocketStream) -> None:
            await service.serve(Visitor(stream))

        listeners = await nursery.start(trio.serve_tcp, serve, 0)
        port = listeners[0].socket.getsockname()[1]
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        body = json.dumps(SLOW_REQUEST).encode()
        await stream.send_all(request("POST", "/subjects/slow/versions", body))
        await trio.sleep(0.3)
        assert registry.written.records == []
        await stream.aclose()
        with trio.fail_after(5):
            while sandbox._running:
                await trio.sleep(0.05)
        nursery.cancel_scope.cancel()


async def test_schemas_registered_at_once_become_versions() -> None:
    store: Any = Written()
    registering = Registering(store, Parsing(Inline()))  # type: ignore[arg-type]
    ids: list[int] = []

    async def register(number: int) -> None:
        fields = [{"name": f"f{number}", "type": "int", "default": 0}]
        text = json.dumps({"type": "record", "name": "R", "fields": fields})
        ids.append((await registering.register("s", SchemaRequest(Schema("AVRO", text)))).id)

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(register, number)
    assert sorted(ids) == list(range(1, 21))
    assert [version.number for version in store.state.versions("s")] == list(range(1, 21))


async def test_change_of_the_level_meanwhile_is_obeyed() -> None:
    """A change that was prepared under the old level is prepared anew."""
    store: Any = Written()
    registry = Asked(sandbox=Inline(), written=store)
    await registry("PUT", "/config/s", {"compatibility": "NONE"})
    await registry("POST", "/subjects/s/versions", QUICK)
    prepared = trio.Event()

    class Pausing(Inline):
        async def call(self, function: Any, *arguments: Any, owner: Any = None) -> Any:
            result = await super().call(function, *arguments, owner=owner)
            if not prepared.is_set():
                prepared.set()
                await trio.sleep(0.05)
            return result

    registering = Registering(store, Parsing(Pausing()))  # type: ignore[arg-type]
    async with trio.open_nursery() as nursery:

        async def register() -> None:
            with pytest.raises(RegistryError, match="incompatible"):
                await registering.register("s", SchemaRequest(Schema("AVRO", '"int"')))

        nursery.start_soon(register)
        await prepared.wait()
        await registry("PUT", "/config/s", {"compatibility": "FULL"})


def referring(*names: str) -> dict[str, Any]:
    plain = [Reference(name, name, 1).plain() for name in names]
    fields = [{"name": name, "type": name} for name in names]
    return {"references": plain, "fields": fields}


async def register_chain(registry: Asked, length: int) -> None:
    for number in range(length):
        more = referring(f"R{number - 1}") if number else {"references": [], "fields": []}
        schema = {"type": "record", "name": f"R{number}", "fields": more["fields"]}
        body = {"schema": json.dumps(schema), "references": more["references"]}
        await registry("POST", f"/subjects/R{number}/versions", body)


async def test_chain_of_references_has_a_bound() -> None:
    registry = Asked(sandbox=Inline())
    with pytest.raises(RegistryError, match="in a chain of more than 100") as refused:
        await register_chain(registry, 300)
    assert (refused.value.status, refused.value.code) == (422, 42201)
    last = max(int(subject[1:]) for subject in await registry("GET", "/subjects"))
    assert last == references.REFERENCES_DEPTH_MAX
    for path in ("", "?format=resolved"):
        assert (await registry("GET", f"/subjects/R{last}/versions/1{path}"))["version"] == 1
    body = {"schema": f'{{"type":"record","name":"R{last}","fields":[]}}'}
    assert (await registry("POST", f"/compatibility/subjects/R{last}/versions/1", body))["is_compatible"]


@pytest.mark.parametrize(
    ("name", "bound", "reason"),
    [
        ("REFERENCES_MAX", 3, "refers to more than 3 schemas"),
        ("REFERENCES_CHARS_MAX", 100, "has more than 100 characters"),
    ],
)
async def test_references_have_bounds(
    name: str, bound: int, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(references, name, bound)
    with pytest.raises(RegistryError, match=reason):
        await register_chain(Asked(sandbox=Inline()), 10)


FRAME = b"\0\0\0\0"
SCHEMAS = {
    "/schemas/ids/1": {"schema": '"string"'},
    "/schemas/ids/2": {"schema": '{"type":"array","items":"null"}'},
    "/schemas/ids/3": {"schemaType": "JSON", "schema": "{}"},
    "/schemas/ids/4": {"schema": "{"},
    "/schemas/ids/5": {
        "schemaType": "PROTOBUF",
        "schema": 'syntax = "proto3"; message M { repeated E e = 1; } message E { '
        + " ".join(f"int32 f{n} = {n};" for n in range(1, 1_001))
        + " }",
    },
}


def deserializer(registry: Standin, sandbox: Any) -> Deserializer:
    from barnabas.registry.client import RegistryClient

    return Deserializer(RegistryClient(registry.url), sandbox)


async def test_payloads_are_decoded_beside_those_that_cannot(sandbox: Sandbox) -> None:
    payloads = [
        FRAME + b"\1\x06ann", b"plain", FRAME + b"\1\x06a", FRAME + b"\x09x", FRAME + b"\1\x28" + b"x" * 20,
        FRAME + b"\3[1, 2]", FRAME + b"\4", FRAME + b"\3" + b"[" * 50_000,
    ]  # fmt: skip
    async with standin(SCHEMAS) as registry:
        results = await deserializer(registry, sandbox).decode_many(payloads, chars_max=10)
    assert results[0] == DecodedText('"ann"', is_cut=False, format="AVRO", schema_id=1)
    assert results[1] is None
    assert isinstance(results[2], SchemaError)
    assert isinstance(results[3], RegistryError)
    assert results[4] == DecodedText('"xxxxxxxxx', is_cut=True, format="AVRO", schema_id=1)
    assert results[5] == DecodedText("[1, 2]", is_cut=False, format="JSON", schema_id=3)
    assert "it is not JSON" in str(results[6])
    assert "the data is not JSON" in str(results[7])


async def test_few_bytes_of_very_many_values_are_refused(sandbox: Sandbox) -> None:
    """Items that take no bytes, fields of messages that are not set."""
    hundred_million = b"\x80\x84\xaf\x5f"
    payloads = [
        FRAME + b"\2" + hundred_million + b"\0",
        FRAME + b"\2\6\0",
        FRAME + b"\5\0" + b"\x0a\0" * 2_000,
    ]
    async with standin(SCHEMAS) as registry:
        with trio.fail_after(20):
            many, few, unset = await deserializer(registry, sandbox).decode_many(payloads, chars_max=100)
    assert str(many) == "the data has more than 10,050 values that take no bytes"
    assert few == DecodedText("[null, null, null]", is_cut=False, format="AVRO", schema_id=2)
    assert str(unset) == "the data has more than 1,000,000 values, most of which are not set"


async def test_payload_that_reaches_a_limit_leaves_its_batch() -> None:
    """The others are decoded, whatever one of them costs."""
    wide = FRAME + b"\3[" + b",".join([b"[" * 400 + b"]" * 400] * 3_000) + b"]"
    payloads = [FRAME + b'\3"a"', wide, FRAME + b'\3"b"']
    async with standin(SCHEMAS) as registry, Sandbox(memory_bytes=48 << 20, seconds_max=30) as sandbox:
        first, costly, last = await deserializer(registry, sandbox).decode_many(payloads, chars_max=10)
    assert first == DecodedText('"a"', is_cut=False, format="JSON", schema_id=3)
    assert last == DecodedText('"b"', is_cut=False, format="JSON", schema_id=3)
    assert str(costly) == "the data cannot be decoded: it needs more than 48 MiB of memory"
