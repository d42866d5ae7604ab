"""Rows of tables: one request to one API, for each version that it applies to, and the expected answer.

The rule: a row is one request and one answer; behaviour of several requests is in a suite.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import trio

from barnabas.tools.conformance.cases import Case, DiffersError, Need
from barnabas.tools.conformance.fixture import PAUSE_S, READY_S
from barnabas.tools.conformance.trial import Trial
from barnabas.tools.probing.exchanges import ClosedByBrokerError
from barnabas.tools.probing.honoured import codes_of
from barnabas.tools.probing.messages import make
from barnabas.wire import registry

Values = Mapping[str, Any]
LAST = 99
_LOADING = {14, 15}
NOT_COORDINATOR = 16
NAMES_TRIED_MAX = 500
"""Names that are tried to find one that is coordinated here."""
CLOSED = "closed"
"""The connection must end."""
FEATURES = {
    "Consumer": ("group.version", 1),
    "Share": ("share.version", 1),
    "Streams": ("streams.version", 1),
}


@dataclass(frozen=True, slots=True)
class Row:
    """One request. `values` and `expected` are computed for a trial and a version; `expected` may be CLOSED."""

    api: str
    label: str
    rule: str
    source: str
    values: Callable[[Trial, int], Values]
    expected: Any
    versions: tuple[int, int] = (0, LAST)
    with_topic: bool = True
    releases: str = ""
    """`4` or `3`: only for brokers that look like these releases; empty for all."""


def row(
    api: str,
    label: str,
    rule: str,
    source: str,
    values: Any,
    expected: Any,
    versions: tuple[int, int] = (0, LAST),
    *,
    with_topic: bool = True,
    releases: str = "",
) -> Row:
    """Return a row; values that do not depend on the trial may be plain."""
    values_of = values if callable(values) else (lambda _, __: values)
    return Row(api, label, rule, source, values_of, expected, versions, with_topic, releases)


def cases_of(rows: Iterable[Row]) -> Iterator[Case]:
    """Yield a case for each version of each row."""
    for each_row in rows:
        info = registry.info(registry.key_of(each_row.api))
        first, last = (
            max(each_row.versions[0], info.request_min_version),
            min(each_row.versions[1], info.max_stable_version),
        )
        for version in range(first, last + 1):
            yield Case(
                f"{each_row.api}/v{version}/{each_row.label}",
                each_row.rule,
                each_row.source,
                partial(_run, each_row, version),
                (Need(each_row.api, version),),
                _feature_of(each_row.api),
                each_row.with_topic,
            )


def _feature_of(api: str) -> tuple[str, int] | None:
    return next((feature for word, feature in FEATURES.items() if word in api), None)


async def _asked(row_of_case: Row, version: int, trial: Trial) -> Any:
    """Send the request until the coordinator has been loaded; in a cluster with new names until it is this broker."""
    wire = await trial.wire(row_of_case.api)
    tried = 0
    with trio.move_on_after(READY_S):
        while True:
            answer = await wire.ask(
                make(row_of_case.api, version, row_of_case.values(trial, version)), version
            )
            codes = set(codes_of(answer))
            if NOT_COORDINATOR in codes and trial.fixture.brokers > 1 and tried < NAMES_TRIED_MAX:
                tried += 1
            elif codes & _LOADING:
                await trio.sleep(PAUSE_S)
            else:
                return answer
    return answer


async def _run(row_of_case: Row, version: int, trial: Trial) -> None:
    from barnabas.tools.conformance.cases import NotApplicableError

    if row_of_case.releases and row_of_case.releases != ("4" if trial.is_kafka_4 else "3"):
        raise NotApplicableError(f"a rule of releases {row_of_case.releases}.x")
    expected = (
        row_of_case.expected(trial, version) if callable(row_of_case.expected) else row_of_case.expected
    )
    try:
        answer = await _asked(row_of_case, version, trial)
    except ClosedByBrokerError:
        if expected == CLOSED:
            return
        raise
    if expected == CLOSED:
        raise DiffersError("it is answered; the connection should end")
    trial.expect(answer, expected)
