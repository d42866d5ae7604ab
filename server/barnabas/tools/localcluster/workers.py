"""`barnabas serve --workers N`: several brokers on the cores of one machine, which clients see as one cluster.

The rule: this process keeps what the brokers agree on (a ZooKeeper server that only they can use), starts them, starts
one again that has ended, and does nothing else. Each worker has data, a port and a number of its own, which stay.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import trio

from barnabas.broker.serve_options import WORKER_DIRECTORY
from barnabas.config import broker as settings
from barnabas.config.properties import format_properties
from barnabas.ending import FAILED
from barnabas.tools.localcluster.children import (
    READY,
    READY_SECONDS,
    STOP_SECONDS,
    Child,
    ChildError,
    ending,
    ready_address,
)
from barnabas.tools.localcluster.defaults import SESSION_MS, settings_of
from barnabas.tools.localcluster.ports import free_port
from barnabas.tools.localcluster.process_group import ProcessGroup
from barnabas.tools.localcluster.zookeeper import OwnZooKeeper

if TYPE_CHECKING:
    from barnabas.config.loading import BrokerConfig

AGAIN_SECONDS = 0.2
"""Seconds from its end until a worker is started again; doubled each time that it ends soon, up to the maximum."""
AGAIN_SECONDS_MAX = 10.0
STEADY_SECONDS = 30.0
"""A worker that has lived so long is started again at once."""
_ONE_COPY = {**settings_of(1), "zookeeper.session.timeout.ms": str(SESSION_MS)}
"""Copies on the same machine would cost as much as they protect: a worker that ends is back in a second."""


def run(config: BrokerConfig, shared_settings: Mapping[str, str], count: int, log_level: str) -> int:
    """Run `count` workers with these settings until a signal; returns the exit code."""
    workers = Workers(config, shared_settings, count, log_level)
    return exit_code(workers)


def exit_code(workers: Workers) -> int:
    """Run workers until a signal; returns the exit code."""
    try:
        return trio.run(workers.run, restrict_keyboard_interrupt_to_checkpoints=True)
    except ChildError as error:
        print(f"barnabas: {error}", file=sys.stderr)
        return FAILED


@dataclass(slots=True)
class _Worker:
    """One worker: its number in the cluster, and the process that it is now."""

    broker_id: int
    config: Path
    child: Child
    address: str = ""
    serves: bool = False


async def _switch_on(servers: str) -> str:
    from barnabas.tools.localcluster.features import switch_on

    return await switch_on(servers)


class Parts(NamedTuple):
    """Parts of workers."""

    child: Callable[[str, Sequence[str], Path | None], Child] = Child
    zookeeper: Callable[..., OwnZooKeeper] = OwnZooKeeper
    switch_on: Callable[[str], Awaitable[str]] = _switch_on
    """Switches the features of new brokers on; returns why not, or nothing."""


class Workers(ProcessGroup):
    """All of them. Lifecycle: `run`."""

    def __init__(
        self,
        config: BrokerConfig,
        shared_settings: Mapping[str, str],
        count: int,
        log_level: str,
        parts: Parts | None = None,
    ) -> None:
        super().__init__()
        self._parts = parts or Parts()
        self._config = config
        self._shared_settings = shared_settings
        self._count = count
        self._log_level = log_level
        self._directory = Path(config.log_dirs[0])
        self._password = secrets.token_hex(16)
        self._zookeeper = self._parts.zookeeper(
            self._directory / "metadata", credentials=f"worker:{self._password}"
        )
        self._workers: list[_Worker] = []

    def say_stopping(self, name: str, *, at_once: bool) -> None:
        """Say nothing, as one broker does."""

    def children(self) -> list[Child]:
        """Return the workers."""
        return [worker.child for worker in self._workers]

    # --- start ----------------------------------------------------------------------------------------------

    async def start(self, nursery: trio.Nursery) -> None:
        """Start ZooKeeper and then all workers at the same time. Raises ChildError."""
        is_new = not (self._directory / "metadata").exists()
        await self._zookeeper.start()
        nursery.start_soon(self._zookeeper.run)
        first_id = self._config.get(settings.NODE_ID) if self._config.is_node_id_set else 1
        async with trio.open_nursery() as starting:
            for index in range(self._count):
                worker = self._worker(index, first_id + index)
                self._workers.append(worker)
                starting.start_soon(self._start_worker, worker, nursery)
        servers = ",".join(worker.address for worker in self._workers)
        if is_new and (problem := await self._parts.switch_on(servers)):
            _warn(f"groups of KIP-848, share groups and streams groups are not served: {problem}")
        print(
            f"barnabas is ready: {READY}{servers} workers={self._count} data={','.join(self._config.log_dirs)}",
            flush=True,
        )

    def _worker(self, index: int, broker_id: int) -> _Worker:
        path = self._directory / f"{WORKER_DIRECTORY}{index + 1}.properties"
        path.touch(mode=0o600)
        path.write_text(format_properties(self._settings(index, broker_id)), encoding="utf-8")
        command = (
            sys.executable, "-m", "barnabas", "serve", "--config", str(path), "--log-level", self._log_level,
        )  # fmt: skip
        return _Worker(broker_id, path, self._parts.child(f"worker {index + 1}", command, None))

    def _settings(self, index: int, broker_id: int) -> dict[str, str]:
        """The settings of one worker: those given, with its own number, directories and ports."""
        name = f"{WORKER_DIRECTORY}{index + 1}"
        worker_settings = {**_ONE_COPY, **self._shared_settings}
        for alias in ("node.id", "log.dir"):
            worker_settings.pop(alias, None)
        ports = _ports_used(self._config.listeners())
        step = index * (max(ports) - min(ports) + 1) if ports else 0
        worker_settings["listeners"] = ",".join(_moved(text, step) for text in self._config.listeners())
        advertised = self._config.get(settings.ADVERTISED_LISTENERS)
        if advertised:
            worker_settings["advertised.listeners"] = ",".join(_moved(text, step) for text in advertised)
        metrics = self._config.get(settings.METRICS_LISTENER)
        if metrics:
            worker_settings["metrics.listener"] = _moved(metrics, index)
        return {
            **worker_settings,
            "broker.id": str(broker_id),
            "log.dirs": ",".join(str(Path(path, name)) for path in self._config.log_dirs),
            "zookeeper.connect": self._zookeeper.address,
            "zookeeper.digest.credentials": f"worker:{self._password}",
        }

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
            if pause >= AGAIN_SECONDS_MAX and not any(other.serves for other in self._workers):
                _warn(f"{name} has ended ({ending(code)}), and no worker stays up: stopping")
                self.fail()
                return
            _warn(f"{name} has ended ({ending(code)}); it is started again in {pause:g} s")
            self._zookeeper.server.end_owner_of(f"/brokers/ids/{worker.broker_id}")
            await trio.sleep(pause)
            pause, began = min(pause * 2, AGAIN_SECONDS_MAX), trio.current_time()
            worker.child = self._parts.child(name, worker.child.command, None)
            worker.child.start(reads_output=True)
            nursery.start_soon(self._say_ready_again, worker)

    async def _say_ready_again(self, worker: _Worker) -> None:
        child = worker.child
        try:
            await child.first_line(READY_SECONDS)
        except ChildError as error:
            if not self.is_stopping:
                _warn(str(error))
        else:
            worker.serves = not child.ended.is_set()
            _warn(f"{child.name} is ready again")

    # --- stop -----------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Stop all workers at the same time: no other could take over what they lead."""
        async with trio.open_nursery() as nursery:
            for worker in self._workers:
                nursery.start_soon(self._stop_worker, worker.child)
        await self._zookeeper.close()

    async def _stop_worker(self, child: Child) -> None:
        if not child.has_started:
            return
        if not await child.stop(STOP_SECONDS):
            _warn(f"{child.name} was killed: it did not stop in {STOP_SECONDS:.0f} s")
        if child.code != 0:
            self.has_failed = True


def _warn(text: str) -> None:
    print(f"barnabas: {text}", file=sys.stderr, flush=True)


def _ports_used(listeners: tuple[str, ...]) -> list[int]:
    ports = [int(text.rpartition(":")[2]) for text in listeners]
    return [port for port in ports if port]


def _moved(address: str, step: int) -> str:
    """An address with a port that is higher by `step`; where any will do, one that is free now, and stays the worker's."""
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) + step if int(port) else free_port()}"
