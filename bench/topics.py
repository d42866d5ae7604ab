"""`python -m bench.topics`: cost of a round of a load of many topics, and its parts.

Each topic gets a few records, then one round loads them all; the first rounds, which create the tables, do not count. CPU
is that of driver, Spark and workers, without the broker. Needs the extra `spark`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.procfs import cpu_s

WARM_UP_ROUNDS = 2
SCHEMA = "logins"


def send(producer: Any, topics: list[str], records: int) -> None:
    """Give each topic some records."""
    now_ms = int(time.time() * 1000)
    for topic in topics:
        for n in range(records):
            value = b'{"ts":%d,"member":"m%d","ip":"198.51.100.7","ok":true}' % (now_ms, n)
            producer.produce(topic, value, b"%d" % n, timestamp=now_ms)
    producer.flush(60)


def measure(
    bootstrap: str, lake: Path, topics: list[str], args: Any, broker_pid: int
) -> list[dict[str, float]]:
    """Return the seconds of each step, and of CPU, of each round that counts."""
    from confluent_kafka import Producer

    from barnabas_pipeline import schema
    from barnabas_pipeline.jobs.choices import Choice
    from barnabas_pipeline.jobs.load import LoadOptions
    from barnabas_pipeline.jobs.loading import Load, Topics
    from barnabas_pipeline.lake.iceberg import Lake
    from barnabas_pipeline.log.model import LogOptions
    from barnabas_pipeline.spark import session

    def options_of(topic: str) -> LoadOptions:
        log = LogOptions(topic, bootstrap=bootstrap)
        return LoadOptions(log, place_of(topic), schema.BUILT_IN[SCHEMA], keep_snapshots=args.kept)

    place_of = Lake(str(lake)).place
    producer = Producer({"bootstrap.servers": bootstrap, "queue.buffering.max.messages": 2_000_000})
    spark = session.create("topics", master="local[2]", conf={"spark.driver.memory": "1g"})
    chosen = Topics(LogOptions("", bootstrap=bootstrap), Choice((), ("bench-.*",)), place_of, options_of)
    rounds = Load(lambda: spark, chosen, is_bounded=False)
    measured = []
    for number in range(WARM_UP_ROUNDS + args.rounds):
        send(producer, topics, args.records)
        cpu, own = cpu_s(os.getpid()) - cpu_s(broker_pid), time.process_time()
        done = rounds.round()
        assert len(done.commits) == len(topics), rounds.failures
        if number >= WARM_UP_ROUNDS:
            cpu = cpu_s(os.getpid()) - cpu_s(broker_pid) - cpu
            measured.append(
                {"all": done.seconds, **done.steps, "CPU": cpu, "of the driver": time.process_time() - own}
            )
    idle = rounds.round()
    measured[-1]["of nothing new"] = idle.seconds
    rounds.close()
    spark.stop()
    return measured


def main() -> None:
    """Print medians and spans."""
    parser = argparse.ArgumentParser(prog="python -m bench.topics", description=__doc__)
    parser.add_argument("--topics", type=int, default=300)
    parser.add_argument("--records", type=int, default=3, help="of each topic in a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kept", type=int, default=10, help="snapshots of each table")
    args = parser.parse_args()

    from barnabas_pipeline.commands.demo import running_broker
    from barnabas_pipeline.simulate import produce

    topics = [f"bench-{n}" for n in range(args.topics)]
    with (
        tempfile.TemporaryDirectory() as directory,
        running_broker(Path(directory) / "data") as broker,
    ):
        produce.create_topics(broker.bootstrap, topics, 1, {})
        rounds = measure(broker.bootstrap, Path(directory) / "lake", topics, args, broker.pid)
    print(
        f"{args.topics} topics with {args.records} new records each; seconds, median (span) of {args.rounds} rounds"
    )
    for name in {name: None for times in rounds for name in times}:
        values = [times[name] for times in rounds if name in times]
        print(f"{name:14} {statistics.median(values):8.2f} ({min(values):.2f}-{max(values):.2f})")


if __name__ == "__main__":
    main()
