"""`barnabas serve --tap`: the broker's own requests and responses, shown as by `barnabas tap`.

The rule: it is an interceptor, so it gets decoded messages; as it shows no more lines than a user can read, it costs some
microseconds per request. Requests without a line are not converted to exchanges.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import trio

from barnabas.errors import RequestError
from barnabas.tools.inspection.errors import FoundError, has_errors
from barnabas.tools.inspection.frames import Request, Response, api_name
from barnabas.tools.tap.command import OptionError, Views, filter_of, options_of
from barnabas.tools.tap.exchange import Connection, Exchange, TopicNames

if TYPE_CHECKING:
    from barnabas.serving.context import RequestContext

CONNECTIONS_REMEMBERED = 10_000
SASL_HANDSHAKE, SASL_AUTHENTICATE, API_VERSIONS = 17, 36, 18
ABOUT_CONNECTIONS = frozenset((SASL_HANDSHAKE, SASL_AUTHENTICATE, API_VERSIONS))

Handler = Callable[["RequestContext", Any], Awaitable[Any]]
Interceptor = Callable[["RequestContext", Any, Handler], Awaitable[Any]]


class _Names(TopicNames):
    """Names of topics in the broker's metadata."""

    def __init__(self) -> None:
        super().__init__()
        self.of_broker: Callable[[bytes], str | None] = lambda _: None

    def name_of(self, topic_id: bytes) -> str | None:
        """Return the topic's name; None if it is unknown."""
        return self.of_broker(topic_id)


@dataclass(slots=True, eq=False)
class _Seen:
    """A connection and its number of requests."""

    connection: Connection
    count: int = 0


class BrokerTap:
    """Lifecycle: `async with running()` around a broker with the interceptor `around(...)`."""

    def __init__(self, text: str) -> None:
        """Parse options, such as `errors,api=Produce,json=FILE`. Raises OptionError, FilterError."""
        self._options = options_of(_arguments(text))
        self._filter = filter_of(self._options)
        if self._options.pcap:
            raise OptionError(
                "pcap: a broker does not keep the bytes of its connections; `barnabas tap` does"
            )
        self._views: Views | None = None
        self._names = _Names()
        self._connections: OrderedDict[int, _Seen] = OrderedDict()

    def attach(self, broker: Any) -> None:
        """Learn the names of topic ids from this broker."""
        metadata = broker.services.metadata
        self._names.of_broker = lambda topic_id: metadata.image.topic_name(topic_id)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Write the views, and the summary at the end. Raises OSError where a file cannot be opened."""
        with ExitStack() as files:
            views = self._views = Views(self._options, self._filter, files, is_live=True)
            async with trio.open_nursery() as nursery:
                views.begin_lines(nursery)
                try:
                    yield
                finally:
                    self._views = None
                    views.end_lines(nursery)
            views.finish(with_summary=self._options.summary)

    def around(self, inner: Interceptor | None) -> Interceptor:
        """Return an interceptor that shows requests, around `inner`, which may be None."""

        async def intercept(context: RequestContext, request: Any, handler: Handler) -> Any:
            begun_at = time.time()
            try:
                if inner is None:
                    response = await handler(context, request)
                else:
                    response = await inner(context, request, handler)
            except BaseException as failure:
                self._show(context, request, None, failure, begun_at)
                raise
            if not self._skips(context, response, begun_at):
                self._show(context, request, response, None, begun_at)
            return response

        return intercept

    def _skips(self, context: RequestContext, response: Any, begun_at: float) -> bool:
        """Return whether a response gets no line; then it is counted."""
        views = self._views
        if views is None or views.only_terminal is None or response is None:
            return False
        seen = self._connections.get(context.connection.connection_id)
        if seen is None or context.api_key in ABOUT_CONNECTIONS:
            return False
        if not views.only_terminal.is_full(begun_at) or has_errors(response):
            return False
        seen.count += 1
        views.only_terminal.skip(api_name(context.api_key))
        return True

    def _show(
        self,
        context: RequestContext,
        request: Any,
        response: Any,
        error: BaseException | None,
        begun_at: float,
    ) -> None:
        if self._views is not None:
            self._views.observer.exchanged(self._exchange(context, request, response, error, begun_at))

    def _exchange(
        self,
        context: RequestContext,
        request: Any,
        response: Any,
        error: BaseException | None,
        begun_at: float,
    ) -> Exchange:
        connection, number = self._connection(context, request)
        asked = Request(
            0, context.api_key, api_name(context.api_key), context.api_version, context.correlation_id,
            context.client_id, request,
        )  # fmt: skip
        exchange = Exchange(connection, number, asked, begun_at, self._names)
        if response is not None:
            exchange.response = Response(0, context.correlation_id, response, version=context.api_version)
            exchange.answered_at = time.time()
        elif isinstance(error, RequestError):
            exchange.response = Response(0, context.correlation_id)
            exchange.answered_at = time.time()
            exchange.refuse([FoundError(int(error.code), "error_code", error.message)])
        elif error is not None:
            exchange.unanswered = (
                "the broker ends" if isinstance(error, trio.Cancelled) else type(error).__name__
            )
        else:
            exchange.unanswered = "acks=0"
        if context.api_key == SASL_AUTHENTICATE:
            exchange.token = {"mechanism": connection.mechanism or "unknown"}
        return exchange

    def _connection(self, context: RequestContext, request: Any) -> tuple[Connection, int]:
        """Return the connection of a request, and the request's number on it."""
        info = context.connection
        seen = self._connections.get(info.connection_id)
        if seen is None:
            host, port = info.peer_address
            local = info.local_address
            seen = _Seen(
                Connection(info.connection_id, f"{host}:{port}", f"{local[0]}:{local[1]}", time.time())
            )
            connection = seen.connection
            if len(self._connections) >= CONNECTIONS_REMEMBERED:
                self._connections.popitem(last=False)
            if self._views is not None:
                self._views.observer.opened(connection, connection.opened_at)
            self._connections[info.connection_id] = seen
        connection = seen.connection
        seen.count += 1
        if connection.client_id is None:
            connection.client_id = context.client_id
        if context.api_key == API_VERSIONS:
            connection.software = f"{request.client_software_name} {request.client_software_version}".strip()
        elif context.api_key == SASL_HANDSHAKE:
            connection.mechanism = request.mechanism
        if info.login is not None:
            connection.user = info.user
        return connection, seen.count


def _arguments(text: str) -> list[str]:
    """Return the options of a text as arguments: `errors,api=Produce` is `--errors --api=Produce`."""
    return [f"--{part.strip()}" for part in text.split(",") if part.strip()]
