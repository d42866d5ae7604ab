"""Login settings in JAAS's form, as `sasl.jaas.config` holds them. Pure.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b" user_a="b";

The rule: the accepted texts are those that Java's login configuration accepts for one entry; an error names the fault and
never contains a value, which may be a password.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

FLAGS = ("required", "requisite", "sufficient", "optional")

_TOKEN = re.compile(
    r"""
    (?P<space>\s+|//[^\n]*|/\*.*?\*/)
    | "(?P<double>(?:[^"\\\n]|\\.)*)"
    | '(?P<single>(?:[^'\\\n]|\\.)*)'
    | (?P<word>[\w.$:@/\\+*!%&?<>\-\[\]()^~|`#,]+)
    | (?P<mark>[=;{}])
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v"}


class JaasError(ValueError):
    """Invalid text of a login configuration; the message does not repeat it."""


@dataclass(frozen=True, slots=True)
class JaasEntry:
    """A login module and its options."""

    module: str
    options: Mapping[str, str]

    @property
    def module_name(self) -> str:
        """The module's class without its package."""
        return self.module.rpartition(".")[2]

    def users(self) -> dict[str, str]:
        """Return the passwords by user name that options of the form user_NAME="PASSWORD" give."""
        return {
            key.removeprefix("user_"): value
            for key, value in self.options.items()
            if key.startswith("user_") and key != "user_"
        }


def parse_jaas(text: str) -> JaasEntry:
    """Parse the one entry of a `sasl.jaas.config`. Raises JaasError."""
    return _entry(list(_tokens(text)))


def parse_jaas_section(text: str, name: str) -> JaasEntry:
    """Parse the one entry of a section of a JAAS file, `NAME { MODULE required KEY="VALUE" ...; };`. Raises JaasError."""
    tokens = list(_tokens(text))
    position = 0
    while position < len(tokens):
        section = _word(tokens, position, "the name of a section")
        if position + 1 >= len(tokens) or tokens[position + 1] != ("mark", "{"):
            raise JaasError(f"{{ is expected after the section {section}")
        try:
            end = tokens.index(("mark", "}"), position)
        except ValueError:
            raise JaasError(f"the section {section} does not end with }};") from None
        if end + 1 >= len(tokens) or tokens[end + 1] != ("mark", ";"):
            raise JaasError(f"; is expected after the }} of the section {section}")
        if section == name:
            return _entry(tokens[position + 2 : end])
        position = end + 2
    raise JaasError(f"there is no section {name}")


def _entry(tokens: list[tuple[str, str]]) -> JaasEntry:
    if not tokens:
        raise JaasError('it is empty; expected is MODULE required KEY="VALUE" ...;')
    module = _word(tokens, 0, "the class of a login module")
    flag = _word(tokens, 1, f"one of {', '.join(FLAGS)} after the class")
    if flag.lower() not in FLAGS:
        raise JaasError(f"one of {', '.join(FLAGS)} is expected after the class of the login module")
    options: dict[str, str] = {}
    position = 2
    while position < len(tokens) and tokens[position] != ("mark", ";"):
        key = _word(tokens, position, "the name of an option, or ; at the end")
        if position + 1 >= len(tokens) or tokens[position + 1] != ("mark", "="):
            raise JaasError(f"= is expected after the option {key}")
        options[key] = _word(tokens, position + 2, f"a value of the option {key}")
        position += 3
    if position >= len(tokens):
        raise JaasError("it does not end with ;")
    if position + 1 < len(tokens):
        raise JaasError("there is something after the first ; : one login module is expected")
    return JaasEntry(module, options)


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    position = 0
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None:
            raise JaasError(f"character {position + 1} belongs to no word, quoted text, = or ;")
        position = token.end()
        kind = token.lastgroup or ""
        if kind in ("double", "single"):
            yield "word", _unescaped(token[kind])
        elif kind != "space":
            yield kind, token[0]


def _word(tokens: list[tuple[str, str]], position: int, expected: str) -> str:
    if position >= len(tokens) or tokens[position][0] != "word":
        raise JaasError(f"{expected} is expected")
    return tokens[position][1]


def _unescaped(text: str) -> str:
    def unescaped(match: re.Match[str]) -> str:
        digits, char = match[1], match[2]
        return chr(int(digits, 8)) if digits else _ESCAPES.get(char, char)

    return re.sub(r"\\(?:([0-3]?[0-7]{1,2})|(.))", unescaped, text, flags=re.DOTALL)
