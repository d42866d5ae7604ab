"""monitor: roll-ups of service metrics and of log lines, and alerts.

The rule: a late event is counted as late and in its window; no event is dropped for being late.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import TYPE_CHECKING

from barnabas_pipeline.errors import UsageError
from barnabas_pipeline.jobs.derived import Derived, DerivedJob, day

if TYPE_CHECKING:
    import argparse

    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

    from barnabas_pipeline.data_types import Document, Json, Row
    from barnabas_pipeline.simulate.model import Truth

WINDOW_MS = 10_000
LATE_MS = 60_000
SCALE = 1000  # values are summed as thousandths, in whole numbers
RULES = {"latency_ms": 80.0, "errors": 12.0, "log_error": 3.0}
"""Limits by metric: of the mean of a window, or of the number of log lines."""
GAP_WINDOWS_MAX = 3


class Monitor(DerivedJob):
    """Partials: count, sum, minimum, maximum and number of late values by window, service and metric.

    Log lines are metrics without values, such as `log_error`, by level: only their number counts.
    """

    name = "monitor"
    kinds = ("metrics", "logs")

    def __init__(
        self, *, window_ms: int = WINDOW_MS, late_ms: int = LATE_MS, rules: Mapping[str, float] = RULES
    ) -> None:
        self.window_ms = window_ms
        self.late_ms = late_ms
        self.rules = dict(rules)

    def params(self) -> Document:
        """See `derived.DerivedJob`: the rules count in the last step."""
        return {"window_ms": self.window_ms, "late_ms": self.late_ms}

    def part(self) -> SparkColumn:
        """See `derived.DerivedJob`."""
        return day("window_start")

    def partial(self, tables: Mapping[str, DataFrame]) -> DataFrame:
        """See `derived.DerivedJob`."""
        from pyspark.sql import functions as sf

        window = (sf.col("ts") - sf.col("ts") % self.window_ms).alias("window_start")
        delay = sf.unix_millis("_timestamp") - sf.col("ts")
        late = sf.when(delay > self.late_ms, 1).otherwise(0).cast("bigint").alias("late")
        value = sf.round(sf.col("value") * SCALE).cast("bigint").alias("value")
        level = sf.concat(sf.lit("log_"), sf.col("level")).alias("metric")
        none = sf.lit(None).cast("bigint").alias("value")
        rows = []
        if "metrics" in tables:
            rows.append(tables["metrics"].select(window, "service", "metric", value, late))
        if "logs" in tables:
            rows.append(tables["logs"].select(window, "service", level, none, late))
        return reduce(lambda union, other: union.unionByName(other), rows).groupBy("window_start", "service", "metric").agg(
            sf.count("*").alias("count"), sf.sum("value").alias("total"), sf.min("value").alias("least"),
            sf.max("value").alias("most"), sf.sum("late").alias("late"),
        )  # fmt: skip

    def merge(self, partials: DataFrame) -> DataFrame:
        """See `derived.DerivedJob`."""
        from pyspark.sql import functions as sf

        return partials.groupBy("window_start", "service", "metric").agg(
            sf.sum("count").alias("count"), sf.sum("total").alias("total"), sf.min("least").alias("least"),
            sf.max("most").alias("most"), sf.sum("late").alias("late"),
        )  # fmt: skip

    def by_part(self, partials: DataFrame) -> Mapping[str, DataFrame]:
        """Return `rollups`: one row per window, service and metric, in a file for each day."""
        return {"rollups": self._rollups(partials)}

    def _rollups(self, partials: DataFrame) -> DataFrame:
        from pyspark.sql import functions as sf

        mean = (sf.col("total") / sf.col("count") / SCALE).alias("mean")
        least, most = ((sf.col(name) / SCALE).alias(name) for name in ("least", "most"))
        return partials.select(
            "part", "window_start", "service", "metric", "count", mean, least, most, "late"
        )

    def condense(self, partials: DataFrame) -> DataFrame:
        """Reduce each day to the number of windows of a metric, and the numbers of the windows above its rule."""
        from pyspark.sql import Window
        from pyspark.sql import functions as sf

        limits = sf.create_map(*(sf.lit(text) for pair in sorted(self.rules.items()) for text in pair))
        measure = sf.coalesce("mean", sf.col("count").cast("double")).alias("measure")
        number = sf.row_number().over(Window.partitionBy("part", "service", "metric").orderBy("window_start"))
        numbered = self._rollups(partials).select(
            "part", "service", "metric", "window_start", measure, number.alias("number")
        )
        above = sf.when(
            sf.col("measure") > limits[sf.col("metric")], sf.struct("number", "window_start", "measure")
        )
        return numbered.groupBy("part", "service", "metric").agg(
            sf.count("*").alias("windows"), sf.collect_list(above).alias("above")
        )

    def finish(self, condensed: DataFrame) -> Mapping[str, DataFrame]:
        """Return `alerts`: spans of time in which a metric was above its rule."""
        from pyspark.sql import Window
        from pyspark.sql import functions as sf

        metric = Window.partitionBy("service", "metric")
        days_before = metric.orderBy("part").rowsBetween(Window.unboundedPreceding, -1)
        before = sf.coalesce(sf.sum("windows").over(days_before), sf.lit(0))
        rows = condensed.withColumn("before", before).withColumn("one", sf.explode("above"))
        above = rows.select(
            "service", "metric", sf.col("one.window_start").alias("window_start"),
            (sf.col("before") + sf.col("one.number")).alias("number"), sf.col("one.measure").alias("measure"),
        )  # fmt: skip
        everywhere = metric.orderBy("window_start")
        # Windows without events do not end an alert: each window is compared with the previous existing window.
        last = sf.lag("number").over(everywhere)
        begins = sf.when(last.isNull() | (sf.col("number") - last > GAP_WINDOWS_MAX), 1).otherwise(0)
        alert = sf.sum("begins").over(everywhere)
        grouped = above.withColumn("begins", begins).withColumn("alert", alert)
        alerts = grouped.groupBy("service", "metric", "alert").agg(
            sf.min("window_start").alias("start"), (sf.max("window_start") + self.window_ms).alias("end"),
            sf.count("*").alias("windows"), sf.max("measure").alias("worst"),
        )  # fmt: skip
        return {"alerts": alerts.select("service", "metric", "start", "end", "windows", "worst")}

    def messages(self, derived: Derived) -> Mapping[str, Json]:
        """See `derived.DerivedJob`."""
        rows = derived.result("alerts").to_pylist()
        return {f"{row['service']}/{row['metric']}/{row['start']}": row for row in rows}

    def score(self, derived: Derived, truth: Truth) -> Document:
        """See `derived.DerivedJob`."""
        return dict(score(derived.result("alerts").to_pylist(), truth.incidents))

    @classmethod
    def add_options(cls, parser: argparse.ArgumentParser) -> None:
        """See `derived.DerivedJob`."""
        parser.add_argument("--window", type=float, default=10.0, metavar="SECONDS")
        parser.add_argument(
            "--watermark",
            type=float,
            default=60.0,
            metavar="SECONDS",
            help="delay after which an event counts as late",
        )
        parser.add_argument(
            "--rule",
            action="append",
            default=[],
            metavar="METRIC=LIMIT",
            help="limit of the mean of a window or, for log_error and the like, of the number of lines; may be repeated",
        )

    @classmethod
    def from_options(cls, args: argparse.Namespace) -> Monitor:
        """See `derived.DerivedJob`."""
        try:
            rules = {name: float(limit) for name, _, limit in (rule.partition("=") for rule in args.rule)}
        except ValueError as error:
            raise UsageError(f"--rule: {error}") from None
        return cls(
            window_ms=int(args.window * 1000), late_ms=int(args.watermark * 1000), rules=rules or RULES
        )


def score(alerts: list[Row], incidents: list[Row]) -> dict[str, float]:
    """Return precision (alerts that overlap an incident of their service) and recall (incidents with an alert)."""

    def overlap(alert: Row, incident: Row) -> bool:
        same = alert["service"] == incident["service"]
        return same and alert["start"] < incident["end"] and incident["start"] < alert["end"]

    right = sum(any(overlap(alert, incident) for incident in incidents) for alert in alerts)
    detected = sum(any(overlap(alert, incident) for alert in alerts) for incident in incidents)
    return {
        "precision": round(right / len(alerts), 4) if alerts else 1.0,
        "recall": round(detected / len(incidents), 4) if incidents else 1.0,
    }
