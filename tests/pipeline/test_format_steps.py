"""Avro arrays in step: how many items go the fast way, alone and among others; JSON as text; what a schema refers to."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from barnabas.registry.schemas import Reference, Schema
from barnabas_pipeline.field_types import Array, Field, Map, Record, Union
from barnabas_pipeline.formats import registry as registries
from barnabas_pipeline.formats.avro import AvroDecoder, fields_of_text
from barnabas_pipeline.formats.avro_columns import ColumnReader
from barnabas_pipeline.formats.avro_plan import Plan
from barnabas_pipeline.formats.avro_values import Reader
from barnabas_pipeline.formats.base import RefusedError
from barnabas_pipeline.formats.json import JsonDecoder
from barnabas_pipeline.formats.json_columns import can_read
from barnabas_pipeline.formats.registry import Registry
from barnabas_pipeline.formats.steps import FEW, FEW_ITEMS_MAX, ITEMS_MAX
from barnabas_pipeline.schema import NO_EVENT_TIME, EventSchema
from tests.pipeline.decoding import careful, columns, verdict, written

LONGS = {"type": "record", "name": "R", "fields": [{"name": "f", "type": {"type": "array", "items": "long"}}]}
BY_NAME = {
    "type": "record",
    "name": "R",
    "fields": [{"name": "f", "type": {"type": "map", "values": "long"}}],
}


def decoder_of(schema: Any) -> AvroDecoder:
    text = json.dumps(schema)
    return AvroDecoder(EventSchema("t", NO_EVENT_TIME, fields_of_text(text)[1]), text=text)


# --- items ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("records", "items", "is_fast"),
    [
        (1, FEW_ITEMS_MAX, True),
        (1, FEW_ITEMS_MAX + 1, False),
        (FEW - 1, FEW_ITEMS_MAX, True),
        (FEW - 1, FEW_ITEMS_MAX + 1, False),
        (FEW, FEW_ITEMS_MAX + 1, True),
        (FEW, ITEMS_MAX, True),
        (FEW, ITEMS_MAX + 1, False),
    ],
)
def test_many_records_with_many_items_take_the_fast_way(records: int, items: int, is_fast: bool) -> None:
    for schema, value in ((LONGS, list(range(items))), (BY_NAME, {str(n): n for n in range(items)})):
        decoder = decoder_of(schema)
        short: Any = [7] if schema is LONGS else {"7": 7}
        data: list[bytes | None] = [written(schema, {"f": value})] * records
        data.append(written(schema, {"f": short}))
        assert decoder._decode_fast(columns(data))[1].tolist() == ([] if is_fast else list(range(records)))
        sizes = [len(row["f"]) for row in verdict(decoder, data)]
        assert sizes == [items] * records + [1]


def test_damaged_record_leaves_others_the_fast_way() -> None:
    steps: list[int] = []

    class Counting(ColumnReader):
        def _long(self, plan: Plan, at: Any, rows: Any) -> tuple[Any, Any]:
            steps.append(len(rows))
            return super()._long(plan, at, rows)

    good = written(LONGS, {"f": [1, 2]})
    values = [good, b"\x10\2\2", good, b"\xfe\xff\xff\x0f\2", good]
    edges = np.cumsum([0, *map(len, values)])
    plan = Plan("array", Array(Field("element", "long")), children=[Plan("long", "long")])
    [column], bad = Counting(b"".join(values), edges[:-1], edges[1:], plan).read(plan)
    assert bad.tolist() == [False, True, False, True, False]
    assert [column[n].as_py() for n in (0, 2, 4)] == [[1, 2]] * 3
    assert len(steps) <= 8


def test_a_schema_that_is_no_record_is_the_field_value() -> None:
    assert fields_of_text('"long"')[1] == (Field("value", "long", True),)
    assert fields_of_text('["null", "long"]')[1] == (Field("value", "long"),)
    assert fields_of_text('{"type": "array", "items": "long"}')[1] == (
        Field("value", Array(Field("element", "long", True)), True),
    )


def test_a_nullable_value_has_two_branches_and_no_third() -> None:
    plan = Plan("optional", "long", 0, children=[Plan("long", "long")])
    assert [Reader(data).whole(plan) for data in (b"\0", b"\2\x0a")] == [None, 5]
    for data in (b"\4\x0a", b"\1\x0a"):
        with pytest.raises(RefusedError, match="is no number of an enum's symbols or a union's branches"):
            Reader(data).whole(plan)


# --- JSON -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("json", False),
        (Map(Field("v", "long")), False),
        (Union((Field("n", "long"),)), False),
        (Array(Field("e", "json")), False),
        (Array(Field("e", "long")), True),
        (Record((Field("a", "long"), Field("b", "json"))), False),
        (Record((Field("a", "long"),)), True),
        ("long", True),
    ],
)
def test_json_maps_and_unions_have_no_fast_way(kind: Any, expected: bool) -> None:
    assert can_read(Field("f", kind)) is expected


@pytest.mark.parametrize("text", ['"abc"', "5.00", "null", "[1,2]", '{"a":1}', "true"])
def test_json_value_keeps_its_quotes_and_digits(text: str) -> None:
    decoder = JsonDecoder(EventSchema("t", NO_EVENT_TIME, (Field("f", "json"),)))
    for each in (decoder, careful(decoder)):
        (row,) = verdict(each, [b'{"f":%b}' % text.encode()])
        assert row["f"] == (None if text == "null" else text)


@pytest.mark.parametrize("kind", ["float", "double", "bytes", "uuid", "date", "iso8601", "int", "time_ms"])
@pytest.mark.parametrize("shape", ["record", "array"])
def test_plain_values_within_others_go_the_fast_way_too(kind: str, shape: str) -> None:
    text = {
        "float": "0.5", "double": "0.25", "bytes": '"AAE="', "uuid": '"00000000-0000-0000-0000-00000000000a"',
        "date": '"2026-11-20"', "iso8601": '"2026-11-20T07:00:00Z"', "int": "5", "time_ms": "7",
    }[kind]  # fmt: skip
    inner = Field("x", kind)
    whole = Field("f", Record((inner,)) if shape == "record" else Array(inner))
    decoder = JsonDecoder(EventSchema("t", NO_EVENT_TIME, (whole,)))
    data: list[bytes | None] = [
        f'{{"f":{{"x":{text}}}}}'.encode() if shape == "record" else f'{{"f":[{text}]}}'.encode()
    ]
    assert decoder._decode_fast(columns(data))[1].tolist() == []
    assert verdict(decoder, data) == verdict(careful(decoder), data)


# --- what a schema refers to ------------------------------------------------------------------------------------------


class Client:
    """A registry with some subjects, each of which refers to others."""

    def __init__(self, **refers: tuple[str, ...]) -> None:
        self.refers = refers
        self.asked: list[tuple[str, int]] = []

    def schema_of(self, name: str) -> Schema:
        references = tuple(Reference(other, f"subject of {other}", len(other)) for other in self.refers[name])
        return Schema("PROTOBUF", f"text of {name}", references)

    async def version(self, subject: str, version: int) -> Any:
        self.asked.append((subject, version))
        name = subject.removeprefix("subject of ")
        assert version == len(name)

        class Found:
            schema = self.schema_of(name)

        return Found


def test_referenced_schemas_follow_their_dependencies(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(top=("a", "bb"), a=("ccc",), bb=("ccc", "dddd"), ccc=(), dddd=("ccc",))
    monkeypatch.setattr(registries, "_client", lambda _: client)
    references = Registry("http://r").references(client.schema_of("top"))
    assert list(references.items()) == [(name, f"text of {name}") for name in ("ccc", "a", "dddd", "bb")]
    assert client.asked == [(f"subject of {name}", len(name)) for name in ("a", "ccc", "bb", "dddd")]
    assert Registry("http://r").references(client.schema_of("ccc")) == {}
