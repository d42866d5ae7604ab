"""The program around commands: exit codes, names in messages, completion, the page of the reference."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from barnabas.client import ClientError
from barnabas.commands import program
from barnabas.commands.completion import Everything, answer
from barnabas.commands.errors import CommandError
from barnabas.commands.program import run
from barnabas.commands.reference import page

from .conftest import StandIn

ROOT = Path(__file__).resolve().parents[3]


# --- exit codes ----------------------------------------------------------------------------------------------------


def ending(monkeypatch: pytest.MonkeyPatch, outcome: Any) -> None:
    """Have `barnabas topics list` end so."""

    @click.group()
    def group() -> None:
        pass

    @group.command("list")
    @click.argument("names", nargs=-1)
    def command(names: tuple[str, ...]) -> Any:
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    class Module:
        COMMAND = group

    monkeypatch.setattr(program, "import_module", lambda _: Module)


@pytest.mark.parametrize(
    ("outcome", "code", "shown"),
    [
        (None, 0, ""),
        (0, 0, ""),
        (1, 1, ""),
        (7, 7, ""),
        ("text", 0, ""),
        (click.exceptions.Exit(5), 5, ""),
        (click.exceptions.Abort(), 130, "\n"),
        (click.UsageError("wrong"), 2, "barnabas topics list: wrong\nTry 'barnabas topics list --help'.\n"),
        (click.ClickException("no"), 1, "barnabas: no\n"),
        (click.FileError("f", "gone"), 1, "barnabas: Could not open file 'f': gone\n"),
        (CommandError("cannot"), 1, "barnabas topics list: cannot\n"),
        (ClientError("away"), 1, "barnabas topics list: away\n"),
    ],
)
def test_a_command_ends_with_the_code_of_what_came_of_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], outcome: Any, code: int, shown: str
) -> None:
    ending(monkeypatch, outcome)
    assert run(["topics", "list", "a", "list"]) == code
    assert capsys.readouterr() == ("", shown)


def test_a_wrong_command_is_told_where_it_was_looked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["brokers", "features", "lst"]) == 2
    output = capsys.readouterr().err
    assert output.startswith("barnabas brokers features: No such command 'lst'")
    assert output.endswith("Try 'barnabas brokers features --help'.\n")
    assert run(["nothing"]) == 2
    assert capsys.readouterr().err.startswith("barnabas: No such command 'nothing'")
    assert run(["topics", "-h"]) == run(["topics", "list", "--help"]) == 0


@pytest.mark.parametrize(("returned", "code"), [(None, 0), (0, 0), (1, 1)])
def test_rows_decide_about_the_code_where_the_work_does_not(
    cluster: StandIn, monkeypatch: pytest.MonkeyPatch, returned: int | None, code: int
) -> None:
    from barnabas.commands.session import Session, asking

    @click.group()
    def group() -> None:
        pass

    @group.command("list")
    @asking()
    async def command(session: Session) -> int | None:
        return returned

    class Module:
        COMMAND = group

    monkeypatch.setattr(program, "import_module", lambda _: Module)
    cluster("topics", "list", code=code)


# --- completion ----------------------------------------------------------------------------------------------------


def parser() -> argparse.ArgumentParser:
    """A parser with a parameter of each kind."""
    created = argparse.ArgumentParser()
    created.add_argument("file", metavar="FILE")
    created.add_argument("count", type=int)
    created.add_argument("words", nargs="*")
    created.add_argument("--dir", "-d", metavar="DIR", help="a directory")
    created.add_argument("--path", metavar="PATH")
    created.add_argument("--level", choices=(1, 2))
    created.add_argument("--both", nargs=2, metavar=("FILE", "DIR"))
    created.add_argument("--flag", action="store_true", help="a flag")
    created.add_argument("--again", action="append", metavar="TEXT")
    created.add_argument("--secret", help=argparse.SUPPRESS)
    created.add_argument("--version", action="version", version="1")
    return created


def nested() -> argparse.ArgumentParser:
    created = argparse.ArgumentParser()
    below = created.add_subparsers()
    below.add_parser("first", help="the first").add_argument("--one", action="store_true")
    below.add_parser("second")
    return created


EVERYTHING = Everything({"flat": ("a summary", parser), "nested": ("another", nested)})


def converted(name: str) -> click.Command:
    result = EVERYTHING.get_command(click.Context(EVERYTHING), name)
    assert result is not None
    return result


def test_parameters_of_a_parser_are_completed_as_what_they_are() -> None:
    command = converted("flat")
    assert (command.name, command.help) == ("flat", "a summary")
    arguments = [entry for entry in command.params if isinstance(entry, click.Argument)]
    assert [(entry.name, entry.nargs, type(entry.type).__name__) for entry in arguments] == [
        ("file", 1, "Path"), ("count", 1, "StringParamType"), ("words", -1, "StringParamType"),
    ]  # fmt: skip
    options = {entry.name: entry for entry in command.params if isinstance(entry, click.Option)}
    assert list(options) == ["dir", "path", "level", "both", "flag", "again", "secret", "version"], (
        "no --help twice"
    )
    assert options["dir"].opts == ["--dir", "-d"]
    kinds = {name: type(entry.type).__name__ for name, entry in options.items()}
    assert kinds == {
        "dir": "Path", "path": "Path", "level": "Choice", "both": "StringParamType", "flag": "BoolParamType",
        "again": "StringParamType", "secret": "StringParamType", "version": "BoolParamType",
    }  # fmt: skip
    assert [entry.type.file_okay for name, entry in options.items() if name in ("dir", "path")] == [
        False,
        True,
    ]  # type: ignore[attr-defined]
    assert options["level"].type.choices == ("1", "2")  # type: ignore[attr-defined]
    assert [name for name, entry in options.items() if entry.is_flag] == ["flag", "version"]
    assert [name for name, entry in options.items() if entry.multiple] == ["again"]
    assert [name for name, entry in options.items() if entry.hidden] == ["secret"]
    assert (options["dir"].help, options["flag"].help, options["secret"].help) == (
        "a directory",
        "a flag",
        None,
    )


def test_subcommands_are_completed_with_their_summaries() -> None:
    command = converted("nested")
    assert isinstance(command, click.Group)
    assert command.help == "another"
    assert {name: sub.help for name, sub in command.commands.items()} == {"first": "the first", "second": ""}
    assert [param.name for param in command.commands["first"].params] == ["one"]


@pytest.mark.parametrize(
    "instruction", ["bash", "bash_", "bash_other", "csh_source", "csh_complete", "_source", ""]
)
def test_what_no_shell_asks_is_not_answered(instruction: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(instruction, {}) == 1
    assert capsys.readouterr().out == ""


def test_a_shell_is_told_what_completes_a_word(
    capsys: pytest.CaptureFixture[str], set_environment: Callable[..., None]
) -> None:
    set_environment(COMP_WORDS="barnabas flat --l")
    set_environment(COMP_CWORD="2")
    assert answer("bash_complete", {"flat": ("a summary", parser)}) == 0
    assert capsys.readouterr().out == "plain,--level\n"


# --- the reference -------------------------------------------------------------------------------------------------


def test_the_page_of_commands_is_that_of_the_reference() -> None:
    text = (ROOT / "docs/reference/commands.md").read_text()
    assert text.endswith(page())


def test_the_page_shows_options_keys_and_usage_once() -> None:
    lines = page().splitlines()
    assert "    barnabas topics list [OPTIONS] [NAMES]..." in lines
    assert sum(line.startswith("| `--timeout SECONDS`") for line in lines) == 1, (
        "of all commands that ask a cluster"
    )
    assert lines[lines.index("### barnabas topics list") + 2] == "List topics: all, or these."
    assert "`topics`, a list of objects:" in lines
    assert "`produced`, an object:" in lines
