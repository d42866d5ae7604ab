"""Selection of the exchanges that are shown. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

from barnabas.tools.tap.exchange import Exchange
from barnabas.wire import registry
from barnabas.wire.generated.index import APIS


class FilterError(ValueError):
    """An invalid filter."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Conditions for exchanges; empty values and None are no condition. Names are patterns with `*` and `?`."""

    apis: tuple[str, ...] = ()
    client_ids: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    errors_only: bool = False
    slower_ms: float | None = None

    def __post_init__(self) -> None:
        """Raise FilterError for an API that Kafka does not have."""
        api_names = {registry.name_of(key).lower() for key in APIS}
        for pattern in self.apis:
            if not any(fnmatchcase(name, pattern.lower()) for name in api_names):
                raise FilterError(
                    f"Kafka has no API {pattern!r}; they are called Produce, Fetch, OffsetCommit, ..."
                )

    @property
    def is_empty(self) -> bool:
        """True if every exchange passes."""
        return not (self.apis or self.client_ids or self.topics or self.errors_only or self.slower_ms)

    def takes(self, exchange: Exchange) -> bool:
        """Return whether an exchange matches."""
        return self.is_empty or (
            _matches(exchange.request.api.lower(), tuple(api.lower() for api in self.apis))
            and _matches(exchange.request.client_id or exchange.connection.client_id or "", self.client_ids)
            and (self.slower_ms is None or (exchange.latency_ms or 0.0) >= self.slower_ms)
            and (not self.errors_only or has_failed(exchange))
            and (not self.topics or any(_matches(name, self.topics) for name in exchange.topics))
        )


def has_failed(exchange: Exchange) -> bool:
    """Return whether an exchange has an error code, was not answered, or cannot be decoded."""
    return bool(
        exchange.errors
        or exchange.request.problem
        or (exchange.response is not None and exchange.response.problem)
        or (exchange.response is None and exchange.unanswered not in ("", "acks=0"))
    )


def _matches(text: str, patterns: tuple[str, ...]) -> bool:
    return not patterns or any(fnmatchcase(text, pattern) for pattern in patterns)
