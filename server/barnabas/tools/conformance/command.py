"""`barnabas conform`: judge a broker by the wire suite."""

from __future__ import annotations

import argparse
import json
import secrets
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import trio

from barnabas.client.errors import ClientError
from barnabas.ending import DONE, FAILED, FOUND, USAGE_ERROR
from barnabas.environment.lazy import import_modules
from barnabas.environment.terminal import counted, visible, visible_lines
from barnabas.tools.conformance import reports
from barnabas.tools.conformance.cases import Case
from barnabas.tools.conformance.fixture import Fixture, clean_up, open_fixture, set_up
from barnabas.tools.conformance.running import Result, Verdict, counts, run_all, selected
from barnabas.tools.conformance.suite import all_cases
from barnabas.tools.probing.exchanges import ExchangeError
from barnabas.tools.probing.options import OptionError, add_target, target_of

FAILURES_SHOWN = 20
JOBS = 8


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit code: 1 if a case failed."""
    options = parser().parse_args(arguments)
    if options.html:
        import_modules("barnabas.tools.probing.pages")  # before the broker is asked: the extra may be missing
    seed = secrets.randbelow(1 << 32) if options.seed is None else options.seed
    cases = selected(all_cases(random_walks=options.random), options.select, options.skip)
    if not cases:
        print("barnabas conform: no case has such an id", file=sys.stderr)
        return USAGE_ERROR
    if options.list:
        for case in cases:
            print(f"{case.id}\n    {case.rule} ({case.source})")
        return DONE
    try:
        fixture, results = trio.run(_conform, options, cases, seed)
    except OptionError as error:
        print(f"barnabas conform: {visible_lines(str(error))}", file=sys.stderr)
        return USAGE_ERROR
    except (ClientError, ExchangeError) as error:
        print(f"barnabas conform: {visible_lines(str(error))}", file=sys.stderr)
        return FAILED
    _write(options, fixture, results, seed)
    return FOUND if any(result.verdict is Verdict.FAILED for result in results) else DONE


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command's options."""
    parser = argparse.ArgumentParser(
        prog="barnabas conform",
        description="Judge any Kafka broker by what it says on the wire. It makes topics, groups and transactional ids "
        "of its own, whose names begin with conform-, and removes them.",
    )
    add_target(parser)
    parser.add_argument(
        "--select",
        metavar="PATTERN",
        action="append",
        default=[],
        help="only such cases: an API or a suite (Metadata, walks), or a pattern ('Fetch/v1?/*'); may be repeated",
    )
    parser.add_argument(
        "--skip", metavar="PATTERN", action="append", default=[], help="not such cases; may be repeated"
    )
    parser.add_argument(
        "--list", action="store_true", help="list the cases with their rules, and ask nothing"
    )
    parser.add_argument(
        "--random", metavar="N", type=int, default=10, help="how many random walks (default: 10)"
    )
    parser.add_argument("--seed", metavar="N", type=int, help="repeat a run's random choices")
    parser.add_argument(
        "--jobs", metavar="N", type=int, default=JOBS, help=f"how many cases at a time (default: {JOBS})"
    )
    parser.add_argument("--junit", metavar="FILE", help="write the results as JUnit XML")
    parser.add_argument("--html", metavar="FILE", help="write the results as one HTML file")
    parser.add_argument("--json", metavar="FILE", help="write the results as JSON")
    parser.add_argument("--quiet", action="store_true", help="print no exchanges of failures")
    return parser


async def _conform(options: argparse.Namespace, cases: list[Case], seed: int) -> tuple[Fixture, list[Result]]:
    fixture = await open_fixture(target_of(options), seed)
    print(f"{fixture.target.endpoint}: {fixture.release}; {counted(len(cases), 'case')}, seed {seed}")
    began = time.perf_counter()
    try:
        if any(case.with_topic for case in cases):
            await set_up(fixture)
        results = await run_all(cases, fixture, jobs=max(1, options.jobs))
    finally:
        with trio.move_on_after(60, shield=True):
            await clean_up(fixture)
    _print(options, fixture, results, time.perf_counter() - began)
    return fixture, results


def _print(options: argparse.Namespace, fixture: Fixture, results: list[Result], seconds: float) -> None:
    failures = [result for result in results if result.verdict is Verdict.FAILED]
    if not options.quiet:
        for failure in failures[:FAILURES_SHOWN]:
            print("\n".join(map(visible, reports.lines_of_failure(failure))))
    for failure in failures[0 if options.quiet else FAILURES_SHOWN :]:
        print(f"FAILED {failure.case.id}: {visible_lines(failure.reason)}")
    for group, row in counts(results).items():
        if row[Verdict.FAILED]:
            print(f"{group}: {row[Verdict.PASSED]} passed, {row[Verdict.FAILED]} failed")
    for line in fixture.leftovers:
        print(f"left behind: {line}")
    print(f"{reports.summary(results)} in {seconds:.1f} s")


def _write(options: argparse.Namespace, fixture: Fixture, results: list[Result], seed: int) -> None:
    if options.json:
        Path(options.json).write_text(
            json.dumps(reports.as_json(fixture, results, seed=seed), indent=1), encoding="utf-8"
        )
    if options.junit:
        Path(options.junit).write_text(reports.as_junit(fixture, results), encoding="utf-8")
    if options.html:
        Path(options.html).write_text(reports.as_html(fixture, results, seed=seed), encoding="utf-8")
