"""JSON decoded to fields of all types, exactly or not at all; the fast way and the careful way agree."""

from __future__ import annotations

import json
from base64 import b64encode
from decimal import Decimal as Number
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas_pipeline.field_types import Array, Decimal, Enum, Field, Map, Record, Union
from barnabas_pipeline.formats.base import EXTRA
from barnabas_pipeline.formats.json import JsonDecoder
from barnabas_pipeline.schema import NO_EVENT_TIME, EventSchema
from tests.pipeline.decoding import careful, columns, same, verdict

TEXT = st.text(st.characters(codec="utf-8"), max_size=4)
PLAIN = [
    "boolean",
    "int",
    "long",
    "unsigned_long",
    "float",
    "double",
    "string",
    "bytes",
    "uuid",
    "json",
    "date",
    "time_ms",
    "time_us",
    "iso8601",
    "timestamp_s",
    "timestamp_ms",
    "timestamp_us",
    "timestamp_ns",
    "local_timestamp_ms",
]


@st.composite
def types(draw: Any, depth: int = 2) -> Any:
    kind = draw(
        st.sampled_from([*PLAIN, "decimal", "enum", *(["array", "map", "record", "union"] if depth else [])])
    )
    element = (
        Field("element", draw(types(depth - 1)), draw(st.booleans())) if kind in ("array", "map") else None
    )
    match kind:
        case "decimal":
            precision = draw(st.integers(1, 38))
            return Decimal(precision, draw(st.integers(0, precision)), draw(st.booleans()))
        case "enum":
            return Enum(("A", "B"))
        case "array":
            return Array(element)  # type: ignore[arg-type]
        case "map":
            key = draw(st.sampled_from(["string", "int"]))
            return Map(Field("value", element.type, element.required), key)  # type: ignore[union-attr]
        case "record":
            return Record(draw(fields(depth - 1)))
        case "union":
            return Union((Field("long", "long"), Field("string", "string")))
    return kind


@st.composite
def fields(draw: Any, depth: int = 2) -> tuple[Field, ...]:
    kinds = draw(st.lists(types(depth), min_size=1, max_size=3))
    return tuple(Field(f"f{n}", kind, draw(st.booleans())) for n, kind in enumerate(kinds))


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | TEXT | st.integers(-3, 3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["f0", "f1", "k"]), inner, max_size=3)
    ),
    max_leaves=4,
)
LIKELY = {
    "boolean": st.booleans(),
    "int": st.integers(-(2**31) - 1, 2**31),
    "long": st.integers(-(2**63) - 1, 2**63),
    "unsigned_long": st.integers(-1, 2**64),
    "float": st.floats(),
    "double": st.floats(),
    "string": TEXT,
    "bytes": st.sampled_from(["", "eA==", "eHh4", "x", "eA"]),
    "json": JSON_VALUES,
    "uuid": st.uuids().map(str) | st.uuids().map(lambda uuid: str(uuid).upper()),
    "date": st.dates().map(str) | st.sampled_from(["0000-01-01", "2023-02-29", "9999-12-31"]),
    "time_ms": st.integers(-1, 86_400_000),
    "time_us": st.integers(-1, 86_400_000_000),
    "iso8601": st.sampled_from(
        [
            "2023-11-14T22:13:20Z",
            "2023-11-14 22:13+02:00",
            "2023-11-14T22:13:20.123456-0530",
            "2023-11-14T22:13:20.1234567Z",
            "2023-11-14T22:13:20",
            "0001-01-01T00:00:00+23:00",
            "9999-12-31T23:59:59.999999-01",
            "2023-11-14T24:00:00Z",
            "2023-13-01T00:00Z",
            "2023-11-14T22:13:20.120000000Z",
            "2023-11-14T22:13:60Z",
        ]
    ),
}


def likely(kind: Any) -> st.SearchStrategy[Any]:
    match kind:
        case Decimal(is_bytes=True):
            return st.integers(-1000, 1000).map(lambda n: b64encode(n.to_bytes(2, signed=True)).decode())
        case Decimal():
            return (
                st.decimals(-1000, 1000, places=kind.scale).map(str)
                | st.integers(-100, 100)
                | st.floats(-9, 9)
            )
        case Enum():
            return st.sampled_from("ABC")
        case Array():
            return st.lists(maybe(kind.element), max_size=3)
        case Map():
            return st.dictionaries(TEXT, maybe(kind.value), max_size=3)
        case Record():
            return objects(kind.fields)
        case Union():
            return st.integers(-3, 3) | TEXT
    return LIKELY.get(kind, st.integers(-(2**63), 2**63))


def maybe(field: Field) -> st.SearchStrategy[Any]:
    return st.one_of(likely(field.type), likely(field.type), likely(field.type), st.none(), JSON_VALUES)


def objects(held: tuple[Field, ...]) -> st.SearchStrategy[dict[str, Any]]:
    usual = {field.name: likely(field.type) for field in held}
    odd = {field.name: maybe(field) for field in held} | {"other": JSON_VALUES}
    return st.fixed_dictionaries(usual) | st.fixed_dictionaries({}, optional=odd)


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_json_verdicts_agree_in_any_block_and_both_ways(data: Any) -> None:
    schema = EventSchema("t", NO_EVENT_TIME, data.draw(fields()))
    assert EventSchema.from_dict(json.loads(json.dumps(schema.to_dict(), sort_keys=True))) == schema
    decoder = JsonDecoder(schema)
    events = data.draw(st.lists(objects(schema.fields), min_size=1, max_size=5))
    values: list[bytes | None] = [json.dumps(event).encode() for event in events]
    alone = [row for value in values for row in verdict(careful(decoder), [value])]
    assert same(verdict(careful(decoder), values), alone)
    assert same(verdict(decoder, values), alone)


def test_values_of_all_types_are_what_was_written() -> None:
    uuid = "00000000-AAAA-0000-0000-000000000000"
    text = (
        '{"a":true,"b":-2147483648,"c":18446744073709551615,"d":0.1,"e":1e3,"f":"ä","g":"AP8=","h":"'
        + uuid
        + '","i":"2024-02-29",'
        '"j":3600000,"k":"2023-11-14T22:13:20.5+01:00","l":1700000000,"m":1700000000000000001,"n":"1.50","o":2.5,"p":"A",'
        '"q":[1,null],"r":{"x":{"y":1}},"s":{"t":{"u":"v"}},"w":7,"x":{"z": [1.10, 2]}}'
    )
    kinds: dict[str, Any] = {
        "a": "boolean",
        "b": "int",
        "c": "unsigned_long",
        "d": "float",
        "e": "double",
        "f": "string",
        "g": "bytes",
        "h": "uuid",
        "i": "date",
        "j": "time_ms",
        "k": "iso8601",
        "l": "timestamp_s",
        "m": "timestamp_ns",
        "n": Decimal(9, 2),
        "o": Decimal(38, 10),
        "p": Enum(("A", "B")),
        "q": Array(Field("element", "long")),
        "r": Map(Field("value", Record((Field("y", "int"),)))),
        "s": Record((Field("t", Record((Field("u", "string"), Field("d", "long", default=5)))),)),
        "w": Union((Field("string", "string"), Field("long", "long"))),
        "x": "json",
    }
    schema = EventSchema("t", NO_EVENT_TIME, tuple(Field(name, kind, True) for name, kind in kinds.items()))
    (row,) = verdict(JsonDecoder(schema), [text.encode()])
    assert row == {
        "a": True,
        "b": -(2**31),
        "c": Number(2**64 - 1),
        "d": 0.10000000149011612,
        "e": 1000.0,
        "f": "ä",
        "g": b"\x00\xff",
        "h": "00000000-aaaa-0000-0000-000000000000",
        "i": 19782,
        "j": 3_600_000_000,
        "k": 1_699_996_400_500_000,
        "l": 1_700_000_000_000_000,
        "m": 1_700_000_000_000_000_001,
        "n": Number("1.50"),
        "o": Number("2.5"),
        "p": "A",
        "q": [1, None],
        "r": [("x", {"y": 1})],
        "s": {"t": {"u": "v", "d": 5}},
        "w": {"string": None, "long": 7},
        "x": '{"z":[1.10,2]}',
        EXTRA: None,
    }


def test_nested_records_take_the_fast_way_with_unknown_fields() -> None:
    schema = EventSchema(
        "t",
        NO_EVENT_TIME,
        (
            Field(
                "a", Record((Field("b", Array(Field("element", Record((Field("c", "iso8601"),))))),)), True
            ),
            Field("n", Decimal(9, 2)),
        ),
    )
    good = b'{"a":{"b":[{"c":"2023-11-14T22:13:20Z"},null]},"n":1.25}'
    assert JsonDecoder(schema)._decode_block(columns([good, good])) is not None
    (row,) = verdict(JsonDecoder(schema), [b'{"a":{"b":[], "more" : 1}}'])
    assert (row["a"], row[EXTRA]) == ({"b": []}, '{"a":{"b":[], "more" : 1}}')


@pytest.mark.parametrize(
    ("precision", "scale", "text", "outcome"),
    [
        (1, 1, "1", "range"), (1, 1, "0.9", "0.9"), (1, 1, "-1", "range"), (1, 1, "0", "0.0"), (2, 1, "10", "range"),
        (2, 1, "9", "9.0"), (2, 1, "9.9", "9.9"), (2, 0, "99", "99"), (2, 0, "100", "range"), (38, 38, "1", "range"),
        (38, 38, "9", "range"), (38, 0, "9" * 38, "9" * 38), (38, 0, "9" * 39, "range"), (3, 2, "1.234", "range"),
    ],
)  # fmt: skip
def test_decimal_with_too_many_digits_is_refused_both_ways(
    precision: int, scale: int, text: str, outcome: str
) -> None:
    fields = (
        Field("f", Decimal(precision, scale), True),
        Field("inner", Array(Field("element", Decimal(precision, scale)))),
    )
    decoder = JsonDecoder(EventSchema("t", NO_EVENT_TIME, fields))
    expected = outcome if outcome == "range" else Number(outcome)
    for value in (b'{"f":%b,"inner":[]}', b'{"f":0,"inner":[%b]}'):
        for way in (decoder, careful(decoder)):
            (row,) = verdict(way, [value % text.encode()])
            row = row if isinstance(row, str) else row["inner"][0] if row["inner"] else row["f"]
            assert row == expected
