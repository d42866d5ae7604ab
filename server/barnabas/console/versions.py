"""Two versions of a schema beside each other: what differs, and what each level of compatibility says of the newer.

The rule: the rules are those of the registry's package, whichever registry keeps the schemas; the work is done in threads,
a few at a time, and its length is bounded. A schema that they do not understand is compared as the text that it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import trio

from barnabas.console.base import ConsoleError
from barnabas.console.decoding import WHOLE_CHARS
from barnabas.console.differing import TEXT_CHARS_MAX, by_line
from barnabas.registry.client import RegistryClient
from barnabas.registry.compatibility import LEVELS, NONE, differences, is_transitive
from barnabas.registry.decoding import parsed_of
from barnabas.registry.errors import SchemaError
from barnabas.registry.formats import Parsed
from barnabas.registry.parsing import SCHEMA_CHARACTERS_MAX
from barnabas.registry.schemas import AVRO, Registered

COMPARED_MAX = 50
"""Versions that the newer is compared with: the newest of those from the older on, and the older."""
MESSAGES_MAX = 100
THREADS = trio.CapacityLimiter(2)
"""Schemas that are compared at a time: the interpreter has to do other things."""
PROTOBUF = "PROTOBUF"
INDENTED_MAX = 40
"""Depth from which on lines are indented no further."""
_OPENING, _CLOSING = frozenset("{["), frozenset("}]")
_BREAKING = _OPENING | {","}
_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|[{}\[\],:]|[^\s{}\[\],:"]+')


async def compare(
    client: RegistryClient, subject: str, known: Sequence[int], older: int, newer: int
) -> dict[str, Any]:
    """Return two versions of a subject, normalised, with what differs and by which levels the newer may follow.

    `known` are the subject's versions. Raises ConsoleError, RegistryError.
    """
    for one in (older, newer):
        if one not in known:
            raise ConsoleError(404, f"{subject} has no version {one}")
    if older >= newer:
        raise ConsoleError(400, "older: a version before the newer one expected")
    numbers = [one for one in known if older <= one < newer]
    left_out = max(len(numbers) - COMPARED_MAX, 0)
    numbers = [older, *numbers[1 + left_out :]]
    versions = {one: await client.version(subject, one) for one in (*numbers, newer)}
    parsed, problems = await _parsed(client, versions)
    texts = [await _text(versions[one], parsed.get(one)) for one in (older, newer)]
    difference = await _beside(by_line, *(text.split("\n") for text in texts))
    levels: list[dict[str, Any]] = []
    try:
        if not problems:
            levels = await _beside(_levels, parsed, numbers, newer)
    except (SchemaError, RecursionError) as error:
        problems = [str(error)[:TEXT_CHARS_MAX]]
    return {
        "older": _described(versions[older], texts[0], older in parsed),
        "newer": _described(versions[newer], texts[1], newer in parsed),
        "difference": difference,
        "levels": levels,
        "left_out": left_out,
        "problems": problems,
    }


async def _parsed(
    client: RegistryClient, versions: dict[int, Registered]
) -> tuple[dict[int, Parsed], list[str]]:
    """Return the versions that are understood, and what is wrong with the others. Raises RegistryError."""
    parsed, problems = {}, []
    for number, one in versions.items():
        if len(one.schema.text) > SCHEMA_CHARACTERS_MAX:
            raise ConsoleError(400, f"version {number} is too long to be compared")
        try:
            parsed[number] = await parsed_of(client, one.schema)
        except SchemaError as error:
            problems.append(f"version {number}: {error}"[:TEXT_CHARS_MAX])
    return parsed, problems


async def _text(version: Registered, parsed: Parsed | None) -> str:
    text = version.schema.text if parsed is None else await _beside(parsed.normalized)
    return text if version.schema.format == PROTOBUF else await _beside(indented, text)


async def _beside(work: Any, *arguments: Any) -> Any:
    return await trio.to_thread.run_sync(work, *arguments, limiter=THREADS)


def _described(version: Registered, text: str, is_normalized: bool) -> dict[str, Any]:
    return {
        "version": version.version,
        "id": version.id,
        "type": version.schema.format or AVRO,
        "references": [one.plain() for one in version.schema.references],
        "text": text[:WHOLE_CHARS],
        "cut": len(text) > WHOLE_CHARS,
        "normalized": is_normalized,
    }


def _levels(parsed: dict[int, Parsed], numbers: Sequence[int], newer: int) -> list[dict[str, Any]]:
    """Return what each level says of a version: after the first of these or, where it is transitive, after all of them."""
    rows = []
    for level in LEVELS:
        if level == NONE:
            continue
        against = list(reversed(numbers)) if is_transitive(level) else [numbers[0]]
        broken, messages = None, []
        for number in against:
            messages = differences(level, parsed[newer], parsed[number])
            if messages:
                broken = number
                break
        rows.append(
            {
                "level": level,
                "compatible": broken is None,
                "against": sorted(against),
                "broken": broken,
                "messages": [one[:TEXT_CHARS_MAX] for one in messages[:MESSAGES_MAX]],
                "messages_total": len(messages),
            }
        )
    return rows


def indented(text: str) -> str:
    """Return JSON with a line for each member and item, its numbers and texts as they are; another text as it is."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return text
    made: list[str] = []
    depth, before = 0, ""
    for one in _TOKEN.findall(text):
        depth -= one in _CLOSING
        is_empty = one in _CLOSING and before in _OPENING
        if (before in _BREAKING or one in _CLOSING) and not is_empty:
            made.append("\n" + "  " * min(depth, INDENTED_MAX))
        made.append(": " if one == ":" else one)
        depth += one in _OPENING
        before = one
    return "".join(made)
