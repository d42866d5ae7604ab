"""Parts of a route of the REST API: the call, and the kinds of responses.

The rule: unknown fields of a body, and fields of a wrong type, are refused.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlencode

from barnabas.network.writing import Piece
from barnabas.rest.errors import RestError
from barnabas.sandbox import bodies

if TYPE_CHECKING:
    from barnabas.network.http import HttpReader
    from barnabas.rest.backend import Backend
    from barnabas.rest.instances import Instances

V2, V3, OURS = "v2", "v3", "own"
INT32_MAX, INT64_MAX = 2**31 - 1, 2**63 - 1
VALUES_MAX = 10_000
"""Values of a body other than a batch of records: a child process returns them in one step."""
NAME_BYTES_MAX = 8_192
"""Bytes of a name in a path or a body."""
_KINDS = {
    str: "a text", int: "a whole number", bool: "true or false", list: "an array", dict: "an object",
}  # fmt: skip
_TRUE, _FALSE = ("true", "1"), ("false", "0", "")


class Fields:
    """An object of a body, read field by field; unknown names are refused beforehand."""

    def __init__(self, value: Any, *names: str, what: str = "the body") -> None:
        """Raises RestError for a value that is no object, or has unknown names."""
        if not isinstance(value, dict):
            raise RestError(400, 400, f"{what} is an object of {', '.join(names)}")
        unknown = next((name for name in value if name not in names), None)
        if unknown is not None:
            raise RestError(
                400, 400, f"{what} has a field {unknown[:80]!r}; there are {', '.join(names) or 'none'}"
            )
        self._value = value
        self._what = what

    def get(self, name: str, kind: type, default: Any = ...) -> Any:
        """Return a field of a type; null is as good as none. Raises RestError, 422 where there is no default."""
        value = self._value.get(name)
        if value is None:
            if default is ...:
                raise RestError(422, 422, f"{self._what} lacks {name}")
            return default
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise RestError(400, 400, f"{name} is {_KINDS[kind]}, not {str(value)[:80]!r}")
        return value

    def name(self, name: str, default: Any = ...) -> Any:
        """Return a field that is a name. Raises RestError."""
        return checked_name(self.get(name, str, default), name)

    def whole(self, name: str, default: Any = ..., *, least: int = 0, most: int = INT32_MAX) -> Any:
        """Return a whole number, between limits. Raises RestError."""
        number = self.get(name, int, default)
        if number is not None and not least <= number <= most:
            raise RestError(422, 422, f"{name} is a number from {least} to {most}")
        return number

    def any(self, name: str) -> Any:
        """Return a field of any type; None if it is null or absent."""
        return self._value.get(name)

    def has(self, name: str) -> bool:
        """Return whether a field is present, even if null."""
        return name in self._value


def checked_name(text: str, what: str) -> str:
    """Return a name that can be sent to a broker. Raises RestError."""
    try:
        if len(text.encode()) <= NAME_BYTES_MAX:
            return text
    except UnicodeEncodeError:
        pass
    raise RestError(400, 400, f"{what} is a name of at most {NAME_BYTES_MAX} bytes in UTF-8")


@dataclass(slots=True)
class Call:
    """One request: its user's client, the parts of its path, its query, its body."""

    backend: Backend
    instances: Instances
    path: Mapping[str, str]
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    content_type: str = ""
    """Type of the body, without parameters, in lower case."""
    accepted: tuple[str, ...] = ()
    """Content types that the client accepts, the preferred one first; empty: any."""
    base_url: str = ""
    """Beginning of URLs as the client writes them, without a slash at its end."""
    reader: HttpReader | None = None
    """The connection, for an answer that reads the body itself."""
    last_event_id: str = ""

    async def json(self) -> Any:
        """Return the body's JSON value; None for an empty body. Raises AnswerError."""
        return await bodies.read(self.body, self.backend.sandbox, self.backend.owner, VALUES_MAX)

    async def fields(self, *names: str, optional: bool = False) -> Fields:
        """Return the fields of the body, which is required unless `optional`. Raises AnswerError."""
        value = await self.json()
        if value is None:
            if not optional:
                raise RestError(422, 42206, f"the request needs a body: an object of {', '.join(names)}")
            value = {}
        return Fields(value, *names)

    def number(self, name: str) -> int:
        """Return a part of the path that is a number. Raises RestError."""
        text = self.path[name]
        if not (text.isascii() and text.isdecimal() and len(text) <= 10 and int(text) <= INT32_MAX):
            raise RestError(404, 404, f"{name} is a number, not {text[:40]!r}")
        return int(text)

    def whole(self, name: str, default: int, *, least: int = 0, most: int = INT64_MAX) -> int:
        """Return a number of the query. Raises RestError."""
        text = self.query.get(name, "")
        if not text:
            return default
        try:
            number = int(text) if len(text) <= 20 else most + 1
        except ValueError:
            raise RestError(400, 400, f"{name} is a whole number, not {text[:40]!r}") from None
        if not least <= number <= most:
            raise RestError(400, 400, f"{name} is a number from {least} to {most}")
        return number

    def flag(self, name: str) -> bool:
        """Return a flag of the query, false without it. Raises RestError."""
        text = self.query.get(name, "").lower()
        if text not in _TRUE + _FALSE:
            raise RestError(400, 400, f"{name} is true or false, not {text[:40]!r}")
        return text in _TRUE

    def url(self, *segments: object, **query: str) -> str:
        """Return the URL of a resource."""
        path = "/".join(quote(str(segment), safe="") for segment in segments)
        return f"{self.base_url}/{path}" + (f"?{urlencode(query)}" if query else "")


@dataclass(slots=True)
class Answer:
    """An answer with another status than 200, or with further headers; without a value if that is None."""

    value: Any = None
    status: int = 200
    headers: Sequence[tuple[str, str]] = ()
    content_type: str = ""
    """Content type, if it differs from that of the API's version."""


class Rows(NamedTuple):
    """An array of items that are JSON already."""

    pieces: Sequence[Piece]


Send = Callable[[bytes], Awaitable[None]]


@dataclass(slots=True)
class Events:
    """A continuous response: events, for a browser's EventSource."""

    work: Callable[[Send], Awaitable[None]]


@dataclass(slots=True)
class Conversation:
    """An answer that is sent while the body is read; `work` reads it from the reader of the call."""

    work: Callable[[Send], Awaitable[None]]


class Parameter(NamedTuple):
    """A parameter of a query or a field of a body: its name, its type in JSON, and its description."""

    name: str
    kind: str
    text: str


class Route(NamedTuple):
    """A method and a path, as `/topics/{topic}`, with its handler."""

    method: str
    path: str
    handler: Callable[[Call], Awaitable[Any]]
    """Returns a JSON value, None for no content (204), or an instance of the classes above."""
    summary: str
    version: str
    query: tuple[Parameter, ...] = ()
    body: tuple[Parameter, ...] = ()
    status: int = 200
    is_streamed: bool = False
    """True if the handler reads the body itself."""
    has_formats: bool = False
    """True if types with a format of records (`application/vnd.kafka.json.v2+json`) are taken and answered."""
