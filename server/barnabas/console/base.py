"""Parts of a route of the console: its parameters, and the three forms of a response."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.errors import AnswerError

if TYPE_CHECKING:
    from barnabas.console.backend import Backend

WHOLE_MAX = 2**63 - 1
_TRUE, _FALSE = ("true", "1", "yes"), ("false", "0", "no", "")


class ConsoleError(AnswerError):
    """A request to the console that cannot be done."""


class Parameter(NamedTuple):
    """A parameter of a query or a field of a body: name, and description, with its default in parentheses."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Query:
    """The parsed query of a request."""

    query: Mapping[str, str]

    def whole(self, name: str, default: int, *, least: int = 0, most: int = WHOLE_MAX) -> int:
        """Return a number of the query. Raises ConsoleError."""
        text = self.query.get(name, "")
        if not text:
            return default
        try:
            value = int(text)
        except ValueError:
            raise ConsoleError(400, f"{name}: a whole number expected, not {text[:40]!r}") from None
        if not least <= value <= most:
            raise ConsoleError(400, f"{name}: a number from {least} to {most} expected")
        return value

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Return a flag of the query. Raises ConsoleError."""
        text = self.query.get(name)
        if text is None:
            return default
        if text.lower() not in _TRUE + _FALSE:
            raise ConsoleError(400, f"{name}: true or false expected")
        return text.lower() in _TRUE

    def one_of(self, name: str, *words: str) -> str:
        """Return a query parameter that must be one of these words, by default the first. Raises ConsoleError."""
        text = self.query.get(name) or words[0]
        if text not in words:
            raise ConsoleError(400, f"{name}: one of {', '.join(words)} expected")
        return text


@dataclass(frozen=True, slots=True, init=False)
class Call(Query):
    """One request: the client of its visitor, the parts of its path, its query and its body."""

    backend: Backend
    path: Mapping[str, str]
    body: Mapping[str, Any]

    def __init__(
        self,
        backend: Backend,
        path: Mapping[str, str],
        query: Mapping[str, str],
        body: Mapping[str, Any] | None = None,
    ) -> None:
        for name, value in (("backend", backend), ("path", path), ("query", query), ("body", body or {})):
            object.__setattr__(self, name, value)

    def field(self, name: str, kind: type, default: Any = ...) -> Any:
        """Return a field of the body, of a type; null is as good as none. Raises ConsoleError where there is no default."""
        value = self.body.get(name)
        if value is None:
            if default is ...:
                raise ConsoleError(400, f"the body lacks {name}")
            return default
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise ConsoleError(400, f"{name}: {_NAMES.get(kind, kind.__name__)} expected")
        return value

    def confirmed(self, name: str) -> None:
        """Check that the body names the object that the request destroys. Raises ConsoleError."""
        if self.body.get("confirm") != name:
            raise ConsoleError(409, f'this cannot be undone: it is done if the body says "confirm": "{name}"')


_NAMES = {
    str: "a text",
    int: "a whole number",
    bool: "true or false",
    list: "an array",
    dict: "an object",
    float: "a number",
}

Send = Callable[[str, Any], Awaitable[None]]
"""Sends an event: its name, and a JSON value, or bytes that are one."""


class Events(NamedTuple):
    """A continuous response: events, for a browser's EventSource."""

    work: Callable[[Send], Awaitable[None]]


class Download(NamedTuple):
    """An answer that a browser saves as a file."""

    name: str
    content_type: str
    pieces: Sequence[bytes]


def as_json(value: Any) -> bytes:
    """Return a small value as JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


Handler = Callable[[Call], Awaitable[object]]
"""Answers with a JSON value, bytes that are one, None for nothing (204), `Events` or a `Download`."""


class Route(NamedTuple):
    """A method and a path, as `/api/topics/{topic}`, with its handler."""

    method: str
    path: str
    handler: Handler
    summary: str
    query: tuple[Parameter, ...] = ()
    body: tuple[Parameter, ...] = ()
    view: str = ""
    """The view of `live.Live` that it needs."""
