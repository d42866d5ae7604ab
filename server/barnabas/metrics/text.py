"""Families of metrics as text, in the format that the reader accepts. Slow for many metrics: runs in a thread.

The rule: nothing of the broker is looked at here; what is shown was copied before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from barnabas.metrics.families import Family


def render(families: Iterable[Family], accept: str) -> tuple[bytes, str]:
    """The text and its content type; `accept` is what the request says in its header of that name.

    What there is of the process itself (CPU, memory, open files) is added.
    """
    from prometheus_client import CollectorRegistry, ProcessCollector
    from prometheus_client.exposition import choose_encoder

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Once(families))
    ProcessCollector(registry=registry)
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


class _Once:
    """A collector in the sense of the library: yields the families as its own kind of objects."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._families = families

    def collect(self) -> Iterator[Any]:
        from prometheus_client import Metric

        for family in self._families:
            metric = Metric(family.name, family.text, family.kind)
            for name, labels, value in family.samples():
                metric.add_sample(name, dict(labels), value)
            yield metric
