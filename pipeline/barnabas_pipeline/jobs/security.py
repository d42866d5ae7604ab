"""security: verdicts on crawlers, on floods of requests, on vote spam and on guessed passwords.

The rule: a verdict names the rule, the subject and the first minute that broke it; its id follows from these, so that a
repeated publication counts once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas_pipeline.errors import UsageError
from barnabas_pipeline.jobs.derived import Derived, DerivedJob, day

if TYPE_CHECKING:
    import argparse

    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

    from barnabas_pipeline.data_types import Document, Json, Row
    from barnabas_pipeline.simulate.model import Truth

MINUTE_MS = 60_000
URL_BUCKETS = 1024


@dataclass(frozen=True, slots=True)
class Rules:
    """Thresholds, all per minute."""

    crawler_requests: int = 30
    crawler_urls: int = 20
    crawler_no_script_percent: int = 90
    rate_requests: int = 300
    spam_votes: int = 15
    login_failures: int = 5


class Security(DerivedJob):
    """Partials: whole-number counts of the actions of each address and member by minute, and their URLs (hashed)."""

    name = "security"
    kinds = ("views", "votes", "logins")

    def __init__(self, rules: Rules = Rules(), *, allowed: tuple[str, ...] = ()) -> None:  # immutable
        self.rules = rules
        self.allowed = allowed

    def params(self) -> Document:
        """See `derived.DerivedJob`: the rules count in the last step."""
        return {}

    def part(self) -> SparkColumn:
        """See `derived.DerivedJob`."""
        return day("minute")

    def partial(self, tables: Mapping[str, DataFrame]) -> DataFrame:
        """See `derived.DerivedJob`."""
        from pyspark.sql import functions as sf

        minute = (sf.col("ts") - sf.col("ts") % MINUTE_MS).alias("minute")
        none = sf.array().cast("array<bigint>")
        zero = sf.lit(0).cast("bigint")
        parts = []
        if "views" in tables:
            urls = sf.array_sort(
                sf.collect_set(sf.pmod(sf.xxhash64("url"), sf.lit(URL_BUCKETS).cast("bigint")))
            )
            parts.append(
                tables["views"].groupBy(sf.col("ip").alias("subject"), minute).agg(
                    sf.count("*").alias("requests"), sf.sum(_one("not js")).alias("without_script"), urls.alias("urls"),
                    zero.alias("votes"), zero.alias("failures"),
                )
            )  # fmt: skip
        for kind, column, condition in (("votes", "votes", "true"), ("logins", "failures", "not ok")):
            if kind in tables:
                counted = tables[kind].groupBy(sf.col("member").alias("subject"), minute).agg(
                    sf.sum(_one(condition)).alias("count")
                )  # fmt: skip
                columns = {
                    "requests": zero,
                    "without_script": zero,
                    "votes": zero,
                    "failures": zero,
                    "urls": none,
                }
                columns[column] = sf.col("count")
                parts.append(
                    counted.select(
                        "subject", "minute", *(value.alias(name) for name, value in columns.items())
                    )
                )
        union = parts[0]
        for part in parts[1:]:
            union = union.unionByName(part)
        return union

    def merge(self, partials: DataFrame) -> DataFrame:
        """See `derived.DerivedJob`."""
        from pyspark.sql import functions as sf

        sums = [sf.sum(name).alias(name) for name in ("requests", "without_script", "votes", "failures")]
        urls = sf.array_sort(sf.array_distinct(sf.flatten(sf.collect_list("urls")))).alias("urls")
        return partials.groupBy("subject", "minute").agg(*sums, urls)

    def condense(self, partials: DataFrame) -> DataFrame:
        """Find the subjects that broke a rule on each day: first minute, number of minutes, highest count."""
        from pyspark.sql import functions as sf

        rules = self.rules
        conditions = {
            "crawler": (
                f"requests >= {rules.crawler_requests} and size(urls) >= {rules.crawler_urls} "
                f"and without_script * 100 >= requests * {rules.crawler_no_script_percent}",
                "requests",
            ),
            "rate": (f"requests >= {rules.rate_requests}", "requests"),
            "spam": (f"votes >= {rules.spam_votes}", "votes"),
            "guessing": (f"failures >= {rules.login_failures}", "failures"),
        }
        union: DataFrame | None = None
        for kind, (condition, measure) in conditions.items():
            rows = partials.where(condition).where(
                ~sf.col("subject").isin(*self.allowed) if self.allowed else "true"
            )
            verdicts = rows.groupBy("part", "subject").agg(
                sf.min("minute").alias("first_minute"),
                sf.count("*").alias("minutes"),
                sf.max(measure).alias("worst"),
            )
            verdicts = verdicts.withColumn("kind", sf.lit(kind))
            union = verdicts if union is None else union.unionByName(verdicts)
        assert union is not None
        return union

    def finish(self, condensed: DataFrame) -> Mapping[str, DataFrame]:
        """Return `verdicts`: id, kind, subject, the first minute, the number of minutes, and the worst count."""
        from pyspark.sql import functions as sf

        grouped = condensed.groupBy("kind", "subject").agg(
            sf.min("first_minute").alias("first_minute"),
            sf.sum("minutes").alias("minutes"),
            sf.max("worst").alias("worst"),
        )
        identity = sf.sha2(sf.concat_ws("|", "kind", "subject", sf.col("first_minute").cast("string")), 256)
        columns = ["kind", "subject", "first_minute", "minutes", "worst"]
        return {"verdicts": grouped.select(sf.substring(identity, 1, 16).alias("verdict_id"), *columns)}

    def messages(self, derived: Derived) -> Mapping[str, Json]:
        """See `derived.DerivedJob`."""
        return {row["verdict_id"]: row for row in derived.result("verdicts").to_pylist()}

    def score(self, derived: Derived, truth: Truth) -> Document:
        """See `derived.DerivedJob`."""
        verdicts = derived.result("verdicts").to_pylist()
        guilty = {"crawler": truth.crawlers, "spam": truth.spammers}
        return {kind: score(verdicts, kind, addresses) for kind, addresses in guilty.items()}

    @classmethod
    def add_options(cls, parser: argparse.ArgumentParser) -> None:
        """See `derived.DerivedJob`."""
        parser.add_argument("--rules", metavar="FILE", help="JSON object of thresholds; see the class Rules")
        parser.add_argument(
            "--allow", action="append", default=[], metavar="SUBJECT", help="never judge this one"
        )

    @classmethod
    def from_options(cls, args: argparse.Namespace) -> Security:
        """See `derived.DerivedJob`."""
        document = json.loads(Path(args.rules).read_text()) if args.rules else {}
        unknown = sorted(set(document) - {field.name for field in fields(Rules)})
        if unknown:
            raise UsageError(f"there is no rule {unknown[0]!r}")
        return cls(Rules(**document), allowed=tuple(args.allow))


def _one(condition: str) -> SparkColumn:
    from pyspark.sql import functions as sf

    return sf.when(sf.expr(condition), 1).otherwise(0).cast("bigint")


def score(verdicts: list[Row], kind: str, truth: list[str]) -> dict[str, float]:
    """Return the precision and recall of a kind of verdict."""
    subjects = {row["subject"] for row in verdicts if row["kind"] == kind}
    right = len(subjects & set(truth))
    return {
        "precision": round(right / len(subjects), 4) if subjects else 1.0,
        "recall": round(right / len(truth), 4) if truth else 1.0,
    }
