"""`python -m tools.reflow [PAGE ...]`: fill the paragraphs of our pages that have a line wider than 140 characters.

The rule: only line breaks change. Tables, code, headings and generated parts are not changed; a link or a span
of code is not broken, and no line begins with a word that Markdown would read as a mark.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WIDTH = 140
PRINTED = re.compile(r"\A(?:.*\n){0,5}?.*\b(?:Printed|Written) by\b")
PRINTED_PLACES = ("docs/conformance/", "docs/reference/", "docs/gallery.md")
ITEM = re.compile(r"( {0,3})(?:[-*+]|\d+[.)]) +")
NO_TEXT = re.compile(r" {4}|\t| {0,3}(?:#|\||<|>|```|~~~|\[[^\]]+\]:|---|===|$)")
MARK = re.compile(r"(?:[-+*]$|[=#>|]|\d+[.)]$|```)")
WORD = re.compile(r"(?:`[^`]*`|!?\[(?:[^\[\]`]|`[^`]*`)*\]\([^)\s]*\)|\S)+")


def pages() -> Iterator[Path]:
    """Yield the handwritten pages, except the changelog, as its entries have one line each."""
    for path in sorted(ROOT.rglob("*.md")):
        name = path.relative_to(ROOT).as_posix()
        parts = set(path.relative_to(ROOT).parts)
        if parts & {"node_modules", "target", "dist", "build"} or any(part.startswith(".") for part in parts):
            continue
        if (
            name != "CHANGELOG.md"
            and not name.startswith(PRINTED_PLACES)
            and not PRINTED.match(path.read_text())
        ):
            yield path


def reflowed(text: str) -> str:
    """Return the page with its wide paragraphs filled."""
    output: list[str] = []
    paragraph: list[str] = []
    fence = ""
    for line in text.split("\n"):
        mark = re.match(r" *(```|~~~)", line)
        if fence or mark:
            output += filled(paragraph)
            paragraph = []
            output.append(line)
            if mark and not fence:
                fence = mark[1]
            elif mark and mark[1] == fence:
                fence = ""
        elif ITEM.match(line):
            output += filled(paragraph)
            paragraph = [line]
        elif paragraph and line.strip() and (not NO_TEXT.match(line) or _continues(paragraph, line)):
            paragraph.append(line)
        else:
            output += filled(paragraph)
            paragraph = [] if NO_TEXT.match(line) else [line]
            if not paragraph:
                output.append(line)
    return "\n".join(output + filled(paragraph))


def _continues(paragraph: list[str], line: str) -> bool:
    """Return whether an indented line is text of the list item that the paragraph is."""
    item = ITEM.match(paragraph[0])
    return item is not None and line.startswith("    ") and not ITEM.match(line.lstrip())


def filled(paragraph: list[str]) -> list[str]:
    """Return the lines of a paragraph, filled if a line is too wide and none ends in a hard break."""
    if all(len(line) <= WIDTH for line in paragraph) or any(
        line.endswith(("  ", "\\")) for line in paragraph
    ):
        return paragraph
    item = ITEM.match(paragraph[0])
    first = item[0] if item else paragraph[0][: -len(paragraph[0].lstrip(" "))]
    rest = " " * len(first)
    text = " ".join([paragraph[0][len(first) :], *paragraph[1:]])
    lines, line = [], first
    for word in WORD.findall(text):
        is_begun = line not in (first, rest)
        if is_begun and len(line) + 1 + len(word) > WIDTH and not MARK.match(word):
            lines.append(line)
            line, is_begun = rest, False
        line += f" {word}" if is_begun else word
    return [*lines, line]


def main(arguments: list[str]) -> int:
    """Fill the pages, all by default."""
    for path in [Path(argument).resolve() for argument in arguments] or pages():
        text = path.read_text()
        if (new := reflowed(text)) != text:
            path.write_text(new)
            print(f"{path.relative_to(ROOT)} filled")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
