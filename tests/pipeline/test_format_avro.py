"""Avro is decoded as fastavro decodes it, or refused with a reason; in any company, the fast way and the careful way
alike."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas_pipeline.formats.avro import AvroDecoder, fields_of_text
from barnabas_pipeline.formats.base import EXTRA
from barnabas_pipeline.schema import NO_EVENT_TIME, EventSchema
from tests.pipeline.decoding import careful, columns, same, spoil, verdict, written

INT64 = 1 << 63


def decoder_of(schema: Any, **more: Any) -> AvroDecoder:
    text = json.dumps(schema)
    name, fields = fields_of_text(text)
    return AvroDecoder(EventSchema(name or "t", NO_EVENT_TIME, fields), text=text, **more)


# --- schemas and values of all types ----------------------------------------------------------------------------------

TEXT = st.text(st.characters(codec="utf-8"), max_size=5)
PLAIN: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(1 << 31), (1 << 31) - 1),
    "long": st.integers(-INT64, INT64 - 1) | st.sampled_from([-INT64, INT64 - 1, 0, -1]),
    "float": st.floats(width=32),
    "double": st.floats(),
    "bytes": st.binary(max_size=5),
    "string": TEXT,
}


@st.composite
def schemas(draw: Any, depth: int = 2, place: str = "r") -> tuple[Any, st.SearchStrategy[Any]]:
    """A schema, and its values as fastavro takes them."""
    kinds = [*PLAIN, "enum", "fixed"] + (["array", "map", "record", "optional", "union"] if depth else [])
    kind = draw(st.sampled_from(kinds))
    if kind in PLAIN:
        return kind, PLAIN[kind]
    if kind == "enum":
        return {"type": "enum", "name": f"E{place}", "symbols": ["A", "B", "C"]}, st.sampled_from("ABC")
    if kind == "fixed":
        size = draw(st.integers(1, 20))
        return {"type": "fixed", "name": f"F{place}", "size": size}, st.binary(min_size=size, max_size=size)
    if kind == "record":
        fields = [draw(schemas(depth - 1, f"{place}{n}")) for n in range(draw(st.integers(1, 3)))]
        schema = {
            "type": "record",
            "name": f"R{place}",
            "fields": [{"name": f"f{n}", "type": type_} for n, (type_, _) in enumerate(fields)],
        }
        return schema, st.fixed_dictionaries({f"f{n}": values for n, (_, values) in enumerate(fields)})
    if kind == "union":
        named, held = draw(
            schemas(depth - 1, f"{place}u").filter(
                lambda p: isinstance(p[0], dict) and p[0]["type"] in ("record", "array", "map")
            )
        )
        extra = draw(st.sampled_from([["null"], []]))
        values = st.integers(-5, 5) | TEXT | (st.none() if extra else st.nothing())
        values |= held
        return [*extra, "long", "string", named], values
    inner, values = draw(
        schemas(depth - 1, f"{place}i").filter(lambda p: p[0] != "null" and not isinstance(p[0], list))
    )
    if kind == "optional":
        branches = draw(st.permutations(["null", inner]))
        return list(branches), st.none() | values
    if kind == "array":
        return {"type": "array", "items": inner}, st.lists(values, max_size=4)
    return {"type": "map", "values": inner}, st.dictionaries(TEXT, values, max_size=3)


@st.composite
def records(draw: Any) -> tuple[Any, st.SearchStrategy[Any]]:
    fields = [draw(schemas(place=f"x{n}")) for n in range(draw(st.integers(1, 4)))]
    schema = {
        "type": "record",
        "name": "Top",
        "fields": [{"name": f"f{n}", "type": type_} for n, (type_, _) in enumerate(fields)],
    }
    return schema, st.fixed_dictionaries({f"f{n}": values for n, (_, values) in enumerate(fields)})


def expected(schema: Any, value: Any) -> Any:
    """The column's value for what fastavro has read."""
    if isinstance(schema, list):
        if value is None:
            return None
        others = [branch for branch in schema if branch != "null"]
        if len(others) == 1:
            return expected(others[0], value)
        named = {"long": None, "string": None, _name(others[2]): None}
        chosen = others[0] if isinstance(value, int) else others[1] if isinstance(value, str) else others[2]
        return {**named, _name(chosen): expected(chosen, value)}
    kind = schema if isinstance(schema, str) else schema["type"]
    if kind == "array":
        return [expected(schema["items"], item) for item in value]
    if kind == "map":
        return [(key, expected(schema["values"], item)) for key, item in value.items()]
    if kind == "record":
        return {field["name"]: expected(field["type"], value[field["name"]]) for field in schema["fields"]}
    return value


def _name(schema: Any) -> str:
    return schema if isinstance(schema, str) else schema.get("name", schema["type"])


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_values_of_all_types_are_what_fastavro_reads(data: Any) -> None:
    schema, values = data.draw(records())
    decoder = decoder_of(schema)
    held = data.draw(st.lists(values, min_size=1, max_size=6))
    encoded = [written(schema, number) for number in held]
    rows = []
    for message in encoded:
        read = fastavro.schemaless_reader(io.BytesIO(message), fastavro.parse_schema(schema), None)
        rows.append({**expected(schema, read), EXTRA: None})
    for way in (decoder, careful(decoder)):
        assert same(verdict(way, list(encoded)), rows)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_verdicts_on_any_bytes_agree_in_any_block_and_both_ways(data: Any) -> None:
    schema, values = data.draw(records())
    decoder = decoder_of(schema)
    good = values.map(lambda value: written(schema, value))
    spoilt = st.builds(
        spoil, good, st.integers(0, 40), st.integers(0, 255), st.sampled_from(["cut", "set", "add"])
    )
    many = data.draw(st.lists(good | spoilt | st.binary(max_size=12) | st.none(), min_size=1, max_size=6))
    alone = [row for value in many for row in verdict(careful(decoder), [value])]
    assert same(verdict(careful(decoder), many), alone)
    assert same(verdict(decoder, many), alone)
    for value, row in zip(many, alone, strict=True):
        if isinstance(row, dict):  # fastavro agrees with whatever is good
            assert value is not None
            source = io.BytesIO(value)
            read = fastavro.schemaless_reader(source, fastavro.parse_schema(schema), None)
            assert source.tell() == len(value)
            assert same({**expected(schema, read), EXTRA: None}, row)
        else:
            assert row in ("empty", "avro", "utf8")


def test_good_records_take_the_fast_way() -> None:
    schema = {
        "type": "record",
        "name": "T",
        "fields": [
            {"name": "a", "type": "long"},
            {"name": "b", "type": ["null", "string"]},
            {"name": "c", "type": {"type": "array", "items": "int"}},
            {"name": "d", "type": {"type": "map", "values": "double"}},
        ],
    }
    values = [
        written(schema, {"a": n, "b": "x" * n if n % 2 else None, "c": [*range(n % 9)], "d": {"k": 1.0}})
        for n in range(70)
    ]
    parts, doubtful = decoder_of(schema)._decode_fast(columns([*values, b"\x01"]))
    assert [len(rows) for rows, _ in parts] == [70]
    assert doubtful.tolist() == [70]
