"""A report as tables for the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from barnabas.tools.inspection.errors import code_name
from barnabas.tools.probing.honoured import Status, Verdict
from barnabas.tools.probing.probe import Report
from barnabas.wire import registry

HEADING_WIDTH = 100


def lines_of(report: Report) -> Iterator[str]:
    """Yield the lines of the report."""
    yield f"{report.address}: {report.release}"
    brokers = ", ".join(report.brokers)
    yield f"cluster {report.cluster_id or 'without an id'}, controller {report.controller_id}, brokers {brokers}"
    yield from _heading("APIs")
    yield from _table(["key", "API", "advertised", "honoured", "errors in answers"], _apis(report))
    yield from _heading("features")
    rows = [
        [
            feature.name,
            "-" if feature.supported is None else f"{feature.supported[0]}-{feature.supported[1]}",
            str(feature.finalized or "off"),
        ]
        for feature in report.features
    ]
    yield from _table(["feature", "supported", "level"], rows) if rows else ["none are named"]
    yield from _heading("limits")
    if report.limits.problem:
        yield report.limits.problem
    yield from _table(
        ["setting", "value"], [[name, str(value)] for name, value in report.limits.settings.items()]
    )
    yield from _heading("habits (! is not what Apache Kafka does)")
    marks = {True: " ", False: "!", None: " "}
    yield from _table(
        ["", "what", "seen"], [[marks[quirk.as_kafka], quirk.name, quirk.seen] for quirk in report.quirks]
    )
    yield from _heading("times")
    rows = [
        [timing.what, f"{timing.p50_ms:.2f}", f"{timing.p99_ms:.2f}", str(timing.count)]
        for timing in report.timings
    ]
    yield from _table(["what", "p50 ms", "p99 ms", "tries"], rows)
    yield from _heading("clients")
    yield from _table(["client", "can", "cannot"], _clients(report))
    if report.written:
        yield from _heading("written")
        yield from _table(["what", "seen"], [[entry.what, entry.seen] for entry in report.written])


def _apis(report: Report) -> Iterator[list[str]]:
    for key, (low, high) in sorted(report.advertised.items()):
        mine = [verdict for verdict in report.verdicts if verdict.key == key]
        errors = dict.fromkeys(code for verdict in mine for code in verdict.errors)
        name = registry.name_of(key) if registry.is_known(key) else "?"
        yield [str(key), name, span(low, high), summary(mine), ", ".join(map(code_name, errors))]


def summary(verdicts: Sequence[Verdict]) -> str:
    """Return the verdict on an API's versions in a few words: `all`, or ranges with their problems."""
    if all(verdict.status is Status.HONOURED for verdict in verdicts):
        return "all"
    parts = []
    for (status, reason), group in groupby(verdicts, lambda verdict: (verdict.status, verdict.reason)):
        verdicts_alike = list(group)
        words = reason if status is Status.NOT_TRIED else status.value
        parts.append(f"{span(verdicts_alike[0].version, verdicts_alike[-1].version)} {words}")
    return "; ".join(parts)


def span(low: int, high: int) -> str:
    """Return a range of versions as text."""
    return str(low) if low == high else f"{low}-{high}"


def _clients(report: Report) -> Iterator[list[str]]:
    for need in report.needs:
        lacks = [f"{use} ({why})" for use, why in need.lacks]
        yield [need.client, ", ".join(need.works) or "-", "; ".join([*lacks, *need.notes])]


def _heading(text: str) -> Iterator[str]:
    yield ""
    yield f"{text} ".ljust(HEADING_WIDTH, "-")


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield rows in columns; the last column has no fixed width."""
    lines = [list(head), *map(list, rows)]
    widths = [max(len(row[column]) for row in lines) for column in range(len(head))]
    for row in lines:
        yield "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
