"""Detection of broker processes that have ended before their sessions, as opposed to silent ones.

The rule: a broker's session ends early if the connection of its last heartbeat has closed, no heartbeat arrived by another
connection, and each of its listeners refuses connections. Silence, a timeout or any other error decide nothing: the
session expires, as in Kafka. After a mistake, the session resumes with the next heartbeat.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from barnabas.cluster.kraft.controller.brokers import end_session, with_session

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.cluster.kraft.controller.active import ActiveController
    from barnabas.cluster.kraft.values import Broker, Endpoint
    from barnabas.network.transport import Network
    from barnabas.wire.generated.broker_heartbeat import BrokerHeartbeatRequest

log = logging.getLogger(__name__)

PAUSES_SECONDS: Final = (0.0, 0.05, 0.1, 0.15, 0.2)
"""Pauses before each attempt to connect: an ending process may close its listener after its connections."""
LOOK_SECONDS_MAX: Final = 1.5


class BrokerProcesses:
    """Implements `raft.ports.RaftListener`. Lifecycle: `run` in a task; call `heard` and `closed` while it runs."""

    def __init__(self, active: ActiveController, network: Network) -> None:
        self._active = active
        self._network = network
        self._connections: dict[int, int] = {}
        """Id of the connection of each broker's last heartbeat."""
        self._nursery: trio.Nursery | None = None

    async def run(self) -> None:
        """Run the checks of processes until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                await trio.sleep_forever()
            finally:
                self._nursery = None  # after that, connections close because this controller ends

    def heard(self, connection_id: int, request: BrokerHeartbeatRequest) -> None:
        """Note the connection of a heartbeat."""
        state = self._active.state()
        broker = state.image.brokers.get(request.broker_id) if state is not None else None
        if broker is not None and broker.epoch == request.broker_epoch:
            self._connections[broker.id] = connection_id

    def closed(self, connection_id: int) -> None:
        """Check the brokers that sent their last heartbeat by a connection that has closed."""
        for broker_id in [key for key, value in self._connections.items() if value == connection_id]:
            del self._connections[broker_id]
            self._look_at(broker_id)

    def on_leader(self, epoch: int, end_offset: int) -> None:
        """Check the brokers that share a process with another controller: the last leader's process may have ended."""
        del epoch, end_offset
        state = self._active.state()
        for broker_id in state.image.controllers if state is not None else ():
            if broker_id != self._active.raft.node_id:
                self._look_at(broker_id)

    def on_resigned(self, epoch: int) -> None:
        """Do nothing: heartbeats go to the next leader."""

    def _look_at(self, broker_id: int) -> None:
        state = self._active.state()
        broker = with_session(state, broker_id) if state is not None else None
        if state is None or broker is None or self._nursery is None:
            return
        controller = state.image.controllers.get(broker_id)
        endpoints = (*broker.endpoints, *(controller.endpoints if controller is not None else ()))
        self._nursery.start_soon(self._look, broker, endpoints)

    async def _look(self, broker: Broker, endpoints: tuple[Endpoint, ...]) -> None:
        with trio.move_on_after(LOOK_SECONDS_MAX):
            for seconds in PAUSES_SECONDS:
                await trio.sleep(seconds)
                has_ended = await self._all_refuse(endpoints)
                if broker.id in self._connections:
                    return
                if has_ended:
                    log.info(
                        "the process of broker %d has ended: its listeners refuse connections", broker.id
                    )
                    await self._active.do("end of a session", partial(end_session, broker))
                    return

    async def _all_refuse(self, endpoints: Iterable[Endpoint]) -> bool:
        for endpoint in endpoints:
            try:
                stream = await self._network.dial(endpoint.host, endpoint.port)
            except ConnectionRefusedError:
                continue
            except (OSError, ValueError):  # ValueError: the advertised host is no host name
                return False
            await trio.aclose_forcefully(stream)
            return False
        return True
