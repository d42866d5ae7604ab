"""A broker that can be stopped and restarted within its process, while everything around it stays.

The rule: objects that a test refers to (faults, recorded requests, the clock, ports) belong to the host; the broker inside
is created again by each start from the data on disk.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

import trio

from barnabas.broker.app import Broker
from barnabas.broker.assembly import assembled
from barnabas.config.keeper import Keeper, is_controller, keeper_of
from barnabas.environment.real import real_environment
from barnabas.serving.loop_budget import LoopBudget
from barnabas.serving.seams import Seams
from barnabas.tools.control.disk import FaultyDisk
from barnabas.tools.control.faulting import Faulting
from barnabas.tools.control.recorder import Recorder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.broker.controller_node import ControllerNode
    from barnabas.config.loading import BrokerConfig
    from barnabas.environment import Environment
    from barnabas.network.transport import Acceptor, Network, Transport
    from barnabas.serving.seams import Taker, Watcher
    from barnabas.tools.control.clock import VirtualClock


class NotRunningError(Exception):
    """The broker is down, and will not be up again: it was stopped."""


class _Restart(NamedTuple):
    """A requested restart."""

    between: Callable[[], None] | None
    down_s: float
    until: trio.Event | None = None
    """None unless it is down until something is asked for."""


class KeptPorts:
    """A network on which ports that the system has chosen are chosen again by the next start."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._chosen: list[int] = []
        self._count = 0

    def begin(self) -> None:
        """Bind the same addresses again, in the same order."""
        self._count = 0

    def host_name(self) -> str:
        """Return the name by which other machines know this one."""
        return self._network.host_name()

    def bind(self, host: str, port: int) -> Sequence[Acceptor]:
        """Bind all addresses of a host. Raises OSError."""
        number, self._count = self._count, self._count + 1
        if number < len(self._chosen):
            return self._network.bind(host, self._chosen[number])
        acceptors = self._network.bind(host, port)
        self._chosen.append(acceptors[0].address[1])
        return acceptors

    async def dial(self, host: str, port: int) -> trio.abc.Stream:
        """Connect to an address. Raises OSError."""
        return await self._network.dial(host, port)


class Host:
    """Lifecycle: `await nursery.start(host.run)`, which returns when a broker serves; `restart`, `stop`."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        faulting: Faulting | None = None,
        recorder: Recorder | None = None,
        clock: VirtualClock | None = None,
        prepare: Callable[[Broker], Awaitable[None]] | None = None,
        environment: Environment | None = None,
        watcher: Watcher | None = None,
    ) -> None:
        """`prepare` is awaited once, before the first broker serves; `clock` is the one that Trio runs with.

        `watcher` observes all requests like the recorder.
        """
        self.config = config
        self.faulting = faulting if faulting is not None else Faulting()
        self.recorder = recorder
        self.clock = clock
        self.node: Broker | ControllerNode | None = None
        """The broker or the controller; None while it is down."""
        self.bootstrap = ""
        self.starts = 0
        """Number of times that the broker has been started."""
        self.has_failed = False
        """True where the last broker has ended because of a failure."""
        self.attached: Callable[[Broker], None] = lambda _: None
        """Called with each broker that is made, before it serves."""
        self._is_cut_off = False
        self._prepare = prepare
        self._watcher = watcher
        self._environment = environment or real_environment()
        self._network = KeptPorts(self._environment.network)
        self._disk: FaultyDisk | None = None
        self._scope = trio.CancelScope()
        self._pending: _Restart | None = None
        self._is_stopped = False
        self._changed = trio.Event()
        self.faulting.restart = self.restart_soon
        if keeper_of(config) is Keeper.COMBINED:
            self.faulting.controller_listeners = config.controller_listener_names()

    @property
    def broker(self) -> Broker | None:
        """The broker; None while it is down, and of a controller that is no broker."""
        return self.node if isinstance(self.node, Broker) else None

    async def run(self, *, task_status: trio.TaskStatus[Host] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until `stop`. Raises StartupError and StorageError, of later starts too."""
        is_first = True
        try:
            while not self._is_stopped:
                self._pending = None
                await self._run_once(task_status if is_first else trio.TASK_STATUS_IGNORED)
                is_first = False
                restart = self._asked_for()
                if restart is None:
                    return
                if restart.between is not None:
                    await trio.to_thread.run_sync(restart.between)
                if restart.down_s:
                    await trio.sleep(restart.down_s)
                if restart.until is not None:
                    await restart.until.wait()
        finally:
            self._is_stopped = True
            self._note_change()

    def _asked_for(self) -> _Restart | None:
        return self._pending

    async def _run_once(self, task_status: trio.TaskStatus[Host]) -> None:
        """Start a broker and serve until it is stopped."""
        self._network.begin()
        environment, budget = self._surroundings()
        self._scope = trio.CancelScope()
        async with AsyncExitStack() as ending, self._opened(environment, budget) as node:
            with self._scope:
                try:
                    async with trio.open_nursery() as nursery:
                        await nursery.start(node.serve)
                        self.node, self.bootstrap = node, node.bootstrap
                        self.starts += 1
                        self._note_change()
                        task_status.started(self)
                        if self._is_stopped or self._pending is not None:  # asked for meanwhile
                            node.stop()
                        await node.stopping.wait()
                        if self.clock is not None:
                            ending.enter_context(self.clock.passing())
                finally:
                    self.has_failed = node.stopping.has_failed
                    self.node = None
                    self._note_change()

    @asynccontextmanager
    async def _opened(
        self, environment: Environment, budget: LoopBudget
    ) -> AsyncIterator[Broker | ControllerNode]:
        """Make the broker or the controller, with all that stands around its requests."""
        recorder, faulting = self.recorder, self.faulting
        of_controller = Seams(faulting.intercept, faulting.send, self._meet)
        if is_controller(self.config):
            from barnabas.broker.controller_node import controller  # not on the way of a broker

            async with controller(self.config, environment, seams=of_controller) as node:
                yield node
            return
        intercept = faulting.intercept if recorder is None else recorder.around(faulting.intercept)
        if self._watcher is not None:
            intercept = self._watcher.around(intercept)
        async with assembled(
            self.config,
            environment,
            budget=budget,
            seams=of_controller._replace(interceptor=intercept),
            controller_seams=of_controller,
        ) as broker:
            faulting.attach(broker)
            if recorder is not None:
                recorder.attach(broker)
            if self._watcher is not None:
                self._watcher.attach(broker)
            self.attached(broker)
            if self._prepare is not None:
                prepare, self._prepare = self._prepare, None
                await prepare(broker)
            yield broker

    def _meet(self, listener: str, transport: Transport) -> Taker | None:
        """Keep a connection waiting while clients are cut off, else apply faults; a Doorkeeper."""
        return self._wait_for_clients if self._is_cut_off else self.faulting.meet(listener, transport)

    async def _wait_for_clients(self, _: Transport) -> bool:
        while self._is_cut_off:
            await self._changed.wait()
        return True

    def cut_off_clients(self) -> None:
        """Break off all connections, and answer on none until `let_clients_in`."""
        self._is_cut_off = True
        for connection in self.broker.connections if self.broker is not None else ():
            connection.reset()
            connection.scope.cancel()

    def let_clients_in(self) -> None:
        """Serve clients again."""
        self._is_cut_off = False
        self._note_change()

    def _surroundings(self) -> tuple[Environment, LoopBudget]:
        """Return the environment of the next broker: its clock, ports and disk are the host's."""
        environment, clock = self._environment, self.clock
        if clock is not None:
            environment = environment._replace(wall_clock_ms=clock.wall_clock_ms, monotonic=clock.monotonic)
        self._disk = FaultyDisk(
            environment.disk, self.faulting.faults, clock_ms=lambda: time.monotonic() * 1000
        )
        # A turn of the event loop takes real time, whatever the clock says.
        budget = LoopBudget(clock=time.monotonic, cpu_clock=time.thread_time)
        return environment._replace(network=self._network, disk=self._disk), budget

    def stop(self) -> None:
        """Stop cleanly; `run` returns then."""
        self._is_stopped = True
        self.come_back()
        self._pending = None
        if self.node is not None:
            self.node.stop()

    def restart_soon(
        self, between: Callable[[], None] | None = None, *, is_clean: bool = True, down_s: float = 0.0
    ) -> None:
        """Stop the broker and start it again; `between` is called in a thread while it is down.

        If the stop is not clean, connections are cut off, and the data on disk is that after a crash of the process.
        """
        self._end(_Restart(between, down_s), is_clean=is_clean)

    def _end(self, restart: _Restart, *, is_clean: bool) -> None:
        """End the broker cleanly or not, and record what follows."""
        if self._is_stopped or self._pending is not None:
            return
        self._pending = restart
        if self.node is None:
            return
        if is_clean:
            self.node.stop()
        else:
            if self._disk is not None:
                self._disk.die()
            self._scope.cancel()

    def abandon(self) -> None:
        """End as by a crash, and for good."""
        self._end(_Restart(None, 0.0), is_clean=False)
        self.stop()

    async def go_down(self, *, is_clean: bool) -> None:
        """Stop, or end as by a crash, and stay down until `come_back`."""
        if self.node is None:
            return
        self._end(_Restart(None, 0.0, trio.Event()), is_clean=is_clean)
        while self.node is not None:
            await self._changed.wait()

    def come_back(self) -> None:
        """Start again, after `go_down`."""
        if self._pending is not None and self._pending.until is not None:
            self._pending.until.set()

    async def restart(
        self, between: Callable[[], None] | None = None, *, is_clean: bool = True, down_s: float = 0.0
    ) -> Broker | ControllerNode:
        """Do so, and return the new broker when it serves. Raises NotRunningError if it was stopped instead."""
        node = await self.running_node()
        self.restart_soon(between, is_clean=is_clean, down_s=down_s)
        while self.node is node:
            await self._changed.wait()
        return await self.running_node()

    async def running(self) -> Broker:
        """Return the broker as soon as it serves. Raises NotRunningError."""
        node = await self.running_node()
        if not isinstance(node, Broker):
            raise NotRunningError("this node is a controller, and no broker")
        return node

    async def running_node(self) -> Broker | ControllerNode:
        """Return the broker or the controller as soon as it serves. Raises NotRunningError."""
        while (node := self.node) is None:
            if self._is_stopped:
                raise NotRunningError("the broker was stopped")
            await self._changed.wait()
        return node

    def _note_change(self) -> None:
        self._changed.set()
        self._changed = trio.Event()
