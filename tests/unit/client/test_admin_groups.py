"""An administrator asks about groups, offsets and transactions as each version has it, and mixes no two values up."""

from __future__ import annotations

from typing import Any

import pytest
import trio.testing

from barnabas.client import ResponseError, UnsupportedVersionError
from barnabas.client.administration.groups import GroupInfo, GroupMember, ListedGroup
from barnabas.client.administration.offsets import CommittedOffset
from barnabas.client.administration.transactions import ListedTransaction, ProducerState, TransactionInfo
from barnabas.wire.codec import encode_versioned
from barnabas.wire.generated.alter_share_group_offsets import AlterShareGroupOffsetsResponse
from barnabas.wire.generated.consumer_group_describe import ConsumerGroupDescribeResponse
from barnabas.wire.generated.data import consumer_protocol_assignment, consumer_protocol_subscription
from barnabas.wire.generated.describe_groups import DescribeGroupsResponse
from barnabas.wire.generated.describe_producers import DescribeProducersResponse
from barnabas.wire.generated.describe_share_group_offsets import DescribeShareGroupOffsetsResponse
from barnabas.wire.generated.describe_transactions import DescribeTransactionsResponse
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.leave_group import LeaveGroupResponse
from barnabas.wire.generated.list_groups import ListGroupsResponse
from barnabas.wire.generated.list_transactions import ListTransactionsResponse
from barnabas.wire.generated.offset_commit import OffsetCommitResponse
from barnabas.wire.generated.offset_fetch import OffsetFetchResponse
from barnabas.wire.generated.share_group_describe import ShareGroupDescribeResponse
from barnabas.wire.generated.streams_group_describe import StreamsGroupDescribeResponse
from barnabas.wire.generated.write_txn_markers import WriteTxnMarkersResponse
from tests.support.scripted_admin import code_of, scripted_admin

DENIED = ErrorCode.GROUP_AUTHORIZATION_FAILED
PLACE = ("t", 0)


# --- groups -----------------------------------------------------------------------------------------------------------


def listed(host: str, _: Any) -> ListGroupsResponse:
    entry = ListGroupsResponse.ListedGroup
    if host == "two":
        return ListGroupsResponse(error_code=DENIED)
    return ListGroupsResponse(
        groups=[
            entry("z", "consumer", "Stable", "Consumer"),
            entry("a", "connect", "Empty", ""),
            entry("m", "share", "Stable", "share"),
        ]
    )


@pytest.mark.parametrize("version", range(6))
async def test_groups_are_filtered_also_where_brokers_do_not(version: int) -> None:
    """Before version 4 no state is told, and nothing filtered by it; before 5 all groups are classic ones."""
    tells_state, tells_kind = version >= 4, version >= 5
    empty, stable = ("Empty", "Stable") if tells_state else ("", "")
    consumer, share = ("consumer", "share") if tells_kind else ("classic", "classic")
    by_id = {
        "a": ListedGroup("a", "classic", "connect", empty, 1),
        "m": ListedGroup("m", share, "share", stable, 1),
        "z": ListedGroup("z", consumer, "consumer", stable, 1),
    }
    filters: list[tuple[list[str], list[str], tuple[str, str, str]]] = [
        ([], [], ("amz", "amz", "amz")),
        (["stable"], [], ("amz", "mz", "mz")),
        ([], ["CONSUMER", "share"], ("", "", "mz")),
        (["EMPTY", "dead"], ["classic"], ("amz", "a", "a")),
        (["empty"], ["share"], ("", "", "")),
    ]
    async with scripted_admin(listed, {"ListGroups": version}) as admin:
        for states, kinds, result in filters:
            admin.asked.clear()
            groups, failures = await admin.list_groups(states=states, kinds=kinds)
            assert list(groups.items()) == [(row, by_id[row]) for row in result[tells_state + tells_kind]]
            assert {broker: code_of(error) for broker, error in failures.items()} == {2: DENIED}
            assert admin.request.states_filter == states * tells_state
            assert admin.request.types_filter == kinds * tells_kind
            assert sorted(admin.hosts) == ["one", "two"]


def versioned(data: Any, value: Any) -> bytes:
    return encode_versioned(data.CODEC, value, data.CODEC.max_version)


async def test_a_classic_group_is_described_with_what_its_members_say() -> None:
    created = DescribeGroupsResponse
    assignment = consumer_protocol_assignment.ConsumerProtocolAssignment
    places = [assignment.TopicPartition("u", [3, 1]), assignment.TopicPartition("t", [0])]
    subscription = consumer_protocol_subscription.ConsumerProtocolSubscription(["u", "t"])
    output = versioned(consumer_protocol_subscription, subscription)
    arguments = versioned(consumer_protocol_assignment, assignment(places))
    members = [
        created.DescribedGroupMember("m1", "i1", "c1", "/h1", output, arguments),
        created.DescribedGroupMember("m2", None, "c2", "/h2", b"", b""),
        created.DescribedGroupMember("m3", None, "c3", "/h3", b"\0", b"\0\1\2"),
    ]
    group = created.DescribedGroup(0, None, "g", "Stable", "consumer", "range", members)

    async with scripted_admin(lambda *_: created(groups=[group]), {"DescribeGroups": 6}) as admin:
        assert await admin.describe_groups({"g": "classic"}) == {
            "g": GroupInfo(
                "g", "classic", "Stable", "range", None, 2,
                (
                    GroupMember("m1", "i1", "c1", "/h1", None, ("u", "t"), (("u", 1), ("u", 3), ("t", 0))),
                    GroupMember("m2", None, "c2", "/h2", None, (), ()),
                    GroupMember("m3", None, "c3", "/h3", None, (), ()),
                ),
            )
        }  # fmt: skip
        assert admin.hosts == ["two"], "the coordinator"
        assert admin.request.groups == ["g"]
        group.protocol_type = "connect"
        actual: Any = (await admin.describe_groups({"g": "classic"}))["g"]
        assert [(member.subscription, member.assignment) for member in actual.members] == [((), ())] * 3
        for code, state, result in (
            (0, "Dead", ErrorCode.GROUP_ID_NOT_FOUND),
            (DENIED, "Dead", DENIED),
            (DENIED, "", DENIED),
        ):
            group.error_code, group.group_state = code, state
            assert code_of((await admin.describe_groups({"g": "classic"}))["g"]) == result


async def test_groups_of_each_kind_are_described_by_own_requests() -> None:
    consumer, share, streams = (
        ConsumerGroupDescribeResponse,
        ShareGroupDescribeResponse,
        StreamsGroupDescribeResponse,
    )
    assigned = consumer.Assignment([consumer.TopicPartitions(bytes(16), "t", [2, 1])])
    shared = share.Assignment([share.TopicPartitions(bytes(16), "t", [2, 1])])
    member = consumer.Member(
        "m", "i", "rack", 7, "c", "/h", ["t"], "p.*", assigned, consumer.Assignment(), 1
    )  # fmt: skip
    answers = {
        "ConsumerGroupDescribeRequest": consumer(
            groups=[consumer.DescribedGroup(0, None, "c", "Stable", 11, 12, "uniform", [member])]
        ),
        "ShareGroupDescribeRequest": share(
            groups=[
                share.DescribedGroup(
                    0, None, "s", "Empty", 21, 22, "simple",
                    [share.Member("sm", "rack", 8, "sc", "/sh", ["t"], shared)],
                )
            ]
        ),
        "StreamsGroupDescribeRequest": streams(
            groups=[streams.DescribedGroup(0, None, "x", "NotReady", 31, 32, None, [])]
        ),
    }  # fmt: skip

    def answer(_: str, request: Any) -> Any:
        return answers[type(request).__name__]

    versions = {"ConsumerGroupDescribe": 1, "ShareGroupDescribe": 1, "StreamsGroupDescribe": 9}
    async with scripted_admin(answer, versions) as admin:
        assert await admin.describe_groups({"s": "share", "c": "consumer", "x": "streams"}) == {
            "c": GroupInfo(
                "c", "consumer", "Stable", "uniform", 11, 2,
                (GroupMember("m", "i", "c", "/h", 7, ("t", "/p.*/"), (("t", 1), ("t", 2))),),
            ),
            "s": GroupInfo(
                "s", "share", "Empty", "simple", 21, 2,
                (GroupMember("sm", None, "sc", "/sh", 8, ("t",), (("t", 1), ("t", 2))),),
            ),
            "x": GroupInfo("x", "streams", "NotReady", "", 31, 2, ()),
        }  # fmt: skip
        assert sorted(request.group_ids for _, request in admin.asked) == [["c"], ["s"], ["x"]]


STATIC = GroupMember("m1", "i1", "", "", None, (), ())
DYNAMIC = GroupMember("m2", None, "", "", None, (), ())


@pytest.mark.parametrize("version", range(6))
async def test_members_are_removed_singly_before_version_3(version: int) -> None:
    entry = LeaveGroupResponse.MemberResponse
    answer = LeaveGroupResponse(members=[entry("", "i1", ErrorCode.UNKNOWN_MEMBER_ID), entry("m2", None, 0)])
    async with scripted_admin(lambda *_: answer, {"LeaveGroup": version}) as admin:
        if version < 3:
            answer.members = []
            with pytest.raises(ResponseError, match="UNSUPPORTED_VERSION"):
                await admin.remove_members("g", [STATIC, DYNAMIC])
            with pytest.raises(ResponseError, match="UNSUPPORTED_VERSION"):
                await admin.remove_members("g", [])
            assert await admin.remove_members("g", [DYNAMIC]) == {"m2": None}
            assert (admin.request.group_id, admin.request.member_id) == ("g", "m2")
            return
        outcomes = await admin.remove_members("g", [STATIC, DYNAMIC], reason="why")
        assert code_of(outcomes["m1"]) == ErrorCode.UNKNOWN_MEMBER_ID
        assert outcomes["m2"] is None
        sent = [
            (member.member_id, member.group_instance_id, member.reason) for member in admin.request.members
        ]
        reason = "why" if version >= 5 else None
        assert sent == [("", "i1", reason), ("m2", None, reason)]
        assert admin.hosts == ["two"]
        answer.error_code = DENIED
        with pytest.raises(ResponseError, match="removing members of 'g': GROUP_AUTHORIZATION_FAILED"):
            await admin.remove_members("g", [STATIC, DYNAMIC])


# --- offsets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(10))
async def test_all_offsets_of_a_group_are_requested_by_version(version: int) -> None:
    created = OffsetFetchResponse
    values = [(1, -1, -1, None, 0), (0, 0, 5, None, 0), (2, 9, -1, "note", 0), (3, 9, 1, "", DENIED)]

    def answer(_: str, request: Any) -> OffsetFetchResponse:
        if version < 8:
            parts = [created.OffsetFetchResponsePartition(*entry) for entry in values]
            return created(topics=[created.OffsetFetchResponseTopic("t", parts)])
        entries = [created.OffsetFetchResponsePartitions(*entry) for entry in values]
        topics = [created.OffsetFetchResponseTopics("t", partitions=entries)]
        return created(groups=[created.OffsetFetchResponseGroup(request.groups[0].group_id, topics)])

    async with scripted_admin(answer, {"OffsetFetch": version}) as admin:
        result: Any = (await admin.committed(["g"]))["g"]
        if version < 2:
            assert isinstance(result, UnsupportedVersionError)
            return
        assert code_of(result.pop(("t", 3))) == DENIED
        first_epoch = 5 if version >= 5 else -1
        assert result == {
            ("t", 0): CommittedOffset(0, first_epoch, ""),
            ("t", 2): CommittedOffset(9, -1, "note"),
        }
        sent = admin.request
        if version >= 8:
            assert [(entry.group_id, entry.topics) for entry in sent.groups] == [("g", None)]
        else:
            assert (sent.group_id, sent.topics) == ("g", None)


async def test_many_groups_share_requests_and_loading_asks_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    created = OffsetFetchResponse
    codes = {"g-05": [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 0], "g-07": [DENIED]}

    def answer(_: str, request: Any) -> OffsetFetchResponse:
        groups = []
        for group in request.groups:
            if group.group_id == "g-09" and len(request.groups) > 1:
                continue  # a broker may leave it out
            code = codes.get(group.group_id, [0])
            offset = created.OffsetFetchResponsePartitions(0, int(group.group_id[2:]))
            topic = created.OffsetFetchResponseTopics("t", partitions=[offset])
            groups.append(
                created.OffsetFetchResponseGroup(group.group_id, [topic], code.pop(0) if code else 0)
            )
        return created(groups=groups)

    names = [f"g-{number:02}" for number in range(45)]
    async with scripted_admin(answer, {"OffsetFetch": 9}) as admin:
        committed = await admin.committed(names)
        sizes = [len(request.groups) for _, request in admin.asked]
    assert sorted(sizes, reverse=True) == [20, 20, 5, 1, 1], "those of g-05 and g-09 alone"
    assert list(committed) == names
    assert code_of(committed.pop("g-07")) == DENIED
    for name, offsets in committed.items():
        assert offsets == {PLACE: CommittedOffset(int(name[2:]))}, name


@pytest.mark.parametrize("version", [7, 8])
async def test_a_group_whose_offsets_may_not_be_seen_is_an_error(version: int) -> None:
    created = OffsetFetchResponse
    answer = created(error_code=DENIED, groups=[created.OffsetFetchResponseGroup("g", [], DENIED)])
    if version < 8:
        answer.groups = []
    async with scripted_admin(lambda *_: answer, {"OffsetFetch": version}) as admin:
        assert code_of((await admin.committed(["g"]))["g"]) == DENIED


async def test_offset_commits_are_retried_on_coordinator_errors_only(
    autojump_clock: trio.testing.MockClock,
) -> None:
    created = OffsetCommitResponse
    codes = [
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ]

    def answer(_: str, request: Any) -> OffsetCommitResponse:
        return created(topics=[created.OffsetCommitResponseTopic("t", partitions=[
            created.OffsetCommitResponsePartition(0, codes.pop(0)), created.OffsetCommitResponsePartition(1, 0)
        ])])  # fmt: skip

    async with scripted_admin(answer, {"OffsetCommit": 10}) as admin:
        outcomes = await admin.commit_offsets("g", {("t", 1): CommittedOffset(7, 3, "note"), PLACE: 5})
        assert code_of(outcomes[PLACE]) == ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        assert outcomes["t", 1] is None
        assert len(admin.asked) == 3
        (topic,) = admin.request.topics
        sent = [
            (
                partition.partition_index,
                partition.committed_offset,
                partition.committed_leader_epoch,
                partition.committed_metadata,
            )
            for partition in topic.partitions
        ]
        assert (admin.request.group_id, topic.name, sent) == ("g", "t", [(0, 5, -1, ""), (1, 7, 3, "note")])
        assert admin.request.generation_id_or_member_epoch == -1


async def test_offsets_of_share_groups_have_their_epochs_and_lags() -> None:
    created = DescribeShareGroupOffsetsResponse
    part = created.DescribeShareGroupOffsetsResponsePartition
    parts = [part(2, 0, 5, 7), part(1, -1, 6, 8), part(0, 3, 1, -1), part(4, 1, 1, 1, DENIED, "why")]
    group = created.DescribeShareGroupOffsetsResponseGroup(
        "s", [created.DescribeShareGroupOffsetsResponseTopic("t", bytes(16), parts)]
    )
    async with scripted_admin(lambda *_: created(groups=[group]), {"DescribeShareGroupOffsets": 9}) as admin:
        result: Any = (await admin.share_offsets(["s"]))["s"]
        assert code_of(result.pop(("t", 4))) == DENIED
        assert list(result.items()) == [
            (("t", 0), CommittedOffset(3, 1, lag=-1)), (("t", 2), CommittedOffset(0, 5, lag=7)),
        ]  # fmt: skip
        assert [(group.group_id, group.topics) for group in admin.request.groups] == [("s", None)]
        group.error_code = DENIED
        assert code_of((await admin.share_offsets(["s"]))["s"]) == DENIED


async def test_offsets_of_share_groups_are_set_by_partition() -> None:
    created = AlterShareGroupOffsetsResponse
    parts = [
        created.AlterShareGroupOffsetsResponsePartition(0, DENIED, "why"),
        created.AlterShareGroupOffsetsResponsePartition(1),
    ]
    answer = created(responses=[created.AlterShareGroupOffsetsResponseTopic("t", bytes(16), parts)])
    async with scripted_admin(lambda *_: answer, {"AlterShareGroupOffsets": 9}) as admin:
        outcomes: Any = await admin.set_share_offsets("s", {("t", 1): 8, PLACE: 5})
        assert (code_of(outcomes[PLACE]), outcomes[PLACE].message, outcomes["t", 1]) == (DENIED, "why", None)
        (topic,) = admin.request.topics
        assert [(part.partition_index, part.start_offset) for part in topic.partitions] == [(0, 5), (1, 8)]


# --- transactions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(3))
async def test_transactions_are_listed_by_filters_that_the_version_has(version: int) -> None:
    def answer(host: str, _: Any) -> ListTransactionsResponse:
        entry = ListTransactionsResponse.TransactionState
        state = entry("a", 4, "Ongoing") if host == "two" else entry("b", 5, "Empty")
        return ListTransactionsResponse(transaction_states=[state])

    filters: list[tuple[dict[str, Any], int]] = [
        ({}, 0),
        ({"states": ["Ongoing"], "producer_ids": [4]}, 0),
        ({"running_for_ms": 0}, 1),
        ({"running_for_ms": 60_000}, 1),
        ({"pattern": ""}, 2),
        ({"pattern": "x.*", "running_for_ms": 5}, 2),
    ]
    async with scripted_admin(answer, {"ListTransactions": version}) as admin:
        for arguments, since in filters:
            result, failures = await admin.list_transactions(**arguments)
            if version < since:
                assert result == []
                assert [type(failure) for failure in failures.values()] == [UnsupportedVersionError] * 2
                continue
            assert result == [ListedTransaction("a", 4, "Ongoing", 2), ListedTransaction("b", 5, "Empty", 1)]
            assert failures == {}
            sent = admin.request
            assert sent.state_filters == arguments.get("states", [])
            assert sent.producer_id_filters == arguments.get("producer_ids", [])
            assert sent.duration_filter == arguments.get("running_for_ms", -1)
            assert sent.transactional_id_pattern == arguments.get("pattern")


async def test_failing_broker_does_not_hide_other_transactions() -> None:
    def answer(host: str, _: Any) -> ListTransactionsResponse:
        state = ListTransactionsResponse.TransactionState("b", 5, "Empty")
        return ListTransactionsResponse(
            error_code=DENIED if host == "one" else 0, transaction_states=[state] if host == "two" else []
        )

    async with scripted_admin(answer, {"ListTransactions": 2}) as admin:
        result, failures = await admin.list_transactions()
        assert result == [ListedTransaction("b", 5, "Empty", 2)]
        assert {broker: code_of(error) for broker, error in failures.items()} == {1: DENIED}


async def test_a_transaction_is_described_by_its_coordinator() -> None:
    created = DescribeTransactionsResponse

    def answer(_: str, request: Any) -> DescribeTransactionsResponse:
        (name,) = request.transactional_ids
        code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if name == "none" else 0
        topics = [created.TopicData("u", [3, 1]), created.TopicData("t", [0])]
        return created(
            transaction_states=[created.TransactionState(code, name, "Ongoing", 60, 70, 4, 9, topics)]
        )

    async with scripted_admin(answer, {"DescribeTransactions": 0}) as admin:
        result = await admin.describe_transactions(["x", "none"])
        assert result["x"] == TransactionInfo("x", 4, 9, "Ongoing", 60, 70, 2, (("u", 1), ("u", 3), ("t", 0)))
        assert code_of(result["none"]) == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        assert admin.hosts == ["two", "two"]


async def test_producers_are_described_by_leader_in_id_order() -> None:
    created = DescribeProducersResponse
    part = created.PartitionResponse(
        0, active_producers=[created.ProducerState(7, 1, 2, 3, 4, 5), created.ProducerState(6)]
    )
    async with scripted_admin(
        lambda *_: created(topics=[created.TopicResponse("t", [part])]), {"DescribeProducers": 0}
    ) as admin:
        assert await admin.producers([PLACE]) == {
            PLACE: [ProducerState(6, 0, -1, -1, 0, -1), ProducerState(7, 1, 2, 3, 4, 5)]
        }
        assert admin.hosts == ["one"]
        assert [(topic.name, topic.partition_indexes) for topic in admin.request.topics] == [("t", [0])]
        part.error_code, part.error_message = DENIED, "why"
        result: Any = (await admin.producers([PLACE]))[PLACE]
        assert (result.code, result.message) == (DENIED, "why")


@pytest.mark.parametrize(("epoch", "sent"), [(-1, 0), (0, 0), (5, 5)])
async def test_a_transaction_that_hangs_is_aborted_at_the_leader(epoch: int, sent: int) -> None:
    created = WriteTxnMarkersResponse
    part = created.WritableTxnMarkerPartitionResult(0)
    topics = [created.WritableTxnMarkerTopicResult("t", [part])]
    answer = created(markers=[created.WritableTxnMarkerResult(7, topics)])
    async with scripted_admin(lambda *_: answer, {"WriteTxnMarkers": 1}) as admin:
        await admin.abort_transaction(PLACE, ProducerState(7, 1, 2, 3, epoch, 5))
        (marker,) = admin.request.markers
        assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (7, 1, sent)
        assert not marker.transaction_result, "an abort"
        assert [(topic.name, topic.partition_indexes) for topic in marker.topics] == [("t", [0])]
        part.error_code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        with pytest.raises(ResponseError, match="CLUSTER_AUTHORIZATION_FAILED"):
            await admin.abort_transaction(PLACE, ProducerState(7, 1, 2, 3, epoch, 5))
