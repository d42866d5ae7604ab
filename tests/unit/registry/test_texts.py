"""Texts of schemas: taken, refused and printed as the libraries that others use do it (tests/golden/registry)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from barnabas.registry.errors import SchemaError
from barnabas.registry.formats import parse
from barnabas.registry.schemas import Schema

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "registry"


def golden(name: str) -> list[Any]:
    return [json.loads(line) for line in (GOLDEN / f"{name}_texts.jsonl").read_text().splitlines()]


def kept(format_name: str, text: str, *, is_new: bool = True) -> str | None:
    """Return the text that is kept of a schema; None for one that is refused."""
    try:
        return parse(Schema(format_name, text), is_new=is_new).text
    except SchemaError:
        return None


WRAPPED_NAME = '{"type":"record","name":"R","fields":[{"name":"a","type":{"type":"R"}}]}'
PLAIN_NAME = '{"type":"record","name":"R","fields":[{"name":"a","type":"R"}]}'
"""Avro before 1.12.2, and so Confluent's registry 8.1, takes a name as the type of a type."""


def test_avro_takes_and_prints_what_avro_for_java_does() -> None:
    differing = {}
    for case in golden("avro"):
        text = case["text"]
        printed = text if case.get("printed") is True else case.get("printed")
        if (again := kept("AVRO", text)) != printed:
            differing[text] = again
    assert differing == {WRAPPED_NAME: PLAIN_NAME}


def test_what_avro_has_printed_is_taken_and_stays_as_it_is() -> None:
    for case in golden("avro"):
        if printed := case["text"] if case.get("printed") is True else case.get("printed"):
            assert kept("AVRO", printed, is_new=False) == printed
            parsed = parse(Schema("AVRO", printed))
            normal = parsed.normalized()
            assert parse(Schema("AVRO", normal)).normalized() == normal


@pytest.mark.parametrize(
    "text",
    [
        " int", '{"type":{"type":"int"}}', '{"type":"record","name":"int","fields":[]}',
        '{"type":"record","name":"R","fields":[{"name":"a","type":"double","default":NaN}]}',
        '{"type":"record","name":"R","fields":[{"name":"a","type":"long","default":9223372036854775808}]}',
        '{"type":"record","name":"R","fields":[],"aliases":null}',
    ],
)  # fmt: skip
def test_what_older_releases_have_kept_is_read_and_is_json(text: str) -> None:
    assert kept("AVRO", text) is None
    printed = kept("AVRO", text, is_new=False)
    assert printed is not None

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    json.loads(printed, parse_constant=refuse)


JSON_LOOSER = {
    f'{{{head}"enum":{value}}}'
    for head in ("", *(f'"$schema":"http://json-schema.org/draft-0{draft}/schema#",' for draft in (6, 7)))
    for value in ("[]", '["string","string"]')
}
"""The specification says that an enum SHOULD have values, each once; jsonschema and Confluent's registry take these."""
JSON_STRICTER = {'{"maximum":1e400}'}
"""Python has no number of this size, and what is given back must not be another one."""


def test_json_schemas_are_held_to_the_meta_schema_of_their_draft() -> None:
    looser, stricter = set(), set()
    for case in golden("json_schema"):
        looser |= {
            text for value in case["refused"] if kept("JSON", text := case["text"] % value) is not None
        }
        stricter |= {text for value in case["taken"] if kept("JSON", text := case["text"] % value) is None}
    assert (looser, stricter) == (JSON_LOOSER, JSON_STRICTER)


PROTOBUF_LOOSER = {
    'syntax = "proto3";\nenum E { reserved = 0; }', 'syntax = "proto3";\nenum E { option = 0; }',
    'syntax = "proto3";\nmessage M { repeated int32 a = 1 [deprecated = true,]; }',
    'syntax = "proto3";\nenum E { A = 0 [deprecated = true,]; }',
}  # fmt: skip
"""The grammar of the parser, which is Buf's, has these."""
PROTOBUF_STRICTER = {'syntax = "proto3";\nmessage M { reserved 536870912; string a = 1; }'}
"""No field may have the number, so that nothing is lost."""


def test_protobuf_takes_what_protoc_does_and_refuses_the_rest() -> None:
    looser, stricter = set(), set()
    for case in golden("protobuf"):
        is_taken = kept("PROTOBUF", case["text"]) is not None
        if is_taken and not (case["protoc"] or case["wire"]):
            looser.add(case["text"])
        if case["protoc"] and not is_taken:
            stricter.add(case["text"])
    assert (looser, stricter) == (PROTOBUF_LOOSER, PROTOBUF_STRICTER)
