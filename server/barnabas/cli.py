"""The `barnabas` command.

The rule: a wrong option or setting is explained in one line, with exit code 2; a start that fails, with 1. What only
one sub-command needs is imported by that sub-command.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from barnabas import __version__

USAGE_ERROR = 2
# Sub-commands that are programs of their own: module with `main(arguments) -> exit code`, and what they do.
TOOLS = {"log": ("barnabas.logtool.command", "look at log dirs, check them, mend them")}
SET_OPTION = "--set"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="barnabas", description="A broker that speaks Apache Kafka's wire protocol."
    )
    parser.add_argument("--version", action="version", version=f"barnabas {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_serve(commands)
    _add_tools(commands)
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments and arguments[0] in TOOLS:
        tool = import_module(TOOLS[arguments[0]][0])
        return int(tool.main(arguments[1:]))
    options = parser.parse_args(arguments)
    code: int = options.run(options)
    return code


def _add_serve(commands: Any) -> None:
    serve = commands.add_parser("serve", help="start a broker", description="Start a broker.")
    serve.add_argument("--config", metavar="FILE", help="a server.properties file")
    serve.add_argument(
        "--listen", metavar="HOST:PORT", action="append", default=[],
        help="where to listen (default: port 9092 on all interfaces); may be repeated with NAME://HOST:PORT",
    )  # fmt: skip
    where = serve.add_mutually_exclusive_group()
    where.add_argument(
        "--data", metavar="DIR", help="where to keep the data (default: %(metavar)s in the state directory)"
    )
    where.add_argument(
        "--ephemeral", action="store_true", help="keep nothing: the data goes when the broker stops"
    )
    serve.add_argument(
        "--metrics", metavar="HOST:PORT", help="where to serve metrics to Prometheus (default: nowhere)"
    )
    serve.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], help="set one setting; may be repeated"
    )
    serve.add_argument(
        "--log-level", default="warning", choices=("debug", "info", "warning", "error"),
        help="how much to log on standard error (default: %(default)s)",
    )  # fmt: skip
    serve.set_defaults(run=_serve)


def _add_tools(commands: Any) -> None:
    for name, (_, text) in TOOLS.items():
        commands.add_parser(name, help=text, add_help=False)


def _serve(options: argparse.Namespace) -> int:
    import logging

    from barnabas.config.loading import BrokerConfig, explain_unknown
    from barnabas.config.setting import SettingError

    logging.basicConfig(
        level=options.log_level.upper(),
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
        stream=sys.stderr,
    )
    try:
        settings, origins, temporary = _settings(options)
        config = BrokerConfig(settings, origins)
    except (SettingError, OSError, UnicodeDecodeError) as error:
        print(f"barnabas: {error}", file=sys.stderr)
        return USAGE_ERROR
    for name in config.unknown:
        # In a file it may be a plugin's; on the command line it is a slip.
        print(f"barnabas: {origins[name]}: {explain_unknown(name)}", file=sys.stderr)
        if origins[name] == SET_OPTION:
            return USAGE_ERROR

    from barnabas.broker.app import run

    try:
        return run(config)
    finally:
        if temporary is not None:
            import shutil

            shutil.rmtree(temporary, ignore_errors=True)


def _settings(options: argparse.Namespace) -> tuple[dict[str, str], dict[str, str], str | None]:
    """All settings as text, where each was set, and the temporary data directory if there is one."""
    from barnabas.config.loading import parse_pairs
    from barnabas.config.setting import SettingError

    settings: dict[str, str] = {}
    origins: dict[str, str] = {}
    if options.config:
        from barnabas.config.properties import parse_lines

        try:
            with open(options.config, encoding="utf-8") as file:
                text = file.read()
        except OSError as error:
            raise SettingError(f"--config {options.config}: {error.strerror}") from error
        try:
            for number, name, value in parse_lines(text):
                settings[name] = value
                origins[name] = f"{options.config}:{number}"
        except SettingError as error:
            raise SettingError(f"{options.config}: {error}") from error
    else:
        # Kafka's own example configuration does so for classic groups: nobody wants to wait for a first member.
        settings["group.initial.rebalance.delay.ms"] = "0"
        settings["group.streams.initial.rebalance.delay.ms"] = "0"
    for name, value in parse_pairs(options.set).items():
        settings[name] = value
        origins[name] = SET_OPTION
    if options.listen:
        settings["listeners"] = ",".join(
            listen if "://" in listen else f"PLAINTEXT://{listen}" for listen in options.listen
        )
    if options.metrics:
        settings["metrics.listener"] = options.metrics
    temporary: str | None = None
    if options.ephemeral:
        import tempfile

        memory = "/dev/shm"
        temporary = tempfile.mkdtemp(prefix="barnabas-", dir=memory if os.access(memory, os.W_OK) else None)
        settings["log.dirs"] = temporary
    elif options.data:
        settings["log.dirs"] = options.data
    elif not settings.get("log.dirs") and not settings.get("log.dir"):
        settings["log.dirs"] = _state_directory()
    dirs = settings.get("log.dirs") or settings["log.dir"]
    settings["log.dirs"] = ",".join(os.path.abspath(path.strip()) for path in dirs.split(",") if path.strip())
    return settings, origins, temporary


def _state_directory() -> str:
    """Where programs of this user keep what must last: $XDG_STATE_HOME, or ~/.local/state."""
    base = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(base, "barnabas")
