"""The cluster for one visitor of the console: a client with the visitor's login, and cached answers.

The rule: bounded in memory, however large the cluster is; brokers are asked only for views of visitors, and for the
history.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Collection, Hashable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import trio

from barnabas.client import Client, ClientSettings, open_client
from barnabas.client.admin import Admin
from barnabas.client.administration.words import OPERATIONS
from barnabas.console.history import History, measure
from barnabas.console.measuring import BYTES, AllMeasured, Sums, sums_of
from barnabas.console.topic_index import TopicIndex, TopicRow
from barnabas.console.turns import Reads
from barnabas.wire.generated.metadata import MetadataRequest

if TYPE_CHECKING:
    from barnabas.console.connect_client import ConnectClient
    from barnabas.console.live import Live
    from barnabas.console.target import Target
    from barnabas.registry.client import RegistryClient
    from barnabas.registry.decoding import Deserializer
    from barnabas.sandbox.pool import Sandbox

METADATA = 3
AUTHORIZED_OPERATIONS_MAX = 10
"""Later versions of Metadata lack the authorized operations on the cluster."""
OPERATIONS_SECONDS = 1.0
"""Age at which permissions are requested again."""
REMEMBERED_MAX = 2_000
"""Limit of cached topics; the oldest is dropped."""
SAMPLE_SECONDS_MIN = 1.0


class Sample(NamedTuple):
    """A sum and when it was so (monotonic, s)."""

    at_s: float
    total: int


class Backend:
    """The cluster for one visitor. Lifecycle: `opened`, in a task of its session."""

    def __init__(
        self,
        client: Client,
        target: Target,
        settings: ClientSettings,
        nursery: trio.Nursery,
        live: Live | None,
        registry: RegistryClient | None,
        sandbox: Sandbox,
        owner: Hashable,
        reads: Reads | None = None,
        connects: Mapping[str, ConnectClient] | None = None,
        history: History | None = None,
    ) -> None:
        """`owner` has one call of the sandbox at a time; `reads` are the turns of all visitors that read records.

        `history` is that of the console, for visitors with the same rights; the visitor's own without it.
        """
        self.client = client
        self.admin = Admin(client)
        self.topics = TopicIndex(self.admin, nursery)
        self.measured = AllMeasured(self.admin, self.topics, nursery, sums_of=self._sums_of)
        self._shared_history = history
        self._own_history = History(partial(measure, self), nursery)
        self.live = live
        self.target = target
        self.settings = settings
        self.registry = registry
        self.sandbox = sandbox
        self.owner = owner
        self.reads = reads or Reads()
        self.connects = connects or {}
        self.subjects: dict[str, tuple[float, dict[str, Any]]] = {}
        """Subjects as shown by a list, and the time of the request (monotonic, s)."""
        self._deserializer: Deserializer | None = None
        self._operations: frozenset[str] = frozenset()
        self._operations_at_s = -math.inf
        self._ends: dict[str, tuple[Sample, Sample]] = {}

    def deserializer(self) -> Deserializer | None:
        """Return the registry's deserializer; None without a registry."""
        if self._deserializer is None and self.registry is not None:
            from barnabas.registry.decoding import Deserializer

            self._deserializer = Deserializer(self.registry, self.sandbox)
        return self._deserializer

    async def history(self) -> History:
        """Return the console's last 15 minutes, for visitors with the right to describe the cluster; else the visitor's.

        Raises ClientError.
        """
        shared = self._shared_history
        if shared is None:
            return self._own_history
        is_console = not self.target.mechanisms or self.settings.sasl is self.target.own
        return shared if is_console or "describe" in await self.operations() else self._own_history

    async def operations(self) -> frozenset[str]:
        """Return the visitor's permitted operations on the cluster, such as `alter`, cached for a second.

        Raises ClientError.
        """
        if trio.current_time() - self._operations_at_s > OPERATIONS_SECONDS:
            asked_at_s = trio.current_time()
            connection = await self.client.any_connection()
            version = min(connection.version_of(METADATA), AUTHORIZED_OPERATIONS_MAX)
            request = MetadataRequest([], include_cluster_authorized_operations=True)
            response = await connection.ask(request, version=version)
            bits = response.cluster_authorized_operations
            self._operations = frozenset(
                name for bit, name in enumerate(OPERATIONS) if bits >= 0 and bits >> bit & 1
            )
            self._operations_at_s = asked_at_s
        return self._operations

    async def _sums_of(self, admin: Admin, rows: Sequence[TopicRow], *, columns: Collection[str]) -> Sums:
        """Return sums of topics; from inside a broker if it leads all of them, else by requests. Raises ClientError."""
        if self.live is not None and (BYTES not in columns or "describe" in await self.operations()):
            sums = self.live.sums(rows)
            if sums is not None:
                return sums
        return await sums_of(admin, rows, columns=columns)

    def rate(self, topic: str, end: int) -> float | None:
        """Return the records a second appended to a topic, given the sum of its end offsets; None at the first call."""
        now = Sample(trio.current_time(), end)
        before, last = self._ends.pop(topic, (now, now))
        if now.at_s - last.at_s >= SAMPLE_SECONDS_MIN:
            before, last = last, now
        self._ends[topic] = before, last
        if len(self._ends) > REMEMBERED_MAX:
            del self._ends[next(iter(self._ends))]
        seconds = now.at_s - before.at_s
        if seconds < SAMPLE_SECONDS_MIN / 2:
            return None
        return max(now.total - before.total, 0) / seconds


@asynccontextmanager
async def opened(
    target: Target,
    settings: ClientSettings,
    live: Live | None,
    registry: RegistryClient | None,
    sandbox: Sandbox,
    owner: Hashable,
    reads: Reads | None = None,
    connects: Mapping[str, ConnectClient] | None = None,
    history: History | None = None,
) -> AsyncIterator[Backend]:
    """Open a client for a visitor for the length of a block. Raises ClientError where the broker refuses the login."""
    async with open_client(target.bootstrap, settings, dial=target.dial) as client:
        await client.any_connection()
        async with trio.open_nursery() as nursery:
            yield Backend(
                client, target, settings, nursery, live, registry, sandbox, owner, reads, connects, history
            )
            nursery.cancel_scope.cancel()
