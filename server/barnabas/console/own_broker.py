"""The broker in the console's own process, from inside: its `live.Live`.

The rule: a view that is not open costs nothing. Requests are recorded while a visitor watches them; connections are
counted when they are listed.
"""

from __future__ import annotations

import math
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from barnabas.client import Endpoint
from barnabas.config.authorizer import has_authorizer
from barnabas.config.listeners import listener_settings, mechanisms_of
from barnabas.console.base import ConsoleError
from barnabas.console.history import History, measure_metrics
from barnabas.console.known_bugs import warnings_of
from barnabas.console.live import CONNECTIONS, CONTROL, LOG, METRICS, REQUESTS
from barnabas.console.measuring import Sums
from barnabas.console.target import LOGINS, Target
from barnabas.network.dialing import dial
from barnabas.network.transport import EVERYWHERE, url_address
from barnabas.tools.control.recorder import Filter, Recorded, Recorder

if TYPE_CHECKING:
    from barnabas.broker.app import Broker
    from barnabas.client.settings import SaslCredentials
    from barnabas.console.log_lines import Lines
    from barnabas.console.topic_index import TopicRow
    from barnabas.metrics.families import Family
    from barnabas.serving.connection import Connection
    from barnabas.serving.listener import Listener
    from barnabas.tools.control.host import Host

RECORDED_MAX = 1_000
_PREFERRED = ("PLAINTEXT", "SASL_PLAINTEXT", "SASL_SSL", "SSL")


class OwnBroker:
    """Lifecycle: `attach` with each start of the broker."""

    def __init__(self, lines: Lines, host: Host | None = None, login: SaslCredentials | None = None) -> None:
        """`lines` are those of its log; `host` can restart it and set its faults, None if nothing can.

        `login` is the console's own, for sampling the history if visitors log in.
        """
        self._login = login
        self._broker: Broker | None = None
        self._host = host
        self._watch: _Watch | None = None
        self._counts: dict[int, tuple[float, int]] = {}
        self._lines = lines
        self.metrics_history = History(partial(measure_metrics, self))
        self._metrics: tuple[float, list[Family]] = (-math.inf, [])
        """The metrics, and when they were taken (monotonic, s)."""
        self._target: Target | None = None
        self._dispatch: Any = None
        """Function that answers requests of the control API, once it was imported."""

    def attach(self, broker: Broker) -> None:
        """Attach to this broker."""
        self._broker = broker
        self._target = None
        self._counts.clear()
        self._metrics = (-math.inf, [])
        self._watch = None

    @property
    def views(self) -> frozenset[str]:
        """The views that there are now."""
        views = {CONNECTIONS, REQUESTS, LOG}
        if self._broker is not None and self._broker.metrics is not None:
            views.add(METRICS)
        if self._host is not None:
            views.add(CONTROL)
        return frozenset(views)

    def _running(self) -> Broker:
        """Return the broker. Raises ConsoleError while it is down."""
        if self._host is not None and self._host.broker is None:
            raise ConsoleError(503, "the broker is down")
        if self._broker is None:
            raise ConsoleError(503, "the broker is starting")
        return self._broker

    # --- the way to it --------------------------------------------------------------------------------------

    @property
    def target(self) -> Target:
        """Listener that the console's clients use. Raises ConsoleError while the broker is down, or if none will do."""
        broker = self._running()
        if self._target is None:
            try:
                self._target = replace(target_of(broker), own=self._login)
            except OSError:  # of a listener that is closed
                raise ConsoleError(503, "the broker is stopping") from None
        return self._target

    # --- views ----------------------------------------------------------------------------------------------

    def sums(self, rows: Sequence[TopicRow]) -> Sums | None:
        """Return sums of topics; None in a cluster, or while the broker is down."""
        try:
            broker = self._running()
        except ConsoleError:
            return None
        if broker.stopping.was_asked or broker.participation is not None:
            return None
        sums = Sums({}, {}, {})
        find = broker.services.logs.get
        for row in rows:
            records = size = end = count = 0
            for number in range(row.partitions):
                partition_log = find(row.name, number)
                if partition_log is not None:
                    high_watermark = partition_log.high_watermark
                    records += high_watermark - partition_log.log_start_offset
                    size += partition_log.size_bytes
                    end += high_watermark
                    count += 1
            if count:
                sums.records[row.name], sums.bytes[row.name], sums.ends[row.name] = records, size, end
        return sums

    def connections(self) -> list[dict[str, Any]]:
        """Return the open connections of clients."""
        now = trio.current_time()
        rows = []
        counts: dict[int, tuple[float, int]] = {}
        for connection in self._running().connections:
            row = _described(connection)
            request = connection.info.request
            number = request.correlation_id if request is not None else 0
            before = self._counts.get(row["id"])
            # Clients number their requests, so that counting them costs the broker nothing.
            if before is not None and now - before[0] >= 0.5 and number >= before[1]:
                row["rate"] = (number - before[1]) / (now - before[0])
            counts[row["id"]] = (now, number)
            rows.append(row)
        self._counts = counts
        return rows

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[_Watch]:
        """Record requests for the length of a block."""
        broker = self._running()
        if self._watch is None:
            self._watch = _Watch(broker)
        watch = self._watch
        watch.begin()
        try:
            yield watch
        finally:
            watch.end()

    async def metrics(self, *, seconds_max: float = 0.0) -> list[Family]:
        """Return the broker's metrics of this age at most, with one value for all topics together."""
        metrics = self._running().metrics
        if metrics is None:
            raise ConsoleError(404, "the broker keeps no metrics: start it with --metrics")
        taken_at_s, families = self._metrics
        if trio.current_time() - taken_at_s >= seconds_max:
            taken_at_s = trio.current_time()
            families = await metrics.families()
            self._metrics = taken_at_s, families
        return families

    def log_lines(self, since: int) -> list[dict[str, Any]]:
        """Return the newest lines of the broker's log, after the line with the number `since`."""
        return self._lines.since(since)

    async def control(self, method: str, path: str, query: Mapping[str, str], body: Any) -> tuple[int, Any]:
        """Ask the control API."""
        if self._host is None:
            raise ConsoleError(
                404, "the broker has no control API: start it with --control or --virtual-clock"
            )
        if self._dispatch is None:
            self._dispatch = await trio.to_thread.run_sync(_control_api)
        status, value = await self._dispatch(self._host, method, path, query, body)
        return int(status), value


def _control_api() -> Any:
    """Return the dispatcher of the control API; its modules are imported here, with all of its routes."""
    from barnabas.tools.control import routes

    routes.router()
    return routes.dispatch


def target_of(broker: Broker) -> Target:
    """Return the way to a broker's listener that the console can use. Raises ConsoleError."""
    usable = [listener for listener in broker.listeners if listener.security_protocol in _PREFERRED]
    is_secured = has_authorizer(broker.services.config)
    if is_secured and any(_logins(broker, listener) for listener in usable):
        usable = [
            listener for listener in usable if _logins(broker, listener)
        ]  # visitors log in as themselves
    usable.sort(key=lambda listener: _PREFERRED.index(listener.security_protocol))
    for listener in usable:
        protocol = listener.security_protocol
        logins = _logins(broker, listener)
        if protocol.startswith("SASL") and not logins:
            continue
        has_tls = protocol.endswith("SSL")
        if has_tls and broker.participation is not None:
            continue  # the certificates of other brokers could not be checked
        host, port = listener.addresses[0]
        host = EVERYWHERE.get(host, host)

        async def reach(endpoint: Endpoint, host: str = host, port: int = port) -> trio.abc.Stream:
            is_alone = broker.participation is None
            return await (dial(host, port) if is_alone else dial(endpoint.host, endpoint.port))

        return Target((Endpoint(host, port),), logins, _own_tls() if has_tls else None, dial=reach)
    raise ConsoleError(
        501,
        "no listener of this broker takes a password, or clients without a login: the console cannot log in",
    )


def _logins(broker: Broker, listener: Listener) -> tuple[str, ...]:
    offered = mechanisms_of(listener_settings(broker.services.config, listener.name))
    return tuple(login for login in LOGINS if login in offered)


def _own_tls() -> ssl.SSLContext:
    """Return a TLS context for the listener of this process; it checks no certificate, as the socket is its own."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _described(connection: Connection) -> dict[str, Any]:
    info = connection.info
    request = info.request
    name, version = info.client_software_name, info.client_software_version
    return {
        "id": info.connection_id,
        "listener": info.listener,
        "protocol": info.security_protocol,
        "peer": url_address(*info.peer_address),
        "principal": info.principal,
        "client_id": request.client_id if request is not None else None,
        "software": f"{name} {version}".strip(),
        "answering": connection.answering,
        "throttled_ms": info.muted_ms,
        "rate": None,
        "warnings": warnings_of(name, version),
    }


class _Watch:
    """Requests of a broker, recorded while at least one visitor watches them."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._recorder = Recorder(RECORDED_MAX)
        self._recorder.attach(broker)
        self._count = 0
        self._inner: Any = None

    def begin(self) -> None:
        """Count another visitor that watches requests."""
        self._count += 1
        requests = self._broker.requests
        if self._count == 1 and requests is not None:
            self._inner = requests.interceptor
            requests.interceptor = self._recorder.around(self._inner)

    def end(self) -> None:
        """Remove a watcher; the last one removes the recorder from the broker."""
        self._count -= 1
        requests = self._broker.requests
        if not self._count and requests is not None:
            requests.interceptor = self._inner
            self._recorder.clear()

    @property
    def is_over(self) -> bool:
        """True once the broker has ended."""
        return self._broker.stopping.was_asked

    def find(self, filters: Mapping[str, str], seen: set[int], limit: int) -> list[Recorded]:
        """Return the newest answered requests that are not in `seen`, the oldest of them first, and add them to it."""
        chosen = Filter(
            api=filters.get("api") or None,
            client_id=filters.get("client_id") or None,
            topic=filters.get("topic") or None,
            group=filters.get("group") or None,
        )
        requests = [
            exchange
            for exchange in self._recorder.find(chosen)
            if exchange.is_answered and exchange.id not in seen
        ]
        if filters.get("errors") in ("true", "1"):
            requests = [request for request in requests if request.error_codes]
        if len(seen) > 4 * RECORDED_MAX:
            seen -= set(sorted(seen)[: 2 * RECORDED_MAX])
        requests = requests[-limit:]
        seen |= {request.id for request in requests}
        return requests
