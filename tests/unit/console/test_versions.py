"""Two versions of a schema beside each other: lines that differ, and verdicts that are the registry's own."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest

from barnabas.console.versions import INDENTED_MAX, indented
from barnabas.registry.client import RegistryClient
from barnabas.registry.client_settings import RegistryAt
from barnabas.registry.compatibility import LEVELS
from barnabas.registry.schemas import Reference, Schema
from tests.support.console import Visitor, console_beside, console_of
from tests.support.registries import registry


class Beside(NamedTuple):
    """A visitor, and a client of the registry that they see."""

    visitor: Visitor
    client: RegistryClient

    async def add(self, subject: str, *schemas: Schema) -> None:
        """Register versions, whatever they break."""
        await self.client.ask("PUT", f"/config/{quote(subject, safe='')}", {"compatibility": "NONE"})
        for schema in schemas:
            await self.client.register(subject, schema)

    async def compare(self, subject: str, **query: Any) -> dict[str, Any]:
        comparison: dict[str, Any] = await self.visitor.get(
            f"/api/subjects/{quote(subject, safe='')}/compare", **query
        )
        return comparison


@asynccontextmanager
async def beside(directory: Path) -> AsyncIterator[Beside]:
    async with (
        console_beside(directory) as console,
        registry(console.bootstrap) as client,
        console_of(console, registry=RegistryAt(client.url)) as visitor,
    ):
        yield Beside(visitor, client)


def record(*fields: dict[str, Any], **more: Any) -> Schema:
    return Schema("AVRO", json.dumps({"type": "record", "name": "Order", "fields": fields, **more}))


ID = {"name": "id", "type": "long"}
NOTE = {"name": "note", "type": "string", "default": ""}
OWED = {"name": "owed", "type": "double"}


def changed(shown: dict[str, Any]) -> list[str]:
    signs = {"added": "+", "removed": "-"}
    return [
        signs[row["change"]] + row["text"] for row in shown["difference"]["rows"] if row["change"] in signs
    ]


async def test_lines_that_differ_are_those_of_the_normalised_schemas(tmp_path: Path) -> None:
    async with beside(tmp_path) as compared:
        first = record(ID)
        second = Schema(
            "AVRO",
            '{"fields": [ {"type":"long", "name":"id"}, {"default":"", "type":"string", "name":"note"} ],'
            ' "name": "Order", "type": "record", "doc": "with a <b>note</b>"}',
        )
        await compared.add("orders-value", first, second)
        delta = await compared.compare("orders-value")
        assert (delta["older"]["version"], delta["newer"]["version"]) == (1, 2)
        assert (delta["older"]["normalized"], delta["newer"]["type"], delta["problems"]) == (True, "AVRO", [])
        assert changed(delta) == [
            '+  "doc": "with a <b>note</b>",', "+    },", "+    {", '+      "name": "note",', '+      "type": "string",',
            '+      "default": ""',
        ]  # fmt: skip
        assert json.loads(delta["newer"]["text"])["fields"] == [ID, NOTE]


@pytest.mark.parametrize("level", LEVELS)
async def test_verdicts_are_those_of_the_registry(tmp_path: Path, level: str) -> None:
    subject = "orders/ü-value"
    async with beside(tmp_path) as compared:
        await compared.add(
            subject, record(ID), record(ID, OWED), record(ID, NOTE), record(ID, OWED, NOTE), record(OWED)
        )
        path = quote(subject, safe="")
        await compared.client.ask("PUT", f"/config/{path}", {"compatibility": level})
        for newer in range(2, 6):
            schema = (await compared.client.version(subject, newer)).schema.plain()
            for older in range(1, newer):
                difference = await compared.compare(subject, older=older, newer=newer)
                assert difference["compatibility"] == level
                assert [row["level"] for row in difference["levels"]] == list(LEVELS[1:])
                if level == "NONE":
                    continue
                (row,) = [row for row in difference["levels"] if row["level"] == level]
                against = [*range(older, newer)] if level.endswith("TRANSITIVE") else [older]
                assert row["against"] == against
                verdicts = [
                    await compared.client.ask(
                        "POST", f"/compatibility/subjects/{path}/versions/{number}?verbose=true", schema
                    )
                    for number in reversed(against)
                ]
                assert row["compatible"] == all(answer["is_compatible"] for answer in verdicts)
                first = next((answer for answer in verdicts if not answer["is_compatible"]), None)
                if first is None:
                    assert (row["broken"], row["messages"], row["messages_total"]) == (None, [], 0)
                else:
                    assert row["broken"] == against[len(against) - 1 - verdicts.index(first)]
                    assert row["messages"] == first["messages"][: len(row["messages"])]
                    assert len(row["messages"]) == row["messages_total"] > 0


async def test_protobuf_json_and_references_are_compared(tmp_path: Path) -> None:
    async with beside(tmp_path) as compared:
        await compared.add("user", record(ID))
        field = {"name": "order", "type": "Order"}
        refers = (Reference("Order", "user", 1),)
        team = [{"type": "record", "name": "Team", "fields": fields} for fields in ([field], [field, NOTE])]
        await compared.add("team", *(Schema("AVRO", json.dumps(two), refers) for two in team))
        delta = await compared.compare("team")
        assert delta["newer"]["references"] == [{"name": "Order", "subject": "user", "version": 1}]
        assert [row["compatible"] for row in delta["levels"]] == [True] * 6

        place = 'syntax = "proto3"; message Place {{ string name = 1; {} }}'
        await compared.add(
            "place",
            *(Schema("PROTOBUF", place.format(more)) for more in ("", "int32 n = 2;", "string n = 2;")),
        )
        delta = await compared.compare("place", older=1, newer=2)
        assert changed(delta) == ["+  int32 n = 2;"]
        delta = await compared.compare("place")
        assert (changed(delta), delta["older"]["version"]) == (["-  int32 n = 2;", "+  string n = 2;"], 2)
        assert {row["level"]: row["compatible"] for row in delta["levels"]}["FULL"] is False

        shape = [Schema("JSON", json.dumps({"type": "object", **more})) for more in ({}, {"required": ["a"]})]
        await compared.add("shape", *shape, Schema("AVRO", '"int"'))
        delta = await compared.compare("shape", older=1, newer=2)
        assert changed(delta) == ['+  "required": [', '+    "a"', "+  ],"]
        delta = await compared.compare("shape")
        assert delta["levels"][0]["messages"] == ["Incompatible because of different schema type"]


async def test_versions_that_cannot_be_compared_are_told(tmp_path: Path) -> None:
    async with beside(tmp_path) as compared:
        await compared.add("s", record(ID), record(ID, NOTE))
        for query, status in (
            ({"older": 2, "newer": 1}, 400),
            ({"older": 2, "newer": 2}, 400),
            ({"newer": 1}, 400),
            ({"older": 3}, 404),
            ({"newer": 3}, 404),
            ({"older": 0}, 400),
            ({"older": "x"}, 400),
        ):
            answer = await compared.visitor.ask("GET", "/api/subjects/s/compare", **query)
            assert answer.status == status, query
        assert (await compared.visitor.ask("GET", "/api/subjects/none/compare")).status == 404


def test_depth_does_not_multiply_the_size_of_a_schema() -> None:
    deep = "[" * 300 + ",".join(["1"] * 1000) + "]" * 300
    assert len(indented(deep)) < len(deep) + 1600 * (2 * INDENTED_MAX + 1)
