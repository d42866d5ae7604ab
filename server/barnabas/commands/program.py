"""Running a command: `run(arguments)` takes the command line and returns the exit code.

The rule: only the requested command is imported; a failure is one line on standard error.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from importlib import import_module

import click

from barnabas.commands import COMMANDS
from barnabas.commands.errors import CommandError, explain
from barnabas.ending import FAILED, INTERRUPTED
from barnabas.environment.lazy import import_when_used
from barnabas.environment.terminal import visible_lines

HELP = ["-h", "--help"]
CLIENT = "barnabas.client.admin", "barnabas.client.sockets", "trio"
"""Modules that a command for which help or a completion is shown does without."""
GARBAGE_THRESHOLD = 100_000
"""Number of objects that are made, and not dropped again, before cycles among them are looked for."""


class Root(click.Group):
    """All commands of the table, imported one by one."""

    def __init__(self) -> None:
        super().__init__("barnabas", context_settings={"help_option_names": HELP})

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the names of the commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import a command; None for an unknown name."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(COMMANDS[cmd_name][0]).COMMAND
        return command


def run(arguments: Sequence[str]) -> int:
    """Run a command; returns the exit code."""
    # A command makes much and drops little: to look for cycles all the time takes a third of its time.
    import_when_used(*CLIENT)
    thresholds = gc.get_threshold()
    gc.set_threshold(GARBAGE_THRESHOLD, *thresholds[1:])
    try:
        return _run(arguments)
    finally:
        gc.set_threshold(*thresholds)


def _run(arguments: Sequence[str]) -> int:
    try:
        with Root().make_context("barnabas", list(arguments)) as context:
            code = context.command.invoke(context)
            return code if isinstance(code, int) else 0
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.exceptions.Abort:  # of a question that was answered by Ctrl-C
        print(file=sys.stderr)
        return INTERRUPTED
    except click.exceptions.NoArgsIsHelpError as error:
        _tell(error.format_message())
        return error.exit_code
    except click.UsageError as error:
        where = "barnabas" if error.ctx is None else error.ctx.command_path
        _tell(f"{where}: {error.format_message()}{_commands_of(error)}")
        if error.ctx is not None:
            _tell(f"Try '{where} --help'.")
        return error.exit_code
    except click.ClickException as error:
        _tell(f"barnabas: {error.format_message()}")
        return error.exit_code
    except CommandError as error:
        _tell(f"barnabas {_name(arguments)}: {error}")
        return FAILED
    except Exception as error:
        from barnabas.client import ClientError

        if not isinstance(error, ClientError):
            raise
        _tell(f"barnabas {_name(arguments)}: {explain(error)}")
        return FAILED


def _commands_of(error: click.UsageError) -> str:
    """Return the list of commands, for an unknown one without a similar name."""
    if not isinstance(error, click.exceptions.NoSuchCommand) or error.possibilities or error.ctx is None:
        return ""
    group = error.ctx.command
    assert isinstance(group, click.Group)
    return "" if isinstance(group, Root) else f" There are {', '.join(group.list_commands(error.ctx))}."


def _tell(text: str) -> None:
    """Print a message on standard error; it may have names in it that were never meant for a terminal."""
    print(visible_lines(text), file=sys.stderr)


def _name(arguments: Sequence[str]) -> str:
    """Return the command's name for messages: the words before the first option or name."""
    command: click.Command | None = Root()
    words = []
    for word in arguments:
        if not isinstance(command, click.Group):
            break
        command = command.get_command(click.Context(command), word)
        if command is None:
            break
        words.append(word)
    return " ".join(words)
