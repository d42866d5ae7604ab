"""Options that many jobs share, and their conversion into values.

The rule: errors in options are reported before Spark is started.
"""

from __future__ import annotations

import argparse
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from barnabas.log.format.names import why_no_topic
from barnabas_pipeline import worker
from barnabas_pipeline.errors import UsageError
from barnabas_pipeline.log.model import READ_COMMITTED, READ_UNCOMMITTED, LogOptions
from barnabas_pipeline.log.planning import Selection

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from barnabas_pipeline.commands.arguments import (
        ClusterArguments,
        LakeArguments,
        RangeArguments,
        SparkArguments,
        TopicClusterArguments,
    )
    from barnabas_pipeline.jobs.rounds import Rounds
    from barnabas_pipeline.lake.iceberg import Lake

S = TypeVar("S")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Parser(argparse.ArgumentParser):
    """Parser that raises UsageError for wrong options, so that the exit code is the pipeline's."""

    def error(self, message: str) -> NoReturn:
        """Raise UsageError."""
        raise UsageError(f"{self.prog}: {message}")


def add_log(
    parser: argparse.ArgumentParser,
    add_topic: Callable[[argparse._ArgumentGroup], object] = lambda group: group.add_argument(
        "--topic", required=True
    ),
) -> None:
    """Add the options that name a topic and how to reach it."""
    group = parser.add_argument_group("topic")
    add_topic(group)
    group.add_argument(
        "--bootstrap", default="", metavar="HOST:PORT,...", help="brokers to read from over the network"
    )
    group.add_argument(
        "--log-dir",
        action="append",
        default=[],
        metavar="DIR",
        help="log directory of a broker to read from instead; may be repeated",
    )
    group.add_argument(
        "--transport",
        choices=("wire", "disk"),
        help="how to read topics; default: disk if only --log-dir is given, else wire",
    )
    group.add_argument("--isolation", choices=(READ_COMMITTED, READ_UNCOMMITTED), default=READ_COMMITTED)
    group.add_argument(
        "--client",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="setting of the Kafka client; may be repeated",
    )


def add_spark(parser: argparse.ArgumentParser) -> None:
    """Add the options for Spark and for the output."""
    group = parser.add_argument_group("Spark")
    group.add_argument(
        "--master", help="URL of the Spark master; default: that of spark-submit, else local[*]"
    )
    group.add_argument(
        "--conf", action="append", default=[], metavar="NAME=VALUE", help="Spark setting; may be repeated"
    )
    group.add_argument("--json", action="store_true", help="print the summary as one line of JSON")


def add_worker(parser: argparse.ArgumentParser) -> None:
    """Add the option for rounds without a Spark job."""
    parser.add_argument(
        "--worker-offsets-max",
        type=int,
        default=worker.OFFSETS_MAX,
        metavar="N",
        help=f"largest round that one process beside the driver reads, without a Spark job; default: {worker.OFFSETS_MAX}",
    )


def add_range(parser: argparse.ArgumentParser) -> None:
    """Add the options that name a part of a topic."""
    group = parser.add_argument_group("range")
    group.add_argument(
        "--from-offsets",
        default="earliest",
        metavar="JSON",
        help='first offsets by partition, e.g. {"0": 100}, or earliest, or latest',
    )
    group.add_argument(
        "--to-offsets", default="latest", metavar="JSON", help="offsets to stop before, likewise"
    )
    group.add_argument(
        "--from-time", type=parse_time, metavar="TIME", help="first timestamp, in ISO 8601 or ms since 1970"
    )
    group.add_argument("--to-time", type=parse_time, metavar="TIME", help="timestamp to stop before")


def parse_time(text: str) -> int:
    """Return a time as ms since 1970. Raises UsageError."""
    if text.lstrip("-").isdigit():
        return int(text)
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{text!r} is no time: give ms since 1970, or 2026-11-20T14:00") from None
    return ((when if when.tzinfo else when.replace(tzinfo=UTC)) - EPOCH) // timedelta(milliseconds=1)


def directory(text: str) -> str:
    """Return a directory of this machine, given as a path or `file:` URL. Raises UsageError."""
    from barnabas_pipeline.lake.store import local_path, location_of

    path = local_path(location_of(text))
    if path is None:
        raise UsageError(f"{text} is not a directory of this machine")
    return str(path)


def results(text: str) -> str:
    """Return a location that can store results. Raises UsageError."""
    from barnabas_pipeline.jobs.results import results_location

    return results_location(text)


def add_lake(parser: argparse.ArgumentParser, *, is_required: bool = True) -> None:
    """Add the options that name a lake and its catalog."""
    group = parser.add_argument_group("lake")
    group.add_argument(
        "--lake",
        required=is_required,
        metavar="URI",
        help="location of the lake: a directory, or s3://..., gs://..., abfss://..., hdfs://...",
    )
    group.add_argument(
        "--catalog",
        metavar="NAME",
        help="catalog of pyiceberg's configuration; default: SQLite in a local lake",
    )
    group.add_argument(
        "--catalog-property",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="property of the catalog or the store, such as type, uri or s3.endpoint; may be repeated",
    )


def lake(args: LakeArguments) -> Lake:
    """Return the lake that the options name. Raises UsageError if it has no catalog."""
    from barnabas_pipeline.lake.iceberg import CATALOG, Lake, check_catalog

    chosen = Lake(args.lake, args.catalog or CATALOG, tuple(sorted(pairs(args.catalog_property).items())))
    check_catalog(chosen)
    return chosen


def pairs(rows: list[str]) -> dict[str, str]:
    """Return `NAME=VALUE` options as a dict. Raises UsageError."""
    values = {}
    for row in rows:
        name, equals, value = row.partition("=")
        if not equals or not name:
            raise UsageError(f"{row!r} is not NAME=VALUE")
        values[name] = value
    return values


def log_options(args: TopicClusterArguments, *, topic: str | None = None) -> LogOptions:
    """Return the options to read the topic that the options name. Raises UsageError."""
    _check_topic(topic or args.topic)
    return replace(cluster_options(args), topic=topic or args.topic)


def cluster_options(args: ClusterArguments) -> LogOptions:
    """Return the options to read from a cluster, or log dirs, without a topic. Raises UsageError."""
    transport = args.transport or ("disk" if args.log_dir and not args.bootstrap else "wire")
    if transport == "wire" and not args.bootstrap:
        raise UsageError("give --bootstrap, or --log-dir to read from disk")
    if transport == "disk" and not args.log_dir:
        raise UsageError("--transport disk needs --log-dir")
    return LogOptions(
        topic="",
        transport=transport,
        bootstrap=args.bootstrap,
        log_dirs=tuple(args.log_dir),
        isolation=args.isolation,
        client=tuple(sorted(pairs(args.client).items())),
    )


def _check_topic(name: str) -> None:
    """Raise UsageError for a name that Kafka refuses for a topic, such as a list or a pattern."""
    why = why_no_topic(name)
    if why:
        raise UsageError(f"{name!r} is not the name of a topic: {why}; a job reads one topic")


def selection(args: RangeArguments) -> Selection:
    """Return the part of the topic that the options name."""
    return Selection(
        starting=args.from_offsets,
        ending=args.to_offsets,
        starting_timestamp_ms=args.from_time,
        ending_timestamp_ms=args.to_time,
    )


def spark_session(args: SparkArguments, name: str) -> SparkSession:
    """Return the Spark session for the options."""
    from barnabas_pipeline.spark import session

    return session.create(f"barnabas-pipeline {name}", master=args.master, conf=pairs(args.conf))


def spark_when_needed(args: SparkArguments, name: str) -> Callable[[], SparkSession]:
    """Return a function that creates the session once; under spark-submit, which waits for it, it exists already."""
    create = cache(lambda: spark_session(args, name))
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        create()
    return create


def now_ms(args: object) -> int:
    """Return the job's present time in ms since 1970: of the clock, or of `--now`."""
    now = getattr(args, "now", None)
    return int(time.time() * 1000) if now is None else int(now)


def run_rounds(job: Rounds[Any, Any, S], trigger: str, after: Callable[[], None] = lambda: None) -> S:
    """Run a job in rounds; SIGINT and SIGTERM end a continuous job. Returns its summary, raises the errors of rounds."""
    from barnabas_pipeline.jobs.rounds import interval_of

    if interval_of(trigger) is not None:
        stop_after_the_round(job.stop)
    return job.run(trigger, after)


def stop_after_the_round(stop: Callable[[], None]) -> None:
    """Make the first SIGINT or SIGTERM end the job after the present round, and a second signal immediately."""

    def handle(number: int, _frame: object) -> None:
        signal.signal(number, signal.default_int_handler)
        stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handle)
