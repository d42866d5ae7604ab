"""Rules of formats, by tables: where values end that a column holds, which the fast way takes, what is resolved how."""

from __future__ import annotations

import json
from decimal import Decimal as Number
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from barnabas_pipeline.errors import UsageError
from barnabas_pipeline.field_types import PLAIN, Array, Decimal, Enum, Field, Map, Record, Union
from barnabas_pipeline.formats import resolve
from barnabas_pipeline.formats.base import TIME_MAX_MS, TIME_MIN_MS, RefusedError, in_order
from barnabas_pipeline.formats.framing import NO_FRAME, frames_of, unframed
from barnabas_pipeline.formats.json import JsonDecoder
from barnabas_pipeline.formats.json_values import members, needs_digits, parse_object, written
from barnabas_pipeline.formats.keys import KeyedDecoder
from barnabas_pipeline.formats.rows import RawDecoder, RowDecoder, StringDecoder, whole_schema
from barnabas_pipeline.formats.steps import StepReader
from barnabas_pipeline.log.columns import Columns
from barnabas_pipeline.schema import NO_EVENT_TIME, EventSchema
from tests.pipeline.decoding import NOW, careful, columns, verdict


def schema_of(*fields: Field, event_time: str = NO_EVENT_TIME) -> EventSchema:
    return EventSchema("t", event_time, fields)


# --- values at the ends of what a column holds ------------------------------------------------------------------------

WHOLE = [name for name, plain in PLAIN.items() if plain.min is not None and name != "date"]


@pytest.mark.parametrize("kind", WHOLE)
def test_whole_numbers_are_taken_to_the_last_and_no_further_by_both_ways(kind: str) -> None:
    plain = PLAIN[kind]
    assert plain.min is not None
    assert plain.max is not None
    decoder = JsonDecoder(schema_of(Field("f", kind, True)))
    for value, is_good in (
        (plain.min, True),
        (plain.max, True),
        (plain.min - 1, False),
        (plain.max + 1, False),
    ):
        data: list[bytes | None] = [b'{"f":%d}' % value]
        for one in (decoder, careful(decoder)):
            (found,) = verdict(one, data)
            assert found == ("range" if not is_good else {"f": value * plain.factor, "_extra": None})
        takes = decoder._decode_block(columns(data)) is not None
        assert takes is is_good, "what is good takes the fast way"


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("date", ["0001-01-01", "9999-12-31"], ["0000-12-31", "2023-02-29"]),
        (
            "iso8601",
            ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"],
            ["9999-12-31T23:59:59-00:01", "0001-01-01T00:00+00:01"],
        ),
        ("double", [1e308, -0.0, 5], [True, "1"]),
        ("float", [3.4028234e38, 1], [3.5e38]),
        ("boolean", [True, False], [1, "true"]),
        ("bytes", ["", "AP8="], ["AP8", "x"]),
        ("uuid", ["00000000-0000-0000-0000-0000000000ff"], ["00000000-0000-0000-0000-0000000000f"]),
    ],
)
def test_other_values_are_taken_to_the_last_and_no_further(
    kind: str, good: list[Any], bad: list[Any]
) -> None:
    decoder = JsonDecoder(schema_of(Field("f", kind, True)))
    for values, is_good in ((good, True), (bad, False)):
        for value in values:
            data: list[bytes | None] = [json.dumps({"f": value}).encode()]
            fast, slow = verdict(decoder, data)[0], verdict(careful(decoder), data)[0]
            assert repr(fast) == repr(slow)
            assert isinstance(fast, dict) is is_good, value
            assert (decoder._decode_block(columns(data)) is not None) is is_good, value


@pytest.mark.parametrize(
    ("kind", "low", "high", "good", "bad"),
    [
        ("long", 1, 9, [1, 9], [0, 10]),
        ("double", 0.5, 1.5, [0.5, 1.5], [0.4, 1.6]),
        ("string", 1, 2, ["a", "äb"], ["", "abc"]),
        ("bytes", 1, 2, ["AA==", "AAA="], ["", "AAAA"]),
        (Array(Field("element", "long")), 1, 2, [[1], [1, 2]], [[], [1, 2, 3]]),
        ("long", None, 9, [-5, 9], [10]),
        ("long", 1, None, [1, 99], [0]),
    ],
)
def test_bounds_are_inclusive(kind: Any, low: Any, high: Any, good: list[Any], bad: list[Any]) -> None:
    decoder = JsonDecoder(schema_of(Field("f", kind, True, low, high)))
    for values, is_good in ((good, True), (bad, False)):
        for value in values:
            data: list[bytes | None] = [json.dumps({"f": value}).encode()]
            assert [isinstance(verdict(one, data)[0], dict) for one in (decoder, careful(decoder))] == [
                is_good
            ] * 2
            assert (decoder._decode_block(columns(data)) is not None) is is_good


@pytest.mark.parametrize("kind", ["long", "timestamp_ms", "timestamp_us", "iso8601"])
def test_an_event_may_be_so_much_older_and_younger_than_its_record(kind: str) -> None:
    decoder = JsonDecoder(
        schema_of(Field("ts", kind, True), event_time="ts"), past_max_ms=5_000, future_max_ms=2_000
    )

    def event(time_ms: int) -> bytes:
        if kind == "iso8601":
            return json.dumps({"ts": str(np.datetime64(time_ms, "ms")) + "Z"}).encode()
        return json.dumps({"ts": time_ms * (1000 if kind == "timestamp_us" else 1)}).encode()

    for delta, is_good in ((-5_000, True), (2_000, True), (-5_001, False), (2_001, False), (0, True)):
        for one in (decoder, careful(decoder)):
            (found,) = verdict(one, [event(NOW + delta)])
            assert (found != "time") is is_good, (delta, one.careful)
            assert (decoder._decode_block(columns([event(NOW + delta)])) is not None) is is_good
            rows, _, _ = one.decode(columns([event(NOW + delta)], timestamp_ms=-1))
            assert len(rows) == 1, "a record without a time says nothing of its event's"


@pytest.mark.parametrize(
    ("time_ms", "is_good"),
    [(TIME_MIN_MS, True), (TIME_MAX_MS, True), (TIME_MIN_MS - 1, False), (TIME_MAX_MS + 1, False)],
)
def test_a_record_is_of_the_years_1_to_9999(time_ms: int, is_good: bool) -> None:
    decoder = JsonDecoder(schema_of(Field("f", "long")))
    for one in (decoder, careful(decoder)):
        rows, _, bad = one.decode(columns([b'{"f":1}'], timestamp_ms=time_ms))
        assert (len(rows), len(bad)) == ((1, 0) if is_good else (0, 1))
        assert [each.reason for each in bad] == ["time"] * (not is_good)


# --- blocks -----------------------------------------------------------------------------------------------------------


def test_limits_are_what_a_verdict_depends_on() -> None:
    one = JsonDecoder(schema_of(Field("f", "long")), value_bytes_max=5, past_max_ms=6)
    assert one.limits() == {"value_bytes_max": 5, "past_max_ms": 6, "future_max_ms": 3_600_000}
    assert careful(one).limits() == one.limits()
    kept = RawDecoder(whole_schema("t", "raw"), tombstones="keep")
    assert kept.limits() == {
        "value_bytes_max": 1 << 20,
        "past_max_ms": 30 * 24 * 3_600_000,
        "future_max_ms": 3_600_000,
        "format": "raw",
        "tombstones": "keep",
    }
    with pytest.raises(UsageError, match="a tombstone has no ts"):
        JsonDecoder(schema_of(Field("ts", "long", True), event_time="ts"), tombstones="keep")


def test_a_value_is_too_large_beyond_the_limit_and_null_is_empty_or_kept() -> None:
    for kind, decoder in (("raw", RawDecoder), ("string", StringDecoder)):
        one: Any = decoder(whole_schema("t", kind), value_bytes_max=3)
        held: Any = b"abc" if kind == "raw" else "abc"
        for each in (one, careful(one)):
            assert verdict(each, [b"abc", b"abcd", None, b""]) == [
                {"value": held, "_extra": None},
                "too_large",
                "empty",
                {"value": held[:0], "_extra": None},
            ]
    kept = RawDecoder(whole_schema("t", "raw"), tombstones="keep")
    for each in (kept, careful(kept)):
        assert verdict(each, [None, b"x"])[0] == {"value": None, "_extra": '{"_tombstone":true}'}
    text = StringDecoder(whole_schema("t", "string"))
    assert verdict(text, [b"a", b"\xff"]) == [{"value": "a", "_extra": None}, "utf8"]
    for wrong in (schema_of(Field("value", "string")), schema_of(Field("a", "bytes"), Field("b", "bytes"))):
        with pytest.raises(UsageError, match="has one field"):
            RawDecoder(wrong)


def test_nothing_is_decoded_of_nothing_and_rows_are_put_in_order() -> None:
    decoder = JsonDecoder(schema_of(Field("f", "long")))
    rows, table, bad = decoder.decode(columns([]))
    assert (len(rows), table.num_rows, table.column_names, bad) == (0, 0, ["f", "_extra"], [])
    parts = [(np.array([1, 4]), pa.table({"x": [10, 40]})), (np.array([0, 2]), pa.table({"x": [0, 20]}))]
    rows, table = in_order(parts)
    assert (rows.tolist(), table["x"].to_pylist()) == ([0, 1, 2, 4], [0, 10, 20, 40])


def test_a_few_bad_records_leave_the_others_the_fast_way() -> None:
    decoder = JsonDecoder(schema_of(Field("f", "long", True)))
    values: list[bytes | None] = [b'{"f":%d}' % n for n in range(600)]
    for bad in (100, 101, 599):
        values[bad] = b"no"
    parts, doubtful = decoder._decode_fast(columns(values))
    assert 3 <= len(doubtful) <= 160
    assert {100, 101, 599} <= set(doubtful.tolist())
    assert sorted([*doubtful.tolist(), *(row for rows, _ in parts for row in rows.tolist())]) == list(
        range(600)
    )
    found = verdict(decoder, values)
    assert [n for n, one in enumerate(found) if one == "json"] == [100, 101, 599]


def test_rows_of_other_packages_are_refused_by_their_format() -> None:
    class Mine(RowDecoder):
        format = "mine"

        def decode_value(self, value: bytes) -> dict[str, Any]:
            if value == b"look":
                raise LookupError("not there")
            return {"f": int(value), "more": 1 if value == b"7" else 2} if value != b"8" else {"f": 8}

    one = Mine(schema_of(Field("f", "long", True, max=9)))
    assert verdict(one, [b"7", b"x", b"look", b"8", b"10"]) == [
        {"f": 7, "_extra": '{"more": 1}'},
        "mine",
        "mine",
        {"f": 8, "_extra": None},
        "range",
    ]


def test_frames_are_told_from_what_is_none() -> None:
    values = pa.array(
        [b"\0\0\0\1\2data", b"\0\0\0\1", b"\1\0\0\1\2", None, b"", b"\0\xff\0\0\3", b"\0\0\0\0\0"],
        pa.binary(),
    )
    assert frames_of(values).tolist() == [258, NO_FRAME, NO_FRAME, NO_FRAME, NO_FRAME, 0xFF000003, 0]
    assert frames_of(values.slice(5)).tolist() == [0xFF000003, 0]
    assert unframed(values.take(pa.array([0, 5]))).to_pylist() == [b"data", b""]


def test_varints_have_64_bits_and_no_more() -> None:
    encoded = [b"\0", b"\x7f", b"\x80\1", b"\xff" * 9 + b"\1", b"\xff" * 9 + b"\2", b"\xff" * 10 + b"\1"]
    data = b"".join(encoded)
    starts = np.cumsum([0, *map(len, encoded)])[:-1]
    reader = StepReader(data, starts, starts + np.array([*map(len, encoded)]))
    raw, at, wrong = reader.raw_varints(starts.copy())
    assert raw.tolist()[:4] == [0, 127, 128, 2**64 - 1]
    assert (at - starts).tolist()[:5] == [1, 1, 2, 10, 10]
    assert wrong.tolist() == [False] * 4 + [True] * 2


@pytest.mark.parametrize(
    ("key_value", "found"),
    [
        ((b'{"k":1}', b'{"f":2}'), (2, {"k": 1})),
        ((None, b'{"f":2}'), (2, None)),
        ((b"no", b'{"f":2}'), "key_json"),
        ((b"no", b"no"), "json"),
        ((b'{"k":1}', b"no"), "json"),
    ],
)
def test_a_key_that_cannot_be_read_refuses_its_record_beside_others(key_value: Any, found: Any) -> None:
    decoder = KeyedDecoder(
        JsonDecoder(schema_of(Field("f", "long", True))), JsonDecoder(schema_of(Field("k", "long", True)))
    )
    key, value = key_value
    known = columns([b'{"f":7}', value, b'{"f":8}'])
    held = Columns(*known[:4], pa.array([b'{"k":9}', key, None], pa.binary()), *known[5:])
    rows, table, bad = decoder.decode(held)
    made = {
        row: (one["f"], one["_key_fields"]) for row, one in zip(rows.tolist(), table.to_pylist(), strict=True)
    }
    made |= {one.row: one.reason for one in bad}
    assert made == {0: (7, {"k": 9}), 1: found, 2: (8, None)}
    assert decoder.schema.key == (Field("k", "long", True),)
    assert decoder.limits()["key"]["format"] == "json"


# --- resolution -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mine", "theirs", "is_fit"),
    [
        ("int", "long", True),
        ("long", "int", False),
        ("int", "double", True),
        ("double", "float", False),
        ("float", "double", True),
        ("string", "bytes", True),
        ("bytes", "string", True),
        ("string", "uuid", True),
        ("json", "string", False),
        ("json", "json", True),
        ("timestamp_ms", "timestamp_us", True),
        ("timestamp_ms", "local_timestamp_ms", False),
        ("boolean", "int", False),
        (Enum(("A",)), Enum(("B",)), True),
        (Enum(("A",)), "string", True),
        ("string", Enum(("A",)), False),
        (Decimal(5, 2), Decimal(5, 2), True),
        (Decimal(5, 2), Decimal(6, 2), True),
        (Decimal(6, 2), Decimal(5, 2), False),
        (Decimal(5, 2), Decimal(6, 3), False),
        (Decimal(5, 2), "string", False),
    ],
    ids=str,
)
def test_a_type_fits_where_nothing_is_lost(mine: Any, theirs: Any, is_fit: bool) -> None:
    assert resolve.fits(mine, theirs) is is_fit


def resolved(value: Any, writer: Field, reader: Field) -> Any:
    try:
        return resolve.record_value({writer.name: value}, (writer,), (reader,)).get(reader.name, "absent")
    except RefusedError as error:
        return error.reason


@pytest.mark.parametrize(
    ("value", "writer", "reader", "found"),
    [
        (5, Field("a", "int"), Field("a", "long"), 5),
        (5, Field("a", "int"), Field("b", "long", aliases=("a",)), 5),
        (5, Field("a", "int"), Field("b", "long"), "absent"),
        (5, Field("a", "int"), Field("b", "long", True), "missing_field"),
        (5, Field("a", "int"), Field("b", "long", True, default=7), 7),
        (None, Field("a", "int"), Field("a", "long"), None),
        (None, Field("a", "int"), Field("a", "long", True), "type"),
        ("x", Field("a", "string"), Field("a", "long"), "type"),
        (b"\xff", Field("a", "bytes"), Field("a", "string"), "utf8"),
        (b"x", Field("a", "bytes"), Field("a", "string"), "x"),
        ("x", Field("a", "string"), Field("a", "bytes"), b"x"),
        (16_777_217, Field("a", "int"), Field("a", "float"), 16_777_216.0),
        (16_777_217, Field("a", "int"), Field("a", "double"), 16_777_217.0),
        (5, Field("a", "int"), Field("a", "long", min=5, max=5), 5),
        (5, Field("a", "int"), Field("a", "long", min=6), "range"),
        (5, Field("a", "int"), Field("a", "long", max=4), "range"),
        ("abc", Field("a", "string"), Field("a", "string", max=2), "range"),
        (Number("1.50"), Field("a", Decimal(3, 2)), Field("a", Decimal(4, 2), max=1), "range"),
        (
            [1, None],
            Field("a", Array(Field("element", "int"))),
            Field("a", Array(Field("element", "long"))),
            [1, None],
        ),
        (
            [1, None],
            Field("a", Array(Field("element", "int"))),
            Field("a", Array(Field("element", "long", True))),
            "type",
        ),
        (
            [("k", 1)],
            Field("a", Map(Field("value", "int"))),
            Field("a", Map(Field("value", "long"))),
            [("k", 1)],
        ),
        (
            [(1, 1)],
            Field("a", Map(Field("value", "int"), "int")),
            Field("a", Map(Field("value", "long"))),
            "type",
        ),
        (
            {"x": 1},
            Field("a", Record((Field("x", "int"),))),
            Field("a", Record((Field("x", "long"), Field("y", "long")))),
            {"x": 1},
        ),
        ({"int": 5}, Field("a", Union((Field("int", "int"), Field("s", "string")))), Field("a", "long"), 5),
        (
            {"s": "x"},
            Field("a", Union((Field("int", "int"), Field("s", "string")))),
            Field("a", "long"),
            "type",
        ),
        (
            {"s": "x"},
            Field("a", Union((Field("int", "int"), Field("s", "string")))),
            Field("a", Union((Field("s", "string"),))),
            {"s": "x"},
        ),
        (5, Field("a", "int"), Field("a", Union((Field("s", "string"), Field("long", "long")))), {"long": 5}),
        (5, Field("a", "int"), Field("a", Union((Field("s", "string"),))), "type"),
    ],
)
def test_a_value_is_resolved_to_the_tables_field(
    value: Any, writer: Field, reader: Field, found: Any
) -> None:
    made = resolved(value, writer, reader)
    assert (made, type(made)) == (found, type(found))


def test_what_the_table_has_no_column_for_is_left_over() -> None:
    inner = Field("r", Record((Field("x", "int"), Field("y", "int"))))
    writer = (
        Field("a", "int"),
        inner,
        Field("l", Array(Field("element", inner.type))),
        Field("m", Map(Field("value", inner.type))),
        Field("u", Union((Field("r", inner.type),))),
        Field("z", "int"),
    )
    assert resolve.leftovers(writer, writer) == ()
    less = Record((Field("x", "int"),))
    reader = (
        Field("a", "long"),
        Field("r", less),
        Field("l", Array(Field("element", less))),
        Field("m", Map(Field("value", less))),
        Field("u", Union((Field("r", less),))),
    )
    assert [one.name for one in resolve.leftovers(writer, reader)] == ["r", "l", "m", "u", "z"]
    value = {"a": 1, "r": None, "z": 5}
    assert resolve.extra_of(value, resolve.leftovers(writer, reader), {"more": 1}) == '{"z":5,"more":1}'
    assert resolve.extra_of({"z": None}, (Field("z", "int"),)) is None


# --- text -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "empty"),
        (b" \t\r\n", "empty"),
        (b"{} x", "trailing"),
        (b"5", "type"),
        (b'{"a":NaN}', "json"),
        (b"\xff", "utf8"),
        (b'{"a":"\\ud800"}', "utf8"),
        (b'{"a":1,"b":{"c":1,"c":2}}', "duplicate_key"),
        (b'{"a":123}', "too_large"),
    ],
)
def test_what_is_no_object_has_a_reason(value: bytes, reason: str) -> None:
    with pytest.raises(RefusedError) as raised:
        parse_object(value, 8 if reason == "too_large" else 99)
    assert raised.value.reason == reason
    assert parse_object(b'{"a":12}', 8) == {"a": 12}


def test_members_are_as_they_are_written() -> None:
    text = b' { "a" : 1.50 ,\t"b":[1, {"c":2}]\n, "d":"}" } '
    assert list(members(text)) == [("a", '"a" : 1.50'), ("b", '"b":[1, {"c":2}]'), ("d", '"d":"}"')]
    exact = parse_object(b'{"a":1.50,"b":[1e2,{"c":null}],"d":"\xc3\xa4"}', exact=True)
    assert written(exact, "f") == '{"a":1.50,"b":[1e2,{"c":null}],"d":"ä"}'
    with pytest.raises(RefusedError, match="more than 400 digits"):
        written(parse_object(b'{"a":-1%b}' % (b"0" * 400)), "f")


@pytest.mark.parametrize(
    ("kind", "is_exact"),
    [
        ("long", False),
        ("double", False),
        ("json", True),
        (Decimal(5, 2), True),
        (Array(Field("e", "json")), True),
        (Array(Field("e", "long")), False),
        (Map(Field("v", Decimal(5, 2))), True),
        (Map(Field("v", "long")), False),
        (Record((Field("x", "long"), Field("y", "json"))), True),
        (Record((Field("x", "long"),)), False),
        (Union((Field("long", "long"), Field("decimal", Decimal(9, 4)))), True),
        (Union((Field("long", "long"),)), False),
    ],
    ids=str,
)
def test_numbers_keep_their_digits_where_a_field_within_wants_them(kind: Any, is_exact: bool) -> None:
    assert needs_digits((Field("a", "long"), Field("f", kind))) is is_exact
    assert not needs_digits(())


def test_a_decimal_in_a_union_has_all_its_digits() -> None:
    union = Union((Field("long", "long"), Field("decimal", Decimal(38, 20))))
    digits = "1.00000000000000000001"
    (found,) = verdict(JsonDecoder(schema_of(Field("f", union))), [b'{"f":%b}' % digits.encode()])
    assert found["f"] == {"long": None, "decimal": Number(digits)}


def test_text_that_is_none_leaves_the_others_the_fast_way() -> None:
    values = [b"a", b"\xff", "\u00e4".encode(), b"\xc3"]
    starts = np.cumsum([0, *map(len, values)])
    reader = StepReader(b"".join(values), starts[:-1], starts[1:])
    made = reader.texts(pa.array(values, pa.binary()), reader.every)
    assert reader.bad.tolist() == [False, True, False, True]
    assert [made[n].as_py() for n in (0, 2)] == ["a", "\u00e4"]
