"""Definitions are understood as Kafka publishes them, and refused with the place where they are wrong."""

from pathlib import Path

import pytest

from codegen.model import NO_VERSIONS, OPEN_END, SchemaError, Versions, snake
from codegen.parse import parse_message, parse_versions, strip_comments
from tests.support.schemas import compile_module, definition

PUBLISHED = """\
// Some licence over
// several lines.

{
  "apiKey": 500,
  "type": "response", // a comment at the end of a line
  "name": "PingResponse",
  // Version 1 has a "quoted" word in its comment, and a brace }.
  "validVersions": "0-2",
  "deprecatedVersions": "0",
  "flexibleVersions": "1+",
  "fields": [
    { "name": "Url", "type": "string", "versions": "0+", "default": "http://x", "ignorable": "true",
      "about": "Where it is." },
    { "name": "Late", "type": "int16", "taggedVersions": "1+", "tag": "0", "default": -1 },
    { "name": "Huge", "type": "int32", "versions": "2+", "default": "0x7fffffff", "entityType": "brokerId" },
    { "name": "Items", "type": "[]Item", "versions": "0+", "nullableVersions": "1+", "fields": [
      { "name": "Id", "type": "uuid", "versions": "0+", "mapKey": true } ]},
    { "name": "Spare", "type": "Item", "versions": "2+" },
    { "name": "Data", "type": "bytes", "versions": "0+", "zeroCopy": true }
  ]
}
"""


def test_a_published_definition_is_understood_as_it_is():
    message = parse_message(PUBLISHED, Path("PingResponse.json"))
    assert (message.name, message.kind, message.api_key) == ("PingResponse", "response", 500)
    assert (message.versions, message.flexible) == (Versions(0, 2), Versions(1, OPEN_END))
    fields = {field.name: field for field in message.fields}
    assert fields["Url"].default == "http://x"
    assert fields["Url"].ignorable
    assert (fields["Late"].versions, fields["Late"].tag, fields["Late"].default) == (
        Versions(1, OPEN_END),
        0,
        -1,
    )
    assert fields["Huge"].default == 0x7FFFFFFF
    assert fields["Items"].nullable == Versions(1, OPEN_END)
    assert message.structs["Item"].fields[0].map_key
    assert fields["Spare"].type.is_struct


def test_a_published_definition_becomes_working_code(tmp_path):
    codec = compile_module(tmp_path, parse_message(PUBLISHED, Path("PingResponse.json"))).RESPONSE
    message = codec.message(url="u", late=3, items=[codec.message.Item(id=b"i" * 16)], data=b"d")
    for version in (1, 2):
        assert codec.decode_whole(codec.encode_bytes(message, version), version) == message
    assert codec.decode_whole(codec.encode_bytes(codec.message(data=b"d"), 0), 0).late == -1


def test_a_message_without_valid_versions_is_left_out():
    text = '{"apiKey": 4, "type": "request", "name": "LeaderAndIsrRequest", "validVersions": "none"}'
    assert parse_message(text, Path("x.json")) is None


def test_comments_end_with_the_line_and_not_within_strings():
    assert strip_comments('{"a": "//b", // c "d"\n"e": "\\"//"}') == '{"a": "//b", \n"e": "\\"//"}'


@pytest.mark.parametrize(
    ("text", "expected"),
    [("3", Versions(3, 3)), ("0-7", Versions(0, 7)), ("2+", Versions(2, OPEN_END)), ("none", NO_VERSIONS)],
)
def test_ranges_of_versions_are_read_and_written(text, expected):
    assert parse_versions(text, "here") == expected
    assert str(expected) == text


@pytest.mark.parametrize("text", ["", "+", "3-", "5-3", "-1", "1,2", "all"])
def test_other_texts_are_no_ranges_of_versions(text):
    with pytest.raises(SchemaError, match="here"):
        parse_versions(text, "here")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("TopicData", "topic_data"),
        ("TimeoutMs", "timeout_ms"),
        ("kRaftVersion", "kraft_version"),
        ("IsKRaftController", "is_kraft_controller"),
        ("ISR", "isr"),
        ("Global", "global_"),
        ("commitTimestamp", "commit_timestamp"),
    ],
)
def test_names_become_snake_case(name, expected):
    assert snake(name) == expected


@pytest.mark.parametrize(
    ("field", "problem"),
    [
        ({"type": "int8"}, "has no 'name'"),
        ({"name": "A", "type": "int8", "versions": "0+", "nulable": True}, "A: unknown keys: nulable"),
        ({"name": "A", "type": "[][]int8", "versions": "0+"}, "A: an array of arrays"),
        ({"name": "A", "type": "int8", "versions": "0+", "fields": []}, "A: a int8 has no fields"),
        ({"name": "A", "type": "int8", "versions": "0+", "default": "x"}, "A: 'x' is no default for int8"),
        (
            {"name": "A", "type": "bool", "versions": "0+", "default": "yes"},
            "A: 'yes' is no default for bool",
        ),
        (
            {"name": "A", "type": "[]int8", "versions": "0+", "default": "1"},
            "A: the default of \\[\\]int8 can only",
        ),
        ({"name": "A", "type": "uuid", "versions": "0+", "default": "1"}, "A: '1' is no default for uuid"),
        ({"name": "A", "type": "int8", "versions": "x"}, "A: versions: 'x' is no range"),
    ],
)
def test_mistakes_name_the_file_and_the_field(field, problem):
    with pytest.raises(SchemaError, match=rf"500_PingRequest\.json: .*{problem}"):
        definition(fields=[field])


def test_a_struct_is_defined_once():
    item = {"name": "A", "type": "[]Item", "versions": "0+", "fields": []}
    with pytest.raises(SchemaError, match="B: the struct Item is defined twice"):
        definition(fields=[item, {**item, "name": "B"}])


def test_text_that_is_no_json_names_the_file():
    with pytest.raises(SchemaError, match=r"^bad\.json: not JSON"):
        parse_message("{", Path("schemas/api/bad.json"))
