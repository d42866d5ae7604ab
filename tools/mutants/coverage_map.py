"""A map of tests to lines: collected with coverage.py, one test file at a time, and kept until that file changes.

The rule: lines are counted from the beginning of their function, and are valid for its text. If the function has changed
since, its tests are those that ran any line of it.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tools.mutants.source import ROOT, Source, Unit

SCHEMA = """
CREATE TABLE IF NOT EXISTS test_files (file TEXT PRIMARY KEY, hash TEXT);
CREATE TABLE IF NOT EXISTS tests (file TEXT, name TEXT PRIMARY KEY, seconds REAL, passed INTEGER);
CREATE TABLE IF NOT EXISTS covered (file TEXT, path TEXT, unit TEXT, hash TEXT, line INTEGER, tests TEXT);
CREATE INDEX IF NOT EXISTS covered_path ON covered (path, unit);
CREATE INDEX IF NOT EXISTS covered_file ON covered (file);
CREATE TABLE IF NOT EXISTS results (mutant TEXT PRIMARY KEY, failed TEXT, tests TEXT);
"""

WAITING_SHARE = 4
"""Divides the wall time of a test that waits for other processes; `forks` allows for the difference."""


class Recorder:
    """The plugin of pytest that notes which test runs which line of the broker and the pipeline, and how long it takes."""

    def __init__(self) -> None:
        from coverage import Coverage

        self._coverage = Coverage(
            data_file=None, config_file=False, messages=False,
            source=[str(ROOT / "server" / "barnabas"), str(ROOT / "pipeline" / "barnabas_pipeline")],
            omit=[str(ROOT / "server" / "barnabas" / "wire" / "generated" / "*")],
        )  # fmt: skip
        self._coverage.set_option(
            "run:disable_warnings", ["trace-changed", "no-data-collected", "module-not-imported"]
        )
        self._coverage.start()
        self._tests: dict[str, dict[str, Any]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Name the lines that are run after the test."""
        self._coverage.switch_context(item.nodeid)
        begun, came = time.process_time(), time.monotonic()
        try:
            return (yield)
        finally:
            self._coverage.switch_context("")
            test = self._tests.setdefault(item.nodeid, {"passed": False})
            waited = (time.monotonic() - came) / WAITING_SHARE
            test["seconds"] = max(time.process_time() - begun, waited)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note whether a test passes."""
        test = self._tests.setdefault(report.nodeid, {"passed": True, "seconds": 0.0})
        if report.when == "call":
            test["passed"] = report.passed
        elif not report.passed:
            test["passed"] = False

    def report(self) -> dict[str, Any]:
        """Return all that was noted."""
        self._coverage.stop()
        data = self._coverage.get_data()
        lines = {
            str(Path(path).relative_to(ROOT)): {
                line: [each for each in contexts if each]
                for line, contexts in data.contexts_by_lineno(path).items()
                if any(contexts)
            }
            for path in data.measured_files()
        }
        return {"tests": self._tests, "lines": lines}


def file_hash(path: Path) -> str:
    """Return the hash of a file's content."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


@cache
def _source(path: str) -> Source:
    return Source(path, (ROOT / path).read_text())


class CoverageMap:
    """Results that are kept, in a file of SQLite."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(exist_ok=True)
        self.database = sqlite3.connect(path, isolation_level=None)
        self.database.execute("PRAGMA synchronous = OFF")  # it can be collected again
        self.database.executescript(SCHEMA)
        self.hashes: dict[str, str] = {}
        """Hashes of the present text of test files, by path; filled by `hash_now`."""
        self.seconds: dict[str, float] = {}
        """Durations of the recorded tests that passed, by name."""
        self._names: dict[str, list[str]] = {}
        self.refresh()

    def refresh(self) -> None:
        """Read the names of the recorded tests, and the durations of those that passed."""
        self._names.clear()
        self.seconds.clear()
        query = "SELECT file, name, seconds, passed FROM tests ORDER BY name"
        for file, name, seconds, passed in self.database.execute(query):
            self._names.setdefault(file, []).append(name)
            if passed:
                self.seconds[name] = seconds

    def hash_now(self, file: str) -> str:
        """Return the hash of a test file's present text, empty if it does not exist."""
        if file not in self.hashes:
            path = ROOT / file
            self.hashes[file] = file_hash(path) if path.exists() else ""
        return self.hashes[file]

    def missing(self, paths: Iterable[str]) -> list[str]:
        """Return the test files below these paths without a record of their present text."""
        hashes = dict(self.database.execute("SELECT file, hash FROM test_files").fetchall())
        test_paths: list[str] = []
        for path in paths:
            top = ROOT / path
            files = [top] if top.is_file() else sorted(top.rglob("test_*.py"))
            test_paths += [str(file.relative_to(ROOT)) for file in files]
        return [file for file in dict.fromkeys(test_paths) if hashes.get(file) != self.hash_now(file)]

    def keep(self, file: str, report: dict[str, Any]) -> list[str]:
        """Store the report of a test file's run; returns its failed tests."""
        names = sorted(report["tests"])
        numbers = {name: number for number, name in enumerate(names)}
        rows = []
        for path, lines in report["lines"].items():
            if not path.endswith(".py"):  # a template, named by its compiled code
                continue
            source = _source(path)
            for line, tests in lines.items():
                unit = source.unit_at(int(line))
                if unit is not None:
                    place = int(line) - unit.first_line
                    rows.append(
                        (
                            file,
                            path,
                            unit.name,
                            unit.hash,
                            place,
                            json.dumps([numbers[test] for test in tests]),
                        )
                    )
        with self.database:
            self.database.execute("BEGIN")
            for table in ("tests", "covered", "test_files"):
                self.database.execute(f"DELETE FROM {table} WHERE file = ?", (file,))
            self.database.executemany(
                "INSERT INTO tests VALUES (?, ?, ?, ?)",
                [(file, name, each["seconds"], each["passed"]) for name, each in report["tests"].items()],
            )
            self.database.executemany("INSERT INTO covered VALUES (?, ?, ?, ?, ?, ?)", rows)
            self.database.execute("INSERT INTO test_files VALUES (?, ?)", (file, self.hash_now(file)))
        return [name for name in names if not report["tests"][name]["passed"]]

    def covering(self, path: str, unit: Unit, lines: range) -> list[str]:
        """Return the tests that run one of these lines of a function, by name."""
        query = "SELECT file, hash, line, tests FROM covered WHERE path = ? AND unit = ?"
        offsets = range(lines.start - unit.first_line, lines.stop - unit.first_line)
        covering_tests: set[str] = set()
        for file, unit_hash, line, tests in self.database.execute(query, (path, unit.name)):
            names = self._names.get(file)  # None: another run has collected it meanwhile
            if names is not None and (unit_hash != unit.hash or line in offsets):
                covering_tests.update(names[number] for number in json.loads(tests))
        return sorted(covering_tests & self.seconds.keys())

    # --- results ----------------------------------------------------------------------------------------------

    def result(self, mutant: str, tests: Sequence[str]) -> str | None:
        """Return the test that noticed a mutant, empty if it survived; None if it was not tried with the present tests."""
        row = self.database.execute(
            "SELECT failed, tests FROM results WHERE mutant = ?", (mutant,)
        ).fetchone()
        if row is None:
            return None
        failed, tried = row
        file = failed.partition("::")[0]
        if file.startswith("tests/"):
            return failed if tried == self.hash_now(file) else None
        return failed if tried == self.hash_of(tests) else None

    def keep_result(self, mutant: str, failed: str, tests: Sequence[str]) -> None:
        """Store the result of a mutant."""
        file = failed.partition("::")[0]
        tried = self.hash_now(file) if file.startswith("tests/") else self.hash_of(tests)
        self.database.execute("INSERT OR REPLACE INTO results VALUES (?, ?, ?)", (mutant, failed, tried))

    def hash_of(self, tests: Sequence[str]) -> str:
        """Return a hash of tests' names and of the files that they are in."""
        files = sorted({test.partition("::")[0] for test in tests})
        text = "\n".join([*sorted(tests), *map(self.hash_now, files)])
        return hashlib.sha256(text.encode()).hexdigest()[:16]
