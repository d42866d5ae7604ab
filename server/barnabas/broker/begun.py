"""A request whose handler has begun to answer without waiting, on its way to an answer that is sent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol

from barnabas.later import Announced, whole

if TYPE_CHECKING:
    from barnabas.apis import Api
    from barnabas.network.transport import Transport
    from barnabas.requests.context import RequestContext
    from barnabas.requests.last_request import LastRequest


class Ending(Protocol):
    """What encodes and sends the answers of requests that have begun, as `Pipeline` does."""

    def end(self, begun: Begun) -> bool | Awaitable[bool]:
        """Send the answer of what has a response; return what is to be awaited where that cannot be done at once."""

    async def finish(self, begun: Begun) -> bool:
        """Wait for the response and send it. Raises OSError."""


class Begun:
    """What its stages share. `response` is the response, or a `Later`; `last` is what the connection has asked last, if
    this is a heartbeat.

    Whoever is given one with an answer that is `is_announced` has it told when that is there, and calls `end` then, or
    awaits `rest`, or calls `forget`.
    """

    __slots__ = (
        "_pipeline",
        "api",
        "context",
        "last",
        "request",
        "request_bytes",
        "response",
        "started",
        "transport",
    )

    def __init__(
        self,
        pipeline: Ending,
        api: Api,
        context: RequestContext,
        transport: Transport,
        request: Any,
        request_bytes: int,
        started: float,
        last: LastRequest | None,
    ) -> None:
        self._pipeline = pipeline
        self.api = api
        self.context = context
        self.transport = transport
        self.request = request
        self.request_bytes = request_bytes
        self.started = started
        self.last = last
        self.response: Any = None

    @property
    def is_announced(self) -> bool:
        """Whether the answer may be waited for without a task."""
        return isinstance(self.response, Announced)

    def announce_to(self, call: Callable[[], None]) -> None:
        """Have `call`, which raises nothing, called when the answer is there."""
        self.response.announce_to(call)

    def end(self) -> bool | Awaitable[bool]:
        """Send the answer that was announced; what is to be awaited where that cannot be done at once. Raises OSError."""
        return self._pipeline.end(self)

    def rest(self) -> Awaitable[bool]:
        """Return what is to be awaited for the answer, which is announced to nobody from now on."""
        if self.is_announced:
            self.announce_to(_ignore)
        return self._pipeline.finish(self)

    def forget(self) -> None:
        """Have an answer that comes go nowhere."""
        self.response.forget()

    def take(self, _context: RequestContext, _request: Any) -> Any:
        """Return the response that was announced, or what is to be awaited for it. Raises what it has failed with."""
        return self.response.take()

    async def wait(self, _context: RequestContext, _request: Any) -> Any:
        """Return the response. Raises what it has failed with."""
        response, self.response = self.response, None
        return await whole(response)


def _ignore() -> None:
    """Do nothing: whoever was to be called awaits the answer instead."""
