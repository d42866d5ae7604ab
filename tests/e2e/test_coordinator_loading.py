"""Consumers of a broker that has just started, and has many offsets to read first."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from barnabas.wire.generated.create_topics import CreateTopicsRequest
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.offset_commit import OffsetCommitRequest
from barnabas.wire.generated.offset_fetch import OffsetFetchRequest

from .conftest import BrokerProcess, StartBroker
from .test_versions import ask

pytestmark = pytest.mark.e2e

TOPIC, GROUP = "topic", "group"
PARTITIONS, COMMITS = 100, 500
SETTINGS = ("offsets.topic.num.partitions=1", "log.cleaner.enable=false")


def commit_much(broker: BrokerProcess) -> None:
    created = CreateTopicsRequest.CreatableTopic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=1)
    assert (
        ask(broker, 19, 7, CreateTopicsRequest(topics=[created], timeout_ms=30_000)).topics[0].error_code == 0
    )
    for offset in range(COMMITS):
        topic = OffsetCommitRequest.OffsetCommitRequestTopic(
            name=TOPIC,
            partitions=[
                OffsetCommitRequest.OffsetCommitRequestPartition(
                    partition_index=index, committed_offset=offset
                )
                for index in range(PARTITIONS)
            ],
        )
        answer = ask(broker, 8, 8, OffsetCommitRequest(group_id=GROUP, topics=[topic]))
        assert {partition.error_code for partition in answer.topics[0].partitions} == {0}


def test_early_consumers_retry_and_find_all_offsets(start_broker: StartBroker) -> None:
    first = start_broker(*SETTINGS)
    commit_much(first)
    first.stop()
    broker = start_broker(*SETTINGS, data=first.data)
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id=GROUP, topics=None)]
    )
    early = ask(broker, 9, 8, request).groups[0]
    assert (early.error_code, early.topics) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [])
    # Stock clients know what to do about it.
    client = {"bootstrap.servers": broker.bootstrap}
    consumer = Consumer({**client, "group.id": GROUP})
    requested = [TopicPartition(TOPIC, index) for index in (0, PARTITIONS - 1)]
    assert [place.offset for place in consumer.committed(requested, timeout=30)] == [COMMITS - 1] * 2
    consumer.close()
    admin = AdminClient(client)
    listed = admin.list_consumer_groups().result(30)  # type: ignore[no-untyped-call]
    assert ([group.group_id for group in listed.valid], listed.errors) == ([GROUP], [])
    late = ask(broker, 9, 8, request).groups[0]
    assert late.error_code == 0
    assert {partition.committed_offset for partition in late.topics[0].partitions} == {COMMITS - 1}
    assert len(late.topics[0].partitions) == PARTITIONS
