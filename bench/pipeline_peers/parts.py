"""The parts of a comparison: cost of a record, freshness of a table, effects of kills, leftovers of commits.

The rule: each part loads the same topic by each arm, into a separate lake, and returns one row of figures for each.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.pipeline_peers import tables, topics
from bench.pipeline_peers.arms import Arm, Load, Ours
from bench.pipeline_peers.processes import Job, Memory

RUN_SECONDS_MAX = 900
POLL_SECONDS = 0.1
PORTIONS = 10
SETTLED_SECONDS = 180  # without a new commit: records that are not visible by then are lost
Row = dict[str, Any]


@dataclass
class Bench:
    """The broker, its registry, and the directory of all files."""

    bootstrap: str
    registry: str
    work: Path
    schemas: Path
    filled: set[str] = field(default_factory=set)
    runs: int = 0

    def topic(self, format_name: str, count: int) -> str:
        """Return a topic of `count` records, created on first use."""
        name = topics.topic_of(format_name, count)
        if name not in self.filled:
            topics.fill(self.bootstrap, self.registry, format_name, count)
            self.filled.add(name)
        return name

    def load(self, topic: str, format_name: str = "json", **more: Any) -> Load:
        """A load into a new lake."""
        self.runs += 1
        lake = self.work / f"lake{self.runs}"
        return Load(self.bootstrap, self.registry, topic, format_name, lake, self.schemas, **more)

    def finish(self, arm: Arm, job: Job, load: Load, count: int) -> float:
        """Wait until a load has made all records visible, and end it; returns its CPU seconds."""
        if arm.ends_alone and load.follow_seconds is None:
            return job.wait(RUN_SECONDS_MAX)
        wait_for(job, lambda: tables.visible_rows(load.lake, load.topic) >= count)
        return job.kill()


def wait_for(job: Job, is_done: Callable[[], bool], seconds_max: float = RUN_SECONDS_MAX) -> None:
    """Wait while a job runs. Raises RuntimeError if it fails or takes too long."""
    deadline = time.monotonic() + seconds_max
    while not is_done():
        job.check()
        if time.monotonic() > deadline:
            job.kill()
            raise RuntimeError(f"not done in {seconds_max:g} s: {job.tail()}")
        time.sleep(POLL_SECONDS)


def cost(bench: Bench, arm: Arm, format_name: str, count: int) -> Row:
    """Return the CPU of a record (us), and the fixed CPU of a load (s).

    A topic is loaded in ten portions or more. The CPU of a record is the difference between the first commit that has a
    quarter of the records, when the JVM has compiled what it needs, and the last one.
    """
    load = bench.load(bench.topic(format_name, count), format_name, portion=count // PORTIONS)
    job = arm.start(load)
    marks: list[tuple[int, float]] = []

    def note() -> bool:
        rows = tables.visible_rows(load.lake, load.topic)
        if rows > (marks[-1][0] if marks else 0):
            marks.append((rows, job.cpu_s()))
        return rows >= count

    wait_for(job, note)
    total = bench.finish(arm, job, load, count)
    result = tables.account(load.lake, load.topic, count)
    assert result == tables.Account(0, 0), (arm.name, format_name, result)
    rows, spent = next(mark for mark in marks if mark[0] >= count // 4)
    each = (marks[-1][1] - spent) / (marks[-1][0] - rows)
    commits = len(tables.metadata(tables.location(load.lake, load.topic))["snapshots"])
    return {
        "us a record": each * 1e6,
        "set-up, s": total - each * count,
        "commits": commits,
        "lines": arm.lines(load),
    }


def freshness(bench: Bench, arm: Arm, rate: int, seconds: float, interval: float) -> Row:
    """Follow a topic with records at a rate; the first part of the time does not count."""
    import numpy as np

    topic = f"fresh_{arm.name}"
    topics.fill(bench.bootstrap, bench.registry, "json", 1000, topic)
    load = bench.load(topic, follow_seconds=interval)
    watch = tables.Watch(load.lake, topic)
    job = arm.start(load)
    watch.start()
    wait_for(job, lambda: tables.visible_rows(load.lake, topic) >= 1000)
    topics.send_at(bench.bootstrap, topic, rate, seconds / 2)  # warms up
    since_ms = time.time() * 1000
    sent = topics.send_at(bench.bootstrap, topic, rate, seconds)
    wait_for(job, lambda: tables.visible_rows(load.lake, topic) >= 1000 + sent)
    job.kill()
    watch.end()
    ages = watch.ages_ms(since_ms)
    files = tables.files_left(load.lake, topic)
    p50, p99 = np.percentile(ages, (50, 99)) / 1000
    return {"fresh, p50, s": float(p50), "fresh, p99, s": float(p99), **per_commit(files)}


def per_commit(files: tables.Left) -> Row:
    """Return the files and bytes that a commit leaves on average."""
    commits = max(files.commits, 1)
    return {
        "commits": files.commits,
        "data files a commit": files.data_files / commits,
        "other files a commit": files.other_files / commits,
        "KB of others a commit": files.other_bytes / commits / 1000,
    }


def kills(bench: Bench, arm: Arm, count: int, times: int, seed: int) -> Row:
    """Kill a load several times, then run it to its end; returns the lost and the duplicate records."""
    generator = random.Random(seed)
    load = bench.load(bench.topic("json", count), portion=count // PORTIONS)
    done = 0
    for _ in range(times):
        job = arm.start(load)
        before = tables.visible_rows(load.lake, load.topic)
        wait_for(
            job,
            lambda before=before, job=job: (
                tables.visible_rows(load.lake, load.topic) > before or not job.is_running
            ),
        )
        time.sleep(generator.uniform(0, 1))
        done += job.is_running and tables.visible_rows(load.lake, load.topic) < count
        job.kill()
    settle(arm.start(load), load, count)
    result = tables.account(load.lake, load.topic, count)
    return {"killed in the middle": done, "lost": result.lost, "doubled": result.doubled}


def settle(job: Job, load: Load, count: int) -> None:
    """Wait until all records are visible or none has become so for a while, and end a load."""
    rows, since = 0, time.monotonic()
    while job.is_running and rows < count and time.monotonic() - since < SETTLED_SECONDS:
        before, rows = rows, tables.visible_rows(load.lake, load.topic)
        since = since if rows == before else time.monotonic()
        time.sleep(POLL_SECONDS)
    job.kill()


def many(bench: Bench, count: int) -> Row:
    """Load `count` topics by our load, three records each; returns CPU (s) and peak memory (MB)."""
    from confluent_kafka import Producer

    from barnabas_pipeline.simulate import produce

    names = [f"many_{number}" for number in range(count)]
    produce.create_topics(bench.bootstrap, names, 1, {})
    values, producer = topics.values("json", 0), Producer({"bootstrap.servers": bench.bootstrap})
    for name in names * 3:
        producer.produce(name, next(values))
    assert not producer.flush(60), "not all was sent"
    load = bench.load(",".join(names))
    job = Ours().start(load)
    sampled = Memory(job.pid)
    sampled.start()
    cpu = job.wait(RUN_SECONDS_MAX)
    assert all(tables.visible_rows(load.lake, name) == 3 for name in names)
    return {"CPU, s": cpu, "memory, MB": sampled.end() / 1e6}
