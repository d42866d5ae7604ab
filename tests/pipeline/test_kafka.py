"""The pipeline on Apache Kafka and on Barnabas: the same events give the same lake, also where logs have holes.

The Kafka is a real one, started by `compat.kafka` (a JDK and Maven Central are needed, as for Spark's connector).
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from barnabas_pipeline import schema
from barnabas_pipeline.jobs.audit import AuditReport, audit
from barnabas_pipeline.jobs.load import LoadOptions, LoadSummary
from barnabas_pipeline.jobs.loading import load
from barnabas_pipeline.log.model import LogOptions, OffsetRange
from barnabas_pipeline.log.reader import RangeReader
from barnabas_pipeline.log.transports import open_log
from barnabas_pipeline.simulate import produce
from barnabas_pipeline.simulate.model import Event, Simulation, Site
from compat.kafka import RealKafka

from .conftest import start_broker
from .test_lake import LATER, rows_of

SMALL = Site(seed=7, events=4_000)
CLEAN_SECONDS_MAX = 90
KEYS = 8
CLEANER = {"log.cleaner.backoff.ms": "200", "replica.high.watermark.checkpoint.interval.ms": "500"}


@dataclass
class Served:
    """A broker of either make: how to reach it, and its log dir."""

    bootstrap: str
    data: Path

    def log(self, topic: str, transport: str) -> LogOptions:
        return LogOptions(topic, transport, self.bootstrap, (str(self.data),))

    def loading(self, topic: str, transport: str, root: Path, kind: str) -> LoadOptions:
        return LoadOptions(self.log(topic, transport), str(root / transport / topic), schema.load(kind))


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Served]]:
    ours = start_broker(
        tmp_path_factory.mktemp("barnabas") / "data", *(f"{name}={value}" for name, value in CLEANER.items())
    )
    kafka = RealKafka("4.x", data=tmp_path_factory.mktemp("kafka"), settings=CLEANER)
    kafka.start()
    yield {"barnabas": Served(ours.bootstrap, ours.data), "kafka": Served(kafka.bootstrap, kafka.log_dir)}
    kafka.stop()
    ours.stop()


def until(done: Callable[[], bool], what: str) -> None:
    """Wait for what a broker does by itself."""
    deadline = time.monotonic() + CLEAN_SECONDS_MAX
    while not done():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


def high_watermarks(served: Served, topic: str, transport: str) -> dict[int, int]:
    log = open_log(served.log(topic, transport))
    try:
        return {partition: bound.high_watermark for partition, bound in log.bounds().items()}
    finally:
        log.close()


def checkpointed(served: Served, topic: str) -> None:
    """Wait until the disk says what the wire says."""
    until(
        lambda: high_watermarks(served, topic, "disk") == high_watermarks(served, topic, "wire"),
        f"the high watermarks of {topic} are not in the checkpoint",
    )


def load_and_audit(spark: Any, loading: LoadOptions) -> tuple[LoadSummary, AuditReport]:
    summary = load(spark, loading)
    report = audit(spark, loading, now_ms=LATER, lateness_ms=0)
    assert report.problems == []
    assert report.offsets == report.loaded + report.dead + report.control + report.aborted + report.compacted
    return summary, report


def verdict(summary: LoadSummary, report: AuditReport) -> dict[str, Any]:
    """The results that must not depend on the broker: everything but sizes and numbers of files."""
    return {
        "reasons": summary.reasons,
        "sealed": report.sealed,
        **{
            name: getattr(report, name)
            for name in (
                "offsets",
                "loaded",
                "dead",
                "control",
                "aborted",
                "compacted",
                "rows_compared",
                "lag",
            )
        },
    }


def send_in_transactions(served: Served, topic: str, events: list[Event]) -> None:
    """Every third transaction of ten records is aborted."""
    producer = Producer({"bootstrap.servers": served.bootstrap, "transactional.id": f"t-{topic}"})
    producer.init_transactions(30)
    for n in range(0, len(events), 10):
        producer.begin_transaction()
        for event in events[n : n + 10]:
            producer.produce(topic, event.value, event.key, partition=0, timestamp=event.delivered)
        if n // 10 % 3 == 2:
            producer.flush(30)
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)


@pytest.mark.parametrize("transport", ["wire", "disk"])
def test_both_brokers_give_the_same_lake(
    spark: Any, brokers: dict[str, Served], tmp_path: Path, transport: str
) -> None:
    events = [event for event in Simulation(SMALL).events() if event.kind in ("views", "logins")]
    logins = [event for event in events if event.kind == "logins"]
    seen: dict[str, list[tuple[dict[str, Any], Counter[str]]]] = {}
    for name, served in brokers.items():
        views, topic = f"views-{transport}", f"logins-{transport}"
        produce.create_topics(served.bootstrap, [views], 3, {"retention.ms": "-1"})
        produce.create_topics(served.bootstrap, [topic], 1, {"retention.ms": "-1"})
        _send_views(served, views, [event for event in events if event.kind == "views"])
        send_in_transactions(served, topic, logins)
        for source, kind in ((views, "views"), (topic, "logins")):
            checkpointed(served, source)
            loading = served.loading(source, transport, tmp_path / name, kind)
            outcome = verdict(*load_and_audit(spark, loading)), rows_of(spark, loading)
            seen.setdefault(name, []).append(outcome)
    assert seen["kafka"] == seen["barnabas"]
    (in_views, view_rows), (in_logins, _) = seen["kafka"]
    assert in_views["dead"] == 3
    assert in_views["loaded"] == sum(view_rows.values()) == in_views["offsets"] - 3
    transactions = -(-len(logins) // 10)
    assert in_logins["control"] == transactions
    assert in_logins["aborted"] == sum(len(logins[n : n + 10]) for n in range(20, len(logins), 30))
    assert in_logins["aborted"] > 10


def _send_views(served: Served, topic: str, events: list[Event]) -> None:
    """One client sends them all, to partitions that follow from their place; three are bad."""
    producer = Producer({"bootstrap.servers": served.bootstrap, "compression.type": "lz4"})
    failed: list[Any] = []
    for n, event in enumerate(events):
        value = b"no JSON" if n in (10, 500, 700) else event.value
        producer.produce(
            topic, value, event.key, partition=n % 3, timestamp=event.delivered,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )  # fmt: skip
    assert producer.flush(60) == 0
    assert failed == []


@pytest.mark.parametrize("name", ["barnabas", "kafka"])
def test_compacted_offsets_are_counted_and_the_rest_loaded(
    spark: Any, brokers: dict[str, Served], tmp_path: Path, name: str
) -> None:
    served, topic = brokers[name], "logins-compacted"
    config = {"cleanup.policy": "compact", "segment.bytes": str(1 << 20), "min.cleanable.dirty.ratio": "0.01"}
    produce.create_topics(served.bootstrap, [topic], 1, config)
    events = [event for event in Simulation(Site(seed=3, events=4_000)).events() if event.kind == "logins"]
    sent = 0
    producer = Producer({"bootstrap.servers": served.bootstrap, "batch.num.messages": 100})
    while sent < 15_000:
        event = events[sent % len(events)]
        producer.produce(topic, event.value, b"key-%d" % (sent % KEYS), timestamp=event.delivered)
        sent += 1
        if sent % 1000 == 0:
            assert producer.flush(60) == 0
    assert producer.flush(60) == 0

    def records() -> int:
        log = open_log(served.log(topic, "wire"))
        try:
            reader = RangeReader(log, OffsetRange(0, 0, sent))
            for _ in reader:
                pass
            assert reader.counts.span == sent
            return reader.counts.records
        finally:
            log.close()

    until(lambda: records() < sent // 2, f"the cleaner of {name} has not cleaned")
    checkpointed(served, topic)
    for transport in ("wire", "disk"):
        loading = served.loading(topic, transport, tmp_path, "logins")
        summary, report = load_and_audit(spark, loading)
        assert report.offsets == sent == summary.loaded + summary.compacted
        assert summary.compacted > sent // 2
        assert report.rows_compared == summary.loaded > KEYS
        last = Counter(
            json.dumps(events[n % len(events)].fields, sort_keys=True) for n in range(sent - KEYS, sent)
        )
        assert last <= rows_of(spark, loading), "the last record of each key is there"
