"""Families of metrics as plain data, copied from the broker before they are rendered as text. Pure.

The rule: a family has one name and one kind, and no two of its samples have the same labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from barnabas.metrics.telemetry.payload import COUNTER, GAUGE, HISTOGRAM, SUMMARY, Distribution, Labels

INFO = "info"
TOTAL = "_total"

__all__ = ["COUNTER", "GAUGE", "HISTOGRAM", "INFO", "SUMMARY", "TOTAL", "Families", "Family"]


class Family:
    """A metric: its name without a counter's `_total`, its description, and its values by labels."""

    __slots__ = ("kind", "name", "text", "values")

    def __init__(self, name: str, kind: str, text: str) -> None:
        self.name = name
        self.kind = kind
        self.text = text
        self.values: dict[Labels, float | Distribution] = {}

    def add(self, value: float | Distribution, **labels: object) -> None:
        """Say a value; of two for the same labels the later one counts."""
        self.values[tuple((key, str(label)) for key, label in labels.items())] = value

    def free(self) -> None:
        """Release all values, one by one: releasing many together would block the interpreter for other threads."""
        values = self.values
        while values:
            values.popitem()

    def samples(self) -> Iterator[tuple[str, Labels, float]]:
        """(name, labels, value) of every line of text that the family becomes."""
        for labels, value in self.values.items():
            if isinstance(value, Distribution):
                yield from self._distribution(labels, value)
            else:
                yield self.name + {COUNTER: TOTAL, INFO: "_info"}.get(self.kind, ""), labels, value

    def _distribution(self, labels: Labels, value: Distribution) -> Iterator[tuple[str, Labels, float]]:
        if self.kind == HISTOGRAM:
            for bound, count in value.steps:
                yield f"{self.name}_bucket", (*labels, ("le", repr(bound))), count
            yield f"{self.name}_bucket", (*labels, ("le", "+Inf")), value.count
        else:
            for quantile, of_quantile in value.steps:
                yield self.name, (*labels, ("quantile", repr(quantile))), of_quantile
        yield f"{self.name}_count", labels, value.count
        yield f"{self.name}_sum", labels, value.total


class Families:
    """All families of one collection, created as they are needed."""

    def __init__(self) -> None:
        self._by_name: dict[str, Family] = {}

    def __iter__(self) -> Iterator[Family]:
        return iter(self._by_name.values())

    def get(self, name: str, kind: str, text: str) -> Family:
        """Return the family of that name; it has one kind."""
        family = self._by_name.get(name)
        if family is None:
            family = self._by_name[name] = Family(name, kind, text)
        assert family.kind == kind, name
        return family

    def gauge(self, name: str, text: str, value: float, **labels: object) -> None:
        """Say a gauge's value."""
        self.get(name, GAUGE, text).add(value, **labels)

    def counter(self, name: str, text: str, value: float, **labels: object) -> None:
        """Say a counter's value; `name` is without `_total`."""
        self.get(name, COUNTER, text).add(value, **labels)

    def extend(self, more: Iterable[Family]) -> None:
        """Take families of names that are not here yet."""
        for family in more:
            self._by_name.setdefault(family.name, family)
