"""A complete broker, created by `assembly`: its start, service and stop.

The rule: one order. Start: all parts are open before the first client connects. Stop: listeners, connections, and then
the rest, by its owner.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

import trio

from barnabas.broker.startup import bootstrap_of, listen

if TYPE_CHECKING:
    from barnabas.broker.metrics_endpoint import MetricsAddress, MetricsEndpoint
    from barnabas.broker.services import Services
    from barnabas.serving.listener import Connections, Listener
    from barnabas.serving.memory import Memory
    from barnabas.serving.request_parts import RequestParts


class Participation(Protocol):
    """Entry of a broker into its cluster, and its exit."""

    begins_before_clients: bool
    """True where the cluster has to know of the broker before it accepts a connection."""

    async def begin(self) -> None:
        """Register the broker, which listens by now or is about to, with the cluster. Raises StartupError."""

    async def end(self) -> None:
        """Hand over the partitions that the broker leads, while it still serves."""


class Companion(Protocol):
    """A server beside a broker, in its process."""

    def begin(self) -> str:
        """Bind its address; returns words for the ready line, with a blank before each. Raises StartupError."""

    def attach(self, broker: Broker) -> None:
        """Attach to this broker, which is about to serve."""

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled."""


class Stopping:
    """A stop, requested or because of a failure."""

    def __init__(self) -> None:
        self.has_failed = False
        """True if the broker stops because of a failure."""
        self._asked = trio.Event()

    def ask(self) -> None:
        """Request a stop."""
        self._asked.set()

    def fail(self) -> None:
        """Request a stop because of a failure, such as the loss of all log dirs."""
        self.has_failed = True
        self._asked.set()

    @property
    def was_asked(self) -> bool:
        """True once either has happened."""
        return self._asked.is_set()

    async def wait(self) -> None:
        """Wait until either has happened."""
        await self._asked.wait()


class Broker:
    """One broker. Lifecycle: created by `assembly.assembled`, `serve` in a task, `stop`."""

    __slots__ = (
        "connections",
        "listeners",
        "memory",
        "metrics",
        "metrics_address",
        "participation",
        "requests",
        "services",
        "stopping",
    )

    def __init__(
        self,
        services: Services,
        memory: Memory,
        listeners: list[Listener],
        connections: Connections,
        metrics_address: MetricsAddress | None,
        metrics: MetricsEndpoint | None,
        stopping: Stopping,
        participation: Participation | None = None,
        requests: RequestParts | None = None,
    ) -> None:
        self.services = services
        self.memory = memory
        self.listeners = listeners
        self.connections = connections
        self.metrics_address = metrics_address
        self.metrics = metrics
        self.stopping = stopping
        self.participation = participation
        """None where the broker is alone."""
        self.requests = requests
        """Parts with which requests are answered; None for a stand-in."""

    @property
    def bootstrap(self) -> str:
        """`host:port` of the first listener, as a client on this machine can connect to it."""
        return bootstrap_of(self.listeners[0])

    def stop(self) -> None:
        """Request a clean stop; `serve` returns when no connection is left."""
        self.stopping.ask()

    async def serve(self, *, task_status: trio.TaskStatus[Broker] = trio.TASK_STATUS_IGNORED) -> None:
        """Accept clients, and serve them until `stop`.

        Reports readiness with the broker itself, in a cluster once the broker is registered. Raises StartupError if
        another program listens on the port by now, or another broker has its id.
        """
        participation = self.participation
        if self.metrics_address is not None:
            self.metrics_address.listen()
        if participation is not None and participation.begins_before_clients:
            await self._unless_stopping(participation.begin)
        if not self.stopping.was_asked:
            for listener in self.listeners:
                listen(listener)
        async with trio.open_nursery() as accepting:
            if self.metrics is not None:
                accepting.start_soon(self.metrics.run)
            for listener in self.listeners if not self.stopping.was_asked else ():
                accepting.start_soon(listener.accept_forever, self.connections)
            accepting.start_soon(self.connections.close_idle_forever)
            accepting.start_soon(self.connections.close_excess_forever)
            if participation is not None and not participation.begins_before_clients:
                await self._unless_stopping(participation.begin)
            task_status.started(self)
            await self.stopping.wait()
            if participation is not None:
                await participation.end()
            accepting.cancel_scope.cancel()
        for listener in self.listeners:
            listener.close()
        await self.connections.drain()

    async def _unless_stopping(self, do: Callable[[], Awaitable[None]]) -> None:
        """Await `do`, and cancel it when the broker is to stop."""

        async def break_off() -> None:
            await self.stopping.wait()
            nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(break_off)
            await do()
            nursery.cancel_scope.cancel()
