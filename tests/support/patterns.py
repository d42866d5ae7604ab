"""Uses of Python's `re` in the sources, and texts for which a pattern takes longest."""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from re import _constants as constants  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
METHODS = ("search", "match", "fullmatch", "findall", "finditer", "sub", "subn", "split")
_MATCHING = ("search", "match", "fullmatch")
ENDS = ("", "\0", "\n", "=")


@dataclass(frozen=True, slots=True)
class Use:
    """A call of `re` in a module: its pattern, None if that is not a literal, and the called methods."""

    path: str
    line: int
    pattern: str | bytes | None
    flags: int
    methods: tuple[str, ...]


@cache
def sources() -> list[Path]:
    """The modules of the broker and of the pipeline with `re`, `re2` or `fnmatch` as a word in their text."""
    paths = sorted(path for top in ("server", "pipeline") for path in (ROOT / top).rglob("*.py"))
    return [path for path in paths if re.search(r"\b(?:re|re2|fnmatch)\b", path.read_text())]


@cache
def parsed(path: Path) -> ast.Module:
    """The syntax tree of a module."""
    return ast.parse(path.read_text())


def imports_of(name: str) -> set[str]:
    """The modules that import a module, by any of the ways to do it."""
    modules = set()
    for path in sources():
        for node in ast.walk(parsed(path)):
            names = [part.name for part in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            if name in {part.partition(".")[0] for part in names}:
                modules.add(str(path.relative_to(ROOT)))
    return modules


def uses_of(path: Path) -> Iterator[Use]:
    """Yield the calls of functions of `re` in a module."""
    tree = parsed(path)
    constants_there = _literals(tree)
    name_of_call = {
        node.value: target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and _is_of_re(node.func) and isinstance(node.func, ast.Attribute)):
            continue
        method = node.func.attr
        if method not in (*METHODS, "compile"):
            continue
        methods = (method,)
        if method == "compile":
            methods = _methods_of(tree, name_of_call.get(node)) or _MATCHING
        pattern = _literal(node.args[0], constants_there)
        yield Use(str(path.relative_to(ROOT)), node.lineno, pattern, _flags(node), methods)


def _is_of_re(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "re"


def _literals(tree: ast.Module) -> dict[str, str | bytes]:
    held: dict[str, str | bytes] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            value = _literal(node.value, held)
            if value is not None:
                held[node.targets[0].id] = value
    return held


def _literal(node: ast.expr, names: dict[str, str | bytes]) -> str | bytes | None:
    """Return the text of an expression of literals, None for any other."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
        return node.value
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.JoinedStr):
        values = [part.value if isinstance(part, ast.FormattedValue) else part for part in node.values]
        parts = [_literal(value, names) for value in values]
        return None if None in parts else "".join(str(part) for part in parts)
    return None


def _flags(call: ast.Call) -> int:
    arguments = [part for part in [*call.args[1:], *(keyword.value for keyword in call.keywords)] if part]
    named = {
        part.attr
        for node in arguments
        for part in ast.walk(node)
        if isinstance(part, ast.Attribute) and _is_of_re(part)
    }
    return sum(int(getattr(re, name)) for name in named)


def _methods_of(tree: ast.Module, name: str | None) -> tuple[str, ...]:
    """Return the names of the methods that a module calls of a compiled pattern."""
    return tuple(
        {
            node.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == name
        }
        & set(METHODS)
    )


def long_texts(pattern: str, flags: int, length: int, draws: random.Random) -> Iterator[str]:
    """Yield texts of a length that nearly match: the repeated part of each repetition, after the part before it."""
    for prefix, body in _repetitions(parser.parse(pattern, flags), ""):
        pumps = {"".join(_sample(body, draws) for _ in range(1 + number % 3)) for number in range(4)} - {""}
        for pump in sorted(pumps):
            for end in ENDS:
                yield prefix + pump * ((length - len(prefix)) // len(pump)) + end
            yield (prefix + pump) * (length // len(prefix + pump))


def _repetitions(items: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    draws = random.Random(0)
    for operation, argument in items:
        if operation in (constants.MAX_REPEAT, constants.MIN_REPEAT, constants.POSSESSIVE_REPEAT):
            _, high, body = argument
            if high > 8:
                yield prefix, body
            yield from _repetitions(body, prefix)
        elif operation is constants.SUBPATTERN:
            yield from _repetitions(argument[3], prefix)
        elif operation is constants.BRANCH:
            for branch in argument[1]:
                yield from _repetitions(branch, prefix)
        elif operation in (constants.ASSERT, constants.ASSERT_NOT):
            yield from _repetitions(argument[1], prefix)
        prefix += _sample([(operation, argument)], draws)


def _sample(items: Any, draws: random.Random) -> str:
    """Return a text that matches, with as few repetitions as possible."""
    text = ""
    for operation, argument in items:
        if operation is constants.LITERAL:
            text += chr(argument)
        elif operation is constants.NOT_LITERAL:
            text += "b" if chr(argument) == "a" else "a"
        elif operation is constants.ANY:
            text += "a"
        elif operation is constants.IN:
            text += _member(argument, draws)
        elif operation is constants.BRANCH:
            text += _sample(draws.choice(argument[1]), draws)
        elif operation is constants.SUBPATTERN:
            text += _sample(argument[3], draws)
        elif operation in (constants.MAX_REPEAT, constants.MIN_REPEAT, constants.POSSESSIVE_REPEAT):
            low, high, body = argument
            text += "".join(_sample(body, draws) for _ in range(min(max(low, draws.randrange(2)), high)))
    return text


def _member(items: Any, draws: random.Random) -> str:
    """A character of a class, ASCII if there is one."""
    negative = items[0][0] is constants.NEGATE
    fitting = parser.SubPattern(parser.State(), [(constants.IN, items)])
    compiled = re.compile(_class_of(fitting))
    letters = [chr(code) for code in range(128) if compiled.fullmatch(chr(code))]
    plain = [letter for letter in letters if letter.isalnum() or letter in " .-_"] if negative else letters
    return draws.choice(plain or letters or ["\u00e9"])


def _class_of(pattern: Any) -> str:
    ((_, items),) = pattern
    parts = []
    for operation, argument in items:
        if operation is constants.NEGATE:
            parts.append("^")
        elif operation is constants.LITERAL:
            parts.append(re.escape(chr(argument)))
        elif operation is constants.RANGE:
            parts.append(f"{re.escape(chr(argument[0]))}-{re.escape(chr(argument[1]))}")
        else:
            names = {
                constants.CATEGORY_DIGIT: r"\d", constants.CATEGORY_NOT_DIGIT: r"\D", constants.CATEGORY_SPACE: r"\s",
                constants.CATEGORY_NOT_SPACE: r"\S", constants.CATEGORY_WORD: r"\w", constants.CATEGORY_NOT_WORD: r"\W",
            }  # fmt: skip
            parts.append(names[argument])
    return f"[{''.join(parts)}]"
