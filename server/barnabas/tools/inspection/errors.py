"""The error codes in an answer, at all places.

The rule: the places of codes follow from the generated structs, and are determined once for each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any, NamedTuple

from barnabas.tools.faults.naming import partition_of, topic_of
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.structs import is_array, struct_of

NameOf = Callable[[bytes], str | None]
"""The name of the topic with an id."""
_NAMES = {int(code): code.name for code in ErrorCode}


class FoundError(NamedTuple):
    """An error code that is not 0."""

    code: int
    path: str
    """Path of the code, as in `responses[0].partition_responses[2].error_code`."""
    about: str
    """The topic-partition, topic, group or the like that it is about; empty for the whole request."""


class _Plan:
    """Fields of a struct that hold codes."""

    __slots__ = ("codes", "nested")

    def __init__(self, kind: type[Any]) -> None:
        self.codes: list[str] = []
        self.nested: list[tuple[str, bool]] = []
        """Fields with structs that have codes, and whether they are arrays."""
        for field in fields(kind):
            if field.name.endswith("error_code"):
                self.codes.append(field.name)
                continue
            struct = struct_of(kind, field)
            if struct is not None and _plan_of(struct):
                self.nested.append((field.name, is_array(field)))

    def __bool__(self) -> bool:
        return bool(self.codes or self.nested)


_plans: dict[type[Any], _Plan] = {}


def _plan_of(kind: type[Any]) -> _Plan:
    plan = _plans.get(kind)
    if plan is None:
        plan = _plans[kind] = _Plan(kind)
    return plan


def has_errors(message: Any) -> bool:
    """Return whether there is an error code other than 0 in a message."""
    plan = _plan_of(type(message))
    for name in plan.codes:
        if getattr(message, name):
            return True
    for name, is_many in plan.nested:
        inner = getattr(message, name)
        if inner is None:
            continue
        if not is_many:
            if has_errors(inner):
                return True
            continue
        for item in inner:
            if has_errors(item):
                return True
    return False


def error_codes(message: Any, name_of: NameOf = lambda _: None, *, most: int = 1000) -> list[FoundError]:
    """Return the nonzero error codes of a message, at most `most` of them."""
    if message is None or not has_errors(message):
        return []
    errors = []
    for error in _walk(message, "", "", name_of):
        errors.append(error)
        if len(errors) >= most:
            break
    return errors


def _walk(message: Any, path: str, about: str, name_of: NameOf) -> Iterator[FoundError]:
    plan = _plan_of(type(message))
    about = _about(message, about, name_of)
    for name in plan.codes:
        code = getattr(message, name)
        if code:
            yield FoundError(code, path + name, about)
    for name, is_many in plan.nested:
        inner = getattr(message, name)
        if inner is None:
            continue
        if not is_many:
            yield from _walk(inner, f"{path}{name}.", about, name_of)
            continue
        for number, item in enumerate(inner):
            yield from _walk(item, f"{path}{name}[{number}].", about, name_of)


def _about(message: Any, outer: str, name_of: NameOf) -> str:
    topic = topic_of(message, name_of)
    if topic is not None:
        return topic
    partition = partition_of(message)
    if partition is not None and outer:
        return f"{outer}-{partition}"
    for name in ("group_id", "resource_name", "name", "key", "member_id"):
        text = getattr(message, name, None)
        if isinstance(text, str) and text:
            return text
    return outer


def code_name(code: int) -> str:
    """Return Kafka's name of an error code, for example `NOT_LEADER_OR_FOLLOWER`; the number if unknown."""
    return _NAMES.get(code, f"error code {code}")
