"""Decisions about topics: each refusal with its code, and what is made."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.cluster.metadata import topic_decisions
from barnabas.cluster.metadata.changes import BrokerRegistered, TopicCreated
from barnabas.cluster.metadata.creation import NewTopic, create_topics
from barnabas.cluster.metadata.image import BrokerInfo, ClusterImage, PartitionInfo, TopicInfo
from barnabas.config.loading import BrokerConfig
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode

ID, OTHER_ID = b"i" * 16, b"o" * 16
LED = PartitionInfo(1, (1, 2), (1, 2), 5, 7)
CONFIG = BrokerConfig({})


def image(*topics: TopicInfo, brokers: int = 3) -> ClusterImage:
    there = [BrokerRegistered(BrokerInfo(id_, None, {})) for id_ in range(1, brokers + 1)]
    return ClusterImage("c").apply([*there, *map(TopicCreated, topics)])


def topic(*partitions: PartitionInfo, name: str = "t", id: bytes = ID) -> TopicInfo:
    return TopicInfo(name, id, partitions or (LED,))


def code_of(decide: Any, *arguments: Any, **options: Any) -> int:
    try:
        decide(*arguments, **options)
    except RequestError as error:
        return error.code
    return 0


# --- topics -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "is_legal"),
    [("t", True), ("a.b_c-D9", True), ("...", True), ("x" * 249, True), ("x" * 250, False), ("", False),
     (".", False), ("..", False), ("a b", False), ("a/b", False), ("ä", False), ("a\n", False)],
)  # fmt: skip
def test_names_that_topics_can_have(name: str, is_legal: bool) -> None:
    assert code_of(topic_decisions.check_topic_name, name) == (
        0 if is_legal else ErrorCode.INVALID_TOPIC_EXCEPTION
    )


@pytest.mark.parametrize(
    ("settings", "is_fine"),
    [
        ({"retention.ms": "1"}, True),
        ({"retention.m": "1"}, False),
        ({"retention.ms": "x"}, False),
        ({"remote.storage.enable": "true"}, False),
        ({"remote.storage.enable": "false"}, True),
        ({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "5"}, True),
        ({"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"}, False),
    ],
)
def test_settings_that_topics_can_have(settings: dict[str, str], is_fine: bool) -> None:
    assert code_of(topic_decisions.check_settings, settings, CONFIG) == (
        0 if is_fine else ErrorCode.INVALID_CONFIG
    )


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({}, 0),
        ({"name": "t"}, ErrorCode.TOPIC_ALREADY_EXISTS),
        ({"name": "a_b"}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"name": "a b"}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"name": "__cluster_metadata"}, ErrorCode.INVALID_REQUEST),
        ({"partitions": 0}, ErrorCode.INVALID_PARTITIONS),
        ({"partitions": 10_000}, 0),
        ({"partitions": 10_001}, ErrorCode.POLICY_VIOLATION),
        ({"replication_factor": 0}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"replication_factor": 3}, 0),
        ({"replication_factor": 4}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"settings": {"no": "1"}}, ErrorCode.INVALID_CONFIG),
        ({"assignments": {0: (1, 2), 1: (3, 1)}}, 0),
        ({"assignments": {0: (1, 2), 2: (3, 1)}}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"assignments": {1: (1, 2), 2: (3, 1)}}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"assignments": {0: (1, 2), 1: (3,)}}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"assignments": {0: (1, 1)}}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"assignments": {0: (1, 4)}}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"assignments": {0: ()}}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"assignments": {0: (1, 2, 3, 1)}}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_a_topic_is_made_or_refused_with_its_reason(asked: dict[str, Any], code: int) -> None:
    fields = {"name": "new", "topic_id": OTHER_ID, "partitions": 2, "replication_factor": 2} | asked
    now = image(topic(), topic(name="a.b", id=b"x" * 16))
    assert code_of(topic_decisions.create_topic, now, CONFIG, **fields) == code
    if not code:
        (created, *_) = topic_decisions.create_topic(now, CONFIG, **fields)
        created_topic = now.apply([created]).topics["new"]
        lists = fields.get("assignments") or dict.fromkeys(range(fields["partitions"]))
        assert len(created_topic.partitions) == len(lists)
        for index, info in enumerate(created_topic.partitions):
            assert info.replicas == (lists[index] or info.replicas)
            assert (info.leader, info.isr, info.leader_epoch) == (info.replicas[0], info.replicas, 0)


@pytest.mark.parametrize(
    ("name", "topic_id", "code"),
    [
        ("t", ID, 0),
        ("t", OTHER_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("u", ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_only_the_topic_that_is_meant_is_deleted(name: str, topic_id: bytes, code: int) -> None:
    assert code_of(topic_decisions.delete_topic, image(topic()), name, topic_id) == code


@pytest.mark.parametrize(
    ("total", "assignments", "code"),
    [
        (3, None, 0),
        (2, None, ErrorCode.INVALID_PARTITIONS),
        (1, None, ErrorCode.INVALID_PARTITIONS),
        (6, None, 0),
        (7, None, ErrorCode.INVALID_PARTITIONS),
        (3, [(2, 3)], 0),
        (3, [(2, 3), (3, 1)], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (4, [(2, 3)], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (3, [(2, 9)], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (4, [(2, 3), (1,)], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_a_topic_grows_or_is_refused_with_its_reason(total: int, assignments: Any, code: int) -> None:
    now = image(topic(LED, LED))
    assert code_of(topic_decisions.add_partitions, now, "u", total) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert code_of(topic_decisions.add_partitions, now, "t", total, assignments, count_max=4) == code
    if not code:
        partitions = (
            now.apply(topic_decisions.add_partitions(now, "t", total, assignments)).topics["t"].partitions
        )
        assert (partitions[:2], len(partitions)) == ((LED, LED), total)
        assert all(len(info.replicas) == 2 for info in partitions)
        if assignments:
            assert partitions[2:] == (PartitionInfo(2, (2, 3), (2, 3)),)
    for moving in (LED._replace(adding=(2,)), LED._replace(removing=(2,))):
        busy = image(topic(LED, moving))
        assert code_of(topic_decisions.add_partitions, busy, "t", 3) == ErrorCode.REASSIGNMENT_IN_PROGRESS


@pytest.mark.parametrize(
    ("name", "index", "replicas", "code"),
    [
        ("t", 0, (1, 2), 0),
        ("t", 1, (2, 1), 0),
        ("t", 2, (1, 2), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", -1, (1, 2), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("u", 0, (1, 2), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", 0, None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        ("t", 0, (), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 0, (1, 1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 0, (1, 4), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 0, (1, 2, 3), ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_a_reassignment_is_checked(name: str, index: int, replicas: Any, code: int) -> None:
    now = image(topic(LED, LED))
    assert code_of(topic_decisions.check_reassignment, now, name, index, replicas, keeps_factor=True) == code
    if code == ErrorCode.INVALID_REPLICATION_FACTOR:
        assert (
            code_of(topic_decisions.check_reassignment, now, name, index, replicas, keeps_factor=False) == 0
        )


def new(name: str, partitions: int = 1, **fields: Any) -> NewTopic:
    return NewTopic(name, name.encode().ljust(16), partitions, 1, **fields)


def test_topics_of_one_request_are_refused_one_by_one() -> None:
    asked = [
        new("a"),
        new("a"),
        new("b.c"),
        new("b_c"),
        new("d", 0),
        new("e", assignments={0: (1,), 1: (2,)}),
        new("f"),
    ]
    charged: list[tuple[str, int]] = []

    def charge(name: str, count: int) -> None:
        if name == "f":
            raise RequestError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "too many")
        charged.append((name, count))

    refused: dict[str, RequestError] = {}
    changes = [
        new for new in create_topics(image(), CONFIG, asked, refused, charge=charge) if new is not None
    ]
    assert {name: error.code for name, error in refused.items()} == {
        "a": ErrorCode.TOPIC_ALREADY_EXISTS, "b_c": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "d": ErrorCode.INVALID_PARTITIONS, "f": ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    }  # fmt: skip
    assert list(image().apply(changes).topics) == ["a", "b.c", "e"]
    assert charged == [("a", 1), ("b.c", 1), ("e", 2)]
    apart: dict[str, RequestError] = {}
    list(create_topics(image(), CONFIG, asked[2:4], apart, with_each_other=False))
    assert apart == {}
