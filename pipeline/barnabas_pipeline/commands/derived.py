"""The jobs that derive results from a lake: feed, rank, security, monitor, visitors, those of other packages, and report.

The rule: see `commands`. Jobs of other packages are entry points of the group `barnabas_pipeline.jobs`, and run like ours.
"""

from __future__ import annotations

import argparse
import importlib
import re
from collections.abc import Callable
from dataclasses import asdict, replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas_pipeline import schema
from barnabas_pipeline.commands import common
from barnabas_pipeline.errors import EXIT_DONE, UsageError
from barnabas_pipeline.log.model import LogOptions
from barnabas_pipeline.progress import summarize
from barnabas_pipeline.simulate.model import Truth

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from barnabas_pipeline.commands.arguments import DerivedArguments, ReportArguments
    from barnabas_pipeline.data_types import Document
    from barnabas_pipeline.jobs.derived import DerivedJob

BUILT_IN = {
    "feed": "Feed",
    "rank": "Rank",
    "security": "Security",
    "monitor": "Monitor",
    "visitors": "Visitors",
}


def job_class(name: str) -> type[DerivedJob]:
    """Return the class of a job, ours or of another package. Raises UsageError."""
    if name in BUILT_IN:
        return getattr(importlib.import_module(f"barnabas_pipeline.jobs.{name}"), BUILT_IN[name])
    from barnabas_pipeline.jobs.derived import GROUP, DerivedJob

    loaded = entry_points(group=GROUP)[name].load()
    if not (isinstance(loaded, type) and issubclass(loaded, DerivedJob)):
        raise UsageError(f"the entry point {name} of {GROUP} is {loaded!r}, not a class of DerivedJob")
    return loaded


def add_derived(parser: argparse.ArgumentParser, name: str) -> None:
    """Add the options of a job."""
    common.add_lake(parser)
    parser.add_argument(
        "--out",
        required=True,
        type=common.results,
        metavar="URI",
        help="location of results, a directory for each job: a directory, or s3://..., as --lake",
    )
    parser.add_argument("--prefix", default="", help="prefix of the names of topics")
    parser.add_argument("--replay", action="store_true", help="aggregate all events again")
    parser.add_argument("--truth", metavar="FILE", help="score the result by the truth of a simulation")
    parser.add_argument("--to-topic", metavar="NAME", help="send changed results to this topic")
    parser.add_argument(
        "--bootstrap", default="", metavar="HOST:PORT,...", help="brokers, for --to-topic and --trigger"
    )
    parser.add_argument(
        "--trigger",
        metavar="available|'5 seconds'",
        help="load the topics, too, in rounds, and update the result after each",
    )
    job_class(name).add_options(parser)
    common.add_spark(parser)


def run_derived(args: DerivedArguments) -> int:
    """Update a result once, or after each round that has loaded records of its topics. Returns the exit code."""
    from barnabas_pipeline.jobs.derived import Derived, DerivedJob
    from barnabas_pipeline.jobs.publish import publish
    from barnabas_pipeline.jobs.rounds import parse_trigger

    if args.trigger:
        parse_trigger(args.trigger)
    if (args.to_topic or args.trigger) and not args.bootstrap:
        raise UsageError("--to-topic and --trigger need --bootstrap")
    job = job_class(args.job).from_options(args)
    if args.to_topic and type(job).messages is DerivedJob.messages:
        raise UsageError(f"{job.name} has nothing to send to a topic")
    truth = Truth.from_json(Path(args.truth).read_text()) if args.truth else None
    derived = Derived(job, lake=common.lake(args), root=args.out, prefix=args.prefix)
    spark = common.spark_session(args, job.name)
    facts: Document = {}

    def update() -> None:
        facts.update(asdict(derived.update(spark, replay=args.replay and not facts)))
        facts["updates"] = facts.get("updates", 0) + 1
        if args.to_topic:
            memory = f"{derived.root}/published.json"
            messages = job.messages(derived)
            sent = publish(args.bootstrap, args.to_topic, messages, io=derived.store.io, memory=memory)
            facts["sent"] = facts.get("sent", 0) + sent

    if args.trigger:
        _follow(spark, args, args.trigger, job.kinds, update)
    else:
        update()
    if truth is not None:
        facts["score"] = job.score(derived, truth)
    summarize(job.name, facts, as_json=args.json)
    return EXIT_DONE


def _follow(
    spark: SparkSession,
    args: DerivedArguments,
    trigger: str,
    kinds: tuple[str, ...],
    update: Callable[[], None],
) -> None:
    """Load the existing topics of the job in one load, and update after each round of it."""
    from barnabas_pipeline.jobs.choices import Choice
    from barnabas_pipeline.jobs.load import LoadOptions
    from barnabas_pipeline.jobs.loading import Load, Topics

    lake, log = common.lake(args), LogOptions("", bootstrap=args.bootstrap)

    def options(topic: str) -> LoadOptions:
        kind = schema.load(topic.removeprefix(args.prefix))
        return LoadOptions(replace(log, topic=topic), lake.place(topic), kind)

    choice = Choice(patterns=tuple(re.escape(f"{args.prefix}{kind}") for kind in kinds))
    common.run_rounds(Load(lambda: spark, Topics(log, choice, lake.place, options)), trigger, update)


# --- report ---------------------------------------------------------------------------------------------------------


def add_report(parser: argparse.ArgumentParser) -> None:
    """Add the options of report."""
    common.add_lake(parser)
    parser.add_argument(
        "--out", required=True, type=common.results, metavar="URI", help="location of reports, as --lake"
    )
    parser.add_argument("--prefix", default="", help="prefix of the names of topics")
    parser.add_argument("--day", required=True, metavar="2026-11-20")
    parser.add_argument("--partial", action="store_true", help="report a day with hours that are not sealed")
    common.add_spark(parser)


def run_report(args: ReportArguments) -> int:
    """Write a day's tables. Returns the exit code."""
    from barnabas_pipeline.jobs.report import report

    lake = common.lake(args)
    spark = common.spark_session(args, f"report {args.day}")
    summary = report(spark, lake=lake, out=args.out, day=args.day, prefix=args.prefix, partial=args.partial)
    summarize("report", asdict(summary), as_json=args.json)
    return EXIT_DONE
