"""Comparison of values: the log is decoded again as by the load, and each row is compared with the lake's.

The rule: of the load's data only the choice of the schema is trusted. This costs as much as a load or more, so an audit
does it where cheaper evidence does not suffice, or everywhere on request.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from barnabas_pipeline.jobs.coverage import Inventory
from barnabas_pipeline.jobs.reread import plan_rereading, reread_frame
from barnabas_pipeline.lake import frames
from barnabas_pipeline.lake.columns import PARTITION
from barnabas_pipeline.lake.coordinates import Seen
from barnabas_pipeline.lake.table import Table
from barnabas_pipeline.log.model import Log, LogOptions, OffsetRange

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession

EXAMPLES_MAX = 20


@dataclass(slots=True)
class Differences:
    """Differences between log and lake within some ranges; lists have the first few coordinates (partition, offset)."""

    rows: int = 0
    gone: int = 0  # rows of the lake that the log lacks
    missing: int = 0
    missing_first: list[tuple[int, int]] = field(default_factory=list)
    altered: int = 0
    altered_first: list[tuple[int, int]] = field(default_factory=list)
    doubled_first: list[tuple[int, int]] = field(default_factory=list)


def compare(
    spark: SparkSession,
    table: Table,
    inventory: Inventory,
    log: Log,
    options: LogOptions,
    ranges: list[OffsetRange],
    unreadable: frozenset[str],
) -> Differences:
    """Compare all rows and dead letters within `ranges`, which are in the log; files in `unreadable` count as empty."""
    from pyspark.sql import functions as sf

    state = inventory.state
    readings = list(plan_rereading(inventory.entries, state, log, ranges))
    if not readings:
        return Differences()
    spark.conf.set(
        "spark.sql.legacy.allowHashOnMapType", "true"
    )  # maps are in the order of the event, in log and lake
    from_log = reread_frame(spark, readings, state, options)
    columns = [sf.col(f"`{name}`") for name in from_log.columns if name != "_bad"]
    pieces = [row.piece for row in _readable(inventory.rows, ranges, unreadable) if row.piece is not None]
    lake = frames.read_pieces(spark, table, state, pieces).where(sf.col("_topic_id") == state.topic_id)
    lake = lake.where(_within(ranges, PARTITION, "_offset"))
    in_lake = lake.select(PARTITION, "_offset", sf.xxhash64(*columns).alias("hash"))
    letters = [row.entry for row in _readable(inventory.dead, ranges, unreadable) if row.entry is not None]
    dead = frames.read_dead_letters(spark, table, letters)
    dead = dead.where(_within(ranges, "partition", "offset")).where(sf.col("topic_id") == state.topic_id)
    in_dead = dead.select(
        sf.col("partition").alias(PARTITION),
        sf.col("offset").alias("_offset"),
        sf.xxhash64("end_offset", "reason", "value").alias("hash"),
    )
    # In one expression, so that the log is read once.
    bad = sf.xxhash64("_bad.end_offset", "_bad.reason", "_bad.value")
    judged = sf.when(sf.col("_bad").isNull(), sf.xxhash64(*columns)).otherwise(bad)
    log_rows = from_log.select(PARTITION, "_offset", judged.alias("hash"))
    if inventory.erased:
        erased = frames.read_erased(spark, table, state, inventory.erased)
        log_rows = log_rows.join(erased, [PARTITION, "_offset"], "left_anti")
    lake_rows = in_lake.unionByName(in_dead)
    sums = _sums(lake_rows)
    differences = Differences(sum(count for count, _, _ in sums.values()))
    if any(count != distinct for count, distinct, _ in sums.values()):
        again = lake_rows.groupBy(PARTITION, "_offset").count().where("count > 1")
        differences.doubled_first = _first(again)
    if sums != _sums(log_rows):
        _name_differences(log_rows, lake_rows, differences)
    return differences


def _readable(files: Iterable[Seen], ranges: list[OffsetRange], unreadable: frozenset[str]) -> list[Seen]:
    return [
        seen
        for seen in files
        if seen.path not in unreadable and any(seen.may_have(a.partition, a.start, a.end) for a in ranges)
    ]


def _within(ranges: list[OffsetRange], partition: str, offset: str) -> SparkColumn:
    from pyspark.sql import functions as sf

    parts = [
        (sf.col(partition) == offset_range.partition)
        & (sf.col(offset) >= offset_range.start)
        & (sf.col(offset) < offset_range.end)
        for offset_range in ranges
    ]
    return reduce(or_, parts)


def _sums(rows: DataFrame) -> dict[int, tuple[int, int, int]]:
    """Return, by partition, (rows, offsets, sum of the hashes), which does not depend on their order."""
    from pyspark.sql import functions as sf

    total = sf.sum(sf.col("hash").cast("decimal(38,0)")).alias("total")
    distinct = sf.count_distinct("_offset").alias("offsets")
    grouped = rows.groupBy(PARTITION).agg(sf.count("*").alias("count"), distinct, total).collect()
    return {row[PARTITION]: (row["count"], row["offsets"], int(row["total"])) for row in grouped}


def _name_differences(log_rows: DataFrame, lake_rows: DataFrame, differences: Differences) -> None:
    joined = log_rows.withColumnRenamed("hash", "log_hash").join(
        lake_rows.withColumnRenamed("hash", "lake_hash"), [PARTITION, "_offset"], "full_outer"
    )
    differences.gone = joined.where("log_hash is null").count()
    missing, altered = joined.where("lake_hash is null"), joined.where("lake_hash <> log_hash")
    differences.missing, differences.altered = missing.count(), altered.count()
    differences.missing_first = _first(missing) if differences.missing else []
    differences.altered_first = _first(altered) if differences.altered else []


def _first(rows: DataFrame) -> list[tuple[int, int]]:
    examples = rows.orderBy(PARTITION, "_offset").limit(EXAMPLES_MAX).collect()
    return [(row[PARTITION], row["_offset"]) for row in examples]
