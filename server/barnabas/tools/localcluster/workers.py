"""`barnabas serve --workers N`: several brokers on the cores of one machine, which clients see as one cluster.

The rule: this process starts the workers, restarts a worker that has ended, and does nothing else. Each worker has its own
data, port and number, which stay.
"""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from barnabas.broker.serve_options import WORKER_DIRECTORY
from barnabas.config import broker as settings
from barnabas.config.loading import BrokerConfig
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
from barnabas.tools.localcluster.quorum import OWN_SETTINGS, Node

if TYPE_CHECKING:
    from collections.abc import Iterable

MakeChild = Callable[[str, Sequence[str], Path | None], Child]

AGAIN_SECONDS = 0.2
"""Seconds from its end until a worker is started again; doubled each time that it ends soon, up to the maximum."""
AGAIN_SECONDS_MAX = 10.0
STEADY_SECONDS = 30.0
"""Lifetime after which a worker that ends is restarted immediately."""
ZOOKEEPER_DIRECTORY = "metadata"
"""The name of ZooKeeper's directory in the first log dir of workers that have begun on it."""


@dataclass(slots=True)
class _Worker:
    """One worker: its number in the cluster, and its present process."""

    broker_id: int
    child: Child
    address: str = ""
    serves: bool = False


class Workers(ProcessGroup):
    """All workers. Lifecycle: `check`, `run`."""

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
        """Begin to keep the workers' common metadata; `ports` are those of all workers. Raises ChildError."""

    @abstractmethod
    def prepare(self, node: Node, shared: Mapping[str, str], file: Path) -> None:
        """Write a worker's file of settings, which are those of all and its own. Raises ChildError."""

    def has_ended(self, broker_id: int) -> None:
        """Note that the process of a worker has ended."""

    def say_stopping(self, name: str, *, at_once: bool) -> None:
        """Print nothing, like a single broker."""

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
        """Stop workers at the same time: no other could take over their leaders."""
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


def warn(text: str) -> None:
    """Tell the operator, on standard error."""
    print(f"barnabas: {text}", file=sys.stderr, flush=True)


def ports_used(listeners: Sequence[str]) -> list[int]:
    """Return the ports of listeners, but 0."""
    ports = [int(text.rpartition(":")[2]) for text in listeners]
    return [port for port in ports if port]


def moved(address: str, step: int, taken: Collection[int] = ()) -> str:
    """Return an address with a port that is higher by `step`; for port 0 a free one that is not in `taken`."""
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) + step if int(port) else free_port(but=taken)}"


def _name(index: int) -> str:
    """Return the name of a worker's directory in each log dir."""
    return f"{WORKER_DIRECTORY}{index + 1}"
