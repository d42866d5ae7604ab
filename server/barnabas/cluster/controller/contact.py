"""Detection of processes that have ended before their sessions with ZooKeeper, as opposed to silent ones.

The rule: a connection that breaks and a port that then refuses connections, several times in a row, mean that no process
listens there. Silence and other errors do not: then the session's end decides, as in Apache Kafka. A mistake
is safe: a broker that was wrongly considered gone is fenced by epochs, like any former leader.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from barnabas.client import ClientError, ClientSettings, Endpoint
from barnabas.client.connection import start_connection

if TYPE_CHECKING:
    from barnabas.cluster.metadata.image import ClusterImage, Delta
    from barnabas.network.transport import Network

log = logging.getLogger(__name__)

REFUSALS = 3
REFUSAL_SECONDS = 0.1
"""So often, and so far apart, a port must refuse connections."""
DIAL_SECONDS = 1.0
RETRY_SECONDS = 1.0


async def is_refused(network: Network, host: str, port: int) -> bool:
    """Return whether an address refuses connections, several times in a row."""
    for number in range(REFUSALS):
        if number:
            await trio.sleep(REFUSAL_SECONDS)
        with trio.move_on_after(DIAL_SECONDS):
            try:
                stream = await network.dial(host, port)
            except ConnectionRefusedError:
                continue
            except OSError:
                pass
            else:
                await trio.aclose_forcefully(stream)
        return False
    return True


class ControllerContact:
    """Keeps a connection to the controller on another broker, and reports the end of its process.

    Implements `cluster.metadata.store.Subscriber`. Lifecycle: `run` in a task.
    """

    def __init__(
        self,
        broker_id: int,
        image: Callable[[], ClusterImage],
        listener: str,
        network: Network,
        settings: ClientSettings,
        *,
        gone: Callable[[int], None],
    ) -> None:
        """`gone` is called with the id of a controller after its port has refused connections."""
        self._broker_id = broker_id
        self._image = image
        self._listener = listener
        self._network = network
        self._settings = settings
        self._gone = gone
        self._changed = trio.Event()

    async def run(self) -> None:
        """Watch the current controller, until cancelled."""
        while True:
            changed = self._changed
            controller_id, address = self._controller()
            if address is None:
                await changed.wait()
                continue
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_cancel_when, changed, scope)
                    await self._until_closed(nursery, Endpoint(*address))
                    if await is_refused(self._network, *address):
                        self._gone(controller_id)
                    await trio.sleep(RETRY_SECONDS)
                    nursery.cancel_scope.cancel()

    async def _until_closed(self, nursery: trio.Nursery, endpoint: Endpoint) -> None:
        try:
            connection = await start_connection(nursery, endpoint, self._settings, dial=self._dial)
        except ClientError as error:
            log.debug("the controller cannot be reached: %s", error)
        else:
            await connection.wait_closed()

    async def _dial(self, endpoint: Endpoint) -> trio.abc.Stream:
        return await self._network.dial(endpoint.host, endpoint.port)

    def _controller(self) -> tuple[int, tuple[str, int] | None]:
        image = self._image()
        broker = image.brokers.get(image.controller_id) if image.controller_id != self._broker_id else None
        return image.controller_id, broker.endpoints.get(self._listener) if broker is not None else None

    # --- following the image --------------------------------------------------------------------------------

    async def prepare(self, delta: Delta) -> None:
        """Do nothing."""

    def publish(self, delta: Delta) -> None:
        """Look for the controller again, if it may have changed."""
        if (delta.old.controller_id, delta.old.brokers) != (delta.new.controller_id, delta.new.brokers):
            self._changed.set()
            self._changed = trio.Event()

    async def clean_up(self, delta: Delta) -> None:
        """Do nothing."""


async def _cancel_when(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel()
