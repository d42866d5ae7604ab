"""The `barnabas` command.

The rule: a wrong option or setting is explained in one line, and so is a start that fails; exit codes are those of
`ending`. What only one sub-command needs is imported by that sub-command.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from barnabas import __version__
from barnabas.commands import COMMANDS
from barnabas.ending import INTERRUPTED, SERVERS, UNREAD, USAGE_ERROR, failed
from barnabas.environment.lazy import OPENSSL_USERS, import_when_used

if TYPE_CHECKING:
    from barnabas.broker.app import Broker, Companion
    from barnabas.broker.process import Companions
    from barnabas.config.loading import BrokerConfig
    from barnabas.serving.seams import Watcher
    from barnabas.tools.control.host import Host
    from barnabas.tools.demo.security import Demo

# Sub-commands that are programs of their own: module with `main(arguments) -> exit code`, and what they do.
TOOLS = {
    "log": ("barnabas.tools.logtool.command", "show, check and repair log dirs"),
    "storage": ("barnabas.tools.logtool.storage_command", "prepare log dirs before the first start"),
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
COMPLETE = "_BARNABAS_COMPLETE"
"""Environment variable by which a shell asks for completions (click)."""


class Parser(argparse.ArgumentParser):
    """A parser that fails when its help cannot be written; argparse's own ignores that."""

    def _print_message(self, message: str, file: Any = None) -> None:
        if message:
            (file or sys.stderr).write(message)


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
        parser: argparse.ArgumentParser = _add_serve(argparse.ArgumentParser().add_subparsers())
        return parser

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
    """Open those that are closed, or the first files and sockets would take their numbers: writing output fails then."""
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
    if arguments and arguments[0] in TOOLS:
        tool = import_module(TOOLS[arguments[0]][0])
        return int(tool.main(arguments[1:]))
    if arguments and arguments[0] in COMMANDS:
        from barnabas.commands.program import run

        return run(arguments)
    if arguments and not arguments[0].startswith("-") and arguments[0] != "serve":
        return _refuse(arguments[0])
    parser = Parser(prog="barnabas", description="A broker that speaks Apache Kafka's wire protocol.")
    parser.add_argument("--version", action="version", version=f"barnabas {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_serve(commands)
    if not arguments or arguments[0] != "serve":  # each parser of a command takes time to make
        _add_tools(commands)
    if not arguments:
        parser.print_help(sys.stderr)
        return USAGE_ERROR
    options = parser.parse_args(arguments)
    code: int = options.run(options)
    return code


def _refuse(name: str) -> int:
    """Say that there is no command of this name, and which ones are like it; returns the exit code."""
    from difflib import get_close_matches

    from barnabas.environment.terminal import visible

    similar = get_close_matches(name, ["serve", *TOOLS, *COMMANDS])
    hint = f" Did you mean {' or '.join(map(repr, similar))}?" if similar else ""
    print(f"barnabas: No such command {visible(name)!r}.{hint} Try 'barnabas --help'.", file=sys.stderr)
    return USAGE_ERROR


def _add_serve(commands: Any) -> Any:
    serve = commands.add_parser("serve", help=SERVE, description="Start a broker.")
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
        "defaults, and the limits of its settings (default: all of them)",
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
    serve.set_defaults(run=_serve)
    return serve


def _workers(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= 64:
        raise argparse.ArgumentTypeError(f"{text}: a number from 1 to 64 expected")
    return int(text)


def _add_tools(commands: Any) -> None:
    for name, (_, text) in (TOOLS | COMMANDS).items():
        commands.add_parser(name, help=text, add_help=False)


def _serve(options: argparse.Namespace) -> int:
    gc.disable()  # what a start makes stays, so looking for garbage in it is in vain; `run` switches it on again
    import_when_used(*OPENSSL_USERS)
    from barnabas.broker.serve_options import SET_OPTION, collect, has_metadata_log
    from barnabas.config.loading import BrokerConfig, explain_unknown
    from barnabas.config.setting import SettingError
    from barnabas.config.without_effect import judge
    from barnabas.environment import log_lines

    log_lines.begin(options.log_level)
    try:
        demo = _demo(options) if options.demo_security else None
        collected = collect(options, demo.settings if demo is not None else None)
        config = BrokerConfig(collected.settings, collected.origins)
        config.has_metadata_log = not options.ephemeral and has_metadata_log(config)
    except SettingError as error:
        print(f"barnabas: {error}", file=sys.stderr)
        return USAGE_ERROR
    for name in config.unknown:
        # In a file it may be a plugin's; on the command line it is a slip.
        print(f"barnabas: {collected.origins[name]}: {explain_unknown(name)}", file=sys.stderr)
        if collected.origins[name] == SET_OPTION:
            return USAGE_ERROR
    verdict = judge(config, collected.origins)
    for line in verdict.refusals:
        print(f"barnabas: {line}", file=sys.stderr)
    if verdict.refusals:
        return USAGE_ERROR
    if verdict.ignored:
        names = ", ".join(f"{name} ({collected.origins[name]})" for name in verdict.ignored)
        print(f"barnabas: these settings have no effect here: {names}", file=sys.stderr)

    if demo is not None:
        from barnabas.tools.demo.clients import instructions

        print(
            instructions(demo, _first_address(config, "SASL_SSL"), _first_address(config, "SSL")), flush=True
        )
    if not options.ephemeral:
        return _run_serve(options, config, collected.settings)

    from barnabas.environment.ephemeral import ephemeral_directory

    with ephemeral_directory() as directory:
        in_memory = {**collected.settings, "log.dirs": f"{directory}/data"}
        return _run_serve(options, BrokerConfig(in_memory, collected.origins), in_memory)


def _first_address(config: BrokerConfig, protocol: str) -> str:
    """Return the address of the first listener with a security protocol; empty if there is none."""
    protocols = config.listener_security_protocols()
    for listener in config.listeners():
        name, _, address = listener.partition("://")
        if protocols.get(name) == protocol:
            return address
    return ""


def _demo(options: argparse.Namespace) -> Demo:
    """Prepare a demonstration of security. Raises SettingError."""
    from pathlib import Path

    from barnabas.config.setting import SettingError
    from barnabas.errors import StorageError
    from barnabas.tools.demo.security import prepare

    for name in ("config", "zookeeper", "listen"):
        if getattr(options, name):
            raise SettingError(f"--{name} and --demo-security do not go together; --set changes one setting")
    if options.workers > 1:
        raise SettingError("--workers and --demo-security do not go together")
    try:
        return prepare(Path(options.demo_security))
    except (OSError, StorageError) as error:
        raise SettingError(f"--demo-security: {error}") from error


def _run_serve(options: argparse.Namespace, config: BrokerConfig, own_settings: Mapping[str, str]) -> int:
    from barnabas.broker.serve_options import check_workers
    from barnabas.config import broker as settings
    from barnabas.config.keeper import is_clustered, is_controller
    from barnabas.config.setting import SettingError

    if is_controller(config):
        return _run_controller(options, config)
    try:
        check_workers(config.log_dirs, options.workers, is_clustered=is_clustered(config))
        prepare = _prepare(options, is_alone=options.workers == 1 and not is_clustered(config))
        watcher = _watcher(options)
    except SettingError as error:
        print(f"barnabas: {error}", file=sys.stderr)
        return USAGE_ERROR
    is_tested = _is_tested(options, config)
    if options.workers > 1:
        registry, http, console = (
            settings.REGISTRY_LISTENER,
            settings.HTTP_LISTENER,
            settings.CONSOLE_LISTENER,
        )
        for is_asked, text in (
            (config.get(registry), "a registry is for one broker: start `barnabas registry` beside them"),
            (is_tested, "faults, the control API and a virtual clock are for one broker"),
            (config.get(http), "the REST API is for one broker: start `barnabas http` beside them"),
            (config.get(console), "start `barnabas console --bootstrap HOST:PORT` beside them"),
        ):
            if is_asked:
                print(f"barnabas: --workers: {text}", file=sys.stderr)
                return USAGE_ERROR
        from barnabas.tools.localcluster.workers_command import run as run_workers

        gc.enable()
        return run_workers(config, own_settings, options.workers, options.log_level)

    if is_tested:
        from barnabas.tools.control.process import run as run_with_control

        return run_with_control(
            config,
            options.fault,
            prepare=prepare,
            watcher=watcher,
            companions_of=partial(_companions, config),
        )

    from barnabas.broker.process import run

    return run(config, prepare, watcher, _companions(config, None))


def _is_tested(options: argparse.Namespace, config: BrokerConfig) -> bool:
    """Say whether faults, the control API or a clock of its own are asked for."""
    from barnabas.config import broker as settings

    files = config.get(settings.CONTROL_LISTENER), config.get(settings.FAULTS_FILE)
    return bool(options.fault) or any(files) or config.get(settings.CLOCK_VIRTUAL)


def _run_controller(options: argparse.Namespace, config: BrokerConfig) -> int:
    from barnabas.broker.controller_process import check_options, run
    from barnabas.config.setting import SettingError

    try:
        check_options(options, config)
    except SettingError as error:
        print(f"barnabas: {error}", file=sys.stderr)
        return USAGE_ERROR
    if _is_tested(options, config):
        from barnabas.tools.control.process import run as run_with_control

        return run_with_control(config, options.fault)
    return run(config)


def _companions(config: BrokerConfig, host: Host | None) -> Companions:
    """Return the servers beside the broker; nothing is imported of those that are not to be."""
    from barnabas.broker.process import Companions
    from barnabas.config import broker as settings

    companions: list[Companion] = []
    registry = None
    if config.get(settings.REGISTRY_LISTENER):
        from barnabas.broker.registry_beside import RegistryBeside

        registry = RegistryBeside(config)
        companions.append(registry)
    if config.get(settings.HTTP_LISTENER):
        from barnabas.broker.rest_beside import RestBeside

        companions.append(RestBeside(config, registry))
    if config.get(settings.CONSOLE_LISTENER):
        from barnabas.console.beside import ConsoleBeside

        companions.append(ConsoleBeside(config, host, registry))
    return Companions(companions)


def _watcher(options: argparse.Namespace) -> Watcher | None:
    """Return what shows requests; None without --tap. Raises SettingError."""
    if options.tap is None:
        return None
    from barnabas.config.setting import SettingError
    from barnabas.tools.tap.broker_tap import BrokerTap

    if options.workers > 1:
        raise SettingError("--tap shows one broker, not --workers")
    try:
        return BrokerTap(options.tap)
    except ValueError as error:
        raise SettingError(f"--tap={options.tap}: {error}") from error


def _prepare(options: argparse.Namespace, *, is_alone: bool) -> Callable[[Broker], Awaitable[None]] | None:
    """Return what puts seeds into the broker before it serves; None without seeds. Raises SettingError."""
    if not options.topic and options.seed_file is None:
        return None
    from barnabas.config.setting import SettingError
    from barnabas.tools.seeding.files import seeds_of_options
    from barnabas.tools.seeding.planting import preparing
    from barnabas.tools.seeding.seeds import SeedError

    if not is_alone:
        raise SettingError("--topic and --seed-file are for a broker that is alone")
    try:
        return preparing(seeds_of_options(options.topic, options.seed_file))
    except SeedError as error:
        raise SettingError(str(error)) from error
