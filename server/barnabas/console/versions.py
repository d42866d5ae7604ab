"""Two versions of a schema side by side: the difference, and the verdict of each compatibility level on the newer one.

The rule: the rules are those of the registry's package, whichever registry stores the schemas; the work is done in a child
process, and its length is bounded. A schema that cannot be parsed is compared as text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.console.base import ConsoleError
from barnabas.console.decoding import WHOLE_CHARS
from barnabas.console.differing import TEXT_CHARS_MAX, by_line
from barnabas.registry.compatibility import LEVELS, NONE, differences, is_transitive
from barnabas.registry.decoding import source_of
from barnabas.registry.errors import SchemaError
from barnabas.registry.parsing import SCHEMA_CHARACTERS_MAX
from barnabas.registry.schemas import AVRO, Registered
from barnabas.registry.work import Source, parsed
from barnabas.sandbox.messages import SandboxError

if TYPE_CHECKING:
    from barnabas.console.backend import Backend
    from barnabas.registry.client import RegistryClient
    from barnabas.registry.formats import Parsed

COMPARED_MAX = 50
"""Versions that the newer is compared with: the newest of those from the older on, and the older."""
MESSAGES_MAX = 100
COMPARED_CHARS_MAX = 4_000_000
"""Characters of all compared versions, with their references."""
PROTOBUF = "PROTOBUF"
INDENTED_MAX = 40
"""Depth from which on lines are indented no further."""
_OPENING, _CLOSING = frozenset("{["), frozenset("}]")
_BREAKING = _OPENING | {","}
_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|[{}\[\],:]|[^\s{}\[\],:"]+')


async def compare(
    backend: Backend, client: RegistryClient, subject: str, existing: Sequence[int], older: int, newer: int
) -> dict[str, Any]:
    """Return two versions of a subject, normalised, with their difference and the levels by which the newer may follow.

    `existing` are the subject's versions. Raises ConsoleError, RegistryError.
    """
    for number in (older, newer):
        if number not in existing:
            raise ConsoleError(404, f"{subject} has no version {number}")
    if older >= newer:
        raise ConsoleError(400, "older: a version before the newer one expected")
    numbers = [number for number in existing if older <= number < newer]
    left_out = max(len(numbers) - COMPARED_MAX, 0)
    numbers = [older, *numbers[1 + left_out :]]
    versions = {number: await client.version(subject, number) for number in (*numbers, newer)}
    sources, problems = await _sources(client, versions)
    try:
        texts = await backend.sandbox.call(
            text_of_both,
            [_source(sources, versions, number) for number in (older, newer)],
            owner=backend.owner,
        )
    except SandboxError as error:
        raise ConsoleError(422, f"the two versions cannot be compared: {error}") from None
    levels: list[dict[str, Any]] = []
    if not problems:
        try:
            levels, problems = await backend.sandbox.call(
                levels_of, sources, numbers, newer, owner=backend.owner
            )
        except SandboxError as error:
            problems = [str(error)[:TEXT_CHARS_MAX]]
    return {
        "older": _described(versions[older], *texts.older),
        "newer": _described(versions[newer], *texts.newer),
        "difference": texts.difference,
        "levels": levels,
        "left_out": left_out,
        "problems": problems,
    }


async def _sources(
    client: RegistryClient, versions: dict[int, Registered]
) -> tuple[dict[int, Source], list[str]]:
    """Return the versions with their references, and errors of unavailable ones. Raises RegistryError, ConsoleError."""
    sources, problems = {}, []
    for number, version in versions.items():
        if len(version.schema.text) > SCHEMA_CHARACTERS_MAX:
            raise ConsoleError(400, f"version {number} is too long to be compared")
        try:
            sources[number] = await source_of(client, version.schema)
        except SchemaError as error:
            problems.append(f"version {number}: {error}"[:TEXT_CHARS_MAX])
        if sum(source.size for source in sources.values()) > COMPARED_CHARS_MAX:
            raise ConsoleError(
                400, "these versions are too long to be compared: choose two with fewer versions between them"
            )
    return sources, problems


def _source(sources: dict[int, Source], versions: dict[int, Registered], number: int) -> Source:
    schema = versions[number].schema
    return sources.get(number) or Source(schema.format, schema.text)


class Beside(NamedTuple):
    """Texts of two versions, whether they are normalised, and their difference."""

    older: tuple[str, bool]
    newer: tuple[str, bool]
    difference: dict[str, Any]


def text_of_both(sources: Sequence[Source]) -> Beside:
    """Return the texts of two versions, normalised if they can be parsed, with their differences line by line."""
    older, newer = (_text(source) for source in sources)
    return Beside(older, newer, by_line(older[0].split("\n"), newer[0].split("\n")))


def _text(source: Source) -> tuple[str, bool]:
    text, is_normalized = source.text, False
    with suppress(SchemaError, RecursionError):
        text, is_normalized = parsed(source).normalized(), True
    return (text if source.format == PROTOBUF else indented(text)), is_normalized


def _described(version: Registered, text: str, is_normalized: bool) -> dict[str, Any]:
    return {
        "version": version.version,
        "id": version.id,
        "type": version.schema.format or AVRO,
        "references": [reference.plain() for reference in version.schema.references],
        "text": text[:WHOLE_CHARS],
        "cut": len(text) > WHOLE_CHARS,
        "normalized": is_normalized,
    }


def levels_of(
    sources: dict[int, Source], numbers: Sequence[int], newer: int
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the verdict of each level on a version: after the first of these or, for a transitive level, after all of
    them.

    If versions cannot be parsed, returns their errors instead.
    """
    schemas: dict[int, Parsed] = {}
    problems = []
    for number in (*numbers, newer):
        try:
            schemas[number] = parsed(sources[number])
        except SchemaError as error:
            problems.append(f"version {number}: {error}"[:TEXT_CHARS_MAX])
    if problems:
        return [], problems
    rows = []
    for level in LEVELS:
        if level == NONE:
            continue
        against = list(reversed(numbers)) if is_transitive(level) else [numbers[0]]
        broken, messages = None, list[str]()
        for number in against:
            messages = differences(level, schemas[newer], schemas[number])
            if messages:
                broken = number
                break
        rows.append(
            {
                "level": level,
                "compatible": broken is None,
                "against": sorted(against),
                "broken": broken,
                "messages": [message[:TEXT_CHARS_MAX] for message in messages[:MESSAGES_MAX]],
                "messages_total": len(messages),
            }
        )
    return rows, []


def indented(text: str) -> str:
    """Return JSON with a line for each member and item, its numbers and texts as they are; another text as it is."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return text
    pieces: list[str] = []
    depth, before = 0, ""
    for token in _TOKEN.findall(text):
        depth -= token in _CLOSING
        is_empty = token in _CLOSING and before in _OPENING
        if (before in _BREAKING or token in _CLOSING) and not is_empty:
            pieces.append("\n" + "  " * min(depth, INDENTED_MAX))
        pieces.append(": " if token == ":" else token)
        depth += token in _OPENING
        before = token
    return "".join(pieces)
