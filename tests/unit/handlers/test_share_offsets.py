"""Offsets of share groups: of topics that are not there, of groups that are in use, of what is named twice."""

import pytest

from barnabas.wire.generated.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from barnabas.wire.generated.consumer_group_describe import ConsumerGroupDescribeRequest
from barnabas.wire.generated.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from barnabas.wire.generated.describe_groups import DescribeGroupsRequest
from barnabas.wire.generated.describe_share_group_offsets import DescribeShareGroupOffsetsRequest
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.offset_commit import OffsetCommitRequest
from barnabas.wire.generated.share_group_describe import ShareGroupDescribeRequest
from barnabas.wire.generated.share_group_heartbeat import ShareGroupHeartbeatRequest
from barnabas.wire.generated.streams_group_describe import StreamsGroupDescribeRequest
from tests.support.broker import ask_for_topic, broker_to_ask

SETTINGS = {"offsets.topic.num.partitions": "1", "share.coordinator.state.topic.num.partitions": "1"}
MEMBER = "A" * 22


@pytest.fixture
async def ask(tmp_path):
    """A broker with groups that have members, had some, and are of another kind."""
    async with broker_to_ask(tmp_path, SETTINGS) as asked:
        await ask_for_topic(asked)
        for group in ("used", "empty"):
            join = ShareGroupHeartbeatRequest(
                group_id=group, member_id=MEMBER, member_epoch=0, subscribed_topic_names=["t"]
            )
            assert (await asked(join, 1)).error_code == 0
        leave = ShareGroupHeartbeatRequest(group_id="empty", member_id=MEMBER, member_epoch=-1)
        assert (await asked(leave, 1)).error_code == 0
        partition = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
        topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[partition])
        commit = OffsetCommitRequest(group_id="classic", generation_id_or_member_epoch=-1, topics=[topic])
        assert (await asked(commit, 8)).topics[0].partitions[0].error_code == 0
        yield asked


async def altered(ask, group, *topics):
    request = AlterShareGroupOffsetsRequest(
        group_id=group,
        topics=[
            AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic(
                topic_name=name,
                partitions=[
                    AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestPartition(
                        partition_index=index, start_offset=0
                    )
                    for index in partitions
                ],
            )
            for name, partitions in topics
        ],
    )
    answer = await ask(request, 0)
    return answer.error_code, [
        (topic.topic_name, [(part.partition_index, part.error_code) for part in topic.partitions])
        for topic in answer.responses
    ]


@pytest.mark.parametrize("topics", [[("nowhere", [0])], [("t", [9])], [("t", [])], [], [("t", [0])]])
async def test_group_in_use_or_of_another_kind_refuses_alterations(ask, topics):
    assert await altered(ask, "used", *topics) == (ErrorCode.NON_EMPTY_GROUP, [])
    assert await altered(ask, "classic", *topics) == (ErrorCode.GROUP_ID_NOT_FOUND, [])


async def test_what_is_altered_twice_is_answered_in_one_topic(ask):
    assert await altered(ask, "empty", ("nowhere", [0])) == (0, [("nowhere", [(0, 3)])])
    assert await altered(ask, "empty", ("t", [0, 1, 0]), ("t", [0])) == (
        0,
        [("t", [(0, 0), (1, 0), (0, 0), (0, 0)])],
    )


@pytest.mark.parametrize("version", [0, 1])
async def test_in_a_topic_that_is_not_there_a_group_begins_nowhere(ask, version):
    for group in ("used", "empty", "nobody"):
        asked = [
            DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestTopic(
                topic_name=name, partitions=partitions
            )
            for name, partitions in [("nowhere", [0, 3]), ("t", [0, 0]), ("t", [1, 0])]
        ]
        of_group = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup(
            group_id=group, topics=asked
        )
        (answer,) = (await ask(DescribeShareGroupOffsetsRequest(groups=[of_group]), version)).groups
        assert answer.error_code == 0
        assert [
            (
                topic.topic_name,
                [(part.partition_index, part.start_offset, part.error_code) for part in topic.partitions],
            )
            for topic in answer.topics
        ] == [("nowhere", [(0, -1, 0), (3, -1, 0)]), ("t", [(0, -1, 0), (1, -1, 0)])]
        assert answer.topics[0].topic_id == bytes(16)


async def test_what_is_deleted_twice_is_answered_once(ask):
    assert (await altered(ask, "empty", ("t", [0])))[0] == 0
    topic = DeleteShareGroupOffsetsRequest.DeleteShareGroupOffsetsRequestTopic(topic_name="t")
    answer = await ask(DeleteShareGroupOffsetsRequest(group_id="empty", topics=[topic, topic]), 0)
    assert [(response.topic_name, response.error_code) for response in answer.responses] == [("t", 0)]


@pytest.mark.parametrize(
    ("request_", "version", "kind", "others"),
    [
        (DescribeGroupsRequest(groups=["used", "nobody"]), 6, "classic", {"used": "share"}),
        (
            ConsumerGroupDescribeRequest(group_ids=["used", "classic", "nobody"]),
            1,
            "consumer",
            {"used": "share", "classic": "classic"},
        ),
        (ShareGroupDescribeRequest(group_ids=["classic", "nobody"]), 1, "share", {"classic": "classic"}),
        (
            StreamsGroupDescribeRequest(group_ids=["used", "classic", "nobody"]),
            0,
            "streams",
            {"used": "share", "classic": "classic"},
        ),
    ],
)
async def test_who_describes_a_group_of_another_kind_is_told_which(ask, request_, version, kind, others):
    for group in (await ask(request_, version)).groups:
        assert group.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        other = others.get(group.group_id)
        assert group.error_message == (
            f"group {group.group_id!r} is a {other} group, not a {kind} group"
            if other
            else f"there is no group {group.group_id!r}"
        )
