"""Running cases against a broker: the applicable ones, several at a time, each with its verdict.

The rule: a case fails alone: any exception becomes its verdict, and the next one begins on an intact connection.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from enum import Enum
from fnmatch import fnmatchcase
from typing import Any

import trio

from barnabas.client.errors import ClientError
from barnabas.tools.conformance.cases import Case, DiffersError, NotApplicableError
from barnabas.tools.conformance.fixture import Fixture
from barnabas.tools.conformance.trial import Trial
from barnabas.tools.probing.exchanges import Exchange, ExchangeError, Wire
from barnabas.wire import registry

CASE_TIMEOUT_S = 120.0


class Verdict(Enum):
    """Result of a case."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_APPLICABLE = "not applicable"


@dataclass(slots=True)
class Result:
    """A case that was run; `exchanges` are kept of those that failed."""

    case: Case
    verdict: Verdict
    reason: str = ""
    seconds: float = 0.0
    exchanges: list[Exchange] = field(default_factory=list)


def selected(cases: Sequence[Case], patterns: Sequence[str], skipped: Sequence[str] = ()) -> list[Case]:
    """Return the cases that match one of the patterns: `Metadata`, `walks/*`, `Fetch/v1?/*`; all without patterns."""
    return [
        case for case in cases if (not patterns or _is_named(case, patterns)) and not _is_named(case, skipped)
    ]


def _is_named(case: Case, patterns: Sequence[str]) -> bool:
    with_slash = (pattern if "/" in pattern else f"{pattern}/*" for pattern in patterns)
    return any(fnmatchcase(case.id, pattern) for pattern in with_slash)


def why_not(case: Case, fixture: Fixture) -> str:
    """Return why a case does not apply to a broker; empty if it does."""
    for need in case.needs:
        if not fixture.serves(need.api, need.version):
            version = f" v{need.version}" if need.version >= 0 else ""
            return f"{need.api}{version} is not advertised"
    if case.feature is not None and fixture.features.get(case.feature[0], 0) < case.feature[1]:
        return f"{case.feature[0]} is below {case.feature[1]}"
    if case.with_topic and fixture.topic_problem:
        return fixture.topic_problem
    return ""


Shown = Callable[[Result], None]


async def run_all(
    cases: Sequence[Case], fixture: Fixture, *, jobs: int, shown: Shown = lambda _: None
) -> list[Result]:
    """Run cases, `jobs` at a time, and exclusive ones after the others; returns results in the order of the cases."""
    results: dict[str, Result] = {}

    def keep(result: Result) -> None:
        results[result.case.id] = result
        shown(result)

    applicable = []
    for case in cases:
        reason = why_not(case, fixture)
        if reason:
            keep(Result(case, Verdict.NOT_APPLICABLE, reason))
        else:
            applicable.append(case)
    together = iter([case for case in applicable if not case.alone])
    async with trio.open_nursery() as nursery:
        for _ in range(jobs):
            nursery.start_soon(_work, together, fixture, keep)
    await _work(iter([case for case in applicable if case.alone]), fixture, keep)
    return [results[case.id] for case in cases]


async def _work(cases: Any, fixture: Fixture, keep: Shown) -> None:
    async with AsyncExitStack() as stack:
        lent: Wire | None = None
        for case in cases:
            if lent is None or not lent.is_open:
                await stack.aclose()
                lent = await _connected(stack, fixture)
            keep(await run_case(case, fixture, lent))


async def _connected(stack: AsyncExitStack, fixture: Fixture) -> Wire | None:
    try:
        return await stack.enter_async_context(fixture.target.connect())
    except (ClientError, OSError):
        return None


async def run_case(case: Case, fixture: Fixture, lent: Wire | None = None) -> Result:
    """Run one case."""
    trial = Trial(fixture, number_of(case, fixture.seed), lent=lent)
    began = time.perf_counter()
    verdict, reason = Verdict.PASSED, ""
    try:
        with trio.fail_after(CASE_TIMEOUT_S):
            await case.run(trial)
    except NotApplicableError as error:
        verdict, reason = Verdict.NOT_APPLICABLE, str(error)
    except (DiffersError, ExchangeError, ClientError) as error:
        verdict, reason = Verdict.FAILED, str(error)
    except trio.TooSlowError:
        verdict, reason = Verdict.FAILED, f"not done in {CASE_TIMEOUT_S:g} s"
    except Exception as error:  # a broker may answer anything
        verdict, reason = (
            Verdict.FAILED,
            f"the answer is not what can be looked at: {type(error).__name__}: {error}",
        )
    finally:
        if lent is not None and verdict is not Verdict.PASSED:
            lent.is_open = False  # answers may still be under way
        await trial.close()
    kept = list(trial.journal) if verdict is Verdict.FAILED else []
    if lent is not None:
        lent.journal = []
    return Result(case, verdict, reason, time.perf_counter() - began, kept)


def number_of(case: Case, seed: int) -> int:
    """Return a number that follows from the run's seed and the case."""
    import zlib

    return zlib.crc32(case.id.encode(), seed & 0xFFFFFFFF)


def api_of(exchange: Exchange) -> str:
    """Return API and version of an exchange, as in `Fetch v12`."""
    name = registry.name_of(exchange.key) if registry.is_known(exchange.key) else f"API {exchange.key}"
    return f"{name} v{exchange.version}"


def counts(results: Sequence[Result]) -> dict[str, dict[Verdict, int]]:
    """Return how many cases of each group have which verdict, in the order of the groups."""
    counts_by_group: dict[str, dict[Verdict, int]] = {}
    for result in results:
        row = counts_by_group.setdefault(result.case.group, dict.fromkeys(Verdict, 0))
        row[result.verdict] += 1
    return counts_by_group


def natural(text: str) -> list[Any]:
    """Return a key that sorts v2 before v10."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", text)]
