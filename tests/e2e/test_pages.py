"""Sessions of pages, typed as they are printed, in a network where each port is free, with an empty home."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from barnabas.testing.running import import_path
from tests.support.pages import ROOT, Shell, Step, network, spans, steps

pytestmark = pytest.mark.e2e

SET_UP = (".venv/bin/python", ".venv/.ready-run", ".venv/.ready-build", ".venv/.bytecode")
"""Parts of the tests' own environment, which `make` takes as they are."""
OF_MAKE = [f"--unset={name}" for name in ("ARGS", "MAKEFLAGS", "MAKELEVEL", "MFLAGS")]
"""Words by which the `make` that runs the tests says nothing to the one that they start."""


def program(path: Path, text: str) -> None:
    """Make a small program."""
    path.write_text(f"#!/bin/sh\nexec {text}\n")
    path.chmod(0o755)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An environment in which `make` and `barnabas` run the sources that are tested, from an empty home."""
    home, programs = tmp_path / "home", tmp_path / "bin"
    home.mkdir()
    programs.mkdir()
    old = " ".join(f"--old-file={name}" for name in SET_UP)
    program(programs / "make", f'env {" ".join(OF_MAKE)} {shutil.which("make")} {old} "$@"')
    program(programs / "barnabas", f'{sys.executable} -m barnabas "$@"')
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    return {"HOME": str(home), "PATH": path, "PYTHONPATH": import_path(ROOT), "BARNABAS_COMPILED": "no"}


def test_the_tutorial_goes_as_it_is_printed(environment: dict[str, str]) -> None:
    if not (ROOT / ".venv" / "bin" / "barnabas").exists():
        pytest.skip("the checkout has no .venv: make setup")
    with network() as words, Shell(words, ROOT, environment) as shell:
        shell.follow("docs/tutorial.md")


def test_the_readme_goes_as_it_is_printed(environment: dict[str, str]) -> None:
    if not (ROOT / ".venv" / "bin" / "barnabas").exists():
        pytest.skip("the checkout has no .venv: make setup")
    if shutil.which("kcat") is None:
        pytest.skip("there is no kcat (Debian: apt-get install kcat)")
    with network() as words, Shell(words, ROOT, environment) as shell:
        shell.follow("README.md")


def test_who_comes_from_elsewhere_finds_what_is_printed(tmp_path: Path, environment: dict[str, str]) -> None:
    page = "docs/coming-from.md"
    (tmp_path / "records.txt").write_text("one\ntwo\n")
    with network() as words, Shell(words, tmp_path, environment) as shell:
        shell.follow(page)
        assert len(spans(page)) > 10
        for command in spans(page):
            shell.run(command)


def test_schemas_go_as_they_are_printed(tmp_path: Path, environment: dict[str, str]) -> None:
    if shutil.which("curl") is None:
        pytest.skip("there is no curl (Debian: apt-get install curl)")
    with network() as words, Shell(words, tmp_path, environment) as shell:
        shell.follow("docs/how-to/registry.md")


def test_http_goes_as_it_is_printed(tmp_path: Path, environment: dict[str, str]) -> None:
    if shutil.which("curl") is None:
        pytest.skip("there is no curl (Debian: apt-get install curl)")
    with network() as words, Shell(words, tmp_path, environment) as shell:
        shell.follow("docs/how-to/http.md")


# --- how a page is read ---------------------------------------------------------------------------------------


def test_sessions_are_read_as_commands_with_what_they_print(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "A page\n\n    not a session\n\ntext\n\n    $ one\n    first\n\n    second ...\n\n"
        "text\n\n    $ two\n    ...\n\n    ^C\n"
    )
    assert steps(page) == [Step("one", ["first", "second ..."]), Step("two", ["..."]), Step("^C", [])]


def test_each_line_of_a_command_that_ends_is_compared() -> None:
    assert Step("one", ["A    B", "x    1"]).is_told_by("A    B\n\nx    1\n")
    assert not Step("one", ["A    B", "x    1"]).is_told_by("A  B\nx  1\n")
    step = Step("one", ["A    B", "x ...", "last"])
    assert step.is_told_by("A  B\n\nx 7\nlast\n")
    assert not step.is_told_by("A  B\nx 7\n")
    assert not step.is_told_by("A  B\nx 7\nlast\nmore\n")
    assert not step.is_told_by("A  B\ny 7\nlast\n")


def test_a_command_that_runs_on_has_printed_each_line() -> None:
    step = Step("one", ["a", "b", "..."])
    assert step.is_told_by("b\na\nmore\n")
    assert not step.is_told_by("b\n")


def test_other_output_than_the_pages_fails(tmp_path: Path, environment: dict[str, str]) -> None:
    page = tmp_path / "page.md"
    for text, message in (("$ echo one\n    two", "the page has\ntwo"), ("$ false", "\\$ false")):
        page.write_text(f"    {text}\n")
        with pytest.raises(AssertionError, match=message), Shell([], tmp_path, environment) as shell:
            shell.follow(page)
