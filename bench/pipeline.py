"""`python -m bench.pipeline`: how fast the pipeline reads, next to Spark's own Kafka connector, on one broker.

Needs the extra `spark`, and the connector's jars (the pipeline's tests fetch them; `--jars DIR`). The arms take turns
within each round, so that a busy machine is unfair to all of them alike; the first round warms up and does not count.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

TOPIC = "views"
PARTITIONS = 4


def _fill(bootstrap: str, count: int) -> int:
    """Send `count` view events; returns their bytes."""
    from barnabas_pipeline.simulate import produce
    from barnabas_pipeline.simulate.model import Simulation, Site

    start_ms = int(time.time() * 1000) // 3_600_000 * 3_600_000 - 8 * 3_600_000
    events = [
        one for one in Simulation(Site(events=count // 2, start_ms=start_ms)).events() if one.kind == TOPIC
    ]
    while len(events) < count:
        events += events[: count - len(events)]
    produce.create_topics(bootstrap, [TOPIC], PARTITIONS, {"retention.ms": "-1"})
    produce.send(bootstrap, events, config={"batch.num.messages": 500})
    return sum(len(one.value) + len(one.key) for one in events)


def _arms(
    spark: Any, bootstrap: str, data: Path, lake: Path, *, connector: bool
) -> dict[str, Callable[[], Any]]:
    from barnabas_pipeline import schema
    from barnabas_pipeline.jobs.audit import audit
    from barnabas_pipeline.jobs.load import LoadOptions, load
    from barnabas_pipeline.log.model import LogOptions

    def noop(frame: Any) -> None:
        frame.select("partition", "offset", "timestamp", "key", "value").write.format("noop").mode(
            "overwrite"
        ).save()

    def ours(transport: str) -> Callable[[], Any]:
        options = {"topic": TOPIC, "bootstrap": bootstrap, "logDirs": str(data), "transport": transport}
        return lambda: noop(spark.read.format("barnabas").options(**options).load())

    def theirs(**options: Any) -> Callable[[], Any]:
        base = {"kafka.bootstrap.servers": bootstrap, "subscribe": TOPIC, "startingOffsets": "earliest"}
        return lambda: noop(spark.read.format("kafka").options(**base, **options).load())

    runs = iter(range(1_000_000))
    last: list[LoadOptions] = []

    def loading() -> None:
        last[:] = [
            LoadOptions(
                LogOptions(TOPIC, bootstrap=bootstrap), str(lake / f"{next(runs)}"), schema.BUILT_IN[TOPIC]
            )
        ]
        load(spark, last[0])

    def auditing() -> None:
        report = audit(spark, last[0], now_ms=0, lateness_ms=0, seal=False)
        assert not report.problems, report.problems

    arms = {"source, wire": ours("wire"), "source, disk": ours("disk")}
    if connector:
        arms["connector, defaults"] = theirs()
        arms["connector, tuned"] = theirs(
            **{"kafka.max.poll.records": 50_000, "kafka.max.partition.fetch.bytes": 16 << 20}
        )
    return arms | {"load": loading, "audit": auditing}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.pipeline", description=__doc__)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--jars", type=Path, help="directory with the connector's jars")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    from barnabas_pipeline.commands.demo import STOP_SECONDS_MAX, start_broker
    from barnabas_pipeline.spark import session

    jars = sorted(str(path) for path in args.jars.glob("*.jar")) if args.jars else []
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        broker, bootstrap = start_broker(work / "data")
        try:
            size = _fill(bootstrap, args.records)
            conf = {"spark.jars": ",".join(jars)} if jars else {}
            spark = session.create("bench", master=args.master, conf=conf)
            time.sleep(61)  # until the broker has checkpointed its high watermark, for the disk
            arms = _arms(spark, bootstrap, work / "data", work / "lake", connector=bool(jars))
            seconds: dict[str, list[float]] = {name: [] for name in arms}
            for number in range(args.rounds + 1):
                for name, run in arms.items():
                    began = time.perf_counter()
                    run()
                    if number:
                        seconds[name].append(time.perf_counter() - began)
                print(f"round {number} of {args.rounds}", file=sys.stderr)
            spark.stop()
        except subprocess.SubprocessError:
            broker.kill()
            raise
        finally:
            broker.terminate()
            broker.wait(STOP_SECONDS_MAX)
    print(
        f"{args.records:,} records, {size / args.records:.0f} B each, {args.master}, median of {args.rounds} rounds"
    )
    for name, values in seconds.items():
        middle = median(values)
        print(
            f"{name:22}{args.records / middle:12,.0f} records/s   ({min(values):.2f} to {max(values):.2f} s)"
        )
    if args.json:
        args.json.write_text(
            json.dumps({"records": args.records, "bytes": size, "seconds": seconds}, indent=1)
        )


if __name__ == "__main__":
    main()
