"""feed: for each member the newest items that the members they follow voted for.

The rule: an item is in a feed once, for its newest vote; so a feed can be written again and again by (member, item).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ITEMS_MAX = 20


class Feed:
    """Partials: of each member the newest votes in favour, as many items as a feed has."""

    name = "feed"
    kinds = ("votes",)

    def __init__(self, follows: Mapping[str, list[str]], *, items_max: int = ITEMS_MAX) -> None:
        self.follows = follows
        self.items_max = items_max

    def partial(self, tables: Mapping[str, Any]) -> Any:
        """See `derived.DerivedJob`."""
        from pyspark.sql import functions as sf

        votes = tables["votes"].where("vote > 0")
        newest = sf.max(sf.struct("ts", "_topic_partition", "_offset")).alias("last")
        return self._newest(votes.groupBy("member", "item").agg(newest))

    def merge(self, partials: Any) -> Any:
        """See `derived.DerivedJob`."""
        from pyspark.sql import functions as sf

        return self._newest(partials.groupBy("member", "item").agg(sf.max("last").alias("last")))

    def _newest(self, rows: Any) -> Any:
        from pyspark.sql import Window
        from pyspark.sql import functions as sf

        place = sf.row_number().over(Window.partitionBy("member").orderBy(sf.desc("last"), "item"))
        return rows.withColumn("place", place).where(sf.col("place") <= self.items_max).drop("place")

    def finish(self, partials: Any) -> Mapping[str, Any]:
        """`feed`: member, place (1 is the newest), item, who voted for it, and when."""
        from pyspark.sql import Window
        from pyspark.sql import functions as sf

        rows = [(member, one) for member, followed in sorted(self.follows.items()) for one in followed]
        follows = partials.sparkSession.createDataFrame(rows, "member string, followed string")
        voted = partials.withColumnRenamed("member", "followed").join(follows, "followed")
        newest = voted.groupBy("member", "item").agg(sf.max(sf.struct("last", "followed")).alias("newest"))
        order = Window.partitionBy("member").orderBy(sf.desc("newest"), "item")
        placed = newest.withColumn("place", sf.row_number().over(order)).where(
            sf.col("place") <= self.items_max
        )
        columns = [sf.col("newest.followed").alias("voter"), sf.col("newest.last.ts").alias("ts")]
        return {"feed": placed.select("member", "place", "item", *columns)}
