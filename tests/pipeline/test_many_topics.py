"""Many topics in one load, with Spark and a broker: what joins, leaves and fails meanwhile, and kill -9 within a round."""

from __future__ import annotations

import json
import queue
import signal
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from barnabas_pipeline.commands import metrics
from barnabas_pipeline.errors import PipelineError, TopicsError, UsageError
from barnabas_pipeline.jobs.choices import Choice
from barnabas_pipeline.jobs.load import LoadOptions
from barnabas_pipeline.jobs.loading import Commit, Load, Topics, Watcher
from barnabas_pipeline.lake.iceberg import Lake
from barnabas_pipeline.lake.table import Table
from barnabas_pipeline.log.model import LogOptions
from barnabas_pipeline.schema import BUILT_IN

from .conftest import SITE, Broker, Stream
from .test_faults import run_cli
from .test_lake import check

WAIT_SECONDS = 90
KEPT = {"retention.ms": "-1"}  # the simulated time is long ago


class Cluster:
    """Topics of a broker with events of logins."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        self.sent: dict[str, int] = {}

    def create(self, *names: str, partitions: int = 1) -> None:
        for future in self.admin.create_topics(
            [NewTopic(name, partitions, config=KEPT) for name in names]
        ).values():
            future.result(10)

    def send(self, name: str, count: int, partition: int = 0) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for _ in range(count):
            n = self.sent[name] = self.sent.get(name, 0) + 1
            value = {"ts": SITE.start_ms + n, "member": f"m{n}", "ip": "i", "ok": True}
            producer.produce(
                name, json.dumps(value).encode(), b"%d" % n, partition, timestamp=SITE.start_ms + n
            )
        assert producer.flush(10) == 0


def members(place: Any) -> list[str]:
    """The members in the rows of a table, as a stock reader sees them."""
    return sorted(Table(place).iceberg.scan().to_arrow()["member"].to_pylist())


class Told(Watcher):
    """Waits until something is told."""

    def __init__(self) -> None:
        self._told: queue.Queue[tuple[str, str]] = queue.Queue()
        self._seen: set[tuple[str, str]] = set()
        self.loaded: dict[str, int] = {}

    def joined(self, topic: str) -> None:
        self._told.put(("joined", topic))

    def failed(self, topic: str, error: PipelineError, *, is_over: bool) -> None:
        self._told.put(("left out" if is_over else "failed", topic))

    def committed(self, commit: Commit) -> None:
        self.loaded[commit.topic] = self.loaded.get(commit.topic, 0) + commit.summary.loaded
        self._told.put((f"loaded {self.loaded[commit.topic]}", commit.topic))

    def wait(self, *expected: tuple[str, str]) -> None:
        while not self._seen.issuperset(expected):
            try:
                self._seen.add(self._told.get(timeout=WAIT_SECONDS))
            except queue.Empty:
                pytest.fail(f"waited for {set(expected) - self._seen}, was told {self._seen}")


def test_topics_join_leave_and_fail_during_a_load(
    spark: Any, stream: Stream, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster, told, lake = Cluster(stream.bootstrap), Told(), Lake(str(tmp_path))
    cluster.create("many.a", "many.b", "many.bad", "named")
    for name, count in (("many.a", 30), ("many.b", 5), ("named", 7), ("many.bad", 3)):
        cluster.send(name, count)

    def options_of(topic: str) -> LoadOptions:
        if topic == "many.bad":
            raise UsageError("its schema is no schema")
        return LoadOptions(
            LogOptions(topic, bootstrap=stream.bootstrap), lake.place(topic), BUILT_IN["logins"]
        )

    choice = Choice(("named",), (r"many\..*",), (r".*\.hidden",))
    topics = Topics(LogOptions("", bootstrap=stream.bootstrap), choice, lake.place, options_of)
    load = Load(lambda: spark, topics, worker_offsets_max=0, watchers=[told])
    with ExitStack() as stack:
        metrics.serve("127.0.0.1:0", stack, metrics.LoadCollector(load))
        url = capsys.readouterr().err.split()[1]
        running = stack.enter_context(ThreadPoolExecutor()).submit(load.run, "10 milliseconds")
        stack.callback(load.stop)
        told.wait(
            ("loaded 30", "many.a"), ("loaded 5", "many.b"), ("loaded 7", "named"), ("left out", "many.bad")
        )
        cluster.create("many.c", "many.hidden", partitions=2)
        cluster.send("many.c", 4, partition=1)
        cluster.admin.create_partitions([NewPartitions("many.a", 2)])["many.a"].result(10)
        cluster.send("many.a", 6, partition=1)
        told.wait(("loaded 4", "many.c"), ("loaded 36", "many.a"))
        cluster.admin.delete_topics(["many.b"])["many.b"].result(10)
        told.wait(("left out", "many.b"))
        cluster.send("named", 2)
        told.wait(("loaded 9", "named"))
        with urllib.request.urlopen(url, timeout=10) as answer:
            lines = answer.read().decode().splitlines()
    with pytest.raises(TopicsError) as caught:
        running.result()
    assert caught.value.exit_code == 3
    assert "2 of 5 topics have failed: many.b: topic many.b is gone; missing: partition 0: [5, ?)" in str(
        caught.value
    )
    assert "many.bad: its schema is no schema" in str(caught.value)
    for topic, count in (("many.a", 36), ("many.b", 5), ("many.c", 4), ("named", 9)):
        assert members(lake.place(topic)) == sorted(f"m{n + 1}" for n in range(count))
        assert f'barnabas_load_rows_total{{topic="{topic}"}} {count}.0' in lines
    assert 'barnabas_load_lag_records{partition="1",topic="many.a"} 0.0' in lines
    assert 'barnabas_load_failing{left_out="true",topic="many.b"} 1.0' in lines
    state = Table(lake.place("many.a")).state()
    assert (state.starts, state.ends) == ({0: 0, 1: 0}, {0: 30, 1: 6})
    assert check(spark, options_of("many.a")).problems == []


def test_killed_round_of_several_topics_is_exact_after_the_next(
    tmp_path: Path, new_broker: Callable[..., Broker]
) -> None:
    cluster = Cluster(new_broker().bootstrap)
    names = [f"t{n}" for n in range(6)]
    cluster.create(*names, "broken")
    for name in names:
        cluster.send(name, 20)
    settings = tmp_path / "topics.yaml"
    settings.write_text(
        "defaults: {schema: logins}\ntopics:\n  broken: {schema: none.json}\n  t0: {table: other.zero}\n"
        "patterns: {'t[1-9]': {keep-snapshots: 5}}\n"
    )
    lake = tmp_path / "lake"
    arguments = ["load", "--topics", str(settings), "--bootstrap", cluster.bootstrap, "--lake", str(lake)]
    arguments += ["--master", "local[2, 4]", "--conf", "spark.driver.memory=512m"]
    arguments += ["--json", "--progress", "json"]
    place = {name: Lake(str(lake)).place(name, "other.zero" if name == "t0" else "") for name in names}
    for point in ("commit.after_swap", "load.after_tasks"):
        done = run_cli(*arguments, fault=point)
        assert done.returncode == -signal.SIGKILL, done.stderr[-2000:]
        versions = [Table(place[name]).state().version for name in names]
        assert any(versions), "one was committed"
        for name in names:
            cluster.send(name, 10)
    done = run_cli(*arguments)
    assert done.returncode == 4, done.stderr[-2000:]
    assert "usage: 1 of 7 topics have failed: broken: none.json: " in done.stderr
    for name in names:
        assert members(place[name]) == sorted(f"m{n + 1}" for n in range(40)), name
        entries = Table(place[name]).entries()
        ranges = [entry.partitions["0"] for entry in entries]
        assert [span.start for span in ranges] == [0, *(span.end for span in ranges[:-1])], (
            "commits follow each other"
        )
        assert (ranges[-1].end, {entry.topic for entry in entries}) == (40, {name})
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert sorted(event["topic"] for event in events if event.get("event") == "commit") == names
    assert [event["left_out"] for event in events if event.get("event") == "failed"] == [True]
    summary = events[-1]
    assert (summary["job"], summary["commits"], [*summary["failures"]]) == ("load", 6, ["broken"])
    assert sum(topic["loaded"] for topic in summary["topics"].values()) == summary["loaded"]
