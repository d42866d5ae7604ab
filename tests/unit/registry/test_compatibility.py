"""Changes of schemas, judged as Confluent's registry judges them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from barnabas.registry.formats import json_compatibility, parse, protobuf_compatibility
from barnabas.registry.schemas import Schema

DRAFT = "https://json-schema.org/draft/2020-12/schema"
TABLES = Path(__file__).resolve().parents[2] / "golden" / "registry"


def cases(name: str) -> list[Any]:
    rows = [json.loads(line) for line in (TABLES / name).read_text().splitlines()]
    ids = [f"{number}-{'+'.join(row['changes'])[:60]}" for number, row in enumerate(rows)]
    return [pytest.param(row, id=name) for row, name in zip(rows, ids, strict=True)]


def avro_cases() -> list[Any]:
    return [json.loads(line) for line in (TABLES / "avro.jsonl").read_text().splitlines()]


def parsed(format_name: str, case: Any, side: str) -> Any:
    text = case[side] if isinstance(case[side], str) and format_name != "JSON" else json.dumps(case[side])
    return parse(Schema(format_name, text), [*case.get(f"{side}_imports", {}).items()], is_new=True)


@pytest.mark.parametrize("case", cases("json_schema.jsonl"))
def test_json_schemas(case: Any) -> None:
    old, new = parsed("JSON", case, "old"), parsed("JSON", case, "new")
    changes = json_compatibility.changes(old.node(), new.node())
    assert json_compatibility.fits(changes) == case["fits"]
    assert (not new.breaks(old)) == case["fits"]
    if case["changes"]:  # what is told where nothing is left of a schema is nobody's business
        told = [f"{kind} {json_compatibility.shown(path)}" for kind, path in changes]
        assert sorted(told) == case["changes"]


DRAFT_4 = "http://json-schema.org/draft-04/schema#"
DESCRIPTIONS = [("id", DRAFT_4, "ID"), ("$id", DRAFT, "ID")]
DESCRIPTIONS += [
    (word, each, word.upper()) for word in ("title", "description", "default") for each in (DRAFT_4, DRAFT)
]


@pytest.mark.parametrize(("word", "draft", "kind"), DESCRIPTIONS)
def test_what_only_describes_may_change(word: str, draft: str, kind: str) -> None:
    base = {"$schema": draft, "type": "string"}
    without, with_word, other = (
        parse(Schema("JSON", json.dumps(base | more)), [], is_new=True)
        for more in ({}, {word: "http://a.example/x"}, {word: "http://a.example/y"})
    )
    for old, new in ((without, with_word), (with_word, without), (with_word, other)):
        assert json_compatibility.changes(old.node(), new.node()) == [(f"{kind}_CHANGED", "")]  # type: ignore[attr-defined]
        assert new.breaks(old) == []
    assert json_compatibility.changes(with_word.node(), with_word.node()) == []  # type: ignore[attr-defined]


LEFT_OVER = {"absent": None, "false": False, "true": True, "text": {"type": "string"}}
LEFT_OVER_CHANGES = {
    ("absent", "false"): "REMOVED",
    ("absent", "true"): "NARROWED",
    ("absent", "text"): "NARROWED",
    ("true", "false"): "REMOVED",
    ("true", "text"): "NARROWED",
    ("text", "false"): "REMOVED",
    ("false", "absent"): "ADDED",
    ("false", "true"): "ADDED",
    ("false", "text"): "ADDED",
    ("true", "absent"): "EXTENDED",
    ("text", "absent"): "EXTENDED",
    ("text", "true"): "EXTENDED",
}


@pytest.mark.parametrize(("kind", "word"), [("object", "Properties"), ("array", "Items")])
@pytest.mark.parametrize("old", LEFT_OVER)
@pytest.mark.parametrize("new", LEFT_OVER)
def test_unjudged_schema_may_grow_and_not_shrink(kind: str, word: str, old: str, new: str) -> None:
    name = f"unevaluated{word}"
    before, after = (
        parse(
            Schema("JSON", json.dumps({"$schema": DRAFT, "type": kind} | ({} if schema is None else {name: schema}))), [],
            is_new=True,
        )
        for schema in (LEFT_OVER[old], LEFT_OVER[new])
    )  # fmt: skip
    changes: Any = json_compatibility.changes(before.node(), after.node())
    change = LEFT_OVER_CHANGES.get((old, new))
    expected = [] if change is None else [f"UNEVALUATED_{word.upper()}_{change} #/{name}"]
    assert [f"{what} {json_compatibility.shown(path)}" for what, path in changes] == expected
    assert (not after.breaks(before)) == (change in (None, "ADDED", "EXTENDED"))


@pytest.mark.parametrize("case", cases("protobuf.jsonl"))
def test_protobuf_schemas(case: Any) -> None:
    old, new = parsed("PROTOBUF", case, "old"), parsed("PROTOBUF", case, "new")
    changes = protobuf_compatibility.changes(old.descriptor(), new.descriptor())
    assert sorted(f"{kind} {path}" for kind, path in changes) == case["changes"]
    assert (not new.breaks(old)) == case["fits"]


@pytest.mark.parametrize("case", avro_cases())
def test_avro_pair_has_the_verdict_of_java(case: Any) -> None:
    reader, writer = (
        parse(Schema("AVRO", json.dumps(case[side])), is_new=True) for side in ("reader", "writer")
    )
    reasons = reader.breaks(writer)
    assert (not reasons) == case["fits"]
    kinds = {reason.partition("errorType:'")[2].partition("'")[0] for reason in reasons}
    assert sorted(kinds) == case["kinds"]


def test_recursive_schema_is_compared_to_the_end() -> None:
    def node(inner: str) -> Any:
        following = {"oneOf": [{"type": "null"}, {"$ref": "#/definitions/n"}]}
        text = json.dumps(
            {
                "$ref": "#/definitions/n",
                "definitions": {
                    "n": {
                        "type": "object", "additionalProperties": False,
                        "properties": {"next": following, "v": {"type": inner}},
                    }
                },
            }
        )  # fmt: skip
        return parse(Schema("JSON", text), is_new=True)

    assert node("integer").breaks(node("integer")) == []
    assert node("number").breaks(node("integer")) == []
    assert any("TYPE_CHANGED" in difference for difference in node("string").breaks(node("integer")))
