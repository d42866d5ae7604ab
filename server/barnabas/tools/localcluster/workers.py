"""`barnabas serve --workers N`: several brokers on the cores of one machine, which clients see as one cluster.

The rule: this process starts the workers, starts one again that has ended, and does nothing else. Each worker has data, a
port and a number of its own, which stay; the first one is the controller of their quorum too. Workers that have begun on
ZooKeeper stay there (`workers_on_zookeeper`).
"""

from __future__ import annotations

import secrets
import sys
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio

from barnabas.broker.serve_options import WORKER_DIRECTORY
from barnabas.config import broker as settings
from barnabas.config.authorizer import has_authorizer
from barnabas.config.loading import BrokerConfig
from barnabas.config.setting import SettingError
from barnabas.config.without_effect import judge
from barnabas.ending import FAILED, USAGE_ERROR
from barnabas.log.format.names import META_PROPERTIES
from barnabas.tools.localcluster import quorum
from barnabas.tools.localcluster.children import (
    READY,
    READY_SECONDS,
    STOP_SECONDS,
    Child,
    ChildError,
    ending,
    ready_address,
)
from barnabas.tools.localcluster.defaults import settings_of
from barnabas.tools.localcluster.ports import free_port
from barnabas.tools.localcluster.process_group import ProcessGroup
from barnabas.tools.localcluster.quorum import LISTENER, OWN_SETTINGS, Node, Quorum

if TYPE_CHECKING:
    from collections.abc import Iterable

MakeChild = Callable[[str, Sequence[str], Path | None], Child]

AGAIN_SECONDS = 0.2
"""Seconds from its end until a worker is started again; doubled each time that it ends soon, up to the maximum."""
AGAIN_SECONDS_MAX = 10.0
STEADY_SECONDS = 30.0
"""A worker that has lived so long is started again at once."""
ZOOKEEPER_DIRECTORY = "metadata"
"""The name of ZooKeeper's directory in the first log dir of workers that have begun on it."""


def run(config: BrokerConfig, shared_settings: Mapping[str, str], count: int, log_level: str) -> int:
    """Run `count` workers with these settings until a signal; returns the exit code."""
    try:
        workers = workers_of(config, shared_settings, count, log_level)
    except (SettingError, ChildError) as error:
        print(f"barnabas: {error}", file=sys.stderr)
        return USAGE_ERROR if isinstance(error, SettingError) else FAILED
    return exit_code(workers)


def workers_of(
    config: BrokerConfig, shared_settings: Mapping[str, str], count: int, log_level: str
) -> Workers:
    """Return workers of the kind that their directory was made for. Raises SettingError, ChildError."""
    directory = Path(config.log_dirs[0])
    if quorum.read(directory) is None:
        if (directory / ZOOKEEPER_DIRECTORY).exists():
            from barnabas.tools.localcluster.workers_on_zookeeper import ZooKeeperWorkers

            warn(f"the workers in {directory} are on ZooKeeper since their first start, and start so again")
            return ZooKeeperWorkers(config, shared_settings, count, log_level)
        for path in config.log_dirs:
            if any(Path(path).glob(f"{WORKER_DIRECTORY}*/{META_PROPERTIES}")):
                raise SettingError(
                    f"{path} holds the data of workers, and {directory / quorum.FILE}, the file of their cluster, is "
                    "missing: put it back, or name the log dirs in the order of their first start"
                )
    return QuorumWorkers(config, shared_settings, count, log_level)


def exit_code(workers: Workers) -> int:
    """Run workers until a signal; returns the exit code."""
    try:
        workers.check()
        return trio.run(workers.run, restrict_keyboard_interrupt_to_checkpoints=True)
    except (SettingError, ChildError) as error:
        print(f"barnabas: {error}", file=sys.stderr)
        return USAGE_ERROR if isinstance(error, SettingError) else FAILED


@dataclass(slots=True)
class _Worker:
    """One worker: its number in the cluster, and the process that it is now."""

    broker_id: int
    child: Child
    address: str = ""
    serves: bool = False


class Workers(ProcessGroup):
    """All of them. Lifecycle: `check`, `run`."""

    def __init__(
        self,
        config: BrokerConfig,
        shared_settings: Mapping[str, str],
        count: int,
        log_level: str,
        *,
        make_child: MakeChild = Child,
    ) -> None:
        """`make_child` stands for processes in tests."""
        super().__init__()
        self.config = config
        self.directory = Path(config.log_dirs[0])
        self.first_id: int = config.get(settings.NODE_ID) if config.is_node_id_set else 1
        self.workers: list[_Worker] = []
        self._make_child = make_child
        self._shared_settings = {
            # Copies on the same machine would cost as much as they protect: a worker that ends is back in a second.
            **settings_of(1),
            **{name: text for name, text in shared_settings.items() if name not in OWN_SETTINGS},
        }
        self._count = count
        self._log_level = log_level

    @abstractmethod
    def check(self) -> None:
        """Raise SettingError, ChildError unless the workers can be started so."""

    @abstractmethod
    async def begin(self, ports: Collection[int], nursery: trio.Nursery) -> None:
        """Begin to keep what the workers agree on; `ports` are those of all workers. Raises ChildError."""

    @abstractmethod
    def prepare(self, node: Node, shared: Mapping[str, str], file: Path) -> None:
        """Write a worker's file of settings, which are those of all and its own. Raises ChildError."""

    def has_ended(self, broker_id: int) -> None:
        """Be told that the process of a worker has ended."""

    def say_stopping(self, name: str, *, at_once: bool) -> None:
        """Say nothing, as one broker does."""

    def children(self) -> list[Child]:
        """Return the workers."""
        return [worker.child for worker in self.workers]

    # --- start ----------------------------------------------------------------------------------------------

    async def start(self, nursery: trio.Nursery) -> None:
        """Start all workers at the same time. Raises ChildError."""
        nodes = self._nodes()
        await self.begin([port for node in nodes for port in ports_used(node.listeners)], nursery)
        async with trio.open_nursery() as starting:
            for index, node in enumerate(nodes):
                worker = self._worker(index, node)
                self.workers.append(worker)
                starting.start_soon(self._start_worker, worker, nursery)
        servers = ",".join(worker.address for worker in self.workers)
        print(
            f"barnabas is ready: {READY}{servers} workers={self._count} data={','.join(self.config.log_dirs)}",
            flush=True,
        )

    def _nodes(self) -> list[Node]:
        """Return the place of each worker: its number, directories and ports count up."""
        ports = ports_used(self.config.listeners())
        width = max(ports) - min(ports) + 1 if ports else 0
        taken = [port + index * width for index in range(self._count) for port in ports]
        nodes = []
        for index in range(self._count):
            listeners = tuple(moved(text, index * width, taken) for text in self.config.listeners())
            taken += ports_used(listeners)
            log_dirs = tuple(str(Path(path, _name(index))) for path in self.config.log_dirs)
            nodes.append(Node(self.first_id + index, log_dirs, listeners))
        return nodes

    def _worker(self, index: int, node: Node) -> _Worker:
        shared = dict(self._shared_settings)
        advertised = self.config.get(settings.ADVERTISED_LISTENERS)
        if advertised:
            ports = ports_used(self.config.listeners())
            step = index * (max(ports) - min(ports) + 1) if ports else 0
            shared["advertised.listeners"] = ",".join(moved(text, step) for text in advertised)
        metrics = self.config.get(settings.METRICS_LISTENER)
        if metrics:
            shared["metrics.listener"] = moved(metrics, index)
        file = self.directory / f"{_name(index)}.properties"
        self.prepare(node, shared, file)
        command = quorum.command_of(file, self._log_level)
        return _Worker(node.node_id, self._make_child(f"worker {index + 1}", command, None))

    async def _start_worker(self, worker: _Worker, nursery: trio.Nursery) -> None:
        child = worker.child
        child.start(reads_output=True)
        nursery.start_soon(self._watch, worker, nursery)
        worker.address = await ready_address(child)
        worker.serves = True

    # --- watching -------------------------------------------------------------------------------------------

    async def _watch(self, worker: _Worker, nursery: trio.Nursery) -> None:
        """Start a worker again each time that it ends, until all are to stop, or none stays up."""
        pause, began = AGAIN_SECONDS, trio.current_time()
        while True:
            code = await worker.child.wait()
            worker.serves = False
            if self.is_stopping or not worker.address:
                return
            if trio.current_time() - began > STEADY_SECONDS:
                pause = AGAIN_SECONDS
            name = worker.child.name
            if pause >= AGAIN_SECONDS_MAX and not any(other.serves for other in self.workers):
                warn(f"{name} has ended ({ending(code)}), and no worker stays up: stopping")
                self.fail()
                return
            warn(f"{name} has ended ({ending(code)}); it is started again in {pause:g} s")
            self.has_ended(worker.broker_id)
            await trio.sleep(pause)
            pause, began = min(pause * 2, AGAIN_SECONDS_MAX), trio.current_time()
            worker.child = self._make_child(name, worker.child.command, None)
            worker.child.start(reads_output=True)
            nursery.start_soon(self._say_ready_again, worker)

    async def _say_ready_again(self, worker: _Worker) -> None:
        child = worker.child
        try:
            await child.first_line(READY_SECONDS)
        except ChildError as error:
            if not self.is_stopping:
                warn(str(error))
        else:
            worker.serves = not child.ended.is_set()
            warn(f"{child.name} is ready again")

    # --- stop -----------------------------------------------------------------------------------------------

    async def stop_workers(self, workers: Iterable[_Worker]) -> None:
        """Stop workers at the same time: no other could take over what they lead."""
        async with trio.open_nursery() as nursery:
            for worker in workers:
                nursery.start_soon(self._stop_worker, worker.child)

    async def _stop_worker(self, child: Child) -> None:
        if not child.has_started:
            return
        if not await child.stop(STOP_SECONDS):
            warn(f"{child.name} was killed: it did not stop in {STOP_SECONDS:.0f} s")
        if child.code != 0:
            self.has_failed = True


class QuorumWorkers(Workers):
    """Workers of which the first is the controller.

    The controller's listener is on loopback and has a login that is new at each start: beside an open one, the authorizer
    and the logins of the workers' own listeners would be of no use.
    """

    def __init__(self, *arguments: Any, **parts: Any) -> None:
        super().__init__(*arguments, **parts)
        self._quorum = Quorum("", {self.first_id: 1})
        self._user = f"workers{secrets.token_hex(16)}"
        self._password = secrets.token_hex(16)

    def check(self) -> None:
        """Raise SettingError, ChildError unless the workers can be started so."""
        if self.config.get(settings.KAFKA_VERSION):
            raise SettingError(
                f"--workers: workers are brokers of the newest release; {settings.KAFKA_VERSION.name} (--as-version) is "
                "for a broker that is alone"
            )
        listeners = self.config.listeners()
        if any(text.upper().startswith(f"{LISTENER}://") for text in listeners):
            raise SettingError(
                f"--workers: {LISTENER} is the listener of their controller; give the one for clients another name"
            )
        kept = quorum.read(self.directory)
        if kept is not None and self.first_id not in kept.ports:
            (first_id,) = kept.ports
            raise SettingError(
                f"--workers: the number of the first worker in {self.directory} is {first_id} since its first start, and "
                f"{settings.BROKER_ID.name} is {self.first_id}"
            )
        node = Node(self.first_id, tuple(self.config.log_dirs), listeners)
        own = self._settings(node, self._shared_settings)
        refusals = judge(BrokerConfig(own), dict.fromkeys(own, "--workers")).refusals
        if refusals:
            raise SettingError(refusals[0])

    async def begin(self, ports: Collection[int], _: trio.Nursery) -> None:
        """Choose the controller, at the first start, and its port. Raises ChildError."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self._quorum = quorum.prepare(self.directory, [self.first_id], ports)

    def prepare(self, node: Node, shared: Mapping[str, str], file: Path) -> None:
        """Write a worker's file of settings, and format its log dirs before its first start. Raises ChildError."""
        quorum.format_and_write(self._settings(node, shared), self._quorum.cluster_id, file)

    def _settings(self, node: Node, shared: Mapping[str, str]) -> dict[str, str]:
        name = settings.LISTENER_SECURITY_PROTOCOL_MAP.name
        protocols = ",".join(
            f"{listener}:{protocol}"
            for listener, protocol in self.config.listener_security_protocols().items()
        )
        login = {
            name: f"{protocols},{LISTENER}:SASL_PLAINTEXT",
            settings.SASL_MECHANISM_CONTROLLER_PROTOCOL.name: "PLAIN",
            f"listener.name.{LISTENER.lower()}.sasl.enabled.mechanisms": "PLAIN",
            f"listener.name.{LISTENER.lower()}.plain.sasl.jaas.config": (
                "org.apache.kafka.common.security.plain.PlainLoginModule required "
                f'username="{self._user}" password="{self._password}" user_{self._user}="{self._password}";'
            ),
        }
        if has_authorizer(self.config):
            users = self.config.get(settings.SUPER_USERS)
            login[settings.SUPER_USERS.name] = f"{users};User:{self._user}" if users else f"User:{self._user}"
        return quorum.settings_of_node(self._quorum, node, {**shared, **login})

    async def stop(self) -> None:
        """Stop the worker that is the controller after the others, which tell it that they go."""
        await self.stop_workers(
            worker for worker in self.workers if worker.broker_id not in self._quorum.ports
        )
        await self.stop_workers(worker for worker in self.workers if worker.broker_id in self._quorum.ports)


def warn(text: str) -> None:
    """Tell the operator, on standard error."""
    print(f"barnabas: {text}", file=sys.stderr, flush=True)


def ports_used(listeners: Sequence[str]) -> list[int]:
    """Return the ports of listeners, but 0."""
    ports = [int(text.rpartition(":")[2]) for text in listeners]
    return [port for port in ports if port]


def moved(address: str, step: int, taken: Collection[int] = ()) -> str:
    """Return an address with a port that is higher by `step`; where any will do, a free one that is none of `taken`."""
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) + step if int(port) else free_port(but=taken)}"


def _name(index: int) -> str:
    """Return the name of a worker's directory in each log dir."""
    return f"{WORKER_DIRECTORY}{index + 1}"
