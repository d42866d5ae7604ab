"""Differences between two texts: by line, or by JSON path if both are objects or arrays. Pure.

The rule: the work is bounded for any texts, and numbers are compared as they are written, without rounding. Truncation is
marked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

ROWS_MAX = 500
TEXT_CHARS_MAX = 2_000
"""Characters of a row's text."""
LINES_MAX = 5_000
EDITS_MAX = 400
"""Lines that are added and removed: of what differs in more, all is removed and added."""
CONTEXT_LINES = 3
BYTES_PER_LINE = 16
SAME, ADDED, REMOVED, CHANGED, SKIPPED = "same", "added", "removed", "changed", "skipped"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class _Number:
    """A number as it is written."""

    text: str


_NOTHING = object()


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return the difference between two payloads of `console/decoding.py`."""
    structures = _structure(before), _structure(after)
    if None not in structures:
        try:
            return by_path(*structures)
        except RecursionError:
            pass  # nested deeper than can be told as a path
    return by_line(_lines(before), _lines(after))


def _structure(payload: Mapping[str, Any]) -> Any:
    """Return the object or array that a payload is; None for anything else."""
    if payload["form"] in ("null", "text", "hex") or payload.get("cut"):
        return None
    try:
        value = json.loads(payload["text"], parse_float=_Number, parse_int=_Number, parse_constant=_Number)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict | list) else None


def _lines(payload: Mapping[str, Any]) -> list[str]:
    if payload["form"] == "null":
        return []
    if payload["form"] == "hex":
        words = payload["text"].split(" ")
        return [" ".join(words[at : at + BYTES_PER_LINE]) for at in range(0, len(words), BYTES_PER_LINE)]
    text: str = payload["text"]
    return text.split("\n")


# --- by path ------------------------------------------------------------------------------------------------------

_Place = tuple[Any, str | int] | None
"""A member or an item, with the place of what it is in; None for the whole."""


def by_path(before: Any, after: Any) -> dict[str, Any]:
    """Return added, removed and changed values, by JSON path. Raises RecursionError."""
    rows: list[dict[str, Any]] = []
    is_cut = False
    for place, old, new in _differing(None, before, after):
        if len(rows) == ROWS_MAX:
            is_cut = True
            break
        change = ADDED if old is _NOTHING else REMOVED if new is _NOTHING else CHANGED
        rows.append({"path": _path(place), "change": change, "before": _shown(old), "after": _shown(new)})
    return {"by": "path", "rows": rows, "cut": is_cut}


def _differing(place: _Place, old: Any, new: Any) -> Iterator[tuple[_Place, Any, Any]]:
    if isinstance(old, dict) and isinstance(new, dict):
        for name in old | new:
            yield from _differing((place, name), old.get(name, _NOTHING), new.get(name, _NOTHING))
    elif isinstance(old, list) and isinstance(new, list):
        yield from _differing_items(place, old, new)
    elif type(old) is not type(new) or old != new:
        yield place, old, new


def _differing_items(place: _Place, old: list[Any], new: list[Any]) -> Iterator[tuple[_Place, Any, Any]]:
    """Compare arrays item by item; a longer array has additional items between the common beginning and the common end."""
    start = end = 0
    if len(old) != len(new):  # those as long are not compared twice, which doubled the work with each level
        shorter = min(len(old), len(new))
        start = next((at for at in range(shorter) if old[at] != new[at]), shorter)
        rest = shorter - start
        end = next((at for at in range(rest) if old[-1 - at] != new[-1 - at]), rest)
    for at in range(start, max(len(old), len(new)) - end):
        was = old[at] if at < len(old) - end else _NOTHING
        now = new[at] if at < len(new) - end else _NOTHING
        yield from _differing((place, at), was, now)


def _path(place: _Place) -> str:
    parts: list[str] = []
    while place is not None:
        place, part = place
        if isinstance(part, int):
            parts.append(f"[{part}]")
        else:
            is_plain = _NAME.fullmatch(part)
            parts.append(f".{part}" if is_plain else f"[{json.dumps(part, ensure_ascii=False)}]")
    return _cut("$" + "".join(reversed(parts)))


def _shown(value: Any) -> str | None:
    return None if value is _NOTHING else _cut(_written(value))


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_CHARS_MAX else f"{text[:TEXT_CHARS_MAX]} …"


def _written(value: Any) -> str:
    if isinstance(value, _Number):
        return value.text
    if isinstance(value, dict):
        members = (
            f"{json.dumps(name, ensure_ascii=False)}: {_written(item)}" for name, item in value.items()
        )
        return f"{{{', '.join(members)}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_written, value))}]"
    return json.dumps(value, ensure_ascii=False)


# --- by line ------------------------------------------------------------------------------------------------------

_Edit = tuple[str, int, int]
"""A change, and the places in both, from 0."""


def by_line(before: Sequence[str], after: Sequence[str]) -> dict[str, Any]:
    """Return added and removed lines, with some context, and the number of omitted lines in between."""
    is_cut = len(before) > LINES_MAX or len(after) > LINES_MAX
    before, after = before[:LINES_MAX], after[:LINES_MAX]
    rows: list[dict[str, Any]] = []
    for row in _with_context(_compared(before, after), before, after):
        if len(rows) == ROWS_MAX:
            is_cut = True
            break
        rows.append(row)
    return {"by": "line", "rows": rows, "cut": is_cut}


def _with_context(
    edits: Sequence[_Edit], before: Sequence[str], after: Sequence[str]
) -> Iterator[dict[str, Any]]:
    shown: set[int] = set()
    for at, (change, _, _) in enumerate(edits):
        if change != SAME:
            shown.update(range(at - CONTEXT_LINES, at + CONTEXT_LINES + 1))
    skipped = 0
    for at, (change, x, y) in enumerate(edits):
        if at not in shown:
            skipped += 1
            continue
        if skipped:
            yield {"change": SKIPPED, "count": skipped}
            skipped = 0
        yield {
            "change": change,
            "before": None if change == ADDED else x + 1,
            "after": None if change == REMOVED else y + 1,
            "text": _cut(after[y] if change == ADDED else before[x]),
        }
    if skipped and shown:
        yield {"change": SKIPPED, "count": skipped}


def _compared(before: Sequence[str], after: Sequence[str]) -> list[_Edit]:
    numbers: dict[str, int] = {}
    old, new = ([numbers.setdefault(line, len(numbers)) for line in lines] for lines in (before, after))
    start, shorter = 0, min(len(old), len(new))
    while start < shorter and old[start] == new[start]:
        start += 1
    end = 0
    while end < shorter - start and old[-1 - end] == new[-1 - end]:
        end += 1
    edits = _shortest(old[start : len(old) - end], new[start : len(new) - end])
    all_edits = [(SAME, at, at) for at in range(start)]
    all_edits += [(change, start + x, start + y) for change, x, y in edits]
    return all_edits + [(SAME, len(old) - at, len(new) - at) for at in range(end, 0, -1)]


def _shortest(old: Sequence[int], new: Sequence[int]) -> list[_Edit]:
    """Return the fewest edits from one to the other, by Myers (1986); all items of both if there are too many edits."""
    furthest = {1: 0}
    """The largest place in `old` that so many edits lead to, by how much further it is than that in `new`."""
    trace: list[dict[int, int]] = []
    for edits in range(min(len(old) + len(new), EDITS_MAX) + 1):
        trace.append(dict(furthest))
        for diagonal in range(-edits, edits + 1, 2):
            x = _step(furthest, edits, diagonal)[1]
            while x < len(old) and x - diagonal < len(new) and old[x] == new[x - diagonal]:
                x += 1
            furthest[diagonal] = x
            if x >= len(old) and x - diagonal >= len(new):
                return _walked(trace, len(old), len(new))
    removed = [(REMOVED, at, 0) for at in range(len(old))]
    return removed + [(ADDED, len(old), at) for at in range(len(new))]


def _step(furthest: Mapping[int, int], edits: int, diagonal: int) -> tuple[bool, int]:
    """Return whether the last edit to a diagonal adds a line, and the place in `old` after it."""
    is_added = diagonal == -edits or (diagonal != edits and furthest[diagonal - 1] < furthest[diagonal + 1])
    return is_added, furthest[diagonal + 1] if is_added else furthest[diagonal - 1] + 1


def _walked(trace: Sequence[Mapping[int, int]], x: int, y: int) -> list[_Edit]:
    """Walk back from the ends of both."""
    backwards: list[_Edit] = []
    for edits in range(len(trace) - 1, -1, -1):
        is_added, after_edit = _step(trace[edits], edits, x - y)
        while x > after_edit:
            x, y = x - 1, y - 1
            backwards.append((SAME, x, y))
        if edits:
            x, y = (x, y - 1) if is_added else (x - 1, y)
            backwards.append((ADDED if is_added else REMOVED, x, y))
    return backwards[::-1]
