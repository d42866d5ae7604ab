"""`python -m bench.freshness`: how long it takes from a record's timestamp until the lake's manifest names its row.

A producer process sends login events at a rate while a load follows the topic; the first seconds warm up and do not count.
The latency of a row is the time at which its commit was seen, less its timestamp. Needs the extra `spark`.

`--catch-up 10000` measures what a round of so many offsets costs instead, in CPU time: other work disturbs that less.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

TOPIC, PARTITIONS = "logins", 4
WARM_UP_SECONDS = 8
SETTLE_SECONDS = 5
WARM_UP_ROUNDS = 8


def send(bootstrap: str, rate: int, seconds: int) -> None:
    """Send events at a rate; the timestamp of each is when it was handed to the client."""
    from confluent_kafka import Producer

    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 2_000_000}
    )
    began, sent = time.time(), 0
    while time.time() - began < seconds:
        now_ms = int(time.time() * 1000)
        for n in range(sent, int((time.time() - began) * rate)):
            value = b'{"ts":%d,"member":"m%d","ip":"198.51.100.7","ok":true}' % (now_ms, n % 1000)
            producer.produce(TOPIC, value, b"%d" % (n % 1000), n % PARTITIONS, timestamp=now_ms)
            sent = n + 1
        producer.poll(0)
        time.sleep(0.005)
    unsent = producer.flush(60)
    print(f"sent {sent - unsent:,} in {time.time() - began:.1f} s")


def measure(bootstrap: str, work: Path, rate: int, seconds: int, trigger: str) -> list[Any]:
    """Load as a stream while another process sends; returns an array of latencies (ms) for each file."""
    import pyarrow.parquet as pq

    from barnabas_pipeline import schema
    from barnabas_pipeline.jobs.load import LoadOptions
    from barnabas_pipeline.jobs.loading import Load
    from barnabas_pipeline.lake.store import local_path
    from barnabas_pipeline.lake.table import Table
    from barnabas_pipeline.log.model import LogOptions
    from barnabas_pipeline.simulate import produce
    from barnabas_pipeline.spark import session

    produce.create_topics(bootstrap, [TOPIC], PARTITIONS, {})
    spark = session.create("freshness", master="local[2]", conf={"spark.driver.memory": "2g"})
    options = LoadOptions(
        LogOptions(TOPIC, bootstrap=bootstrap), str(work / "lake" / TOPIC), schema.BUILT_IN[TOPIC]
    )
    table, seen = Table(options.root), dict[int, int]()

    def committed() -> None:
        seen[table.refresh().version] = int(time.time() * 1000)

    load = Load(lambda: spark, options)
    running = ThreadPoolExecutor().submit(load.run, trigger, committed)
    first = began_ms = 0
    for span in (WARM_UP_SECONDS, seconds):
        first, began_ms = Table(options.root).state().version, int(time.time() * 1000)
        command = [sys.executable, "-m", "bench.freshness", "--rate", str(rate), "--seconds", str(span)]
        subprocess.run([*command, "--send-to", bootstrap], check=True)
        time.sleep(SETTLE_SECONDS)
    load.stop()
    running.result()
    ages = []
    for entry in table.entries(first):
        for file in entry.add:
            times = pq.read_table(local_path(file.path), columns=["ts"])["ts"].to_numpy()
            ages.append(seen[entry.version] - times[times >= began_ms])
    spark.stop()
    return ages


def catch_up(bootstrap: str, work: Path, portion: int, rounds: int, broker_pid: int) -> tuple[float, float]:
    """Load an existing topic in portions; returns (CPU ms, wall ms) of a round, without the broker."""
    from barnabas_pipeline import schema
    from barnabas_pipeline.jobs.load import LoadOptions
    from barnabas_pipeline.jobs.loading import Load
    from barnabas_pipeline.log.model import LogOptions
    from barnabas_pipeline.spark import session
    from bench.pipeline import TOPIC as VIEWS
    from bench.pipeline import _fill
    from bench.procfs import cpu_s

    _fill(bootstrap, (rounds + WARM_UP_ROUNDS) * portion)
    spark = session.create("catch-up", master="local[2]", conf={"spark.driver.memory": "2g"})
    options = LoadOptions(LogOptions(VIEWS, bootstrap=bootstrap), str(work / "lake"), schema.BUILT_IN[VIEWS])
    marks: list[tuple[float, float]] = []

    def committed() -> None:
        marks.append((cpu_s(os.getpid()) - cpu_s(broker_pid), time.perf_counter()))

    Load(lambda: spark, options, offsets_max=portion).run(after=committed)
    spark.stop()
    first, last = marks[WARM_UP_ROUNDS - 1], marks[WARM_UP_ROUNDS + rounds - 1]
    cpu, wall = ((after - before) / rounds * 1000 for before, after in zip(first, last, strict=True))
    return cpu, wall


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.freshness", description=__doc__)
    parser.add_argument("--rate", type=int, default=100_000)
    parser.add_argument("--seconds", type=int, default=15)
    parser.add_argument("--trigger", default="0 seconds", help="from round to round of the load")
    parser.add_argument("--send-to", metavar="BOOTSTRAP", help="only send: what the other process does")
    parser.add_argument("--catch-up", type=int, metavar="OFFSETS", help="of a round: what rounds cost")
    parser.add_argument("--rounds", type=int, default=20, help="of --catch-up")
    args = parser.parse_args()
    if args.send_to:
        send(args.send_to, args.rate, args.seconds)
        return
    import numpy as np

    from barnabas_pipeline.commands.demo import running_broker

    with (
        tempfile.TemporaryDirectory() as directory,
        running_broker(Path(directory) / "data") as broker,
    ):
        work = Path(directory)
        if args.catch_up:
            cpu, wall = catch_up(broker.bootstrap, work, args.catch_up, args.rounds, broker.pid)
            print(f"a round of {args.catch_up:,} offsets: {cpu:.0f} ms of CPU, {wall:.0f} ms")
            return
        ages = measure(broker.bootstrap, work, args.rate, args.seconds, args.trigger)
    every = np.concatenate(ages)
    middle, late, last = np.percentile(every, [50, 99, 100])
    print(
        f"{len(every):,} rows: median {middle:.0f} ms, 99th percentile {late:.0f} ms, longest {last:.0f} ms"
    )


if __name__ == "__main__":
    main()
