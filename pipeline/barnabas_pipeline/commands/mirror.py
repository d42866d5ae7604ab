"""mirror: from topics of one cluster or several to topics of another.

The rule: see `commands`.
"""

from __future__ import annotations

import argparse
import json
import re
from contextlib import ExitStack
from dataclasses import asdict
from typing import TYPE_CHECKING

from barnabas_pipeline.commands import common, metrics
from barnabas_pipeline.errors import EXIT_DATA_LOSS, EXIT_USAGE, UsageError
from barnabas_pipeline.jobs import ONCE
from barnabas_pipeline.progress import summarize

if TYPE_CHECKING:
    from barnabas_pipeline.commands.arguments import MirrorArguments
    from barnabas_pipeline.jobs.mirror.model import MirrorOptions
    from barnabas_pipeline.jobs.mirror.rounds import MirrorRound
    from barnabas_pipeline.jobs.sites import Cluster

_NAME = re.compile(r"[A-Za-z0-9._-]+")


def add_mirror(parser: argparse.ArgumentParser) -> None:
    """Add the options of mirror."""
    group = parser.add_argument_group("sources")
    group.add_argument(
        "--topic",
        action="append",
        required=True,
        metavar="NAME|REGEX,...",
        help="topics; a text that is no valid name is a regular expression for whole names",
    )
    group.add_argument("--exclude", action="append", default=[], metavar="REGEX", help="topics to leave out")
    group.add_argument("--bootstrap", default="", metavar="HOST:PORT,...", help="brokers of the only source")
    group.add_argument(
        "--log-dir",
        action="append",
        default=[],
        metavar="DIR",
        help="log directory of a broker as the source, for topics by name; may be repeated",
    )
    group.add_argument(
        "--client",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="client setting of all sources; may be repeated",
    )
    group.add_argument(
        "--source",
        action="append",
        default=[],
        metavar="SOURCE=HOST:PORT,...",
        help="a source by name; may be repeated",
    )
    group.add_argument(
        "--source-client",
        action="append",
        default=[],
        metavar="SOURCE:NAME=VALUE",
        help="client setting of one source; may be repeated",
    )
    _add_target(parser)
    group = parser.add_argument_group("rounds")
    group.add_argument(
        "--trigger",
        default=ONCE,
        metavar="once|available|'5 seconds'",
        help="mirror existing records once, or new ones at this interval until interrupted",
    )
    group.add_argument("--offsets-per-round-max", type=int, metavar="N")
    common.add_worker(parser)
    group.add_argument(
        "--on-data-loss",
        choices=("fail", "record"),
        default="fail",
        help="record: report lost offsets, and continue",
    )
    common.add_spark(parser)
    metrics.add_metrics(parser)


def _add_target(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("target")
    group.add_argument("--to-bootstrap", required=True, metavar="HOST:PORT,...")
    group.add_argument(
        "--to-client",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="client or producer setting of the target; may be repeated",
    )
    group.add_argument(
        "--to-topic", metavar="NAME", help="name in the target, of one topic; default: the same name"
    )
    group.add_argument(
        "--rename",
        metavar="PATTERN",
        help="pattern of names in the target, e.g. '{source}.{topic}'; default: {topic}",
    )
    group.add_argument(
        "--no-create", action="store_true", help="create no topics or partitions in the target"
    )
    group.add_argument(
        "--replication-factor",
        type=int,
        default=-1,
        metavar="N",
        help="replication factor of created topics; default: the target's",
    )
    group.add_argument(
        "--sync-configs", action="store_true", help="copy settings of topics from the source in each round"
    )
    group.add_argument(
        "--shared", action="store_true", help="allow other producers to write to the target's topics"
    )
    group.add_argument("--groups", default="", metavar="REGEX", help="groups with offsets to translate")
    group.add_argument("--groups-back", action="store_true", help="move offsets of groups back, too")


def mirror_options(args: MirrorArguments) -> MirrorOptions:
    """Return the options of a mirror. Raises UsageError."""
    from barnabas_pipeline.jobs.choices import compile_pattern, parse_choice
    from barnabas_pipeline.jobs.mirror.model import OFFSETS_PER_ROUND_MAX, MirrorOptions
    from barnabas_pipeline.jobs.sites import Cluster

    choice = parse_choice(args.topic, args.exclude)
    if args.to_topic and args.rename:
        raise UsageError("--to-topic and --rename exclude each other")
    if args.log_dir and choice.patterns:
        raise UsageError("topics of log dirs are given by their names")
    if args.groups:
        compile_pattern(args.groups)
        if args.log_dir:
            raise UsageError("log dirs have no groups")
    sources = _sources(args)
    rename = args.to_topic or args.rename or "{topic}"
    if "{source}" in rename and not all(source.name for source in sources):
        raise UsageError("{source} needs a source with a name: --source NAME=HOST:PORT")
    return MirrorOptions(
        sources,
        Cluster("", args.to_bootstrap, tuple(sorted(common.pairs(args.to_client).items()))),
        choice,
        rename=rename,
        creates_topics=not args.no_create,
        replication_factor=args.replication_factor,
        syncs_configs=args.sync_configs,
        groups=args.groups,
        moves_groups_back=args.groups_back,
        shares_topics=args.shared,
        on_data_loss=args.on_data_loss,
        offsets_per_round_max=args.offsets_per_round_max or OFFSETS_PER_ROUND_MAX,
    )


def _sources(args: MirrorArguments) -> tuple[Cluster, ...]:
    from barnabas_pipeline.jobs.sites import Cluster

    common_settings = common.pairs(args.client)
    named = common.pairs(args.source)
    if len(named) < len(args.source):
        raise UsageError("two sources have the same name")
    if bool(named) + bool(args.bootstrap) + bool(args.log_dir) != 1:
        raise UsageError("give --bootstrap, --source or --log-dir")
    if not named:
        return (Cluster("", args.bootstrap, tuple(sorted(common_settings.items())), tuple(args.log_dir)),)
    own: dict[str, list[str]] = {name: [] for name in named}
    for row in args.source_client:
        name, _, setting = row.partition(":")
        if name not in own:
            raise UsageError(f"{row!r} is not SOURCE:NAME=VALUE with one of {', '.join(named)}")
        own[name].append(setting)
    for name in named:
        if not _NAME.fullmatch(name):
            raise UsageError(f"{name!r} cannot be a part of a topic's name")
    return tuple(
        Cluster(name, bootstrap, tuple(sorted((common_settings | common.pairs(own[name])).items())))
        for name, bootstrap in named.items()
    )


def run_mirror(args: MirrorArguments) -> int:
    """Mirror once, or in rounds until they end or are interrupted; the exit code is that of the newest round."""
    from barnabas_pipeline.jobs.mirror.rounds import Mirror
    from barnabas_pipeline.jobs.rounds import interval_of

    options = mirror_options(args)
    is_in_rounds = interval_of(args.trigger) is not None
    spark = common.spark_when_needed(args, "mirror")
    with ExitStack() as stack:
        reporters = [_Reporter(as_json=args.json)] if is_in_rounds else ()
        mirror = Mirror(spark, options, reporters, worker_offsets_max=args.worker_offsets_max)
        stack.callback(mirror.close)
        if args.metrics:
            metrics.serve(args.metrics, stack, metrics.MirrorCollector(mirror))
        summary = common.run_rounds(mirror, args.trigger)
    if mirror.exit_code in (EXIT_USAGE, EXIT_DATA_LOSS) and not is_in_rounds:
        from barnabas_pipeline.jobs.mirror.rounds import raise_worst

        if not summary.topics or len(mirror.failures) == 1:
            raise_worst(mirror)
    summarize("mirror", asdict(summary), as_json=args.json)
    return mirror.exit_code


class _Reporter:
    """Printer of a line for each round with changes in the target, or with other failures than the round before."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._failures: list[str] = []

    def ended(self, round_: MirrorRound) -> None:
        """Report a round."""
        done = round_.summary
        moved = done.mirrored or done.skipped_loops or done.created_topics or done.added_partitions
        if not (moved or done.groups_committed or done.changed_settings or done.lost) and (
            done.failures == self._failures
        ):
            return
        if self._as_json:
            facts = asdict(done) | {"round": round_.number, "seconds": round(round_.seconds, 3)}
            print(json.dumps({"job": "mirror", **facts}), flush=True)
        else:
            text = f"round {round_.number}: {done.mirrored:,} records of {done.topics} topics in {round_.seconds:.1f} s"
            extra = {
                "made": done.created_topics,
                "partitions added": done.added_partitions,
                "loops skipped": done.skipped_loops,
                "offsets of groups": done.groups_committed,
                "behind": done.behind,
            }
            print(text + "".join(f", {count:,} {name}" for name, count in extra.items() if count), flush=True)
            for failure in done.failures if done.failures != self._failures else ():
                print(f"  failed: {failure}", flush=True)
        self._failures = done.failures
