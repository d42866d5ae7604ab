"""Observers of exchanges: the terminal, a file of JSON lines, the summary, or several of them.

The rule: the terminal shows as many lines as a user can read; a file gets all.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from barnabas.environment.terminal import counted
from barnabas.tools.inspection.records import RecordsView
from barnabas.tools.tap import rendering
from barnabas.tools.tap.exchange import Connection, Exchange, Observer
from barnabas.tools.tap.filters import Filter, has_failed

log = logging.getLogger(__name__)

LINES_PER_SECOND = 200
FAILED_LINES_PER_SECOND = 200
"""Exchanges that failed have lines of their own to spend."""


class Several:
    """Tells several observers; a mistake of theirs is logged, and never reaches the traffic."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = tuple(observers)

    def opened(self, connection: Connection, at: float) -> None:
        """Report a new connection."""
        for observer in self._observers:
            with _guarded():
                observer.opened(connection, at)

    def exchanged(self, exchange: Exchange) -> None:
        """Tell of an exchange."""
        for observer in self._observers:
            with _guarded():
                observer.exchanged(exchange)

    def noted(self, connection: Connection, at: float, text: str, data: bytes = b"") -> None:
        """Pass on an anomaly."""
        for observer in self._observers:
            with _guarded():
                observer.noted(connection, at, text, data)

    def closed(self, connection: Connection, at: float, reason: str) -> None:
        """Tell of a connection's end."""
        for observer in self._observers:
            with _guarded():
                observer.closed(connection, at, reason)


class _guarded:  # noqa: N801 - as a context manager it costs less than a generator
    __slots__ = ()

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _trace: object) -> bool:
        if kind is None or not issubclass(kind, Exception):
            return False
        if not isinstance(error, BrokenPipeError):
            log.error("internal error: an exchange cannot be shown", exc_info=error)
            return True
        return False


class Terminal:
    """Shows exchanges as lines."""

    def __init__(
        self,
        put: Callable[[str], None],
        filter_: Filter,
        *,
        is_verbose: bool = False,
        view: RecordsView | None = None,
        lines_per_second: int | None = LINES_PER_SECOND,
    ) -> None:
        """`view` shows records too; None as `lines_per_second` shows every exchange, however many there are."""
        self._put = put
        self._filter = filter_
        self._is_verbose = is_verbose
        self._view = view
        self._lines_per_second = lines_per_second
        self._second = 0
        self._shown = 0
        self._failed_shown = 0
        self._skipped: Counter[str] = Counter()

    def opened(self, connection: Connection, at: float) -> None:
        """Show a new connection."""
        if self._filter.is_empty and self._may_show(at, has_failed=False, kind="new connections"):
            self._put(rendering.safe(rendering.opened(connection, at)))

    def exchanged(self, exchange: Exchange) -> None:
        """Show an exchange that passes the filter."""
        if not self._filter.takes(exchange):
            return
        at = exchange.answered_at or exchange.sent_at
        if not self._may_show(at, has_failed=exchange, kind=exchange.request.api):
            return
        self._put(rendering.safe(rendering.line(exchange)))
        if self._is_verbose or self._view is not None:
            self._show_fields(exchange)

    def _show_fields(self, exchange: Exchange) -> None:
        shown = rendering.exchange_as_json(exchange, self._view)
        for name in ("request", "response", "sasl", "sasl_answer"):
            if shown.get(name) is not None:
                text = json.dumps(shown[name], ensure_ascii=False)
                self._put(rendering.safe(f"    {name} {text}", len(text) + 100))
        for name in ("request_hex", "response_hex"):
            if name in shown:
                self._put(f"    {name} {shown[name]}")

    def noted(self, connection: Connection, at: float, text: str, data: bytes = b"") -> None:
        """Show an anomaly."""
        if self._may_show(at, has_failed=True, kind="notes"):
            self._put(rendering.safe(rendering.noted(connection, at, text, data)))

    def closed(self, connection: Connection, at: float, reason: str) -> None:
        """Show a connection's end."""
        if self._filter.is_empty and self._may_show(at, has_failed=False, kind="ends of connections"):
            self._put(rendering.safe(rendering.closed(connection, at, reason)))

    def is_full(self, at: float) -> bool:
        """Return whether successful requests get no line now, as the lines of this second are used up."""
        return self._shown == self._lines_per_second and int(at) == self._second

    def skip(self, kind: str) -> None:
        """Count an event without a line."""
        self._skipped[kind] += 1

    def finish(self) -> None:
        """Report the number of omitted lines."""
        if self._skipped:
            count = sum(self._skipped.values())
            kinds = ", ".join(f"{kind} {number}" for kind, number in self._skipped.most_common(5))
            self._put(f"... {count} more in this second: {kinds} (--lines 0 shows all)")
            self._skipped.clear()

    def _may_show(self, at: float, *, has_failed: bool | Exchange, kind: str) -> bool:
        """Return whether this second has a line left; the outcome of an exchange is checked only if not."""
        if self._lines_per_second is None:
            return True
        second = int(at)
        if second != self._second:
            self.finish()
            self._second, self._shown, self._failed_shown = second, 0, 0
        if self._shown < self._lines_per_second:
            self._shown += 1
            return True
        if self._failed_shown < FAILED_LINES_PER_SECOND and _is_failure(has_failed):
            self._failed_shown += 1
            return True
        self._skipped[kind] += 1
        return False


def _is_failure(result: bool | Exchange) -> bool:
    return has_failed(result) if isinstance(result, Exchange) else result


class JsonLines:
    """Writes events as JSON, one a line."""

    def __init__(self, put: Callable[[str], None], filter_: Filter, view: RecordsView | None = None) -> None:
        self._put = put
        self._filter = filter_
        self._view = view

    def _write(self, value: dict[str, Any]) -> None:
        self._put(json.dumps(value, separators=(",", ":")))

    def opened(self, connection: Connection, at: float) -> None:
        """Write a new connection."""
        self._write(rendering.connection_as_json("opened", connection, at, tls=connection.tls or None))

    def exchanged(self, exchange: Exchange) -> None:
        """Write an exchange that passes the filter."""
        if self._filter.takes(exchange):
            self._write(rendering.exchange_as_json(exchange, self._view))

    def noted(self, connection: Connection, at: float, text: str, data: bytes = b"") -> None:
        """Write an anomaly."""
        self._write(rendering.connection_as_json("noted", connection, at, text=text, hex=data.hex() or None))

    def closed(self, connection: Connection, at: float, reason: str) -> None:
        """Write a connection's end."""
        self._write(rendering.connection_as_json("closed", connection, at, reason=reason))


def left_out_as_json(count: int) -> str:
    """Return the JSON line that reports lost lines."""
    return json.dumps({"type": "left_out", "lines": count})


def left_out_as_text(count: int) -> str:
    """Return the line that reports lost lines."""
    return f"... {counted(count, 'line is', 'lines are')} left out: the terminal is slower than the traffic"
