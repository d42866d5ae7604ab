"""`python -m bench.pipeline_peers`: topics into Iceberg tables by Spark's Kafka connector, Iceberg's sink and by us.

Needs the extras `spark` and `formats`, a JDK 17 and Maven. The same topics on our broker are loaded by each arm in turn;
CPU is that of all processes of a load, without the broker's. On a busy machine CPU is the figure, freshness is not.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.pipeline_peers import parts, planning, topics
from bench.pipeline_peers.arms import ARMS, Arm
from bench.pipeline_peers.processes import adopt_orphans
from bench.procfs import describe_machine

PARTS = ("cost", "freshness", "kills", "many", "planning")
Case = tuple[str, Callable[[], parts.Row]]


def cases(bench: parts.Bench, arm: Arm, args: argparse.Namespace) -> Iterator[Case]:
    """Yield the cases of an arm: a name, and the measuring function."""
    if "cost" in args.parts:
        for name in args.formats:
            yield name, lambda name=name: parts.cost(bench, arm, name, args.count)
    if "freshness" in args.parts:
        yield "freshness", lambda: parts.freshness(bench, arm, args.rate, args.seconds, args.interval)
    if "kills" in args.parts:
        yield "kills", lambda: parts.kills(bench, arm, args.kill_count, args.kills, args.seed)
    if "many" in args.parts and arm.name == "barnabas":
        yield f"{args.topics} topics", lambda: parts.many(bench, args.topics)
    if "planning" in args.parts:
        yield "planning", lambda: planning.measure(bench.work / f"year-{arm.name}", arm.name, args.commits)


def printed(rows: dict[str, dict[str, parts.Row]]) -> str:
    """Return a table: a line for each figure, a column for each arm."""
    names = [kind.name for kind in ARMS if kind.name in rows]
    lines = [f"| | {' | '.join(names)} |", f"|{'---|' * (len(names) + 1)}"]
    figures = {
        (case, figure): None for row in rows.values() for case, cells in row.items() for figure in cells
    }
    for case, figure in figures:
        cells = [rows[name].get(case, {}).get(figure, "") for name in names]
        lines.append(f"| {case}: {figure} | {' | '.join(map(_cell, cells))} |")
    return "\n".join(lines)


def _cell(value: Any) -> str:
    return (
        f"{value:,.3g}"
        if isinstance(value, float) and value < 1000
        else f"{value:,.0f}"
        if value != ""
        else ""
    )


def run(args: argparse.Namespace) -> dict[str, dict[str, parts.Row]]:
    """Measure; returns the figures by arm and case. Failed cases are reported, and have none."""
    from barnabas_pipeline.commands.demo import running_broker

    adopt_orphans()
    arms = [kind() for kind in ARMS if kind.name in args.arms]
    for arm in arms:
        arm.prepare()
    rows: dict[str, dict[str, parts.Row]] = {arm.name: {} for arm in arms}
    with (
        tempfile.TemporaryDirectory(prefix="pipeline-peers-", dir=args.work) as directory,
        running_broker(Path(directory) / "data") as broker,
    ):
        work = Path(directory)
        schemas = topics.write_schemas(work / "schemas")
        bench = parts.Bench(broker.bootstrap, broker.registry, work, schemas)
        by_arm = [list(cases(bench, arm, args)) for arm in arms]
        every = {name: None for of_arm in by_arm for name, _ in of_arm}
        for case in every:
            for arm, mine in zip(arms, by_arm, strict=True):
                began = time.monotonic()
                for measured in (measure for name, measure in mine if name == case):
                    try:
                        rows[arm.name][case] = measured()
                    except (RuntimeError, AssertionError) as error:
                        print(f"{arm.name}, {case}: {error}", file=sys.stderr)
                        continue
                    passed = time.monotonic() - began
                    print(f"{arm.name}, {case}: {rows[arm.name][case]} in {passed:.0f} s", file=sys.stderr)
            if args.json:
                args.json.write_text(json.dumps({"machine": describe_machine(), "rows": rows}, indent=1))
    return rows


def parser() -> argparse.ArgumentParser:
    """Return the options."""
    options = argparse.ArgumentParser(
        prog="python -m bench.pipeline_peers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = options.add_argument
    names = [kind.name for kind in ARMS]
    add("--arms", nargs="+", choices=names, default=names)
    add("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    add("--formats", nargs="+", choices=topics.FORMATS, default=list(topics.FORMATS))
    add("--count", type=int, default=1_000_000, help="records of a topic of `cost`")
    add("--rate", type=int, default=10_000, help="records a second of `freshness`")
    add("--seconds", type=float, default=30, help="of `freshness`, after half as long that does not count")
    add(
        "--interval",
        type=float,
        default=1,
        help="seconds from commit to commit of `freshness`, where an arm has such a setting",
    )
    add("--kills", type=int, default=3)
    add(
        "--kill-count",
        type=int,
        default=200_000,
        help="records of the topic of `kills`, a tenth for each commit",
    )
    add("--seed", type=int, default=1, help="of the moments of kills")
    add("--topics", type=int, default=300, help="of `many`, which is ours alone")
    add("--commits", type=int, default=8_760, help="of `planning`: one an hour for a year")
    add(
        "--work", type=Path, help="directory for the files of a run, which are removed; default: the system's"
    )
    add("--json", type=Path, help="file for the figures, written after each case")
    return options


def main() -> None:
    """Print a table."""
    args = parser().parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends all started processes
    rows = run(args)
    print("; ".join(f"{name}: {text}" for name, text in describe_machine().items()))
    print(printed(rows))


if __name__ == "__main__":
    main()
