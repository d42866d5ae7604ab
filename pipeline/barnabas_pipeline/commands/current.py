"""The job that maintains a table of current rows by key, and checks it.

The rule: see `commands`. The options for the creation of the table are needed only for the first run.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING

from barnabas_pipeline.commands import common
from barnabas_pipeline.errors import EXIT_DATA_LOSS, EXIT_DONE, EXIT_INCOMPLETE, UsageError
from barnabas_pipeline.jobs import ONCE
from barnabas_pipeline.progress import summarize

if TYPE_CHECKING:
    from barnabas_pipeline.commands.arguments import CurrentArguments
    from barnabas_pipeline.lake.changes import Shape

ENVELOPES = ("none", "debezium")
BUCKETS = 16


def add_current(parser: argparse.ArgumentParser) -> None:
    """Add the options of current."""
    parser.add_argument("--topic", required=True)
    common.add_lake(parser)
    parser.add_argument(
        "--table", metavar="NAMESPACE.NAME", default="", help="table of events; default: barnabas.TOPIC"
    )
    parser.add_argument(
        "--to",
        metavar="NAMESPACE.NAME",
        default="",
        help="table of current rows; default: the name of the table of events, followed by __current",
    )
    group = parser.add_argument_group("of a new table")
    group.add_argument("--key", metavar="FIELD,...", help="fields of the value that identify a row")
    group.add_argument(
        "--key-from",
        choices=("record-key",),
        help="identify rows by the key of the record, as load has decoded it",
    )
    group.add_argument(
        "--envelope",
        choices=ENVELOPES,
        help="debezium: values have the row before and after a change, and the operation; default: none",
    )
    group.add_argument(
        "--buckets",
        type=int,
        metavar="N",
        help=f"number of buckets of keys; a change rewrites the files of its bucket; default: {BUCKETS}",
    )
    parser.add_argument(
        "--trigger",
        default=ONCE,
        metavar="once|available|'5 seconds'",
        help="apply loaded events once, or poll at this interval until interrupted",
    )
    parser.add_argument("--rebuild", action="store_true", help="apply all events again")
    parser.add_argument(
        "--check",
        action="store_true",
        help="compute the rows from all events, and compare them with the table",
    )
    parser.add_argument(
        "--strict", action="store_true", help="exit 2 if there are dead letters or events without a key"
    )
    parser.add_argument(
        "--keep-snapshots",
        type=int,
        default=0,
        metavar="N",
        help="number of snapshots to keep; default: all",
    )
    parser.add_argument(
        "--vacuum-hours",
        type=float,
        metavar="H",
        help="also remove files that no snapshot names, after this many hours",
    )
    common.add_spark(parser)


def _shape(args: CurrentArguments) -> Shape | None:
    from barnabas_pipeline.lake.changes import Shape

    if not args.key and not args.key_from:
        if args.envelope or args.buckets:
            raise UsageError("--envelope and --buckets are of a new table: give --key or --key-from too")
        return None
    if args.key and args.key_from:
        raise UsageError("give --key or --key-from, not both")
    if args.buckets is not None and args.buckets < 1:
        raise UsageError("--buckets is at least 1")
    key = tuple(name.strip() for name in args.key.split(",")) if args.key else ()
    return Shape(key, args.envelope or ENVELOPES[0], args.buckets or BUCKETS)


def run_current(args: CurrentArguments) -> int:
    """Apply loaded events, once or in rounds, or check the table. Returns the exit code."""
    from barnabas_pipeline.jobs.current import CurrentOptions, CurrentRows
    from barnabas_pipeline.jobs.rounds import interval_of

    is_in_rounds = interval_of(args.trigger) is not None
    spark = common.spark_when_needed(args, f"current {args.topic}")
    events = common.lake(args).place(args.topic, args.table)
    options = CurrentOptions(events, spark, _shape(args), args.to, args.rebuild, args.keep_snapshots)
    options.waits = is_in_rounds
    rows = CurrentRows(options)
    if args.check:
        report = rows.check()
        summarize("current --check", asdict(report), as_json=args.json)
        return EXIT_DATA_LOSS if report.differences else EXIT_DONE
    common.run_rounds(rows, args.trigger)
    if args.vacuum_hours is not None:
        rows.summary.removed_orphans = rows.table.vacuum(args.vacuum_hours * 3600)
    summarize("current", asdict(rows.summary), as_json=args.json)
    return EXIT_INCOMPLETE if args.strict and (rows.summary.dead or rows.summary.lost) else EXIT_DONE
