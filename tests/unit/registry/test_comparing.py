"""The engine that compares schemas of all formats: bounds of its work and of what it tells, and properties of verdicts."""

from __future__ import annotations

import json
import time
from random import Random
from typing import Any

import pytest

from barnabas.registry.compatibility import differences
from barnabas.registry.errors import SchemaError
from barnabas.registry.formats import comparing, parse
from barnabas.registry.schemas import Schema
from tests.support import odd_schemas
from tests.support.odd_schemas import KINDS, Make
from tests.support.random_schemas import AvroPairs, JsonPairs, ProtobufPairs

PAIRS = 1_000
PAIR_CPU_SECONDS = 1.0
"""Time for one pair, of which most take a thousandth: the machine may be busy."""
PAIRS_OF = {"AVRO": AvroPairs, "JSON": JsonPairs, "PROTOBUF": ProtobufPairs}
CHARS_MAX = 2 * (comparing.MESSAGES_CHARS_MAX + 2 * comparing.MESSAGE_CHARS_MAX + 1_000)
"""Length of what is told of both directions."""


def parsed(format_name: str, text: str) -> Any:
    return parse(Schema(format_name, text), is_new=True)


def told(new: Any, old: Any) -> list[str] | None:
    """Return the differences of both directions; None where the schemas are too large to be compared."""
    begin = time.process_time()
    try:
        return differences("FULL", new, old)
    except SchemaError:
        return None
    finally:
        assert time.process_time() - begin < 3 * PAIR_CPU_SECONDS


@pytest.mark.parametrize(
    ("format_name", "make", "size"), [pytest.param(*row, id=row[1].__name__) for row in KINDS]
)
def test_schema_of_many_paths_is_compared_in_bounds(format_name: str, make: Make, size: int) -> None:
    old, new = (parsed(format_name, make(inner, size)) for inner in ("string", "long"))
    assert old.breaks(old) == []
    messages = told(new, old)
    if make is odd_schemas.json_recursion:  # some 20,000 pairs, again and again as assumptions turn out wrong
        assert messages is None
    else:
        assert messages
        assert len(messages) <= 2 * (comparing.MESSAGES_MAX + 1)
        assert sum(map(len, messages)) <= CHARS_MAX


@pytest.mark.parametrize("format_name", PAIRS_OF)
def test_random_pairs_are_compared_within_a_budget(format_name: str) -> None:
    fitting = compared = 0
    for seed in range(PAIRS):
        texts = PAIRS_OF[format_name](Random(seed)).pair()
        try:
            old, new = (parsed(format_name, text) for text in texts)
        except SchemaError:
            continue
        begin = time.process_time()
        reasons = new.breaks(old)
        assert time.process_time() - begin < PAIR_CPU_SECONDS, texts
        assert old.breaks(old) == []
        assert len(reasons) <= comparing.MESSAGES_MAX + 1
        compared += 1
        fitting += not reasons
    assert compared > PAIRS * 0.7
    assert 0.1 < fitting / compared < 0.9


def test_differences_beyond_a_bound_are_counted() -> None:
    old, new = (parsed("PROTOBUF", odd_schemas.protobuf_union(inner, 250)) for inner in ("string", "long"))
    messages = new.breaks(old)
    assert len(messages) == comparing.MESSAGES_MAX + 1
    assert messages[-1] == "and 150 more differences"
    avro = [parsed("AVRO", odd_schemas.avro_depth(inner, 130)) for inner in ("string", "long")]
    assert avro[1].breaks(avro[0])[-1] == "and 30 more differences"
    old, new = (parsed("JSON", odd_schemas.json_diamond(inner, 80)) for inner in ("string", "long"))
    assert new.breaks(old)[-1] == "and very many more differences"


def test_alternatives_are_paired_as_many_as_can_be() -> None:
    """The first fits both, the second one alone: it gets that, whichever is tried first."""
    wide, narrow = {"type": "number"}, {"type": "integer"}
    old = {"oneOf": [narrow, wide, {"type": "string"}]}
    new = {"oneOf": [wide, {**wide, "title": "x"}, {"type": "string"}]}
    before, after = (parsed("JSON", json.dumps(schema)) for schema in (old, new))
    assert after.breaks(before) == []
    before, after = (
        parsed("JSON", json.dumps({"oneOf": members}))
        for members in ([narrow, wide], [wide, {"type": "string"}])
    )
    assert any("COMBINED_TYPE_SUBSCHEMAS_CHANGED" in reason for reason in after.breaks(before))


def record(name: str, **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": "id", "type": "int"}], **more}


@pytest.mark.parametrize(
    ("reader", "writer", "fits"),
    [
        (record("Order", namespace="shop.v2"), record("Order", namespace="shop.v1"), True),
        (record("Order", namespace="shop"), record("Order"), True),
        ([record("Order", namespace="b"), "null"], ["null", record("Order", namespace="a")], True),
        (record("New", aliases=["a.Old"]), record("Old", namespace="a"), True),
        (record("New", aliases=["Old"]), record("Old", namespace="a"), False),
        (record("New"), record("Old"), False),
    ],
)
def test_avro_name_counts_by_its_last_part(reader: Any, writer: Any, *, fits: bool) -> None:
    new, old = (parsed("AVRO", json.dumps(schema)) for schema in (reader, writer))
    assert (not new.breaks(old)) == fits


def test_avro_field_of_two_of_the_writer_is_refused() -> None:
    fields = [{"name": "a", "type": "int"}, {"name": "b", "type": "int"}]
    old = {"type": "record", "name": "R", "fields": fields}
    new = {"type": "record", "name": "R", "fields": [{**fields[0], "aliases": ["b"]}]}
    own = {"type": "record", "name": "R", "fields": [{**fields[0], "aliases": ["a"]}]}
    before, after, other = (parsed("AVRO", json.dumps(schema)) for schema in (old, new, own))
    [reason] = after.breaks(before)
    assert "the reader's field a and its aliases name several of the writer's fields" in reason
    assert other.breaks(before) == []


ONEOFS = {
    "leaves a oneof that stays": (
        "oneof o { string a = 1; string b = 2; }",
        "oneof o { string b = 2; } string a = 1;",
    ),
    "enters a oneof that is there": (
        "string a = 1; oneof o { string b = 2; }",
        "oneof o { string b = 2; string a = 1; }",
    ),
    "goes to another oneof": (
        "oneof o { string a = 1; string b = 2; } oneof p { string c = 3; }",
        "oneof o { string b = 2; } oneof p { string c = 3; string a = 1; }",
    ),
    "leaves a oneof that goes": ("oneof o { string a = 1; }", "string a = 1;"),
    "leaves a oneof that goes, with another": (
        "oneof o { string a = 1; string b = 2; }",
        "string a = 1; string b = 2;",
    ),
}
ONEOF_VERDICTS = {
    "leaves a oneof that stays": (False, False),
    "enters a oneof that is there": (False, False),
    "goes to another oneof": (False, False),
    "leaves a oneof that goes": (True, True),
    "leaves a oneof that goes, with another": (True, False),
}
"""Verdicts of Confluent's releases 8.1 to 8.3: the new schema reads old data, the old one reads new data."""


@pytest.mark.parametrize("change", ONEOFS)
def test_protobuf_field_that_moves_has_its_verdict(change: str) -> None:
    old, new = (parsed("PROTOBUF", f'syntax = "proto3"; message M {{ {body} }}') for body in ONEOFS[change])
    assert (not new.breaks(old), not old.breaks(new)) == ONEOF_VERDICTS[change]
