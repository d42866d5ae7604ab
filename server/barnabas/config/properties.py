"""Java properties files: comments, continued lines and escapes included. Pure.

The rule: all that Java reads is read in the same way, with the number of its line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from barnabas.config.setting import SettingError


def format_properties(properties: Mapping[str, str]) -> str:
    """The text of a Java properties file with these keys and values."""
    return "".join(f"{_escaped(key, is_key=True)}={_escaped(value)}\n" for key, value in properties.items())


def _escaped(text: str, *, is_key: bool = False) -> str:
    special = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}
    if is_key:
        special |= {char: f"\\{char}" for char in " :=#!"}
    escaped = [special.get(char, char) for char in text]
    if text[-1:].isspace() and escaped[-1] == text[-1]:
        escaped[-1] = f"\\u{ord(text[-1]):04x}"
    if escaped[:1] == [" "]:
        escaped[0] = "\\ "
    return "".join(escaped)


def parse_lines(text: str) -> Iterator[tuple[int, str, str]]:
    """(line number, key, value) of each entry of a Java properties file. Raises SettingError."""
    for number, line in _logical_lines(text):
        key, value = _split(line)
        try:
            yield number, _unescape(key), _unescape(value)
        except ValueError as error:
            raise SettingError(f"line {number}: {error} is no character") from None


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    pending, start = "", 0
    for number, raw in enumerate(re.split(r"\r\n|\n|\r", text), start=1):
        line = raw.lstrip(" \t\f")
        if not pending and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        start = start if pending else number
        if backslashes % 2:
            pending += line[:-1]
            continue
        yield start, pending + line
        pending = ""
    if pending:
        yield start, pending


def _split(line: str) -> tuple[str, str]:
    escaped = False
    for position, character in enumerate(line):
        if escaped:
            escaped = False
        elif character == "\\":
            escaped = True
        elif character in "=: \t\f":
            rest = line[position:].lstrip(" \t\f")
            if rest[:1] in ("=", ":"):
                rest = rest[1:].lstrip(" \t\f")
            return line[:position], rest
    return line, ""


_FOUR_DIGITS = re.compile("[0-9a-fA-F]{4}")
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text.rstrip()
    out = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character != "\\" or position == len(text):
            out.append(character)
            continue
        character = text[position]
        position += 1
        if character == "u":
            digits = text[position : position + 4]
            if not _FOUR_DIGITS.fullmatch(digits):
                raise ValueError(f"\\u{digits}")
            out.append(chr(int(digits, 16)))
            position += 4
        else:
            out.append(_ESCAPES.get(character, character))
    return "".join(out)
