"""Groups of each kind as they are described: each field of a member, and each group by itself."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.security.authorizer import Operation, ResourceType
from barnabas.wire.generated.errors import ErrorCode
from tests.support.broker import Asked, ask_for_topic, broker_to_ask
from tests.support.plain_requests import DenyNamed, ask

SETTINGS = {
    "offsets.topic.num.partitions": "1", "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0", "group.streams.initial.rebalance.delay.ms": "0",
    **{f"group.{kind}.assignment.interval.ms": "0" for kind in ("consumer", "share", "streams")},
}  # fmt: skip
NOT_ASKED = -(2**31)
EPOCH_KINDS = ("Consumer", "Share", "Streams")
NOT_FOUND, BAD_ID, NO_TOPIC = (
    ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.INVALID_GROUP_ID, ErrorCode.TOPIC_AUTHORIZATION_FAILED,
)  # fmt: skip


@pytest.fixture
async def asked(tmp_path):
    async with broker_to_ask(tmp_path, SETTINGS) as asked:
        asked.client_id = "the-client"
        await ask_for_topic(asked)
        await ask_for_topic(asked, "u")
        yield asked


def member_of(kind: str, group: str, member: str = "m", **more: Any) -> dict[str, Any]:
    """Return the first heartbeat of a member with a value of its own in each field."""
    common = {"GroupId": group, "MemberId": member, "MemberEpoch": 0, "RackId": "the-rack"}
    if kind == "Share":
        return {**common, "SubscribedTopicNames": ["u", "t"], **more}
    if kind == "Consumer":
        return {
            **common, "InstanceId": "the-instance", "RebalanceTimeoutMs": 10_000,
            "SubscribedTopicNames": ["u", "t"], "TopicPartitions": [], **more,
        }  # fmt: skip
    changelog = {
        "Name": "c-changelog",
        "ReplicationFactor": 1,
        "TopicConfigs": [{"Key": "cleanup.policy", "Value": "compact"}],
    }
    part = {"SubtopologyId": "0", "SourceTopics": ["u", "t"], "StateChangelogTopics": [changelog]}
    return {
        **common, "InstanceId": "the-instance", "RebalanceTimeoutMs": 10_000, "ProcessId": "the-process",
        "UserEndpoint": {"Host": "the-host", "Port": 1234}, "ClientTags": [{"Key": "zone", "Value": "z"}],
        "TaskOffsets": None, "ActiveTasks": [], "StandbyTasks": [], "WarmupTasks": [],
        "Topology": {"Epoch": 7, "Subtopologies": [part]}, **more,
    }  # fmt: skip


async def joined(asked: Asked, kind: str, group: str = "g", **more: Any) -> Any:
    answer = await ask(asked, f"{kind}GroupHeartbeat", 1, member_of(kind, group, **more))
    assert answer.error_code == 0, answer
    return answer


async def stay(asked: Asked, kind: str, epoch: int) -> None:
    """Heartbeat once more, so that the member takes over what it has been assigned."""
    beat = {"GroupId": "g", "MemberId": "m", "MemberEpoch": epoch}
    assert (await ask(asked, f"{kind}GroupHeartbeat", 1, beat)).error_code == 0


async def described(asked: Asked, kind: str, *groups: str, **more: Any) -> list[Any]:
    return (await ask(asked, f"{kind}GroupDescribe", 1, {"GroupIds": groups, **more})).groups


def assigned(assignment: Any) -> dict[str, list[int]]:
    return {topic.topic_name: topic.partitions for topic in assignment.topic_partitions}


async def test_a_consumer_group_is_described_with_its_members(asked):
    await joined(asked, "Consumer")
    [group] = await described(asked, "Consumer", "g")
    assert (group.error_code, group.group_id, group.group_state) == (0, "g", "Stable")
    assert (group.assignor_name, group.authorized_operations) == ("uniform", NOT_ASKED)
    assert group.group_epoch == group.assignment_epoch > 0
    [member] = group.members
    assert (member.member_id, member.instance_id, member.rack_id) == ("m", "the-instance", "the-rack")
    assert (member.client_id, member.client_host) == ("the-client", "/127.0.0.1")
    assert member.member_epoch == group.group_epoch
    assert (member.subscribed_topic_names, member.subscribed_topic_regex) == (["t", "u"], "")
    assert assigned(member.assignment) == assigned(member.target_assignment) == {"t": [0, 1], "u": [0, 1]}
    assert member.member_type == 1


async def test_consumer_group_in_reconciliation_tells_both_assignments(asked):
    await joined(asked, "Consumer")
    await joined(asked, "Consumer", member="n", InstanceId="other", RackId=None)
    [group] = await described(asked, "Consumer", "g")
    first, second = sorted(group.members, key=lambda member: member.member_id)
    assert (first.rack_id, second.rack_id) == ("the-rack", None)
    assert (first.instance_id, second.instance_id) == ("the-instance", "other")
    assert first.member_epoch < second.member_epoch == group.group_epoch
    assert sum(map(len, assigned(first.assignment).values())) == 4, "what it is to give up is still its own"
    assert sum(map(len, assigned(first.target_assignment).values())) == 2
    assert assigned(second.assignment) == {}
    assert sum(map(len, assigned(second.target_assignment).values())) == 2


async def test_an_expression_that_a_member_subscribes_to_is_told(asked):
    await joined(asked, "Consumer", SubscribedTopicRegex="^[tu]$", SubscribedTopicNames=[])
    [group] = await described(asked, "Consumer", "g")
    assert (group.members[0].subscribed_topic_names, group.members[0].subscribed_topic_regex) == (
        [],
        "^[tu]$",
    )
    assert assigned(group.members[0].target_assignment) == {"t": [0, 1], "u": [0, 1]}


async def test_a_share_group_is_described_with_its_members(asked):
    await joined(asked, "Share")
    await stay(asked, "Share", 2)
    [group] = await described(asked, "Share", "g")
    assert (group.error_code, group.group_state, group.assignor_name) == (0, "Stable", "simple")
    assert group.group_epoch == group.assignment_epoch > 0
    [member] = group.members
    assert (member.member_id, member.rack_id, member.client_id) == ("m", "the-rack", "the-client")
    assert (member.client_host, member.subscribed_topic_names) == ("/127.0.0.1", ["t", "u"])
    assert member.member_epoch == group.group_epoch
    assert assigned(member.assignment) == {"t": [0, 1], "u": [0, 1]}


async def test_streams_group_is_described_with_topology_and_members(asked):
    answer = await joined(asked, "Streams")  # makes the internal topic
    await stay(asked, "Streams", answer.member_epoch)
    [group] = await described(asked, "Streams", "g", IncludeTopologyDescription=True)
    assert (group.error_code, group.assignor_name, group.topology_description_status) == (0, "sticky", 1)
    assert (group.topology.epoch, len(group.topology.subtopologies)) == (7, 1)
    [part] = group.topology.subtopologies
    assert (part.subtopology_id, part.source_topics) == ("0", ["t", "u"])
    assert (part.repartition_sink_topics, part.repartition_source_topics) == ([], [])
    [changelog] = part.state_changelog_topics
    assert (changelog.name, changelog.partitions, changelog.replication_factor) == ("c-changelog", 2, 1)
    assert [(row.key, row.value) for row in changelog.topic_configs] == [("cleanup.policy", "compact")]
    [member] = group.members
    assert (member.member_id, member.instance_id, member.rack_id) == ("m", "the-instance", "the-rack")
    assert (member.client_id, member.client_host) == ("the-client", "/127.0.0.1")
    assert (member.topology_epoch, member.process_id) == (7, "the-process")
    assert member.member_epoch != member.topology_epoch
    assert (member.user_endpoint.host, member.user_endpoint.port) == ("the-host", 1234)
    assert [(tag.key, tag.value) for tag in member.client_tags] == [("zone", "z")]


@pytest.mark.parametrize("asks", [True, False])
async def test_missing_topology_is_reported_to_those_who_ask(asked, asks):
    await joined(asked, "Streams")
    good, missing = await described(asked, "Streams", "g", "nowhere", IncludeTopologyDescription=asks)
    assert (good.topology_description_status, missing.topology_description_status) == (int(asks), 0)


@pytest.mark.parametrize("kind", EPOCH_KINDS)
async def test_each_group_is_described_once_and_an_error_is_its_own(asked, kind):
    await joined(asked, kind, "g")
    await joined(asked, kind, "h")
    names = ("nowhere", "g", "", "h", "g")
    groups = await described(asked, kind, *names, IncludeAuthorizedOperations=True)
    assert [(group.group_id, group.error_code) for group in groups] == [
        ("nowhere", NOT_FOUND), ("g", 0), ("", BAD_ID), ("h", 0),
    ]  # fmt: skip
    assert [group.authorized_operations == NOT_ASKED for group in groups] == [True, False, True, False]
    assert [len(group.members) for group in groups] == [0, 1, 0, 1]
    assert [bool(group.error_message) for group in groups] == [True, False, True, False]


@pytest.mark.parametrize("denied", ["t", "u", "c-changelog"])
@pytest.mark.parametrize("kind", EPOCH_KINDS)
async def test_group_with_an_undescribable_topic_is_not_described(asked, kind, denied):
    await joined(asked, kind)
    if kind == "Share":
        await stay(asked, kind, 2)
    asked.authorizer = DenyNamed((Operation.DESCRIBE, ResourceType.TOPIC, denied))
    [group] = await described(asked, kind, "g", IncludeAuthorizedOperations=True)
    if denied == "c-changelog" and kind != "Streams":
        assert group.error_code == 0
        return
    assert (group.error_code, group.group_id) == (NO_TOPIC, "g")
    assert (group.members, group.group_state, group.authorized_operations) == ([], "", NOT_ASKED)


@pytest.mark.parametrize("denied", ["t", "u", "c-changelog"])
@pytest.mark.parametrize("kind", EPOCH_KINDS)
async def test_who_may_not_describe_one_of_its_topics_does_not_join(asked, kind, denied):
    asked.authorizer = DenyNamed((Operation.DESCRIBE, ResourceType.TOPIC, denied))
    answer = await ask(asked, f"{kind}GroupHeartbeat", 1, member_of(kind, "g"))
    refused = denied != "c-changelog" or kind == "Streams"
    assert answer.error_code == (NO_TOPIC if refused else 0)
    asked.authorizer = DenyNamed()
    [group] = await described(asked, kind, "g")
    assert group.error_code == (NOT_FOUND if refused else 0)


async def test_internal_topics_are_made_if_all_of_them_may_be(asked):
    cluster = (Operation.CREATE, ResourceType.CLUSTER, "kafka-cluster")
    asked.authorizer = DenyNamed(cluster, (Operation.CREATE, ResourceType.TOPIC, "c-changelog"))
    answer = await joined(asked, "Streams")
    [status] = [status for status in answer.status if "Unauthorized" in status.status_detail]
    assert status.status_detail.endswith("Unauthorized to CREATE on topics c-changelog.")
    assert "c-changelog" not in asked.services.metadata.image.topics
    asked.authorizer = DenyNamed(cluster)
    answer = await joined(asked, "Streams", "h")
    assert not any("Unauthorized" in status.status_detail for status in answer.status)
    info = asked.services.metadata.image.topics["c-changelog"]
    assert len(info.partitions) == 2


# --- groups of the classic protocol ---------------------------------------------------------------------------------


async def classic(asked: Asked, group: str = "g") -> str:
    join = {
        "GroupId": group,
        "SessionTimeoutMs": 10_000,
        "RebalanceTimeoutMs": 10_000,
        "MemberId": "",
        "GroupInstanceId": "the-instance",
        "ProtocolType": "consumer",
        "Protocols": [{"Name": "range", "Metadata": b"metadata"}],
    }
    member = (await ask(asked, "JoinGroup", 5, join)).member_id
    sync = {
        "GroupId": group,
        "GenerationId": 1,
        "MemberId": member,
        "GroupInstanceId": "the-instance",
        "Assignments": [{"MemberId": member, "Assignment": b"assignment"}],
    }
    assert (await ask(asked, "SyncGroup", 4, sync)).assignment == b"assignment"
    return str(member)


async def test_a_classic_group_is_described_with_its_members(asked):
    member_id = await classic(asked)
    request = {"Groups": ["g"], "IncludeAuthorizedOperations": False}
    [group] = (await ask(asked, "DescribeGroups", 5, request)).groups
    assert (group.error_code, group.group_id, group.group_state) == (0, "g", "Stable")
    assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
    assert group.authorized_operations == NOT_ASKED
    [member] = group.members
    assert (member.member_id, member.group_instance_id) == (member_id, "the-instance")
    assert (member.client_id, member.client_host) == ("the-client", "/127.0.0.1")
    assert (member.member_metadata, member.member_assignment) == (b"metadata", b"assignment")


async def test_classic_operations_are_told_on_request_without_an_error(asked):
    await classic(asked)
    asked.authorizer = DenyNamed((Operation.DESCRIBE, ResourceType.GROUP, "h"))
    request = {"Groups": ["g", "h", "nowhere", "g"], "IncludeAuthorizedOperations": True}
    groups = (await ask(asked, "DescribeGroups", 6, request)).groups
    assert [(group.group_id, group.error_code) for group in groups] == [
        ("g", 0), ("h", ErrorCode.GROUP_AUTHORIZATION_FAILED), ("nowhere", NOT_FOUND),
    ]  # fmt: skip
    assert [group.authorized_operations == NOT_ASKED for group in groups] == [False, True, True]
    before = (await ask(asked, "DescribeGroups", 5, request)).groups
    assert [(group.group_state, group.error_code) for group in before] == [
        ("Stable", 0), ("", ErrorCode.GROUP_AUTHORIZATION_FAILED), ("Dead", 0),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("version", "filters", "expected"),
    [
        (3, {}, {"g": ("", ""), "c": ("", ""), "s": ("", ""), "kept": ("", "")}),
        (4, {}, {"g": ("Stable", ""), "c": ("Stable", ""), "s": ("Stable", ""), "kept": ("Empty", "")}),
        (4, {"StatesFilter": ["sTABLE"]}, {"g": ("Stable", ""), "c": ("Stable", ""), "s": ("Stable", "")}),
        (5, {"StatesFilter": ["Empty"]}, {"kept": ("Empty", "classic")}),
        (5, {"TypesFilter": ["CONSUMER"]}, {"c": ("Stable", "consumer")}),
        (
            5, {"TypesFilter": ["share", "classic"], "StatesFilter": ["stable"]},
            {"g": ("Stable", "classic"), "s": ("Stable", "share")},
        ),
        (5, {"TypesFilter": ["streams"]}, {}),
        (5, {"StatesFilter": ["Dead"]}, {}),
    ],
    ids=str,
)  # fmt: skip
async def test_groups_are_listed_by_state_and_type(asked, version, filters, expected):
    await classic(asked)
    await joined(asked, "Consumer", "c")
    await joined(asked, "Share", "s")
    part = {"PartitionIndex": 0, "CommittedOffset": 1}
    commit = {"GroupId": "kept", "Topics": [{"Name": "t", "Partitions": [part]}]}
    await ask(asked, "OffsetCommit", 8, {**commit, "GenerationIdOrMemberEpoch": -1})
    listed = (await ask(asked, "ListGroups", version, filters)).groups
    assert {group.group_id: (group.group_state, group.group_type) for group in listed} == expected
    types = {group.group_id: group.protocol_type for group in listed}
    assert types.items() <= {"g": "consumer", "c": "consumer", "s": "share", "kept": ""}.items()


# --- offsets that may not be deleted --------------------------------------------------------------------------------


async def test_offsets_of_a_topic_that_members_are_subscribed_to_stay(asked):
    parts = [{"PartitionIndex": index, "CommittedOffset": 5} for index in (0, 1)]
    commit = {"GroupId": "g", "Topics": [{"Name": name, "Partitions": parts} for name in ("t", "u")]}
    await ask(asked, "OffsetCommit", 8, {**commit, "GenerationIdOrMemberEpoch": -1})
    await joined(asked, "Consumer", SubscribedTopicNames=["t"])
    topics = [
        {"Name": name, "Partitions": [{"PartitionIndex": index} for index in indexes]}
        for name, indexes in (("u", [0, 2]), ("t", [0]), ("nowhere", [0]), ("empty", []))
    ]
    answer = await ask(asked, "OffsetDelete", 0, {"GroupId": "g", "Topics": topics})
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert answer.error_code == 0
    assert {topic.name: [part.error_code for part in topic.partitions] for topic in answer.topics} == {
        "u": [0, unknown], "t": [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC], "nowhere": [unknown],
    }  # fmt: skip
    remaining = (await ask(asked, "OffsetFetch", 7, {"GroupId": "g", "Topics": None})).topics
    assert {topic.name: sorted(part.partition_index for part in topic.partitions) for topic in remaining} == {
        "t": [0, 1], "u": [1],
    }  # fmt: skip
    assert (await ask(asked, "OffsetDelete", 0, {"GroupId": "", "Topics": topics})).error_code == BAD_ID
    assert (await ask(asked, "OffsetDelete", 0, {"GroupId": "no", "Topics": topics})).error_code == NOT_FOUND
