"""DeleteTopics and DeleteRecords: by name and by id, what is refused, and what is left."""

import pytest

from barnabas.wire.generated.create_topics import CreateTopicsRequest
from barnabas.wire.generated.delete_records import DeleteRecordsRequest
from barnabas.wire.generated.delete_topics import DeleteTopicsRequest
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from tests.support.broker import NOW_MS, broker_to_ask
from tests.support.logs import batch

NOTHING = bytes(16)
UNKNOWN = bytes(range(16))


async def make(ask, *names, cleanup="delete"):
    request = CreateTopicsRequest(timeout_ms=60_000)
    for name in names:
        topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        topic.configs = [CreateTopicsRequest.CreatableTopicConfig(name="cleanup.policy", value=cleanup)]
        request.topics.append(topic)
    answer = await ask(request, 7)
    assert [topic.error_code for topic in answer.topics] == [0] * len(names)
    return {topic.name: topic.topic_id for topic in answer.topics}


async def delete(ask, *names, version=5):
    answer = await ask(DeleteTopicsRequest(topic_names=list(names), timeout_ms=60_000), version)
    return sorted((result.name, result.error_code) for result in answer.responses)


async def delete_topics(ask, *topics):
    request = DeleteTopicsRequest(timeout_ms=60_000)
    request.topics = [
        DeleteTopicsRequest.DeleteTopicState(name=name, topic_id=topic_id) for name, topic_id in topics
    ]
    answer = await ask(request, 6)
    return {(result.name, result.topic_id): result.error_code for result in answer.responses}


def left(ask):
    return set(ask.services.metadata.image.topics)


@pytest.mark.parametrize("version", range(6))
async def test_every_version_deletes_by_name(tmp_path, version):
    async with broker_to_ask(tmp_path) as ask:
        await make(ask, "t", "u")
        assert await delete(ask, "t", version=version) == [("t", 0)]
        assert left(ask) == {"u"}
        assert ask.services.logs.get("t", 0) is None
        again = await delete(ask, "t", version=version)
        assert again == [("t", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]


@pytest.mark.parametrize("version", range(7))
async def test_names_that_no_topic_can_have_are_unknown_as_any_other(tmp_path, version):
    names = ["", ".", "..", "a b", "a/b", "ä", "a\0", "x" * 250]
    async with broker_to_ask(tmp_path) as ask:
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if version < 6:
            assert await delete(ask, *names, version=version) == sorted((name, unknown) for name in names)
        else:
            told = await delete_topics(ask, *((name, NOTHING) for name in names))
            assert told == {(name, NOTHING): unknown for name in names}


async def test_a_name_that_comes_twice_is_refused_once(tmp_path):
    async with broker_to_ask(tmp_path) as ask:
        await make(ask, "t", "u")
        assert await delete(ask, "t", "u", "t") == [("t", ErrorCode.INVALID_REQUEST), ("u", 0)]
        assert left(ask) == {"t"}


async def test_topics_are_deleted_by_id(tmp_path):
    async with broker_to_ask(tmp_path) as ask:
        ids = await make(ask, "t", "u")
        assert await delete_topics(ask, (None, ids["t"]), ("u", NOTHING)) == {
            ("t", ids["t"]): 0, ("u", ids["u"]): 0,
        }  # fmt: skip
        assert left(ask) == set()
        again = await delete_topics(ask, (None, ids["t"]))
        assert again == {(None, ids["t"]): ErrorCode.UNKNOWN_TOPIC_ID}


async def test_a_new_topic_of_the_same_name_has_another_id(tmp_path):
    async with broker_to_ask(tmp_path) as ask:
        old = (await make(ask, "t"))["t"]
        await delete(ask, "t")
        new = (await make(ask, "t"))["t"]
        assert new != old
        assert await delete_topics(ask, (None, old)) == {(None, old): ErrorCode.UNKNOWN_TOPIC_ID}
        assert left(ask) == {"t"}


async def test_topics_that_cannot_be_told(tmp_path):
    async with broker_to_ask(tmp_path) as ask:
        ids = await make(ask, "t", "u")
        refused = ErrorCode.INVALID_REQUEST
        assert await delete_topics(ask, (None, NOTHING)) == {(None, NOTHING): refused}
        assert await delete_topics(ask, ("t", ids["t"])) == {("t", ids["t"]): refused}
        assert await delete_topics(ask, (None, ids["t"]), ("t", NOTHING)) == {("t", ids["t"]): refused}
        assert await delete_topics(ask, (None, ids["t"]), (None, ids["t"])) == {(None, ids["t"]): refused}
        assert await delete_topics(ask, (None, UNKNOWN)) == {(None, UNKNOWN): ErrorCode.UNKNOWN_TOPIC_ID}
        for name, topic_id in ((None, NOTHING), ("t", ids["t"])):
            topics = [DeleteTopicsRequest.DeleteTopicState(name=name, topic_id=topic_id)] * 2
            answer = await ask(DeleteTopicsRequest(topics=topics, timeout_ms=1000), 6)
            results = [(result.name, result.topic_id, result.error_code) for result in answer.responses]
            assert results == [(name, topic_id, refused)] * 2
        assert left(ask) == {"t", "u"}


async def test_deletion_can_be_forbidden(tmp_path):
    async with broker_to_ask(tmp_path, {"delete.topic.enable": "false"}) as ask:
        await make(ask, "t")
        assert await delete(ask, "t") == [("t", ErrorCode.TOPIC_DELETION_DISABLED)]
        assert left(ask) == {"t"}


async def fill(ask, topic, count):
    log = ask.services.replicas.leader(topic, 0).log
    log.append_as_leader(memoryview(batch(*[b"v"] * count)), leader_epoch=0, now_ms=NOW_MS)
    log.advance_high_watermark(count)


async def delete_records(ask, topic, index, offset, version=2):
    request = DeleteRecordsRequest(timeout_ms=1000)
    partition = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=index, offset=offset)
    request.topics = [DeleteRecordsRequest.DeleteRecordsTopic(name=topic, partitions=[partition])]
    result = (await ask(request, version)).topics[0].partitions[0]
    return result.error_code, result.low_watermark


@pytest.mark.parametrize("version", range(3))
async def test_the_start_moves_forward_and_never_back(tmp_path, version):
    async with broker_to_ask(tmp_path) as ask:
        await make(ask, "t")
        await fill(ask, "t", 10)
        assert await delete_records(ask, "t", 0, 3, version) == (0, 3)
        assert await delete_records(ask, "t", 0, 2, version) == (0, 3)
        assert await delete_records(ask, "t", 0, -1, version) == (0, 10)


@pytest.mark.parametrize(
    ("topic", "index", "offset", "code"),
    [
        ("t", 0, 11, ErrorCode.OFFSET_OUT_OF_RANGE),
        ("t", 0, -2, ErrorCode.OFFSET_OUT_OF_RANGE),
        ("t", 1, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", -1, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("nowhere", 0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("compacted", 0, -1, ErrorCode.POLICY_VIOLATION),
    ],
)
async def test_records_that_stay(tmp_path, topic, index, offset, code):
    async with broker_to_ask(tmp_path) as ask:
        await make(ask, "t")
        await make(ask, "compacted", cleanup="compact")
        await fill(ask, "t", 10)
        assert await delete_records(ask, topic, index, offset) == (code, -1)
        assert ask.services.replicas.leader("t", 0).log.log_start_offset == 0


async def test_records_of_a_log_that_is_compacted_and_deleted_can_go(tmp_path):
    async with broker_to_ask(tmp_path) as ask:
        await make(ask, "t", cleanup="compact,delete")
        await fill(ask, "t", 4)
        assert await delete_records(ask, "t", 0, -1) == (0, 4)


async def test_leader_epoch_ends_at_the_log_end_even_if_empty(tmp_path):
    async with broker_to_ask(tmp_path) as ask:
        await make(ask, "t")

        async def end_of(epoch):
            partition = OffsetForLeaderEpochRequest.OffsetForLeaderPartition(partition=0, leader_epoch=epoch)
            topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic="t", partitions=[partition])
            answer = (await ask(OffsetForLeaderEpochRequest(topics=[topic]), 4)).topics[0].partitions[0]
            return answer.error_code, answer.leader_epoch, answer.end_offset

        assert await end_of(0) == (0, 0, 0)
        await fill(ask, "t", 5)
        assert await end_of(0) == (0, 0, 5)
        assert await end_of(3) == (0, -1, -1)
