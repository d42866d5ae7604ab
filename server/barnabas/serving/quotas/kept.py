"""A cache of values for clients, in bounded memory. Pure.

The rule: a value that was not used during a whole period is dropped if a new value would be equal; above the limit, the
least recently used values are dropped. A client that invents names can at worst loosen the limits of others a little,
but never exhaust the memory.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, Protocol, TypeVar


class Forgettable(Protocol):
    """A value that may be dropped."""

    def is_forgettable(self, now_ms: int, /) -> bool:
        """Return whether a new value would be equal."""


K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=Forgettable)

PERIOD_MS = 30_000
KEPT_MAX = 5_000


class Kept(Generic[K, V]):
    """Values by key, each created on first access: at most twice `kept_max` of them."""

    __slots__ = ("_before", "_kept_max", "_make", "_now", "_period_ends_ms", "_period_ms", "on_forgotten")

    def __init__(
        self, make: Callable[[K, int], V], *, period_ms: int = PERIOD_MS, kept_max: int = KEPT_MAX
    ) -> None:
        """`make` gets the key and the time; `on_forgotten` is called when references to the values must be dropped."""
        self._make = make
        self._period_ms = period_ms
        self._kept_max = kept_max
        self._now: dict[K, V] = {}
        """Values used in this period."""
        self._before: dict[K, V] = {}
        self._period_ends_ms = 0
        self.on_forgotten: Callable[[], object] = bool

    def __len__(self) -> int:
        return len(self._now) + len(self._before)

    def items(self) -> list[tuple[K, V]]:
        """Return all that are kept."""
        return [*self._before.items(), *self._now.items()]

    def get(self, key: K, now_ms: int) -> V:
        """Return the value of a key."""
        if now_ms >= self._period_ends_ms or len(self._now) >= self._kept_max:
            self._begin_period(now_ms)
        value = self._now.get(key)
        if value is None:
            value = self._before.pop(key, None)
            if value is None:
                value = self._make(key, now_ms)
            self._now[key] = value
        return value

    def _begin_period(self, now_ms: int) -> None:
        """Drop unused values, except those that a new value would not equal."""
        room = max(self._kept_max // 2 - len(self._now), 0)
        debtors = [
            (key, value) for key, value in self._before.items() if room and not value.is_forgettable(now_ms)
        ]
        self._before = {**dict(debtors[-room:] if room else ()), **self._now}
        self._now = {}
        self._period_ends_ms = now_ms + self._period_ms
        self.on_forgotten()
