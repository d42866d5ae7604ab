"""Parts that all requests of a broker share, and their interceptors.

The `STAGES` of a request (`serving/stages.py`) use these parts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from barnabas.serving.context import ContextParts, RequestContext
from barnabas.wire.regions import Chunk

if TYPE_CHECKING:
    from barnabas.errors import RequestError, StorageError
    from barnabas.network.transport import Transport
    from barnabas.serving.apis import Api
    from barnabas.serving.encoding import CodecWorker
    from barnabas.serving.loop_budget import LoopBudget
    from barnabas.serving.meter import RequestMeter
    from barnabas.serving.release import ReleaseProfile

Handle = Callable[[RequestContext, Any], Any]
"""Handles a decoded request: returns the response, or a `Deferred` of it."""
Handler = Callable[[RequestContext, Any], Awaitable[Any]]
"""Checks and handles a decoded request, as an interceptor has it done."""
Interceptor = Callable[[RequestContext, Any, Handler], Awaitable[Any]]
"""Wraps authorisation and handler of every request: gets context, request, and the function that would answer it.

It returns the response; None for no response.
"""
Sender = Callable[[RequestContext, "Transport", list[Chunk]], Awaitable[bool]]
"""Sends a response in place of its transport, without chunks if there is no response; false closes the connection."""


class Handlers(Protocol):
    """Handlers of all APIs, with the checks before them."""

    @property
    def made(self) -> Mapping[int, Handle]:
        """Loaded handlers, by API key."""

    def is_served(self, api: Api) -> bool:
        """Return whether an API may be answered now."""

    async def make(self, api: Api) -> Handle:
        """Import and load the handler of an API."""

    def check(self, api: Api, context: RequestContext, message: Any) -> None:
        """Raise the RequestError that refuses a whole request."""


class Failures(Protocol):
    """Log directories that fail."""

    def failed(self, error: StorageError) -> RequestError:
        """Take a log directory out of service; return the error for its clients."""


class RequestParts:
    """Parts of one broker with which its requests are answered."""

    def __init__(
        self,
        served: Mapping[int, Api],
        handlers: Handlers,
        shared: ContextParts,
        codecs: CodecWorker,
        *,
        budget: LoopBudget,
        failures: Failures,
        release: ReleaseProfile,
        clock_ms: Callable[[], int],
        now_s: Callable[[], float],
        meter: RequestMeter | None = None,
        interceptor: Interceptor | None = None,
        sender: Sender | None = None,
    ) -> None:
        """`meter` counts requests, where the counts are read; `sender` stands in for transports."""
        self.served = served
        self.handlers = handlers
        self.shared = shared
        self.codecs = codecs
        self.budget = budget
        self.failures = failures
        self.release = release
        self.clock_ms = clock_ms
        self.now_s = now_s
        self.meter = meter
        self.interceptor = interceptor
        self.sender = sender
