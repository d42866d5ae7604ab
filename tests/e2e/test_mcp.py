"""`barnabas mcp` beside the client of the protocol's own SDK: over standard streams and over HTTP."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import PIPE
from typing import Any

import httpx2
import pytest
import trio
from mcp import Client, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from barnabas.testing.running import import_path
from tests.support.pages import ROOT

pytestmark = pytest.mark.e2e

ENVIRONMENT = {"PYTHONPATH": import_path(ROOT), "PATH": os.environ["PATH"]}
PATIENCE_S = 60


@asynccontextmanager
async def program(*words: str) -> AsyncIterator[str]:
    """Start a command of ours; yields the line with which it is ready, and ends it."""
    command = [sys.executable, "-m", "barnabas", *words]
    async with trio.open_nursery() as nursery:
        process = await nursery.start(
            lambda task_status: trio.run_process(
                command,
                stdin=PIPE,
                stdout=PIPE,
                env={**os.environ, **ENVIRONMENT},
                check=False,
                task_status=task_status,
            )
        )
        line = b""
        with trio.fail_after(PATIENCE_S):
            while not line.endswith(b"\n"):
                line += await process.stdout.receive_some(1000)
        yield line.decode()
        process.terminate()


@asynccontextmanager
async def steered_broker() -> AsyncIterator[Mapping[str, Any]]:
    """Start a broker with a control API."""
    async with program("test-server", "--set", "clock.virtual=true") as line:
        yield json.loads(line)


def over_streams(*words: str) -> Client:
    command = ["-m", "barnabas", "mcp", *words]
    return Client(stdio_client(StdioServerParameters(command=sys.executable, args=command, env=ENVIRONMENT)))


async def answer_of(client: Client, tool: str, /, **arguments: Any) -> Any:
    """The answer of a tool, or its error as text."""
    with trio.fail_after(PATIENCE_S):
        result = await client.call_tool(tool, arguments)
    text = result.content[0].text
    if result.is_error:
        return text
    assert json.loads(text) == result.structured_content
    return result.structured_content


async def test_agent_over_standard_streams_reads_only() -> None:
    async with steered_broker() as broker, over_streams("-b", broker["bootstrap_servers"]) as client:
        tools = (await client.list_tools()).tools
        assert all(tool.annotations.read_only_hint for tool in tools)
        assert {"list_topics", "search_records", "describe_group"} <= {tool.name for tool in tools}
        assert (await answer_of(client, "cluster_overview"))["cluster"]["brokers"] == 1
        assert (await answer_of(client, "list_topics"))["rows"] == []
        assert "--write" in await answer_of(client, "create_topic", name="orders")
        assert "no topic 'nosuch'" in await answer_of(client, "describe_topic", topic="nosuch")
        assert "limit" in await answer_of(client, "read_records", topic="nosuch", limit=[])


async def test_agent_over_http_writes_and_steers(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.touch(0o600)
    token.write_text("s3cret\n")
    async with steered_broker() as broker:
        words = ("mcp", "-b", broker["bootstrap_servers"], "--control", broker["control_url"], "--write",
                 "--http", "127.0.0.1:0", "--token-file", str(token))  # fmt: skip
        async with program(*words) as line:
            url = line.split("mcp=")[1].split()[0]
            headers = {"Authorization": "Bearer s3cret"}
            async with httpx2.AsyncClient() as stranger:
                assert (await stranger.post(url, json={})).status_code == 401
            async with (
                httpx2.AsyncClient(headers=headers, timeout=PATIENCE_S) as http,
                Client(streamable_http_client(url, http_client=http)) as client,
            ):
                await answer_of(client, "create_topic", name="orders", partitions=2)
                records = [{"key": str(n), "value": json.dumps({"total": n})} for n in range(50, 70)]
                sent = await answer_of(client, "produce_records", topic="orders", records=records)
                assert len(sent["sent"]) == 20
                matches = await answer_of(
                    client, "search_records", topic="orders", where="$.total > 60", limit=3
                )
                assert {record["key"]["text"] for record in matches["records"]} <= {
                    str(n) for n in range(61, 70)
                }
                assert len(matches["records"]) == 3
                page = await answer_of(client, "read_records", topic="orders", limit=5)
                assert len(page["records"]) == 5
                assert "confirm" in await answer_of(client, "delete_topic", topic="orders", confirm="no")
                requests = await answer_of(client, "list_requests", api="CreateTopics")
                assert requests["requests"][0]["client_id"] == "barnabas-mcp"
                before = (await answer_of(client, "show_clock"))["now_ms"]
                await answer_of(client, "freeze_clock")
                after = await answer_of(client, "advance_clock", ms=3_600_000)
                assert after["now_ms"] - before >= 3_600_000
                await answer_of(client, "add_fault", on={"api": "Fetch"}, do={"delay_ms": 1})
                assert len((await answer_of(client, "list_faults"))["faults"]) == 1


async def test_reading_tools_answer_with_least_arguments() -> None:
    async with steered_broker() as broker:
        words = ("-b", broker["bootstrap_servers"], "--control", broker["control_url"])
        async with over_streams(*words) as client:
            for tool in (await client.list_tools()).tools:
                types = tool.input_schema["properties"]
                required = {
                    name: 0 if types[name].get("type") == "integer" else "0"
                    for name in tool.input_schema["required"]
                }
                answer = await answer_of(client, tool.name, **required)
                assert "internal error" not in str(answer), tool.name


async def test_page_of_a_browser_gets_no_answer() -> None:
    async with (
        steered_broker() as broker,
        program("mcp", "-b", broker["bootstrap_servers"], "--http", "127.0.0.1:0") as line,
    ):
        url = line.split("mcp=")[1].split()[0]
        async with httpx2.AsyncClient(timeout=PATIENCE_S) as http:
            assert (
                await http.post(url, json={}, headers={"Origin": "http://evil.example"})
            ).status_code == 403
            assert (await http.post(url, json={}, headers={"Host": "evil.example"})).status_code == 403
            assert (await http.post(url, content=b"[" * 9_000_000)).status_code == 413
            async with Client(url) as client:
                assert (await answer_of(client, "list_groups"))["rows"] == []
