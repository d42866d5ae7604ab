"""The `barnabas cluster` command: options in, several processes out, and what happens to them in words.

The rule: what is told on standard output is for people, one line for each thing that happens; programs read the one
line with `bootstrap.servers=`, which comes when every broker serves.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import trio

from barnabas.broker.serve_options import SET_OPTION, collect_shared
from barnabas.config.loading import BrokerConfig, explain_unknown
from barnabas.config.setting import SettingError
from barnabas.config.without_effect import judge
from barnabas.ending import FAILED, USAGE_ERROR
from barnabas.tools.localcluster.children import Child, ChildError, ending
from barnabas.tools.localcluster.defaults import settings_of
from barnabas.tools.localcluster.features import switch_on
from barnabas.tools.localcluster.jars import MAVEN_CENTRAL, Program, find
from barnabas.tools.localcluster.process_group import ProcessGroup
from barnabas.tools.localcluster.zookeeper import ApacheZooKeeper, OwnZooKeeper, is_free

READY = "bootstrap.servers="
READY_SECONDS = 120.0
STOP_SECONDS = 30.0


def main(arguments: Sequence[str]) -> int:
    """Run `barnabas cluster`; returns the exit code."""
    options = parser().parse_args(arguments)
    try:
        check_settings(options.config, options.set)
    except SettingError as error:
        print(f"barnabas cluster: {error}", file=sys.stderr)
        return USAGE_ERROR
    try:
        with _directory(options) as directory:
            return trio.run(Cluster(options, directory).run, restrict_keyboard_interrupt_to_checkpoints=True)
    except ChildError as error:
        print(f"barnabas cluster: {error}", file=sys.stderr)
    return FAILED


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command's options."""
    parser = argparse.ArgumentParser(
        prog="barnabas cluster", description="Start a cluster of brokers with its ZooKeeper on this machine."
    )
    parser.add_argument("--brokers", type=_count, default=3, metavar="N", help="how many (default: 3)")
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--dir", metavar="DIR", help="where to keep everything (default: ~/.local/state/barnabas-cluster)"
    )
    where.add_argument(
        "--ephemeral", action="store_true", help="keep everything in memory, and remove it at the end"
    )
    parser.add_argument(
        "--port", type=_port, default=9092, metavar="P",
        help="port of the first broker, the next ones count up (default: 9092); 0 for any free ones",
    )  # fmt: skip
    parser.add_argument("--racks", default="", metavar="A,B,...", help="racks of the brokers, in turn")
    parser.add_argument("--config", metavar="FILE", help="a server.properties file for all brokers")
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="set one setting of all brokers; may be repeated",
    )
    parser.add_argument(
        "--log-level", default="warning", choices=("debug", "info", "warning", "error"),
        help="how much brokers write to their logs (default: %(default)s)",
    )  # fmt: skip
    zookeeper = parser.add_argument_group(
        "ZooKeeper, which runs in this process unless another one is wanted"
    )
    zookeeper.add_argument("--zookeeper", metavar="HOST:PORT,.../CHROOT", help="use one that runs already")
    zookeeper.add_argument(
        "--apache-zookeeper",
        action="store_true",
        help="start Apache ZooKeeper, which is found on this machine",
    )
    zookeeper.add_argument(
        "--zookeeper-jars", metavar="DIR", help="start Apache ZooKeeper from the jars in this directory"
    )
    zookeeper.add_argument(
        "--fetch",
        action="store_true",
        help="fetch Apache ZooKeeper from Maven Central if it is not here, and start it",
    )
    zookeeper.add_argument(
        "--maven", default=MAVEN_CENTRAL, metavar="URL", help="the Maven repository (default: %(default)s)"
    )
    return parser


def _count(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= 100:
        raise argparse.ArgumentTypeError(f"{text}: a number from 1 to 100 expected")
    return int(text)


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text}: a port from 0 to 65535 expected")
    return int(text)


_OWN = ("broker.id", "node.id", "log.dirs", "log.dir", "listeners", "zookeeper.connect")
"""Settings that each broker has its own value of, or that all get from the command."""


def check_settings(file: str | None, pairs: Sequence[str]) -> None:
    """Raise SettingError unless every broker can have these settings; say which of a file have no effect."""
    collected = collect_shared(file, pairs)
    own = [name for name in _OWN if name in collected.settings]
    for name in own:
        if collected.origins[name] == SET_OPTION:
            raise SettingError(
                f"--set {name}: each broker has its own; --dir, --port and --zookeeper say where they are"
            )
    if own:
        names = ", ".join(f"{name} ({collected.origins[name]})" for name in own)
        print(f"barnabas cluster: each broker has its own value of these settings: {names}", file=sys.stderr)
    shared = {name: text for name, text in collected.settings.items() if name not in own}
    config = BrokerConfig({**shared, "zookeeper.connect": "localhost:2181"}, collected.origins)
    for name in config.unknown:
        if collected.origins[name] == SET_OPTION:
            raise SettingError(f"{SET_OPTION}: {explain_unknown(name)}")
    refusals = judge(config, collected.origins).refusals
    if refusals:
        raise SettingError(refusals[0])


@contextmanager
def _directory(options: argparse.Namespace) -> Iterator[Path]:
    if options.ephemeral:
        from barnabas.environment.ephemeral import ephemeral_directory

        with ephemeral_directory() as path:
            yield Path(path)
        return
    base = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    directory = Path(options.dir or os.path.join(base, "barnabas-cluster")).absolute()
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ChildError(f"{directory}: {error.strerror}") from error
    yield directory


def say(text: str) -> None:
    """Tell what has happened."""
    print(text, flush=True)


class Parts(NamedTuple):
    """Parts of a cluster, and `say`, which tells what happens."""

    child: Callable[[str, Sequence[str], Path], Child] = Child
    own_zookeeper: Callable[[Path], OwnZooKeeper] = OwnZooKeeper
    apache_zookeeper: type[ApacheZooKeeper] = ApacheZooKeeper
    find: Callable[..., Program] = find
    is_free: Callable[[int], bool] = is_free
    switch_on: Callable[[str], Awaitable[str]] = switch_on
    say: Callable[[str], None] = say


class Cluster(ProcessGroup):
    """The processes of one cluster."""

    def __init__(self, options: argparse.Namespace, directory: Path, parts: Parts | None = None) -> None:
        super().__init__()
        self._parts = parts or Parts()
        self._options = options
        self._directory = directory
        self._own_zookeeper: OwnZooKeeper | None = None
        self._zookeeper: ApacheZooKeeper | None = None
        self._brokers: dict[int, Child] = {}

    def say_stopping(self, name: str, *, at_once: bool) -> None:
        """Tell that a signal has come."""
        self._parts.say("stopping at once" if at_once else f"stopping on {name}")

    def children(self) -> list[Child]:
        """Return brokers and ZooKeeper."""
        return [*self._brokers.values(), *([self._zookeeper.child] if self._zookeeper else [])]

    # --- start ----------------------------------------------------------------------------------------------

    async def start(self, nursery: trio.Nursery) -> None:
        """Start ZooKeeper and then all brokers at the same time. Raises ChildError."""
        options = self._options
        zookeeper = options.zookeeper
        is_new = zookeeper is None
        if zookeeper is None:
            directory = self._directory / "zookeeper"
            wants_apache = options.apache_zookeeper or options.zookeeper_jars or options.fetch
            if wants_apache or self._parts.apache_zookeeper.was_used_in(directory):
                zookeeper = await self._start_apache(nursery, directory)
            else:
                zookeeper = await self._start_own(nursery, directory)
        addresses: dict[int, str] = {}
        async with trio.open_nursery() as starting:
            for broker_id in range(1, options.brokers + 1):
                starting.start_soon(self._start_broker, broker_id, zookeeper, addresses, nursery)
        servers = ",".join(addresses[broker_id] for broker_id in sorted(addresses))
        if is_new and (problem := await self._parts.switch_on(servers)):
            self._parts.say(f"groups of KIP-848, share groups and streams groups are not served: {problem}")
        self._parts.say(
            f"barnabas cluster is ready: {READY}{servers} zookeeper={zookeeper} dir={self._directory}"
        )
        self._parts.say("Ctrl-C stops it.")

    async def _start_own(self, nursery: trio.Nursery, directory: Path) -> str:
        server = self._parts.own_zookeeper(directory)
        await server.start()
        self._own_zookeeper = server
        nursery.start_soon(server.run)
        self._parts.say(f"ZooKeeper is ready: {server.address}, in this process")
        return server.address

    async def _start_apache(self, nursery: trio.Nursery, directory: Path) -> str:
        options = self._options
        program = await trio.to_thread.run_sync(
            lambda: self._parts.find(
                may_fetch=options.fetch,
                jars=options.zookeeper_jars,
                repository=options.maven,
                say=self._parts.say,
            )
        )
        self._parts.say(f"starting ZooKeeper: {program.origin}")
        server = self._parts.apache_zookeeper(program, directory)
        server.start()
        self._zookeeper = server
        nursery.start_soon(self._watch_zookeeper, server)
        await server.ready()
        self._parts.say(
            f"ZooKeeper is ready: {server.address} pid={server.child.pid} log={server.child.output}"
        )
        return server.address

    async def _start_broker(
        self, broker_id: int, zookeeper: str, addresses: dict[int, str], nursery: trio.Nursery
    ) -> None:
        child = self._parts.child(
            f"broker {broker_id}",
            self._command(broker_id, zookeeper),
            self._directory / f"broker-{broker_id}.log",
        )
        child.start(reads_output=True)
        self._brokers[broker_id] = child
        nursery.start_soon(self._watch_broker, child)
        line = await child.first_line(READY_SECONDS)
        if READY not in line:
            raise ChildError(f"{child.name} does not start: {line}{child.last_words()}")
        addresses[broker_id] = line.partition(READY)[2].split()[0]
        self._address_file(broker_id).write_text(f"{addresses[broker_id]}\n")
        listen = f"localhost:{addresses[broker_id].rpartition(':')[2]}"  # where it is started again
        child.command = tuple(listen if word == "localhost:0" else word for word in child.command)
        self._parts.say(
            f"broker {broker_id} is ready: {addresses[broker_id]} pid={child.pid} log={child.output}"
        )

    def _command(self, broker_id: int, zookeeper: str) -> list[str]:
        options = self._options
        port = options.port + broker_id - 1 if options.port else self._port_of_last_start(broker_id)
        command = [sys.executable, "-m", "barnabas", "serve", "--zookeeper", zookeeper]
        command += ["--broker-id", str(broker_id), "--listen", f"localhost:{port}"]
        command += ["--data", str(self._directory / f"broker-{broker_id}"), "--log-level", options.log_level]
        racks = [rack for rack in options.racks.split(",") if rack]
        if racks:
            command += ["--rack", racks[(broker_id - 1) % len(racks)]]
        if options.config:
            command += ["--config", options.config]
        else:
            for name, value in settings_of(options.brokers).items():
                command += ["--set", f"{name}={value}"]
        for pair in options.set:
            command += ["--set", pair]
        return command

    def _port_of_last_start(self, broker_id: int) -> int:
        """The port of a broker's last start here, if it is free, so that clients find it again; else 0."""
        try:
            port = int(self._address_file(broker_id).read_text().rpartition(":")[2])
        except (OSError, ValueError):
            return 0
        return port if self._parts.is_free(port) else 0

    def _address_file(self, broker_id: int) -> Path:
        return self._directory / f"broker-{broker_id}.address"

    # --- watching -------------------------------------------------------------------------------------------

    async def _watch_zookeeper(self, server: ApacheZooKeeper) -> None:
        code = await server.child.wait()
        if not self.is_stopping:
            self._parts.say(f"ZooKeeper has ended ({ending(code)}); the brokers are stopped")
            self.fail()

    async def _watch_broker(self, child: Child) -> None:
        code = await child.wait()
        if self.is_stopping:
            return
        remaining = sum(not other.ended.is_set() for other in self._brokers.values())
        self._parts.say(
            f"{child.name} has ended ({ending(code)}), {remaining} of {len(self._brokers)} are left; "
            f"its log is {child.output}; this starts it again:\n  {shlex.join(child.command)}"
        )
        if not remaining:
            self.fail()

    # --- stop -----------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Stop the brokers, last one first, each when the one before it has handed over what it led; then ZooKeeper."""
        for child in reversed(self._brokers.values()):
            await self._stop_child(child)
        if self._zookeeper is not None:
            await self._stop_child(self._zookeeper.child)
        if self._own_zookeeper is not None:
            await self._own_zookeeper.close()

    async def _stop_child(self, child: Child) -> None:
        if child.ended.is_set():
            return
        in_time = await child.stop(STOP_SECONDS)
        self._parts.say(
            f"{child.name} has stopped"
            if in_time
            else f"{child.name} was killed: it did not stop in {STOP_SECONDS:.0f} s"
        )
        if child.code not in (0, 143, -signal.SIGTERM):  # a Java virtual machine ends with 143 on SIGTERM
            self.has_failed = True
