"""The rules of the schema language: each is broken once, and the complaint says where and why."""

import json
from pathlib import Path

import pytest

from codegen.checks import check_message, check_messages
from codegen.model import SchemaError
from codegen.parse import parse_message
from tests.support.messages import all_messages
from tests.support.schemas import definition


def field(name="A", type_="int32", versions="0+", **keys):
    return {"name": name, "type": type_, "versions": versions, **keys}


def tagged(tag, name="A", type_="int32", versions="2+", **keys):
    return field(name, type_, versions, taggedVersions=versions, tag=tag, **keys)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ([field(), field()], "already has a field of that name"),
        ([field("TopicName"), field("topicName")], "already has a field of that name"),
        ([field("UnknownTaggedFields")], "already has a field of that name"),
        ([field(nullableVersions="0+")], "a int32 cannot be null"),
        ([field(type_="string", versions="2+", nullableVersions="0-1")], "nullableVersions 0-1 lie outside"),
        (
            [field(type_="string", nullableVersions="1+", default="null")],
            "the default is null, but only versions 1+",
        ),
        ([field(default="0x80000000")], "the default 2147483648 does not fit into int32"),
        ([field(type_="uint16", default="-1")], "the default -1 does not fit into uint16"),
        ([field(tag=0)], "has a tag but no taggedVersions"),
        ([field(taggedVersions="2+")], "has taggedVersions but no tag"),
        ([field(taggedVersions="2-3", tag=0)], "taggedVersions 2-3 must be open"),
        ([field(versions="3+", taggedVersions="2+", tag=0)], "taggedVersions 2\\+ go beyond versions 3\\+"),
        ([tagged(0, versions="1+")], "not all flexible"),
        ([tagged(0, type_="records")], "records cannot be tagged"),
        ([tagged(0), tagged(0, "B")], "B: the tag 0 belongs to A"),
        ([tagged(0), tagged(2, "B")], "B: has tag 2, but no field of PingRequest has tag 1"),
        ([tagged(1)], "has tag 1, but no field of PingRequest has tag 0"),
        ([field(type_="int8", flexibleVersions="none")], "flexibleVersions of a field is for strings"),
        ([field(type_="[]records")], "array of records"),
        ([field(type_="Nothing")], "there is no struct Nothing"),
        (
            [field(type_="[]Item", fields=[field("B", versions="2+")])],
            "an item of Item takes no bytes in version 0",
        ),
        ([field(type_="[]Item", fields=[field("B", "[]Item")])], "the struct Item contains itself"),
        ([{"name": "A", "type": "int8"}], "has neither versions nor taggedVersions"),
        (
            [field(type_="[]Item", versions="0+", fields=[field("B", tag=3)])],
            "B: has a tag but no taggedVersions",
        ),
    ],
)
def test_a_broken_rule_names_the_file_and_the_field(fields, problem):
    message = definition(fields=fields)
    with pytest.raises(SchemaError, match=rf"500_PingRequest\.json.*{problem}"):
        check_message(message)


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"apiKey": -1}, "a request needs an apiKey"),
        ({"validVersions": "0+"}, "validVersions must have an end"),
        ({"flexibleVersions": "2-3"}, "flexibleVersions must be open"),
        ({"type": "coordinator-key"}, "a coordinator-key has the version 0 only"),
    ],
)
def test_the_head_of_a_definition_has_rules_too(keys, problem):
    with pytest.raises(SchemaError, match=problem):
        check_message(definition(fields=[], **keys))


def test_a_struct_must_exist_in_the_versions_that_use_it():
    common = [{"name": "Item", "versions": "2+", "fields": [field("B")]}]
    message = definition(fields=[field(type_="Item", versions="1+")], commonStructs=common)
    with pytest.raises(SchemaError, match="A: Item does not exist in version 1"):
        check_message(message)


def response(**keys):
    head = {
        "apiKey": 500,
        "type": "response",
        "name": "PingResponse",
        "validVersions": "0-3",
        "flexibleVersions": "2+",
        "fields": [],
    }
    return parse_message(json.dumps({**head, **keys}), Path("schemas/api/500_PingResponse.json"))


@pytest.mark.parametrize(
    ("others", "problem"),
    [
        ([], "there is no PingResponse for this request"),
        ([response(apiKey=501)], "has the apiKey 501, its request 500"),
        ([response(validVersions="0-4")], "has versions 0-4, its request 0-3"),
        ([response(flexibleVersions="3+")], "become flexible in different versions"),
        ([response(), definition(fields=[])], "already defines PingRequest"),
        (
            [response(), definition("PongRequest", fields=[]), response(name="PongResponse")],
            "already has the apiKey 500",
        ),
    ],
)
def test_definitions_must_fit_together(others, problem):
    with pytest.raises(SchemaError, match=problem):
        check_messages([definition(fields=[]), *others])


def test_a_request_and_its_response_fit_together():
    check_messages([definition(fields=[field()]), response()])


def test_every_definition_of_the_project_keeps_the_rules():
    check_messages(list(all_messages().values()))
