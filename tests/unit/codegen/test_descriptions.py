"""The definitions are described in words, and their JSON Schema knows the same keys as the parser."""

import json
import re

import pytest

from codegen import parse
from tests.support.messages import SCHEMAS, all_messages


def words(text):
    return re.findall(r"[a-z]+", text.lower())


@pytest.mark.parametrize("message", all_messages().values(), ids=lambda message: message.name)
def test_every_message_struct_and_field_says_what_it_means(message):
    assert message.about.endswith(".")
    for _, field in message.all_fields():
        assert field.about.endswith((".", "...")), field.where
        # More than the name once more.
        assert words(field.about) != [word for word in field.attribute.split("_") if word], field.where
    raw = json.loads(message.path.read_text())
    for struct in raw.get("commonStructs", []):
        assert struct["about"].endswith("."), struct["name"]


def test_every_error_code_says_what_happened():
    errors = json.loads((SCHEMAS / "errors.json").read_text())["errors"]
    assert [error["code"] for error in errors] == list(range(-1, 137))
    assert all(error["about"].endswith(".") for error in errors)


def test_the_json_schema_knows_the_same_keys_as_the_parser():
    definitions = json.loads((SCHEMAS / "schema.json").read_text())["$defs"]
    assert set(definitions["message"]["properties"]) == parse.MESSAGE_KEYS
    assert set(definitions["struct"]["properties"]) == parse.STRUCT_KEYS
    assert set(definitions["field"]["properties"]) == parse.FIELD_KEYS
    assert set(definitions["message"]["properties"]["type"]["enum"]) == parse.KINDS


def test_the_definitions_are_strict_json():
    for path in SCHEMAS.rglob("*.json"):
        json.loads(path.read_text(encoding="utf-8"))
