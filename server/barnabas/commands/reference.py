"""The page of the commands, from their own declarations."""

from __future__ import annotations

from collections.abc import Iterator

import click

from barnabas.commands.connection import NAMES
from barnabas.commands.output import Table
from barnabas.commands.program import Root


def page() -> str:
    """Return the page in Markdown."""
    root = Root()
    context = click.Context(root, info_name="barnabas")
    lines = [
        "# Commands\n",
        "Commands that ask any Kafka, ours or another; [how to use them](../how-to/commands.md). `barnabas COMMAND --help`",
        "says the same. Results are tables for people; `--json` prints one object, whose keys are listed here and stay.",
        "A column `error` is null unless something failed; the exit code is 1 then ([exit codes](exit-codes.md)).\n",
        "## Options of every command that asks a cluster\n",
        *_options(_connection_options(root, context)),
    ]
    for name in root.list_commands(context):
        command = root.get_command(context, name)
        assert command is not None
        lines += _described(command, click.Context(command, context, name))
    return "\n".join(lines) + "\n"


def _connection_options(root: Root, context: click.Context) -> list[click.Option]:
    topics = root.get_command(context, "topics")
    assert isinstance(topics, click.Group)
    return [command for command in _of(topics.commands["list"]) if command.name in NAMES]


def _of(command: click.Command) -> list[click.Option]:
    return [param for param in command.params if isinstance(param, click.Option) and not param.hidden]


def _described(command: click.Command, context: click.Context) -> Iterator[str]:
    """Yield the lines of a command, and of its subcommands."""
    depth = context.command_path.count(" ") + 1
    yield f"\n{'#' * min(depth, 4)} {context.command_path}\n"
    yield (command.help or "").strip() + "\n"
    if isinstance(command, click.Group):
        if command.invoke_without_command:
            yield from _own_options(command, context)
        for name, subcommand in command.commands.items():
            yield from _described(subcommand, click.Context(subcommand, context, name))
        return
    yield from _own_options(command, context)
    for table in getattr(command.callback, "tables", ()):
        yield from _keys(table)


def _own_options(command: click.Command, context: click.Context) -> Iterator[str]:
    pieces = " ".join(command.collect_usage_pieces(context))
    yield f"    {context.command_path} {pieces}"
    own = [option for option in _of(command) if option.name not in NAMES]
    if own:
        yield ""
        yield from _options(own)


def _options(options: list[click.Option]) -> Iterator[str]:
    yield "| option | |"
    yield "|---|---|"
    for option in options:
        help_record = option.get_help_record(click.Context(click.Command("")))
        assert help_record is not None
        names, text = (part.replace("|", "\\|") for part in help_record)
        yield f"| `{names}` | {text} |"


def _keys(table: Table) -> Iterator[str]:
    what = "an object" if table.is_single else "a list of objects"
    yield f"\n`{table.name}`, {what}:\n"
    yield "| key | |"
    yield "|---|---|"
    for name, text in table.columns.items():
        yield f"| `{name}` | {text.replace('|', '/')} |"
