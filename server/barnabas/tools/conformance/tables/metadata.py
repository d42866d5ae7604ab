"""Rows about Metadata and DescribeTopicPartitions: which topics there are, which brokers lead their partitions."""

from __future__ import annotations

from typing import Any

from barnabas.tools.conformance.fixture import UNKNOWN_ID
from barnabas.tools.conformance.rows import LAST, Row, row
from barnabas.tools.conformance.tables.cluster import NO_OPERATIONS
from barnabas.tools.conformance.trial import Trial

LONGEST = "n" * 249


def rows() -> list[Row]:
    """Return the rows of this module."""
    return [*_metadata(), *_topic_partitions()]


def _topics(*names: str | None, **more: Any) -> dict[str, Any]:
    return {"topics": [{"name": name} for name in names], "allow_auto_topic_creation": False, **more}


def _by_id(topic_id: bytes, name: str | None = None) -> dict[str, Any]:
    return {"topics": [{"name": name, "topic_id": topic_id}], "allow_auto_topic_creation": False}


def _table(trial: Trial, version: int) -> dict[str, Any]:
    expected: dict[str, Any] = {
        "topics.len": 1,
        "topics.0.error_code": 0,
        "topics.0.name": trial.topic,
        "topics.0.partitions.len": 3,
        "topics.0.partitions.0.error_code": 0,
        "topics.0.partitions.0.leader_id": trial.fixture.node_id,
        "topics.0.partitions.0.replica_nodes": [trial.fixture.node_id],
        "topics.0.partitions.0.isr_nodes": [trial.fixture.node_id],
        "topics.0.partitions.0.offline_replicas": [],
    }
    if version >= 1:
        expected["topics.0.is_internal"] = False
    if version >= 2:
        expected["cluster_id"] = trial.fixture.cluster_id
    if version >= 7:
        expected["topics.0.partitions.0.leader_epoch"] = _not_negative
    if version >= 10:
        expected["topics.0.topic_id"] = trial.topic_id
    return expected


def _not_negative(value: int) -> bool:
    """0 or more"""
    return value >= 0


def _some(value: Any) -> bool:
    """not empty"""
    return bool(value)


def _metadata() -> list[Row]:
    unknown = (
        "A topic that does not exist is UNKNOWN_TOPIC_OR_PARTITION, and is not made unless that is asked for."
    )
    bad = "A name that no topic can have is INVALID_TOPIC_EXCEPTION."
    return [
        row(
            "Metadata",
            "a topic",
            "A topic is described with its partitions, their leaders and replicas.",
            "protocol guide",
            lambda t, _: _topics(t.topic),
            _table,
        ),
        row(
            "Metadata",
            "all topics",
            "A topic list of null (in version 0 an empty one) asks for all topics.",
            "KIP-4",
            lambda _, v: {"topics": None if v else [], "allow_auto_topic_creation": v < 4},
            lambda t, _: {"topics": lambda topics: any(topic.name == t.topic for topic in topics)},
        ),
        row(
            "Metadata",
            "no topics",
            "An empty topic list asks for none since version 1.",
            "KIP-4",
            lambda _, v: {"topics": [], "allow_auto_topic_creation": v < 4},
            {"topics.len": 0, "brokers": _some},
            (1, LAST),
            with_topic=False,
        ),
        row(
            "Metadata",
            "this broker",
            "The brokers of the cluster are named, and a controller since version 1.",
            "KIP-4",
            lambda _, v: {"topics": [], "allow_auto_topic_creation": v < 4},
            lambda t, _: {
                "brokers": lambda brokers: any(broker.node_id == t.fixture.node_id for broker in brokers),
                "controller_id": lambda controller_id: controller_id >= 0,
            },
            (1, LAST),
            with_topic=False,
        ),
        row(
            "Metadata",
            "an unknown topic",
            unknown,
            "KIP-487",
            lambda t, _: _topics(t.unknown),
            lambda t, _: {
                "topics.len": 1,
                "topics.0.error_code": "UNKNOWN_TOPIC_OR_PARTITION",
                "topics.0.name": t.unknown,
                "topics.0.partitions.len": 0,
            },
            (4, LAST),
            with_topic=False,
        ),
        row(
            "Metadata",
            "known and unknown",
            unknown,
            "KIP-487",
            lambda t, _: _topics(t.topic, t.unknown),
            {
                "topics.len": 2,
                "topics": lambda topics: sorted(topic.error_code for topic in topics) == [0, 3],
            },
            (4, LAST),
        ),
        row(
            "Metadata",
            "a topic twice",
            "A topic that is named twice is answered once.",
            "Apache Kafka 4.3",
            lambda t, _: _topics(t.topic, t.topic),
            {"topics.len": 1, "topics.0.error_code": 0},
            (4, LAST),
        ),
        row(
            "Metadata",
            "a name with a space",
            bad,
            "protocol guide",
            _topics("a b"),
            {"topics.0.error_code": "INVALID_TOPIC_EXCEPTION", "topics.0.name": "a b"},
            (4, LAST),
            with_topic=False,
        ),
        row(
            "Metadata",
            "a name of 250 characters",
            bad,
            "protocol guide",
            _topics(LONGEST + "n"),
            {"topics.0.error_code": "INVALID_TOPIC_EXCEPTION"},
            (4, LAST),
            with_topic=False,
        ),
        row(
            "Metadata",
            "an empty name",
            bad,
            "protocol guide",
            _topics(""),
            {"topics.0.error_code": "INVALID_TOPIC_EXCEPTION"},
            (4, LAST),
            with_topic=False,
        ),
        row(
            "Metadata",
            "operations not asked for",
            "Authorized operations that are not asked for are the smallest int32.",
            "KIP-430",
            lambda t, _: _topics(t.topic),
            lambda _, v: (
                {"topics.0.topic_authorized_operations": NO_OPERATIONS}
                | ({"cluster_authorized_operations": NO_OPERATIONS} if v <= 10 else {})
            ),
            (8, LAST),
        ),
        row(
            "Metadata",
            "operations asked for",
            "Authorized operations of a topic are answered as bits where they are asked for.",
            "KIP-430",
            lambda t, _: _topics(t.topic, include_topic_authorized_operations=True),
            {"topics.0.topic_authorized_operations": lambda operations: operations > 0},
            (8, LAST),
        ),
        row(
            "Metadata",
            "by id",
            "A topic may be asked for by its id alone.",
            "KIP-516",
            lambda t, _: _by_id(t.topic_id),
            lambda t, _: {
                "topics.0.error_code": 0,
                "topics.0.name": t.topic,
                "topics.0.topic_id": t.topic_id,
            },
            (12, LAST),
        ),
        row(
            "Metadata",
            "by an unknown id",
            "An id that no topic has is UNKNOWN_TOPIC_ID.",
            "KIP-516",
            _by_id(UNKNOWN_ID),
            {
                "topics.0.error_code": "UNKNOWN_TOPIC_ID",
                "topics.0.topic_id": UNKNOWN_ID,
                "topics.0.name": None,
            },
            (12, LAST),
        ),
    ]


def _topic_partitions() -> list[Row]:
    return [
        row(
            "DescribeTopicPartitions",
            "a topic",
            "A topic's partitions are described.",
            "KIP-966",
            lambda t, _: {"topics": [{"name": t.topic}], "response_partition_limit": 100},
            lambda t, _: {
                "topics.0.error_code": 0,
                "topics.0.name": t.topic,
                "topics.0.topic_id": t.topic_id,
                "topics.0.partitions.len": 3,
                "next_cursor": None,
            },
        ),
        row(
            "DescribeTopicPartitions",
            "one partition a page",
            "A page has as many partitions as the request allows, and says where the next one begins.",
            "KIP-966",
            lambda t, _: {"topics": [{"name": t.topic}], "response_partition_limit": 1},
            lambda t, _: {
                "topics.0.partitions.len": 1,
                "next_cursor.topic_name": t.topic,
                "next_cursor.partition_index": 1,
            },
        ),
        row(
            "DescribeTopicPartitions",
            "from a cursor",
            "A cursor resumes at the partition that it names.",
            "KIP-966",
            lambda t, _: {
                "topics": [{"name": t.topic}],
                "response_partition_limit": 10,
                "cursor": {"topic_name": t.topic, "partition_index": 2},
            },
            {"topics.0.partitions.len": 1, "topics.0.partitions.0.partition_index": 2, "next_cursor": None},
        ),
        row(
            "DescribeTopicPartitions",
            "an unknown topic",
            "A topic that does not exist is UNKNOWN_TOPIC_OR_PARTITION.",
            "KIP-966",
            lambda t, _: {"topics": [{"name": t.unknown}], "response_partition_limit": 10},
            {"topics.0.error_code": "UNKNOWN_TOPIC_OR_PARTITION"},
            with_topic=False,
        ),
        row(
            "DescribeTopicPartitions",
            "a negative cursor",
            "A cursor before the first partition is INVALID_REQUEST.",
            "KIP-966",
            lambda t, _: {
                "topics": [{"name": t.topic}],
                "response_partition_limit": 10,
                "cursor": {"topic_name": t.topic, "partition_index": -1},
            },
            {"topics.len": 1, "topics.0.error_code": "INVALID_REQUEST"},
        ),
    ]
