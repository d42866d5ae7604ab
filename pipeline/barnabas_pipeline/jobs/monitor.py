"""monitor: roll-ups of service metrics, and alerts.

The rule: an event that comes late is counted as late and still in its window; nothing is dropped for being late.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

WINDOW_MS = 10_000
LATE_MS = 60_000
SCALE = 1000  # values are summed as thousandths, in whole numbers
RULES = {"latency_ms": 80.0, "errors": 12.0}
GAP_WINDOWS_MAX = 3


class Monitor:
    """Partials: count, sum, least, most and late ones by window, service and metric."""

    name = "monitor"
    kinds = ("metrics",)

    def __init__(
        self, *, window_ms: int = WINDOW_MS, late_ms: int = LATE_MS, rules: Mapping[str, float] = RULES
    ) -> None:
        self.window_ms = window_ms
        self.late_ms = late_ms
        self.rules = dict(rules)

    def partial(self, tables: Mapping[str, Any]) -> Any:
        """See `derived.DerivedJob`."""
        from pyspark.sql import functions as sf

        window = (sf.col("ts") - sf.col("ts") % self.window_ms).alias("window_start")
        delay = sf.unix_millis("_timestamp") - sf.col("ts")
        value = sf.round(sf.col("value") * SCALE).cast("bigint")
        return tables["metrics"].groupBy(window, "service", "metric").agg(
            sf.count("*").alias("count"), sf.sum(value).alias("total"), sf.min(value).alias("least"),
            sf.max(value).alias("most"),
            sf.sum(sf.when(delay > self.late_ms, 1).otherwise(0).cast("bigint")).alias("late"),
        )  # fmt: skip

    def merge(self, partials: Any) -> Any:
        """See `derived.DerivedJob`."""
        from pyspark.sql import functions as sf

        return partials.groupBy("window_start", "service", "metric").agg(
            sf.sum("count").alias("count"), sf.sum("total").alias("total"), sf.min("least").alias("least"),
            sf.max("most").alias("most"), sf.sum("late").alias("late"),
        )  # fmt: skip

    def finish(self, partials: Any) -> Mapping[str, Any]:
        """`rollups`: one row per window, service and metric. `alerts`: when a mean was above its rule, from, to."""
        from pyspark.sql import Window
        from pyspark.sql import functions as sf

        mean = (sf.col("total") / sf.col("count") / SCALE).alias("mean")
        least, most = ((sf.col(name) / SCALE).alias(name) for name in ("least", "most"))
        rollups = partials.select("window_start", "service", "metric", "count", mean, least, most, "late")
        limits = sf.create_map(*(sf.lit(one) for pair in sorted(self.rules.items()) for one in pair))
        above = rollups.withColumn("limit", limits[sf.col("metric")]).where("mean > limit")
        everywhere = Window.partitionBy("service", "metric").orderBy("window_start")
        # Windows without events are no reason to end an alert: what counts is the window before among those that are.
        numbered = rollups.select(
            "service", "metric", "window_start", sf.row_number().over(everywhere).alias("number")
        )
        placed = above.join(numbered, ["service", "metric", "window_start"])
        before = sf.lag("number").over(everywhere)
        begins = sf.when(before.isNull() | (sf.col("number") - before > GAP_WINDOWS_MAX), 1).otherwise(0)
        alert = sf.sum("begins").over(everywhere)
        grouped = placed.withColumn("begins", begins).withColumn("alert", alert)
        alerts = grouped.groupBy("service", "metric", "alert").agg(
            sf.min("window_start").alias("start"), (sf.max("window_start") + self.window_ms).alias("end"),
            sf.count("*").alias("windows"), sf.max("mean").alias("worst"),
        )  # fmt: skip
        return {
            "rollups": rollups,
            "alerts": alerts.select("service", "metric", "start", "end", "windows", "worst"),
        }


def score(alerts: list[dict[str, Any]], incidents: list[dict[str, Any]]) -> dict[str, float]:
    """Precision (alerts that overlap an incident of their service) and recall (incidents that have an alert)."""

    def overlap(alert: dict[str, Any], incident: dict[str, Any]) -> bool:
        same = alert["service"] == incident["service"]
        return same and alert["start"] < incident["end"] and incident["start"] < alert["end"]

    right = sum(any(overlap(alert, incident) for incident in incidents) for alert in alerts)
    found = sum(any(overlap(alert, incident) for alert in alerts) for incident in incidents)
    return {
        "precision": round(right / len(alerts), 4) if alerts else 1.0,
        "recall": round(found / len(incidents), 4) if incidents else 1.0,
    }
