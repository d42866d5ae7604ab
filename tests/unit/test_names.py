"""Names and docstrings say what a thing is: what does not is counted by package, and the count may only fall.

The rules are in CONTRIBUTING.md, "Names and sentences". Tests are also counted by what they cost: their lines, the private
attributes of other objects that they use, and the lines that patch a stand-in in.
"""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.test_docstrings import PARTS, ROOT, docstrings, modules

VAGUE = frozenset({"one", "found", "wanted", "known", "said", "given", "made", "left"})
NOBODY = re.compile(r"\b(?:who|whoever|whom|whose|somebody|nobody|everybody)\b", re.IGNORECASE)
PATCHED = re.compile(r"monkeypatch|\bmock\b")
OF_TYPES = frozenset({"_replace", "_asdict", "_fields", "_make", "_field_defaults"})
"""Names of the standard library that begin with an underscore, and are public: those of a NamedTuple."""
OF_LIBRARIES = frozenset({"KafkaError"})
"""Objects of other libraries with public names that begin with an underscore: codes of librdkafka."""
RULES = ("vague", "vague loops", "nobody", "long tests")
COSTS = ("private", "patched", "thousand lines")
"""Ties of tests to the code below them, and their weight: counted in tests alone."""
BINDING = {
    ast.For, ast.AsyncFor, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp,
    ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.arg,
}  # fmt: skip
"""Kinds of nodes that bind names; most nodes are of none of them."""
LINES_MAX = 2
"""Variables of a comprehension of fewer lines are not counted among the vague names, but among those of loops."""
TEST_CHARACTERS_MAX = 60
BUDGET = Path(__file__).with_name("names_budget.json")
HOW = "python -m tests.unit.test_names writes the new counts into names_budget.json"


def package_of(path: Path) -> str:
    """The package that a module is counted with: of the server, its second level."""
    parts = path.relative_to(ROOT).parts
    if parts[0] == "server":
        return "/".join(parts[:3]) if len(parts) > 3 else "server/barnabas"
    return parts[0]


def bound_names(node: ast.AST) -> Iterator[str]:
    """The names that a statement or a comprehension of more than two lines binds."""
    match node:
        case ast.For() | ast.AsyncFor() | ast.AnnAssign() | ast.NamedExpr():
            yield from _targets(node.target)
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            if (node.end_lineno or 0) - node.lineno >= LINES_MAX:
                for generator in node.generators:
                    yield from _targets(generator.target)
        case ast.Assign():
            for target in node.targets:
                yield from _targets(target)
        case ast.arg():
            yield node.arg


def _targets(target: ast.AST) -> Iterator[str]:
    match target:
        case ast.Name():
            yield target.id
        case ast.Tuple() | ast.List():
            for element in target.elts:
                yield from _targets(element)
        case ast.Starred():
            yield from _targets(target.value)


def loop_names(node: ast.AST) -> Iterator[str]:
    """The names that a loop or a comprehension binds for each of its items."""
    match node:
        case ast.For() | ast.AsyncFor():
            yield from _targets(node.target)
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            for generator in node.generators:
                yield from _targets(generator.target)


def is_private(node: ast.AST) -> bool:
    """Say whether an expression is a private attribute of another object than `self`."""
    match node:
        case ast.Attribute(ast.Name("self" | "cls")):
            return False
        case ast.Attribute(ast.Name(owner)) if owner in OF_LIBRARIES:
            return False
        case ast.Attribute(attr=name):
            return name.startswith("_") and not name.endswith("__") and name not in OF_TYPES
    return False


def counts_of(source: str) -> Counter[str]:
    """Counts of what breaks each rule in a module."""
    counts: Counter[str] = Counter()
    tree = ast.parse(source)
    counts["lines"] = source.count("\n")
    counts["patched"] = sum(PATCHED.search(line) is not None for line in source.splitlines())
    for node in ast.walk(tree):
        if type(node) is ast.Attribute:
            counts["private"] += is_private(node)
        elif type(node) in BINDING:
            counts["vague"] += sum(name in VAGUE for name in bound_names(node))
            counts["vague loops"] += sum(name in VAGUE for name in loop_names(node))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            counts["long tests"] += len(node.name) > TEST_CHARACTERS_MAX
    counts["nobody"] += sum(NOBODY.search(text) is not None for _, text in docstrings(tree))
    return counts


def counts_by_package() -> dict[str, dict[str, int]]:
    """The counts of all packages, those of 0 left out."""
    sums: dict[str, Counter[str]] = {}
    for part in PARTS:
        for path in modules(part):
            sums.setdefault(package_of(path), Counter()).update(counts_of(path.read_text()))
    for package, counts in sums.items():
        counts["thousand lines"] = -(-counts.pop("lines") // 1000)
        if package != "tests":
            for rule in COSTS:
                del counts[rule]
    return {
        package: {rule: count for rule, count in sorted(counts.items()) if count}
        for package, counts in sorted(sums.items())
    }


def test_vague_names_and_subjects_become_fewer_in_each_package() -> None:
    budget, counts = json.loads(BUDGET.read_text()), counts_by_package()
    more, fewer = [], []
    for package in sorted({*budget, *counts}):
        for rule in (*RULES, *COSTS):
            allowed, count = (of.get(package, {}).get(rule, 0) for of in (budget, counts))
            if count > allowed:
                more.append(f"{package}: {count} {rule}, {allowed} allowed")
            elif count < allowed:
                fewer.append(f"{package}: {count} {rule}, {allowed} allowed")
    assert not more, f"{more}: CONTRIBUTING.md, Names and sentences"
    assert not fewer, f"{fewer}: {HOW}"


@pytest.mark.parametrize(
    ("source", "rule", "count"),
    [
        ("for one in a: pass", "vague", 1),
        ("for one, (found, b) in a: pass", "vague", 2),
        ("for partition in a: pass", "vague", 0),
        ("[one for one in a]", "vague", 0),
        ("[\n    one\n    for one in a\n]", "vague", 1),
        ("for one in a: pass", "vague loops", 1),
        ("{one: b for one, b in a for found in b}", "vague loops", 2),
        ("one = [partition for partition in a]", "vague loops", 0),
        ("found = wanted = 1", "vague", 2),
        ("a.found = b['left'] = 1", "vague", 0),
        ("found: int = 1", "vague", 1),
        ("if (found := a): pass", "vague", 1),
        ("def f(one, *, given): pass", "vague", 2),
        ('"""Tell whoever asks."""', "nobody", 1),
        ('"""Return the leader."""', "nobody", 0),
        (f"def test_{'a' * 56}(): pass", "long tests", 1),
        (f"def test_{'a' * 55}(): pass", "long tests", 0),
        ("broker._logs._dirs.clear()", "private", 2),
        ("self._logs = cls._logs = 1", "private", 0),
        ("self.broker._logs()", "private", 1),
        ("info._replace(a=1)", "private", 0),
        ("KafkaError._FENCED", "private", 0),
        ("a.__class__.__name__", "private", 0),
        ("def test_a(monkeypatch):\n    monkeypatch.chdir(b)\n", "patched", 2),
        ("from unittest import mock\nmocked = 1\n", "patched", 1),
        ("a\n\nb\n", "lines", 3),
    ],
)
def test_each_rule_counts_what_breaks_it(source: str, rule: str, count: int) -> None:
    assert counts_of(source)[rule] == count


if __name__ == "__main__":
    BUDGET.write_text(json.dumps(counts_by_package(), indent=1) + "\n")
