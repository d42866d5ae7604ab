"""`barnabas test-server`: a broker for the tests of programs in any language.

The rule: one line of JSON on standard output has all addresses; a failure to start is one line on
standard error. It ends with the process that started it: when its standard input ends, or its parent process does.
No large module is imported before `main` has switched the garbage collector off: a start creates no garbage.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import signal
import stat
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from barnabas import __version__
from barnabas.ending import DONE, FAILED, USAGE_ERROR, end_signals
from barnabas.environment import log_lines
from barnabas.environment.lazy import OPENSSL_USERS, import_when_used
from barnabas.system.processes import signal_when_parent_ends

if TYPE_CHECKING:
    from trio import CancelScope

    from barnabas.config.loading import BrokerConfig
    from barnabas.testing.bench import Bench
    from barnabas.testing.security import Security
    from barnabas.tools.control.host import Host
    from barnabas.tools.seeding.seeds import Seeds

NODES_MAX = 100
PARENT_ENDED = signal.SIGUSR2
"""Sent when the parent ends; on Linux when the thread that started this process ends, although its process may continue."""


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit code."""
    gc.disable()
    import_when_used(*OPENSSL_USERS)
    try:
        return _main(arguments)
    finally:
        gc.enable()


def _main(arguments: Sequence[str]) -> int:
    from barnabas.config.setting import SettingError
    from barnabas.environment.ephemeral import ephemeral_directory

    options = parser().parse_args(arguments)
    log_lines.begin(options.log_level)
    try:
        seeds = _seeds(options)
        is_cluster = options.brokers > 1 or options.controllers is not None
        if is_cluster and seeds is not None:
            raise SettingError("--topic and --seed-file are for one broker, not for --brokers")
        if is_cluster and options.security:
            raise SettingError("--security is for one broker, not for --brokers")
        with ephemeral_directory() as directory:
            security = _security(options, directory) if options.security else None
            config = _config(options, directory, security)
            if not is_cluster:
                return _run(
                    options, lambda bench, **parts: bench.start(config, seeds=seeds, **parts), security
                )
            return _run(options, lambda bench, **parts: _start_nodes(options, directory, bench, **parts))
    except SettingError as error:
        print(f"barnabas: {error}", file=sys.stderr)
        return USAGE_ERROR


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command's options."""
    from barnabas.testing.security import PROTOCOLS

    options = argparse.ArgumentParser(
        prog="barnabas test-server",
        description="Start a broker for tests, with its data in memory and a control API. Prints one line of JSON when it "
        "is ready: bootstrap_servers, listeners, control_url, pid, version. Ends when its standard input or its parent "
        "process does.",
    )
    options.add_argument(
        "--listen",
        metavar="HOST:PORT",
        default="127.0.0.1:0",
        help="where to listen (default: a free port of 127.0.0.1)",
    )
    options.add_argument(
        "--control",
        metavar="HOST:PORT",
        default="127.0.0.1:0",
        help="where the control API is (default: the same)",
    )
    options.add_argument(
        "--brokers", type=count, default=1, metavar="N",
        help="start a cluster of so many brokers, the first three of which are its controllers too (of two the first)",
    )  # fmt: skip
    options.add_argument(
        "--controllers", type=count, metavar="N", help="keep the controllers in nodes of their own, beside the brokers"
    )  # fmt: skip
    options.add_argument(
        "--control-token", metavar="TOKEN", default="", help="what requests of the control API must bring"
    )
    options.add_argument(
        "--topic", metavar="NAME[:PARTITIONS[:KEY=VALUE,...]]", action="append", default=[],
        help="make a topic; may be repeated",
    )  # fmt: skip
    options.add_argument(
        "--seed-file", metavar="FILE", help="topics, records, groups, ACLs, users, quotas in YAML"
    )
    options.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], help="set one setting; may be repeated"
    )
    options.add_argument(
        "--security", metavar="PROTOCOL", choices=PROTOCOLS,
        help="speak SSL, SASL_PLAINTEXT or SASL_SSL, with certificates and passwords made for it, which the ready line has",
    )  # fmt: skip
    options.add_argument("--as-version", metavar="VERSION", help="be Apache Kafka of this version")
    options.add_argument(
        "--stay",
        action="store_true",
        help="do not end with standard input or the parent process, but at a signal alone",
    )
    options.add_argument(
        "--log-level", default="warning", choices=("debug", "info", "warning", "error"),
        help="how much to log on standard error (default: %(default)s)",
    )  # fmt: skip
    return options


def count(text: str) -> int:
    """Return a number of nodes."""
    if not text.isdecimal() or not 0 < int(text) <= NODES_MAX:
        raise argparse.ArgumentTypeError(f"{text}: a number from 1 to {NODES_MAX} expected")
    return int(text)


def _seeds(options: argparse.Namespace) -> Seeds | None:
    """Return the broker's initial contents, None for an empty broker. Raises SettingError."""
    if not options.topic and options.seed_file is None:
        return None
    from barnabas.config.setting import SettingError
    from barnabas.tools.seeding.files import seeds_of_options
    from barnabas.tools.seeding.seeds import SeedError

    try:
        return seeds_of_options(options.topic, options.seed_file)
    except SeedError as error:
        raise SettingError(str(error)) from error


def _security(options: argparse.Namespace, directory: str) -> Security:
    """Create the settings and credentials of --security. Raises SettingError."""
    from barnabas.config.setting import SettingError
    from barnabas.testing.security import secured

    try:
        return secured(options.security, directory, options.listen)
    except OSError as error:
        raise SettingError(f"--security: {error}") from error


def _config(options: argparse.Namespace, directory: str, security: Security | None) -> BrokerConfig:
    """Return the broker's settings. Raises SettingError."""
    from barnabas.config import releases
    from barnabas.config.loading import explain_unknown, parse_pairs
    from barnabas.config.setting import SettingError
    from barnabas.config.without_effect import judge
    from barnabas.testing.bench import config_of

    settings = parse_pairs(options.set)
    if options.as_version is not None:
        try:
            settings["kafka.version"] = releases.named(options.as_version)
        except ValueError as error:
            raise SettingError(f"--as-version: {error}") from error
    own = security.settings if security is not None else {}
    config = config_of({**own, **settings}, directory, options.listen)
    if config.unknown:
        raise SettingError(f"--set: {explain_unknown(config.unknown[0])}")
    refusals = judge(config, dict.fromkeys(settings, "--set")).refusals
    if refusals:
        raise SettingError(refusals[0])
    return config


async def _start_nodes(options: argparse.Namespace, directory: str, bench: Bench, **parts: Any) -> Host:
    """Start a cluster; returns its first broker."""
    from barnabas.config.loading import parse_pairs
    from barnabas.testing.nodes import start_nodes

    settings = parse_pairs(options.set)
    group = await start_nodes(bench, directory, options.brokers, options.controllers, settings, **parts)
    return group.nodes[1].host


def _run(
    options: argparse.Namespace, start: Callable[..., Awaitable[Host]], security: Security | None = None
) -> int:
    import trio

    from barnabas.broker import interpreter
    from barnabas.broker.startup import StartupError
    from barnabas.errors import StorageError, leaves
    from barnabas.tools.control.clock import VirtualClock

    interpreter.prepare()
    clock = VirtualClock()
    code = FAILED
    try:
        code = trio.run(
            _serve,
            options,
            start,
            clock,
            security,
            clock=clock,
            restrict_keyboard_interrupt_to_checkpoints=True,
        )
    except* (StartupError, StorageError) as group:
        for error in leaves(group):
            print(f"barnabas: {error}", file=sys.stderr)
    return code


async def _serve(
    options: argparse.Namespace,
    start: Callable[..., Awaitable[Host]],
    clock: object,
    security: Security | None,
) -> int:
    import trio

    from barnabas.broker import interpreter
    from barnabas.broker.startup import parse_metrics_address
    from barnabas.testing.bench import open_bench
    from barnabas.tools.control.clock import VirtualClock

    assert isinstance(clock, VirtualClock)
    parent = os.getppid()
    with trio.open_signal_receiver(*end_signals(), PARENT_ENDED) as signals:
        if not options.stay:
            signal_when_parent_ends(PARENT_ENDED)
        async with (
            trio.open_nursery() as waiting,
            open_bench(clock=clock, serves_control=True, token=options.control_token) as bench,
        ):
            address = parse_metrics_address(options.control)
            host = await start(bench, control=address, on_end=waiting.cancel_scope.cancel)
            if not options.stay and _is_pipe(sys.stdin):
                waiting.start_soon(_end_with_input, waiting.cancel_scope)
            interpreter.settle_garbage_collector()
            _say_ready(bench, host, security)
            async for number in signals:
                if number != PARENT_ENDED or os.getppid() != parent:
                    break
            waiting.cancel_scope.cancel()
    return FAILED if host.has_failed else DONE


def _say_ready(bench: Bench, host: Host, security: Security | None) -> None:
    assert host.broker is not None
    listeners = {
        listener.name: f"{listener.addresses[0][0]}:{listener.port}" for listener in host.broker.listeners
    }
    line = {
        "bootstrap_servers": _bootstrap(host),
        "listeners": listeners,
        "control_url": bench.control_urls[host.bootstrap],
        "pid": os.getpid(),
        "version": __version__,
        **({"security": security.as_json()} if security is not None else {}),
    }
    print(json.dumps(line), flush=True)


def _bootstrap(host: Host) -> str:
    """Return the address of a broker, or of all brokers of its cluster."""
    from barnabas.config.keeper import is_clustered

    if not is_clustered(host.config):
        return host.bootstrap
    from barnabas.tools.control.node_group import group_of

    group = group_of(host)
    return host.bootstrap if group is None else group.bootstrap


def _is_pipe(stream: object) -> bool:
    """Return whether standard input is a stream that ends when its writer does."""
    try:
        mode = os.fstat(stream.fileno()).st_mode  # type: ignore[attr-defined]
    except (AttributeError, OSError, ValueError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


async def _end_with_input(scope: CancelScope) -> None:
    """Stop when standard input ends; its contents are ignored."""
    import trio

    descriptor = sys.stdin.fileno()
    os.set_blocking(descriptor, False)
    while True:
        await trio.lowlevel.wait_readable(descriptor)
        try:
            if not os.read(descriptor, 4096):
                break
        except BlockingIOError:
            continue
        except OSError:
            break
    scope.cancel()
