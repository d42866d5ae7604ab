"""Modules that are executed when something of them is first used."""

from __future__ import annotations

import builtins
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from barnabas.environment.lazy import import_when_used

Run = Callable[[str], None]

SLOW = """
import threading, time
from builtins import executions
executions.append(threading.get_ident())
first = 1
import slow  # as the module is seen by what it imports
assert slow.first == 1 and not hasattr(slow, "last")
time.sleep(0.05)
last = 2
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Run a program that finds the modules `slow` and `broken`, not imported yet."""
    (tmp_path / "slow.py").write_text(SLOW)
    (tmp_path / "broken.py").write_text("before = 1\nraise ImportError('no such library')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(builtins, "executions", [], raising=False)
    names = {"sys": sys, "threading": threading, "import_when_used": import_when_used}
    yield lambda program: exec(dedent(program), {**names, "executions": builtins.executions})
    for name in ("slow", "broken"):
        sys.modules.pop(name, None)


def test_imports_do_not_execute_a_module_and_its_first_use_does(run: Run) -> None:
    program = """
        import_when_used("slow")
        import slow
        import slow as other
        assert slow.__spec__.name == slow.__name__ == "slow" and slow.__file__.endswith("slow.py")
        assert not executions
        assert slow.last == 2 and other is slow is sys.modules["slow"]
        assert len(executions) == 1 and type(slow) is type(sys)
        from slow import first
        assert first == 1 and len(executions) == 1
        """
    run(program)


def test_names_are_imported_from_a_module_that_was_not_used(run: Run) -> None:
    run('import_when_used("slow")\nfrom slow import last\nassert last == 2 and len(executions) == 1\n')


def test_concurrent_threads_see_the_whole_lazy_module(run: Run) -> None:
    program = """
        import_when_used("slow")
        import slow
        found = []
        threads = [threading.Thread(target=lambda: found.append(slow.last)) for _ in range(8)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        assert found == [2] * 8 and len(executions) == 1
        """
    run(program)


def test_what_is_not_there_is_an_attribute_error(run: Run) -> None:
    program = """
        import_when_used("slow")
        import slow
        for _ in range(2):
            assert not hasattr(slow, "nothing")
        assert len(executions) == 1
        """
    run(program)


def test_a_module_that_cannot_be_executed_says_so_each_time(run: Run, capsys) -> None:
    program = """
        import_when_used("broken")
        import broken
        for _ in range(2):
            try:
                broken.after
            except ImportError as error:
                print(error)
        """
    run(program)
    assert capsys.readouterr().out == "no such library\n" * 2


@pytest.mark.parametrize("name", ["slow", "json"])
def test_what_has_been_imported_stays_as_it_is(run: Run, capsys, name: str) -> None:
    program = f"""
        import {name}
        before = {name}
        import_when_used("{name}", "there_is_no_such_module")
        import {name}
        assert {name} is before and type(before) is type(sys)
        try:
            import there_is_no_such_module
        except ModuleNotFoundError as error:
            print(error.name)
        """
    run(program)
    assert capsys.readouterr().out == "there_is_no_such_module\n"
