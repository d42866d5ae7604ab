"""Spark's own Kafka connector against our broker, with no setting that Kafka would not need."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from .conftest import Stream


def reader(spark: Any, stream: Stream, topic: str, *, streaming: bool = False, **options: Any) -> Any:
    source = spark.readStream if streaming else spark.read
    return (
        source.format("kafka")
        .option("kafka.bootstrap.servers", stream.bootstrap)
        .option("subscribe", topic)
        .options(**{"startingOffsets": "earliest", **options})
        .load()
    )


def keys(rows: list[Any]) -> Counter[bytes]:
    return Counter(bytes(row.key) for row in rows)


def sent(stream: Stream, kind: str) -> Counter[bytes]:
    return Counter(event.key.encode() for event in stream.of(kind))


def new_topic(stream: Stream, name: str) -> str:
    admin = AdminClient({"bootstrap.servers": stream.bootstrap})
    admin.create_topics([NewTopic(name, 2)])[name].result(10)
    return name


def test_it_reads_a_topic_in_a_batch_with_headers_and_timestamps(spark: Any, stream: Stream) -> None:
    rows = reader(spark, stream, "votes", includeHeaders="true", minPartitions=6).collect()
    assert keys(rows) == sent(stream, "votes")
    assert {(pair.key, bytes(pair.value)) for row in rows for pair in row.headers} == {("kind", b"votes")}
    assert sorted(round(row.timestamp.timestamp() * 1000) for row in rows) == sorted(
        event.delivered for event in stream.of("votes")
    )


def test_it_reads_what_our_source_reads(spark: Any, stream: Stream) -> None:
    columns = ["topic", "partition", "offset", "timestamp", "key", "value"]
    theirs = reader(spark, stream, "clicks").select(*columns)
    ours = (
        spark.read.format("barnabas")
        .options(topic="clicks", bootstrap=stream.bootstrap)
        .load()
        .select(*columns)
    )
    assert theirs.exceptAll(ours).count() == 0
    assert ours.exceptAll(theirs).count() == 0
    assert ours.count() == len(stream.of("clicks"))


def test_it_finds_offsets_by_timestamp(spark: Any, stream: Stream) -> None:
    middle = sorted(event.delivered for event in stream.of("votes"))[len(stream.of("votes")) // 2]
    strategy = {"startingOffsetsByTimestampStrategy": "latest"}
    frame = reader(spark, stream, "votes", startingTimestamp=middle, **strategy)
    consumer = Consumer({"bootstrap.servers": stream.bootstrap, "group.id": "connector"})
    asked = [TopicPartition("votes", partition, middle) for partition in range(3)]
    expected = {place.partition: place.offset for place in consumer.offsets_for_times(asked, timeout=10)}
    consumer.close()
    begins = {row["partition"]: row["start"] for row in frame.groupBy("partition").agg({"offset": "min"}).toDF(
        "partition", "start"
    ).collect()}  # fmt: skip
    assert begins == expected


def test_it_streams_with_a_limit_and_goes_on_from_its_checkpoint(
    spark: Any, stream: Stream, tmp_path: Path
) -> None:
    topic = new_topic(stream, "connector-stream")
    source = spark.createDataFrame([(b"k%d" % n, b"v%d" % n) for n in range(500)], "key binary, value binary")

    def write(low: int, high: int) -> None:
        chosen = source.where(f"cast(substr(cast(key as string), 2) as int) between {low} and {high - 1}")
        chosen.write.format("kafka").option("kafka.bootstrap.servers", stream.bootstrap).option(
            "topic", topic
        ).save()

    def run() -> Any:
        frame = reader(spark, stream, topic, streaming=True, maxOffsetsPerTrigger=100)
        query = (
            frame.writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "out"))
        )
        assert query.awaitTermination(120)
        return query

    write(0, 300)
    first = run()
    sizes = [progress["numInputRows"] for progress in first.recentProgress]
    assert sum(sizes) == 300
    assert max(sizes) <= 101, "its shares are rounded by partition"
    write(300, 500)
    run()
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    assert keys(rows) == Counter(b"k%d" % n for n in range(500))


def test_it_writes_in_a_batch_and_as_a_stream(spark: Any, stream: Stream, tmp_path: Path) -> None:
    batch, streamed = new_topic(stream, "connector-batch"), new_topic(stream, "connector-out")
    reader(spark, stream, "logins", includeHeaders="true").select(
        "key", "value", "headers", "timestamp"
    ).write.format("kafka").option("kafka.bootstrap.servers", stream.bootstrap).option("topic", batch).option(
        "includeHeaders", "true"
    ).save()
    copied = reader(spark, stream, batch, includeHeaders="true").collect()
    assert keys(copied) == sent(stream, "logins")
    assert {pair.key for row in copied for pair in row.headers} == {"kind"}
    query = (
        reader(spark, stream, batch, streaming=True)
        .select("key", "value")
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", stream.bootstrap)
        .option("topic", streamed)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    assert keys(reader(spark, stream, streamed).collect()) == sent(stream, "logins")


def test_it_fails_where_a_topic_has_lost_what_it_had_to_read(spark: Any, stream: Stream) -> None:
    topic = new_topic(stream, "connector-lost")
    spark.createDataFrame([(b"v",)] * 100, "value binary").repartition(1).write.format("kafka").option(
        "kafka.bootstrap.servers", stream.bootstrap
    ).option("topic", topic).save()
    admin = AdminClient({"bootstrap.servers": stream.bootstrap})
    for future in admin.delete_records([TopicPartition(topic, 0, -1), TopicPartition(topic, 1, -1)]).values():
        future.result(30)
    frame = reader(spark, stream, topic, startingOffsets=json.dumps({topic: {"0": 0, "1": 0}}))
    with pytest.raises(
        Exception, match=r"failOnDataLoss|data loss|out of range|OutOfRange|may have been lost"
    ):
        frame.collect()


def test_it_follows_topics_by_pattern(spark: Any, stream: Stream) -> None:
    frame = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", stream.bootstrap)
        .option("subscribePattern", "view.|click.")
        .load()
    )
    counts = {row["topic"]: row["count"] for row in frame.groupBy("topic").count().collect()}
    assert counts == {kind: len(stream.of(kind)) for kind in ("views", "clicks")}
