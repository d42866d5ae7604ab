"""`python -m compat.debezium`: current rows of Debezium's topics, compared with their source tables in PostgreSQL.

The rule: jobs and Connect are killed while tables change; at the end the rows must be equal to the tables. One connector
writes schemas into its records, the other writes JSON without schemas.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from barnabas.testing.running import import_path
from compat.debezium.comparing import differences, rows_of
from compat.debezium.servers import Connect, Postgres
from compat.debezium.workload import TABLES, Workload
from compat.kafka.releases import ROOT
from compat.matrix.brokers import Barnabas

WAIT_SECONDS_MAX = 240
BARE = [
    ("id", "long"), ("customer", "string"), ("total", {"decimal": [12, 2]}), ("ratio", "double"), ("rate", "float"),
    ("ok", "boolean"), ("small", "int"), ("born", "date_days"), ("at", "local_timestamp_us"), ("zoned", "iso8601"),
    ("took", "time_us"), ("tag", "uuid"), ("data", "string"), ("raw", "bytes"), ("note", "string"),
]  # fmt: skip
"""Columns of orders as bare JSON has them, with decimals as text."""
EXTRA = ("extra", {"decimal": [8, 4]})


@dataclass
class Copy:
    """A topic of Debezium's, and its source table in PostgreSQL."""

    topic: str
    table: str
    key: tuple[str, ...]
    format: str
    flags: list[str] = field(default_factory=list)
    kills: int = 0


COPIES = [
    Copy("wide.public.orders", "orders", ("id",), "connect-json"),
    Copy("wide.public.lines", "lines", ("order_id", "line"), "connect-json"),
    Copy("bare.public.orders", "orders", ("id",), "json", ["--buckets", "4"]),
]


class Jobs:
    """Jobs of the pipeline, each in a separate process."""

    def __init__(self, directory: Path, bootstrap: str) -> None:
        self.directory, self.bootstrap = directory, bootstrap
        self.lake = directory / "lake"

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start one."""
        path = os.pathsep.join((import_path(), str(ROOT / "pipeline"), str(ROOT)))
        environment = {**os.environ, "PYTHONPATH": path}
        command = [sys.executable, "-m", "barnabas_pipeline.cli", *arguments]
        with (self.directory / "jobs.log").open("a") as log:
            log.write(f"{' '.join(arguments)}\n")
            log.flush()
            return subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environment,
                start_new_session=True,
            )

    def run(self, *arguments: str, code: int = 0) -> dict[str, Any]:
        """Run one to its end; returns its summary."""
        process = self.start(*arguments, *([] if arguments[0] == "infer-schema" else ["--json"]))
        out, _ = process.communicate()
        assert process.returncode == code, (
            f"{arguments}: {process.returncode}, see {self.directory / 'jobs.log'}"
        )
        return dict(json.loads(out.splitlines()[-1])) if out.startswith("{") else {}

    def load(self, copy: Copy, *more: str) -> list[str]:
        """The command line of a load."""
        return ["load", *self._named(copy), "--tombstones", "keep", *SPARK, *more]

    def loads(self) -> list[str]:
        """The command line of one load of all topics, in rounds until it is killed."""
        topics = {copy.topic: {"format": copy.format, "schema": self.schema(copy).name} for copy in COPIES}
        settings = self.directory / "topics.yaml"
        settings.write_text(json.dumps({"defaults": {"tombstones": "keep"}, "topics": topics}))
        place = ["--topics", str(settings), "--bootstrap", self.bootstrap, "--lake", str(self.lake)]
        return ["load", *place, "--trigger", "1 second", *SPARK]

    def current(self, copy: Copy, *more: str) -> list[str]:
        """The command line of the job under test."""
        key = ["--key", ",".join(copy.key), "--envelope", "debezium", *copy.flags]
        return ["current", "--topic", copy.topic, "--lake", str(self.lake), *key, *SPARK, *more]

    def _named(self, copy: Copy) -> list[str]:
        place = ["--topic", copy.topic, "--bootstrap", self.bootstrap, "--lake", str(self.lake)]
        return [*place, "--format", copy.format, "--schema", str(self.schema(copy))]

    def backfill(self, copy: Copy) -> list[str]:
        """The command line of a backfill of all hours, with a newer schema."""
        hours = ["--from", "2020-01-01", "--to", "2100-01-01"]
        return ["backfill", *self._named(copy), "--evolve", "--tombstones", "keep", *hours, *SPARK]

    def schema(self, copy: Copy) -> Path:
        """The schema file of a topic."""
        return self.directory / f"{copy.topic}.json"

    def draft(self, copy: Copy, *, has_extra: bool = False) -> None:
        """Make the schema file, from the records or by hand."""
        path = self.schema(copy)
        path.unlink(missing_ok=True)
        if copy.format == "connect-json":
            sample = ["--format", copy.format, "--sample", "1000000", "--out", str(path)]
            self.run("infer-schema", "--topic", copy.topic, "--bootstrap", self.bootstrap, *sample)
            return
        columns = [{"name": name, "type": kind} for name, kind in [*BARE, *([EXTRA] if has_extra else [])]]
        fields = [
            {"name": "before", "type": {"record": columns}},
            {"name": "after", "type": {"record": columns}},
            {"name": "source", "type": {"record": [{"name": "lsn", "type": "long"}]}},
            {"name": "op", "type": "string"},
        ]
        path.write_text(json.dumps({"name": copy.topic, "fields": fields}))

    def are_loaded(self) -> bool:
        """Return whether all topics were loaded once."""
        from barnabas_pipeline.lake.table import Table

        return all(Table(self.lake / copy.topic).refresh().version for copy in COPIES)

    def rows(self, copy: Copy) -> list[dict[str, Any]]:
        """The current rows, as a stock reader of Iceberg sees them."""
        from pyiceberg.catalog import load_catalog

        catalog = load_catalog("barnabas", type="sql", uri=f"sqlite:///{self.lake}/catalog.db")
        name = f"barnabas.{copy.topic.replace('.', '_')}__current"
        return list(catalog.load_table(name).scan().to_arrow().to_pylist())


SPARK = ["--master", "local[1, 4]", "--conf", "spark.driver.memory=512m", "--conf", "spark.ui.enabled=false"]


class Killed(threading.Thread):
    """Runs a job in rounds, kills it at random times, and starts it again, until `end`."""

    def __init__(
        self, jobs: Jobs, copy: Copy, command: list[str], seconds: tuple[float, float], seed: int
    ) -> None:
        super().__init__(daemon=True)
        self._jobs, self._copy, self._command = jobs, copy, command
        self._seconds, self._random = seconds, random.Random(seed)
        self.stopping = threading.Event()
        self.ended: list[int] = []

    def run(self) -> None:
        """Run and kill the job."""
        while not self.stopping.is_set():
            process = self._jobs.start(*self._command)
            self.stopping.wait(self._random.uniform(*self._seconds))
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                self._copy.kills += 1
            else:
                self.ended.append(process.returncode)
            process.communicate()

    def end(self) -> None:
        """Kill it for the last time."""
        self.stopping.set()
        self.join()


def run(directory: Path, seconds: float, seed: int) -> list[str]:
    """Run the whole test; returns the differences."""
    postgres, broker = Postgres(directory), Barnabas(directory)
    postgres.start()
    broker.start()
    connect = Connect(directory, broker.bootstrap, postgres)
    try:
        postgres.run(TABLES)
        work = Workload(postgres, seed)
        for _ in range(20):
            work.transaction()  # rows of the snapshot
        connect.add("wide", "public.orders,public.lines")
        bare = {"key_converter_schemas_enable": "false", "value_converter_schemas_enable": "false"}
        types = {"decimal_handling_mode": "string", "key_converter": JSON, "value_converter": JSON}
        connect.add("bare", "public.orders", **bare, **types)
        connect.start()
        jobs = Jobs(directory, broker.bootstrap)
        change(jobs, work, connect, seconds, seed)
        return settle(jobs, work, postgres)
    finally:
        connect.kill()
        postgres.stop()
        broker.stop()


JSON = "org.apache.kafka.connect.json.JsonConverter"


def change(jobs: Jobs, work: Workload, connect: Connect, seconds: float, seed: int) -> None:
    """Change tables while loads and jobs run, and are killed; the connector is killed too, and a column is added."""
    wait_for_topics(jobs)
    for copy in COPIES:
        jobs.draft(copy)
    loads = jobs.start(*jobs.loads())
    wait_until(jobs.are_loaded, "the first loads do not come: see jobs.log")
    killed = []
    for n, copy in enumerate(COPIES):
        follow = jobs.current(copy, "--trigger", "200 milliseconds", "--keep-snapshots", "5")
        killed.append(Killed(jobs, copy, follow, (6, 16), seed + n))
    for server in killed:
        server.start()
    work.run(seconds / 2)
    connect.kill()
    work.add_column()
    work.run(3)
    connect.start()
    work.run(seconds / 2)
    work.close()
    for server in killed:
        server.end()
    os.killpg(loads.pid, signal.SIGKILL)
    loads.communicate()


def wait_until(is_so: Callable[[], bool], text: str) -> None:
    """Wait until a condition holds. Raises AssertionError with `text` after a timeout."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not is_so():
        assert time.monotonic() < deadline, text
        time.sleep(0.5)


def wait_for_topics(jobs: Jobs) -> None:
    """Wait until all topics have records."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": jobs.bootstrap, "group.id": "wait", "log_level": 0})

    def are_there() -> bool:
        ends = []
        for copy in COPIES:
            partitions = consumer.list_topics(copy.topic, timeout=10).topics[copy.topic].partitions
            ends.append(
                sum(consumer.get_watermark_offsets(TopicPartition(copy.topic, p))[1] for p in partitions)
            )
        return min(ends) > 0

    wait_until(are_there, "topics stay empty: see connect.log")
    consumer.close()


def settle(jobs: Jobs, work: Workload, postgres: Postgres) -> list[str]:
    """Load and apply the rest, then compare; returns the differences. A backfill fills in an added column."""
    problems = []
    print(
        json.dumps({"statements": work.statements, "kills": {copy.topic: copy.kills for copy in COPIES}}),
        flush=True,
    )
    for copy in COPIES:
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        key = dict(zip(copy.key, (1_000_000, 0), strict=False))
        while True:
            loaded = jobs.run(*jobs.load(copy))
            jobs.run(*jobs.current(copy))
            rows = jobs.rows(copy)
            if any(row.items() >= key.items() for row in rows):
                break
            assert time.monotonic() < deadline, f"the last row of {copy.topic} does not come: see connect.log"
        if copy.table == "orders":
            jobs.draft(copy, has_extra=True)
            jobs.run(*jobs.backfill(copy))
        applied = jobs.run(*jobs.current(copy, "--vacuum-hours", "0"))
        checked = jobs.run(*jobs.current(copy, "--check"))
        theirs = rows_of(postgres, copy.table)
        differ = differences(theirs, jobs.rows(copy), copy.key)
        figures = {"topic": copy.topic, "rows": len(theirs), "differ": len(differ)}
        print(json.dumps(figures | {"load": loaded, "current": applied, "check": checked}), flush=True)
        problems += [f"{copy.topic} {text}" for text in differ]
    return problems


def main(argv: list[str]) -> int:
    """Returns the exit code: 0 if every row is as it is in PostgreSQL."""
    parser = argparse.ArgumentParser(prog="python -m compat.debezium", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="for how long tables change")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    options = parser.parse_args(argv)
    directory = Path(tempfile.mkdtemp(prefix="barnabas-debezium-"))
    print(f"seed {options.seed}, in {directory}", flush=True)
    problems = run(directory, options.seconds, options.seed)
    for text in problems[:50]:
        print(text)
    if not problems:
        shutil.rmtree(directory)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
