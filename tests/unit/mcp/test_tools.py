"""The table of tools: every row has a route, a schema and an example that fits it."""

from __future__ import annotations

import json
import re

import jsonschema
import pytest

from barnabas.console.routes import router as console_router
from barnabas.mcp.calling import ToolFailedError, bounded, check_arguments
from barnabas.mcp.server import Lines
from barnabas.mcp.tools import Tool, tools_of
from barnabas.tools.control.routes import router as control_router

TOOLS = tools_of(has_control=True, may_write=True)


def sample(tool: Tool, name: str) -> object:
    """A value of the type that a parameter has."""
    schema = tool.properties[name]
    values = {"integer": schema.get("minimum", 0), "number": 1, "boolean": True, "array": [], "object": {}}
    return schema["enum"][0] if "enum" in schema else values.get(schema.get("type"), "0")


@pytest.mark.parametrize("tool", TOOLS.values(), ids=lambda tool: tool.name)
def test_tool_has_a_route_and_a_schema(tool: Tool) -> None:
    jsonschema.Draft202012Validator.check_schema(tool.input_schema)
    arguments = dict.fromkeys(re.findall(r"{(\w+)}", tool.path), "0")
    path, query, body = tool.request(arguments)
    router = control_router() if tool.is_control else console_router()
    assert router.find(tool.method, path)[1] == arguments
    assert (query, body) == ({}, {})
    assert set(tool.required) <= set(tool.properties)
    assert len(tool.name) <= 64
    example = re.search(r"Example: (.*)$", tool.description)
    if example:
        check_arguments(tool, json.loads(example[1]))
    with pytest.raises(ToolFailedError, match="nosuch"):
        check_arguments(tool, {**{name: sample(tool, name) for name in tool.required}, "nosuch": 1})


def test_tools_without_write_only_read() -> None:
    reading = tools_of(has_control=True, may_write=False).values()
    assert {tool.method for tool in reading} == {"GET"}
    assert {
        tool.name for tool in tools_of(has_control=False, may_write=True).values() if tool.is_control
    } == set()
    assert all(tool.is_write for tool in TOOLS.values() if tool.is_destructive)


def test_arguments_go_into_path_query_and_body() -> None:
    arguments = {"topic": "a/b", "records": [{"value": "x"}], "compression": "zstd"}
    assert TOOLS["produce_records"].request(arguments) == (
        "/api/topics/a%2Fb/records", {}, {"records": [{"value": "x"}], "compression": "zstd"},
    )  # fmt: skip
    assert TOOLS["read_records"].request({"topic": "t", "committed": True, "limit": 3}) == (
        "/api/topics/t/records", {"committed": "true", "limit": "3"}, {},
    )  # fmt: skip


def test_long_answer_is_refused_with_a_way_out() -> None:
    assert bounded(None) == {"done": True}
    assert bounded([1]) == {"answer": [1]}
    with pytest.raises(ToolFailedError, match="ask for less"):
        bounded({"text": "x" * 400_000})


async def test_message_without_end_ends_the_server(tmp_path) -> None:
    path = tmp_path / "in"
    path.write_bytes(b'{"a": 1}\n{"b"' + b" " * (9 << 20) + b"}\n")
    with path.open("rb") as file:
        assert [line async for line in Lines(file.fileno())] == ['{"a": 1}']
