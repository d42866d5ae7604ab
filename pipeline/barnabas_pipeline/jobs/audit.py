"""audit: is every offset of the log accounted for in the lake, and is every row what the log says? Then seal hours.

The rule: the log is read again and decoded as the load decoded it; nothing that the load said of itself is believed.

    loaded + dead letters + control + aborted + compacted = offsets            by partition
    digests of all rows, from the log and from the lake: equal                 if not: joined, to name the offsets
    every file has the size and the SHA-256 that its manifest says

Rows whose offsets the log no longer has (retention, compaction) can only be checked by their files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from barnabas_pipeline.decode import Decoder
from barnabas_pipeline.errors import DataLossError, MissingOffsets
from barnabas_pipeline.jobs.load import LoadOptions, find_loss, new_manifest
from barnabas_pipeline.jobs.seal import sealable_hours
from barnabas_pipeline.lake import frames
from barnabas_pipeline.lake.files import lake_schema, sha256_of
from barnabas_pipeline.lake.manifest import Manifest, TableState
from barnabas_pipeline.lake.table import Table
from barnabas_pipeline.lake.task import to_table
from barnabas_pipeline.log.columns import Columns, select
from barnabas_pipeline.log.model import Log, LogOptions, OffsetRange, open_log
from barnabas_pipeline.log.planning import split
from barnabas_pipeline.log.reader import RangeReader
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


@dataclass(frozen=True, slots=True)
class Rereading:
    """How one range was decoded: by the schema of its load, single offsets by that of their redrive."""

    wanted: OffsetRange
    decoder: Decoder
    redriven: tuple[int, ...]
    redrive_decoder: Decoder | None


def _check_rows(
    spark: Any, table: Table, state: TableState, log: Log, log_options: LogOptions, report: AuditReport
) -> None:
    from pyspark.sql import functions as sf

    if not all(Path(table.path(path)).exists() for path in (*state.files, *state.dead)):
        return  # said already; Spark could not read them
    bounds = log.bounds()
    starts = {partition: bound.start for partition, bound in bounds.items()}
    readings = list(_readings(table, state, log, starts))
    from_log = _from_log(spark, readings, state, log_options)
    columns = [sf.col(f"`{name}`") for name in from_log.columns if name != "_bad"]
    lake = frames.events(spark, table).where(sf.col("_topic_id") == state.topic_id)
    in_lake = lake.select("_partition", "_offset", sf.xxhash64(*columns).alias("hash"))
    of_log = from_log.where("_bad is null").select(
        "_partition", "_offset", sf.xxhash64(*columns).alias("hash")
    )
    dead_here = frames.dead_letters(spark, table).where(sf.col("topic_id") == state.topic_id)
    in_dead = dead_here.select(
        sf.col("partition").alias("_partition"),
        sf.col("offset").alias("_offset"),
        sf.xxhash64("end_offset", "reason", "value").alias("hash"),
    )
    dead_of_log = from_log.where("_bad is not null").select(
        "_partition", "_offset", sf.xxhash64("_bad.end_offset", "_bad.reason", "_bad.value").alias("hash")
    )
    lake_rows = in_lake.unionByName(in_dead)
    log_rows = of_log.unionByName(dead_of_log)
    sums = _sums(lake_rows)
    report.rows_compared = sum(count for count, _ in sums.values())
    twice = (
        lake_rows.groupBy("_partition", "_offset").count().where("count > 1").limit(EXAMPLES_MAX).collect()
    )
    report.problems += [
        f"offset {row['_offset']} of partition {row['_partition']} is there twice" for row in twice
    ]
    if sums != _sums(log_rows):
        _name_differences(log_rows, lake_rows, report)


def _sums(rows: Any) -> dict[int, tuple[int, int]]:
    """By partition: how many rows, and the sum of their hashes (which does not depend on their order)."""
    from pyspark.sql import functions as sf

    total = sf.sum(sf.col("hash").cast("decimal(38,0)")).alias("total")
    found = rows.groupBy("_partition").agg(sf.count("*").alias("count"), total).collect()
    return {row["_partition"]: (row["count"], int(row["total"])) for row in found}


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


def _readings(table: Table, state: TableState, log: Log, starts: dict[int, int]) -> Iterator[Rereading]:
    manifests = [manifest for manifest, _ in table.manifests()]
    manifests = [
        one for one in manifests if (one.cluster_id, one.topic_id) == (state.cluster_id, state.topic_id)
    ]
    redriven: dict[int, list[int]] = {}
    redrive_decoder = None
    for manifest in manifests:
        if manifest.kind == "redrive":
            redrive_decoder = _decoder(manifest)
            for key, offsets in manifest.redriven.items():
                redriven.setdefault(int(key), []).extend(offsets)
    for manifest in manifests:
        for key, commit in manifest.partitions.items():
            partition = int(key)
            start = max(commit.start, starts.get(partition, commit.end))
            if start >= commit.end:
                continue
            for piece in split(log, [OffsetRange(partition, start, commit.end)]):
                mine = tuple(one for one in redriven.get(partition, ()) if piece.start <= one < piece.end)
                yield Rereading(piece, _decoder(manifest), mine, redrive_decoder)


def _decoder(manifest: Manifest) -> Decoder:
    return Decoder(EventSchema.from_dict(manifest.schema), **manifest.job.get("decoder", {}))


def _from_log(spark: Any, readings: list[Rereading], state: TableState, log_options: LogOptions) -> Any:
    """All rows that the log has of the loaded ranges; `_bad` is set for those that must be dead letters."""
    import pyarrow as pa

    schema = EventSchema.from_dict(state.schema)
    bad_type = pa.struct([("end_offset", pa.int64()), ("reason", pa.string()), ("value", pa.binary())])
    arrow = lake_schema(schema).append(pa.field("_bad", bad_type))
    topic_id = state.topic_id

    def read(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            for index in batch.column(0).to_pylist():
                for table in reread(readings[index], log_options, topic_id, arrow):
                    yield from table.to_batches(max_chunksize=10_000)

    indexes = spark.range(0, len(readings), 1, max(1, len(readings)))
    return indexes.mapInArrow(read, frames.spark_schema(arrow))


def reread(reading: Rereading, log_options: LogOptions, topic_id: str, arrow: Any) -> Iterator[Any]:
    """Read and decode a range as its load did, widened to the columns `arrow`."""
    import numpy as np
    import pyarrow as pa

    partition = reading.wanted.partition
    log = open_log(log_options)
    try:
        for item in RangeReader(log, reading.wanted):
            if not isinstance(item, Columns):
                bad = {"end_offset": item.end, "reason": item.reason, "value": item.data}
                yield _bad_rows(arrow, partition, [item.start], [bad])
                continue
            again = np.isin(item.offset, reading.redriven)
            for columns, decoder in (
                (select(item, ~again), reading.decoder),
                (select(item, again), reading.redrive_decoder),
            ):
                if not len(columns) or decoder is None:
                    continue
                table, refused = to_table(columns, decoder, topic_id, partition)
                arrays = [
                    table[name]
                    if name in table.column_names
                    else pa.nulls(len(table), arrow.field(name).type)
                    for name in arrow.names
                ]
                yield pa.Table.from_arrays(arrays, schema=arrow)
                if refused:
                    offsets = [int(columns.offset[one.row]) for one in refused]
                    yield _bad_rows(
                        arrow,
                        partition,
                        offsets,
                        [
                            {
                                "end_offset": at + 1,
                                "reason": one.reason,
                                "value": columns.value[one.row].as_py(),
                            }
                            for at, one in zip(offsets, refused, strict=True)
                        ],
                    )
    finally:
        log.close()


def _bad_rows(arrow: Any, partition: int, offsets: list[int], bad: list[dict[str, Any]]) -> Any:
    import pyarrow as pa

    given = {"_partition": [partition] * len(offsets), "_offset": offsets, "_bad": bad}
    arrays = [
        pa.array(given[one.name], one.type) if one.name in given else pa.nulls(len(offsets), one.type)
        for one in arrow
    ]
    return pa.Table.from_arrays(arrays, schema=arrow)
