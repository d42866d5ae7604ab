"""audit: is every offset of the log accounted for in the lake, and is every row what the log says? Then seal hours.

The rule: the log is read again and decoded as the load decoded it; nothing that the load said of itself is believed.

    loaded + dead letters + control + aborted + compacted = offsets            by partition
    digests of all rows, from the log and from the lake: equal                 if not: joined, to name the offsets
    every file has the size and the SHA-256 that its manifest says

Rows whose offsets the log no longer has (retention, compaction) can only be checked by their files.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from barnabas_pipeline.errors import DataLossError, MissingOffsets
from barnabas_pipeline.jobs.load import LoadOptions, find_loss, new_manifest
from barnabas_pipeline.jobs.reread import plan_rereading, reread_frame
from barnabas_pipeline.jobs.seal import sealable_hours
from barnabas_pipeline.lake import frames
from barnabas_pipeline.lake.files import sha256_of
from barnabas_pipeline.lake.manifest import TableState
from barnabas_pipeline.lake.table import Table
from barnabas_pipeline.log.model import Log, LogOptions, open_log
from barnabas_pipeline.schema import EventSchema

EXAMPLES_MAX = 20


@dataclass(slots=True)
class AuditReport:
    """What was compared, and what did not fit; `problems` empty: exact."""

    version: int
    offsets: int = 0
    loaded: int = 0
    dead: int = 0
    control: int = 0
    aborted: int = 0
    compacted: int = 0
    files_checked: int = 0
    rows_compared: int = 0
    rows_gone_from_log: int = 0
    lag: int = 0
    sealed: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    missing: list[list[int]] = field(default_factory=list)


def audit(
    spark: Any, options: LoadOptions, *, now_ms: int, lateness_ms: int, seal: bool = True
) -> AuditReport:
    """Compare lake and log. Raises DataLossError if the topic is another one; problems are in the report."""
    table = Table(options.root)
    state = table.state()
    report = AuditReport(state.version)
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
        _check_counts(state, report)
        _check_files(table, state, report)
        _check_rows(spark, table, state, log, options.log, report)
        report.lag = sum(max(0, bound.end - state.ends.get(p, bound.start)) for p, bound in bounds.items())
        if seal and not report.problems:
            report.sealed = sealable_hours(log, bounds, state, now_ms=now_ms, lateness_ms=lateness_ms)
            if report.sealed:
                schema = EventSchema.from_dict(state.schema)
                manifest = new_manifest(
                    table, "seal", identity, schema, {"name": "audit", "id": options.job_id}
                )
                manifest.sealed = report.sealed
                table.commit(manifest)
    finally:
        log.close()
    _keep(table, report)
    return report


def raise_if_lossy(report: AuditReport) -> None:
    """Raise DataLossError if the audit found that something is missing or not what it should be."""
    if report.problems:
        missing = [MissingOffsets(*one) for one in report.missing]
        raise DataLossError(f"audit of version {report.version}: {'; '.join(report.problems)}", missing)


def _keep(table: Table, report: AuditReport) -> None:
    directory = table.root / "_audit"
    directory.mkdir(exist_ok=True)
    temporary = directory / f".{report.version}"
    temporary.write_text(json.dumps(asdict(report), indent=1))
    temporary.replace(directory / f"{report.version:020d}.json")


# --- counts and files -----------------------------------------------------------------------------------------------


def _check_counts(state: TableState, report: AuditReport) -> None:
    for total in state.totals.values():
        report.offsets += total.span
        for name in ("loaded", "dead", "control", "aborted", "compacted"):
            setattr(report, name, getattr(report, name) + getattr(total, name))
    rows = sum(file.rows for file in state.files.values())
    dead = sum(file.offsets for file in state.dead.values())
    if rows != report.loaded + state.redriven:
        report.problems.append(
            f"{rows} rows are in the files, {report.loaded} were loaded, {state.redriven} redriven"
        )
    if dead != report.dead - state.redriven:
        report.problems.append(
            f"{dead} offsets are dead letters, {report.dead} were, {state.redriven} redriven"
        )
    report.loaded, report.dead = rows, dead


def _check_files(table: Table, state: TableState, report: AuditReport) -> None:
    for file in (*state.files.values(), *state.dead.values()):
        path = Path(table.path(file.path))
        report.files_checked += 1
        if not path.exists():
            report.problems.append(f"{file.path} is missing: {file.rows} rows")
        elif path.stat().st_size != file.size or sha256_of(path) != file.sha256:
            report.problems.append(f"{file.path} is not as it was written")


# --- rows -----------------------------------------------------------------------------------------------------------


def _check_rows(
    spark: Any, table: Table, state: TableState, log: Log, log_options: LogOptions, report: AuditReport
) -> None:
    from pyspark.sql import functions as sf

    if not all(Path(table.path(path)).exists() for path in (*state.files, *state.dead)):
        return  # said already; Spark could not read them
    bounds = log.bounds()
    starts = {partition: bound.start for partition, bound in bounds.items()}
    readings = list(plan_rereading(table, state, log, starts))
    from_log = reread_frame(spark, readings, state, log_options)
    columns = [sf.col(f"`{name}`") for name in from_log.columns if name != "_bad"]
    lake = frames.events(spark, table).where(sf.col("_topic_id") == state.topic_id)
    in_lake = lake.select("_partition", "_offset", sf.xxhash64(*columns).alias("hash"))
    dead_here = frames.dead_letters(spark, table).where(sf.col("topic_id") == state.topic_id)
    in_dead = dead_here.select(
        sf.col("partition").alias("_partition"),
        sf.col("offset").alias("_offset"),
        sf.xxhash64("end_offset", "reason", "value").alias("hash"),
    )
    # In one expression, so that the log is read once.
    bad = sf.xxhash64("_bad.end_offset", "_bad.reason", "_bad.value")
    judged = sf.when(sf.col("_bad").isNull(), sf.xxhash64(*columns)).otherwise(bad)
    log_rows = from_log.select("_partition", "_offset", judged.alias("hash"))
    lake_rows = in_lake.unionByName(in_dead)
    sums = _sums(lake_rows)
    report.rows_compared = sum(count for count, _, _ in sums.values())
    if any(count != distinct for count, distinct, _ in sums.values()):
        twice = (
            lake_rows.groupBy("_partition", "_offset")
            .count()
            .where("count > 1")
            .limit(EXAMPLES_MAX)
            .collect()
        )
        report.problems += [
            f"offset {row['_offset']} of partition {row['_partition']} is there twice" for row in twice
        ]
    if sums != _sums(log_rows):
        _name_differences(log_rows, lake_rows, report)


def _sums(rows: Any) -> dict[int, tuple[int, int, int]]:
    """By partition: how many rows and offsets, and the sum of the hashes (which does not depend on their order)."""
    from pyspark.sql import functions as sf

    total = sf.sum(sf.col("hash").cast("decimal(38,0)")).alias("total")
    distinct = sf.count_distinct("_offset").alias("offsets")
    found = rows.groupBy("_partition").agg(sf.count("*").alias("count"), distinct, total).collect()
    return {row["_partition"]: (row["count"], row["offsets"], int(row["total"])) for row in found}


def _name_differences(log_rows: Any, lake_rows: Any, report: AuditReport) -> None:

    joined = log_rows.withColumnRenamed("hash", "log_hash").join(
        lake_rows.withColumnRenamed("hash", "lake_hash"), ["_partition", "_offset"], "full_outer"
    )
    report.rows_gone_from_log = joined.where("log_hash is null").count()
    for condition, what in (("lake_hash is null", "not in the lake"), ("lake_hash <> log_hash", "altered")):
        wrong = joined.where(condition)
        count = wrong.count()
        if count:
            examples = wrong.orderBy("_partition", "_offset").limit(EXAMPLES_MAX).collect()
            report.missing += [[row["_partition"], row["_offset"], row["_offset"] + 1] for row in examples]
            report.problems.append(f"{count} rows of the log are {what}")
