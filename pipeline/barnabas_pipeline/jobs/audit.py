"""audit: is every offset of the log accounted for in the lake, and does every row equal its record? Then seal hours.

The rule: an audit reads the whole log and all files again, and decodes again all ranges that it does not fully trust.

    every offset in the log is a row or a dead letter, once                batch headers against coordinate columns
    the log has the same batches that the load decoded                     digests; if not: values are compared
    every file has the size and the SHA-256 in the ledger                  if not: values are compared
    every value equals that in the log, decoded again                      all of them with `deep`
    a row that was removed on purpose is named by the ledger               or by another engine's snapshot, and noted

Rows at offsets that the log no longer has (retention, compaction) can only be checked by their files.
docs/decisions/0050-levels-of-an-audit.md describes what each level proves.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from barnabas_pipeline.errors import DataLossError, MissingOffsets
from barnabas_pipeline.jobs.compare import Differences, compare
from barnabas_pipeline.jobs.coverage import EXAMPLES_MAX, Inventory, Run, look, plan_runs, take_inventory
from barnabas_pipeline.jobs.erase import deletions_of_others
from barnabas_pipeline.jobs.load import LoadOptions, find_loss, new_entry
from barnabas_pipeline.jobs.seal import sealable_hours
from barnabas_pipeline.lake import store
from barnabas_pipeline.lake.coordinates import FileCheck
from barnabas_pipeline.lake.dead import DeadLetters
from barnabas_pipeline.lake.iceberg import MAIN, explained, is_writable
from barnabas_pipeline.lake.table import Table
from barnabas_pipeline.log.model import Bounds, Log, LogOptions, OffsetRange
from barnabas_pipeline.log.transports import open_log
from barnabas_pipeline.schema import EventSchema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(slots=True)
class AuditReport:
    """Figures of the comparison, and its problems; `problems` empty: exact."""

    version: int
    deep: bool = False
    offsets: int = 0
    loaded: int = 0
    dead: int = 0
    control: int = 0
    aborted: int = 0
    compacted: int = 0
    files_checked: int = 0
    files_of_others: int = 0  # files written by another engine, or with rows that it deleted
    rows_compared: int = 0  # rows and dead letters compared with the log by offset
    rows_decoded: int = 0  # of these, those compared by value, too
    rows_gone_from_log: int = 0
    erased: int = 0
    erased_by_others: int = (
        0  # of these, rows that snapshots of other engines have deleted and no entry has noted yet
    )
    notes: list[str] = field(default_factory=list)
    lag: int = 0
    sealed: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    missing: list[list[int]] = field(default_factory=list)


def audit(
    spark: SparkSession,
    options: LoadOptions,
    *,
    now_ms: int,
    lateness_ms: int,
    seal: bool = True,
    deep: bool = False,
    comparing: Callable[..., Differences] = compare,
) -> AuditReport:
    """Compare lake and log, with `deep` every value. Raises DataLossError if the topic was replaced by a new topic.

    Problems are in the report. `comparing` is the function that compares values, by Spark.
    """
    table = Table(options.root)
    state = table.loaded()
    report = AuditReport(state.version, deep)
    log = open_log(options.log)
    try:
        identity, bounds = log.identity(), log.bounds()
        loss = find_loss(state, identity, bounds)
        if loss is not None and (state.cluster_id, state.topic_id) != (
            identity.cluster_id,
            identity.topic_id,
        ):
            raise loss
        if loss is not None:
            report.problems.append(str(loss))
        inventory = take_inventory(table)
        deletions = deletions_of_others(table, inventory.entries)
        noted = list(deletions.offsets.write(table.layout))
        report.notes = deletions.told if noted else []
        report.erased_by_others = sum(file.offsets for file in noted)
        report.erased = state.erased + report.erased_by_others
        inventory.erased.extend(noted)
        dead = DeadLetters(table)
        report.problems += dead.differences(inventory.entries)  # before more is published
        dead.publish()
        _check_counts(inventory, report)
        _check_rows(spark, table, inventory, log, options.log, bounds, report, comparing)
        report.lag = sum(max(0, bound.end - state.ends.get(p, bound.start)) for p, bound in bounds.items())
        if seal and not report.problems and not is_writable(table.existing):
            report.notes.append(
                f"{table.place.name} has a format that cannot be written here: no hour is sealed"
            )
            seal = False
        if seal and noted and not report.problems:
            schema = EventSchema.from_dict(state.schema)
            job = {"name": "audit", "id": options.job_id, "snapshots": deletions.snapshots}
            entry = new_entry(table, "erase", identity, schema, job)
            entry.erased, entry.note = noted, "; ".join(deletions.told)
            table.commit(entry)
        if seal and not report.problems:
            report.sealed = sealable_hours(log, bounds, state, now_ms=now_ms, lateness_ms=lateness_ms)
            if report.sealed:
                schema = EventSchema.from_dict(state.schema)
                entry = new_entry(table, "seal", identity, schema, {"name": "audit", "id": options.job_id})
                entry.sealed = report.sealed
                table.commit(entry)
    finally:
        log.close()
    _keep(table, report)
    return report


def raise_if_lossy(report: AuditReport) -> None:
    """Raise DataLossError if the audit found missing or wrong records."""
    if report.problems:
        missing = [MissingOffsets(*offsets) for offsets in report.missing]
        raise DataLossError(f"audit of version {report.version}: {'; '.join(report.problems)}", missing)


def _keep(table: Table, report: AuditReport) -> None:
    branch = "" if table.place.branch == MAIN else f"{table.place.branch}/"
    location = f"{table.existing.location()}/_audit/{branch}{report.version:020d}.json"
    with explained():
        store.write(table.io, location, json.dumps(asdict(report), indent=1).encode())


# --- comparison -----------------------------------------------------------------------------------------------------


def _check_counts(inventory: Inventory, report: AuditReport) -> None:
    state = inventory.state
    for total in state.totals.values():
        report.offsets += total.span
        for name in ("loaded", "dead", "control", "aborted", "compacted"):
            setattr(report, name, getattr(report, name) + getattr(total, name))
    rows = sum(
        seen.entry.rows if seen.entry is not None else seen.piece.rows
        for seen in inventory.rows
        if seen.piece is not None
    )
    is_sure = not any(row.piece.deletes for row in inventory.rows if row.piece is not None)
    dead = sum(row.entry.offsets for row in inventory.dead if row.entry is not None)
    if is_sure and rows != report.loaded + state.redriven - report.erased:
        erased = f", {report.erased} erased" if report.erased else ""
        report.problems.append(
            f"{rows} rows are in the files, {report.loaded} were loaded, {state.redriven} redriven{erased}"
        )
    if dead != report.dead - state.redriven:
        report.problems.append(
            f"{dead} offsets are dead letters, {report.dead} were, {state.redriven} redriven"
        )
    report.loaded, report.dead = rows, dead


def _check_rows(
    spark: SparkSession,
    table: Table,
    inventory: Inventory,
    log: Log,
    options: LogOptions,
    bounds: dict[int, Bounds],
    report: AuditReport,
    comparing: Callable[..., Differences],
) -> None:
    runs = plan_runs(inventory.entries, inventory.state, bounds)
    checks = look(spark, table.layout, inventory, log, options, runs)
    report.files_checked = len(checks)
    report.files_of_others = sum(not check.is_ours for check in checks)
    report.problems += [check.problem for check in checks if check.problem]
    for run in runs:
        _judge(run, report)
    _check_strays(runs, checks, inventory, report)
    unreadable = frozenset(check.path for check in checks if check.rows < 0)
    doubtful = {check.path for check in checks if check.problem or not check.is_ours}
    ranges = _doubtful(runs, doubtful, inventory, is_all=report.deep)
    differences = comparing(spark, table, inventory, log, options, ranges, unreadable)
    report.rows_decoded = differences.rows
    tell(differences, report)


def _judge(run: Run, report: AuditReport) -> None:
    """Add the problems of a run to the report, by its coordinates and headers."""
    findings, partition = run.findings, run.offset_range.partition
    before = len(report.problems)
    report.rows_compared += findings.rows + findings.letters
    if findings.missing:
        report.problems.append(f"{findings.missing} rows of the log are not in the lake")
        report.missing += [[partition, offset, offset + 1] for offset in findings.missing_first]
    report.problems += [
        f"offset {offset} of partition {partition} is there twice" for offset in findings.doubled_first
    ]
    report.problems += [
        f"offset {offset} of partition {partition} was erased, and is a row" for offset in findings.back_first
    ]
    if run.is_as_loaded and findings.gone:
        report.problems.append(
            f"{findings.gone} rows of partition {partition} are at offsets where the log has no record, "
            f"the first at {findings.strange_first[0]}"
        )
    else:
        report.rows_gone_from_log += findings.gone
    if len(report.problems) > before:
        return
    claimed, seen = [run.accounted], [findings.accounted]
    if run.is_as_loaded:
        claimed, seen = [*claimed, run.control, run.aborted], [*seen, findings.control, findings.aborted]
    if claimed != seen:
        report.problems.append(
            f"partition {partition}, offsets {run.offset_range.start} to {run.offset_range.end}: rows with dead letters, "
            f"control, aborted are {seen}, the ledger says {claimed}"
        )


def _check_strays(
    runs: list[Run], checks: list[FileCheck], inventory: Inventory, report: AuditReport
) -> None:
    topic_id = inventory.state.topic_id
    for files, name in ((inventory.rows, "rows"), (inventory.dead, "letters")):
        mine = {file.path for file in files if file.may_be_of(topic_id)}
        there = sum(check.rows for check in checks if check.path in mine and check.rows > 0)
        stray = there - sum(getattr(run.findings, name) for run in runs)
        if stray:
            report.problems.append(f"{stray} {name} are at offsets that no load has covered")


def _doubtful(runs: list[Run], paths: set[str], inventory: Inventory, *, is_all: bool) -> list[OffsetRange]:
    """Return the ranges to compare value by value: all, or the ranges where log or files differ from the load."""
    files = [file for file in inventory.files if file.path in paths]
    ranges: list[OffsetRange] = []
    for run in sorted(runs, key=lambda run: run.offset_range):
        offset_range = run.offset_range
        is_hit = any(
            file.may_have(offset_range.partition, offset_range.start, offset_range.end) for file in files
        )
        if not len(run.in_log) or not (is_all or is_hit or not run.is_as_loaded):
            continue
        last = ranges[-1] if ranges else None
        if last and (last.partition, last.end) == (offset_range.partition, run.in_log.start):
            ranges[-1] = OffsetRange(last.partition, last.start, run.in_log.end)
        else:
            ranges.append(run.in_log)
    return ranges


def tell(differences: Differences, report: AuditReport) -> None:
    """Add the problems of values to the report."""
    if differences.altered:
        report.problems.append(f"{differences.altered} rows of the log are altered")
        report.missing += [[partition, offset, offset + 1] for partition, offset in differences.altered_first]
    if differences.missing and not report.missing:
        report.problems.append(f"{differences.missing} rows of the log are not in the lake")
        report.missing += [[partition, offset, offset + 1] for partition, offset in differences.missing_first]
    del report.missing[EXAMPLES_MAX:]
