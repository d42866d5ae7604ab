"""Messages of Protobuf are decoded as Google's library does, or refused with a reason; the fast way and the careful
way alike."""

from __future__ import annotations

import json
from base64 import b64decode
from decimal import Decimal
from typing import Any

import pytest
from google.protobuf import message_factory
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas.registry.formats import parse
from barnabas.registry.schemas import Schema
from barnabas_pipeline.formats.base import EXTRA
from barnabas_pipeline.formats.protobuf import ProtobufDecoder, fields_of_text
from barnabas_pipeline.schema import NO_EVENT_TIME, EventSchema
from tests.pipeline.decoding import careful, columns, same, spoil, verdict

PROTO3 = """
syntax = "proto3";
package t;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
message All {
  int64 a = 1; sint32 b = 2; uint64 c = 3; fixed32 d = 4; sfixed64 e = 5; float f = 6; double g = 7; bool h = 8;
  string i = 9; bytes j = 10; Color k = 11; optional int32 l = 12; Inner m = 13; repeated Inner n = 14;
  repeated int32 o = 15; repeated string p = 16; map<string, int64> q = 17; map<int32, Inner> r = 2000;
  google.protobuf.Timestamp s = 18; google.protobuf.StringValue t = 19; repeated double u = 20;
  oneof choice { string v = 21; int64 w = 22; }
  sfixed32 x = 23; fixed64 y = 24; uint32 z = 25; sint64 aa = 26; repeated Color bb = 27; optional string cc = 28;
}
enum Color { RED = 0; GREEN = 1; BLUE = -5; }
message Inner { string name = 1; repeated sint64 numbers = 2 [packed = false]; Inner2 deep = 3; }
message Inner2 { optional bool yes = 1; google.protobuf.Int64Value wrapped = 2; }
"""
PROTO2 = """
syntax = "proto2";
package t;
message All {
  required int64 a = 1; optional string b = 2; optional int32 c = 3 [default = 7]; optional Color d = 4;
  repeated int32 e = 5;
  repeated fixed32 f = 6 [packed = true]; map<string, Color> g = 7; optional bytes h = 8;
  optional string i = 9 [default = "x"];
}
enum Color { NONE = 0; GREEN = 1; RED = 2; }
"""


def decoder_of(text: str, **more: Any) -> ProtobufDecoder:
    name, fields = fields_of_text(text)
    return ProtobufDecoder(EventSchema(name, NO_EVENT_TIME, fields), text=text, **more)


def message_class(text: str, name: str = "t.All") -> Any:
    return message_factory.GetMessageClass(parse(Schema("PROTOBUF", text)).pool.FindMessageTypeByName(name))  # type: ignore[attr-defined]


TEXT = st.text(st.characters(codec="utf-8"), max_size=4)
I32, I64 = st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-(1 << 63), (1 << 63) - 1)
U32, U64 = st.integers(0, (1 << 32) - 1), st.integers(0, (1 << 64) - 1)
COLORS = st.sampled_from(["RED", "GREEN", "BLUE"])
INNER2 = st.fixed_dictionaries(
    {}, optional={"yes": st.booleans(), "wrapped": st.fixed_dictionaries({"value": I64})}
)
INNER = st.fixed_dictionaries(
    {}, optional={"name": TEXT, "numbers": st.lists(I64, max_size=3), "deep": INNER2}
)
TIME = st.builds(
    lambda s, us: {"seconds": s, "nanos": us * 1000}, st.integers(-(10**10), 10**11), st.integers(0, 999_999)
)
VALUES = st.fixed_dictionaries(
    {},
    optional={
        "a": I64,
        "b": I32,
        "c": U64,
        "d": U32,
        "e": I64,
        "f": st.floats(width=32),
        "g": st.floats(),
        "h": st.booleans(),
        "i": TEXT,
        "j": st.binary(max_size=4),
        "k": COLORS,
        "l": I32,
        "m": INNER,
        "n": st.lists(INNER, max_size=3),
        "o": st.lists(I32, max_size=4),
        "p": st.lists(TEXT, max_size=3),
        "q": st.dictionaries(TEXT, I64, max_size=3),
        "r": st.dictionaries(I32, INNER, max_size=2),
        "s": TIME,
        "t": st.fixed_dictionaries({"value": TEXT}),
        "u": st.lists(st.floats(), max_size=3),
        "x": I32,
        "y": U64,
        "z": U32,
        "aa": I64,
        "bb": st.lists(COLORS, max_size=3),
        "cc": TEXT,
    },
).flatmap(lambda held: st.sampled_from([{}, {"v": "x"}, {"w": -1}]).map(lambda more: {**held, **more}))


def made(cls: Any, values: dict[str, Any]) -> Any:
    """A message of plain values."""
    message = cls()
    for name, value in values.items():
        if isinstance(value, dict) and name == "r":
            for key, inner in value.items():
                message.r[key].CopyFrom(made(type(message.r[key]), inner))
        elif isinstance(value, dict) and name != "q":
            getattr(message, name).CopyFrom(made(type(getattr(message, name)), value))
        elif name == "n":
            for inner in value:
                item = message.n.add()
                item.CopyFrom(made(type(item), inner))
        elif isinstance(value, list):
            kind = message.DESCRIPTOR.fields_by_name[name]
            numbers = kind.enum_type.values_by_name if kind.enum_type else None
            getattr(message, name).extend([numbers[item].number if numbers else item for item in value])
        elif isinstance(value, dict):
            getattr(message, name).update(value)
        else:
            kind = message.DESCRIPTOR.fields_by_name[name]
            setattr(message, name, kind.enum_type.values_by_name[value].number if kind.enum_type else value)
    return message


def inner_of(held: dict[str, Any]) -> dict[str, Any]:
    deep = held.get("deep")
    if deep is not None:
        deep = {"yes": deep.get("yes"), "wrapped": deep.get("wrapped", {}).get("value")}
    return {"name": held.get("name", ""), "numbers": held.get("numbers", []), "deep": deep}


def expected(held: dict[str, Any]) -> dict[str, Any]:
    """The row of a message of such values, said without the decoder."""
    plain = {
        "a": 0,
        "b": 0,
        "c": 0,
        "d": 0,
        "e": 0,
        "f": 0.0,
        "g": 0.0,
        "h": False,
        "i": "",
        "j": b"",
        "k": "RED",
        "l": None,
    }
    row = {name: held.get(name, default) for name, default in plain.items()}
    row |= {
        "m": inner_of(held["m"]) if "m" in held else None,
        "n": [inner_of(inner) for inner in held.get("n", [])],
    }
    row |= {name: held.get(name, []) for name in "op"}
    row |= {
        "q": sorted(held.get("q", {}).items()),
        "r": [(key, inner_of(inner)) for key, inner in sorted(held.get("r", {}).items())],
    }
    time = held.get("s")
    row |= {"s": None if time is None else time["seconds"] * 1_000_000 + time["nanos"] // 1000}
    row |= {
        "t": held.get("t", {}).get("value"),
        "u": held.get("u", []),
        "v": held.get("v"),
        "w": held.get("w"),
    }
    row |= {name: held.get(name, 0) for name in ("x", "y", "z", "aa")} | {
        "bb": held.get("bb", []),
        "cc": held.get("cc"),
        EXTRA: None,
    }
    return row | {name: Decimal(row[name]) for name in "cy"}


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(VALUES, min_size=1, max_size=5), st.booleans())
def test_values_of_all_types_are_what_was_written(many: list[dict[str, Any]], is_careful: bool) -> None:
    decoder = decoder_of(PROTO3)
    cls = message_class(PROTO3)
    values = [made(cls, value).SerializeToString() for value in many]
    rows = verdict(careful(decoder) if is_careful else decoder, list(values))
    for value, row in zip(many, rows, strict=True):
        expected_row = expected(value)
        if (
            expected_row["s"] is not None
            and not -62_135_596_800_000_000 <= expected_row["s"] < 253_402_300_800_000_000
        ):
            assert row == "range"
        else:
            order = {name: expected_row[name] for name in row}
            assert same(row, order)
    if not is_careful:
        parts, doubtful = decoder._decode_fast(columns(list(values)))
        assert len(doubtful) == sum(isinstance(row, str) for row in rows)
        assert sum(len(rows) for rows, _ in parts) + len(doubtful) == len(values)


GOOD = st.builds(lambda held: made(message_class(PROTO3), held).SerializeToString(), VALUES)
FIELDS = st.builds(
    lambda number, wire, data: bytes([number << 3 | wire]) + data,
    st.integers(0, 15),
    st.sampled_from([0, 1, 2, 5, 3, 4, 7]),
    st.binary(max_size=9),
)
ANY = st.one_of(
    GOOD,
    st.builds(lambda first, other: first + other, GOOD, GOOD),  # fields twice: merged
    st.builds(spoil, GOOD, st.integers(0, 60), st.integers(0, 255), st.sampled_from(["cut", "set", "add"])),
    st.binary(max_size=12),
    st.lists(FIELDS, max_size=4).map(b"".join),
    st.none(),
)


@pytest.mark.parametrize("text", [PROTO3, PROTO2])
@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(ANY, min_size=1, max_size=5))
def test_verdicts_on_any_bytes_agree_in_any_block_and_both_ways(text: str, many: list[bytes | None]) -> None:
    decoder = decoder_of(text)
    alone = [row for value in many for row in verdict(careful(decoder), [value])]
    assert same(verdict(careful(decoder), list(many)), alone)
    assert same(verdict(decoder, list(many)), alone)
    cls = message_class(text)
    for value, row in zip(many, alone, strict=True):
        if isinstance(row, dict):
            assert value is not None
            cls.FromString(value)
            kept = b64decode(json.loads(row[EXTRA] or "{}").get("_unknown", ""))
            cls.FromString(kept)
            assert len(kept) <= len(value)
        else:
            assert row in ("empty", "protobuf", "utf8", "range", "missing_field")


def test_what_the_schema_does_not_know_is_kept() -> None:
    newer = 'syntax = "proto3"; package t; message All { int64 a = 1; string new = 99; }'
    value = message_class(newer)(a=5, new="hello").SerializeToString()
    (row,) = verdict(decoder_of(PROTO3), [value])
    assert row["a"] == 5
    assert message_class(newer).FromString(b64decode(json.loads(row[EXTRA])["_unknown"])).new == "hello"


def test_inexact_timestamp_is_kept_in_extra() -> None:
    cls = message_class(PROTO3)
    value = made(cls, {"s": {"seconds": 1, "nanos": 1_234_567}}).SerializeToString()
    (row,) = verdict(decoder_of(PROTO3), [value])
    assert row["s"] == 1_001_234
    assert json.loads(row[EXTRA]) == {"s": "1970-01-01T00:00:01.001234567Z"}


@pytest.mark.parametrize("nanos", [-1000, 1_000_000_000])
def test_timestamp_with_invalid_nanoseconds_is_read_alike(nanos: int) -> None:
    value = made(message_class(PROTO3), {"s": {"seconds": 1, "nanos": nanos}}).SerializeToString()
    decoder = decoder_of(PROTO3)
    assert verdict(decoder, [value]) == verdict(careful(decoder), [value])


def test_recursive_messages_and_struct_become_json_text() -> None:
    text = """syntax = "proto3"; package t; import "google/protobuf/struct.proto";
    message All { string name = 1; All child = 2; repeated All children = 3; google.protobuf.Struct held = 4; }"""
    cls = message_class(text)
    message = cls(name="a", child=cls(name="b", child=cls(name="c")))
    message.held.update({"z": [1, None], "a": {"b": True}})
    (row,) = verdict(decoder_of(text), [message.SerializeToString()])
    assert json.loads(row["child"]) == {"name": "b", "child": {"name": "c"}}
    assert json.loads(row["held"]) == {"a": {"b": True}, "z": [1, None]}
