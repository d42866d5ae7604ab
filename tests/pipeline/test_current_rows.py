"""Current rows of a compacted topic, from a broker through Spark: a dict that its producer keeps."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas_pipeline.jobs.current import CurrentOptions, CurrentRows
from barnabas_pipeline.jobs.load import LoadOptions
from barnabas_pipeline.jobs.loading import load
from barnabas_pipeline.log.model import LogOptions

from .changing import (
    BY_ID,
    BY_RECORD_KEY,
    CHANGES,
    PAIRS,
    Topic,
    current,
    envelopes,
    no_spark,
    rows_of,
    truth,
)
from .conftest import Broker
from .tables import local_place

CLEANER = ("log.cleaner.backoff.ms=100", "log.cleaner.min.cleanable.ratio=0.01", "log.segment.bytes=16384")
SECONDS_MAX = 30


def send(broker: Broker, topic: str, rows: dict[str, Any], seed: random.Random, count: int) -> None:
    """Send upserts and tombstones of a few hundred keys, and keep what they come to."""
    failed: list[Any] = []
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "batch.num.messages": 100,  # or they are larger than a segment
            "on_delivery": lambda error, _: failed.append(error) if error is not None else None,
        }
    )
    for n in range(count):
        key = f"key {seed.randrange(300)}"
        if seed.random() < 0.2:
            producer.produce(topic, None, key)
            rows.pop(key, None)
        else:
            rows[key] = (n, f"ä{n}")
            producer.produce(topic, json.dumps({"n": n, "text": f"ä{n}"}), key)
    assert (producer.flush(60), failed) == (0, [])


def wait_until_compacted(broker: Broker, topic: str, sent: int) -> None:
    """Wait until the log has fewer records than were sent."""
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        consumer = Consumer(
            {"bootstrap.servers": broker.bootstrap, "group.id": "look", "enable.partition.eof": True}
        )
        consumer.assign([TopicPartition(topic, n, 0) for n in range(2)])
        seen = ends = 0
        while ends < 2:
            message = consumer.poll(5)
            assert message is not None
            ends, seen = (ends + 1, seen) if message.error() else (ends, seen + 1)
        consumer.close()
        if seen < sent * 0.9:
            return
        assert time.monotonic() < deadline, f"{seen} of {sent} are still there"
        time.sleep(0.2)


def test_rows_of_a_compacted_topic_are_what_its_producer_has(
    spark: Any, tmp_path: Path, new_broker: Callable[..., Broker]
) -> None:
    broker, seed, topic = new_broker(*CLEANER), random.Random(8), "settings"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 2, config={"cleanup.policy": "compact"})])[topic].result(10)
    place = local_place(tmp_path)
    loading = LoadOptions(LogOptions(topic, "wire", broker.bootstrap), place, PAIRS)
    loading.decoding = {"tombstones": "keep", "key": {"format": "string"}}
    rows: dict[str, Any] = {}
    send(broker, topic, rows, seed, 2000)
    load(spark, loading)
    job = CurrentRows(CurrentOptions(place, lambda: spark, BY_RECORD_KEY, in_process_rows_max=0))
    assert job.round().has_done
    assert rows_of(job) == rows
    send(broker, topic, rows, seed, 3000)
    wait_until_compacted(broker, topic, 5000)
    load(spark, loading)
    job = CurrentRows(CurrentOptions(place, no_spark))
    assert job.round().has_done
    assert (rows_of(job), job.summary.dead, job.summary.lost) == (rows, 0, 0)
    assert job.check().differences == 0


@pytest.mark.parametrize("count", [1, 2])
def test_tasks_of_spark_come_to_the_same_rows(spark: Any, tmp_path: Path, count: int) -> None:
    seed = random.Random(9)
    source = Topic(
        local_place(tmp_path), CHANGES, [envelopes(seed, 200, 20, skew=True) for _ in range(count)]
    )
    for part in (90, 150, 200):
        source.load(dict.fromkeys(range(count), part))
        job = CurrentRows(CurrentOptions(source.place, lambda: spark, BY_ID, in_process_rows_max=0))
        job.round()
        assert rows_of(job) == truth(events[:part] for events in source.partitions)
        assert job.check().differences == current(source, None).check().differences == 0
