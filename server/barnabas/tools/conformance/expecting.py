"""Expectations of an answer, as values by path.

    {"topics.0.error_code": "UNKNOWN_TOPIC_OR_PARTITION", "topics.0.name": "events"}

The rule: a path names fields and indexes; `len` at its end is the length of a list. An expected value is the value itself,
the name of an error code, a set of allowed values, or a function that checks the value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barnabas.tools.conformance.cases import DiffersError
from barnabas.tools.inspection.errors import code_name
from barnabas.wire.generated.errors import ErrorCode

Wanted = Any


def check(answer: Any, expected: Mapping[str, Wanted]) -> None:
    """Raise DiffersError unless all values in the answer are as expected; the message names all differences."""
    problems = []
    for path, want in expected.items():
        try:
            value = at(answer, path)
        except LookupError as error:
            problems.append(f"{path}: {error}")
            continue
        if not _fits(value, want):
            problems.append(f"{path} is {_shown(path, value)}, not {_wanted(path, want)}")
    if problems:
        raise DiffersError("; ".join(problems))


def at(answer: Any, path: str) -> Any:
    """Return the value at a path. Raises LookupError, with a message."""
    value = answer
    for part in path.split("."):
        if part == "len":
            value = len(value)
        elif part.lstrip("-").isdigit():
            if value is None or not -len(value) <= int(part) < len(value):
                raise LookupError(f"there are {0 if value is None else len(value)} entries, none at {part}")
            value = value[int(part)]
        elif value is None:
            raise LookupError(f"nothing has {part}")
        else:
            value = getattr(value, part)
    return value


def _fits(value: Any, want: Wanted) -> bool:
    if isinstance(want, set | frozenset):
        return any(_fits(value, choice) for choice in want)
    if callable(want):
        return bool(want(value))
    if isinstance(want, str) and isinstance(value, int):
        return value == ErrorCode[want]
    return bool(value == want)


def _shown(path: str, value: Any) -> str:
    if path.endswith("error_code") and isinstance(value, int):
        return code_name(value)
    if isinstance(value, memoryview | bytearray):
        value = bytes(value)
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


def _wanted(path: str, want: Wanted) -> str:
    if isinstance(want, set | frozenset):
        return " or ".join(sorted(_wanted(path, choice) for choice in want))
    if callable(want):
        return str(want.__doc__ or "what the rule says").strip()
    return str(want) if isinstance(want, str) and path.endswith("error_code") else _shown(path, want)
