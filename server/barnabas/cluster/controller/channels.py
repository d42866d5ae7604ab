"""Delivery of control requests to brokers: one connection and one task for each.

The rule: a broker gets its requests in order, one at a time; each is repeated until it is answered, the broker has left
or registers again, or the controller ends. This broker itself gets its requests through its own port. The end of a
broker's process is reported as soon as it is detected (`contact`).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import trio

from barnabas.client import ClientError, ClientSettings, Connection, Endpoint
from barnabas.client.connection import start_connection
from barnabas.cluster.controller.contact import is_refused
from barnabas.wire.errors import EncodeError

if TYPE_CHECKING:
    from barnabas.cluster.controller.state import Broker
    from barnabas.cluster.controller.steps import Outgoing
    from barnabas.network.transport import Network

log = logging.getLogger(__name__)

RETRY_SECONDS = 0.1
"""The wait between two attempts, as in Apache Kafka."""
FAILURES_PER_WARNING = 100

Answered = Callable[["Outgoing", Any], None]
"""Called with a request and its response; it must not block."""
Contact = Callable[["Broker", bool], None]
"""Called with False when a broker's port refuses connections, with True when the broker answers after all."""


class ControlChannels(Protocol):
    """Delivers control requests to brokers. After `close` or `stop` nothing more is delivered."""

    def open(self, broker: Broker) -> None:
        """Be ready to send to a broker, in its new registration if it had one before."""

    def close(self, broker_id: int) -> None:
        """Drop a broker and its pending requests."""

    def send(self, request: Outgoing, answered: Answered) -> None:
        """Send a request after those before it; dropped if the broker is unknown."""

    def stop(self) -> None:
        """Drop all brokers."""

    def on_contact(self, contact: Contact) -> None:
        """Call `contact` for the brokers with open channels."""


class _Channel:
    """Requests for one registration of one broker."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.waiting: deque[tuple[Outgoing, Answered]] = deque()
        self.scope = trio.CancelScope()
        self.is_refused = False
        """True while the broker's address refuses connections."""
        self._wake = trio.Event()

    @property
    def is_closed(self) -> bool:
        """True once no request is sent or reported."""
        return self.scope.cancel_called

    def close(self) -> None:
        """Drop pending requests, and end the task at its next wait."""
        self.waiting.clear()
        self.scope.cancel()

    def add(self, request: Outgoing, answered: Answered) -> None:
        self.waiting.append((request, answered))
        self._wake.set()

    async def next(self) -> tuple[Outgoing, Answered]:
        """Wait for a request; it stays the first until it is removed."""
        while not self.waiting:
            self._wake = trio.Event()
            await self._wake.wait()
        return self.waiting[0]


class ConnectedChannels:
    """Implements ControlChannels over connections to the inter-broker listener. Lifecycle: `run` in a task."""

    def __init__(
        self, listener: str, network: Network, settings: ClientSettings, *, timeout_ms: float
    ) -> None:
        """`timeout_ms` is `controller.socket.timeout.ms`."""
        self._listener = listener
        self._network = network
        self._settings = settings
        self._timeout_ms = timeout_ms
        self._channels: dict[int, _Channel] = {}
        self._nursery: trio.Nursery | None = None
        self._contact: Contact = lambda *_: None

    def on_contact(self, contact: Contact) -> None:
        """See ControlChannels."""
        self._contact = contact

    async def run(self) -> None:
        """Keep connections until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            for channel in self._channels.values():
                nursery.start_soon(self._serve, channel)
            await trio.sleep_forever()

    def open(self, broker: Broker) -> None:
        """See ControlChannels."""
        self.close(broker.id)
        channel = self._channels[broker.id] = _Channel(broker)
        if self._nursery is not None:
            self._nursery.start_soon(self._serve, channel)

    def close(self, broker_id: int) -> None:
        """See ControlChannels."""
        channel = self._channels.pop(broker_id, None)
        if channel is not None:
            channel.close()

    def send(self, request: Outgoing, answered: Answered) -> None:
        """See ControlChannels."""
        channel = self._channels.get(request.broker_id)
        if channel is not None and channel.broker.epoch == request.broker_epoch:
            channel.add(request, answered)

    def stop(self) -> None:
        """See ControlChannels."""
        for broker_id in list(self._channels):
            self.close(broker_id)

    async def _serve(self, channel: _Channel) -> None:
        with channel.scope:
            async with trio.open_nursery() as reading:
                connection: Connection | None = None
                failures = 0
                while True:
                    request, answered = await channel.next()
                    try:
                        if connection is None or not connection.is_open:
                            connection = await self._connect(reading, channel.broker)
                            reading.start_soon(self._look_when_closed, channel, connection)
                        response = await connection.ask(
                            request.request, version=request.version, timeout_ms=self._timeout_ms
                        )
                    except EncodeError as error:
                        log.error("a request for broker %d cannot be sent: %s", channel.broker.id, error)
                        if not channel.is_closed:
                            channel.waiting.popleft()
                        continue
                    except ClientError as error:
                        if connection is not None:
                            connection.close()
                            connection = None
                        if failures % FAILURES_PER_WARNING == 0:
                            log.warning(
                                "broker %d cannot be reached by the controller, which tries again: %s",
                                channel.broker.id, error,
                            )  # fmt: skip
                        failures += 1
                        await self._look(channel)
                        await trio.sleep(RETRY_SECONDS)
                        continue
                    if channel.is_closed:  # since the response came, and before this task was woken
                        return
                    failures = 0
                    if channel.is_refused and not response.error_code:
                        channel.is_refused = False
                        self._contact(channel.broker, True)
                    channel.waiting.popleft()
                    answered(request, response)

    async def _look_when_closed(self, channel: _Channel, connection: Connection) -> None:
        await connection.wait_closed()
        await self._look(channel)

    async def _look(self, channel: _Channel) -> None:
        """Report a broker if its registered address refuses connections."""
        endpoint = channel.broker.endpoint(self._listener)
        if channel.is_refused or endpoint is None:
            return
        refused = await is_refused(self._network, endpoint.host, endpoint.port)
        if refused and not channel.is_refused and not channel.is_closed:
            channel.is_refused = True
            self._contact(channel.broker, False)

    async def _connect(self, nursery: trio.Nursery, broker: Broker) -> Connection:
        endpoint = broker.endpoint(self._listener)
        if endpoint is None:
            raise ClientError(f"it has no listener {self._listener}")

        async def dial(address: Endpoint) -> trio.abc.Stream:
            return await self._network.dial(address.host, address.port)

        return await start_connection(
            nursery, Endpoint(endpoint.host, endpoint.port), self._settings, dial=dial
        )
