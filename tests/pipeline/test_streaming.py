"""Streams: admission control, the fixed end of AvailableNow, going on after a stop, and the same rows as a batch."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas_pipeline.jobs.load import LoadOptions, LoadSummary
from barnabas_pipeline.jobs.loading import Load, load
from barnabas_pipeline.lake.table import Table
from barnabas_pipeline.log.model import LogOptions
from barnabas_pipeline.schema import BUILT_IN
from barnabas_pipeline.simulate import produce
from barnabas_pipeline.simulate.model import KINDS, Simulation, Site

from .conftest import SITE, Broker, Stream
from .test_lake import check, rows_of, send_small
from .test_lake import small_topic as keyed_topic


def start(spark: Any, stream: Stream, topic: str, checkpoint: Path, batches: list[Any], **more: Any) -> Any:
    frame = (
        spark.readStream.format("barnabas")
        .options(topic=topic, bootstrap=stream.bootstrap, logDirs=str(stream.broker.data), **more)
        .load()
    )

    def note(frame: Any, _: int) -> None:
        batches.append(frame.select("partition", "offset", "key").collect())

    return (
        frame.writeStream.foreachBatch(note)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )


@pytest.mark.parametrize("transport", ["wire", "disk"])
def test_a_stream_reads_everything_in_portions(
    spark: Any, stream: Stream, tmp_path: Path, transport: str
) -> None:
    batches: list[Any] = []
    query = start(
        spark, stream, "clicks", tmp_path / "c", batches, transport=transport, maxOffsetsPerTrigger=1000
    )
    assert query.awaitTermination(120)
    total = len(stream.of("clicks"))
    assert [len(batch) for batch in batches] == [1000] * (total // 1000) + [total % 1000]
    rows = [row for batch in batches for row in batch]
    assert Counter(bytes(row.key) for row in rows) == Counter(
        event.key.encode() for event in stream.of("clicks")
    )
    assert len({(row.partition, row.offset) for row in rows}) == total


def small_topic(stream: Stream, name: str) -> Any:
    admin = AdminClient({"bootstrap.servers": stream.bootstrap})
    admin.create_topics([NewTopic(name, 2)])[name].result(10)
    producer = Producer({"bootstrap.servers": stream.bootstrap})

    def send(low: int, high: int) -> None:
        for n in range(low, high):
            producer.produce(name, b"v", b"%d" % n, n % 2)
        producer.flush(10)

    return send


def test_a_stream_goes_on_where_its_checkpoint_ends(spark: Any, stream: Stream, tmp_path: Path) -> None:
    send = small_topic(stream, "goes-on")
    batches: list[Any] = []
    send(0, 10)
    assert start(spark, stream, "goes-on", tmp_path / "c", batches).awaitTermination(120)
    send(10, 25)
    assert start(spark, stream, "goes-on", tmp_path / "c", batches).awaitTermination(120)
    assert sorted(int(row.key) for batch in batches for row in batch) == list(range(25))


def test_a_stream_fails_on_a_topic_that_was_made_anew(spark: Any, stream: Stream, tmp_path: Path) -> None:
    send = small_topic(stream, "made-again")
    send(0, 10)
    assert start(spark, stream, "made-again", tmp_path / "c", []).awaitTermination(120)
    admin = AdminClient({"bootstrap.servers": stream.bootstrap})
    admin.delete_topics(["made-again"])["made-again"].result(10)
    small_topic(stream, "made-again")(0, 30)
    query = start(spark, stream, "made-again", tmp_path / "c", [])
    with pytest.raises(Exception, match="is another one now"):
        query.awaitTermination(120)


def follow(spark: Any, loading: LoadOptions, offsets_max: int = 0) -> LoadSummary:
    return Load(lambda: spark, loading, offsets_max=offsets_max, worker_offsets_max=0).run()


def test_a_lake_from_a_backup_is_loaded_from_where_it_ends(
    spark: Any, stream: Stream, tmp_path: Path
) -> None:
    log = keyed_topic(stream.broker, 40, "backup")
    loading = LoadOptions(log, str(tmp_path / "backup"), BUILT_IN["logins"])
    follow(spark, loading, 10)
    snapshots = Table(loading.root).iceberg.snapshots()
    assert len(snapshots) == 4
    Table(loading.root).iceberg.manage_snapshots().rollback_to_snapshot(snapshots[0].snapshot_id).commit()
    send_small(stream.broker, "backup", 40, 10)
    assert follow(spark, loading).loaded == 40
    assert sum(rows_of(spark, loading).values()) == 50
    assert check(spark, loading, now_ms=SITE.start_ms).problems == []


def test_killed_and_restarted_broker_costs_no_record(spark: Any, tmp_path: Path, new_broker: Any) -> None:
    broker: Broker = new_broker()
    events = Simulation(Site(events=3000, start_ms=SITE.start_ms)).events()
    produce.create_topics(broker.bootstrap, KINDS, 2, {"retention.ms": "-1"})
    produce.send(broker.bootstrap, events)
    log = LogOptions("views", "wire", broker.bootstrap)
    loading = LoadOptions(log, str(tmp_path / "views"), BUILT_IN["views"], offsets_per_commit_max=500)
    brokers = [broker]

    def kill(_done: int, _all: int) -> None:
        if len(brokers) < 3:
            brokers[-1].stop(kill=True)
            brokers.append(new_broker(data=broker.data, listen=broker.bootstrap))

    load(spark, loading, kill)
    assert len(brokers) == 3
    assert sum(rows_of(spark, loading).values()) == sum(event.kind == "views" for event in events)
    assert check(spark, loading).problems == []
