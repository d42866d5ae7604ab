"""report: the tables of a day, from sealed hours only.

The rule: reports of the same sealed hours have the same bytes at any time. Hours that are not sealed are refused, unless a
partial report is requested, which is marked as such. Counts of a day are kept in `_days/<day>/`, so that a later report
reads only new files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from barnabas_pipeline.errors import IncompleteError, UsageError
from barnabas_pipeline.jobs.derived import Derived, DerivedJob
from barnabas_pipeline.jobs.results import results_location
from barnabas_pipeline.lake.iceberg import Lake
from barnabas_pipeline.lake.ledger import HOUR_MS, State, hour_name, hour_number

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession

    from barnabas_pipeline.data_types import Document

TOP = 20
DAYS = "_days"


@dataclass(slots=True)
class ReportSummary:
    """Figures of a written report."""

    day: str
    hours: int = 0
    unsealed: list[str] = field(default_factory=list)
    rows_read: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)


def report(
    spark: SparkSession, *, lake: Lake | str, out: str, day: str, prefix: str = "", partial: bool = False
) -> ReportSummary:
    """Write the tables of a day (`2026-11-20`, UTC) to `out/<day>/`. Raises IncompleteError for unsealed hours."""
    try:
        first = hour_number(f"{day}T00")
    except ValueError:
        raise UsageError(f"{day!r} is no day, like 2026-11-20") from None
    job = Report()
    span_ms = (first * HOUR_MS, (first + 24) * HOUR_MS)
    derived = Derived(job, lake=lake, root=f"{out}/{DAYS}/{day}", prefix=prefix, span_ms=span_ms)
    states = derived.states()
    summary = judged(ReportSummary(day), states, first)
    if not summary.hours:
        raise UsageError(f"the lake has nothing of {day}")
    if summary.unsealed and not partial:
        raise IncompleteError(
            f"not sealed yet: {', '.join(summary.unsealed)}; run the audit, or ask for --partial"
        )
    job.loaded = tuple(summary.versions)
    directory = f"{results_location(out)}/{day}{'-partial' if summary.unsealed else ''}"
    done = derived.update(spark, states=states, out=directory)
    summary.rows, summary.rows_read = done.rows, done.rows_read
    return summary


def judged(summary: ReportSummary, states: Mapping[str, State], first: int) -> ReportSummary:
    """Return the summary with the hours of a day with events, and with the unsealed hours among them."""
    present: set[int] = set()
    for kind, state in states.items():
        if state.version:
            hours = sorted(hour for hour in state.hours if first <= hour < first + 24)
            summary.unsealed += [f"{kind} {hour_name(hour)}" for hour in hours if hour not in state.sealed]
            summary.versions[kind] = state.version
            present |= {*hours}
    summary.hours = len(present)
    return summary


class Report(DerivedJob):
    """Partials: counts by hour, of a measure `what` and the `key` that it is grouped by."""

    name = "report"
    kinds = ("views", "clicks", "votes", "logins")
    counted = (
        ("views", "status", "cast(status as string)"),
        ("views", "member", "member"),
        ("views", "session", "session"),
        ("views", "took_ms", "cast(took_ms as string)"),
        ("views", "item_views", "item"),
        ("clicks", "item_clicks", "item"),
        ("votes", "vote", "case when vote > 0 then 'up' when vote < 0 then 'down' end"),
        ("logins", "login", "cast(ok as string)"),
    )

    def __init__(self) -> None:
        self.loaded: tuple[str, ...] = self.kinds
        """The loaded tables."""

    def params(self) -> Document:
        """See `derived.DerivedJob`."""
        return {}

    def partial(self, tables: Mapping[str, DataFrame]) -> DataFrame:
        """See `derived.DerivedJob`."""
        from pyspark.sql import functions as sf

        hour = sf.date_format(sf.timestamp_millis("ts"), "yyyy-MM-dd'T'HH").alias("hour")
        pairs = {
            kind: sf.array(*(
                sf.struct(sf.lit(what).alias("what"), sf.expr(key).alias("key"))
                for source, what, key in self.counted if source == kind
            ))
            for kind in tables
        }  # fmt: skip
        rows = [table.select(hour, sf.inline(pairs[kind])) for kind, table in tables.items()]
        union = rows[0]
        for frame in rows[1:]:
            union = union.unionByName(frame)
        return union.groupBy("hour", "what", "key").agg(sf.count("*").alias("count"))

    def finish(self, condensed: DataFrame) -> Mapping[str, DataFrame]:
        """Return the tables of a report, of loaded topics only."""
        from pyspark.sql import functions as sf

        def what(name: str) -> DataFrame:
            return condensed.where(sf.col("what") == name)

        def total(condition: str) -> SparkColumn:
            return sf.sum(sf.when(sf.expr(condition), sf.col("count")).otherwise(0))

        results: dict[str, DataFrame] = {}
        if "views" in self.loaded:
            took = sf.when(sf.col("what") == "took_ms", sf.col("key").try_cast("double"))
            frequency = sf.when(took.isNotNull(), sf.col("count")).otherwise(0)
            results["traffic_by_hour"] = condensed.groupBy("hour").agg(
                total("what = 'status'").alias("views"),
                sf.count_if(sf.expr("what = 'member' and key is not null")).alias("members"),
                sf.count_if(sf.expr("what = 'session' and key is not null")).alias("sessions"),
                total("what = 'status' and try_cast(key as bigint) >= 400").alias("errors"),
                sf.percentile(took, sf.lit(0.5), frequency).alias("took_ms_median"),
            ).where("views > 0")  # fmt: skip
            items = what("item_views").where("key is not null").groupBy(sf.col("key").alias("item"))
            counted = items.agg(sf.sum("count").alias("views"))
            if "clicks" in self.loaded:
                clicks = what("item_clicks").groupBy(sf.col("key").alias("item")).agg(
                    sf.sum("count").alias("clicks"))  # fmt: skip
                counted = counted.join(clicks, "item", "left").na.fill(0)
            results["top_items"] = counted.orderBy(sf.desc("views"), "item").limit(TOP)
            status = sf.col("key").try_cast("bigint").alias("status")
            results["status_codes"] = what("status").groupBy(status).agg(sf.sum("count").alias("views"))
        if "votes" in self.loaded:
            results["votes_by_hour"] = what("vote").groupBy("hour").agg(
                total("key = 'up'").alias("up"), total("key = 'down'").alias("down"))  # fmt: skip
        if "logins" in self.loaded:
            results["logins_by_hour"] = what("login").groupBy("hour").agg(
                sf.sum("count").alias("logins"), total("key = 'false'").alias("failed"))  # fmt: skip
        return results
