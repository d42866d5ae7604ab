"""Parts of a route of the control API."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.tools.control.host import Host

Schema = Mapping[str, Any]
"""A JSON schema, of the dialect of OpenAPI 3.1."""


class ControlError(Exception):
    """A request of the control API that fails: an HTTP status and the reason."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter in a query: name, type of JSON schema, and description, with its default in parentheses."""

    name: str
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """One request: its broker, the parts of its path, its query and its body."""

    host: Host
    path: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    body: Any = None


Handler = Callable[[Call], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Route:
    """A method and a path, for example `/v1/topics/{topic}`, with its handler, which returns a JSON value, None for 204."""

    method: str
    path: str
    handler: Handler
    summary: str
    body: Schema | None = None
    query: tuple[Parameter, ...] = ()
    answer: Schema | None = None
