"""Interface to the broker in the console's own process: facts that Kafka's protocol does not provide.

The rule: only the named views exist. A visitor may see a view by the operations on the cluster that the broker allows to
the visitor's user.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Protocol

from barnabas.console.base import ConsoleError

if TYPE_CHECKING:
    from barnabas.console.backend import Backend
    from barnabas.console.history import History
    from barnabas.console.measuring import Sums
    from barnabas.console.target import Target
    from barnabas.console.topic_index import TopicRow
    from barnabas.metrics.families import Family

CONNECTIONS, REQUESTS, METRICS, LOG, CONTROL = VIEWS = "connections", "requests", "metrics", "log", "control"
ADMINISTRATORS = frozenset((REQUESTS, LOG, CONTROL))
"""Views that need the right to alter the cluster: they show actions of others, or change what others see."""


async def check_view(backend: Backend, view: str) -> None:
    """Check that a view of the broker exists, and that this visitor may see it. Raises ConsoleError, ClientError."""
    if backend.live is None or view not in backend.live.views:
        raise ConsoleError(404, "only a console in the broker's own process shows this")
    needed = "alter" if view in ADMINISTRATORS else "describe"
    if needed not in await backend.operations():
        raise ConsoleError(403, f"this needs the right to {needed} the cluster")


class Live(Protocol):
    """A broker from inside."""

    @property
    def views(self) -> frozenset[str]:
        """The available views of VIEWS."""

    @property
    def target(self) -> Target:
        """The way of the console's clients to the broker. Raises ConsoleError while that is down."""

    metrics_history: History
    """Those metrics over the last 15 minutes that are plotted without being asked for."""

    def sums(self, rows: Sequence[TopicRow]) -> Sums | None:
        """Return sums of topics if this broker leads all of their partitions; None if not, or if it is down.

        A row shows that its topic may be described, and so its offsets; bytes require the right to describe the cluster.
        """

    def connections(self) -> list[dict[str, Any]]:
        """Return the open connections of clients."""

    def watching(self) -> AbstractAsyncContextManager[Watch]:
        """Record requests for the length of a block."""

    async def metrics(self, *, seconds_max: float = 0.0) -> list[Family]:
        """Return the broker's metrics of this age at most, with one value for all topics together."""

    def log_lines(self, since: int) -> list[dict[str, Any]]:
        """Return the newest lines of the broker's log, after the line with the number `since`."""

    async def control(self, method: str, path: str, query: Mapping[str, str], body: Any) -> tuple[int, Any]:
        """Ask the control API for faults, the clock or snapshots: status, and a JSON value."""


class Watch(Protocol):
    """Requests that are being recorded."""

    @property
    def is_over(self) -> bool:
        """True once the broker has ended, and no more requests follow."""

    def find(self, filters: Mapping[str, str], seen: set[int], limit: int) -> Sequence[Seen]:
        """Return the newest requests that were answered and not seen, in their order, and note them as seen."""


class Seen(Protocol):
    """A request that was recorded."""

    def at_a_glance(self) -> dict[str, Any]:
        """Return its topics, records, bytes and time, as JSON."""

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON."""
