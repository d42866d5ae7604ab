"""Patterns of JSON Schema, which are ECMAScript's with the flag `u`, translated for RE2. Pure.

The rule: a pattern finds in a text what ECMA-262 says, or is refused with a sentence. Whether something is found does not
depend on groups and on greed, so groups are not kept; conditions that look ahead from the beginning (`^(?=.*[0-9])...`) are
patterns of their own. Beside ECMAScript's syntax with `u`, escapes of punctuation and a `]` or `}` that closes nothing are
characters, as in the patterns of Java that other registries take.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, NamedTuple

from barnabas.patterns import (
    CHARACTERS_MAX,
    STEPS_MAX,
    PatternError,
    check_length,
    compile_pattern,
    escaped,
    quoted,
    steps,
)

REPEATS_PER_QUANTIFIER = 1_000
"""Repetitions that RE2 takes in one quantifier; more are written as several."""
REPEATS_MAX = 100_000
TRANSLATED_MAX = 4 * CHARACTERS_MAX
"""Characters of a pattern in RE2's syntax, where it is longer."""
_OTHER_LINE_ENDS = "\r\u2028\u2029"
"""Characters that a dot does not match; texts seldom have them, `\\n` apart."""
_DOT = r"[^\n\r\x{2028}\x{2029}]"
_SPACE = r"\t-\r \x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}\x{feff}"
_NO_SPACE = (
    r"\x{0}-\x{8}\x{e}-\x{1f}!-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027}\x{202a}-\x{202e}"
    r"\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{fefe}\x{ff00}-\x{10ffff}"
)
_SETS = {"d": r"\d", "D": r"\D", "w": r"\w", "W": r"\W", "s": _SPACE, "S": _NO_SPACE}
_CONTROLS = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13}
_QUANTIFIER = re.compile(r"[*+?]|\{([0-9]{1,9})(,?)([0-9]{0,9})\}")
_GROUP = re.compile(r"\((?!\?)|\(\?:|\(\?<[A-Za-z_$][A-Za-z0-9_$]*>")
_CODE = re.compile(r"x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|u\{0*([0-9a-fA-F]{1,6})\}|c([A-Za-z])|(0)(?![0-9])")
_LOW_HALF = re.compile(r"\\u([dD][c-fC-F][0-9a-fA-F]{2})")
_PROPERTY = re.compile(r"[pP]\{(?:(General_Category|gc|Script|sc)=)?([A-Za-z_]+)\}")
_CATEGORIES = {
    "Letter": "L", "Uppercase_Letter": "Lu", "Lowercase_Letter": "Ll", "Titlecase_Letter": "Lt", "Modifier_Letter": "Lm",
    "Other_Letter": "Lo", "Mark": "M", "Combining_Mark": "M", "Nonspacing_Mark": "Mn", "Spacing_Mark": "Mc",
    "Enclosing_Mark": "Me", "Number": "N", "Decimal_Number": "Nd", "digit": "Nd", "Letter_Number": "Nl",
    "Other_Number": "No", "Punctuation": "P", "punct": "P", "Connector_Punctuation": "Pc", "Dash_Punctuation": "Pd",
    "Open_Punctuation": "Ps", "Close_Punctuation": "Pe", "Initial_Punctuation": "Pi", "Final_Punctuation": "Pf",
    "Other_Punctuation": "Po", "Symbol": "S", "Math_Symbol": "Sm", "Currency_Symbol": "Sc", "Modifier_Symbol": "Sk",
    "Other_Symbol": "So", "Separator": "Z", "Space_Separator": "Zs", "Line_Separator": "Zl", "Paragraph_Separator": "Zp",
    "Control": "Cc", "cntrl": "Cc", "Format": "Cf", "Private_Use": "Co",
}  # fmt: skip
"""Unicode's categories by their long names. `C` and `Cn` are not there: RE2 knows no characters that are not assigned."""


class EcmaPattern:
    """A pattern of JSON Schema."""

    def __init__(self, text: str, dot: str = "[^\\n]") -> None:
        """Translate and compile a pattern; `dot` is what a dot is in RE2's syntax. Raises PatternError."""
        check_length(text)
        self._text = text
        self._has_loose_dot = False
        self._parts: list[tuple[Any, bool]] = []
        for condition in _conditions(text):
            translated = _Translation(condition.text, text, dot).result
            if condition.is_anchored:
                translated = f"^(?:{translated})"
            self._has_loose_dot |= dot != _DOT and dot in translated
            self._parts.append((compile_pattern(translated, text), condition.is_excluded))

    @property
    def size(self) -> int:
        """Instructions of the compiled pattern."""
        return sum(pattern.programsize for pattern, _ in self._parts)

    def finds(self, text: str) -> bool:
        """Return whether the pattern matches anywhere in a text. Raises PatternError where that might take too long."""
        if self._has_loose_dot and any(end in text for end in _OTHER_LINE_ENDS):
            return _exact_pattern(self._text).finds(text)  # which is twice as large, so not made for all
        if not text.isascii():
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        for pattern, is_excluded in self._parts:
            if steps(pattern, text) > STEPS_MAX:
                raise PatternError(self._text, f"a text of {len(text)} characters takes too long", "use here")
            if (pattern.search(text) is not None) is is_excluded:
                return False
        return True


@lru_cache(maxsize=128)
def ecma_pattern(text: str) -> EcmaPattern:
    """Return a pattern of JSON Schema; the most recent ones are cached. Raises PatternError."""
    return EcmaPattern(text)


@lru_cache(maxsize=16)
def _exact_pattern(text: str) -> EcmaPattern:
    return EcmaPattern(text, _DOT)


def refusal(text: str, reason: str) -> PatternError:
    """Return the error for a pattern that is refused."""
    return PatternError(text, reason, "ECMAScript that RE2 can do")


class _Condition(NamedTuple):
    """A pattern that has to match, or must not where it `is_excluded`; at the beginning where it `is_anchored`."""

    text: str
    is_anchored: bool = False
    is_excluded: bool = False


def _conditions(text: str) -> list[_Condition]:
    """Take apart a pattern that looks ahead from the beginning; others are one condition."""
    at, conditions = 1, []
    while text.startswith("^") and text.startswith(("(?=", "(?!"), at):
        end = _end_of_group(text, at)
        conditions.append(_Condition(text[at + 3 : end], is_anchored=True, is_excluded=text[at + 2] == "!"))
        at = end + 1
    if not conditions or _end_of_alternative(text, at) < len(text):
        return [_Condition(text)]
    return [*conditions, _Condition(text[at:], is_anchored=True)]


def _end_of_group(text: str, at: int) -> int:
    """Return where the group ends that begins at a place. Raises PatternError."""
    end = _end_of_alternative(text, at + 1, stops_at_bars=False)
    if end == len(text):
        raise refusal(text, 'a ")" is missing')
    return end


def _end_of_alternative(text: str, at: int, *, stops_at_bars: bool = True) -> int:
    """Return the position of the next `|` or `)` on this level; the length of the text without one."""
    depth, is_in_class = 0, False
    while at < len(text):
        letter = text[at]
        if letter == "\\":
            at += 1
        elif is_in_class:
            is_in_class = letter != "]"
        elif letter == "[":
            is_in_class = True
        elif letter == "(":
            depth += 1
        elif depth == 0 and (letter == ")" or (letter == "|" and stops_at_bars)):
            return at
        elif letter == ")":
            depth -= 1
        at += 1
    return len(text)


class _Translation:
    """A pattern being translated to RE2's syntax; `result` is the translation."""

    def __init__(self, text: str, whole: str, dot: str) -> None:
        self._text = text
        self._whole = whole
        self._dot = dot
        self._at = 0
        self._output: list[str] = []
        self._atom = -1
        """The place in the output from which on a quantifier would repeat; -1 where it would repeat nothing."""
        self._groups: list[int] = []
        self._repeated_characters = 0
        while self._at < len(text):
            self._step()
        if self._groups:
            raise self._refusal('a ")" is missing')
        self.result = "".join(self._output)
        if len(self.result) > TRANSLATED_MAX:
            raise self._refusal("it is too long")

    def _refusal(self, reason: str) -> PatternError:
        return refusal(self._whole, reason)

    def _step(self) -> None:
        letter = self._text[self._at]
        if letter == "(":
            self._open()
        elif letter == ")":
            if not self._groups:
                raise self._refusal('a ")" closes nothing')
            self._at += 1
            self._output.append(")")
            self._atom = self._groups.pop()
        elif letter in "*+?{":
            self._repeat()
        elif letter in "^$|":
            self._put(letter, is_atom=False)
        elif letter == ".":
            self._put(self._dot)
        elif letter == "[":
            self._class()
        elif letter == "\\" and self._text[self._at + 1 : self._at + 2] in ("b", "B"):
            self._at += 1
            self._put(f"\\{self._text[self._at]}", is_atom=False)
        else:
            held = self._character()
            self._put(escaped(chr(held)) if isinstance(held, int) else f"[{held}]", length=0)

    def _put(self, translated: str, *, length: int = 1, is_atom: bool = True) -> None:
        self._at += length
        self._atom = len(self._output) if is_atom else -1
        self._output.append(translated)

    def _open(self) -> None:
        opening = _GROUP.match(self._text, self._at)
        if opening is None:
            place = self._text[self._at : self._at + 3]
            if place in ("(?=", "(?!", "(?<"):
                raise self._refusal(
                    f"it looks ahead or behind, {quoted(place)}, elsewhere than at its beginning, after ^"
                )
            raise self._refusal(f"no group of ECMAScript begins with {quoted(place)}")
        self._at = opening.end()
        self._groups.append(len(self._output))
        self._atom = -1
        self._output.append("(?:")

    def _repeat(self) -> None:
        quantifier = _QUANTIFIER.match(self._text, self._at)
        if quantifier is None or (quantifier[3] and not quantifier[2]):
            raise self._refusal('a "{" that begins no quantifier is written as "\\{"')
        if self._atom < 0:
            place = self._text[max(self._at - 1, 0) : quantifier.end()]
            raise self._refusal(f"there is nothing to repeat, or it is repeated already, at {quoted(place)}")
        self._at = quantifier.end() + self._text.startswith("?", quantifier.end())
        if quantifier[1] is None:
            self._output.append(quantifier[0])
        else:
            low = int(quantifier[1])
            high = int(quantifier[3]) if quantifier[3] else None if quantifier[2] else low
            self._output[self._atom :] = [self._repeated("".join(self._output[self._atom :]), low, high)]
        self._atom = -1

    def _repeated(self, atom: str, low: int, high: int | None) -> str:
        if high is not None and high < low:
            raise self._refusal(f"{{{low},{high}}} is no range")
        if max(low, high or 0) > REPEATS_MAX:
            raise self._refusal(f"it repeats something more than {REPEATS_MAX} times")
        if max(low, high or 0) <= REPEATS_PER_QUANTIFIER:
            return f"{atom}{{{low}}}" if low == high else f"{atom}{{{low},{'' if high is None else high}}}"
        counts = [f"{{{count}}}" for count in _pieces(low)]
        counts += ["*"] if high is None else [f"{{0,{count}}}" for count in _pieces(high - low)]
        self._repeated_characters += len(atom) * len(counts)
        if self._repeated_characters > CHARACTERS_MAX:
            raise self._refusal("it repeats too much too often")
        return f"(?:{''.join(atom + count for count in counts)})"

    # --- characters -------------------------------------------------------------------------------------------

    def _class(self) -> None:
        self._at += 1
        is_negative = self._text.startswith("^", self._at)
        self._at += is_negative
        held = []
        while not self._text.startswith("]", self._at):
            held.append(self._range())
        if not held:
            held, is_negative = [r"\x{0}-\x{10ffff}"], not is_negative
        self._put(f"[{'^' * is_negative}{''.join(held)}]")

    def _range(self) -> str:
        """Translate a part of a class: a character, a range, or a set of characters."""
        low = self._character(is_in_class=True)
        if not self._has_range():
            return escaped(chr(low)) if isinstance(low, int) else low
        self._at += 1
        high = self._character(is_in_class=True)
        if isinstance(low, int) and isinstance(high, int):
            if low > high:
                raise self._refusal(f'"{chr(low)}-{chr(high)}" is no range')
            return f"{escaped(chr(low))}-{escaped(chr(high))}"
        if isinstance(high, int) and not self._has_range():
            return f"{low}{escaped('-')}{escaped(chr(high))}"  # as Java and browsers read [\w-.]
        raise self._refusal('a "-" beside a set of characters, such as "\\d", is written as "\\-"')

    def _has_range(self) -> bool:
        return self._text.startswith("-", self._at) and not self._text.startswith("]", self._at + 1)

    def _character(self, *, is_in_class: bool = False) -> int | str:
        """Read one character, or a set of characters in the form for RE2's brackets."""
        if self._at >= len(self._text):
            raise self._refusal('a "]" is missing')
        letter = self._text[self._at]
        self._at += 1
        if letter != "\\":
            return self._checked(ord(letter))
        letter = self._text[self._at : self._at + 1]
        if not letter:
            raise self._refusal('it ends in a "\\"')
        if letter in "123456789k":
            raise self._refusal(f"it refers back to a group, {quoted(chr(92) + letter)}")
        if letter in _SETS:
            self._at += 1
            return _SETS[letter]
        if letter in "pP":
            return self._property()
        code = _CODE.match(self._text, self._at)
        if code is not None:
            self._at = code.end()
            return self._code(code)
        self._at += 1
        if letter == "b" and is_in_class:
            return 8
        if letter.isascii() and letter.isalnum() and letter not in _CONTROLS:
            raise self._refusal(f"ECMAScript has no {quoted(chr(92) + letter)}")
        return _CONTROLS.get(letter) or self._checked(ord(letter))

    def _code(self, code: re.Match[str]) -> int:
        if code[4]:
            return ord(code[4]) % 32
        number = 0 if code[5] else int(code[1] or code[2] or code[3], 16)
        low_half = _LOW_HALF.match(self._text, self._at)
        if code[2] and 0xD800 <= number < 0xDC00 and low_half:
            self._at = low_half.end()
            number = 0x10000 + (number - 0xD800) * 0x400 + int(low_half[1], 16) - 0xDC00
        return self._checked(number)

    def _checked(self, number: int) -> int:
        if 0xD800 <= number < 0xE000 or number > 0x10FFFF:
            raise self._refusal(f"U+{number:04X} is no character, but half of one or too large")
        return number

    def _property(self) -> str:
        named = _PROPERTY.match(self._text, self._at)
        letter = self._text[self._at]
        if named is not None:
            self._at = named.end()
            kind, name = named[1] or "gc", named[2]
            is_script = kind in ("Script", "sc")
            short = name if is_script else _CATEGORIES.get(name, name)
            if (len(short) > 4) if is_script else (short in _CATEGORIES.values()):
                return f"\\{letter}{{{short}}}"
            if name == "Any" and letter == "p":
                return r"\x{0}-\x{10ffff}"
            if name == "ASCII":
                return r"\x{0}-\x{7f}" if letter == "p" else r"\x{80}-\x{10ffff}"
        place = self._text[self._at if named is None else named.start() :].partition("}")[0]
        raise self._refusal(f"of properties there are categories and scripts, not {quoted(chr(92) + place)}")


def _pieces(count: int) -> list[int]:
    whole, rest = divmod(count, REPEATS_PER_QUANTIFIER)
    return [REPEATS_PER_QUANTIFIER] * whole + [rest] * (rest > 0)
