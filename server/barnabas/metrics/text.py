"""Families of metrics as text, in a format that the scraper accepts. Slow for many metrics: runs in a thread.

The rule: the broker is not accessed here; all values were copied before. No single step keeps the interpreter
for long: text is joined and values are freed a few hundred lines at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

from prometheus_client import ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.utils import floatToGoString

from barnabas.metrics.families import COUNTER, GAUGE, INFO, TOTAL, Family
from barnabas.metrics.telemetry.payload import Labels

LINES_PER_TURN = 500
OPENMETRICS = "application/openmetrics-text"
_PAIRS_MAX = 4096


@dataclass(frozen=True, slots=True)
class Text:
    """All metrics as one answer; many readers may be sent the same."""

    content_type: str
    pieces: tuple[bytes, ...]


def content_type_for(accept: str) -> str:
    """Return the content type that suits a request best; `accept` is its header of that name."""
    _, content_type = choose_encoder(accept)
    return str(content_type)


def render(families: Iterable[Family], content_type: str) -> Text:
    """Return the text of families, which are emptied, and of the process itself (CPU, memory, open files).

    `content_type` is a result of `content_type_for`.
    """
    is_openmetrics = content_type.startswith(OPENMETRICS)
    writer = _Writer(is_openmetrics)
    pieces: list[bytes] = []
    lines: list[str] = []
    for family in chain(families, of_process()):
        for line in writer.lines(family):
            lines.append(line)
            if len(lines) == LINES_PER_TURN:
                pieces.append("".join(lines).encode())
                lines.clear()
        family.free()
    if is_openmetrics:
        lines.append("# EOF\n")
    pieces.append("".join(lines).encode())
    return Text(content_type, tuple(pieces))


class _Writer:
    """Writes families in the format of OpenMetrics, or in Prometheus' older one."""

    def __init__(self, is_openmetrics: bool) -> None:
        self._is_openmetrics = is_openmetrics
        self._number: Callable[[float], str] = floatToGoString
        self._pairs: dict[tuple[str, str], str] = {}  # the labels of a client come with each of its series

    def lines(self, family: Family) -> Iterator[str]:
        """Yield the lines of a family, each with its end."""
        name, kind, text = family.name, family.kind, _escaped(family.text)
        if self._is_openmetrics:
            text = text.replace('"', r"\"")
        elif kind == COUNTER:
            name += TOTAL
        elif kind == INFO:
            name, kind = f"{name}_info", GAUGE
        yield f"# HELP {name} {text}\n"
        yield f"# TYPE {name} {kind}\n"
        for sample, labels, value in family.samples():
            yield f"{sample}{self._labels(labels)} {self._number(value)}\n"

    def _labels(self, labels: Labels) -> str:
        if not labels:
            return ""
        pairs = self._pairs
        if len(pairs) > _PAIRS_MAX:
            pairs.clear()
        texts = []
        for pair in sorted(labels):
            text = pairs.get(pair)
            if text is None:
                value = _escaped(pair[1]).replace('"', r"\"")
                text = pairs[pair] = f'{pair[0]}="{value}"'
            texts.append(text)
        return "{" + ",".join(texts) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def of_process() -> Iterator[Family]:
    """Yield the families of the process itself: CPU, memory, open files."""
    for metric in ProcessCollector(registry=None).collect():
        family = Family(metric.name, metric.type, metric.documentation)
        for sample in metric.samples:
            family.add(sample.value, **sample.labels)
        yield family
