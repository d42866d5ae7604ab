"""`make run` waits for nothing: it serves from the sources where no wheel is current, and compiles beside."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import hatch_build
from barnabas.system.processes import is_running
from tests.support.systems import in_proc, linux_only
from tools import beside, run
from tools.install_wheel import ROOT

TIMEOUT_S = 60


@pytest.fixture
def checkout(tmp_path):
    """A directory with a Makefile instead of ours, with targets that a test writes."""
    (tmp_path / ".venv").mkdir()

    def write(setup: str, needs: str = "true") -> Path:
        (tmp_path / "Makefile").write_text(f".venv/.ready-compile:\n\t{needs}\nsetup:\n\t{setup}\n")
        return tmp_path

    return write


@pytest.fixture
def broker():
    """A process that stands for the broker."""
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


def beside_it(broker: subprocess.Popen[bytes], root: Path) -> subprocess.Popen[str]:
    code = f"from pathlib import Path; from tools.beside import *; compile_beside({broker.pid}, Path({str(root)!r}))"
    return subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stderr=subprocess.PIPE, text=True)


def test_a_wheel_of_the_sources_as_they_are_is_what_runs(tmp_path, monkeypatch, set_environment, capfd):
    monkeypatch.setattr(run, "is_current", lambda *_: True)
    set_environment(**{hatch_build.SWITCH: None})
    assert run.code_to_run(tmp_path) == (tmp_path,)
    assert capfd.readouterr().err == ""


def test_without_a_compiler_the_sources_run_and_one_line_says_so(tmp_path, set_environment, capfd):
    set_environment(**{hatch_build.SWITCH: None})
    set_environment(CC="/nonexistent/cc")
    assert run.code_to_run(tmp_path) == run.SOURCES
    (line,) = capfd.readouterr().err.splitlines()
    assert "interpreted" in line
    assert "no C compiler" in line


def test_who_asks_for_the_sources_gets_them_without_a_word(tmp_path, set_environment, capfd):
    set_environment(**{hatch_build.SWITCH: "no"})
    assert run.code_to_run(tmp_path) == run.SOURCES
    assert capfd.readouterr().err == ""


@linux_only
def test_progress_is_told_in_quarters_and_the_end_in_a_line(checkout, broker):
    root = checkout("for n in 1 2 3 4 5 6 7 8; do echo compiling: $$n of 8 files; done")
    output = beside_it(broker, root).communicate(timeout=TIMEOUT_S)[1].splitlines()
    assert [line.partition("beside: ")[2] for line in output] == [
        "this start runs the sources, the next one will run compiled",
        "25 %",
        "50 %",
        "75 %",
        "done, the next start runs compiled",
    ]
    assert "compiling: 7 of 8 files\n" in (root / beside.LOG).read_text()


@linux_only
@pytest.mark.parametrize("failing", ["needs", "setup"])
def test_a_failure_is_one_line_with_its_cause(checkout, broker, failing):
    root = checkout(**{"setup": "true", failing: "echo ERROR: no such package; false"})
    output = beside_it(broker, root).communicate(timeout=TIMEOUT_S)[1].splitlines()
    assert len(output) == 2
    assert "goes on interpreted (ERROR: no such package; see .venv/setup.log)" in output[1]


@linux_only
def test_two_starts_compile_once(checkout, broker, tmp_path):
    first = beside_it(broker, checkout("echo run >> runs; while [ ! -e second ]; do sleep 0.02; done"))
    while not (tmp_path / "runs").exists():
        assert first.poll() is None
        time.sleep(0.02)
    output = beside_it(broker, tmp_path).communicate(timeout=TIMEOUT_S)[1]
    assert "another start does so already" in output
    (tmp_path / "second").touch()
    assert "done" in first.communicate(timeout=TIMEOUT_S)[1]
    assert (tmp_path / "runs").read_text() == "run\n"


@linux_only
def test_end_of_broker_ends_compiler_with_all_processes(checkout, broker, tmp_path):
    process = beside_it(broker, checkout("sleep 600 & echo $$! > inner.new; mv inner.new inner; wait"))
    while not (tmp_path / "inner").exists():
        assert process.poll() is None
        time.sleep(0.02)
    inner = int((tmp_path / "inner").read_text())
    os.kill(broker.pid, 9)
    broker.wait()
    assert process.communicate(timeout=TIMEOUT_S)[1].count("\n") == 1, "nothing is said after the broker"
    while is_running(inner) and "Z" not in in_proc(f"{inner}/stat").read_text().split()[2]:
        time.sleep(0.02)


@linux_only
def test_what_installs_packages_is_not_broken_off(checkout, broker, tmp_path):
    needs = "touch begun; while kill -0 {0} 2>/dev/null; do sleep 0.02; done; touch ended"
    process = beside_it(broker, checkout("touch compiled", needs.format(broker.pid)))
    while not (tmp_path / "begun").exists():
        assert process.poll() is None
        time.sleep(0.02)
    os.kill(broker.pid, 9)
    broker.wait()
    process.communicate(timeout=TIMEOUT_S)
    assert (tmp_path / "ended").exists()
    assert not (tmp_path / "compiled").exists()
