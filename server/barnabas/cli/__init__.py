"""The `barnabas` command.

The rule: an invalid option or setting is explained in one line, and so is a failed start; exit codes are those of
`ending`. Modules for only one sub-command are imported by that sub-command.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from barnabas.commands import COMMANDS
from barnabas.ending import INTERRUPTED, SERVERS, UNREAD, USAGE_ERROR, failed

if TYPE_CHECKING:
    import argparse

# Sub-commands that are programs of their own: module with `main(arguments) -> exit code`, and what they do.
TOOLS = {
    "log": ("barnabas.tools.logtool.command", "show, check and repair log dirs"),
    "storage": ("barnabas.tools.logtool.storage_command", "prepare log dirs before the first start"),
    "snapshot": ("barnabas.tools.snapshots.command", "keep snapshots of a broker in a bucket or a directory"),
    "fork": ("barnabas.cli.fork", "start a broker that holds what a stored snapshot holds"),
    "cluster": ("barnabas.tools.localcluster.command", "start several brokers and their controllers"),
    "tap": ("barnabas.tools.tap.command", "show what clients and brokers say to each other"),
    "replay": (
        "barnabas.tools.tap.replay_command",
        "send a recorded session to another broker, and compare its answers",
    ),
    "probe": (
        "barnabas.tools.probing.command",
        "look at any broker: what it serves, its limits, what clients can do",
    ),
    "conform": ("barnabas.tools.conformance.command", "judge any broker by what it says on the wire"),
    "test-server": ("barnabas.testing.server_command", "start a broker for tests, with a control API"),
    "zookeeper": ("barnabas.tools.zkserver.command", "start a ZooKeeper server of one node"),
}

SERVE = "start a broker"
WORDS = {"help": "--help", "version": "--version"}
"""Commands that stand for an option, of the command that follows."""
BEGINNING = """Start a broker:    barnabas serve
Look at a cluster: barnabas topics list --bootstrap HOST:PORT
Help:              barnabas help COMMAND"""
COMPLETE = "_BARNABAS_COMPLETE"
"""Environment variable by which a shell asks for completions (click)."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    _open_standard_streams()
    try:
        try:
            return _run(words)
        finally:  # what is left in the buffer is written here, where a failure can still be explained
            sys.stdout.flush()
    except (Exception, KeyboardInterrupt, BaseExceptionGroup) as error:
        return _code_of(error, words[0] if words else "")


def _parsers() -> dict[str, tuple[str, Callable[[], argparse.ArgumentParser]]]:
    """Return summaries and parsers of the commands that are not click's, for completion."""

    def serve() -> argparse.ArgumentParser:
        from argparse import ArgumentParser

        from barnabas.cli.options import add_serve

        return add_serve(ArgumentParser().add_subparsers())

    def of(module: str) -> Callable[[], argparse.ArgumentParser]:
        return lambda: import_module(module).parser()

    return {"serve": (SERVE, serve)} | {name: (text, of(module)) for name, (module, text) in TOOLS.items()}


def _code_of(error: BaseException, command: str) -> int:
    """Print the error that ended a command, and return the exit code."""
    from barnabas.environment import extras, output
    from barnabas.errors import leaves

    causes = leaves(error)
    if all(isinstance(cause, KeyboardInterrupt) for cause in causes):
        return INTERRUPTED
    texts = [
        output.explain(cause) if isinstance(cause, OSError)
        else extras.explain(cause) if isinstance(cause, ModuleNotFoundError)
        else None
        for cause in causes
    ]  # fmt: skip
    if None in texts:
        import traceback

        traceback.print_exception(error)
    elif command not in SERVERS and all(isinstance(cause, BrokenPipeError) for cause in causes):
        return UNREAD
    else:
        print(f"barnabas: {texts[0]}", file=sys.stderr)
    return failed(command)


def _open_standard_streams() -> None:
    """Open closed standard streams, since files and sockets would get their numbers: writing output fails then."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            os.open(
                os.devnull, os.O_WRONLY if name == "stderr" else os.O_RDONLY
            )  # the lowest number that is free
            setattr(sys, name, open(number, "r" if name == "stdin" else "w", closefd=False))  # noqa: SIM115


def _run(arguments: Sequence[str]) -> int:
    asked = os.environ.get(COMPLETE)
    if asked:  # by a shell, which has set nothing else
        from barnabas.commands.completion import answer

        return answer(asked, _parsers())
    if arguments and arguments[0] in WORDS:
        arguments = [*arguments[1:], WORDS[arguments[0]]]
    if arguments and arguments[0] in TOOLS:
        tool = import_module(TOOLS[arguments[0]][0])
        return int(tool.main(arguments[1:]))
    if arguments and arguments[0] in COMMANDS:
        from barnabas.commands.program import run

        return run(arguments)
    if arguments and not arguments[0].startswith("-") and arguments[0] != "serve":
        return _refuse(arguments[0])
    from barnabas.cli.options import whole_parser
    from barnabas.cli.serve import serve

    is_serve = bool(arguments) and arguments[0] == "serve"  # each parser of a command takes time to make
    parser = whole_parser(serve, {} if is_serve else TOOLS | COMMANDS)
    if not arguments:
        parser.print_help(sys.stderr)
        print(f"\n{BEGINNING}", file=sys.stderr)
        return USAGE_ERROR
    options = parser.parse_args(arguments)
    code: int = options.run(options)
    return code


def _refuse(name: str) -> int:
    """Report an unknown command, with similar ones; returns the exit code."""
    from difflib import get_close_matches

    from barnabas.environment.terminal import visible

    similar = get_close_matches(name, ["serve", *WORDS, *TOOLS, *COMMANDS])
    hint = f" Did you mean {' or '.join(map(repr, similar))}?" if similar else ""
    print(f"barnabas: No such command {visible(name)!r}.{hint} Try 'barnabas --help'.", file=sys.stderr)
    return USAGE_ERROR
