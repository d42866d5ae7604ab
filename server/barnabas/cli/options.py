"""Options of `barnabas serve`, and the parser of the whole program, for its help.

The rule: an option that is a setting has no default here; `broker.serve_options` turns options into settings.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, NoReturn

from barnabas import __version__
from barnabas.cli import SERVE
from barnabas.ending import USAGE_ERROR

OTHER_WORDS = {
    "--port": "--listen HOST:PORT", "-p": "--listen HOST:PORT", "--host": "--listen HOST:PORT",
    "--bind": "--listen HOST:PORT", "--data-dir": "--data DIR", "--log-dir": "--data DIR",
    "--topics": "--topic NAME[:PARTITIONS]", "--in-memory": "--ephemeral",
}  # fmt: skip
"""Options of other programs, and those that do the same here."""


class Parser(argparse.ArgumentParser):
    """A parser that fails when its help cannot be written; argparse's own ignores that."""

    def _print_message(self, message: str, file: Any = None) -> None:
        if message:
            (file or sys.stderr).write(message)

    def error(self, message: str) -> NoReturn:
        """Print the error and its option in one line, and exit."""
        unknown = message.removeprefix("unrecognized arguments: ").split()[0]
        if unknown in OTHER_WORDS:
            message = f"{message}; give {OTHER_WORDS[unknown]}"
        elif unknown.startswith("--") and unknown != message:
            near = get_close_matches(unknown.partition("=")[0], self._options(), n=1)
            message = f"{message}; did you mean {near[0]}?" if near else message
        self.exit(USAGE_ERROR, f"{self.prog}: {message}. Try '{self.prog} --help'.\n")

    def _options(self) -> list[str]:
        """Return the options of the program and of its commands."""
        names: list[str] = []
        for action in self._actions:
            names += action.option_strings
            if isinstance(action, argparse._SubParsersAction):
                for parser in action.choices.values():
                    names += [name for option in parser._actions for name in option.option_strings]
        return names


def whole_parser(serve: Callable[..., int], others: Mapping[str, tuple[str, str]]) -> argparse.ArgumentParser:
    """Return the parser of the program; `others` are modules and summaries of commands with separate parsers."""
    parser = Parser(prog="barnabas", description="A broker that speaks Apache Kafka's wire protocol.")
    parser.add_argument("--version", action="version", version=f"barnabas {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    add_serve(commands).set_defaults(run=serve)
    for name, (_, text) in others.items():
        commands.add_parser(name, help=text, add_help=False)
    return parser


def add_serve(commands: Any) -> argparse.ArgumentParser:
    """Add the parser of `serve` to those of commands."""
    serve: argparse.ArgumentParser = commands.add_parser("serve", help=SERVE, description="Start a broker.")
    serve.add_argument("--config", metavar="FILE", help="a server.properties file")
    serve.add_argument(
        "--listen", metavar="HOST:PORT", action="append", default=[],
        help="where to listen (default: localhost:9092, for this machine only; 0.0.0.0:9092 for all interfaces); "
        "may be repeated as NAME://HOST:PORT",
    )  # fmt: skip
    serve.add_argument(
        "--advertise", metavar="HOST:PORT", action="append", default=[],
        help="the address that clients are given, where it is not the one they connect to (a mapped port, a load "
        "balancer); may be repeated as NAME://HOST:PORT, once for each listener",
    )  # fmt: skip
    serve.add_argument(
        "--zookeeper", metavar="HOST:PORT,.../CHROOT",
        help="join the cluster that is kept in this ZooKeeper (default: a broker that is alone)",
    )  # fmt: skip
    serve.add_argument(
        "--broker-id",
        metavar="N",
        help="the broker's number in the cluster (default: ZooKeeper assigns it)",
    )
    serve.add_argument(
        "--workers", type=_workers, default=1, metavar="N",
        help="how many brokers to start, one for each core that they may use; to clients they are one cluster, on "
        "this port and the next ones (default: 1)",
    )  # fmt: skip
    serve.add_argument(
        "--as-version", metavar="VERSION",
        help="behave as Apache Kafka of this version, from 0.8.0 on: its APIs, their first and last versions, its "
        "defaults, and the limits of its settings (default: 4.4, with the older versions of its APIs)",
    )  # fmt: skip
    serve.add_argument("--rack", metavar="NAME", help="the rack or zone that the broker is in")
    where = serve.add_mutually_exclusive_group()
    where.add_argument(
        "--data", metavar="DIR", help="where to keep the data (default: ~/.local/state/barnabas)"
    )
    where.add_argument(
        "--demo-security", metavar="DIR", nargs="?", const="barnabas-demo",
        help="try clients with TLS, users and ACLs: make all of it in DIR (default: %(const)s), or use what is there, "
        "and print settings for clients",
    )  # fmt: skip
    where.add_argument(
        "--ephemeral",
        action="store_true",
        help="keep the data in memory, and remove it when the broker stops",
    )
    serve.add_argument(
        "--metrics", metavar="HOST:PORT", help="where to serve metrics to Prometheus (default: nowhere)"
    )
    serve.add_argument(
        "--topic", metavar="NAME[:PARTITIONS[:KEY=VALUE,...]]", action="append", default=[],
        help="make a topic, if it is not there; may be repeated",
    )  # fmt: skip
    serve.add_argument(
        "--seed-file", metavar="FILE",
        help="make what this file describes and is not there: topics, records, groups, ACLs, users, quotas (YAML)",
    )  # fmt: skip
    serve.add_argument(
        "--tap", metavar="OPTIONS", nargs="?", const="",
        help="show each request with its answer; OPTIONS are those of `barnabas tap`, as errors,api=Produce,json=FILE",
    )  # fmt: skip
    serve.add_argument(
        "--control", metavar="HOST:PORT",
        help="where to serve the control API: faults, clock, connections, recorded requests (default: nowhere)",
    )  # fmt: skip
    serve.add_argument(
        "--registry", metavar="HOST:PORT", nargs="?", const="localhost:8081",
        help="where to serve a schema registry, which clients of Confluent's use (default: nowhere; without an address: "
        "%(const)s)",
    )  # fmt: skip
    serve.add_argument(
        "--http", metavar="HOST:PORT", nargs="?", const="localhost:8082",
        help="where to serve the REST API: produce, consume and administration over HTTP, as clients of Confluent's REST "
        "proxy use them (default: nowhere; without an address: %(const)s)",
    )  # fmt: skip
    serve.add_argument(
        "--console", metavar="HOST:PORT", nargs="?", const="auto",
        help="serve a console for browsers: topics, records, groups, and what can be done about them (default: nowhere; "
        "without an address: localhost:9080, or a free port where that is taken)",
    )  # fmt: skip
    serve.add_argument(
        "--console-token-file", metavar="FILE",
        help="a file with what visitors of the console have to know, for an address that other machines reach",
    )  # fmt: skip
    serve.add_argument(
        "--console-client-config", metavar="FILE",
        help="the console's own login where visitors log in, by which it keeps the last 15 minutes: sasl.username, "
        "sasl.password and sasl.mechanism (SCRAM-SHA-512), a KEY=VALUE a line",
    )  # fmt: skip
    serve.add_argument(
        "--console-origin", metavar="URL", action="append", default=[],
        help="where a proxy shows the console, as https://kafka.example; may be repeated",
    )  # fmt: skip
    serve.add_argument(
        "--console-registry", metavar="URL", help="a registry of schemas by which the console reads values"
    )
    serve.add_argument(
        "--console-connect", metavar="[NAME=]URL", action="append", default=[],
        help="a worker of Kafka Connect whose connectors the console shows; may be repeated",
    )  # fmt: skip
    serve.add_argument("--faults", metavar="FILE", help="commit the faults of this file (YAML) on purpose")
    serve.add_argument(
        "--fault", metavar="RULE", action="append", default=[],
        help="commit a fault, as 'Produce topic=t nth=3 -> error=NOT_LEADER_OR_FOLLOWER'; may be repeated",
    )  # fmt: skip
    serve.add_argument("--fault-seed", metavar="N", help="repeat a run with faults by chance (default: 0)")
    serve.add_argument(
        "--virtual-clock",
        action="store_true",
        help="let the control API advance, stop and drive the broker's clock",
    )
    serve.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], help="set one setting; may be repeated"
    )
    serve.add_argument(
        "--log-level", default="warning", choices=("debug", "info", "warning", "error"),
        help="how much to log on standard error (default: %(default)s)",
    )  # fmt: skip
    return serve


def _workers(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= 64:
        raise argparse.ArgumentTypeError(f"{text}: a number from 1 to 64 expected")
    return int(text)
