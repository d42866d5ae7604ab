"""plan and lineage: the work of the next load, and the origin of a row.

The rule: see `commands`; neither changes the lake.
"""

from __future__ import annotations

import argparse
import json
import re
from dataclasses import asdict
from typing import TYPE_CHECKING

from barnabas_pipeline.commands import common, lake, topics
from barnabas_pipeline.commands.load import check_topics, chosen_topics
from barnabas_pipeline.errors import EXIT_DATA_LOSS, EXIT_DONE, EXIT_INCOMPLETE, WORST_FIRST, UsageError

if TYPE_CHECKING:
    from barnabas_pipeline.commands.arguments import LineageArguments, PlanArguments
    from barnabas_pipeline.data_types import Document
    from barnabas_pipeline.jobs.lineage import Trace
    from barnabas_pipeline.jobs.plans import LoadPlan, TopicPlan

_AT = re.compile(r"(\d+):(\d+)")

# --- plan -------------------------------------------------------------------------------------------------------------


def add_plan(parser: argparse.ArgumentParser) -> None:
    """Add the options of plan: the options of load that select the records."""
    common.add_log(parser, topics.add_topics)
    lake.add_table(parser)
    lake.add_schema(parser)
    common.add_range(parser)
    lake.add_commits(parser)
    parser.add_argument(
        "--offsets-per-trigger-max",
        type=int,
        default=0,
        metavar="N",
        help="offsets of a round, shared by all topics",
    )
    parser.add_argument("--json", action="store_true", help="print the plan as one line of JSON")


def run_plan(args: PlanArguments) -> int:
    """Print the plan of a load. Returns the exit code that it would end with, if that can be predicted."""
    from barnabas_pipeline.jobs.plans import plan_load

    chosen = chosen_topics(args)
    check_topics(chosen)
    plan = plan_load(chosen, offsets_max=args.offsets_per_trigger_max)
    if args.json:
        print(json.dumps({"job": "plan", **plan.to_dict()}))
    else:
        _print_plan(plan)
    codes = {topic.exit_code for topic in plan.topics}
    return next((code for code in WORST_FIRST if code in codes), EXIT_DONE)


def _print_plan(plan: LoadPlan) -> None:
    for topic in plan.topics:
        _print_topic(topic)
    total = plan.total()
    print(
        f"total: {len(plan.topics)} topics, {total['records_max']:,} offsets, {plan.rounds:,} rounds, "
        f"{total['commits']:,} commits; nothing was written"
    )


def _print_topic(topic: TopicPlan) -> None:
    print(f"{topic.topic} -> {topic.table}{' (new)' if topic.creates and not topic.exit_code else ''}")
    if topic.problem:
        print(f"  {'fails' if topic.exit_code else 'note'}: {topic.problem}")
    if topic.adds_columns:
        print(f"  adds columns: {', '.join(topic.adds_columns)}")
    for partition, (start, end) in sorted(topic.offsets.items()):
        print(f"  partition {partition}: offsets {start} to {end}, {end - start:,} of them")
    if topic.records_max:
        print(
            f"  reads about {_size(topic.log_bytes)} of log in {topic.tasks:,} tasks, {topic.commits:,} commits"
        )
        files = "files by partition of the table" if topic.files is None else f"about {topic.files:,} files"
        print(f"  writes {files}, {_size(topic.file_bytes)} by earlier commits")
    elif not topic.exit_code:
        print("  nothing new")
    if topic.compactable_files:
        print(f"  compact would merge {topic.compactable_files:,} files, {_size(topic.compactable_bytes)}")


def _size(count: int | None) -> str:
    if count is None:
        return "unknown bytes"
    for unit, bytes_of in (("GB", 10**9), ("MB", 10**6), ("KB", 10**3)):
        if count >= bytes_of:
            return f"{count / bytes_of:.1f} {unit}"
    return f"{count} B"


# --- lineage ----------------------------------------------------------------------------------------------------------


def add_lineage(parser: argparse.ArgumentParser) -> None:
    """Add the options of lineage."""
    common.add_log(parser)
    lake.add_table(parser)
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument(
        "--at", metavar="PARTITION:OFFSET", help="offset of the topic, to find its row or what became of it"
    )
    group.add_argument(
        "--where", metavar="CONDITION", help="rows to trace to their records, such as \"member = 'm1'\""
    )
    parser.add_argument("--rows-max", type=int, default=20, metavar="N", help="rows to trace, at most")
    parser.add_argument("--json", action="store_true", help="print one line of JSON for each row or offset")


def run_lineage(args: LineageArguments) -> int:
    """Print the origin of rows, or the outcome of an offset. Exit 3 if it should be a row but is missing."""
    from barnabas_pipeline.jobs.lineage import MISSING, NOT_LOADED, Lineage
    from barnabas_pipeline.lake.table import Table

    at = _AT.fullmatch(args.at) if args.at else None
    if args.at and at is None:
        raise UsageError(f"--at {args.at!r} is not PARTITION:OFFSET, such as 0:1234")
    settings = lake.settings_of(args)
    args = settings.of(args.topic, args)
    log = common.log_options(args) if args.bootstrap or args.log_dir else None
    lineage = Lineage(Table(lake.place(args)), log)
    if at is None:
        traces = lineage.rows(args.where or "", args.rows_max)
    else:
        traces = lineage.offset(int(at[1]), int(at[2]))
    for trace in traces:
        print(json.dumps(_document(trace)) if args.json else _text(args.topic, trace))
    outcomes = {trace.outcome for trace in traces[:1]} if at is not None else set()
    if MISSING in outcomes:
        return EXIT_DATA_LOSS
    return EXIT_INCOMPLETE if not traces or NOT_LOADED in outcomes else EXIT_DONE


def _document(trace: Trace) -> Document:
    from barnabas_pipeline.jobs.lineage import plain

    return {"job": "lineage", **{name: plain(value) for name, value in asdict(trace).items()}}


def _text(topic: str, trace: Trace) -> str:
    """Return a trace as lines: the outcome, and the known facts."""
    from barnabas_pipeline.jobs.lineage import plain

    where = f"{topic}-{trace.partition} offset {trace.offset}" if trace.offset >= 0 else topic
    lines = [f"{where}: {trace.outcome}{f' ({trace.detail})' if trace.detail else ''}"]
    if trace.topic_id:
        lines.append(f"  topic id   {trace.topic_id}")
    for name, commit in (("loaded by", trace.loaded), ("removed by", trace.removed)):
        if commit:
            lines.append(f"  {name:10} {_commit(commit)}")
    if trace.file:
        lines.append(f"  file       {trace.file['path']}")
        lines.append(f"  written by {trace.file.get('by') or _commit(trace.file)}")
    if trace.row:
        lines.append(f"  values     {json.dumps(plain(trace.row), ensure_ascii=False)}")
    return "\n".join(lines)


def _commit(commit: Document) -> str:
    snapshot = (
        f"snapshot {commit['snapshot']} of {commit['at']}"
        if commit["snapshot"]
        else "its snapshot has expired"
    )
    return f"version {commit['version']} ({commit['kind']}), {snapshot}"
