"""The jobs that make results of a lake: feed, rank, security, monitor, report.

The rule: see `commands`.
"""

from __future__ import annotations

import argparse
import json
import threading
from collections.abc import Callable
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from barnabas_pipeline import schema
from barnabas_pipeline.commands import common
from barnabas_pipeline.errors import EXIT_DONE, UsageError
from barnabas_pipeline.log.model import LogOptions
from barnabas_pipeline.progress import summarize
from barnabas_pipeline.simulate.model import Truth


def _add_common(parser: argparse.ArgumentParser) -> None:
    common.add_lake(parser)
    parser.add_argument(
        "--out",
        required=True,
        type=common.directory,
        metavar="DIR",
        help="the results are below it, one directory per job",
    )
    parser.add_argument("--prefix", default="", help="of the topics' names")
    parser.add_argument(
        "--replay", action="store_true", help="forget what was aggregated, and start from the beginning"
    )
    parser.add_argument("--truth", metavar="FILE", help="score the result against a simulation's truth")
    parser.add_argument("--to-topic", metavar="NAME", help="also send what has changed to this topic")
    parser.add_argument(
        "--bootstrap", default="", metavar="HOST:PORT,...", help="for --to-topic and --trigger"
    )
    parser.add_argument(
        "--trigger", metavar="available|'5 seconds'", help="load the topics as streams, and follow them"
    )
    common.add_spark(parser)


def _truth(args: Any) -> Truth | None:
    return Truth.from_json(Path(args.truth).read_text()) if args.truth else None


def _run(
    args: Any,
    job: Any,
    *,
    params: dict[str, Any],
    score: Callable[[Any, Truth], dict[str, Any]],
    messages: Callable[[Any], dict[str, Any]] | None = None,
) -> int:
    """Update a result once, or after each commit of the topics it is made of."""
    from barnabas_pipeline.jobs.derived import Derived
    from barnabas_pipeline.jobs.publish import publish
    from barnabas_pipeline.jobs.triggers import parse_trigger

    if args.trigger:
        parse_trigger(args.trigger)
    if (args.to_topic or args.trigger) and not args.bootstrap:
        raise UsageError("--to-topic and --trigger need --bootstrap")
    if args.to_topic and messages is None:
        raise UsageError(f"{job.name} has nothing to send to a topic")
    truth = _truth(args)
    spark = common.spark_session(args, job.name)
    derived = Derived(job, lake=common.lake(args), root=args.out, prefix=args.prefix, params=params)
    facts: dict[str, Any] = {}
    lock = threading.Lock()

    def update() -> None:
        with lock:
            summary = derived.update(spark, replay=args.replay and not facts)
            facts.update(asdict(summary))
            facts["updates"] = facts.get("updates", 0) + 1
            if args.to_topic and messages is not None:
                sent = publish(
                    args.bootstrap, args.to_topic, messages(derived), memory=derived.root / "published.json"
                )
                facts["sent"] = facts.get("sent", 0) + sent

    if args.trigger:
        _follow(spark, args, job.kinds, update)
    else:
        update()
    if truth is not None:
        facts["score"] = score(derived, truth)
    summarize(job.name, facts, as_json=args.json)
    return EXIT_DONE


def _follow(spark: Any, args: Any, kinds: tuple[str, ...], update: Callable[[], None]) -> None:
    """Load the job's topics as streams, and update after each commit, until the streams end or are interrupted."""
    from barnabas_pipeline.jobs.follow import Follower
    from barnabas_pipeline.jobs.load import LoadOptions

    followers = []
    for kind in kinds:
        topic = f"{args.prefix}{kind}"
        options = LoadOptions(
            LogOptions(topic, bootstrap=args.bootstrap), common.lake(args).place(topic), schema.load(kind)
        )
        followers.append(Follower(spark, options, trigger=args.trigger, after=update).start())
    try:
        for follower in followers:
            follower.wait()
    except KeyboardInterrupt:
        pass
    finally:
        for follower in followers:
            follower.stop()


# --- feed -----------------------------------------------------------------------------------------------------------


def add_feed(parser: argparse.ArgumentParser) -> None:
    """Options of feed."""
    _add_common(parser)
    parser.add_argument(
        "--follows", metavar="FILE", help="JSON object of members to lists; default: from --truth"
    )
    parser.add_argument("--items", type=int, default=20, metavar="N", help="in a feed")


def run_feed(args: Any) -> int:
    """Make the feeds."""
    from barnabas_pipeline.jobs.feed import Feed

    truth = _truth(args)
    if args.follows:
        follows = json.loads(Path(args.follows).read_text())
    elif truth is not None:
        follows = truth.follows
    else:
        raise UsageError("feed needs --follows, or --truth of a simulation")

    def messages(derived: Any) -> dict[str, Any]:
        feeds: dict[str, list[Any]] = {}
        for row in derived.result("feed").to_pylist():
            feeds.setdefault(row["member"], []).append([row["item"], row["voter"], row["ts"]])
        return feeds

    def score(derived: Any, truth: Truth) -> dict[str, Any]:
        wrong = sum(
            row["voter"] not in truth.follows[row["member"]] for row in derived.result("feed").to_pylist()
        )
        return {"entries_of_strangers": wrong}

    return _run(
        args,
        Feed(follows, items_max=args.items),
        params={"items": args.items},
        score=score,
        messages=messages,
    )


# --- rank -----------------------------------------------------------------------------------------------------------


def add_rank(parser: argparse.ArgumentParser) -> None:
    """Options of rank."""
    _add_common(parser)
    parser.add_argument("--half-life", type=float, default=6.0, metavar="HOURS", help="of an event's weight")
    parser.add_argument("--window", type=float, default=10.0, metavar="MINUTES")


def run_rank(args: Any) -> int:
    """Rank the items."""
    from barnabas_pipeline.jobs import rank

    job = rank.Rank(window_ms=int(args.window * 60_000), half_life_ms=int(args.half_life * 3_600_000))

    def score(derived: Any, truth: Truth) -> dict[str, Any]:
        return rank.score(derived.result("rank").to_pylist(), truth.quality)

    def messages(derived: Any) -> dict[str, Any]:
        return {row["item"]: row for row in derived.result("rank").to_pylist()}

    return _run(args, job, params={"window_ms": job.window_ms}, score=score, messages=messages)


# --- security -------------------------------------------------------------------------------------------------------


def add_security(parser: argparse.ArgumentParser) -> None:
    """Options of security."""
    _add_common(parser)
    parser.add_argument("--rules", metavar="FILE", help="JSON object of thresholds; see the class Rules")
    parser.add_argument(
        "--allow", action="append", default=[], metavar="SUBJECT", help="never judge this one"
    )


def run_security(args: Any) -> int:
    """Judge."""
    from barnabas_pipeline.jobs import security

    given = json.loads(Path(args.rules).read_text()) if args.rules else {}
    unknown = sorted(set(given) - {one.name for one in fields(security.Rules)})
    if unknown:
        raise UsageError(f"there is no rule {unknown[0]!r}")
    job = security.Security(security.Rules(**given), allowed=tuple(args.allow))

    def score(derived: Any, truth: Truth) -> dict[str, Any]:
        verdicts = derived.result("verdicts").to_pylist()
        return {
            "crawler": security.score(verdicts, "crawler", truth.crawlers),
            "spam": security.score(verdicts, "spam", truth.spammers),
        }

    def messages(derived: Any) -> dict[str, Any]:
        return {row["verdict_id"]: row for row in derived.result("verdicts").to_pylist()}

    return _run(args, job, params={}, score=score, messages=messages)


# --- monitor --------------------------------------------------------------------------------------------------------


def add_monitor(parser: argparse.ArgumentParser) -> None:
    """Options of monitor."""
    _add_common(parser)
    parser.add_argument("--window", type=float, default=10.0, metavar="SECONDS")
    parser.add_argument(
        "--watermark", type=float, default=60.0, metavar="SECONDS", help="later than that counts as late"
    )
    parser.add_argument(
        "--rule", action="append", default=[], metavar="METRIC=MEAN", help="alert above this mean"
    )


def run_monitor(args: Any) -> int:
    """Roll up, and raise alerts."""
    from barnabas_pipeline.jobs import monitor

    try:
        rules = {name: float(value) for name, value in common.pairs(args.rule).items()} or monitor.RULES
    except ValueError as error:
        raise UsageError(f"--rule: {error}") from None
    job = monitor.Monitor(window_ms=int(args.window * 1000), late_ms=int(args.watermark * 1000), rules=rules)

    def score(derived: Any, truth: Truth) -> dict[str, Any]:
        return dict(monitor.score(derived.result("alerts").to_pylist(), truth.incidents))

    def messages(derived: Any) -> dict[str, Any]:
        rows = derived.result("alerts").to_pylist()
        return {f"{row['service']}/{row['metric']}/{row['start']}": row for row in rows}

    params = {"window_ms": job.window_ms, "late_ms": job.late_ms}
    return _run(args, job, params=params, score=score, messages=messages)


# --- report ---------------------------------------------------------------------------------------------------------


def add_report(parser: argparse.ArgumentParser) -> None:
    """Options of report."""
    common.add_lake(parser)
    parser.add_argument("--out", required=True, type=common.directory, metavar="DIR")
    parser.add_argument("--prefix", default="", help="of the topics' names")
    parser.add_argument("--day", required=True, metavar="2026-11-20")
    parser.add_argument("--partial", action="store_true", help="although hours are not sealed")
    common.add_spark(parser)


def run_report(args: Any) -> int:
    """Write a day's tables."""
    from barnabas_pipeline.jobs.report import report

    spark = common.spark_session(args, f"report {args.day}")
    summary = report(
        spark, lake=common.lake(args), out=args.out, day=args.day, prefix=args.prefix, partial=args.partial
    )
    summarize("report", asdict(summary), as_json=args.json)
    return EXIT_DONE
