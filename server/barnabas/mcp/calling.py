"""Calls of tools: the request of a tool, and its answer as one JSON object of bounded size.

The rule: an error of the cluster, or a wrong argument, is a sentence for the agent; nothing ends the server.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import jsonschema
import trio

from barnabas.client import ClientError
from barnabas.console.base import ConsoleError, Events
from barnabas.console.routes import dispatch, failure_of
from barnabas.console.sessions import Sessions
from barnabas.mcp.tools import Tool
from barnabas.testing.process import HttpControl

ANSWER_CHARS_MAX = 400_000
"""Length of an answer: more would take all that an agent can remember."""
ARGUMENT_CHARS_MAX = 300
CALLS_MAX = 8
"""Calls that are answered at a time; others wait."""
LIMIT_DEFAULT = 20
"""Records of a response, if the agent gives no number."""
Progress = Callable[[float, float], Awaitable[None]]
"""Tells how far a call is, and of how much."""


class ToolFailedError(Exception):
    """A call that cannot be done; the text is for the agent."""


class Caller:
    """Lifecycle: until its sessions end."""

    def __init__(self, tools: Mapping[str, Tool], sessions: Sessions, control: HttpControl | None) -> None:
        self._tools = tools
        self._sessions = sessions
        self._control = control
        self._places = trio.CapacityLimiter(CALLS_MAX)

    async def call(self, name: str, arguments: Mapping[str, Any], progress: Progress) -> dict[str, Any]:
        """Return the answer of a tool. Raises ToolFailedError."""
        tool = self._tools.get(name)
        if tool is None:
            raise ToolFailedError(
                f"there is no tool {name[:ARGUMENT_CHARS_MAX]!r}; tools that change something need --write"
            )
        check_arguments(tool, arguments)
        if "limit" in tool.properties:
            arguments = {"limit": LIMIT_DEFAULT, **arguments}
        async with self._places:
            if tool.is_control:
                status, value = await self._ask_control(tool, arguments)
            else:
                status, value = await self._ask_console(tool, arguments, progress)
        if status >= 400:
            raise ToolFailedError(
                str(value["error"] if isinstance(value, dict) and "error" in value else value)
            )
        return bounded(value)

    async def _ask_console(
        self, tool: Tool, arguments: Mapping[str, Any], progress: Progress
    ) -> tuple[int, Any]:
        path, query, body = tool.request(arguments)
        try:
            session = await self._sessions.anonymous()
            with session.in_use():
                backend = await self._sessions.open(session)
                status, value = await dispatch(backend, tool.method, path, query, body or None)
                if isinstance(value, Events):
                    value = await collected(value, progress)
        except (ConsoleError, ClientError, ExceptionGroup) as error:
            return failure_of(error, tool.name)
        return status, json.loads(value) if isinstance(value, bytes) else value

    async def _ask_control(self, tool: Tool, arguments: Mapping[str, Any]) -> tuple[int, Any]:
        path, query, body = tool.request(arguments)
        assert self._control is not None, "its tools are there with it"
        try:
            return await trio.to_thread.run_sync(
                self._control.ask, tool.method, path, query, body or None, abandon_on_cancel=True
            )
        except OSError as error:
            raise ToolFailedError(f"the control API does not answer: {error}") from None


def check_arguments(tool: Tool, arguments: Mapping[str, Any]) -> None:
    """Raise ToolFailedError for arguments that do not fit the schema of a tool."""
    validator = jsonschema.Draft202012Validator(tool.input_schema)
    for error in validator.iter_errors(dict(arguments)):
        where = ".".join(map(str, error.absolute_path))
        raise ToolFailedError(
            f"{where}: {error.message}"[:ARGUMENT_CHARS_MAX] if where else error.message[:ARGUMENT_CHARS_MAX]
        )


async def collected(events: Events, progress: Progress) -> dict[str, Any]:
    """Return the records of a search, with how it ended."""
    records: list[Any] = []
    end: dict[str, Any] = {}

    async def take(name: str, value: Any) -> None:
        content = json.loads(value) if isinstance(value, bytes) else value
        if name == "found":
            records.extend(content["records"])
        else:
            end.update(content)
            await progress(content.get("covered", 0), content.get("total", 0))

    await events.work(take)
    return {"records": records, **end}


def bounded(value: Any) -> dict[str, Any]:
    """Return an answer as an object. Raises ToolFailedError if it is too long."""
    answer = value if isinstance(value, dict) else {"done": True} if value is None else {"answer": value}
    count = len(json.dumps(answer, ensure_ascii=False))
    if count > ANSWER_CHARS_MAX:
        raise ToolFailedError(
            f"the answer has {count} characters, more than {ANSWER_CHARS_MAX}: ask for less, by a filter or a lower limit"
        )
    return answer
