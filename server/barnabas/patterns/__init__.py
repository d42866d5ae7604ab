"""Regular expressions of clients and operators, compiled by RE2. Pure.

The rule: such a pattern is never passed to Python's `re`, which backtracks without bound and keeps the interpreter's lock
meanwhile. RE2 takes time that is linear in the text, in bounded memory, without that lock; features that RE2 lacks are
refused with a sentence. Its library is loaded by the first pattern.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

MEMORY_MAX = 1 << 20
"""Bytes of a compiled pattern, with the states that it remembers: thousands of names as alternatives take less, and what
takes as many is compiled in 40 ms. RE2 keeps the last 128."""
OPTIONAL_MAX = 4_500
"""Optional parts of a pattern: two of `a?b?`, nine of `a{0,9}`. RE2 compiles in the time of their square: 40 ms."""
PROPERTIES_MAX = 500
"""Properties of a pattern, as `\\pL`, each of which is hundreds of ranges; so many are read in 30 ms."""
CHARACTERS_MAX = 1 << 16
"""Characters of a pattern."""
STEPS_MAX = 400_000_000
"""Instructions of a pattern for each character of a text, in a search: 2 s of a processor in the worst case, without the
interpreter's lock."""
TURN_STEPS_MAX = 10_000_000
"""The same where the event loop waits: 50 ms."""
SHOWN_MAX = 100
"""Characters of a pattern in a message."""
_RANGE = re.compile(r"\{([0-9]{0,9}),([0-9]{1,9})\}")
_UNKNOWN = (
    (("(?=", "(?!", "(?<=", "(?<!"), "it looks ahead or behind"),
    (("(?>",), "it has an atomic group"),
    ((*(f"\\{digit}" for digit in "123456789"), "(?P=", "\\k"), "it refers back to a group"),
    (("++", "*+", "?+", "}+"), "it has a possessive quantifier"),
)
"""Constructs of other libraries that RE2 lacks: the beginning of each, and its name."""


class PatternError(ValueError):
    """A pattern that is not supported, or that would take too long; its text is a sentence for the pattern's author.

    `shown` is the pattern, quoted and truncated, `reason` its fault.
    """

    def __init__(self, text: str, reason: str, syntax: str = "RE2") -> None:
        super().__init__(text, reason, syntax)  # as it is recreated on its way from a child process
        self.shown = shown(text)
        self.reason = reason
        self._syntax = syntax

    def __str__(self) -> str:
        return f"{self.shown} is not a regular expression of {self._syntax}: {self.reason}"


def compile_pattern(text: str, original: str | None = None, *, ignores_case: bool = False) -> Any:
    """Compile a pattern of RE2's syntax for texts; the result has `search`, `match` and `fullmatch`.

    `original` is the pattern before its translation, for messages. Raises PatternError.
    """
    return _compiled(text, text if original is None else original, "UTF8", ignores_case=ignores_case)


def compile_bytes(pattern: bytes) -> Any:
    """Compile a pattern for bytes, of which each is a character, as in Python's patterns of bytes. Raises PatternError."""
    return _compiled(pattern, pattern.decode(errors="backslashreplace"), "LATIN1")


def compile_glob(patterns: Iterable[str]) -> Any:
    """Compile names in which `*` matches any text and `?` one character; a match of one name is enough.

    The result has `fullmatch`. Raises PatternError for too large a pattern.
    """
    parts = {"*": ".*", "?": "."}
    names = ("".join(parts.get(letter, escaped(letter)) for letter in name) for name in patterns)
    return compile_pattern(f"(?s:{'|'.join(names)})")


def escaped(letter: str) -> str:
    """Return the escape of a character in RE2's syntax, valid also within brackets."""
    return letter if letter.isascii() and letter.isalnum() else f"\\x{{{ord(letter):x}}}"


def check_length(text: str) -> None:
    """Raise PatternError for a pattern that is too long."""
    if len(text) > CHARACTERS_MAX:
        raise PatternError(text, f"it has more than {CHARACTERS_MAX} characters")


def steps(pattern: Any, text: str) -> int:
    """Return the maximum number of steps of a search."""
    return len(text) * int(pattern.programsize)


def shown(pattern: str) -> str:
    """Return a pattern for messages: quoted and truncated."""
    return repr(pattern) if len(pattern) <= SHOWN_MAX else f"{pattern[:SHOWN_MAX]!r}..."


def _compiled(pattern: str | bytes, text: str, encoding: str, *, ignores_case: bool = False) -> Any:
    import re2

    check_length(text)
    _check_parts(pattern if isinstance(pattern, str) else pattern.decode("latin-1"), text)
    options = re2.Options()
    options.log_errors = False
    options.case_sensitive = not ignores_case
    options.max_mem = MEMORY_MAX
    options.encoding = getattr(re2.Options.Encoding, encoding)
    try:
        return re2.compile(pattern, options=options)
    except UnicodeEncodeError:
        raise PatternError(text, "it is not Unicode text") from None
    except re2.error as error:
        cause = error.args[0] if error.args else ""
        cause = cause.decode(errors="replace") if isinstance(cause, bytes) else str(cause)
        raise PatternError(text, _reason(text, cause)) from None


def _check_parts(pattern: str, original: str) -> None:
    """Raise PatternError for a pattern that RE2 would take long to compile."""
    optional = pattern.count("?") - pattern.count("(?")
    optional += sum(int(high) - int(low or 0) for low, high in _RANGE.findall(pattern))
    if optional > OPTIONAL_MAX:
        raise PatternError(original, f"it has more than {OPTIONAL_MAX} optional parts")
    if pattern.count("\\p") + pattern.count("\\P") > PROPERTIES_MAX:
        raise PatternError(original, f"it has more than {PROPERTIES_MAX} properties of characters")


def _reason(text: str, cause: str) -> str:
    """Return why RE2 refuses a pattern, in words where its own are few."""
    if cause.startswith("pattern too large"):
        return "it takes too much memory"
    kind, _, place = cause.partition(": ")
    if kind == "invalid repetition size":
        return f"{quoted(place)} repeats, together with what is around it, more than 1000 times"
    if kind == "invalid perl operator" and place == "(?P":
        place = "(?P=" if "(?P=" in text else place
    for beginnings, name in _UNKNOWN:
        if kind in ("invalid perl operator", "invalid escape sequence", "bad repetition operator") and (
            place.startswith(beginnings)
        ):
            return f"{name}, {quoted(place)}, which RE2 cannot do"
    return f"{kind}: {quoted(place)}" if place else cause


def quoted(place: str) -> str:
    """Return a piece of a pattern as messages show it."""
    return f'"{place[:SHOWN_MAX]}"'
