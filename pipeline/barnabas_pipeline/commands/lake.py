"""The jobs on a lake: audit, compact, erase, retain, redrive, backfill; and options shared with `load`.

The rule: see `commands`.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, TypeVar, cast

from barnabas_pipeline.commands import common, formats, topics
from barnabas_pipeline.errors import EXIT_DONE, EXIT_INCOMPLETE, UsageError
from barnabas_pipeline.progress import summarize

if TYPE_CHECKING:
    from barnabas_pipeline.commands.arguments import (
        AuditArguments,
        BackfillArguments,
        CompactArguments,
        EraseArguments,
        LoadArguments,
        PublishArguments,
        RangeArguments,
        RedriveArguments,
        RetainArguments,
        TableArguments,
        TableFormatArguments,
        TopicArguments,
    )
    from barnabas_pipeline.data_types import Document
    from barnabas_pipeline.jobs.load import LoadOptions
    from barnabas_pipeline.lake.iceberg import Catalogs, Place


T = TypeVar("T", bound="TableArguments")


def add_table(parser: argparse.ArgumentParser, *, is_lake_required: bool = True) -> None:
    """Add the options that name a table."""
    common.add_lake(parser, is_required=is_lake_required)
    parser.add_argument(
        "--table", metavar="NAMESPACE.NAME", default="", help="table; default: barnabas.TOPIC"
    )
    parser.add_argument(
        "--branch",
        metavar="NAME",
        help="branch of the table to work on, which begins at main; readers see it once it is published",
    )
    parser.add_argument(
        "--topics",
        metavar="FILE",
        help="file with settings by topic and pattern, in YAML or TOML; load also loads the topics it names",
    )


def add_schema(parser: argparse.ArgumentParser) -> None:
    """Add the options of formats and schemas of events."""
    formats.add_format(parser)


def place(args: TableArguments) -> Place:
    """Return the place of the table that the options name."""
    from barnabas_pipeline.lake.iceberg import MAIN

    chosen = common.lake(args).place(args.topic, args.table, getattr(args, "partition_by", None) or "")
    return replace(chosen, branch=getattr(args, "branch", None) or MAIN)


def settings_of(args: TableArguments | LoadArguments) -> topics.Settings:
    """Return the settings by topic in the file that the options name, empty without a file. Raises UsageError."""
    parser = common.Parser(add_help=False)
    for add in (add_table, add_schema, common.add_range, add_commits, _add_lateness):
        add(parser)
    return topics.Settings(args.topics, topics.options_by_name(parser))


def _with_settings(args: T) -> T:
    return settings_of(args).of(args.topic, args) if args.topics else args


def _chosen(args: TableFormatArguments, catalogs: Catalogs | None = None) -> formats.Chosen:
    from barnabas_pipeline.lake.iceberg import is_made
    from barnabas_pipeline.lake.table import Table

    def schema_of_table() -> Document:
        chosen = place(args)
        return Table(chosen, catalogs=catalogs).state().schema if is_made(chosen) else {}

    return formats.choose(args, schema_of_table)


def load_options(args: TopicArguments, catalogs: Catalogs | None = None) -> LoadOptions:
    """Return the options of the load of one topic."""
    from barnabas_pipeline.jobs.load import LoadOptions

    options = LoadOptions(common.log_options(args), place(args), *_chosen(args, catalogs))
    if hasattr(args, "from_offsets"):
        options.selection = common.selection(cast("RangeArguments", args))
    for name in (
        "on_data_loss",
        "offsets_per_commit_max",
        "split_bytes",
        "target_file_bytes",
        "value_bytes_max",
        "keep_snapshots",
        "tag",
    ):
        if getattr(args, name, None) is not None:
            setattr(options, name, getattr(args, name))
    if options.keep_snapshots and args.branch:
        raise UsageError("--keep-snapshots expires those of main: not with --branch")
    past_max_days: float | None = getattr(args, "past_max_days", None)
    if past_max_days is not None:
        options.past_max_ms = int(past_max_days * 24 * 3_600_000)
    return options


def add_commits(parser: argparse.ArgumentParser) -> None:
    """Add the options for the commits of a load."""
    parser.add_argument(
        "--on-data-loss",
        choices=("fail", "record"),
        help="record: note lost offsets in the ledger, and continue",
    )
    parser.add_argument("--offsets-per-commit-max", type=int, metavar="N")
    parser.add_argument("--split-bytes", type=int, metavar="N", help="bytes of log for each task")
    parser.add_argument("--target-file-bytes", type=int, metavar="N")
    parser.add_argument(
        "--partition-by",
        metavar="TRANSFORM(FIELD),...",
        help="partitioning of a new table: day(ts), bucket[16](member), none; default: the hour of the event",
    )
    parser.add_argument(
        "--keep-snapshots",
        type=int,
        metavar="N",
        help="number of snapshots to keep; default: all",
    )
    parser.add_argument(
        "--value-bytes-max",
        type=int,
        metavar="N",
        help="bytes of the largest event; a larger one is a dead letter; default: 1 MiB",
    )
    parser.add_argument(
        "--past-max-days",
        type=float,
        metavar="N",
        help="days by which an event may be older than its record; default: 30",
    )


# --- audit ----------------------------------------------------------------------------------------------------------


def add_audit(parser: argparse.ArgumentParser) -> None:
    """Add the options of audit."""
    common.add_log(parser)
    add_table(parser)
    add_schema(parser)
    common.add_spark(parser)
    _add_lateness(parser)
    parser.add_argument(
        "--now", type=common.parse_time, metavar="TIME", help="current time; default: that of the clock"
    )
    parser.add_argument("--no-seal", action="store_true", help="seal no hours")
    parser.add_argument("--deep", action="store_true", help="decode the whole log, and compare every value")
    parser.add_argument(
        "--strict",
        action="store_true",
        help="exit 2 if the log has records that are not loaded, or another engine has deleted rows",
    )


def _add_lateness(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--lateness",
        type=float,
        default=0,
        metavar="HOURS",
        help="hours to wait for late events before an hour is sealed",
    )


def run_audit(args: AuditArguments) -> int:
    """Audit a table, and seal its complete hours. Returns the exit code."""
    args = _with_settings(args)
    from barnabas_pipeline.jobs import audit as job

    options = load_options(args)
    spark = common.spark_session(args, f"audit {args.topic}")
    report = job.audit(
        spark,
        options,
        now_ms=common.now_ms(args),
        lateness_ms=int(args.lateness * 3_600_000),
        seal=not args.no_seal,
        deep=args.deep,
    )
    summarize("audit", asdict(report), as_json=args.json)
    for note in report.notes:
        print(f"note: {note}", file=sys.stderr)
    job.raise_if_lossy(report)
    return EXIT_INCOMPLETE if args.strict and (report.lag or report.erased_by_others) else EXIT_DONE


# --- publish --------------------------------------------------------------------------------------------------------


def add_publish(parser: argparse.ArgumentParser) -> None:
    """Add the options of publish."""
    common.add_log(parser)
    add_table(parser)
    add_schema(parser)
    common.add_spark(parser)
    parser.add_argument("--deep", action="store_true", help="decode the whole log, and compare every value")
    parser.add_argument("--tag", metavar="NAME", help="tag for the snapshot that is published")
    parser.add_argument("--drop", action="store_true", help="remove the branch instead, with all that it has")


def run_publish(args: PublishArguments) -> int:
    """Audit a branch, and move main to it. Raises DataLossError if the branch is not exact."""
    args = _with_settings(args)
    from barnabas_pipeline.jobs import branches as job

    if not args.branch:
        raise UsageError("say by --branch what is published")
    if args.drop:
        summarize("publish --drop", asdict(job.drop(place(args))), as_json=args.json)
        return EXIT_DONE
    options = load_options(args)
    job.check(options.root)
    spark = common.spark_session(args, f"publish {args.topic}")
    summary = job.publish(spark, options, tag=args.tag or "", deep=args.deep)
    summarize("publish", asdict(summary), as_json=args.json)
    return EXIT_DONE


# --- compact --------------------------------------------------------------------------------------------------------


def add_compact(parser: argparse.ArgumentParser) -> None:
    """Add the options of compact."""
    parser.add_argument("--topic", required=True)
    add_table(parser)
    parser.add_argument("--target-file-bytes", type=int, metavar="N")
    parser.add_argument(
        "--files-min",
        type=int,
        default=2,
        metavar="N",
        help="small files of a partition to compact, at least",
    )
    parser.add_argument(
        "--vacuum-hours",
        type=float,
        metavar="H",
        help="expire snapshots after this many hours, and remove their files",
    )
    common.add_spark(parser)


def run_compact(args: CompactArguments) -> int:
    """Compact a table, and vacuum it on request. Returns the exit code."""
    args = _with_settings(args)
    from barnabas_pipeline.jobs import compact as job
    from barnabas_pipeline.lake.files import TARGET_FILE_BYTES
    from barnabas_pipeline.lake.vacuum import vacuum

    root = place(args)
    spark = common.spark_session(args, f"compact {args.topic}")
    summary = job.compact(
        spark, root, target_bytes=args.target_file_bytes or TARGET_FILE_BYTES, files_min=args.files_min
    )
    if args.vacuum_hours is not None:
        summary.removed_orphans = vacuum(root, age_seconds=args.vacuum_hours * 3600)
    summarize("compact", asdict(summary), as_json=args.json)
    return EXIT_DONE


# --- erase and retain -------------------------------------------------------------------------------------------------


def add_erase(parser: argparse.ArgumentParser) -> None:
    """Add the options of erase."""
    parser.add_argument("--topic", required=True)
    add_table(parser)
    parser.add_argument(
        "--where", required=True, metavar="CONDITION", help="rows to remove, such as \"member = 'm1'\""
    )
    parser.add_argument("--reason", default="", help="note in the ledger")
    parser.add_argument("--json", action="store_true")


def run_erase(args: EraseArguments) -> int:
    """Remove rows by a condition. Returns the exit code."""
    args = _with_settings(args)
    from barnabas_pipeline.jobs.erase import erase

    summarize("erase", asdict(erase(place(args), args.where, reason=args.reason)), as_json=args.json)
    return EXIT_DONE


def add_retain(parser: argparse.ArgumentParser) -> None:
    """Add the options of retain."""
    parser.add_argument("--topic", required=True)
    add_table(parser)
    parser.add_argument(
        "--days",
        required=True,
        type=float,
        metavar="N",
        help="age of events from which their hours are removed",
    )
    parser.add_argument(
        "--now", type=common.parse_time, metavar="TIME", help="current time; default: that of the clock"
    )
    parser.add_argument("--json", action="store_true")


def run_retain(args: RetainArguments) -> int:
    """Remove hours by age. Returns the exit code."""
    args = _with_settings(args)
    from barnabas_pipeline.jobs.erase import retain

    before_ms = common.now_ms(args) - int(args.days * 24 * 3_600_000)
    summarize("retain", asdict(retain(place(args), before_ms=before_ms)), as_json=args.json)
    return EXIT_DONE


# --- redrive and backfill -------------------------------------------------------------------------------------------


def add_redrive(parser: argparse.ArgumentParser) -> None:
    """Add the options of redrive."""
    parser.add_argument("--topic", required=True)
    add_table(parser)
    add_schema(parser)
    parser.add_argument(
        "--reason",
        action="append",
        metavar="CODE",
        help="reason of dead letters to decode; may be repeated; default: all",
    )
    parser.add_argument(
        "--since", type=common.parse_time, metavar="TIME", help="earliest timestamp of records to decode"
    )
    parser.add_argument("--past-max-days", type=float, metavar="N")
    parser.add_argument("--json", action="store_true")


def run_redrive(args: RedriveArguments) -> int:
    """Decode dead letters again. Returns the exit code: 2 if some of the chosen letters stay dead."""
    args = _with_settings(args)
    from barnabas_pipeline.jobs.load import LoadOptions
    from barnabas_pipeline.jobs.redrive import redrive
    from barnabas_pipeline.log.model import LogOptions

    options = LoadOptions(LogOptions(args.topic), place(args), *_chosen(args))
    if args.past_max_days is not None:
        options.past_max_ms = int(args.past_max_days * 24 * 3_600_000)
    summary = redrive(options, reasons=set(args.reason) if args.reason else None, since_ms=args.since)
    summarize("redrive", asdict(summary), as_json=args.json)
    return EXIT_INCOMPLETE if summary.still_dead else EXIT_DONE


def add_backfill(parser: argparse.ArgumentParser) -> None:
    """Add the options of backfill."""
    common.add_log(parser)
    add_table(parser)
    add_schema(parser)
    parser.add_argument("--from", dest="from_ms", type=common.parse_time, required=True, metavar="TIME")
    parser.add_argument("--to", dest="to_ms", type=common.parse_time, required=True, metavar="TIME")
    parser.add_argument("--reason", default="", help="note in the ledger")
    common.add_spark(parser)


def run_backfill(args: BackfillArguments) -> int:
    """Replace hours by the present content of the log. Returns the exit code."""
    args = _with_settings(args)
    from barnabas_pipeline.jobs.backfill import backfill

    spark = common.spark_session(args, f"backfill {args.topic}")
    summary = backfill(spark, load_options(args), from_ms=args.from_ms, to_ms=args.to_ms, reason=args.reason)
    summarize("backfill", asdict(summary), as_json=args.json)
    return EXIT_DONE
