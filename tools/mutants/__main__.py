"""`python -m tools.mutants log transactions`: plant small bugs in packages, and see whether the nearest tests notice them.

Arguments are packages, as `log`, `log/cleaner` or `pipeline/lake`, or files; without any, all packages of the broker.
Results are kept in .mutants/: a mutant is not tried again until its function or the tests that run it change.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from tools.mutants import choosing, report
from tools.mutants.coverage_map import CoverageMap, Recorder
from tools.mutants.forks import Forks, Run, preload
from tools.mutants.report import Verdict, package_of
from tools.mutants.slips import Mutant
from tools.mutants.source import ROOT, Unit

KEPT = ROOT / ".mutants" / "kept.sqlite"
PLANTED_SECONDS = 30.0
"""Longest time of the tests of one file."""
FAR_SECONDS = 20.0
"""Total time of tests of other packages that run a line: the quickest are tried."""
NEAR = {
    "broker": (
        "unit/config/test_command_line.py", "unit/console/test_beside.py", "unit/security/sasl/test_oauthbearer.py",
    ),
    "client": ("e2e/test_client.py",),
    "cluster/tiering": (
        "unit/tiered/test_lineage.py", "property/tiered", "unit/handlers/test_tiered_reads.py",
        "unit/handlers/test_tiered_followers.py", "unit/log/test_tiered.py",
    ),
    "coordinators/share": ("unit/handlers/test_dead_letters.py",),
    "coordinators/transactions": ("unit/handlers/test_transaction_patterns.py",),
    "registry": ("e2e/test_registry.py",),
    "pipeline/formats": (
        "pipeline/test_any_record.py", "pipeline/test_decode.py", "pipeline/test_format_avro.py",
        "pipeline/test_format_connect.py", "pipeline/test_format_json.py",
        "pipeline/test_format_protobuf.py", "pipeline/test_format_schemas.py",
        "pipeline/test_format_steps.py", "pipeline/test_format_values.py", "pipeline/test_protobuf_frames.py",
        "pipeline/test_registry_rules.py", "pipeline/test_schema_rules.py",
    ),
    "pipeline/jobs": (
        "pipeline/test_any_record.py", "pipeline/test_commit.py", "pipeline/test_current.py",
        "pipeline/test_current_commits.py", "pipeline/test_job_models.py",
        "pipeline/test_job_rules.py", "pipeline/test_local_jobs.py", "pipeline/test_local_results.py",
        "pipeline/test_migrate.py", "pipeline/test_mirror_rules.py", "pipeline/test_mirror_sites.py",
        "pipeline/test_reporting.py", "pipeline/test_results.py", "pipeline/test_rounds.py",
        "pipeline/test_stream_rules.py",
    ),
    "pipeline/jobs/mirror": (
        "pipeline/test_mirror.py", "pipeline/test_mirror_rules.py",
    ),
    "pipeline/lake": (
        "pipeline/test_any_record.py", "pipeline/test_catalog_rules.py", "pipeline/test_change_rules.py",
        "pipeline/test_column_rules.py", "pipeline/test_commit.py", "pipeline/test_commit_rules.py",
        "pipeline/test_conditional.py", "pipeline/test_coordinates.py", "pipeline/test_current.py",
        "pipeline/test_current_commits.py", "pipeline/test_current_table.py", "pipeline/test_dead_letters.py",
        "pipeline/test_iceberg.py",
        "pipeline/test_local_jobs.py", "pipeline/test_migrate.py",
        "pipeline/test_scan.py", "pipeline/test_stores.py",
        "pipeline/test_table_commits.py", "pipeline/test_table_rules.py",
        "pipeline/test_vacuum_rules.py", "pipeline/test_writing.py",
    ),
    "pipeline/log": ("pipeline/test_local_jobs.py", "pipeline/test_reading.py"),
}  # fmt: skip
"""Tests of packages that are not in `unit`: with a broker in their own process, or of the pipeline; with Spark few."""


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="PACKAGE", help="packages or files")
    parser.add_argument("--sample", type=int, help="so many mutants of each package")
    parser.add_argument("--total", type=int, help="so many mutants of all packages together")
    parser.add_argument("--seed", default="0", help="which ones are drawn (0)")
    parser.add_argument(
        "--changed", nargs="?", const="HEAD", metavar="BASE", help="lines changed since BASE (HEAD)"
    )
    parser.add_argument(
        "--all-tests", action="store_true", help="look for tests in all of tests/unit and tests/property"
    )
    parser.add_argument(
        "--planted", action="store_true", help="only the bugs planted by hand; fails if one is not noticed"
    )
    parser.add_argument(
        "--jobs", type=int, default=len(os.sched_getaffinity(0)), help="so many at the same time"
    )
    parser.add_argument("--again", action="store_true", help="try also what is known")
    parser.add_argument("--list", action="store_true", help="print the mutants and try none")
    parser.add_argument("--verbose", action="store_true", help="print each mutant with what noticed it")
    parser.add_argument("--write", action="store_true", help="put the scores into docs/design/mutation.md")
    parser.add_argument("--show", action="store_true", help="let pytest print")
    options = parser.parse_args()
    preload()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that no fork is left
    forks = Forks(options.jobs, show=options.show)
    try:
        if options.planted:
            return _planted(forks, options.names)
        kept = CoverageMap(KEPT)
        chosen = _chosen(options)
        if options.list:
            for mutant in chosen:
                print(report.survivor(mutant, is_run=True))
            return 0
        _collect(kept, forks, {package_of(mutant.path) for mutant in chosen}, options)
        verdicts = _tried(kept, forks, chosen, options)
    finally:
        forks.close()
    for verdict in verdicts:
        if not verdict.noticed_by:
            print(report.survivor(verdict.mutant, is_run=verdict.is_run))
    sample = f"{options.sample} of each, seed {options.seed}" if options.sample else "all"
    if options.total:
        sample = f"{options.total} in total, seed {options.seed}"
    rows = report.rows(verdicts, sample)
    print(report.table(rows))
    if options.write:
        report.write(rows)
    return 0


def _chosen(options: argparse.Namespace) -> list[Mutant]:
    mutants = choosing.all_mutants(choosing.sources(options.names))
    if options.changed is not None:
        lines = choosing.changed_lines(options.changed)
        mutants = [mutant for mutant in mutants if mutant.line in lines.get(mutant.path, ())]
    if options.sample is None:
        return choosing.sampled(mutants, options.total, options.seed)
    by_package: dict[str, list[Mutant]] = {}
    for mutant in mutants:
        by_package.setdefault(package_of(mutant.path), []).append(mutant)
    return [
        mutant
        for each in by_package.values()
        for mutant in choosing.sampled(each, options.sample, options.seed)
    ]


# --- tests ------------------------------------------------------------------------------------------------------


def _near(package: str) -> list[str]:
    """Return where the nearest tests of a package are."""
    places = [f"unit/{package}", f"unit/test_{package}.py", *NEAR.get(package, ()), f"property/{package}"]
    if package.startswith("pipeline/"):
        places.insert(0, "unit/pipeline")
    return [f"tests/{place}" for place in places if (ROOT / "tests" / place).exists()]


def _collect(kept: CoverageMap, forks: Forks, packages: set[str], options: argparse.Namespace) -> None:
    """Run the tests with unknown coverage."""
    places = ["tests/unit", "tests/property"] if options.all_tests else []
    missing = kept.missing([*(place for package in sorted(packages) for place in _near(package)), *places])
    if missing:
        print(f"tests of {len(missing)} files are run once, to know what they cover", flush=True)

    def ended(run: Run) -> None:
        [file] = run.tests
        noted = run.outcome.get("report")
        if noted is None:
            print(f"{file} is left out until it changes: {run.outcome['failed']}", flush=True)
            noted = {"tests": {}, "lines": {}}
        for test in kept.keep(file, noted):
            print(f"{test} does not pass here and is left out", flush=True)

    for file in missing:
        _when_free(forks)
        forks.begin(Run([file], seconds=120.0, plugin=Recorder, all_of=True), ended)
    while forks.wait():
        pass
    kept.refresh()


def _when_free(forks: Forks) -> None:
    while forks.is_full:
        forks.wait()


def _stages(kept: CoverageMap, path: str, unit: Unit, lines: range) -> list[list[str]]:
    """Return tests that run one of the lines: the package's, random ones, and some of others; quickest first."""
    package = package_of(path)
    near = {ROOT / place for place in _near(package)}
    unit_tests, random_tests, others = [], [], []
    for test in sorted(kept.covering(path, unit, lines), key=kept.seconds.__getitem__):
        file = ROOT / test.partition("::")[0]
        if test.startswith(f"tests/property/{package}/"):
            random_tests.append(test)
        elif not near.isdisjoint([file, *file.parents]):
            unit_tests.append(test)
        else:
            others.append(test)
    far, seconds_left = [], FAR_SECONDS
    for test in others:
        seconds_left -= kept.seconds[test]
        if seconds_left < 0:
            break
        far.append(test)
    return [stage for stage in (unit_tests, random_tests, far) if stage]


# --- trials -----------------------------------------------------------------------------------------------------


def _module(path: str) -> str:
    parts = list(Path(path).with_suffix("").parts[1:])
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _try(
    kept: CoverageMap,
    forks: Forks,
    path: str,
    text: str,
    stages: Sequence[list[str]],
    ended: Callable[[str], None],
) -> None:
    """Run stage after stage, until a test fails."""
    if not stages:
        ended("")
        return
    first, rest = stages[0], stages[1:]

    def over(run: Run) -> None:
        failed = run.outcome["failed"]
        if run.outcome.get("unused") and not failed:
            print(f"{run.module} was not imported by {first[0]}", file=sys.stderr)
        if failed or not rest:
            ended(failed)
        else:
            _try(kept, forks, path, text, rest, ended)

    forks.begin(Run(first, sum(kept.seconds[test] for test in first), _module(path), text), over)


def _tried(
    kept: CoverageMap, forks: Forks, chosen: Sequence[Mutant], options: argparse.Namespace
) -> list[Verdict]:
    verdicts: dict[str, Verdict] = {}
    begun = time.monotonic()

    def ended(mutant: Mutant, tests: list[str], failed: str) -> None:
        kept.keep_result(mutant.id, failed, tests)
        verdicts[mutant.id] = Verdict(mutant, failed, bool(tests))
        if options.verbose:
            print(f"{report.survivor(mutant, is_run=bool(tests))}\n  = {failed or 'not noticed'}", flush=True)
        elif sys.stderr.isatty():
            print(
                f"\r{len(verdicts)} of {len(chosen)}, {time.monotonic() - begun:.0f} s",
                end="",
                file=sys.stderr,
            )

    for mutant, text in _with_text(chosen):
        stages = _stages(kept, mutant.path, mutant.unit, mutant.lines)
        tests = [test for stage in stages for test in stage]
        kept_result = None if options.again else kept.result(mutant.id, tests)
        if kept_result is not None:
            verdicts[mutant.id] = Verdict(mutant, kept_result, bool(tests))
            continue
        _when_free(forks)
        _try(kept, forks, mutant.path, text, stages, partial(ended, mutant, tests))
    while forks.wait():
        pass
    return [verdicts[mutant.id] for mutant in chosen if mutant.id in verdicts]


def _with_text(chosen: Sequence[Mutant]) -> Iterator[tuple[Mutant, str]]:
    path, text = "", ""
    for mutant in chosen:
        if mutant.path != path:
            path = mutant.path
            text = (ROOT / path).read_text()
        if mutant.compiles(text):
            yield mutant, mutant.applied(text)


def _planted(forks: Forks, names: Sequence[str]) -> int:
    bugs = [bug for bug in choosing.planted() if not names or {bug.path, package_of(bug.path)} & {*names}]
    missed: list[str] = []

    def ended(name: str, run: Run) -> None:
        failed = run.outcome["failed"]
        print(f"{name}: {failed or 'NOT NOTICED'}", flush=True)
        if not failed:
            missed.append(name)

    for bug in bugs:
        _when_free(forks)
        run = Run([bug.tests], PLANTED_SECONDS, _module(bug.path), bug.applied(), all_of=True)
        forks.begin(run, partial(ended, bug.name))
    while forks.wait():
        pass
    print(f"{len(bugs) - len(missed)} of {len(bugs)} planted bugs are noticed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
