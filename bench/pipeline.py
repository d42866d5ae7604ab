"""`python -m bench.pipeline`: reading speed of the pipeline beside Spark's own Kafka connector, on one broker.

Needs the extra `spark`, and the connector's jars (the pipeline's tests fetch them; `--jars DIR`). The arms take turns
within each round, so that other load of the machine affects all alike; the first round warms up and does not count.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

TOPIC = "views"
PARTITIONS = 4
COLUMNS = ("partition", "offset", "timestamp", "key", "value")


def _fill(bootstrap: str, count: int) -> int:
    """Send `count` view events; returns their bytes."""
    from barnabas_pipeline.simulate import produce
    from barnabas_pipeline.simulate.model import Simulation, Site

    start_ms = int(time.time() * 1000) // 3_600_000 * 3_600_000 - 8 * 3_600_000
    events = [
        event
        for event in Simulation(Site(events=count // 2, start_ms=start_ms)).events()
        if event.kind == TOPIC
    ]
    while len(events) < count:
        events += events[: count - len(events)]
    produce.create_topics(bootstrap, [TOPIC], PARTITIONS, {"retention.ms": "-1"})
    produce.send(bootstrap, events, config={"batch.num.messages": "500"})
    return sum(len(event.value) + len(event.key) for event in events)


def _arms(
    spark: Any, bootstrap: str, data: Path, lake: Path, *, connector: bool
) -> dict[str, Callable[[], Any]]:
    from barnabas_pipeline import schema
    from barnabas_pipeline.jobs.audit import audit
    from barnabas_pipeline.jobs.load import LoadOptions
    from barnabas_pipeline.jobs.loading import load
    from barnabas_pipeline.log.model import LogOptions

    def noop(frame: Any) -> None:
        frame.select(*COLUMNS).write.format("noop").mode("overwrite").save()

    def ours(transport: str, **more: str) -> Callable[[], Any]:
        options = {"topic": TOPIC, "bootstrap": bootstrap, "logDirs": str(data), "transport": transport}
        options |= more
        return lambda: noop(spark.read.format("barnabas").options(**options).load())

    def made_beforehand() -> None:
        spark.dataSource.register(_made_source())
        frame = spark.read.format("made").options(topic=TOPIC, bootstrap=bootstrap, **pruned).load()
        noop(frame)

    def theirs(**options: Any) -> Callable[[], Any]:
        base = {"kafka.bootstrap.servers": bootstrap, "subscribe": TOPIC, "startingOffsets": "earliest"}
        return lambda: noop(spark.read.format("kafka").options(**base, **options).load())

    pruned = {"columns": ",".join(COLUMNS)}
    runs = iter(range(1_000_000))
    last: list[LoadOptions] = []

    def loading() -> None:
        last[:] = [
            LoadOptions(
                LogOptions(TOPIC, bootstrap=bootstrap), str(lake / f"{next(runs)}"), schema.BUILT_IN[TOPIC]
            )
        ]
        load(spark, last[0])

    def auditing(*, deep: bool) -> Callable[[], Any]:
        def run() -> None:
            report = audit(spark, last[0], now_ms=0, lateness_ms=0, seal=False, deep=deep)
            assert not report.problems, report.problems

        return run

    arms = {"source, wire": ours("wire", **pruned), "source, disk": ours("disk", **pruned)}
    arms |= {"wire, all columns": ours("wire"), "disk, all columns": ours("disk")}
    arms["bound of any source"] = made_beforehand
    if connector:
        arms["connector, defaults"] = theirs()
        arms["connector, tuned"] = theirs(
            **{"kafka.max.poll.records": 50_000, "kafka.max.partition.fetch.bytes": 16 << 20}
        )
    return arms | {"load": loading, "audit": auditing(deep=False), "audit --deep": auditing(deep=True)}


def _made_source() -> type[Any]:
    """Return a source without input: each task decodes one block, and passes it to Spark repeatedly.

    It has our columns and as many rows as the topic, so its cost is Spark's cost of rows from Python.
    """
    from barnabas_pipeline.spark import source

    class MadeReader(source.BatchReader):
        def read(self, partition: Any) -> Any:
            rows_left = len(partition.offset_range)
            blocks: Any = super().read(partition)
            block = next(blocks)
            blocks.close()
            while rows_left:
                yield block.slice(0, rows_left)
                rows_left -= min(rows_left, block.num_rows)

    class MadeSource(source.BarnabasSource):
        @classmethod
        def name(cls) -> str:
            return "made"

        def reader(self, schema: Any) -> Any:
            return MadeReader(self.options)

    return MadeSource


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.pipeline", description=__doc__)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--jars", type=Path, help="directory with the connector's jars")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--arms", help="only these, separated by semicolons; audits need `load`")
    parser.add_argument("--at", metavar="BOOTSTRAP", help="a broker that has the topic already (with --data)")
    parser.add_argument("--data", type=Path, help="its log dir")
    args = parser.parse_args()
    from barnabas_pipeline.commands.demo import running_broker
    from barnabas_pipeline.spark import session

    jars = sorted(str(path) for path in args.jars.glob("*.jar")) if args.jars else []
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        work = Path(directory)
        data, bootstrap = args.data, args.at
        if bootstrap is None:
            data = work / "data"
            bootstrap = stack.enter_context(running_broker(data)).bootstrap
            _fill(bootstrap, args.records)
            time.sleep(61)  # until the broker has checkpointed its high watermark, for the disk
        conf = {"spark.driver.memory": "2g"} | ({"spark.jars": ",".join(jars)} if jars else {})
        spark = session.create("bench", master=args.master, conf=conf)
        arms = _arms(spark, bootstrap, data, work / "lake", connector=bool(jars))
        if args.arms:
            arms = {name: arms[name] for name in args.arms.split(";")}
        seconds = _measure(arms, args.rounds)
        spark.stop()
    print(f"{args.records:,} records, {args.master}, median of {args.rounds} rounds")
    for name, values in seconds.items():
        middle = median(values)
        print(
            f"{name:22}{args.records / middle:12,.0f} records/s   ({min(values):.2f} to {max(values):.2f} s)"
        )
    for name in [name for name in seconds if name.startswith("audit") and "load" in seconds]:
        ratios = [took / loading for took, loading in zip(seconds[name], seconds["load"], strict=True)]
        print(f"{name} / load: {median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
    if args.json:
        args.json.write_text(json.dumps({"records": args.records, "seconds": seconds}, indent=1))


def _measure(arms: dict[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {name: [] for name in arms}
    for number in range(rounds + 1):
        for name, run in arms.items():
            began = time.perf_counter()
            run()
            if number:
                seconds[name].append(time.perf_counter() - began)
        print(f"round {number} of {rounds}", file=sys.stderr)
    return seconds


if __name__ == "__main__":
    main()
