"""The client of registries, and records read by it, against a registry that answers what the test says."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from barnabas.registry.client import RegistryClient
from barnabas.registry.decoding import Decoded, Deserializer, RegistryError, SchemaError
from barnabas.registry.encoding import Serializer
from barnabas.registry.schemas import Schema
from tests.support.inline import Inline
from tests.support.registries import standin

USER = '{"type":"record","name":"User","fields":[{"name":"name","type":"string"}]}'
TEAM = '{"type":"record","name":"Team","fields":[{"name":"lead","type":"User"}]}'


sandbox: Any = Inline()


async def test_records_are_read_by_the_schemas_that_they_name() -> None:
    answers = {
        "/schemas/ids/1": {"schema": USER},
        "/schemas/ids/2": {
            "schema": TEAM,
            "references": [{"name": "User", "subject": "users", "version": 3}],
        },
        "/subjects/users/versions/3?deleted=true": {
            "subject": "users",
            "version": 3,
            "id": 1,
            "schema": USER,
        },
        "/schemas/ids/3": {"schemaType": "JSON", "schema": "{}"},
    }
    async with standin(answers) as registry:
        client = RegistryClient(registry.url)
        deserializer = Deserializer(client, sandbox)
        assert await deserializer.decode(b"\0\0\0\0\x01\x06ann") == Decoded({"name": "ann"}, "AVRO", 1)
        assert await deserializer.decode(b"\0\0\0\0\x02\x06ann") == Decoded(
            {"lead": {"name": "ann"}}, "AVRO", 2
        )
        assert await deserializer.decode(b'\0\0\0\0\x03{"a": 1}') == Decoded({"a": 1}, "JSON", 3)
        assert await deserializer.decode(b"plain") is None
        with pytest.raises(SchemaError, match="does not fit its schema"):
            await deserializer.decode(b"\0\0\0\0\x01\x06a")
        with pytest.raises(RegistryError, match="Schema not found") as error:
            await deserializer.decode(b"\0\0\0\0\x09")
        assert (error.value.status, error.value.code) == (404, 40403)
        assert len(registry.asked) == 5
        serializer = await Serializer.of_id(client, 1, sandbox)
        assert await serializer.encode('{"name": "ann"}') == b"\0\0\0\0\x01\x06ann"
        assert len(registry.asked) == 5


async def test_who_asks_for_the_same_schema_at_the_same_time_asks_once() -> None:
    async with standin({"/schemas/ids/1": {"schema": USER}}) as registry:
        registry.delay_s = 0.05
        client = RegistryClient(registry.url)
        schemas: list[Schema] = []

        async def ask() -> None:
            schemas.append(await client.schema(1))

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(ask)
        assert schemas == [Schema("AVRO", USER)] * 5
        assert registry.asked == ["GET /schemas/ids/1"]


async def test_who_waits_for_one_that_was_cancelled_asks_again() -> None:
    async with standin({"/schemas/ids/1": {"schema": USER}}) as registry:
        registry.delay_s = 0.1
        client = RegistryClient(registry.url)

        async def ask_in_vain() -> None:
            with trio.move_on_after(0.05):
                await client.schema(1)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask_in_vain)
            await trio.testing.wait_all_tasks_blocked()
            assert await client.schema(1) == Schema("AVRO", USER)
        assert registry.asked == ["GET /schemas/ids/1"] * 2


async def test_references_that_lead_in_a_circle_end() -> None:
    loop = {"schema": TEAM, "references": [{"name": "User", "subject": "s", "version": 1}]}
    answers = {
        "/schemas/ids/1": loop,
        "/subjects/s/versions/1?deleted=true": {"subject": "s", "version": 1, "id": 1, **loop},
    }
    async with standin(answers) as registry:
        with pytest.raises(SchemaError):
            await Deserializer(RegistryClient(registry.url), sandbox).decode(b"\0\0\0\0\x01x")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((500, {"error_code": 50001, "message": "broken"}), r"broken \(50001\)"),
        ((502, b"<html>"), "status 502"),
        ((200, b"<html>"), "not JSON"),
        ((200, {"nothing": 1}), "no schema"),
        ((200, {"schema": "{}", "references": [1]}), "a reference is an object"),
        ((0, b"nonsense\r\n\r\n"), "cannot be reached"),
        ((0, b""), "closed the connection without a response"),
    ],
)
async def test_an_answer_that_is_none_is_told(answer: Any, message: str) -> None:
    async with standin({"/schemas/ids/1": answer}) as registry:
        with pytest.raises(RegistryError, match=message):
            await RegistryClient(registry.url).schema(1)


@pytest.mark.parametrize(
    "url",
    [
        "", "localhost:8081", "ftp://x", "http://", "http://x?y", "http://u:secret@", "u:secret@localhost:8081",
        "http://u:secret/x@localhost", "http://u:secret#x@localhost", "http://u:secret?x@localhost", "http://u:x/secret@y:z",
        "http://u:secret@localhost:port", "http://u:se/cret@secret@localhost?", "http://[u:secret@x", "//u:secret@x/y",
        "http:u:secret@x", "http://u:secret@x:99999", "http://u:1/secret@localhost",
    ],
)  # fmt: skip
def test_what_is_no_address_is_told_without_its_password(url: str) -> None:
    with pytest.raises(ValueError, match="not the address of a registry") as error:
        RegistryClient(url)
    assert "secret" not in str(error.value)
    assert error.value.__cause__ is None


async def test_a_login_does_not_go_where_a_registry_points() -> None:
    async with standin({}) as other, standin({}) as registry:
        for status in (301, 302, 303, 307, 308):
            registry.answers["/subjects"] = (status, b"", f"Location: {other.url}/subjects")
            with pytest.raises(RegistryError, match=f"status {status}"):
                await RegistryClient(registry.url, user="ann", password="x").subjects()
        assert [b"Authorization: Basic" in head for head in registry.heads] == [True] * 5
        assert other.heads == []
