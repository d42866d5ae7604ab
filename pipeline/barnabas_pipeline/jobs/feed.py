"""feed: for each member the newest items that the members they follow voted for.

The rule: an item is in a feed once, for its newest vote; so a feed can be rewritten repeatedly by (member, item).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas_pipeline.errors import UsageError
from barnabas_pipeline.jobs.derived import Derived, DerivedJob

if TYPE_CHECKING:
    import argparse

    from pyspark.sql import DataFrame

    from barnabas_pipeline.data_types import Document, Json, Value
    from barnabas_pipeline.simulate.model import Truth

ITEMS_MAX = 20


class Feed(DerivedJob):
    """Partials: the newest votes in favour of each member, for as many items as a feed has."""

    name = "feed"
    kinds = ("votes",)

    def __init__(self, follows: Mapping[str, list[str]], *, items_max: int = ITEMS_MAX) -> None:
        self.follows = follows
        self.items_max = items_max

    def params(self) -> Document:
        """See `derived.DerivedJob`."""
        return {"items": self.items_max}

    def partial(self, tables: Mapping[str, DataFrame]) -> DataFrame:
        """See `derived.DerivedJob`."""
        from pyspark.sql import functions as sf

        votes = tables["votes"].where("vote > 0")
        newest = sf.max(sf.struct("ts", "_topic_partition", "_offset")).alias("last")
        return self._newest(votes.groupBy("member", "item").agg(newest))

    def merge(self, partials: DataFrame) -> DataFrame:
        """See `derived.DerivedJob`."""
        from pyspark.sql import functions as sf

        return self._newest(partials.groupBy("member", "item").agg(sf.max("last").alias("last")))

    def _newest(self, rows: DataFrame) -> DataFrame:
        from pyspark.sql import Window
        from pyspark.sql import functions as sf

        place = sf.row_number().over(Window.partitionBy("member").orderBy(sf.desc("last"), "item"))
        return rows.withColumn("place", place).where(sf.col("place") <= self.items_max).drop("place")

    def finish(self, condensed: DataFrame) -> Mapping[str, DataFrame]:
        """Return `feed`: member, place (1 is the newest), item, the voter, and the time of the vote in ms."""
        from pyspark.sql import Window
        from pyspark.sql import functions as sf

        rows = [(member, topic) for member, followed in sorted(self.follows.items()) for topic in followed]
        follows = condensed.sparkSession.createDataFrame(rows, "member string, followed string")
        voted = condensed.withColumnRenamed("member", "followed").join(follows, "followed")
        newest = voted.groupBy("member", "item").agg(sf.max(sf.struct("last", "followed")).alias("newest"))
        order = Window.partitionBy("member").orderBy(sf.desc("newest"), "item")
        placed = newest.withColumn("place", sf.row_number().over(order)).where(
            sf.col("place") <= self.items_max
        )
        columns = [sf.col("newest.followed").alias("voter"), sf.col("newest.last.ts").alias("ts")]
        return {"feed": placed.select("member", "place", "item", *columns)}

    def messages(self, derived: Derived) -> Mapping[str, Json]:
        """See `derived.DerivedJob`: each member's feed."""
        feeds: dict[str, list[Value]] = {}
        for row in derived.result("feed").to_pylist():
            feeds.setdefault(row["member"], []).append([row["item"], row["voter"], row["ts"]])
        return feeds

    def score(self, derived: Derived, truth: Truth) -> Document:
        """See `derived.DerivedJob`."""
        rows = derived.result("feed").to_pylist()
        return {"entries_of_strangers": sum(row["voter"] not in truth.follows[row["member"]] for row in rows)}

    @classmethod
    def add_options(cls, parser: argparse.ArgumentParser) -> None:
        """See `derived.DerivedJob`."""
        parser.add_argument(
            "--follows",
            metavar="FILE",
            help="JSON object of followed members by member; default: that of --truth",
        )
        parser.add_argument("--items", type=int, default=ITEMS_MAX, metavar="N", help="items of a feed")

    @classmethod
    def from_options(cls, args: argparse.Namespace) -> Feed:
        """See `derived.DerivedJob`."""
        if not args.follows and not args.truth:
            raise UsageError("feed needs --follows, or --truth of a simulation")
        document = json.loads(Path(args.follows or args.truth).read_text())
        return cls(document if args.follows else document["follows"], items_max=args.items)
