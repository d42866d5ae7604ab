"""Rules of Protobuf, by tables: what a message becomes, which values the fast way takes to the last, what it leaves."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas_pipeline.errors import UsageError
from barnabas_pipeline.field_types import Array, Enum, Field, Map, Record
from barnabas_pipeline.formats.base import RefusedError
from barnabas_pipeline.formats.protobuf import _number, fields_of_text
from tests.pipeline.decoding import careful, columns, verdict
from tests.pipeline.test_format_protobuf import PROTO2, PROTO3, decoder_of, made, message_class

PLAIN3 = 'syntax = "proto3"; package t; %s message All { %s }'
IMPORTS = 'import "google/protobuf/timestamp.proto"; import "google/protobuf/struct.proto";'
THREE = decoder_of(PROTO3)
MADE = message_class(PROTO3)
I32, I64 = [-(1 << 31), (1 << 31) - 1], [-(1 << 63), (1 << 63) - 1]
U32, U64 = [(1 << 32) - 1], [(1 << 64) - 1]
DAY_0001, DAY_9999 = -62_135_596_800, 253_402_300_799


def fast(decoder: Any, *values: bytes) -> list[int]:
    """Return the rows that the fast way does not take."""
    return decoder._decode_fast(columns(list(values)))[1].tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("a", I64),
        ("b", I32),
        ("c", U64),
        ("d", U32),
        ("e", I64),
        ("f", [0.5]),
        ("g", [1e300]),
        ("h", [True]),
        ("i", ["ä" * 99]),
        ("j", [b"\xff" * 200]),
        ("k", ["GREEN", "BLUE"]),
        ("l", [0, *I32]),
        ("o", [[], I32, [0] * 60]),
        ("p", [["", "x"]]),
        ("q", [{"": 0, "b": -1}]),
        ("r", [{0: {}, -1: {"name": "x"}}]),
        ("u", [[0.5, -1.0]]),
        ("v", ["", "x"]),
        ("w", [0, -1]),
        ("x", I32),
        ("y", U64),
        ("z", U32),
        ("aa", I64),
        ("bb", [["RED", "BLUE", "GREEN"]]),
        ("cc", ["", "x"]),
        ("t", [{}, {"value": "x"}]),
        ("m", [{}, {"name": "x", "numbers": I64, "deep": {"yes": False}}]),
        ("n", [[{}, {"name": "x"}]]),
        (
            "s",
            [
                {"seconds": DAY_0001, "nanos": 0},
                {"seconds": DAY_9999, "nanos": 999_999_000},
                {"seconds": 5, "nanos": 1_000},
                {},
            ],
        ),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_good_messages_take_the_fast_way_to_the_last_value(name: str, values: list[Any]) -> None:
    data = [made(MADE, {name: one}).SerializeToString() for one in values]
    data.append(made(MADE, {name: values[-1], "z": 7, "a": 3}).SerializeToString())
    data.append(b"")
    assert fast(THREE, *data) == []
    held: list[bytes | None] = list(data)
    found = verdict(THREE, held)
    assert repr(found) == repr(verdict(careful(THREE), held))
    assert (found[-2]["z"], found[-2]["a"]) == (7, 3 if name != "a" else values[-1]) or name in ("z", "a")


def varint(number: int) -> bytes:
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def tag(number: int, wire: int) -> bytes:
    return varint(number << 3 | wire)


@pytest.mark.parametrize(
    ("payload", "takes"),
    [
        (tag(7, 1) + bytes(8) + tag(1, 0) + varint(5), True),  # in another order: one more pass
        (tag(4, 5) + bytes(3), False),
        (tag(4, 5) + bytes(4), True),
        (tag(5, 1) + bytes(7), False),
        (tag(9, 2) + varint(3) + b"ab", False),
        (tag(9, 2) + varint(2) + b"ab", True),
        (tag(9, 2) + varint(1) + b"\xff", False),
        (tag(10, 2) + varint(1) + b"\xff", True),
        (tag(1, 0), False),
        (tag(1, 0) + b"\x80" * 9 + b"\x02", False),
        (tag(1, 0) + b"\xff" * 9 + b"\x01", True),
        (tag(8, 0) + varint(1), True),
        (tag(8, 0) + varint(2), False),
        (tag(25, 0) + varint(1 << 32), False),
        (tag(2, 0) + varint((1 << 32) - 1), True),
        (tag(2, 0) + varint(1 << 32), False),
        (tag(11, 0) + varint(1), True),
        (tag(11, 0) + varint(7), False),
        (tag(21, 2) + varint(1) + b"x" + tag(22, 0) + varint(1), False),  # two of a oneof
        (tag(15, 2) + varint(2) + varint(5) + varint(6), True),
        (tag(15, 0) + varint(5) + tag(15, 0) + varint(6), True),
        (tag(15, 2) + varint(1) + b"\x80", False),
        (tag(20, 2) + varint(9) + bytes(9), False),
        (tag(20, 2) + varint(16) + bytes(16), True),
        (tag(13, 2) + varint(0) + tag(13, 2) + varint(0), False),  # to be merged
        (tag(99, 0) + varint(1), False),
        (tag(1, 0) + varint(1) + tag(1, 0) + varint(2), True),
        (tag(18, 2) + varint(2) + tag(2, 0) + varint(1), False),  # a nanosecond
        (tag(18, 2) + varint(6) + tag(2, 0) + varint(1_000_000_000), False),
        (
            tag(17, 2)
            + varint(5)
            + tag(1, 2)
            + varint(1)
            + b"k"
            + tag(2, 0)
            + tag(17, 2)
            + varint(3)
            + tag(1, 2)
            + varint(1)
            + b"k",
            False,
        ),
    ],
)
def test_what_is_out_of_the_ordinary_is_left_to_the_careful_way_and_nothing_else(
    payload: bytes, takes: bool
) -> None:
    good = made(MADE, {"a": 9, "i": "x"}).SerializeToString()
    assert fast(THREE, good, payload, good) == ([] if takes else [1])
    found, alone = verdict(THREE, [good, payload, good]), verdict(careful(THREE), [payload])
    assert repr(found[1]) == repr(alone[0])
    assert found[0]["a"] == found[2]["a"] == 9


def test_many_items_of_one_record_are_read_by_themselves() -> None:
    for count, takes in ((64, True), (70, False)):
        payload = made(MADE, {"p": ["x"] * count}).SerializeToString()
        assert fast(THREE, payload) == ([] if takes else [0])
        assert verdict(THREE, [payload])[0]["p"] == ["x"] * count


def test_what_proto2_requires_is_there_and_defaults_are_values() -> None:
    two, cls = decoder_of(PROTO2), message_class(PROTO2)
    data: list[bytes | None] = [
        made(cls, {"a": 1}).SerializeToString(),
        tag(2, 2) + varint(1) + b"x",
        made(cls, {"a": 1, "c": 0, "i": ""}).SerializeToString(),
        made(cls, {"a": 1, "b": "", "d": "RED"}).SerializeToString(),
    ]
    for one in (two, careful(two)):
        first, second, third, fourth = verdict(one, data)
        assert second == "missing_field"
        assert [first[name] for name in "bcdhi"] == [None, 7, None, None, "x"]
        assert [third[name] for name in "ci"] == [0, ""]
        assert [fourth[name] for name in "bd"] == ["", "RED"]


# --- what a message becomes -------------------------------------------------------------------------------------------


def field_of(text: str, more: str = "") -> Field:
    (found,) = fields_of_text(PLAIN3 % (IMPORTS + more, text), record="t.All")[1]
    return found


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("double f = 1;", "double"),
        ("float f = 1;", "float"),
        ("int64 f = 1;", "long"),
        ("uint64 f = 1;", "unsigned_long"),
        ("int32 f = 1;", "int"),
        ("fixed64 f = 1;", "unsigned_long"),
        ("fixed32 f = 1;", "long"),
        ("bool f = 1;", "boolean"),
        ("string f = 1;", "string"),
        ("bytes f = 1;", "bytes"),
        ("uint32 f = 1;", "long"),
        ("sfixed32 f = 1;", "int"),
        ("sfixed64 f = 1;", "long"),
        ("sint32 f = 1;", "int"),
        ("sint64 f = 1;", "long"),
        ("repeated int32 f = 1;", Array(Field("element", "int", True))),
        ("map<bool, int32> f = 1;", Map(Field("value", "int", True), "boolean")),
        ("google.protobuf.Timestamp f = 1;", "timestamp_us"),
        ("google.protobuf.Struct f = 1;", "json"),
        ("google.protobuf.Value f = 1;", "json"),
        ("E f = 1;", Enum(("A", "B"))),
        ("None f = 1;", "json"),
        ("All f = 1;", "json"),
        ("I f = 1;", Record((Field("z", "int", number=2), Field("y", "int", number=1)))),
    ],
)
def test_each_kind_of_field_is_a_column(text: str, kind: Any) -> None:
    more = "enum E { A = 0; B = 1; } message None {} message I { int32 z = 2; int32 y = 1; }"
    made_field = field_of(text, more)
    assert (made_field.type, made_field.required, made_field.number) == (kind, False, 1)


def test_a_message_is_found_by_its_name() -> None:
    text = PLAIN3 % ("message First { int32 x = 1; }", "int32 y = 1;")
    assert fields_of_text(text)[0] == "t.First"
    assert fields_of_text(text, record="t.All")[0] == "t.All"
    with pytest.raises(UsageError, match=r"it has no message t\.None"):
        fields_of_text(text, record="t.None")
    with pytest.raises(UsageError, match="it has no message"):
        fields_of_text('syntax = "proto3"; enum E { A = 0; }')


@pytest.mark.parametrize(
    ("payload", "found"),
    [
        (b"\0x", (0, 1)),
        (b"\2", (1, 1)),
        (b"\1", (-1, 1)),
        (b"\x80\2x", (128, 2)),
        (b"\xfe\xff\xff\xff\x0f", (2**31 - 1, 5)),
    ],
)
def test_numbers_before_a_message_are_zigzag(payload: bytes, found: tuple[int, int]) -> None:
    assert _number(payload, 0) == found
    for wrong in (b"", b"\x80", b"\x80" * 5 + b"\1"):
        with pytest.raises(RefusedError, match="which message it is"):
            _number(wrong, 0)
