"""Texts of filters, parsed into conditions. Pure. The grammar: docs/reference/filters.md.

The rule: an invalid filter is refused with the position of the first wrong character, and what is expected there.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from barnabas.filters.columns import COLUMNS_MAX, Column
from barnabas.filters.errors import FilterError
from barnabas.filters.nodes import (
    Both,
    Comparison,
    Either,
    Exists,
    Holding,
    In,
    Literal,
    Matching,
    Node,
    Not,
    Number,
    Operand,
    Path,
    Search,
    Segment,
)
from barnabas.patterns import PatternError, compile_pattern, escaped

FILTER_CHARS_MAX = 1_000
DEPTH_MAX = 50
"""Conditions within conditions, and parts of a path."""
FIELDS = ("key", "value", "headers", "topic", "partition", "offset", "timestamp")
_PAYLOADS = ("key", "value", "headers")
_WORDS = {"true": True, "false": False, "null": None}
_SIGNS = {"=": "=", "==": "=", "!=": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_HINTS = {"&": "; write 'and'", "|": "; write 'or'", "!": "; write 'not'"}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_QUOTED = re.compile(r"""\\.|\"""", re.S)
_TOKEN = re.compile(
    r"""(?P<number>-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)"""
    r"""|(?P<name>[^\W\d][\w-]*)"""
    r"""|(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')"""
    r"""|(?P<regex>/(?:[^/\\]|\\.)+/)"""
    r"""|(?P<sign>[<>=!]=|\.\.|[<>=~()\[\],.*$])""",
    re.S,
)


class Token(NamedTuple):
    """A piece of a filter: `kind` is number, name, text, regex, sign or end."""

    kind: str
    text: str
    position: int

    @property
    def shown(self) -> str:
        """The piece as messages show it."""
        return "the end" if self.kind == "end" else repr(self.text)


def compile_filter(text: str) -> Node:
    """Return the condition that a text is. Raises FilterError."""
    if len(text) > FILTER_CHARS_MAX:
        raise FilterError(f"a filter has at most {FILTER_CHARS_MAX} characters", FILTER_CHARS_MAX)
    return _Parser(_tokens(text)).read()


def compile_columns(text: str) -> tuple[Column, ...]:
    """Return the columns that a text names: paths and fields, with commas between them. Raises FilterError."""
    if len(text) > FILTER_CHARS_MAX:
        raise FilterError(f"columns have at most {FILTER_CHARS_MAX} characters", FILTER_CHARS_MAX)
    return _Parser(_tokens(text)).read_columns(text)


def _tokens(text: str) -> list[Token]:
    tokens = []
    position = 0
    while position < len(text):
        if text[position].isspace():
            position += 1
            continue
        match = _TOKEN.match(text, position)
        if match is None:
            raise FilterError(_unknown(text[position]), position)
        assert match.lastgroup is not None
        tokens.append(Token(match.lastgroup, match[0], position))
        position = match.end()
    return [*tokens, Token("end", "", len(text))]


def _unknown(letter: str) -> str:
    if letter in "\"'":
        return f"this text has no end: {letter!r} is missing"
    if letter == "/":
        return "this regular expression has no end: '/' is missing"
    return f"{letter!r} is not part of the language{_HINTS.get(letter, '')}"


class _Parser:
    """Reads conditions by recursive descent; the names of methods are those of the grammar."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0

    def read(self) -> Node:
        node = self._condition()
        if self._next.kind != "end":
            raise self._unexpected("'and', 'or' or the end")
        return node

    def read_columns(self, text: str) -> tuple[Column, ...]:
        columns: list[Column] = []
        while True:
            token = self._next
            operand = self._operand("a path or a field")
            if isinstance(operand, Literal):
                raise FilterError(f"a path or a field is expected, not {token.shown}", token.position)
            if len(columns) >= COLUMNS_MAX:
                raise FilterError(f"there are at most {COLUMNS_MAX} columns", token.position)
            columns.append(Column(text[token.position : self._next.position].strip(), operand))
            if self._next.kind == "end":
                return tuple(columns)
            if not self._takes(","):
                raise self._unexpected("',' or the end")

    # --- conditions -------------------------------------------------------------------------------------------

    def _condition(self) -> Node:
        nodes = [self._conjunction()]
        while self._takes_word("or"):
            nodes.append(self._conjunction())
        return nodes[0] if len(nodes) == 1 else Either(tuple(nodes))

    def _conjunction(self) -> Node:
        nodes = [self._term()]
        while self._takes_word("and"):
            nodes.append(self._term())
        return nodes[0] if len(nodes) == 1 else Both(tuple(nodes))

    def _term(self) -> Node:
        token = self._next
        is_negated = self._takes_word("not")
        if not is_negated and not self._takes("("):
            return self._comparison()
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise FilterError(f"conditions are nested more than {DEPTH_MAX} deep", token.position)
        node = Not(self._term()) if is_negated else self._condition()
        if not is_negated:
            self._expect(")")
        self._depth -= 1
        return node

    def _comparison(self) -> Node:
        token = self._next
        if token.kind == "regex":
            self._at += 1
            return Search(self._pattern(token))
        first = self._operand("a condition")
        sign = self._next
        if self._takes_word("contains"):
            return Holding(first, self._literal())
        if self._takes_word("in"):
            return In(first, self._list())
        if self._takes("~"):
            operand = self._next
            if operand.kind not in ("text", "regex"):
                raise FilterError("a text or a regular expression is expected after '~'", operand.position)
            self._at += 1
            return Matching(first, self._pattern(operand))
        if sign.kind == "sign" and sign.text in _SIGNS:
            self._at += 1
            other = self._next
            second = self._operand("a value")
            return Comparison(_timed(first, second, token), _SIGNS[sign.text], _timed(second, first, other))
        return self._alone(first, token)

    def _alone(self, operand: Operand, token: Token) -> Node:
        if not isinstance(operand, Literal):
            return Exists(operand)
        if token.kind != "text":
            kind = "a number" if token.kind == "number" else token.shown
            raise FilterError(f"{kind} alone is not a condition", token.position)
        return Search(self._compiled(token, "".join(map(escaped, operand.value)), ignores_case=True))

    # --- values -----------------------------------------------------------------------------------------------

    def _operand(self, expected: str) -> Operand:
        token = self._next
        if token.kind in ("number", "text") or token.text in _WORDS:
            return Literal(self._literal())
        if token.text == "$":
            self._at += 1
            return Path("value", self._segments(), is_json=True)
        if token.kind != "name" or token.text.lower() in ("and", "or", "not", "in", "contains"):
            raise self._unexpected(expected)
        if token.text not in FIELDS:
            fields = f"$ (the value), {', '.join(FIELDS[:-1])} or {FIELDS[-1]}"
            raise FilterError(f"{token.shown} is not a field: {fields}", token.position)
        self._at += 1
        after = self._next
        segments = self._segments()
        if token.text not in _PAYLOADS:
            if segments:
                raise FilterError(f"{token.text} has no parts", after.position)
            return Number(token.text)
        if token.text == "headers" and (
            not segments or segments[0].is_deep or isinstance(segments[0].step, int)
        ):
            raise FilterError("a header is headers.NAME", token.position)
        return Path(token.text, segments)

    def _segments(self) -> tuple[Segment, ...]:
        segments: list[Segment] = []
        while (token := self._next).text in (".", "..", "[") and token.kind == "sign":
            if len(segments) >= DEPTH_MAX:
                raise FilterError(f"a path has at most {DEPTH_MAX} parts", token.position)
            self._at += 1
            if token.text == "[":
                segments.append(self._bracket())
            elif self._takes("*"):
                segments.append(Segment(None, token.text == ".."))
            elif self._next.kind == "name":
                segments.append(Segment(self._taken().text, token.text == ".."))
            else:
                raise self._unexpected(f"a name or '*' is expected after {token.text!r}", is_sentence=True)
        return tuple(segments)

    def _bracket(self) -> Segment:
        token = self._next
        if self._takes("*"):
            segment = Segment(None)
        elif token.kind == "number" and token.text.removeprefix("-").isdecimal() and len(token.text) < 10:
            segment = Segment(int(self._taken().text))
        elif token.kind == "text":
            segment = Segment(self._literal())
        else:
            raise self._unexpected(
                "a number, a name in quotation marks or '*' is expected in brackets", is_sentence=True
            )
        self._expect("]")
        return segment

    def _list(self) -> tuple[Any, ...]:
        self._expect("(")
        values = [self._literal()]
        while self._takes(","):
            values.append(self._literal())
        self._expect(")")
        return tuple(values)

    def _literal(self) -> Any:
        token = self._next
        if token.kind == "text":
            self._at += 1
            return _text(token)
        if token.kind == "number":
            self._at += 1
            return float(token.text) if set(token.text) & set(".eE") else int(token.text)
        if token.text in _WORDS and token.kind == "name":
            self._at += 1
            return _WORDS[token.text]
        raise self._unexpected("a value")

    def _pattern(self, token: Token) -> Any:
        text = _text(token) if token.kind == "text" else token.text[1:-1].replace("\\/", "/")
        return self._compiled(token, text)

    def _compiled(self, token: Token, text: str, *, ignores_case: bool = False) -> Any:
        try:
            return compile_pattern(text, ignores_case=ignores_case)
        except PatternError as error:
            raise FilterError(f"not a regular expression: {error.reason}", token.position) from None

    # --- tokens -----------------------------------------------------------------------------------------------

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    def _taken(self) -> Token:
        self._at += 1
        return self._tokens[self._at - 1]

    def _takes(self, sign: str) -> bool:
        is_next = self._next.kind == "sign" and self._next.text == sign
        self._at += is_next
        return is_next

    def _takes_word(self, word: str) -> bool:
        is_next = self._next.kind == "name" and self._next.text.lower() == word
        self._at += is_next
        return is_next

    def _expect(self, sign: str) -> None:
        if not self._takes(sign):
            raise self._unexpected(repr(sign))

    def _unexpected(self, expected: str, *, is_sentence: bool = False) -> FilterError:
        token = self._next
        hint = f"; an element is [{token.text}]" if "after '.'" in expected and token.kind == "number" else ""
        sentence = expected if is_sentence else f"{expected} is expected"
        return FilterError(f"{sentence}, not {token.shown}{hint}", token.position)


def _text(token: Token) -> str:
    """Return the text of a token in quotation marks; its escapes are JSON's. Raises FilterError."""
    inner = token.text[1:-1]
    if token.text[0] == "'":
        inner = _QUOTED.sub(lambda match: {"\\'": "'", '"': '\\"'}.get(match[0], match[0]), inner)
    try:
        text: str = json.loads(f'"{inner}"', strict=False)
    except ValueError as error:
        raise FilterError(f"not a text: {getattr(error, 'msg', error)}", token.position) from None
    return text


def _timed(operand: Operand, other: Operand, token: Token) -> Operand:
    """Return a date that is compared with the timestamp in ms since 1970, other operands as they are."""
    if other != Number("timestamp") or not isinstance(operand, Literal) or not isinstance(operand.value, str):
        return operand
    try:
        moment = datetime.fromisoformat(operand.value)
    except ValueError:
        reason = "not a time: 2026-01-31T12:00:00Z or ms since 1970 is expected"
        raise FilterError(reason, token.position) from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return Literal((moment - _EPOCH) // timedelta(milliseconds=1))
