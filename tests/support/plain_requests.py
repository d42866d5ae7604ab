"""Requests as dicts with the schema's names, to a broker without listeners; and the error codes of a response."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from barnabas.security.authorizer import Operation, Requester, ResourceType
from barnabas.serving import apis
from barnabas.serving.context import ANONYMOUS
from compat.kit.wire import encode, message
from tests.support.broker import Asked

Denied = tuple[Operation, ResourceType, str]


class DenyNamed:
    """An authorizer that denies operations on resources by name, allows all others, and records its decisions."""

    def __init__(self, *denied: Denied) -> None:
        self.denied = frozenset(denied)
        self.asked: list[Denied] = []

    def allows(
        self, requester: Requester, operation: Operation, resource_type: ResourceType, name: str, /
    ) -> bool:
        assert requester.principal == ANONYMOUS
        assert type(operation) is Operation
        assert type(resource_type) is ResourceType
        self.asked.append((operation, resource_type, name))
        return (operation, resource_type, name) not in self.denied

    def allows_on_any(self, _: Requester, operation: Operation, resource_type: ResourceType, /) -> bool:
        return (operation, resource_type, "any") not in self.denied

    def reason(self, _: Requester, _operation: Operation, _type: ResourceType, _name: str, /) -> str:
        return "a test"


async def ask(asked: Asked, api: str, version: int, values: dict[str, Any]) -> Any:
    """Return the response to a request, both as dicts with the schema's names."""
    row = next(row for row in apis.BY_KEY.values() if row.name == api)
    body = encode(message(f"{api}Request"), version, values)
    request, _ = row.decoders[version](memoryview(bytearray(body)), 0)
    return await asked(request, version)


def codes(answer: Any) -> list[int]:
    """Return all error codes in a response, in order, except those of objects with error codes further down."""
    own = [getattr(answer, each.name) for each in fields(answer) if each.name.endswith("error_code")]
    below = [code for part in _parts(answer) for code in codes(part)]
    return below if below and not any(own) else own


def _parts(answer: Any) -> Iterator[Any]:
    for each in fields(answer):
        value = getattr(answer, each.name)
        for part in value if isinstance(value, list) else [value]:
            if is_dataclass(part):
                yield part
