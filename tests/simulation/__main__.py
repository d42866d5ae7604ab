"""`python -m tests.simulation --seed N` repeats one history; `--count N --first M` runs many, and names those that fail.

Histories are of a broker that is alone, of three on a ZooKeeper with `--cluster`, and harsher ones of those with `--harsh`
and `--directed`; with `--lost-tails` of one that loses the ends of its logs. `--planted` runs those that find the bugs
planted in clusters.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Callable
from functools import partial

from barnabas.testing.simulation.broker import quiet_logs
from tests.simulation import cluster, lost_tails, planted_cluster
from tests.simulation.cluster import Kind
from tests.simulation.history import History
from tests.simulation.planted_cluster import search
from tests.simulation.scenario import Plan, judged

PLANTED_SEEDS_MAX = 40
COLLECTED_EVERY = 10
"""So many histories pass until what they have left behind is collected."""
Judge = Callable[[int], tuple[History, list[str]]]


def main() -> int:
    """Run what the command line asks for; returns 1 if any history was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="repeat one history, and print it")
    parser.add_argument("--count", type=int, default=1000, help="how many histories (1000)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--seconds", type=float, default=0, help="begin no history after so many seconds")
    parser.add_argument("--cluster", action="store_true", help="histories of three brokers on a ZooKeeper")
    parser.add_argument("--harsh", action="store_true", help="... with faults that come closer together")
    parser.add_argument("--directed", action="store_true", help="... with faults at the worst moments")
    parser.add_argument(
        "--lost-tails", action="store_true", help="histories of one broker that loses the ends of its logs"
    )
    parser.add_argument(
        "--faults", default="", help="only these faults of a cluster, by name, with commas between"
    )
    parser.add_argument(
        "--planted", action="store_true", help="find each bug planted in clusters, from its seed on"
    )
    options = parser.parse_args()
    if options.planted:
        return _planted()
    judge: Judge = lost_tails.judged if options.lost_tails else judged
    if options.cluster or options.harsh or options.directed:
        kind = Kind.DIRECTED if options.directed else Kind.HARSH if options.harsh else Kind.MILD
        judge = partial(cluster.judged, kind=kind, faults=tuple(filter(None, options.faults.split(","))))
    if options.seed is not None:
        if judge is judged:
            print(Plan.drawn(options.seed))
        return _repeat(judge, options.seed)
    with quiet_logs():
        return _many(judge, options.first, options.count, options.seconds)


def _planted() -> int:
    """Run the histories that find the planted bugs; returns 1 if one is not found."""
    missed = 0
    for bug, kept in planted_cluster.FOUND_BY.items():
        began_s = time.perf_counter()
        seed = search(bug, PLANTED_SEEDS_MAX)
        took_s = time.perf_counter() - began_s
        missed += seed is None
        text = (
            f"at seed {seed}"
            if seed is not None
            else f"not within {PLANTED_SEEDS_MAX} seeds from {kept.seed}"
        )
        print(f"{bug}: {kept.kind}, {kept.fault} {text}, {took_s:.1f} s", flush=True)
    return 1 if missed else 0


def _many(judge: Judge, first: int, count: int, seconds: float) -> int:
    gc.freeze()
    gc.disable()  # most of what a history makes lasts until its end: looking at it meanwhile finds nothing
    failed = []
    done = 0
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    for seed in range(first, first + count):
        if seconds and time.perf_counter() - began_s > seconds:
            break
        _, broken = judge(seed)
        done += 1
        if done % COLLECTED_EVERY == 0:
            gc.collect()
        if broken:
            failed.append(seed)
            print(f"seed {seed}: {len(broken)} broken, the first: {broken[0]}", flush=True)
    took_s, cpu_s = time.perf_counter() - began_s, time.process_time() - began_cpu_s
    per_minute = done / cpu_s * 60
    print(
        f"{done} histories from seed {first}: {len(failed)} broken {failed[:20]}; {took_s:.1f} s, "
        f"{cpu_s:.1f} s of CPU, {per_minute:,.0f} a minute of CPU"
    )
    return 1 if failed else 0


def _repeat(judge: Judge, seed: int) -> int:
    history, broken = judge(seed)
    print("\n".join(history.events))
    for text in broken:
        print(f"BROKEN: {text}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
