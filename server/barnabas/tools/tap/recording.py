"""Requests of a capture for a replay, by connection, with their responses. Pure, except for the file.

The rule: a request that cannot be replayed is skipped, and the reason is reported.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import IO, Any

from barnabas.tools.tap.captured import Captured, Report
from barnabas.tools.tap.exchange import Connection, Exchange
from barnabas.tools.tap.masking import FILLER, WITH_SECRETS

SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36


@dataclass(slots=True, eq=False)
class Recorded:
    """One request to be sent again."""

    exchange: Exchange
    after: int = 0
    """Number of responses that preceded the request, and must precede its replay."""

    @property
    def message(self) -> Any:
        """The request."""
        return self.exchange.request.message

    @property
    def answer(self) -> Any:
        """The recorded answer; None without a comparable one."""
        return self.exchange.response.message if self.exchange.response is not None else None


@dataclass(slots=True)
class Recording:
    """The requests of a capture."""

    connections: dict[int, list[Recorded]] = field(default_factory=dict)
    """Requests by connection, in the order of sending."""
    left_out: Counter[str] = field(default_factory=Counter)
    report: Report = field(default_factory=Report)
    answered: list[Exchange] = field(default_factory=list)
    """Exchanges with responses, in the order of the responses."""

    @property
    def count(self) -> int:
        """Number of requests."""
        return sum(map(len, self.connections.values()))

    @property
    def begun_at(self) -> float:
        """When the first request was sent."""
        return min((exchanges[0].exchange.sent_at for exchanges in self.connections.values()), default=0.0)


class _Collector:
    """An observer that keeps exchanges."""

    def __init__(self) -> None:
        self.exchanges: list[Exchange] = []

    def opened(self, connection: Connection, at: float) -> None:
        """Leave it: connections are opened for their first request."""

    def exchanged(self, exchange: Exchange) -> None:
        """Keep an exchange."""
        self.exchanges.append(exchange)

    def noted(self, connection: Connection, at: float, text: str, data: bytes = b"") -> None:
        """Ignore the note: the report counts missing data."""

    def closed(self, connection: Connection, at: float, reason: str) -> None:
        """Ignore the event."""


def read_recording(
    file: IO[bytes], ports: Collection[int] = (), reader: Callable[..., Captured] = Captured
) -> Recording:
    """Read a capture. Raises CaptureError, OSError."""
    collector = _Collector()
    captured = reader(collector, ports=ports)
    recording = Recording(report=captured.read(file))
    chosen = []
    for exchange in sorted(
        collector.exchanges, key=lambda exchange: (exchange.sent_at, exchange.connection.id, exchange.number)
    ):
        reason = _why_not(exchange)
        if reason:
            recording.left_out[reason] += 1
        else:
            chosen.append(exchange)
    recording.answered = sorted(
        (exchange for exchange in chosen if exchange.answered_at is not None),
        key=lambda exchange: exchange.answered_at or 0.0,
    )
    _order(chosen, recording)
    return recording


def _order(chosen: list[Exchange], recording: Recording) -> None:
    """Note for each request the number of earlier answers."""
    count = 0
    for exchange in chosen:
        while count < len(recording.answered):
            answered_at = recording.answered[count].answered_at
            if answered_at is None or answered_at > exchange.sent_at:
                break
            count += 1
        of_connection = recording.connections.setdefault(exchange.connection.id, [])
        of_connection.append(Recorded(exchange, count))


def _why_not(exchange: Exchange) -> str:
    """Return why a request is not sent again; empty if it is."""
    request = exchange.request
    if exchange.is_bare_token or request.api_key in (SASL_HANDSHAKE, SASL_AUTHENTICATE):
        return "logins: the replay logs in by itself, as --config says"
    if request.message is None:
        return f"requests that are not decoded ({request.problem})"
    if request.api_key in WITH_SECRETS and _has_overwritten(request.message):
        return f"{request.api} requests whose secrets are overwritten in the capture"
    return ""


def _has_overwritten(message: Any) -> bool:
    from dataclasses import fields, is_dataclass

    for entry in fields(message):
        value = getattr(message, entry.name)
        if isinstance(value, list):
            if any(is_dataclass(item) and _has_overwritten(item) for item in value):
                return True
        elif isinstance(value, str | bytes) and value:
            data = value.encode() if isinstance(value, str) else value
            if data == FILLER * len(data) and entry.name in (
                "value", "hmac", "salt", "salted_password", "password",
            ):  # fmt: skip
                return True
    return False
