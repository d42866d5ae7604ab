"""Metadata and DescribeTopicPartitions: names, ids, pages, what is made by asking, and what cannot be known."""

import pytest

from barnabas.wire.generated.create_topics import CreateTopicsRequest
from barnabas.wire.generated.describe_topic_partitions import DescribeTopicPartitionsRequest
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.metadata import MetadataRequest
from tests.support.broker import broker_to_ask

NOT_ASKED = -(2**31)
TOPIC_OPERATIONS = 3576
CLUSTER_OPERATIONS = 8096
UNKNOWN = bytes(range(16))
TOPICS = {"a": 3, "b": 5, "c": 1}


async def make(ask):
    topics = [
        CreateTopicsRequest.CreatableTopic(name=name, num_partitions=count, replication_factor=1)
        for name, count in TOPICS.items()
    ]
    await ask(CreateTopicsRequest(topics=topics, timeout_ms=60_000), 7)


def asking(*topics, **flags):
    request = MetadataRequest(topics=None if topics == (None,) else [], **flags)
    for topic in topics:
        if isinstance(topic, bytes):
            request.topics.append(MetadataRequest.MetadataRequestTopic(name=None, topic_id=topic))
        elif topic is not None:
            request.topics.append(MetadataRequest.MetadataRequestTopic(name=topic))
    return request


def told(answer):
    return [(topic.name, topic.error_code, len(topic.partitions)) for topic in answer.topics]


@pytest.mark.parametrize("version", range(14))
async def test_every_version_tells_all_topics(tmp_path, version):
    async with broker_to_ask(tmp_path) as ask:
        await make(ask)
        answer = await ask(asking() if version == 0 else asking(None), version)
        assert told(answer) == [("a", 0, 3), ("b", 0, 5), ("c", 0, 1)]
        assert [broker.node_id for broker in answer.brokers] == [1]
        if version:
            assert answer.controller_id == 1
            assert told(await ask(asking(), version)) == []


@pytest.mark.parametrize("version", [4, 9, 12])
async def test_asking_makes_a_topic_only_if_both_sides_want_it(tmp_path, version):
    async with broker_to_ask(tmp_path, {"num.partitions": "2"}) as ask:
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        answer = await ask(asking("t", allow_auto_topic_creation=False), version)
        assert told(answer) == [("t", unknown, 0)]
        answer = await ask(asking("t", "a b", allow_auto_topic_creation=True), version)
        assert told(answer) == [("t", 0, 2), ("a b", ErrorCode.INVALID_TOPIC_EXCEPTION, 0)]
    async with broker_to_ask(tmp_path / "other", {"auto.create.topics.enable": "false"}) as ask:
        answer = await ask(asking("t", allow_auto_topic_creation=True), version)
        assert told(answer) == [("t", unknown, 0)]


async def test_a_topic_that_is_asked_for_twice_is_told_once(tmp_path):
    async with broker_to_ask(tmp_path) as ask:
        await make(ask)
        assert told(await ask(asking("a", "c", "a"), 9)) == [("a", 0, 3), ("c", 0, 1)]


async def test_topics_are_found_by_id(tmp_path):
    async with broker_to_ask(tmp_path) as ask:
        await make(ask)
        topic_id = ask.services.metadata.image.topics["b"].id
        answer = await ask(asking(topic_id, UNKNOWN, "c"), 12)
        assert told(answer) == [("b", 0, 5), (None, ErrorCode.UNKNOWN_TOPIC_ID, 0), ("c", 0, 1)]
        assert [topic.topic_id for topic in answer.topics][:2] == [topic_id, UNKNOWN]


@pytest.mark.parametrize(
    ("version", "topic"), [(10, UNKNOWN), (11, UNKNOWN), (10, bytes(16)), (13, bytes(16))]
)
async def test_what_cannot_be_told_is_refused_as_a_whole(tmp_path, version, topic):
    async with broker_to_ask(tmp_path) as ask:
        await make(ask)
        answer = await ask(asking(topic, "a"), version)
        assert {topic.error_code for topic in answer.topics} == {ErrorCode.INVALID_REQUEST}
        assert (answer.brokers, answer.controller_id) == ([], -1)
        if version >= 13:
            assert answer.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", [8, 10])
async def test_operations_are_told_when_asked(tmp_path, version):
    async with broker_to_ask(tmp_path) as ask:
        await make(ask)
        request = asking(
            "a", "nowhere", allow_auto_topic_creation=False,
            include_topic_authorized_operations=True, include_cluster_authorized_operations=True,
        )  # fmt: skip
        answer = await ask(request, version)
        assert [topic.topic_authorized_operations for topic in answer.topics] == [TOPIC_OPERATIONS] * 2
        assert answer.cluster_authorized_operations == CLUSTER_OPERATIONS
        answer = await ask(asking("a"), version)
        assert answer.topics[0].topic_authorized_operations == NOT_ASKED
        assert answer.cluster_authorized_operations == NOT_ASKED


async def page(ask, names, limit, cursor=None):
    request = DescribeTopicPartitionsRequest(response_partition_limit=limit)
    request.topics = [DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in names]
    if cursor:
        request.cursor = DescribeTopicPartitionsRequest.Cursor(
            topic_name=cursor[0], partition_index=cursor[1]
        )
    answer = await ask(request, 0)
    after = answer.next_cursor and (answer.next_cursor.topic_name, answer.next_cursor.partition_index)
    topics = [
        (topic.name, topic.error_code or [part.partition_index for part in topic.partitions])
        for topic in answer.topics
    ]
    return topics, after


@pytest.mark.parametrize(
    ("limit", "cursor", "topics", "after"),
    [
        (2000, None, [("a", [0, 1, 2]), ("b", [0, 1, 2, 3, 4]), ("c", [0])], None),
        (9, None, [("a", [0, 1, 2]), ("b", [0, 1, 2, 3, 4]), ("c", [0])], None),
        (8, None, [("a", [0, 1, 2]), ("b", [0, 1, 2, 3, 4])], ("c", 0)),
        (4, None, [("a", [0, 1, 2]), ("b", [0])], ("b", 1)),
        (3, None, [("a", [0, 1, 2])], ("b", 0)),
        (0, None, [("a", [0])], ("a", 1)),
        (-5, None, [("a", [0])], ("a", 1)),
        (2, ("b", 1), [("b", [1, 2])], ("b", 3)),
        (9, ("b", 4), [("b", [4]), ("c", [0])], None),
        (9, ("b", 5), [("b", []), ("c", [0])], None),
    ],
)
@pytest.mark.parametrize("names", [["c", "a", "b"], []])
async def test_pages(tmp_path, names, limit, cursor, topics, after):
    async with broker_to_ask(tmp_path) as ask:
        await make(ask)
        assert await page(ask, names, limit, cursor) == (topics, after)


async def test_pages_put_together_are_everything(tmp_path):
    async with broker_to_ask(tmp_path) as ask:
        await make(ask)
        partitions, cursor = [], None
        while True:
            topics, cursor = await page(ask, [], 2, cursor)
            partitions += [(name, index) for name, indexes in topics for index in indexes]
            if cursor is None:
                break
        assert partitions == [(name, index) for name, count in TOPICS.items() for index in range(count)]


async def test_a_setting_limits_pages(tmp_path):
    async with broker_to_ask(tmp_path, {"max.request.partition.size.limit": "2"}) as ask:
        await make(ask)
        assert await page(ask, [], 2000) == ([("a", [0, 1])], ("a", 2))


@pytest.mark.parametrize("cursor", [("aa", 0), ("zzz", 0), ("", 0), ("b", -1)])
async def test_a_cursor_must_be_on_what_is_asked_for(tmp_path, cursor):
    async with broker_to_ask(tmp_path) as ask:
        await make(ask)
        topics, after = await page(ask, ["a", "b"], 2, cursor)
        assert topics == [("a", ErrorCode.INVALID_REQUEST), ("b", ErrorCode.INVALID_REQUEST)]
        assert after is None


async def test_unknown_topics_take_no_room(tmp_path):
    async with broker_to_ask(tmp_path) as ask:
        await make(ask)
        unknown = ("aa", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert await page(ask, ["b", "aa"], 2, ("aa", 1)) == ([unknown, ("b", [0, 1])], ("b", 2))
        bad = ("a b", ErrorCode.INVALID_TOPIC_EXCEPTION)
        assert await page(ask, ["a b"], 2) == ([bad], None)
