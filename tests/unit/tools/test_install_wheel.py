"""The wheel that make keeps installed is of the sources as they are, compiled or not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import hatch_build
from tests.support.systems import linux_only
from tools import beside, incremental, install_wheel
from tools.install_wheel import ROOT, install, is_current, unpack

PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "small"
version = "1"
[tool.hatch.build.targets.wheel]
packages = ["server/small"]
[tool.hatch.build.targets.wheel.hooks.custom]
modules = ["small.doubled"]
[tool.mypy]
strict = true
"""
DOUBLED = "def doubled(number: int) -> int:\n    return number * 2\n"


@pytest.fixture
def checkout(tmp_path, set_environment):
    """A small project with the build hook of ours; its wheels are pure unless a test asks for more."""
    set_environment(**{hatch_build.SWITCH: "no"})
    package = tmp_path / "checkout" / "server" / "small"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "doubled.py").write_text(DOUBLED)
    (package / "other.py").write_text("NAME = 'other'\n")
    shutil.copy(ROOT / "hatch_build.py", tmp_path / "checkout")
    (tmp_path / "checkout" / "pyproject.toml").write_text(PROJECT)
    return tmp_path / "checkout"


@pytest.fixture
def target(tmp_path):
    return tmp_path / "venv" / "wheel"


def run(target: Path, code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True, text=True, check=True, cwd=target.parent, env={**os.environ, "PYTHONPATH": str(target)},
    )  # fmt: skip
    return done.stdout.strip()


DOUBLE = "from small import doubled; print(doubled.doubled(21), doubled.__file__.endswith('.py'))"


def test_an_edited_source_is_what_runs_afterwards(checkout, target):
    install(checkout, target)
    assert run(target, DOUBLE) == "42 True"
    (checkout / "server/small/doubled.py").write_text(DOUBLED.replace("2", "3"))
    assert not is_current(checkout, target)
    install(checkout, target)
    assert run(target, DOUBLE) == "63 True"


def test_nothing_is_built_while_no_source_has_changed(checkout, target, monkeypatch):
    install(checkout, target)

    def not_again(*_: object) -> Path:
        raise AssertionError("built again")

    monkeypatch.setattr(install_wheel, "build", not_again)
    install(checkout, target)
    assert is_current(checkout, target)


def test_removed_module_goes_with_its_byte_code_alone(checkout, target):
    install(checkout, target)
    kept = (target / "small/doubled.py").stat().st_mtime_ns
    assert list((target / "small/__pycache__").glob("other.*"))
    (checkout / "server/small/other.py").unlink()
    install(checkout, target)
    assert not (target / "small/other.py").exists()
    assert not list((target / "small/__pycache__").glob("other.*"))
    assert (target / "small/doubled.py").stat().st_mtime_ns == kept


def test_failed_build_leaves_no_current_wheel(checkout, target, capfd):
    install(checkout, target)
    (checkout / "pyproject.toml").write_text("[project]\n")
    with pytest.raises(install_wheel.WheelError, match="cannot be built"):
        install(checkout, target)
    assert not is_current(checkout, target)
    (checkout / "pyproject.toml").write_text(PROJECT)
    assert run(install(checkout, target), DOUBLE) == "42 True"
    capfd.readouterr()


def test_pytest_finds_no_list_of_modules_to_rewrite(checkout, target):
    install(checkout, target)
    code = "from importlib.metadata import distribution; found = distribution('small'); print(found.version, found.files)"
    assert run(target, code) == "1 None"


def test_without_compiler_sources_run_and_one_line_says_so(checkout, target, set_environment, capfd):
    set_environment(**{hatch_build.SWITCH: ""})
    set_environment(CC="/nonexistent/cc")
    install(checkout, target)
    (line,) = capfd.readouterr().err.splitlines()
    assert "the wheel is pure Python" in line
    assert "no C compiler" in line
    assert run(target, DOUBLE) == "42 True"


@linux_only
def test_a_compiler_that_fails_gets_the_sources_and_its_message(checkout, target, set_environment, capfd):
    if lack := hatch_build.missing():
        pytest.skip(f"this machine cannot compile: {lack}")
    set_environment(**{hatch_build.SWITCH: ""})
    (checkout / "server/small/doubled.py").write_text(DOUBLED.replace("* 2", "* '2'"))
    install(checkout, target)
    assert "small/doubled.py:2: error:" in capfd.readouterr().err


@linux_only
@pytest.mark.slow
def test_the_hook_alone_compiles_the_wheel_that_users_build(checkout, target, tmp_path, monkeypatch):
    if lack := hatch_build.missing():
        pytest.skip(f"this machine cannot compile: {lack}")
    command = [sys.executable, "-c", "import hatchling.build; hatchling.build.build_wheel('..')"]
    subprocess.run(command, cwd=checkout, env={**os.environ, hatch_build.SWITCH: "yes"}, check=True)
    (wheel,) = tmp_path.glob("small-1-cp*.whl")
    target.mkdir(parents=True)
    unpack(wheel, target)
    assert run(target, DOUBLE) == "42 False"


@linux_only
@pytest.mark.slow
def test_edited_source_is_compiled_with_its_callers_alone(checkout, target, tmp_path, set_environment, capfd):
    if lack := hatch_build.missing():
        pytest.skip(f"this machine cannot compile: {lack}")
    set_environment(**{hatch_build.SWITCH: "yes"})
    # An empty bytearray needs a header of mypyc, which is listed from the second build on.
    named = DOUBLED + "def name() -> str:\n    return 'one of them' + bytearray().decode()\n"
    (checkout / "server/small/named.py").write_text(named)
    modules = '["small.doubled", "small.named"]'
    (checkout / "pyproject.toml").write_text(PROJECT.replace('["small.doubled"]', modules))
    install(checkout, target)
    assert capfd.readouterr().err == "compiled 3 extension modules.\n", "two, and their library"
    assert run(target, DOUBLE) == "42 False"
    set_environment(**{incremental.ALL_PROGRESS: "yes"})

    def kept() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in tmp_path.rglob("kept/*")}

    before = kept()
    # A new literal, which is before all others in their order, and a new function: the other module knows neither.
    (checkout / "server/small/doubled.py").write_text(
        DOUBLED.replace("2", "3") + "def first() -> str:\n    return 'a word'\n"
    )
    install(checkout, target)
    progress = capfd.readouterr().err.splitlines()
    assert [bool(beside.FILES.match(line)) for line in progress[1:-1]] == [True] * (len(progress) - 2)
    code = "from small import doubled, named; print(doubled.first(), named.name())"
    assert run(target, DOUBLE) == "63 False"
    assert run(target, code) == "a word one of them"
    new = sorted(path.suffix for path in kept().keys() - before.keys())
    assert new == [".o", ".o", ".so"], "its C file, that of the library's literals, and the library"
    assert len(kept()) == len(before), "what is not used any more is removed"
    assert {time for path, time in kept().items() if path in before} <= set(before.values())
    set_environment(**{hatch_build.SWITCH: "no"})
    install(checkout, target)
    assert run(target, DOUBLE) == "63 True"
    assert not list(target.rglob("*.so"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", None), ("no", False), ("0", False), ("Off", False), ("false", False), ("yes", True), ("1", True)],
)
def test_the_switch_is_read_as_people_write_it(text, expected):
    assert hatch_build.switched(text) is expected


def test_what_was_compiled_with_other_flags_is_not_used(tmp_path, set_environment):
    somebodys = tmp_path / "somebodys"
    somebodys.mkdir()
    before = incremental.for_these_flags(tmp_path)
    (before / "lib").mkdir(parents=True)
    assert incremental.for_these_flags(tmp_path) == before
    assert (before / "lib").exists()
    set_environment(CFLAGS="-O0")
    assert incremental.for_these_flags(tmp_path) != before
    assert somebodys.exists(), "the directory may be anybody's"
