"""Runs pytest in forks of a process that has imported the tests' libraries, but no module of the broker.

The rule: no file changes. A fork that tests a mutant imports its module's text from memory; it is bounded in CPU time,
wall time and memory, and ends with all processes that it started.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import selectors
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from typing import Any

import pytest

from tools.mutants.source import ROOT

PRELOADED = (
    "trio",
    "trio.testing",
    "hypothesis",
    "hypothesis.strategies",
    "pytest_trio",
    "yaml",
    "cryptography",
)
MEMORY_BYTES_MAX = 4 << 30
CPU_SECONDS = 20
"""CPU seconds of a fork, added to `CPU_FACTOR` times those of the last run of its tests."""
CPU_FACTOR = 4
WAITING_SECONDS = 60
WAITING_FACTOR = 8
"""The same for wall time, most of which a busy machine may spend on other processes."""
LEFT_OPEN = "something that was left open"
OPTIONS = ("-q", "-x", "--no-header", "--assert=plain", "-p", "no:cacheprovider")


@dataclass
class Run:
    """Tests to run in a fork, and the outcome."""

    tests: Sequence[str]
    """Their names as pytest has them, in order; or files and directories if `all_of` is set."""
    seconds: float
    """Seconds that they took the last time."""
    module: str = ""
    text: str = ""
    plugin: Callable[[], Any] | None = None
    """Makes a plugin of pytest in the fork and returns its `report()`."""
    all_of: bool = False
    outcome: dict[str, Any] = field(default_factory=dict)
    """`failed`: the first failed test, or the reason why the fork ended; `report`: the plugin's report."""


class _Replaced(SourceFileLoader):
    def __init__(self, name: str, path: str, text: str) -> None:
        super().__init__(name, path)
        self.text = text

    def get_code(self, fullname: str) -> Any:  # noqa: ARG002 - the loader's interface
        return compile(self.text, self.path, "exec", dont_inherit=True)


class _Finder(MetaPathFinder):
    """An import finder that replaces the text of one module."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text
        self.was_asked = False

    def find_spec(self, fullname: str, path: Any, _target: Any = None) -> ModuleSpec | None:
        if fullname != self.name:
            return None
        self.was_asked = True
        spec = PathFinder.find_spec(fullname, path)
        if spec is not None and spec.origin is not None:
            spec.loader = _Replaced(fullname, spec.origin, self.text)
        return spec


class _Selected:
    """A plugin that selects tests, and notes the first failure."""

    def __init__(self, tests: Sequence[str]) -> None:
        self.places = {name: place for place, name in enumerate(tests)}
        self.failed = ""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep the selected tests."""
        if self.places:
            kept = [item for item in items if item.nodeid in self.places]
            items[:] = sorted(kept, key=lambda item: self.places[item.nodeid])

    def pytest_sessionstart(self) -> None:
        """Draw the same examples each time, and remember none in the checkout."""
        from hypothesis import settings

        settings.register_profile("mutants", settings.default, database=None, derandomize=True)
        settings.load_profile("mutants")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a test that fails."""
        if report.failed and not self.failed:
            self.failed = report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a file that cannot even be imported."""
        if report.failed and not self.failed:
            self.failed = report.nodeid


def preload() -> None:
    """Import the libraries that every fork needs."""
    for name in PRELOADED:
        importlib.import_module(name)
    assert "barnabas" not in sys.modules, "forks could not import a mutant"


class Forks:
    """Runs of tests, several at the same time."""

    def __init__(self, jobs: int, *, show: bool = False) -> None:
        """With `show` pytest prints."""
        self.jobs = jobs
        self._show = show
        self._selector = selectors.DefaultSelector()
        self._running: dict[int, tuple[int, Run, float, str, Callable[[Run], None]]] = {}

    @property
    def is_full(self) -> bool:
        """Return whether a fork must end before another begins."""
        return len(self._running) >= self.jobs

    def begin(self, run: Run, ended: Callable[[Run], None]) -> None:
        """Run tests in a fork; `ended` is called from `wait`."""
        reading, writing = os.pipe()
        directory = tempfile.mkdtemp(prefix="mutant-")
        pid = os.fork()
        if pid == 0:
            try:
                os.close(reading)
                outcome = _work(run, directory, show=self._show)
            except BaseException:
                outcome = {"failed": "", "broken": traceback.format_exc()}
            _send(writing, outcome)
            os._exit(0)
        os.close(writing)
        due = time.monotonic() + WAITING_SECONDS + WAITING_FACTOR * run.seconds
        self._running[reading] = (pid, run, due, directory, ended)
        self._selector.register(reading, selectors.EVENT_READ)

    def wait(self) -> bool:
        """Wait until a fork has ended; returns False if none is running."""
        if not self._running:
            return False
        while True:
            now = time.monotonic()
            due = min(entry[2] for entry in self._running.values())
            for key, _ in self._selector.select(max(0.0, due - now)):
                self._end(key.fd)
                return True
            for reading, entry in self._running.items():
                if entry[2] <= time.monotonic():
                    self._end(reading, overdue=True)
                    return True

    def _end(self, reading: int, *, overdue: bool = False) -> None:
        self._selector.unregister(reading)
        pid, run, _, directory, ended = self._running.pop(reading)
        data = b""
        if not overdue:
            while piece := os.read(reading, 1 << 16):
                data += piece
        os.close(reading)
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        shutil.rmtree(directory, ignore_errors=True)
        run.outcome = json.loads(data) if data else {"failed": "time, memory or a crash"}
        if "broken" in run.outcome:
            raise RuntimeError(run.outcome["broken"])
        ended(run)

    def close(self) -> None:
        """End running forks."""
        for pid, *_ in self._running.values():
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        self._running.clear()


def _send(writing: int, outcome: dict[str, Any]) -> None:
    data = json.dumps(outcome).encode()
    while data:
        data = data[os.write(writing, data) :]


def _work(run: Run, directory: str, *, show: bool) -> dict[str, Any]:
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if not show:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nowhere, descriptor)
    os.chdir(ROOT)
    seconds = int(CPU_SECONDS + CPU_FACTOR * run.seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    tempfile.tempdir = directory
    os.environ["TMPDIR"] = directory
    finder = _Finder(run.module, run.text)
    sys.meta_path.insert(0, finder)
    selected = _Selected(() if run.all_of else run.tests)
    paths = list(dict.fromkeys(test.partition("::")[0] for test in run.tests))
    options = [each for each in OPTIONS if each != "-x" or run.plugin is None]
    plugin = None if run.plugin is None else run.plugin()
    plugins = [selected, *([] if plugin is None else [plugin])]
    code = 0
    try:
        code = int(
            pytest.main([*options, f"--basetemp={Path(directory) / 'pytest'}", *paths], plugins=plugins)
        )
    except* (
        pytest.PytestUnraisableExceptionWarning
    ):  # raised at the end of the run; `make test` fails by it, too
        selected.failed = selected.failed or LEFT_OPEN
    failed = selected.failed
    if not failed and code not in (0, 1):
        failed = f"pytest ended with {code}"
    outcome: dict[str, Any] = {"failed": failed, "unused": bool(run.module) and not finder.was_asked}
    if plugin is not None:
        outcome["report"] = plugin.report()
    return outcome
