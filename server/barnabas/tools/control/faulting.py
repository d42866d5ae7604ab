"""Faults at a broker's seams: checks whether a rule applies to an event, and injects its fault then.

The rule: there is one for a broker, and it outlives the broker's restarts; if no rule applies to an event, the cost is one
lookup in a dictionary. The modules that inject faults are imported for the first one.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from barnabas.environment.lazy import Lazy
from barnabas.tools.faults.engine import Faults
from barnabas.tools.faults.events import CONNECT, REQUEST

if TYPE_CHECKING:
    from barnabas.broker.app import Broker
    from barnabas.network.transport import Transport
    from barnabas.serving.context import RequestContext
    from barnabas.serving.request_parts import Handler
    from barnabas.serving.seams import Taker
    from barnabas.tools.control.committing import Committing
    from barnabas.wire.regions import Chunk


def monotonic_ms() -> float:
    """Return milliseconds since some moment."""
    return time.monotonic() * 1000


def kill_process() -> None:
    """End this process as `kill -9` does."""
    os.kill(os.getpid(), signal.SIGKILL)


class Faulting:
    """Hook at a broker's seams that commits faults; `attach` gives it each broker that is started."""

    def __init__(
        self,
        faults: Faults | None = None,
        *,
        clock_ms: Callable[[], float] = monotonic_ms,
        kill: Callable[[], None] = kill_process,
        restart: Callable[[], None] | None = None,
    ) -> None:
        """`clock_ms` is for conditions on time; `kill` and `restart` do so with the broker, soon."""
        self.controller_listeners: Collection[str] = ()
        """Listeners of the controller in a combined node."""
        self.faults = faults if faults is not None else Faults(clock_ms=clock_ms)
        self.kill = kill
        self.restart = restart
        self._clock_ms = clock_ms
        self._broker: Broker | None = None
        self._committing = Lazy(self._make_committing)

    def _make_committing(self) -> Committing:
        from barnabas.tools.control.committing import Committing

        return Committing(
            self.faults,
            self._broker,
            clock_ms=self._clock_ms,
            kill=lambda: self.kill(),
            restart=self._restart_broker,
            controller_listeners=self.controller_listeners,
        )

    def _restart_broker(self) -> None:
        if self.restart is not None:
            self.restart()

    def attach(self, broker: Broker) -> None:
        """Inject faults into this broker."""
        self._broker = broker
        if self.faults.rules or self._committing.if_made is not None:  # a rule may refer to present facts
            self._committing.get().attach(broker)

    async def intercept(self, context: RequestContext, request: Any, handler: Handler) -> Any:
        """Answer a request under the faults; an Interceptor."""
        if not self.faults.concerns(REQUEST):
            return await handler(context, request)
        return await self._committing.get().answer(context, request, handler)

    async def send(self, context: RequestContext, transport: Transport, chunks: list[Chunk]) -> bool:
        """Send a response under the faults; a Sender."""
        committing = self._committing.if_made
        if committing is not None:
            return await committing.send(context, transport, chunks)
        if chunks:
            await transport.send(chunks)
        return True

    def meet(self, listener: str, _transport: Transport) -> Taker | None:
        """Return the taker of a connection before the broker, None if no fault applies; a Doorkeeper."""
        if not self.faults.concerns(CONNECT):
            return None
        return self._committing.get().meet(listener)
