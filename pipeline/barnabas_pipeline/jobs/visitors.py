"""visitors: number of views and of visitors of each member's profile, and the last view.

The rule: profile views are keyed by the member that is viewed, so one partition has all views of a member. Each partition
is a separate part with its own counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from barnabas_pipeline.errors import UsageError
from barnabas_pipeline.jobs.derived import Derived, DerivedJob

if TYPE_CHECKING:
    import argparse

    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

    from barnabas_pipeline.data_types import Json

BUCKETS = 16


class Visitors(DerivedJob):
    """Partials: views by member and visitor. `rekeyed`: partitions were added, so members are in buckets instead."""

    name = "visitors"
    kinds = ("profiles",)

    def __init__(self, *, rekeyed: bool = False) -> None:
        self.rekeyed = rekeyed

    def part(self) -> SparkColumn:
        """See `derived.DerivedJob`."""
        from pyspark.sql import functions as sf

        if self.rekeyed:
            return sf.pmod(sf.xxhash64("member"), sf.lit(BUCKETS).cast("bigint"))
        return sf.col("_topic_partition")

    def partial(self, tables: Mapping[str, DataFrame]) -> DataFrame:
        """See `derived.DerivedJob`."""
        from pyspark.sql import functions as sf

        keys = ["member", "visitor", *([] if self.rekeyed else ["_topic_partition"])]
        return tables["profiles"].groupBy(*keys).agg(sf.count("*").alias("views"), sf.max("ts").alias("last"))

    def merge(self, partials: DataFrame) -> DataFrame:
        """See `derived.DerivedJob`."""
        from pyspark.sql import functions as sf

        keys = [column for column in partials.columns if column not in ("views", "last")]
        return partials.groupBy(*keys).agg(sf.sum("views").alias("views"), sf.max("last").alias("last"))

    def condense(self, partials: DataFrame) -> DataFrame:
        """Count each member's visitors within the member's part."""
        from pyspark.sql import functions as sf

        return partials.groupBy("part", "member").agg(
            sf.sum("views").alias("views"),
            sf.count_distinct("visitor").alias("visitors"),
            sf.max("last").alias("last"),
        )

    def finish(self, condensed: DataFrame) -> Mapping[str, DataFrame]:
        """Return `visitors`: one row per member. Raises UsageError for a member in two partitions."""
        from pyspark.sql import functions as sf

        twice = condensed.groupBy("member").agg(sf.array_sort(sf.collect_list("part")).alias("parts"))
        for row in twice.where("size(parts) > 1").orderBy("member").limit(1).collect():
            where = ", ".join(row["parts"])
            raise UsageError(
                f"member {row['member']} is in partitions {where}: count with --rekeyed if partitions were added"
            )
        return {"visitors": condensed.select("member", "views", "visitors", "last")}

    def messages(self, derived: Derived) -> Mapping[str, Json]:
        """See `derived.DerivedJob`."""
        return {row["member"]: row for row in derived.result("visitors").to_pylist()}

    @classmethod
    def add_options(cls, parser: argparse.ArgumentParser) -> None:
        """See `derived.DerivedJob`."""
        parser.add_argument(
            "--rekeyed",
            action="store_true",
            help="count by member across partitions, after partitions were added",
        )

    @classmethod
    def from_options(cls, args: argparse.Namespace) -> Visitors:
        """See `derived.DerivedJob`."""
        return cls(rekeyed=args.rekeyed)
