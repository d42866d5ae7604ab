"""rank: a ranking of items by clicks per view and by votes, with greater weights for recent events.

The rule: every fraction counts with the lower bound of its confidence interval (Wilson's score), so that few events have a
low score; a member has one vote per item, so that repeated votes have no effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from barnabas_pipeline.jobs.derived import Derived, DerivedJob, day

if TYPE_CHECKING:
    import argparse

    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

    from barnabas_pipeline.data_types import Document, Json, Row
    from barnabas_pipeline.simulate.model import Truth

WINDOW_MS = 600_000
HALF_LIFE_MS = 6 * 3_600_000
Z = 1.96  # 95 %
VOTE_BUCKETS = 16
WEIGHT_BITS = 20  # scale of weights, as whole numbers, so that sums do not depend on the order


class Rank(DerivedJob):
    """Partials: views and clicks by item and window; the last vote of each member for each item."""

    name = "rank"
    kinds = ("views", "clicks", "votes")

    def __init__(self, *, window_ms: int = WINDOW_MS, half_life_ms: int = HALF_LIFE_MS) -> None:
        self.window_ms = window_ms
        self.half_life_ms = half_life_ms

    def params(self) -> Document:
        """See `derived.DerivedJob`."""
        return {"window_ms": self.window_ms}

    def part(self) -> SparkColumn:
        """Return the day for counts, the bucket of the item for votes."""
        from pyspark.sql import functions as sf

        bucket = sf.pmod(sf.xxhash64("item"), sf.lit(VOTE_BUCKETS).cast("bigint"))
        return sf.when(sf.col("member").isNull(), day("window_start")).otherwise(
            sf.concat(sf.lit("votes-"), bucket)
        )

    def partial(self, tables: Mapping[str, DataFrame]) -> DataFrame:
        """See `derived.DerivedJob`."""
        from pyspark.sql import functions as sf

        parts = []
        for kind in ("views", "clicks"):
            if kind in tables:
                events = tables[kind].where("item is not null")
                if kind == "views":
                    events = events.where("status = 200 and js")
                parts.append(
                    events.groupBy(
                        "item", (sf.col("ts") - sf.col("ts") % self.window_ms).alias("window_start")
                    ).agg(
                        (sf.count("*") if kind == "views" else sf.lit(0).cast("bigint")).alias("views"),
                        (sf.count("*") if kind == "clicks" else sf.lit(0).cast("bigint")).alias("clicks"),
                        sf.lit(None).cast("string").alias("member"),
                        _no_vote().alias("vote"),
                    )
                )
        if "votes" in tables:
            last = sf.max(sf.struct("ts", "_topic_partition", "_offset", "vote"))
            votes = tables["votes"].groupBy("item", "member").agg(last.alias("vote"))
            zero = sf.lit(0).cast("bigint")
            parts.append(votes.select("item", zero.alias("window_start"), zero.alias("views"), zero.alias("clicks"),
                                      "member", "vote"))  # fmt: skip
        union = parts[0]
        for part in parts[1:]:
            union = union.unionByName(part)
        return union

    def merge(self, partials: DataFrame) -> DataFrame:
        """See `derived.DerivedJob`."""
        from pyspark.sql import functions as sf

        return partials.groupBy("item", "window_start", "member").agg(
            sf.sum("views").alias("views"), sf.sum("clicks").alias("clicks"), sf.max("vote").alias("vote")
        )

    def condense(self, partials: DataFrame) -> DataFrame:
        """Sum up by item: counts of each day, weighted as of its last window, and votes."""
        from pyspark.sql import Window
        from pyspark.sql import functions as sf

        newest = sf.max("window_start").over(Window.partitionBy("part"))
        age = (sf.col("newest") - sf.col("window_start")) / self.half_life_ms
        weight = sf.round(sf.pow(sf.lit(2.0), sf.lit(float(WEIGHT_BITS)) - age)).cast("bigint")
        zero = sf.lit(0).cast("bigint")
        weighed = (
            partials.withColumn("newest", newest)
            .withColumn("weight", sf.when(sf.col("member").isNull(), weight).otherwise(zero))
            .groupBy("part", "item")
        )
        return weighed.agg(
            sf.max(sf.when(sf.col("member").isNull(), sf.col("newest"))).alias("newest"),
            sf.sum("views").alias("views"),
            sf.sum("clicks").alias("clicks"),
            sf.sum(sf.col("views") * sf.col("weight")).alias("views_weighed"),
            sf.sum(sf.col("clicks") * sf.col("weight")).alias("clicks_weighed"),
            sf.sum(sf.when(sf.col("vote.vote") > 0, 1).otherwise(0)).alias("votes_up"),
            sf.sum(sf.when(sf.col("vote.vote") < 0, 1).otherwise(0)).alias("votes_down"),
        )

    def finish(self, condensed: DataFrame) -> Mapping[str, DataFrame]:
        """Return `rank`: one row per item, best first."""
        from pyspark.sql import Window
        from pyspark.sql import functions as sf

        last = condensed.agg(sf.max("newest").alias("last"))
        lag = (sf.col("newest") - sf.col("last")) / self.half_life_ms
        factor = sf.coalesce(sf.pow(sf.lit(2.0), lag), sf.lit(0.0))
        scale = float(1 << WEIGHT_BITS)

        def in_order(column: str) -> SparkColumn:
            """Return the sum of fractions, added by day, so that it does not depend on the order of rows."""
            terms = sf.collect_list(sf.struct("part", (sf.col(column) / scale * factor).alias("term")))
            return sf.aggregate(sf.array_sort(terms), sf.lit(0.0), lambda total, term: total + term["term"])

        names = ("views", "clicks", "votes_up", "votes_down")
        joined = condensed.crossJoin(last).groupBy("item").agg(
            *(sf.sum(name).alias(name) for name in names),
            in_order("views_weighed").alias("views_weighed"), in_order("clicks_weighed").alias("clicks_weighed"),
        )  # fmt: skip
        views, clicks = sf.col("views_weighed"), sf.col("clicks_weighed")
        scored = joined.select(
            "item", "views", "clicks", "votes_up", "votes_down",
            wilson(sf.least(clicks, views), views).alias("ctr_low"),
            wilson(sf.col("votes_up"), sf.col("votes_up") + sf.col("votes_down")).alias("votes_low"),
        ).withColumn("score", sf.round(sf.col("ctr_low") * 0.7 + sf.col("votes_low") * 0.3, 12))  # fmt: skip
        position = sf.row_number().over(Window.orderBy(sf.desc("score"), "item")).alias("position")
        return {"rank": scored.select(position, *scored.columns)}

    def messages(self, derived: Derived) -> Mapping[str, Json]:
        """See `derived.DerivedJob`."""
        return {row["item"]: row for row in derived.result("rank").to_pylist()}

    def score(self, derived: Derived, truth: Truth) -> Document:
        """See `derived.DerivedJob`."""
        return dict(score(derived.result("rank").to_pylist(), truth.quality))

    @classmethod
    def add_options(cls, parser: argparse.ArgumentParser) -> None:
        """See `derived.DerivedJob`."""
        parser.add_argument(
            "--half-life",
            type=float,
            default=6.0,
            metavar="HOURS",
            help="half-life of the weight of an event",
        )
        parser.add_argument("--window", type=float, default=10.0, metavar="MINUTES")

    @classmethod
    def from_options(cls, args: argparse.Namespace) -> Rank:
        """See `derived.DerivedJob`."""
        return cls(window_ms=int(args.window * 60_000), half_life_ms=int(args.half_life * 3_600_000))


def _no_vote() -> SparkColumn:
    from pyspark.sql import functions as sf

    return sf.lit(None).cast("struct<ts: bigint, _topic_partition: int, _offset: bigint, vote: bigint>")


def wilson(successes: SparkColumn, trials: SparkColumn) -> SparkColumn:
    """Return the lower bound of Wilson's score interval, 0 without trials."""
    from pyspark.sql import functions as sf

    n = sf.when(trials > 0, trials.cast("double"))
    p = successes / n
    spread = Z * sf.sqrt(p * (1 - p) / n + Z * Z / (4 * n * n))
    return sf.coalesce(
        sf.round(sf.greatest((p + Z * Z / (2 * n) - spread) / (1 + Z * Z / n), sf.lit(0.0)), 12), sf.lit(0.0)
    )


def score(ranked: list[Row], quality: Mapping[str, float], *, top: int = 20) -> dict[str, float]:
    """Return the quality of a ranking: Spearman's correlation with the true quality, and NDCG of the first `top`.

    Items with fewer than 20 views are excluded from the correlation, as they have too little data.
    """
    from math import log2

    seen = [row for row in ranked if row["views"] >= 20]
    by_truth = {row["item"]: n for n, row in enumerate(sorted(seen, key=lambda row: -quality[row["item"]]))}
    count = len(seen)
    squares = sum((n - by_truth[row["item"]]) ** 2 for n, row in enumerate(seen))
    spearman = 1 - 6 * squares / (count * (count * count - 1)) if count > 2 else 0.0
    gained = sum(quality[row["item"]] / log2(n + 2) for n, row in enumerate(ranked[:top]))
    best = sum(grade / log2(n + 2) for n, grade in enumerate(sorted(quality.values(), reverse=True)[:top]))
    return {"spearman": round(spearman, 4), "ndcg": round(gained / best, 4), "items": count}
