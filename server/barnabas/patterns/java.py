"""Patterns of `java.util.regex`, which Kafka's settings have, for RE2. Pure.

The rule: a pattern has the same meaning as in Kafka, or is refused with a sentence. RE2's syntax is nearly Java's, so a
pattern is copied except for syntax that both accept with different meanings; syntax that RE2 lacks is refused by RE2.
Remaining differences: `$` is the end alone, not also before a last line end, and a repetition continues after an empty
round.
"""

from __future__ import annotations

import re
from typing import Any

from barnabas.patterns import PatternError, check_length, compile_pattern, quoted

_DOT = r"[^\n\r\x{85}\x{2028}\x{2029}]"
_SPACE, _NO_SPACE = r"\t-\r ", r"\x{0}-\x{8}\x{e}-\x{1f}!-\x{10ffff}"
_PIECE = re.compile(
    r"(?P<quoted>\\Q.*?(?:\\E|\Z))|\\u(?P<code>[0-9a-fA-F]{4})|\\(?P<escaped>.)|(?P<named>\(\?<(?=[a-zA-Z]))"
    r"|(?P<flags>\(\?[a-zA-Z-]+[:)])|(?P<letter>.)",
    re.DOTALL,
)


def java_pattern(text: str) -> Any:
    """Compile a pattern; the result has RE2's methods and the pattern's groups. Raises PatternError."""
    check_length(text)
    return compile_pattern(_translated(text), text)


def _translated(text: str) -> str:
    output: list[str] = []
    dots, is_in_class, beginning = [_DOT], False, 0
    for piece in _PIECE.finditer(text):
        name, held = str(piece.lastgroup), piece[0]
        if name == "escaped":
            held = _escape(text, piece["escaped"], is_in_class=is_in_class)
        elif name == "code":
            held = f"\\x{{{piece['code']}}}"
        elif is_in_class:
            if held in ("[", "&") and text.startswith(("[", "&&"), piece.start()):
                raise _refusal(text, "it has a class within a class")
            is_in_class = held != "]" or piece.start() == beginning
        elif name == "flags":
            if held.strip("(?:)is-"):
                raise _refusal(text, f"it has other flags than i and s, {quoted(held)}")
            if "i" in held and not text.isascii():
                raise _refusal(text, "it has the flag i beside characters that are not ASCII")
            dot = _dot(held, dots[-1])
            dots = [*dots, dot] if held.endswith(":") else [*dots[:-1], dot]
        elif name == "named" or held == "(":
            held = "(?P<" if name == "named" else held
            dots.append(dots[-1])
        elif held == ")" and len(dots) > 1:
            dots.pop()
        elif held == "[":
            is_in_class, beginning = True, piece.end() + text.startswith("^", piece.end())
        elif held == ".":
            held = dots[-1]
        output.append(held)
    return "".join(output)


def _dot(flags: str, before: str) -> str:
    """Return RE2's pattern for a dot after these flags; `before` if they neither set nor clear `s`."""
    on, _, off = flags.partition("-")
    return _DOT if "s" in off else "." if "s" in on else before


def _escape(text: str, letter: str, *, is_in_class: bool) -> str:
    """Return an escape in RE2's syntax. Raises PatternError for escapes with another meaning in RE2."""
    if letter in ("s", "S"):
        held = _SPACE if letter == "s" else _NO_SPACE
        return held if is_in_class else f"[{held}]"
    if letter in ("v", "C", "0"):
        raise _refusal(text, f"it has {quoted(chr(92) + letter)}")
    return f"\\{letter}" if letter.isascii() else letter


def _refusal(text: str, reason: str) -> PatternError:
    return PatternError(text, reason, "Java that RE2 can do")
