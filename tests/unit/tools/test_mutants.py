"""Mutation tests: which slips are planted, which tests are tried, and what is kept of that."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from tools.mutants.choosing import Equivalent, equivalents, is_in, planted, sampled
from tools.mutants.coverage_map import CoverageMap
from tools.mutants.forks import LEFT_OPEN
from tools.mutants.slips import Mutant, mutants
from tools.mutants.source import ROOT, Source

SUBJECT = "tests/unit/tools/test_mutants.py::test_the_subject_of_the_test_of_forks"
PATH = "server/barnabas/log/example.py"
LEFT = """
import gc, socket
left = [socket.socket()]
left.append(left)
gc.collect()  # so that the next small collection does not find it
del left
"""


def changes(body: str, head: str = "def f(self, now_ms, start_ms, a, b):") -> set[tuple[str, str]]:
    """Return the slips of a function with this body: each with the line that comes out."""
    text = head + "\n" + "".join(f"    {line}\n" for line in body.splitlines())
    result = mutants(Source(PATH, text))
    assert all(mutant.applied(text) != text for mutant in result)
    return {(mutant.slip, mutant.after) for mutant in result if mutant.compiles(text)}


@pytest.mark.parametrize(
    ("line", "slip", "after"),
    [
        ("return a < b", "comparison", "return a <= b"),
        ("return 0 < a <= b", "comparison", "return 0 <= a <= b"),
        ("return a == (b is a)", "comparison", "return a != (b is a)"),
        ("return a and b", "connective", "return (a or b)"),
        ("return a or b", "connective", "return (b)"),
        ("self.close(a)\nreturn a", "dropped", "pass"),
        ("self.end = a\nreturn a", "dropped", "pass"),
        ("if a:\n    return b\nreturn a", "dropped", "pass"),
        ("if a:\n    raise b\nreturn a", "dropped", "pass"),
        ("raise_(ErrorCode.ONE)\nraise_(ErrorCode.TWO)", "error code", "raise_(ErrorCode.TWO)"),
        ("return now_ms", "like-named", "return start_ms"),
        (
            "return self.low_offset + self.high_offset",
            "like-named",
            "return self.high_offset + self.high_offset",
        ),
        ("return g(now_ms, start_ms)", "swapped", "return g(start_ms, now_ms)"),
        ("return a + 1", "number", "return a + 0"),
        ("return a + b", "number", "return a - b"),
        ("return min(a, b)", "number", "return max(a, b)"),
        ("if a:\n    self.close(b)\nreturn b", "condition", "if False:"),
        ("return [each for each in a if each]", "condition", "return [each for each in a if True]"),
        ("return not a", "negation", "return a"),
        ("return True", "result", "return False"),
    ],
)
def test_a_slip_is_planted(line, slip, after):
    assert (slip, after) in changes(line)


@pytest.mark.parametrize(
    "line",
    [
        'log.warning("%d", 3)',
        "assert a < b",
        "return a is None",
        "if a is not None:\n    x = a\n    del a\n    return x",
        '"""What it does: 1 + 1."""',
        "self.x: int",
        "x = 1000\nreturn x",
        "x = self.now_ms\ny = self.later_ms()\nreturn x, y",
        'return f"{now_ms}"',
    ],
)
def test_what_mypy_sees_and_what_nobody_misses_is_left_alone(line):
    assert {change for change in changes(line) if change != ("dropped", "pass")} == set()


def test_only_functions_are_changed():
    text = "LIMIT = 10 if 1 < 2 else 3\n\nclass A:\n    size = 1 + 1\n    def size_of(self, a):\n        return a + 2\n"
    assert {mutant.unit.name for mutant in mutants(Source(PATH, text))} == {"A.size_of"}


def test_text_beside_change_stays_after_multibyte_letters():
    text = 'def f(a):\n    return g("größe→", a < 1)  # ü\n'
    [mutant] = [each for each in mutants(Source(PATH, text)) if each.slip == "comparison"]
    assert mutant.applied(text) == 'def f(a):\n    return g("größe→", a <= 1)  # ü\n'


def test_a_mutant_is_the_same_while_its_function_is():
    text = "def f(a):\n    return a < 1\n"
    [entry, *_] = mutants(Source(PATH, text))
    [moved, *_] = mutants(Source(PATH, "X = 1\n\n\n" + text))
    [changed, *_] = mutants(Source(PATH, text.replace("1", "2")))
    assert entry.id == moved.id != changed.id


def test_sample_follows_seed_and_has_slips_of_each_kind():
    path = "server/barnabas/coordinators/transactions/shard.py"
    result = mutants(Source(path, (ROOT / path).read_text()))
    entry, same, other = (sampled(result, 20, seed) for seed in ("1", "1", "2"))
    assert entry == same != other
    assert len(entry) == 20
    assert {mutant.slip for mutant in entry} == {mutant.slip for mutant in result}


@pytest.fixture
def mutant() -> Mutant:
    path = "server/barnabas/coordinators/transactions/shard.py"
    return mutants(Source(path, (ROOT / path).read_text()))[0]


@pytest.fixture
def kept(tmp_path) -> CoverageMap:
    kept = CoverageMap(tmp_path / "kept" / "kept.sqlite")
    kept.hashes |= {"tests/unit/a.py": "1", "tests/unit/b.py": "1"}
    return kept


TESTS = ["tests/unit/a.py::one", "tests/unit/b.py::two"]


def test_noticed_mutant_is_retried_when_its_test_changes(kept):
    kept.keep_result("m", TESTS[0], TESTS)
    kept.hashes["tests/unit/b.py"] = "2"
    assert kept.result("m", TESTS) == TESTS[0]
    kept.hashes["tests/unit/a.py"] = "2"
    assert kept.result("m", TESTS) is None


def test_missed_mutant_is_retried_when_any_of_its_tests_changes(kept):
    kept.keep_result("m", "", TESTS)
    assert kept.result("m", TESTS) == ""
    assert kept.result("m", TESTS[:1]) is None
    kept.hashes["tests/unit/b.py"] = "2"
    assert kept.result("m", TESTS) is None


def test_tests_run_the_line_or_any_line_of_a_changed_function(kept, mutant):
    path, unit = mutant.path, mutant.unit
    noted = {
        "tests": {
            name: {"passed": name != TESTS[1], "seconds": 1.0} for name in (*TESTS, "tests/unit/a.py::three")
        },
        "lines": {
            path: {mutant.line: [TESTS[0], TESTS[1]], mutant.line + 2: ["tests/unit/a.py::three"]},
            "server/barnabas/tools/probing/templates/card.html.j2": {1: [TESTS[0]]},
        },
    }
    assert kept.keep("tests/unit/a.py", noted) == [TESTS[1]]
    kept.refresh()
    assert kept.covering(path, unit, range(mutant.line, mutant.line + 1)) == [TESTS[0]]
    kept.database.execute("UPDATE covered SET hash = 'another'")
    assert kept.covering(path, unit, range(mutant.line, mutant.line + 1)) == [
        "tests/unit/a.py::one",
        "tests/unit/a.py::three",
    ]


def test_bugs_planted_by_hand_are_where_their_text_says():
    for bug in planted():
        compile(bug.applied(), bug.path, "exec", dont_inherit=True)
        assert (ROOT / bug.tests).exists(), bug.name


def test_equivalent_mutants_would_be_planted_otherwise():
    for entry in equivalents():
        result = mutants(Source(entry.path, (ROOT / entry.path).read_text()))
        assert any(is_in([entry], mutant) for mutant in result), entry


def test_equivalent_mutants_are_named_by_function_and_lines(mutant):
    entry = Equivalent(mutant.path, mutant.unit.name, mutant.before, mutant.after, "for this test")
    assert is_in([entry], mutant)
    assert not is_in([Equivalent(mutant.path, mutant.unit.name, mutant.before, "pass", "another")], mutant)
    at = mutant.line - mutant.unit.first_line
    assert is_in([replace(entry, at=at)], mutant)
    assert not is_in([replace(entry, at=at + 1)], mutant)


@pytest.mark.slow
def test_fork_runs_given_text_and_names_failing_test():
    """In a process of its own: this one has imported the broker."""
    program = f"""
from pathlib import Path
from tools.mutants import forks as limits
from tools.mutants.forks import Forks, Run, preload
preload()
limits.CPU_SECONDS = 2
path = Path("server/barnabas/wire/topic_partitions.py")
test = "{SUBJECT}"
forks = Forks(2)
seen = []
text = path.read_text()
for change in ("", "\\nmutated = True\\n", "\\nwhile True: pass\\n", {LEFT!r}):
    run = Run([test], 0.0, "barnabas.wire.topic_partitions", text + change)
    while forks.is_full:
        forks.wait()
    forks.begin(run, seen.append)
while forks.wait():
    pass
print(sorted(run.outcome["failed"] for run in seen))
assert not any(run.outcome.get("unused") for run in seen)
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ran.stderr == ""
    assert ran.stdout.strip() == str(sorted(["", SUBJECT, "time, memory or a crash", LEFT_OPEN]))


def test_the_subject_of_the_test_of_forks():
    from barnabas.wire import topic_partitions

    assert not hasattr(topic_partitions, "mutated")
