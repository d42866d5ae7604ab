"""Values one at a time, by tables: each refusal with its reason and path, the bytes of Avro, and whole columns beside."""

from __future__ import annotations

import json
from base64 import b64encode
from decimal import Decimal as Number
from typing import Any

import pyarrow as pa
import pytest

from barnabas.registry.formats import parse
from barnabas.registry.schemas import Schema
from barnabas_pipeline.field_types import Array, Decimal, Enum, Field, Map, Record, Type, Union
from barnabas_pipeline.formats import avro_values
from barnabas_pipeline.formats.avro_columns import has_fast_way
from barnabas_pipeline.formats.avro_plan import Plan, plan_of
from barnabas_pipeline.formats.avro_values import Reader
from barnabas_pipeline.formats.base import RefusedError
from barnabas_pipeline.formats.framing import NO_FRAME, frames_of, unframed, view_of
from barnabas_pipeline.formats.json import JsonDecoder
from barnabas_pipeline.formats.json_values import Checker, parse_object
from barnabas_pipeline.formats.protobuf import ProtobufWriter
from barnabas_pipeline.formats.resolve import Kept
from barnabas_pipeline.schema import NO_EVENT_TIME, EventSchema
from tests.pipeline.test_format_schemas import registered


def checked(value: Any, kind: Type, **more: Any) -> Any:
    """A value, or (the reason, the detail) why it is refused; it is at `a.b`."""
    text = value if isinstance(value, str) and value.startswith("{") else json.dumps({"x": value})
    held = parse_object(text.encode(), exact=True)["x"]
    try:
        return Checker().checked(held, Field("b", kind, **more), "a.b")
    except RefusedError as error:
        return error.reason, error.detail


# --- values of JSON ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (True, "int", ("type", "a.b is no int")),
        (1.0, "long", ("type", "a.b is no long")),
        (1 << 31, "int", ("range", "a.b is no 32 bit integer")),
        (1 << 63, "long", ("range", "a.b is no 64 bit integer")),
        (-1, "unsigned_long", ("range", "a.b is no unsigned_long")),
        ("1", "double", ("type", "a.b is no double")),
        (10**400, "double", ("range", "a.b is no finite number")),
        (-(10**309), "double", ("range", "a.b is no finite number")),
        ('{"x":1e309}', "double", ("range", "a.b is no finite number")),
        (1e39, "float", ("range", "a.b is no finite number of 32 bits")),
        (-1e39, "float", ("range", "a.b is no finite number of 32 bits")),
        (0.1, "float", 0.10000000149011612),
        (0, "boolean", ("type", "a.b is no boolean")),
        (5, "string", ("type", "a.b is no string")),
        ("AAA", "bytes", ("type", "a.b is no base64")),
        ("ä", "bytes", ("type", "a.b is no base64")),
        (5, "bytes", ("type", "a.b is no string")),
        ("AAE=", "bytes", b"\0\1"),
        ("x", "uuid", ("type", "a.b is no UUID")),
        ("ABCDEF00-0000-0000-0000-0000000000fF", "uuid", "abcdef00-0000-0000-0000-0000000000ff"),
        ("2026-1-1", "date", ("type", "a.b is no date like 2026-11-20")),
        ("2026-02-29", "date", ("range", "a.b is no date of the years 1 to 9999")),
        ("1970-01-02", "date", 1),
        ("1969-12-31", "date", -1),
        ("2024-02-29", "date", 19_782),
        ({"c": 1}, "json", '{"c":1}'),
        ('{"x":{"c": [1.50, true, null, "ä"]}}', "json", '{"c":[1.50,true,null,"ä"]}'),
    ],
)
def test_plain_value_fits_its_type_or_is_refused_with_its_path(value: Any, kind: str, expected: Any) -> None:
    result = checked(value, kind)
    assert (result, type(result)) == (expected, type(expected))


NO_TIME = ("type", "a.b is no time like 2026-11-20T14:00:00.5Z")
NO_YEAR = ("range", "a.b is no time of the years 1 to 9999")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01T00:00:01Z", 1_000_000),
        ("1970-01-01 00:00:01Z", 1_000_000),
        ("1970-01-01T00:01Z", 60_000_000),
        ("1970-01-01T00:00:00.5Z", 500_000),
        ("1970-01-01T00:00:00.000001Z", 1),
        ("1970-01-01T00:00:00.000001000Z", 1),
        ("1970-01-01T00:00:00.0000010Z", 1),
        ("1970-01-01T00:00:00.0000011Z", 1),
        ("1970-01-01T00:00:00.000000001Z", 0),
        ("1969-12-31T23:59:59.999999Z", -1),
        ("1970-01-01T02:00:00+02:00", 0),
        ("1970-01-01T02:30:00+0230", 0),
        ("1970-01-01T02:00:00+02", 0),
        ("1969-12-31T21:30:00-02:30", 0),
        ("1970-01-01T00:00:00.25-00:01", 60_250_000),
        ("1970-01-01T23:59:00+23:59", 0),
        ("1970-01-01T00:00:00+24:00", NO_TIME),
        ("1970-01-01T00:00:00+00:60", NO_TIME),
        ("1970-01-01T00:00:00", NO_TIME),
        ("1970-01-01T00:00:00.Z", NO_TIME),
        ("1970-01-01T00:00:00.0000000000Z", NO_TIME),
        ("1970-01-01T24:00:00Z", NO_YEAR),
        ("1970-01-01T00:60:00Z", NO_YEAR),
        ("1970-13-01T00:00:00Z", NO_YEAR),
        ("0000-01-01T00:00:00Z", NO_YEAR),
        ("0001-01-01T00:00:00+00:01", NO_YEAR),
        ("0001-01-01T00:01:00+00:01", -62_135_596_800_000_000),
        ("9999-12-31T23:59:59.999999Z", 253_402_300_799_999_999),
        ("9999-12-31T23:59:59.999999-00:01", NO_YEAR),
        ("9999-12-31T23:58:59.999999-00:01", 253_402_300_799_999_999),
    ],
)
def test_iso8601_time_is_of_the_years_1_to_9999(text: str, expected: Any) -> None:
    assert checked(text, "iso8601") == expected


BYTES = Decimal(5, 2, is_bytes=True)


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        ('{"x":1.50}', Decimal(5, 2), "1.50"),
        ('{"x":1.5}', Decimal(5, 2), "1.50"),
        ('{"x":-999.99}', Decimal(5, 2), "-999.99"),
        ('{"x":1000}', Decimal(5, 2), ("range", "a.b has more than 3 digits before the point")),
        ('{"x":1e3}', Decimal(5, 2), ("range", "a.b has more than 3 digits before the point")),
        ('{"x":1e2}', Decimal(5, 2), "100.00"),
        ('{"x":1.505}', Decimal(5, 2), ("range", "a.b has more than 2 digits behind the point")),
        ('{"x":1.500}', Decimal(5, 2), "1.50"),
        ('{"x":1e-2}', Decimal(5, 2), "0.01"),
        ('{"x":1e-3}', Decimal(5, 2), ("range", "a.b has more than 2 digits behind the point")),
        ('{"x":0e9}', Decimal(5, 2), "0.00"),
        ('{"x":0.000}', Decimal(5, 2), "0.00"),
        ("12.5", Decimal(5, 2), "12.50"),
        (".5", Decimal(5, 2), "0.50"),
        ("5.", Decimal(5, 2), "5.00"),
        ("+5", Decimal(5, 2), "5.00"),
        ("1e1234567890", Decimal(5, 2), ("type", "a.b is no decimal")),
        ("1e999999999", Decimal(5, 2), ("range", "a.b has more than 3 digits before the point")),
        ("", Decimal(5, 2), ("type", "a.b is no decimal")),
        ("٣", Decimal(5, 2), ("type", "a.b is no decimal")),
        (True, Decimal(5, 2), ("type", "a.b is no decimal")),
        (10**400, Decimal(5, 2), ("range", "a.b is no decimal")),
        (5, Decimal(3, 3), ("range", "a.b has more than 0 digits before the point")),
        (b64encode(b"\x01\x2c").decode(), BYTES, "3.00"),
        (b64encode(b"\xff").decode(), BYTES, "-0.01"),
        ("", BYTES, ("range", "a.b is no decimal of 1 to 32 bytes")),
        (b64encode(b"\0" * 32).decode(), BYTES, "0.00"),
        (b64encode(b"\0" * 33).decode(), BYTES, ("range", "a.b is no decimal of 1 to 32 bytes")),
        (5, BYTES, ("type", "a.b is no string")),
    ],
)
def test_a_decimal_loses_no_digit(value: Any, kind: Decimal, expected: Any) -> None:
    result = checked(value, kind)
    assert result == (Number(expected) if isinstance(expected, str) else expected)
    if isinstance(expected, str):
        assert str(result) == expected


INNER = Record((Field("c", "long", True), Field("d", "string", default="x")))


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        ({"c": 1, "d": "y"}, INNER, {"c": 1, "d": "y"}),
        ({"c": 1}, INNER, {"c": 1, "d": "x"}),
        ({"d": "y"}, INNER, ("missing_field", "a.b.c is missing")),
        ({"c": None}, INNER, ("type", "a.b.c is null")),
        ({"c": "1"}, INNER, ("type", "a.b.c is no long")),
        ([], INNER, ("type", "a.b is no record")),
        ([1, None, 2], Array(Field("e", "long")), [1, None, 2]),
        ([1, None], Array(Field("e", "long", True)), ("type", "a.b is null")),
        ([1, "2"], Array(Field("e", "long")), ("type", "a.b is no long")),
        ({"0": 1}, Array(Field("e", "long")), ("type", "a.b is no array")),
        ({"k": 1, "l": None}, Map(Field("v", "long")), [("k", 1), ("l", None)]),
        ({"k": "1"}, Map(Field("v", "long")), ("type", "a.b.k is no long")),
        ([["k", 1]], Map(Field("v", "long")), ("type", "a.b is no map")),
        ({"5": 1, "-7": 2, "0": 3}, Map(Field("v", "long"), "int"), [(5, 1), (-7, 2), (0, 3)]),
        ({"05": 1}, Map(Field("v", "long"), "int"), ("type", "a key of a.b is no int")),
        ({"-0": 1}, Map(Field("v", "long"), "int"), ("type", "a key of a.b is no int")),
        ({"x": 1}, Map(Field("v", "long"), "long"), ("type", "a key of a.b is no long")),
        ({"2147483648": 1}, Map(Field("v", "long"), "int"), ("range", "a.b is no 32 bit integer")),
        ({"true": 1, "false": 2}, Map(Field("v", "long"), "boolean"), [(True, 1), (False, 2)]),
        ({"1": 1}, Map(Field("v", "long"), "boolean"), ("type", "a key of a.b is no boolean")),
        ("A", Enum(("A", "B")), "A"),
        ("C", Enum(("A", "B")), ("range", "a.b is none of the symbols")),
        (1, Enum(("A", "B")), ("type", "a.b is no enum")),
        (5, Union((Field("s", "string"), Field("n", "long"))), {"n": 5}),
        ("x", Union((Field("s", "string"), Field("n", "long"))), {"s": "x"}),
        (
            True,
            Union((Field("s", "string"), Field("n", "long"))),
            ("type", "a.b is none of the union's types"),
        ),
    ],
)
def test_nested_value_is_refused_with_the_path_of_its_member(value: Any, kind: Any, expected: Any) -> None:
    assert checked(value, kind) == expected


def test_bounds_of_a_field_are_told_and_a_null_has_none() -> None:
    assert checked(4, "long", min=5, max=9) == ("range", "a.b is not within 5 and 9")
    assert checked(10, "long", max=9) == ("range", "a.b is not within None and 9")
    assert checked(None, "long", min=5) is None
    assert checked(None, "long", required=True) == ("type", "a.b is null")


@pytest.mark.parametrize(
    ("value", "kind", "is_strange"),
    [
        ({"c": 1}, INNER, False),
        ({"c": 1, "more": 2}, INNER, True),
        ([{"c": 1}, {"c": 1, "more": 2}], Array(Field("e", INNER)), True),
        ({"k": {"c": 1, "more": 2}}, Map(Field("v", INNER)), True),
        ({"c": "no", "more": 2}, Union((Field("r", INNER), Field("j", "json"))), False),
        ({"c": 1, "more": 2}, Union((Field("r", INNER), Field("j", "json"))), True),
        ({"c": 1, "more": 2}, Union((Field("j", "json"), Field("r", INNER))), False),
    ],
)
def test_a_field_within_that_nobody_knows_is_noticed(value: Any, kind: Any, is_strange: bool) -> None:
    checker = Checker()
    checker.checked(value, Field("b", kind), "b")
    assert checker.strange is is_strange
    other = Checker(strange=True)
    other.checked({"c": 1}, Field("b", INNER), "b")
    assert other.strange, "what was noticed before stays so"


def test_extra_keeps_members_without_a_whole_column() -> None:
    decoder = JsonDecoder(
        EventSchema("t", NO_EVENT_TIME, (Field("a", INNER), Field("b", "long"), Field("n", "long")))
    )
    text = b'{"x": 1.0,"a":{"c":1, "more":[2]}, "b":3, "y" : null}'
    assert decoder.read(text) == {
        "a": {"c": 1, "d": "x"}, "b": 3, "_extra": '{"x": 1.0,"a":{"c":1, "more":[2]},"y" : null}',
    }  # fmt: skip
    assert decoder.read(b'{"a":{"c":1},"b":3}') == {"a": {"c": 1, "d": "x"}, "b": 3}


# --- frames -----------------------------------------------------------------------------------------------------------


def test_sliced_array_is_viewed_at_its_offset() -> None:
    values = pa.array([b"before", b"\0\0\0\0\1abc", None, b"", b"\0\0\0\0\2d", b"after"], pa.binary())
    view = view_of(values.slice(1, 4))
    assert [view.data[low:high] for low, high in zip(view.start, view.end, strict=True)] == [
        b"\0\0\0\0\1abc", b"", b"", b"\0\0\0\0\2d",
    ]  # fmt: skip
    assert unframed(values.take(pa.array([1, 4])).slice(1)).to_pylist() == [b"d"]
    assert view_of(values.slice(2, 0)).start.tolist() == []


def test_frame_has_a_zero_and_the_four_bytes_of_an_id() -> None:
    values = pa.array([b"\0\0\0\1\2data", b"", b"\0\0\0\1", b"\1\0\0\0\1", b"\0\xff\0\0\3", b"\0\0\0\0\0"])
    assert frames_of(values).tolist() == [258, NO_FRAME, NO_FRAME, NO_FRAME, 0xFF000003, 0]
    assert frames_of(values.slice(4)).tolist() == [0xFF000003, 0]


def test_invalid_frame_or_schema_id_is_refused_with_a_reason() -> None:
    registry = registered("http://frames", '{"type":"object"}', form="JSON")
    decoder = JsonDecoder(EventSchema("t", NO_EVENT_TIME, (Field("f", "long"),)), registry=registry)
    assert decoder.split(b"\0\0\0\0\1x") == (1, b"x")
    for value, reason, detail in (
        (b"\0\0\0\0", "framing", "the value does not begin with a byte of 0 and the id of a schema"),
        (b"\1\0\0\0\1x", "framing", "the value does not begin with a byte of 0 and the id of a schema"),
        (b"\0\0\0\0\x63x", "schema_id", "the registry has no JSON schema 99"),
    ):
        with pytest.raises(RefusedError) as raised:
            decoder.split(value)
        assert (raised.value.reason, raised.value.detail) == (reason, detail)
    assert decoder.known(-1) is None
    assert decoder.known(1) == Schema("JSON", '{"type":"object"}')
    assert JsonDecoder(decoder.schema, registry=registered("http://others", '"long"')).known(1) is None


# --- the bytes of Avro ------------------------------------------------------------------------------------------------


def zigzag(number: int) -> bytes:
    raw, out = (number << 1) ^ (number >> 63), bytearray()
    raw &= (1 << 64) - 1
    while raw >= 0x80:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    return bytes([*out, raw])


def read(data: bytes, plan: Plan) -> Any:
    try:
        return Reader(data).whole(plan)
    except RefusedError as error:
        return error.reason, error.detail


LONG, INT, STRING = Plan("long", "long"), Plan("int", "int"), Plan("string")
NO_INDEX = "is no number of an enum's symbols or a union's branches"


@pytest.mark.parametrize(
    ("data", "plan", "expected"),
    [
        (zigzag(-(1 << 63)), LONG, -(1 << 63)),
        (zigzag((1 << 63) - 1), LONG, (1 << 63) - 1),
        (b"\xff" * 9 + b"\2", LONG, ("avro", "a number has more than 64 bits")),
        (b"\xff" * 9 + b"\x81\1", LONG, ("avro", "a number has more than 64 bits")),
        (b"\x80", LONG, ("avro", "1 bytes at 1 are not there")),
        (b"\2\2", LONG, ("avro", "1 bytes are left behind the value")),
        (zigzag((1 << 31) - 1), INT, (1 << 31) - 1),
        (zigzag(-(1 << 31)), INT, -(1 << 31)),
        (zigzag(1 << 31), INT, ("avro", "an int has more than 32 bits")),
        (zigzag(-(1 << 31) - 1), INT, ("avro", "an int has more than 32 bits")),
        (b"\0", Plan("boolean", "boolean"), False),
        (b"\1", Plan("boolean", "boolean"), True),
        (b"\2", Plan("boolean", "boolean"), ("avro", "a boolean is neither 0 nor 1")),
        (zigzag(2) + b"ab", STRING, "ab"),
        (zigzag(3) + b"ab", STRING, ("avro", "3 bytes at 1 are not there")),
        (zigzag(-1), STRING, ("avro", "-1 bytes at 1 are not there")),
        (zigzag(1) + b"\xff", STRING, ("utf8", "a string is no UTF-8")),
        (zigzag(2) + b"\xff\0", Plan("bytes", "bytes"), b"\xff\0"),
        (b"ab", Plan("fixed", "bytes", 2), b"ab"),
        (b"a", Plan("fixed", "bytes", 2), ("avro", "2 bytes at 0 are not there")),
        (bytes(range(16)), Plan("fixed", "uuid", 16), "00010203-0405-0607-0809-0a0b0c0d0e0f"),
        (zigzag(2) + b"\xff\x38", Plan("bytes", Decimal(3, 2)), Number("-2.00")),
        (zigzag(2) + b"\x03\xe7", Plan("bytes", Decimal(3, 2)), Number("9.99")),
        (zigzag(2) + b"\x03\xe8", Plan("bytes", Decimal(3, 2)), ("range", "a decimal has more than 3 digits")),
        (zigzag(2) + b"\xfc\x18", Plan("bytes", Decimal(3, 2)), ("range", "a decimal has more than 3 digits")),
        (zigzag(1), Plan("enum", Enum(("A", "B")), symbols=("A", "B")), "B"),
        (zigzag(2), Plan("enum", Enum(("A", "B")), symbols=("A", "B")), ("avro", f"2 {NO_INDEX}")),
        (zigzag(-1), Plan("enum", Enum(("A", "B")), symbols=("A", "B")), ("avro", f"-1 {NO_INDEX}")),
        (zigzag(0), Plan("optional", "long", 0, children=[LONG]), None),
        (zigzag(1) + zigzag(5), Plan("optional", "long", 0, children=[LONG]), 5),
        (zigzag(1), Plan("optional", "long", 1, children=[LONG]), None),
        (zigzag(0) + zigzag(5), Plan("optional", "long", 1, children=[LONG]), 5),
        (zigzag(1) + zigzag(5), Plan("union", "x", children=[STRING, LONG], names=("s", "n")), {"n": 5}),
        (zigzag(1), Plan("union", "x", children=[STRING, Plan("null")], names=("s", "null")), None),
        (zigzag(86_400_000_000), Plan("long", "time_us"), Kept(86_400_000_000)),
        (zigzag(86_399_999), Plan("int", "time_ms"), 86_399_999_000),
        (zigzag(-1), Plan("int", "time_ms"), Kept(-1)),
    ],
)  # fmt: skip
def test_avro_bytes_are_a_value_or_are_refused_with_a_reason(data: bytes, plan: Plan, expected: Any) -> None:
    result = read(data, plan)
    assert (result, type(result)) == (expected, type(expected))


LONGS = Plan("array", Array(Field("element", "long")), children=[LONG])
NULLS = Plan("array", Array(Field("element", "string")), children=[Plan("null")])


def items(*blocks: bytes) -> bytes:
    return b"".join([*blocks, b"\0"])


@pytest.mark.parametrize(
    ("data", "plan", "expected"),
    [
        (items(), LONGS, []),
        (items(zigzag(2) + zigzag(5) + zigzag(6), zigzag(1) + zigzag(7)), LONGS, [5, 6, 7]),
        (items(zigzag(-2) + zigzag(2) + zigzag(5) + zigzag(6)), LONGS, [5, 6]),
        (items(zigzag(-1) + zigzag(0) + zigzag(5)), LONGS, [5]),
        (items(zigzag(-1) + zigzag(-1) + zigzag(5)), LONGS, ("avro", "a block has less than no bytes")),
        (items(zigzag(10_000)), NULLS, [None] * 10_000),
        (items(zigzag(10_004)), NULLS, [None] * 10_004),
        (items(zigzag(10_005)), NULLS, ("avro", "there are not 10005 items")),
        (items(zigzag(5_003), zigzag(5_002)), NULLS, [None] * 10_005),
        (items(zigzag(5_003), zigzag(5_003)), NULLS, ("avro", "there are not 5003 items")),
    ],
    ids=range(10),
)
def test_avro_blocks_have_no_more_items_than_their_bytes_allow(
    data: bytes, plan: Plan, expected: Any
) -> None:
    assert avro_values.EMPTY_ITEMS_MAX == 10_000
    assert read(data, plan) == expected


EMPTIES = {"type": "record", "name": "E", "fields": [{"name": f"n{n}", "type": "null"} for n in range(1_000)]}


@pytest.mark.parametrize(
    "item", [EMPTIES, {**EMPTIES, "fields": [*EMPTIES["fields"], {"name": "b", "type": "boolean"}]}]
)
def test_fields_without_bytes_are_bounded_by_the_bytes(item: Any) -> None:
    schema = json.dumps(
        {"type": "record", "name": "R", "fields": [{"name": "a", "type": {"type": "array", "items": item}}]}
    )
    plan = plan_of(parse(Schema("AVRO", schema)).root)
    has_byte = item is not EMPTIES
    assert len(read(items(zigzag(5) + b"\1" * 5 * has_byte), plan)["a"]) == 5
    data = items(zigzag(2_000) + b"\1" * 2_000 * has_byte)
    assert read(data, plan) == ("avro", "very many fields take no bytes")
    assert not has_fast_way(plan)


def test_unset_fields_of_messages_are_bounded() -> None:
    fields = " ".join(f"int32 f{n} = {n};" for n in range(1, 1_001))
    text = f'syntax = "proto3"; message M {{ repeated E e = 1; }} message E {{ {fields} }}'
    parsed: Any = parse(Schema("PROTOBUF", text))
    reader = ProtobufWriter(parsed.pool.FindMessageTypeByName("M"), parsed.pool)
    assert len(reader.read(b"\x0a\0" * 500)[0]["e"]) == 500
    with pytest.raises(RefusedError, match="more than 1,000,000 values"):
        reader.read(b"\x0a\0" * 2_000)


def test_of_a_key_that_is_there_twice_the_last_value_counts() -> None:
    plan = Plan("map", Map(Field("value", "long")), children=[LONG])
    pair = [zigzag(1) + name + zigzag(n) for n, name in enumerate((b"a", b"b", b"a"))]
    assert read(items(zigzag(2) + pair[0] + pair[1], zigzag(1) + pair[2]), plan) == [("a", 2), ("b", 1)]
