"""load: from topics into the lake.

The rule: see `commands`.
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, cast

from barnabas_pipeline.commands import common, lake, metrics, reporting, topics
from barnabas_pipeline.errors import EXIT_DONE, PipelineError, TopicsError, UsageError
from barnabas_pipeline.jobs import ONCE
from barnabas_pipeline.progress import summarize

if TYPE_CHECKING:
    from barnabas_pipeline.commands.arguments import LoadArguments, TopicArguments
    from barnabas_pipeline.jobs.loading import Load, Topics


def add_load(parser: argparse.ArgumentParser) -> None:
    """Add the options of load."""
    common.add_log(parser, topics.add_topics)
    lake.add_table(parser)
    lake.add_schema(parser)
    common.add_range(parser)
    common.add_spark(parser)
    parser.add_argument(
        "--trigger",
        default=ONCE,
        metavar="once|available|'5 seconds'",
        help="load existing records once, or new ones at this interval until interrupted",
    )
    parser.add_argument(
        "--offsets-per-trigger-max",
        type=int,
        default=0,
        metavar="N",
        help="offsets of a round, shared by all topics",
    )
    common.add_worker(parser)
    lake.add_commits(parser)
    parser.add_argument(
        "--tag", metavar="NAME", help="tag for the snapshot of the newest commit of this run, in each table"
    )
    reporting.add_reporting(parser)
    metrics.add_metrics(parser)
    parser.add_argument(
        "--page", metavar="FILE", help="HTML file with plots of the load, written every two seconds"
    )


def chosen_topics(args: LoadArguments) -> Topics:
    """Return the topics that the options name, with the options of each. Raises UsageError."""
    from barnabas_pipeline.jobs.choices import Choice, compile_pattern
    from barnabas_pipeline.jobs.loading import Topics
    from barnabas_pipeline.lake.iceberg import Catalogs

    settings = lake.settings_of(args)
    names = dict.fromkeys([*topics.names_in(args.topic), *settings.names])
    patterns = dict.fromkeys([*args.topic_pattern, *settings.patterns])
    if not names and not patterns:
        raise UsageError("give --topic, --topic-pattern, or --topics with a file that has some")
    for text in (*args.topic_pattern, *args.exclude):
        compile_pattern(text)
    log, catalogs = common.cluster_options(args), Catalogs()
    if patterns and log.transport == "disk":
        raise UsageError("topics of log dirs are given by their names")
    each = cast("TopicArguments", args)  # except the topic, which `of` sets
    return Topics(
        log,
        Choice(tuple(names), tuple(patterns), tuple(args.exclude)),
        lambda topic: lake.place(settings.of(topic, each)),
        lambda topic: lake.load_options(settings.of(topic, each), catalogs),
        catalogs,
    )


def check_topics(chosen: Topics) -> None:
    """Raise UsageError for a table shared by topics, and the errors of options if all named topics have errors."""
    from barnabas_pipeline.jobs.loading import TableNames

    names = TableNames()
    failures: dict[str, PipelineError] = {}
    for name in chosen.choice.names:
        names.take(name, chosen.place_of(name))
    for name in chosen.choice.names:
        try:
            chosen.options_of(name)
        except PipelineError as error:
            failures[name] = error
    if failures and len(failures) == len(chosen.choice.names) and not chosen.choice.patterns:
        raise next(iter(failures.values())) if len(failures) == 1 else TopicsError(failures, len(failures))


def run_load(args: LoadArguments) -> int:
    """Load once, or in rounds until they end or are interrupted; the exit code is that of the worst failure."""
    from barnabas_pipeline.jobs.loading import Load
    from barnabas_pipeline.jobs.rounds import interval_of

    is_bounded = interval_of(args.trigger) is None
    chosen = chosen_topics(args)
    check_topics(chosen)
    if args.metrics:
        metrics.parse_address(args.metrics)
    with ExitStack() as stack:
        watchers = reporting.watchers(args, stack, is_bounded=is_bounded)
        spark = common.spark_when_needed(args, f"load {', '.join(chosen.choice.names) or 'topics'}"[:200])
        load = Load(
            spark,
            chosen,
            offsets_max=args.offsets_per_trigger_max,
            worker_offsets_max=args.worker_offsets_max,
            watchers=watchers,
        )
        metrics.serve_load(args, stack, load)
        if args.page:
            from barnabas_pipeline.commands import pages

            page = pages.Page(Path(args.page), load, args.lake)
            load.watchers.append(page)
            stack.callback(page.end)
        try:
            common.run_rounds(load, args.trigger)
        except KeyboardInterrupt:
            if is_bounded:
                raise
        finally:
            stack.close()
            _summarize(args, load)
    load.raise_worst()
    return EXIT_DONE


def _summarize(args: LoadArguments, load: Load) -> None:
    """Print the summary of all topics and, if there are several, of each; no summary if the only topic failed at once."""
    streams = load.streams
    if not load.summary.commits and len(load.failures) == len(streams) == 1:
        return
    as_json = args.json or args.progress == reporting.JSON
    facts = asdict(load.summary)
    if len(streams) > 1:
        facts["failures"] = {name: str(error) for name, error in sorted(load.failures.items())}
        by_topic = {name: asdict(stream.summary) for name, stream in sorted(streams.items())}
        facts["topics"] = by_topic if as_json else len(by_topic)
    summarize("load", facts, as_json=as_json)
