"""Tables as text: columns side by side, fitted to a terminal if the output is one.

The rule: a pipe gets every cell whole and no colours; a terminal gets lines that fit, and colours unless NO_COLOR is set.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NamedTuple

GAP = "  "
WIDTH_MIN = 8
"""A column is not cut below this, or below its title."""
BOLD, RED, GREEN, YELLOW, PLAIN = "\x1b[1m", "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[0m"
_WIDE = ("W", "F")


class Look(NamedTuple):
    """Width to fit, None for all that there is, and whether there are colours."""

    width: int | None = None
    has_colours: bool = False

    def coloured(self, text: str, colour: str) -> str:
        """Return a text in a colour, where there are colours."""
        return f"{colour}{text}{PLAIN}" if self.has_colours and text and colour else text


def look_of_stdout() -> Look:
    """Return how standard output is written to."""
    if not sys.stdout.isatty():
        return Look()
    has_colours = not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"
    from shutil import get_terminal_size

    return Look(get_terminal_size().columns, has_colours)


def table_text(
    titles: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool], look: Look, red: str = ""
) -> str:
    """Return rows below their titles; `right`: the columns aligned to the right, `red`: the title of the red column."""
    columns = [list(column) for column in zip(titles, *rows, strict=True)]
    widths = [max(map(width_of, column)) for column in columns]
    if look.width is not None:
        widths = _fitted(widths, [max(WIDTH_MIN, len(title)) for title in titles], look.width)
    cells = [
        [_padded(_cut(text, width), width, is_right=is_right) for text in column]
        for column, width, is_right in zip(columns, widths, right, strict=True)
    ]
    lines = []
    for number, line in enumerate(zip(*cells, strict=True)):
        coloured = [
            look.coloured(cell, BOLD) if not number
            else look.coloured(cell, RED) if title == red
            else cell
            for title, cell in zip(titles, line, strict=True)
        ]  # fmt: skip
        lines.append(GAP.join(coloured).rstrip())
    return "\n".join(lines)


def _fitted(widths: list[int], least: list[int], total: int) -> list[int]:
    """Return widths that add up to a terminal's, at the cost of the widest; more where all are as narrow as they may be."""
    excess = sum(widths) + len(GAP) * (len(widths) - 1) - total
    while excess > 0:
        wide = [number for number, width in enumerate(widths) if width > least[number]]
        if not wide:
            break
        widest = max(wide, key=lambda number: widths[number])
        others = [widths[number] for number in wide if widths[number] < widths[widest]]
        step = max(1, min(excess, widths[widest] - max([least[widest], *others])))
        widths[widest] -= step
        excess -= step
    return widths


def width_of(text: str) -> int:
    """Return the width of a text in columns of a terminal."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(char) else 2 if east_asian_width(char) in _WIDE else 1 for char in text)


def _cut(text: str, width: int) -> str:
    """Return a text truncated to a number of columns, with an ellipsis if it was longer."""
    if width_of(text) <= width:
        return text
    while width_of(text) > width - 1:
        text = text[: -max(1, (width_of(text) - width) // 2)]
    return f"{text}…"


def _padded(text: str, width: int, *, is_right: bool) -> str:
    blanks = " " * (width - width_of(text))
    return blanks + text if is_right else text + blanks
