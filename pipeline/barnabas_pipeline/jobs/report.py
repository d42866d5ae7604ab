"""report: the tables of a day, from sealed hours only.

The rule: a report of the same sealed hours is the same bytes, whenever it is made. Hours that are not sealed are refused,
unless a partial report is asked for, which then says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from barnabas_pipeline.errors import IncompleteError, UsageError
from barnabas_pipeline.jobs.derived import write_table
from barnabas_pipeline.lake import frames
from barnabas_pipeline.lake.iceberg import Lake, lake_of
from barnabas_pipeline.lake.ledger import HOUR_MS, hour_name, hour_number
from barnabas_pipeline.lake.table import Table

TOP = 20
KINDS = ("views", "clicks", "votes", "logins")


@dataclass(slots=True)
class ReportSummary:
    """Figures of a written report."""

    day: str
    hours: int = 0
    unsealed: list[str] = field(default_factory=list)
    rows: dict[str, int] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)


def report(
    spark: Any,
    *,
    lake: Lake | str,
    out: str,
    day: str,
    prefix: str = "",
    partial: bool = False,
    kinds: tuple[str, ...] = KINDS,
) -> ReportSummary:
    """Write the tables of a day (`2026-11-20`, UTC) to `out/<day>/`. Raises IncompleteError for unsealed hours."""
    try:
        first = hour_number(f"{day}T00")
    except ValueError:
        raise UsageError(f"{day!r} is no day, like 2026-11-20") from None
    summary = ReportSummary(day)
    tables: dict[str, Any] = {}
    wanted: set[int] = set()
    for kind in kinds:
        table = Table(lake_of(lake).place(f"{prefix}{kind}"))
        state = table.state()
        if not state.version:
            continue
        hours = sorted(hour for hour in state.hours if first <= hour < first + 24)
        summary.unsealed += [f"{kind} {hour_name(hour)}" for hour in hours if hour not in state.sealed]
        summary.versions[kind] = state.version
        wanted |= set(hours)
        tables[kind] = frames.events(spark, table, span_ms=(first * HOUR_MS, (first + 24) * HOUR_MS))
    if not wanted:
        raise UsageError(f"the lake has nothing of {day}")
    if summary.unsealed and not partial:
        raise IncompleteError(
            f"not sealed yet: {', '.join(summary.unsealed)}; run the audit, or ask for --partial"
        )
    summary.hours = len(wanted)
    directory = Path(out) / (f"{day}-partial" if summary.unsealed else day)
    directory.mkdir(parents=True, exist_ok=True)
    for name, frame in tables_of(tables).items():
        rows = frame.toArrow()
        write_table(directory / name, rows)
        summary.rows[name] = rows.num_rows
    return summary


def tables_of(tables: Mapping[str, Any]) -> dict[str, Any]:
    """The tables of a report, each in a fixed order."""
    from pyspark.sql import functions as sf

    made: dict[str, Any] = {}
    hour = sf.date_format(sf.timestamp_millis("ts"), "yyyy-MM-dd'T'HH").alias("hour")
    if "views" in tables:
        views = tables["views"]
        made["traffic_by_hour"] = (
            views.groupBy(hour)
            .agg(
                sf.count("*").alias("views"),
                sf.count_distinct("member").alias("members"),
                sf.count_distinct("session").alias("sessions"),
                sf.sum(sf.when(sf.col("status") >= 400, 1).otherwise(0)).alias("errors"),
                sf.percentile("took_ms", sf.lit(0.5)).alias("took_ms_median"),
            )
            .orderBy("hour")
        )
        counted = views.where("item is not null").groupBy("item").agg(sf.count("*").alias("views"))
        if "clicks" in tables:
            clicks = tables["clicks"].groupBy("item").agg(sf.count("*").alias("clicks"))
            counted = counted.join(clicks, "item", "left").na.fill(0)
        made["top_items"] = counted.orderBy(sf.desc("views"), "item").limit(TOP)
        made["status_codes"] = views.groupBy("status").agg(sf.count("*").alias("views")).orderBy("status")
    if "votes" in tables:
        votes = tables["votes"].groupBy(hour).agg(
            sf.sum(sf.when(sf.col("vote") > 0, 1).otherwise(0)).alias("up"),
            sf.sum(sf.when(sf.col("vote") < 0, 1).otherwise(0)).alias("down"),
        )  # fmt: skip
        made["votes_by_hour"] = votes.orderBy("hour")
    if "logins" in tables:
        logins = tables["logins"].groupBy(hour).agg(
            sf.count("*").alias("logins"), sf.sum(sf.when(sf.col("ok"), 0).otherwise(1)).alias("failed")
        )  # fmt: skip
        made["logins_by_hour"] = logins.orderBy("hour")
    return made
