"""Typical slips of programmers, as changes of one place in a function; each is a mutant. Pure.

The rule: neither the compiler nor, usually, mypy detects a slip. So comparisons with None are not changed, and names are
swapped only with names of the same kind. Code that runs on import is skipped: its tables are compared with generated
pages, and a limit of 1001 instead of 1000 is not a bug.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tools.mutants.source import Source, Unit

Change = tuple[ast.expr | ast.stmt, str]
"""A node and the text that takes its place."""


@dataclass(frozen=True)
class Mutant:
    """One changed place."""

    path: str
    unit: Unit
    slip: str
    line: int
    lines: range
    """Lines of which a test must run at least one to notice the slip."""
    start: int
    end: int
    text: str
    """Takes the place of the module's text from `start` to `end`."""
    before: str
    after: str
    """The lines that change, without indentation."""

    @property
    def id(self) -> str:
        """Stable while the function and the place in it are unchanged."""
        place = (
            f"{self.path} {self.unit.name} {self.unit.hash} {self.line - self.unit.first_line} {self.slip}"
        )
        return hashlib.sha256(f"{place}\n{self.before}\n{self.after}\n{self.text}".encode()).hexdigest()[:16]

    def applied(self, text: str) -> str:
        """Return the module's text with this change."""
        return text[: self.start] + self.text + text[self.end :]

    def compiles(self, text: str) -> bool:
        """Return whether the changed text compiles."""
        try:
            compile(self.applied(text), self.path, "exec", dont_inherit=True)
        except SyntaxError:
            return False
        return True


class Place(NamedTuple):
    """A statement where a slip may be."""

    source: Source
    unit: Unit
    statement: ast.stmt
    expressions: tuple[ast.expr, ...]

    @property
    def is_early_return(self) -> bool:
        """Return whether this is a `return` before the end of the function."""
        return isinstance(self.statement, ast.Return) and self.statement is not self.unit.node.body[-1]


COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.In: "not in",
    ast.NotIn: "in",
    ast.Is: "is not",
    ast.IsNot: "is",
}
OPERATORS: dict[type[ast.operator], str] = {ast.Add: "-", ast.Sub: "+"}
NEIGHBOURS = {"min": "max", "max": "min", "any": "all", "all": "any"}
KINDS = (
    "ms", "seconds", "offset", "offsets", "epoch", "timestamp", "bytes", "size", "count", "id", "version", "position",
    "sequence", "max", "min", "time", "watermark", "index",
)  # fmt: skip
"""Last words of names that denote the kind of a value: two of the same kind are easily confused."""
BRACKETED = (ast.BoolOp, ast.Compare, ast.IfExp, ast.NamedExpr, ast.Lambda)
"""Expressions that need parentheses as operands."""
ERROR_CODES = "ErrorCode"
SMALL_MAX = 10
"""Largest number for off-by-one slips: larger ones are units and limits."""
LOGS = frozenset({"log", "logger", "_log", "logging", "warnings"})
NO_EFFECT = frozenset({"checkpoint", "breathe"})
"""Calls that yield to other tasks: without them only waiting times change."""


def mutants(source: Source) -> list[Mutant]:
    """Return every mutant of a module, in the order of its lines."""
    by_place: dict[tuple[int, int, str], Mutant] = {}
    for unit in source.units:
        if _is_abstract(unit.node):
            continue
        for statement in _statements(unit.node.body):
            place = Place(source, unit, statement, tuple(_expressions(statement)))
            for slip, slipped in SLIPS.items():
                for node, text in slipped(place):
                    mutant = _made(source, unit, statement, slip, node, text)
                    if mutant is not None:
                        by_place.setdefault((mutant.start, mutant.end, mutant.text), mutant)
    return sorted(by_place.values(), key=lambda mutant: (mutant.start, mutant.end, mutant.slip, mutant.text))


def _made(
    source: Source, unit: Unit, statement: ast.stmt, slip: str, node: ast.expr | ast.stmt, text: str
) -> Mutant | None:
    start, end = source.span(node)
    if source.text[start:end] == text:
        return None
    assert node.end_lineno is not None
    first = source.offset(node.lineno, 0)
    last = source.offset(node.end_lineno, 0) + len(source.lines[node.end_lineno - 1])
    return Mutant(
        source.path, unit, slip, node.lineno, range(statement.lineno, node.end_lineno + 1), start, end, text,
        _joined(source.text[first:last]), _joined(source.text[first:start] + text + source.text[end:last]),
    )  # fmt: skip


def _joined(text: str) -> str:
    return " ".join(line.strip() for line in text.splitlines()).strip()


def _is_abstract(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether a function belongs to a protocol, or only helps debugging."""
    if function.name in ("__repr__", "__str__"):
        return True
    body = [node for node in function.body if not _is_text(node)]
    return not body or all(isinstance(node, ast.Raise | ast.Pass) for node in body)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield all statements, including those of nested functions, except log calls and asserts."""
    for node in body:
        if _is_text(node) or isinstance(node, ast.Assert) or _writes_log(node):
            continue
        yield node
        for name in ("body", "orelse", "finalbody"):
            yield from _statements(getattr(node, name, ()))
        for handler in getattr(node, "handlers", ()):
            yield from _statements(handler.body)
        for case in getattr(node, "cases", ()):
            yield from _statements(case.body)


def _call(node: ast.stmt) -> ast.Call | None:
    """Return the call that a statement consists of."""
    if not isinstance(node, ast.Expr):
        return None
    value = node.value.value if isinstance(node.value, ast.Await) else node.value
    return value if isinstance(value, ast.Call) else None


def _writes_log(node: ast.stmt) -> bool:
    call = _call(node)
    if call is None or not isinstance(call.func, ast.Attribute):
        return False
    return isinstance(call.func.value, ast.Name) and call.func.value.id in LOGS


def _expressions(statement: ast.stmt) -> Iterator[ast.expr]:
    """Yield the expressions of a statement itself, without those of inner statements, annotations, and texts."""
    pending: list[ast.AST] = []
    for name, value in ast.iter_fields(statement):
        if name in (
            "body",
            "orelse",
            "finalbody",
            "handlers",
            "decorator_list",
            "annotation",
            "returns",
            "args",
        ):
            continue
        if name == "cases":
            pending += [case.guard for case in value if case.guard is not None]
        else:
            pending += value if isinstance(value, list) else [value]
    while pending:
        node = pending.pop(0)
        if not isinstance(node, ast.AST) or isinstance(node, ast.JoinedStr):
            continue
        if isinstance(node, ast.Lambda):
            pending.append(node.body)
            continue
        if isinstance(node, ast.expr):
            yield node
        pending += ast.iter_child_nodes(node)


# --- slips ----------------------------------------------------------------------------------------------------------


def _comparison(place: Place) -> Iterator[Change]:
    for node in place.expressions:
        if _asks_for_none(node):
            continue
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            operator = COMPARISONS[type(node.ops[0])]
            first, right = (_bracketed(place.source, each) for each in (node.left, node.comparators[0]))
            yield node, f"{first} {operator} {right}"
        elif isinstance(node, ast.Compare):
            for index, operation in enumerate(node.ops):
                start, end = place.source.span(node)
                _, before = place.source.span([node.left, *node.comparators][index])
                after, _ = place.source.span(node.comparators[index])
                operator = COMPARISONS[type(operation)]
                yield node, f"{place.source.text[start:before]} {operator} {place.source.text[after:end]}"


def _connective(place: Place) -> Iterator[Change]:
    """`and` for `or`, and an operand that is forgotten."""
    for node in place.expressions:
        if not isinstance(node, ast.BoolOp):
            continue
        word, other = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        parts = [_bracketed(place.source, value) for value in node.values]
        if not any(map(_asks_for_none, node.values)):
            yield node, "(" + f" {other} ".join(parts) + ")"
        for index, value in enumerate(node.values):
            if not _asks_for_none(value):
                yield node, "(" + f" {word} ".join(parts[:index] + parts[index + 1 :]) + ")"


def _asks_for_none(node: ast.expr) -> bool:
    """Return whether an expression compares with None, where mypy detects a slip."""
    if not isinstance(node, ast.Compare):
        return False
    last = node.comparators[-1]
    return isinstance(last, ast.Constant) and last.value is None


def _bracketed(source: Source, node: ast.expr) -> str:
    text = source.of(node)
    return f"({text})" if isinstance(node, BRACKETED) else text


def _dropped(place: Place) -> Iterator[Change]:
    """Omit a call, a change of an attribute, a deletion, a `raise`, or an early `return`."""
    call = _call(place.statement)
    if call is not None:
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if name not in NO_EFFECT:
            yield place.statement, "pass"
    elif isinstance(place.statement, ast.Assign | ast.AugAssign):
        targets = (
            place.statement.targets if isinstance(place.statement, ast.Assign) else [place.statement.target]
        )
        is_local = any(isinstance(target, ast.Name | ast.Tuple) for target in targets)
        if place.unit.name.rpartition(".")[2] not in ("__init__", "__post_init__") and (
            not is_local or isinstance(place.statement, ast.AugAssign)
        ):
            yield place.statement, "pass"
    elif isinstance(place.statement, ast.Delete | ast.Raise | ast.Continue) or place.is_early_return:
        yield place.statement, "pass"


def _error_code(place: Place) -> Iterator[Change]:
    used = sorted(place.source.attributes.get(ERROR_CODES, set()) | {"UNKNOWN_SERVER_ERROR"})
    for node in place.expressions:
        if isinstance(node, ast.Attribute) and place.source.of(node.value) == ERROR_CODES:
            other = used[(used.index(node.attr) + 1) % len(used)]
            yield node, f"{ERROR_CODES}.{other}"


def _like_named(place: Place) -> Iterator[Change]:
    """Replace a parameter by another of the same kind, or an attribute by another that the module reads from the object."""
    called = {id(node.func) for node in place.expressions if isinstance(node, ast.Call)}
    for node in place.expressions:
        kind = _kind(node)
        if kind is None or id(node) in called or not isinstance(getattr(node, "ctx", None), ast.Load):
            continue
        if isinstance(node, ast.Name):
            alike = _parameters_like(place.unit.node, node.id, kind)
            if alike:
                yield node, _next(alike, node.id)
        elif isinstance(node, ast.Attribute):
            names = place.source.attributes.get(ast.unparse(node.value), set())
            others = {each for each in names if _kind_of(each) == kind} - {node.attr}
            if others:
                yield node, f"{place.source.of(node.value)}.{_next(sorted(others), node.attr)}"


def _next(names: list[str], name: str) -> str:
    return next((other for other in names if other > name), names[0])


def _kind(node: ast.AST) -> str | None:
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return _kind_of(name)


def _kind_of(name: str) -> str | None:
    first, _, last = name.lower().rpartition("_")
    return last if last in KINDS and (first or last != "id") else None


def _parameters_like(function: ast.FunctionDef | ast.AsyncFunctionDef, name: str, kind: str) -> list[str]:
    """Other parameters of a kind and with the same annotation; other names may not be there yet."""
    arguments = function.args
    types = {
        each.arg: "" if each.annotation is None else ast.unparse(each.annotation)
        for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    }
    return sorted(
        other
        for other in types
        if other != name and _kind_of(other) == kind and types[other] == types.get(name, types[other])
    )


def _swapped(place: Place) -> Iterator[Change]:
    """Swap two adjacent arguments that are of one kind by their names."""
    for node in place.expressions:
        if not isinstance(node, ast.Call) or (isinstance(node.func, ast.Name) and node.func.id in NEIGHBOURS):
            continue
        for argument, other in zip(node.args, node.args[1:], strict=False):
            if (
                _kind(argument) is not None
                and _kind(argument) == _kind(other)
                and place.source.of(argument) != place.source.of(other)
            ):
                start, end = place.source.span(node)
                first, second = place.source.span(argument), place.source.span(other)
                text = place.source.text
                yield (
                    node,
                    text[start : first[0]] + text[slice(*second)] + text[first[1] : second[0]]
                    + text[slice(*first)] + text[second[1] : end],
                )  # fmt: skip


def _number(place: Place) -> Iterator[Change]:
    """Change a number by one, `+` to `-`, and `min` to `max`."""
    for node in place.expressions:
        if isinstance(node, ast.Constant) and type(node.value) is int and node.value <= SMALL_MAX:
            yield node, str(node.value + 1)
            if node.value:
                yield node, str(node.value - 1)
        elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            operator = OPERATORS[type(node.op)]
            yield node, f"{place.source.of(node.left)} {operator} {_bracketed(place.source, node.right)}"
        elif isinstance(node, ast.Name) and node.id in NEIGHBOURS:
            yield node, NEIGHBOURS[node.id]


def _condition(place: Place) -> Iterator[Change]:
    """A condition that always or never holds."""
    tests: list[tuple[ast.expr, tuple[str, ...]]] = []
    if isinstance(place.statement, ast.If):
        tests.append((place.statement.test, ("True", "False")))
    elif isinstance(place.statement, ast.While):
        tests.append((place.statement.test, ("False",)))
    for node in place.expressions:
        if isinstance(node, ast.IfExp):
            tests.append((node.test, ("True", "False")))
        elif isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            tests += [(test, ("True",)) for generator in node.generators for test in generator.ifs]
    for test, values in tests:
        if _asks_for_none(test):
            continue
        for value in values:
            yield test, value


def _negation(place: Place) -> Iterator[Change]:
    for node in place.expressions:
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield node, _bracketed(place.source, node.operand)


def _result(place: Place) -> Iterator[Change]:
    """Return the other boolean, or None where the annotation allows it."""
    if isinstance(place.statement, ast.Return) and place.statement.value is not None:
        value = place.statement.value
        if isinstance(value, ast.Constant) and isinstance(value.value, bool):
            yield value, str(not value.value)
        elif not isinstance(value, ast.Constant) and "None" in place.source.returned(place.unit):
            yield value, "None"


SLIPS: dict[str, Callable[[Place], Iterator[Change]]] = {
    "comparison": _comparison,
    "connective": _connective,
    "dropped": _dropped,
    "error code": _error_code,
    "like-named": _like_named,
    "swapped": _swapped,
    "number": _number,
    "condition": _condition,
    "negation": _negation,
    "result": _result,
}
