"""The `barnabas zookeeper` command: one server, until it is stopped."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import trio

from barnabas.ending import DONE, FAILED, end_signals
from barnabas.environment import log_lines, output
from barnabas.errors import leaves
from barnabas.security.jaas import JaasError, parse_jaas_section
from barnabas.tools.zkserver.server import Server
from barnabas.tools.zkserver.storage import StorageError

READY = "zookeeper.connect="
SECTION = "Server"
DIGEST_MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"


class SetupError(Exception):
    """An option that cannot be used; the text is for the user of the command."""


def main(arguments: Sequence[str]) -> int:
    """Run `barnabas zookeeper`; returns the exit code."""
    options = parser().parse_args(arguments)
    log_lines.begin(options.log_level)
    code = FAILED
    try:
        trio.run(_run, options, restrict_keyboard_interrupt_to_checkpoints=True)
        code = DONE
    except* (StorageError, SetupError, OSError) as group:
        for error in leaves(group):
            text = output.explain(error) if isinstance(error, OSError) else None
            print(f"barnabas zookeeper: {text or error}", file=sys.stderr)
    return code


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command's options."""
    parser = argparse.ArgumentParser(
        prog="barnabas zookeeper",
        description="Start a ZooKeeper server of one node, for clusters on one machine. It has no quorum: where a "
        "cluster must outlive its machine, use Apache ZooKeeper on three.",
    )
    parser.add_argument(
        "--listen", type=_address, default=("localhost", 2181), metavar="HOST:PORT",
        help="where to listen (default: localhost:2181); port 0 for a free one",
    )  # fmt: skip
    parser.add_argument(
        "--data", metavar="DIR", help="where to keep znodes (default: ~/.local/state/barnabas-zookeeper)"
    )
    parser.add_argument(
        "--jaas", metavar="FILE",
        help=f"a JAAS file as Apache ZooKeeper has it: the users of its section Server ({DIGEST_MODULE} required "
        'user_NAME="PASSWORD";) may log in by SASL',
    )  # fmt: skip
    parser.add_argument(
        "--log-level", default="warning", choices=("debug", "info", "warning", "error"),
        help="how much to log on standard error (default: %(default)s)",
    )  # fmt: skip
    return parser


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"{text}: HOST:PORT expected")
    return host.strip("[]"), int(port)


def directory_of(text: str | None) -> Path:
    """Return the directory of the znodes: that of the option, else one in the user's state directory."""
    if text:
        return Path(text).absolute()
    base = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return Path(base, "barnabas-zookeeper")


def users_of(path: str | None) -> dict[str, str] | None:
    """Return the passwords by user of a JAAS file's section Server; None without a file. Raises SetupError."""
    if path is None:
        return None
    try:
        entry = parse_jaas_section(Path(path).read_text(encoding="utf-8"), SECTION)
    except (OSError, UnicodeDecodeError, JaasError) as error:
        raise SetupError(f"--jaas {path}: {error}") from error
    if entry.module_name != DIGEST_MODULE.rpartition(".")[2]:
        raise SetupError(
            f"--jaas {path}: {DIGEST_MODULE} is expected in the section {SECTION}; there is no other login here"
        )
    return entry.users()


async def _run(options: argparse.Namespace) -> None:
    host, port = options.listen
    users = users_of(options.jaas)
    directory = directory_of(options.data)
    with trio.open_signal_receiver(*end_signals()) as signals:
        server = Server(directory, users=users)
        bound = await server.open(host, port)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(server.run)
                print(f"barnabas zookeeper is ready: {READY}{host}:{bound} data={directory}", flush=True)
                async for _ in signals:
                    break
                nursery.cancel_scope.cancel()
        finally:
            with trio.CancelScope(shield=True):
                await server.close()
