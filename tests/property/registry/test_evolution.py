"""Changes that are judged harmless: whatever was written before can be read afterwards."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from itertools import count
from typing import Any

import fastavro
import jsonschema
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from barnabas.registry.formats import json_compatibility, parse
from barnabas.registry.schemas import Schema
from tests.support.effort import examples

# --- Avro: fastavro resolves the reader's schema with the writer's --------------------------------------------------

PRIMITIVES = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "string": st.text(max_size=5),
}
DEFAULTS = {"null": None, "boolean": False, "int": 0, "long": 0, "float": 0.0, "double": 0.0, "string": ""}
SYMBOLS = ["A", "B", "C"]


@st.composite
def avro_types(draw: Any, depth: int = 2) -> Any:
    kinds = [*PRIMITIVES, "enum", *(["array", "map", "record", "union"] if depth else [])]
    kind = draw(st.sampled_from(kinds))
    if kind in PRIMITIVES:
        return kind
    if kind == "enum":
        symbols = draw(st.lists(st.sampled_from(SYMBOLS), min_size=1, unique=True))
        default = {"default": symbols[0]} if draw(st.booleans()) else {}
        return {"type": "enum", "name": "E", "symbols": symbols, **default}
    if kind == "array":
        return {"type": "array", "items": draw(avro_types(depth - 1))}
    if kind == "map":
        return {"type": "map", "values": draw(avro_types(depth - 1))}
    if kind == "union":
        return draw(st.lists(st.sampled_from(list(PRIMITIVES)), min_size=1, max_size=3, unique=True))
    names = draw(st.lists(st.sampled_from("abc"), unique=True, max_size=3))
    fields = [{"name": name, "type": draw(avro_types(depth - 1))} for name in names]
    return {"type": "record", "name": "R", "fields": fields}


def named(given_type: Any, numbers: Iterator[int]) -> Any:
    """Return a type in which each type of its own has a name of its own."""
    if isinstance(given_type, list):
        return [named(branch, numbers) for branch in given_type]
    if not isinstance(given_type, dict):
        return given_type
    renamed = {
        name: named(value, numbers) if name in ("items", "values", "type") else value
        for name, value in given_type.items()
    }
    if "fields" in renamed:
        renamed["fields"] = [{**field, "type": named(field["type"], numbers)} for field in renamed["fields"]]
    return {**renamed, "name": f"{renamed['name']}{next(numbers)}"} if "name" in renamed else renamed


@st.composite
def evolved(draw: Any, given_type: Any) -> Any:
    """A type that another one may have become."""
    if isinstance(given_type, str):
        return draw(st.sampled_from([given_type, "long", "double", "string", [given_type]]))
    if isinstance(given_type, list):
        return draw(st.sampled_from([given_type, given_type[:1], [*dict.fromkeys([*given_type, "string"])]]))
    if given_type["type"] == "array":
        return {**given_type, "items": draw(evolved(given_type["items"]))}
    if given_type["type"] == "map":
        return {**given_type, "values": draw(evolved(given_type["values"]))}
    if given_type["type"] == "enum":
        symbols = draw(st.lists(st.sampled_from(SYMBOLS), min_size=1, unique=True))
        default = {"default": symbols[0]} if draw(st.booleans()) else {}
        return {"type": "enum", "name": given_type["name"], "symbols": symbols, **default}
    fields = [
        {"name": field["name"], "type": draw(evolved(field["type"]))}
        for field in given_type["fields"]
        if draw(st.integers(0, 3))
    ]
    if draw(st.booleans()):
        added = draw(st.sampled_from(list(PRIMITIVES)))
        default = {"default": DEFAULTS[added]} if draw(st.booleans()) else {}
        fields.append({"name": "added", "type": added, **default})
    return {**given_type, "fields": fields}


@st.composite
def values_of(draw: Any, given_type: Any) -> Any:
    if isinstance(given_type, str):
        return draw(PRIMITIVES[given_type])
    if isinstance(given_type, list):
        return draw(values_of(draw(st.sampled_from(given_type))))
    if given_type["type"] == "enum":
        return draw(st.sampled_from(given_type["symbols"]))
    if given_type["type"] == "array":
        return draw(st.lists(values_of(given_type["items"]), max_size=2))
    if given_type["type"] == "map":
        return draw(st.dictionaries(st.text(max_size=2), values_of(given_type["values"]), max_size=2))
    return {field["name"]: draw(values_of(field["type"])) for field in given_type["fields"]}


@given(st.data())
def test_avro_that_is_compatible_is_read(data: st.DataObject) -> None:
    old = named(data.draw(avro_types()), count())
    new = data.draw(evolved(old))
    writer, reader = (parse(Schema("AVRO", json.dumps(text)), is_new=True) for text in (old, new))
    assume(not reader.breaks(writer))
    value = data.draw(values_of(old))
    target = io.BytesIO()
    fastavro.schemaless_writer(target, fastavro.parse_schema(old), value)
    target.seek(0)
    fastavro.schemaless_reader(target, fastavro.parse_schema(old), fastavro.parse_schema(new))
    assert reader.breaks(reader) == writer.breaks(writer) == []


@given(st.data())
def test_avro_goes_through_json_and_back(data: st.DataObject) -> None:
    old = named(data.draw(avro_types()), count())
    schema = parse(Schema("AVRO", json.dumps(old)), is_new=True)
    assert parse(Schema("AVRO", schema.text)).text == schema.text
    first = schema.encode(data.draw(values_of(old)))
    value = json.loads(json.dumps(schema.decode(first)))
    assert schema.decode(schema.encode(value)) == value


# --- JSON Schema: what fits the old schema fits the new one ---------------------------------------------------------


@st.composite
def json_schemas(draw: Any, depth: int = 2) -> Any:
    kind = draw(
        st.sampled_from(
            [
                "integer",
                "number",
                "string",
                "boolean",
                "enum",
                *(["object", "array", "oneOf"] if depth else []),
            ]
        )
    )
    if kind in ("integer", "number"):
        bounds = {
            "minimum": st.integers(-3, 3),
            "maximum": st.integers(-3, 3),
            "multipleOf": st.integers(1, 3),
        }
        return {"type": kind, **draw(st.fixed_dictionaries({}, optional=bounds))}
    if kind == "string":
        bounds = {"minLength": st.integers(0, 2), "maxLength": st.integers(0, 3)}
        return {"type": "string", **draw(st.fixed_dictionaries({}, optional=bounds))}
    if kind == "boolean":
        return {"type": "boolean"}
    if kind == "enum":
        return {"enum": draw(st.lists(st.sampled_from([1, 2, "a", "b", None]), min_size=1, unique=True))}
    if kind == "oneOf":
        return {"anyOf": draw(st.lists(json_schemas(depth - 1), min_size=1, max_size=3))}
    if kind == "array":
        rest = {"minItems": st.integers(0, 2), "maxItems": st.integers(0, 3)}
        return {
            "type": "array",
            "items": draw(json_schemas(depth - 1)),
            **draw(st.fixed_dictionaries({}, optional=rest)),
        }
    properties = draw(st.dictionaries(st.sampled_from("abc"), json_schemas(depth - 1), max_size=3))
    required = draw(st.lists(st.sampled_from(sorted(properties)), unique=True)) if properties else []
    rest = draw(
        st.sampled_from([{}, {"additionalProperties": False}, {"additionalProperties": {"type": "string"}}])
    )
    return {"type": "object", "properties": properties, "required": required, **rest}


@st.composite
def documents(draw: Any, schema: Any) -> Any:
    """A document that may fit a schema."""
    if "enum" in schema:
        return draw(st.sampled_from(schema["enum"]))
    if "anyOf" in schema:
        return draw(documents(draw(st.sampled_from(schema["anyOf"]))))
    kind = schema["type"]
    if kind == "object":
        document = {
            name: draw(documents(inner))
            for name, inner in schema["properties"].items()
            if draw(st.integers(0, 3))
        }
        extra = draw(st.dictionaries(st.sampled_from("abcd"), st.sampled_from(["x", 1]), max_size=1))
        return {**extra, **document}
    if kind == "array":
        size = draw(st.sampled_from([schema.get("minItems", 0), schema.get("maxItems", 3)]))
        return draw(st.lists(documents(schema["items"]), min_size=size, max_size=size))
    edges = st.sampled_from([schema.get(name, 0) for name in ("minimum", "maximum", "multipleOf")])
    sizes = st.sampled_from([schema.get(name, 0) for name in ("minLength", "maxLength")])
    simple = {
        "integer": edges | st.integers(-3, 3),
        "number": edges | st.sampled_from([-1.5, 0, 0.5, 2, 3]),
        "string": sizes.map(lambda size: "x" * size) | st.text("ab", max_size=3),
        "boolean": st.booleans(),
    }
    return draw(simple[kind])


@st.composite
def changed(draw: Any, schema: Any) -> Any:
    """A schema that another one may have become."""
    new = {
        name: value for name, value in schema.items()
        if name in ("type", "properties", "items", "anyOf", "enum", "required") or draw(st.integers(0, 2))
    }  # fmt: skip
    for name in ("minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "multipleOf"):
        if name in new and new[name] > 0 and draw(st.booleans()):
            step = draw(st.sampled_from([-1, 1]))
            new[name] = max(new[name] + step, 1)
    if "properties" in new:
        new["properties"] = {
            name: draw(changed(inner)) for name, inner in new["properties"].items() if draw(st.integers(0, 4))
        }
        if draw(st.booleans()):
            new["properties"]["d"] = draw(json_schemas(0))
        new["required"] = [field for field in new["required"] if draw(st.booleans())]
    if "items" in new:
        new["items"] = draw(changed(new["items"]))
    if "anyOf" in new:
        new["anyOf"] = [draw(changed(inner)) for inner in new["anyOf"]]
        if draw(st.booleans()):
            new["anyOf"].append(draw(json_schemas(0)))
    if new.get("type") == "integer" and draw(st.booleans()):
        new["type"] = "number"
    if draw(st.integers(0, 9)) == 0:
        return draw(json_schemas(1))
    return new


@settings(max_examples=examples(300), suppress_health_check=[HealthCheck.filter_too_much])
@given(st.data())
def test_json_that_fitted_fits_after_a_harmless_change(data: st.DataObject) -> None:
    old = data.draw(json_schemas())
    new = data.draw(changed(old))
    before, after = (parse(Schema("JSON", json.dumps(text)), is_new=True) for text in (old, new))
    assert json_compatibility.changes(before.node(), before.node()) == []  # type: ignore[attr-defined]
    assume(not after.breaks(before))
    document = data.draw(documents(old))
    assume(jsonschema.Draft7Validator(old).is_valid(document))
    assert jsonschema.Draft7Validator(new).is_valid(document)
