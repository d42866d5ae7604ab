"""Cost of a run of each derived job: rows that it reads, and CPU time, as the table behind it grows.

    python -m bench.increments --days 2 8 32

The same last hours of a day are new each time. CPU is that of this process, the JVM and its Python workers, from a second
run on, when the JVM has compiled what it needs; the median of `--rounds` runs. `whole` is a run over everything.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

from barnabas_pipeline.jobs import monitor, rank, security
from barnabas_pipeline.jobs.derived import Derived
from barnabas_pipeline.jobs.feed import Feed
from barnabas_pipeline.jobs.visitors import Visitors
from barnabas_pipeline.simulate.model import DAY_MS, Event, Simulation, Site
from barnabas_pipeline.spark import session
from bench.formats import cpu_seconds
from tests.pipeline.written import append

START_MS = 1_700_000_000_000 // DAY_MS * DAY_MS


def day_of(events: list[Event], number: int) -> list[Event]:
    """Return a day's events on another day."""
    shift = number * DAY_MS
    return [
        Event(
            timestamp.ts + shift,
            timestamp.delivered + shift,
            timestamp.kind,
            timestamp.key,
            timestamp.fields | {"ts": timestamp.ts + shift},
        )
        for timestamp in events
    ]


def measure(spark: Any, simulation: Simulation, days: int, rounds: int, names: list[str], work: Path) -> None:
    """Print a line for each job."""
    lake = work / f"lake{days}"
    events = simulation.events()
    append(lake, [event for number in range(days) for event in day_of(events, number)])
    jobs: list[Any] = [
        rank.Rank(),
        Feed(simulation.truth.follows),
        security.Security(),
        monitor.Monitor(),
        Visitors(),
    ]
    jobs = [job for job in jobs if job.name in names]
    steps = [Derived(job, lake=str(lake), root=str(work / f"out{days}")) for job in jobs]
    whole: dict[str, float] = {}
    for step in steps:
        began = cpu_seconds()
        step.update(spark)
        whole[step.job.name] = cpu_seconds() - began
    took: dict[str, list[float]] = {job.name: [] for job in jobs}
    last: dict[str, Any] = {}
    size = len(events) // 20
    for number in range(rounds + 1):
        append(lake, day_of(events[number * size : (number + 1) * size], days))
        for step in steps:
            began = cpu_seconds()
            last[step.job.name] = step.update(spark)
            if number:
                took[step.job.name].append(cpu_seconds() - began)
    for name, seconds in took.items():
        done = last[name]
        print(f"{days:5} days  {name:9} {done.rows_read:7} rows, {done.partials_read:7} partials, {done.parts:3} parts  "
              f"{statistics.median(seconds):6.2f} s ({min(seconds):.2f}-{max(seconds):.2f})  whole {whole[name]:6.2f} s",
              flush=True)  # fmt: skip


def main() -> None:
    """Measure for each number of days."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--days", type=int, nargs="+", default=[2, 8, 32])
    parser.add_argument("--events", type=int, default=20_000, help="of a day")
    parser.add_argument("--jobs", nargs="+", default=["rank", "feed", "security", "monitor", "visitors"])
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    site = Site(seed=5, events=args.events, start_ms=START_MS, hours=23.0, late_hours_max=0.5)
    spark = session.create("increments", master="local[2]", conf={"spark.sql.shuffle.partitions": "2"})
    with tempfile.TemporaryDirectory() as directory:
        for days in args.days:
            measure(spark, Simulation(site), days, args.rounds, args.jobs, Path(directory))
    spark.stop()


if __name__ == "__main__":
    main()
