"""A mirror between Apache Kafka and Barnabas, in both directions: the same promises as between two of ours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from barnabas_pipeline.jobs.mirror.reading import coordinates_of
from barnabas_pipeline.jobs.mirror.rounds import mirror
from compat.kafka import RealKafka

from .conftest import Broker, start_broker
from .mirroring import (
    assert_mirrored,
    commit,
    committed,
    create,
    high_watermark,
    mirror_options,
    records,
    send,
    send_in_transactions,
)
from .test_mirror_crashes import POINTS, WORKER_POINTS, zombie_doubles_nothing


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealKafka]:
    broker = RealKafka("4.x", data=tmp_path_factory.mktemp("kafka"))
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    broker = start_broker(tmp_path_factory.mktemp("barnabas") / "data")
    yield broker
    broker.stop()


@pytest.mark.parametrize("is_from_kafka", [True, False], ids=["from-kafka", "to-kafka"])
def test_records_and_groups_are_the_same_on_the_other_side(
    spark: Any, kafka: RealKafka, ours: Broker, is_from_kafka: bool
) -> None:
    source, target = (kafka, ours) if is_from_kafka else (ours, kafka)
    topic = "from-kafka" if is_from_kafka else "to-kafka"
    create(source.bootstrap, topic, 2, segment_ms="3600000")
    send(source.bootstrap, topic, range(1500), 2, **{"compression.type": "lz4"})
    send_in_transactions(source.bootstrap, topic, range(60))
    end = high_watermark(source.bootstrap, topic)
    groups = {f"{topic}-{offset}": offset for offset in range(end - 80, end + 1)}
    for group, offset in groups.items():
        commit(source.bootstrap, group, topic, offset, metadata="mine")
    options = mirror_options(source, target, topic, groups=f"{topic}-.*")
    summary = mirror(spark, options)
    assert (summary.mirrored, summary.groups_committed) == (1540, len(groups))
    assert assert_mirrored(source.bootstrap, topic, target.bootstrap) == 1540
    copies = [(r.offset, coordinates_of(r)[-1].offset) for r in records(target.bootstrap, topic)[0]]
    for group, offset in groups.items():
        there, metadata = committed(target.bootstrap, group, topic)
        assert metadata == "mine"
        to_read = [source_offset for here, source_offset in copies if here >= there]
        assert to_read == [source_offset for _, source_offset in copies if source_offset >= offset], offset
    send(source.bootstrap, topic, range(1500, 1600), 2)
    assert mirror(spark, options).mirrored == 100
    assert assert_mirrored(source.bootstrap, topic, target.bootstrap) == 1640


@pytest.mark.parametrize("point", [name for name in POINTS if name in WORKER_POINTS])
def test_a_zombie_doubles_nothing_in_kafka(kafka: RealKafka, ours: Broker, point: str) -> None:
    zombie_doubles_nothing(ours.bootstrap, kafka.bootstrap, point, topic=f"zombie-{point}")
