"""`barnabas completion`: completion of all commands in a shell, of click's and of argparse's alike.

The rule: completions come only from the declarations of the parsers; the names of files are completed by the shell.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping

import click
from click.shell_completion import CompletionItem

from barnabas.commands import COMMANDS
from barnabas.commands.program import CLIENT, Root
from barnabas.commands.shells import SHELLS
from barnabas.environment.lazy import import_when_used

VARIABLE = "_BARNABAS_COMPLETE"
"""Environment variable by which a shell asks for completions, as click has it."""
_FILES = ("FILE", "DIR", "PATH")

Parsers = Mapping[str, tuple[str, Callable[[], argparse.ArgumentParser]]]
"""Summary and parser of each command that has one of argparse, by its name."""


class Everything(Root):
    """The commands of both kinds."""

    def __init__(self, parsers: Parsers) -> None:
        super().__init__()
        self._parsers = parsers

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return [*self._parsers, *super().list_commands(ctx)]

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return commands that begin so, with the summaries of the tables: none is imported for its own."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        summaries = {name: summary for name, (summary, _) in self._parsers.items()}
        summaries |= {name: summary for name, (_, summary) in COMMANDS.items()}
        return [
            CompletionItem(name, help=summary)
            for name, summary in summaries.items()
            if name.startswith(incomplete)
        ]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command; one of argparse is converted, with its options only."""
        if cmd_name in self._parsers:
            summary, parser = self._parsers[cmd_name]
            return _converted(cmd_name, summary, parser())
        return super().get_command(ctx, cmd_name)


def _converted(name: str, summary: str, parser: argparse.ArgumentParser) -> click.Command:
    """Return a parser of argparse as a command of click that can be completed, not run."""
    parameters: list[click.Parameter] = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            return click.Group(
                name,
                help=summary,
                commands={
                    key: _converted(key, helps.get(key, ""), choice) for key, choice in action.choices.items()
                },
            )
        if isinstance(action, argparse._HelpAction):
            continue
        kind = _type_of(action)
        if not action.option_strings:
            many = action.nargs in ("+", "*")
            parameters.append(click.Argument([action.dest], type=kind, nargs=-1 if many else 1))
            continue
        parameters.append(
            click.Option(
                [*action.option_strings, action.dest],
                type=None if action.nargs == 0 else kind,
                is_flag=action.nargs == 0,
                multiple=isinstance(action, argparse._AppendAction),
                help=action.help if action.help != argparse.SUPPRESS else None,
                hidden=action.help == argparse.SUPPRESS,
            )
        )
    return click.Command(name, help=summary, params=parameters)


def _type_of(action: argparse.Action) -> click.ParamType[object] | None:
    if action.choices is not None:
        return click.Choice([str(choice) for choice in action.choices])
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    if metavar in _FILES:
        return click.Path(file_okay=metavar != "DIR")
    return None


def answer(instruction: str, parsers: Parsers) -> int:
    """Answer a shell that asks; `instruction` is the value of VARIABLE. Returns the exit code."""
    shell, _, what = instruction.partition("_")
    import_when_used(*CLIENT)
    completion_class = SHELLS.get(shell)
    if completion_class is None or what not in ("source", "complete"):
        return 1
    completion = completion_class(Everything(parsers), {}, "barnabas", VARIABLE)
    print(completion.source() if what == "source" else completion.complete())
    return 0


@click.command("completion")
@click.argument("shell", type=click.Choice(list(SHELLS)))
def COMMAND(shell: str) -> int:  # noqa: N802
    """Print a script that completes commands; in ~/.bashrc: eval "$(barnabas completion bash)"."""
    print(SHELLS[shell](Root(), {}, "barnabas", VARIABLE).source())
    return 0
