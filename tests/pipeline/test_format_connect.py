"""JSON of Kafka Connect with its schema in each record, and the types of Debezium in JSON and in Avro."""

from __future__ import annotations

import json
from base64 import b64encode
from datetime import UTC, datetime
from decimal import Decimal as Number
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas_pipeline import formats
from barnabas_pipeline.errors import UsageError
from barnabas_pipeline.field_types import Array, Decimal, Field, Map, Record
from barnabas_pipeline.formats.avro import AvroDecoder, fields_of_text
from barnabas_pipeline.formats.base import EXTRA
from barnabas_pipeline.formats.connect import ConnectJsonDecoder, draft, type_of
from barnabas_pipeline.formats.json import JsonDecoder
from barnabas_pipeline.schema import NO_EVENT_TIME, EventSchema

from .decoding import careful, same, verdict, written
from .test_format_json import fields, objects

ZONED_US = int(datetime(2026, 11, 20, 1, 2, 3, 400_000, UTC).timestamp() * 1000) * 1000


def wrapped(payload: str, schema: str = '{"type":"struct","fields":[]}') -> bytes:
    return f'{{"schema":{schema},"payload":{payload}}}'.encode()


# --- payloads -------------------------------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_payload_verdicts_agree_in_any_block_and_both_ways(data: Any) -> None:
    schema = EventSchema("t", NO_EVENT_TIME, data.draw(fields()))
    assert EventSchema.from_dict(json.loads(json.dumps(schema.to_dict(), sort_keys=True))) == schema
    events = [json.dumps(row) for row in data.draw(st.lists(objects(schema.fields), min_size=1, max_size=5))]
    schemas = data.draw(st.lists(st.sampled_from(['{"a":1}', '{"payload":{"b":[2]}}', "null"]), min_size=1))
    values: list[bytes | None] = [wrapped(event, schemas[n % len(schemas)]) for n, event in enumerate(events)]
    decoder = ConnectJsonDecoder(schema)
    assert same(verdict(decoder, values), verdict(careful(decoder), values))
    assert same(verdict(decoder, values), verdict(JsonDecoder(schema), [event.encode() for event in events]))


SCHEMA = EventSchema("t", NO_EVENT_TIME, (Field("n", "long"), Field("value", "string")))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (wrapped('{"n":1}'), {"n": 1, "value": None, EXTRA: None}),
        (wrapped('{"n":1, "x" : 2}'), {"n": 1, "value": None, EXTRA: '{"x" : 2}'}),
        (b' { "payload" :\n {"n":2} , "schema":null } ', {"n": 2, "value": None, EXTRA: None}),
        (b'{"n":3}', {"n": 3, "value": None, EXTRA: None}),
        (wrapped('"text"'), {"n": None, "value": "text", EXTRA: None}),
        (wrapped("null"), {"n": None, "value": None, EXTRA: None}),
        (
            wrapped('{"n":1},"more":1'),
            {"n": None, "value": None, EXTRA: wrapped('{"n":1},"more":1').decode()},
        ),
        (wrapped('{"n":1},"payload":{}'), "duplicate_key"),
        (wrapped('{"n":1'), "json"),
        (wrapped('{"n":1}')[:-1], "json"),
        (wrapped('{"n":1}')[:-1] + b"x", "json"),
        (wrapped('{"n":1}') + b"}", "trailing"),
        (b'{"schema":1,"p\\u0061yload":{}}', "json"),
        (b"[]", "type"),
        (None, "empty"),
    ],
)
def test_a_value_is_its_payload_or_is_refused_beside_others_too(value: bytes | None, expected: Any) -> None:
    decoder = ConnectJsonDecoder(SCHEMA)
    good = wrapped('{"n":7}')
    assert verdict(decoder, [value]) == [expected]
    assert verdict(decoder, [good, value, good])[1] == expected
    assert verdict(careful(decoder), [good, value])[1] == expected


def test_decoder_is_restored_from_its_limits() -> None:
    decoder = formats.restore(SCHEMA, {"format": "connect-json", "tombstones": "keep"})
    assert isinstance(decoder, ConnectJsonDecoder)
    assert formats.restore(SCHEMA, decoder.limits()) == decoder


# --- schemas of Debezium's --------------------------------------------------------------------------------------------

COLUMNS: list[dict[str, Any]] = [
    {"type": "int64", "optional": False, "field": "id"},
    {"type": "int16", "optional": True, "field": "small"},
    {"type": "float", "optional": True, "field": "rate"},
    {"type": "int32", "optional": True, "name": "io.debezium.time.Date", "version": 1, "field": "born"},
    {"type": "int64", "optional": True, "name": "io.debezium.time.MicroTimestamp", "version": 1, "field": "at"},
    {"type": "string", "optional": True, "name": "io.debezium.time.ZonedTimestamp", "version": 1, "field": "zoned"},
    {"type": "int64", "optional": True, "name": "io.debezium.time.MicroTime", "version": 1, "field": "took"},
    {"type": "string", "optional": True, "name": "io.debezium.data.Uuid", "version": 1, "field": "tag"},
    {"type": "string", "optional": True, "name": "io.debezium.data.Json", "version": 1, "field": "data"},
    {"type": "bytes", "optional": True, "field": "raw"},
    {"type": "array", "items": {"type": "string", "optional": True}, "optional": True, "field": "tags"},
    {"type": "map", "keys": {"type": "string"}, "values": {"type": "int32"}, "optional": True, "field": "more"},
    {
        "type": "bytes", "optional": True, "name": "org.apache.kafka.connect.data.Decimal", "version": 1, "field": "total",
        "parameters": {"scale": "2", "connect.decimal.precision": "12"},
    },
]  # fmt: skip
"""As Debezium 3.3 writes them for columns of PostgreSQL's."""


def envelope(columns: list[dict[str, Any]]) -> dict[str, Any]:
    row = {"type": "struct", "fields": columns, "optional": True, "name": "s.public.orders.Value"}
    inner = [
        {**row, "field": "before"},
        {**row, "field": "after"},
        {"type": "string", "optional": False, "field": "op"},
    ]
    return {"type": "struct", "fields": inner, "optional": False, "name": "s.public.orders.Envelope"}


def test_a_schema_is_drafted_from_those_in_the_records() -> None:
    first = wrapped("{}", json.dumps(envelope(COLUMNS[:-1])))
    drafted = draft("orders", [first, None, b"x", wrapped("{}", json.dumps(envelope(COLUMNS))), first])
    assert [field.name for field in drafted.fields] == ["before", "after", "op"]
    kind = drafted.fields[1].type
    assert isinstance(kind, Record)
    assert {field.name: field.type for field in kind.fields} == {
        "id": "long",
        "small": "int",
        "rate": "float",
        "born": "date_days",
        "at": "local_timestamp_us",
        "zoned": "iso8601",
        "took": "time_us",
        "tag": "uuid",
        "data": "string",
        "raw": "bytes",
        "tags": Array(Field("element", "string")),
        "more": Map(Field("value", "int")),
        "total": Decimal(12, 2, is_bytes=True),
    }
    assert EventSchema.from_dict(json.loads(json.dumps(drafted.to_dict(), sort_keys=True))) == drafted
    with pytest.raises(UsageError, match="is none with a schema in it"):
        draft("orders", [b"{}", None])
    with pytest.raises(UsageError, match="are not of one table"):
        draft("orders", [first, wrapped("{}", '{"type":"string"}')])


def test_values_of_debezium_are_what_the_database_has() -> None:
    drafted = draft("orders", [wrapped("{}", json.dumps(envelope(COLUMNS)))])
    row = {
        "id": 1, "small": -3, "rate": 0.5, "born": -25567, "at": -14182939876544, "zoned": "2026-11-20T01:02:03.4Z",
        "took": 1, "tag": "00000000-0000-0000-0000-00000000000A", "data": '{"a":1}', "raw": "AP8=", "tags": ["a", None],
        "more": {"x": 1}, "total": b64encode((-12345).to_bytes(3, signed=True)).decode(),
    }  # fmt: skip
    value = wrapped(json.dumps({"before": None, "after": row, "op": "c"}), json.dumps(envelope(COLUMNS)))
    fast, other = (
        verdict(d, [value])[0] for d in (ConnectJsonDecoder(drafted), careful(ConnectJsonDecoder(drafted)))
    )
    assert same(fast, other)
    assert fast["after"] == row | {
        "zoned": ZONED_US, "tag": row["tag"].lower(), "raw": b"\x00\xff", "more": [("x", 1)],
        "total": Number("-123.45"),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"\0", "0.00"),
        (b"\x01\x86\x9f", "999.99"),
        (b"\xff\xfe\x79\x61", "-999.99"),
        (b"\x01\x86\xa0", "range"),
        (b"\x01" + bytes(40), "range"),
        (b"", "range"),
        (None, "type"),
    ],
)
def test_decimals_that_are_bytes_lose_no_digit(data: bytes | None, expected: str) -> None:
    schema = EventSchema("t", NO_EVENT_TIME, (Field("d", Decimal(5, 2, is_bytes=True)),))
    text = "x" if data is None else b64encode(data).decode()
    (row,) = verdict(JsonDecoder(schema), [json.dumps({"d": text}).encode()])
    assert (row if isinstance(row, str) else str(row["d"])) == expected


@pytest.mark.parametrize(
    ("parameters", "decimal"), [({"scale": "3", "connect.decimal.precision": "2"}, (3, 3)), ({}, (38, 0))]
)
def test_decimal_of_connect_holds_all_digits_of_its_scale(
    parameters: dict[str, str], decimal: tuple[int, int]
) -> None:
    schema = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": parameters}
    assert type_of(schema) == Decimal(*decimal, is_bytes=True)


AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Value",
    "fields": [
        {"name": "born", "type": {"type": "int", "connect.version": 1, "connect.name": "io.debezium.time.Date"}},
        {"name": "at", "type": ["null", {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}]},
        {"name": "ms", "type": ["null", {"type": "long", "connect.name": "io.debezium.time.Timestamp"}]},
        {"name": "took", "type": ["null", {"type": "long", "connect.name": "io.debezium.time.MicroTime"}]},
        {"name": "zoned", "type": ["null", {"type": "string", "connect.name": "io.debezium.time.ZonedTimestamp"}]},
        {
            "name": "total",
            "type": ["null", {"type": "bytes", "scale": 2, "precision": 12, "logicalType": "decimal",
                              "connect.name": "org.apache.kafka.connect.data.Decimal"}],
        },
    ],
}  # fmt: skip
"""As Confluent's converter writes Debezium's types."""


def test_names_of_connect_make_types_of_avro() -> None:
    _, held = fields_of_text(json.dumps(AVRO))
    assert [field.type for field in held] == [
        "date", "local_timestamp_us", "local_timestamp_ms", "time_us", "iso8601", Decimal(12, 2),
    ]  # fmt: skip
    schema = EventSchema("t", NO_EVENT_TIME, held)
    decoder = AvroDecoder(schema, text=json.dumps(AVRO))
    row = {
        "born": -3,
        "at": 5,
        "ms": 7,
        "took": 9,
        "zoned": "2026-11-20T01:02:03.4+05:30",
        "total": Number("-1.25"),
    }
    plain = {"type": "record", "name": "Value", "fields": [
        {"name": f["name"], "type": f["type"] if f["name"] in ("born", "total") else f["type"][1:] and
         ["null", f["type"][1]["type"]]} for f in AVRO["fields"]]}  # fmt: skip
    values: list[bytes | None] = [
        written(plain, row | {"zoned": text})
        for text in (row["zoned"], None, "2026-02-31T00:00:00Z", "soon", row["zoned"])
    ]
    expected = {
        "born": -3,
        "at": 5,
        "ms": 7000,
        "took": 9,
        "zoned": ZONED_US - 19_800_000_000,
        "total": Number("-1.25"),
        EXTRA: None,
    }
    rows = [expected, expected | {"zoned": None}, "range", "type", expected]
    assert verdict(decoder, values) == rows
    assert verdict(careful(decoder), values) == rows
    assert verdict(decoder, values[:2]) == rows[:2]
