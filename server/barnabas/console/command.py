"""`barnabas console`: the console of any cluster, in a process of its own."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import trio

from barnabas.broker.startup import StartupError
from barnabas.client import ClientSettings, parse_bootstrap
from barnabas.client.settings import MECHANISMS
from barnabas.config.loading import parse_pairs
from barnabas.config.properties import parse_lines
from barnabas.config.setting import SettingError
from barnabas.console.server import DEFAULT_PORT, ConsoleServer, address_of
from barnabas.console.target import Target
from barnabas.ending import DONE, FAILED, USAGE_ERROR, end_signals
from barnabas.environment import log_lines
from barnabas.errors import leaves


class OptionError(ValueError):
    """Options that mean nothing."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    found = argparse.ArgumentParser(
        prog="barnabas console",
        description="Serve a console for browsers, of any cluster of Kafka's protocol.",
    )
    found.add_argument(
        "-b", "--bootstrap", metavar="HOST:PORT,...", default="localhost:9092",
        help="brokers to ask first (default: %(default)s)",
    )  # fmt: skip
    found.add_argument(
        "--listen", metavar="HOST:PORT", default=f"127.0.0.1:{DEFAULT_PORT}",
        help="where to serve the console (default: %(default)s)",
    )  # fmt: skip
    found.add_argument(
        "--client-config",
        metavar="FILE",
        help="settings of clients, one KEY=VALUE a line: TLS, a login for all visitors",
    )
    found.add_argument(
        "-X",
        "--property",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="one such setting; may be repeated",
    )
    found.add_argument(
        "--login", metavar="MECHANISM", action="append", default=[], choices=MECHANISMS[:3],
        help=f"have each visitor log in as a user of the cluster, by {', '.join(MECHANISMS[:3])}; may be repeated",
    )  # fmt: skip
    found.add_argument(
        "--token-file", metavar="FILE",
        help="a file with what visitors have to know, for an address that other machines reach",
    )  # fmt: skip
    found.add_argument(
        "--origin", metavar="URL", action="append", default=[],
        help="where a proxy shows the console, as https://kafka.example; may be repeated",
    )  # fmt: skip
    found.add_argument(
        "--registry", metavar="URL", default="", help="a registry of schemas by which values are read"
    )
    found.add_argument(
        "--log-level", default="warning", choices=("debug", "info", "warning", "error"),
        help="how much to log on standard error (default: %(default)s)",
    )  # fmt: skip
    return found


def main(arguments: Sequence[str]) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit code."""
    options = parser().parse_args(arguments)
    log_lines.begin(options.log_level)
    try:
        target = target_of(options)
        token = _first_line(options.token_file) if options.token_file is not None else ""
    except (ValueError, SettingError) as error:
        print(f"barnabas console: {error}", file=sys.stderr)
        return USAGE_ERROR
    code = DONE
    try:
        trio.run(_serve, options, target, token)
    except* (StartupError, OSError) as group:
        code = FAILED
        for failure in leaves(group):
            print(f"barnabas console: {failure}", file=sys.stderr)
    return code


def target_of(options: argparse.Namespace) -> Target:
    """Return the cluster that options name. Raises ValueError, SettingError."""
    properties: dict[str, str] = {}
    if options.client_config is not None:
        lines = _read(options.client_config, "--client-config")
        properties = {name: value for _, name, value in parse_lines(lines)}
    properties |= parse_pairs(options.property)
    logins = tuple(options.login)
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    if logins:
        if "sasl.username" in properties:
            raise OptionError("--login has visitors log in themselves: leave out sasl.username")
        has_tls = protocol.endswith("SSL")
        properties["security.protocol"] = "SSL" if has_tls else "PLAINTEXT"
    settings = ClientSettings.of(properties)
    return Target(tuple(parse_bootstrap(options.bootstrap)), logins, settings.tls, settings.sasl)


def _read(path: str, option: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"{option} {path}: {getattr(error, 'strerror', None) or error}") from error


def _first_line(path: str) -> str:
    token = _read(path, "--token-file").partition("\n")[0].strip()
    if not token:
        raise OptionError(f"--token-file {path}: its first line is empty")
    return token


async def _serve(options: argparse.Namespace, target: Target, token: str) -> None:
    """Serve until a signal. Raises StartupError."""
    server = ConsoleServer(
        address_of(options.listen),
        lambda: target,
        token=token,
        origins=options.origin,
        registry_url=options.registry,
    )
    with trio.open_signal_receiver(*end_signals()) as signals:
        async with trio.open_nursery() as nursery:
            await nursery.start(server.run)
            print(f"barnabas console is ready: {server.url} of {options.bootstrap}", flush=True)
            async for _ in signals:
                break
            nursery.cancel_scope.cancel()
