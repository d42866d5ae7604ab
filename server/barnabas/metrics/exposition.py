"""The broker's and the clients' metrics as text, for any number of scrapers.

The rule: values are copied in the event loop, in slices; everything else is done in a thread. A response is never older
than its request, but requests that arrive while a response is being built share the next one, and after a slow one there is
a pause, so that many scrapers cost about as much as one.
"""

from __future__ import annotations

import logging
from itertools import chain
from typing import TYPE_CHECKING

import trio

from barnabas.errors import RequestError, StorageError
from barnabas.metrics.families import Families
from barnabas.metrics.of_broker import broker_families, server_families
from barnabas.metrics.of_clients import client_families
from barnabas.metrics.of_controller import controller_families
from barnabas.metrics.text import Text, content_type_for, of_process, render

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from barnabas.coordinators.groups.shard import GroupShard
    from barnabas.environment import Threads
    from barnabas.metrics.families import Family
    from barnabas.metrics.of_broker import MetricsParts, ServerParts
    from barnabas.metrics.of_controller import ControllerParts
    from barnabas.metrics.telemetry.pushed import ClientMetrics
    from barnabas.serving.meter import RequestMeter

    Collected = tuple[Families, list[ClientMetrics]]

log = logging.getLogger(__name__)

PAUSE_FACTOR = 4
"""Length of the pause after an answer, as a multiple of the time that it took to make the answer."""
PAUSE_SECONDS_MAX = 2.0


class _PendingText:
    """A response that is not built yet, shared by all requests that wait for it."""

    __slots__ = ("text",)

    def __init__(self) -> None:
        self.text: Text | None = None


class Exposition:
    """Builds responses, one after the other, with the metrics of `collected`."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._one_at_a_time = trio.Lock()
        self._next: dict[str, _PendingText] = {}
        self._pause_ends = 0.0
        self.made = 0
        """Number of answers that have been made."""

    async def collected(self, *, is_summed: bool) -> Collected:
        """Return the present metrics, those of the node and those of clients.

        If `is_summed`, each metric of topics or logs has one value for all of them.
        """
        raise NotImplementedError

    async def text(self, accept: str = "") -> Text:
        """Return all metrics, none of them older than this call; `accept` is a request's header of that name."""
        content_type = content_type_for(accept)
        shared = self._next.setdefault(content_type, _PendingText())
        async with self._one_at_a_time:
            if shared.text is None:
                await trio.sleep_until(self._pause_ends)
                if self._next.get(content_type) is shared:
                    del self._next[content_type]  # later callers get a later response
                began = trio.current_time()
                shared.text = await self._make(content_type)
                took = trio.current_time() - began
                self._pause_ends = began + took + min(PAUSE_FACTOR * took, PAUSE_SECONDS_MAX)
            return shared.text

    async def families(self) -> list[Family]:
        """Return all metrics as data, with one value for all topics and all logs of the broker together."""
        node, clients = await self.collected(is_summed=True)
        return await self._threads.run(lambda: [*node, *client_families(clients), *of_process()])

    async def _make(self, content_type: str) -> Text:
        self.made += 1
        node, clients = await self.collected(is_summed=False)
        return await self._threads.run(lambda: render(chain(node, client_families(clients)), content_type))


class ControllerExposition(Exposition):
    """The metrics of a controller that is no broker."""

    def __init__(
        self, server: ServerParts, controller: ControllerParts, meter: RequestMeter, threads: Threads
    ) -> None:
        super().__init__(threads)
        self._server = server
        self._controller = controller
        self._meter = meter

    async def collected(self, *, is_summed: bool) -> Collected:  # noqa: ARG002
        """See `Exposition.collected`; there are no topics and no clients' metrics."""
        families = Families()
        await controller_families(families, self._controller)
        server_families(families, self._server, self._meter)
        return families, []


class BrokerExposition(Exposition):
    """The metrics of a broker, and of the controller in its process."""

    def __init__(
        self,
        parts: MetricsParts,
        meter: RequestMeter,
        group_shards: Callable[[], Awaitable[list[GroupShard]]],
        threads: Threads,
    ) -> None:
        """`group_shards` returns those of the group coordinator; raises RequestError or StorageError."""
        super().__init__(threads)
        self._parts = parts
        self._meter = meter
        self._shards = group_shards

    async def collected(self, *, is_summed: bool) -> Collected:
        """See `Exposition.collected`."""
        shards = await self._group_shards()
        families = await broker_families(self._parts, self._meter, shards, is_summed=is_summed)
        return families, await self._copied_clients()

    async def _copied_clients(self) -> list[ClientMetrics]:
        """Return a copy of the metrics pushed by clients, the longest silent client first."""
        telemetry = self._parts.telemetry.if_made
        if telemetry is None:
            return []
        telemetry.expire()
        copies = []
        for client in list(telemetry.pushed.clients.values()):
            copies.append(client.copy())
            await self._parts.budget.checkpoint()
        return copies

    async def _group_shards(self) -> list[GroupShard]:
        try:
            return await self._shards()
        except (RequestError, StorageError) as error:
            log.warning("counting groups failed: %s", error)
            return []
