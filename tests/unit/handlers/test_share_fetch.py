"""ShareFetch and ShareAcknowledge as members of share groups see them: what is acquired, said, refused and waited for."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from barnabas.records.batch import iter_batches
from barnabas.security.authorizer import Operation, ResourceType
from barnabas.wire.generated.errors import ErrorCode
from tests.support.broker import Asked, ask_for_topic, broker_to_ask
from tests.support.logs import batch
from tests.support.plain_requests import DenyNamed, ask

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
UNKNOWN = b"x" * 16
BAD, NO_SESSION, WRONG_EPOCH = (
    ErrorCode.INVALID_REQUEST, ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH,
)  # fmt: skip


class Group:
    """A share group `s` of the topic `t` with two partitions, and the requests of its members."""

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.topic_id = asked.services.metadata.image.topics["t"].id

    async def set_up(self, **settings: str) -> None:
        own = {"share.auto.offset.reset": "earliest", **settings}
        configs = [{"Name": name, "ConfigOperation": 0, "Value": value} for name, value in own.items()]
        resources = [{"ResourceType": 32, "ResourceName": "s", "Configs": configs}]
        answer = await ask(self.asked, "IncrementalAlterConfigs", 1, {"Resources": resources})
        assert [response.error_code for response in answer.responses] == [0]
        join = {"GroupId": "s", "MemberId": "one", "MemberEpoch": 0, "SubscribedTopicNames": ["t"]}
        assert (await ask(self.asked, "ShareGroupHeartbeat", 1, join)).error_code == 0

    async def produce(self, *values: bytes, partition: int = 0, **options: Any) -> None:
        data = {"Index": partition, "Records": bytes(batch(*values, **options))}
        request = {
            "Acks": -1,
            "TimeoutMs": 5000,
            "TransactionalId": "x" if options else None,
            "TopicData": [{"Name": "t", "PartitionData": [data]}],
        }
        answer = await ask(self.asked, "Produce", 9, request)
        assert answer.responses[0].partition_responses[0].error_code == 0

    def topics(self, *indexes: int, acks: Any = ()) -> list[dict[str, Any]]:
        batches = [
            {"FirstOffset": first, "LastOffset": last, "AcknowledgeTypes": types}
            for first, last, *types in acks
        ]
        parts = [{"PartitionIndex": index, "AcknowledgementBatches": batches} for index in indexes]
        return [{"TopicId": self.topic_id, "Partitions": parts}] if parts else []

    async def fetch(
        self,
        epoch: int,
        *indexes: int,
        acks: Any = (),
        member: str | None = "one",
        version: int = 2,
        **more: Any,
    ) -> Any:
        request = {
            "GroupId": "s", "MemberId": member, "ShareSessionEpoch": epoch, "MaxBytes": 1 << 20,
            "MaxRecords": 100, "BatchSize": 100, "Topics": self.topics(*indexes, acks=acks), **more,
        }  # fmt: skip
        return await ask(self.asked, "ShareFetch", version, request)

    async def say(self, epoch: int, *indexes: int, acks: Any, member: str = "one", **more: Any) -> Any:
        request = {
            "GroupId": "s", "MemberId": member, "ShareSessionEpoch": epoch,
            "Topics": self.topics(*indexes, acks=acks), **more,
        }  # fmt: skip
        return await ask(self.asked, "ShareAcknowledge", 2, request)


def parts(answer: Any) -> dict[int, Any]:
    assert answer.error_code == 0, answer
    return {part.partition_index: part for topic in answer.responses for part in topic.partitions}


def acquired(answer: Any) -> dict[int, list[tuple[int, int, int]]]:
    """First offset, last offset and deliveries, by partition, of those that are named."""
    return {
        index: [(row.first_offset, row.last_offset, row.delivery_count) for row in part.acquired_records]
        for index, part in parts(answer).items()
    }


def base_offsets(part: Any) -> list[int]:
    return [header.base_offset for _, header in iter_batches(bytes(part.records))]


@pytest.fixture
async def group(tmp_path):
    async with broker_to_ask(tmp_path, SETTINGS) as asked:
        await ask_for_topic(asked)
        group = Group(asked)
        await group.set_up()
        yield group


@pytest.fixture
async def filled(group):
    """With the offsets 0 to 5 in three batches of the first partition."""
    for _ in range(3):
        await group.produce(b"v", b"w")
    return group


async def test_records_are_acquired_and_sent_in_whole_batches(filled):
    first = await filled.fetch(0, 0, 1, MaxRecords=3)
    assert acquired(first) == {0: [(0, 3, 1)], 1: []}, "the first answer of a session names everything"
    assert base_offsets(parts(first)[0]) == [0, 2]
    second = await filled.fetch(1)
    assert acquired(second) == {0: [(4, 5, 1)]}
    assert base_offsets(parts(second)[0]) == [4]
    assert acquired(await filled.fetch(2)) == {}
    assert first.acquisition_lock_timeout_ms == 30_000


async def test_a_limit_can_be_taken_strictly(filled):
    assert acquired(await filled.fetch(0, 0, MaxRecords=3, ShareAcquireMode=1)) == {0: [(0, 2, 1)]}
    again = await filled.fetch(1)
    assert acquired(again) == {0: [(3, 5, 1)]}
    assert base_offsets(parts(again)[0]) == [2, 4]


async def test_a_limit_of_records_holds_for_all_partitions_together(filled):
    for _ in range(2):
        await filled.produce(b"v", b"w", partition=1)
    records = acquired(await filled.fetch(0, 0, 1, MaxRecords=7))
    assert records == {0: [(0, 5, 1)], 1: [(0, 1, 1)]}


@pytest.mark.parametrize("nothing", [{"MaxRecords": 0}, {"MaxBytes": 0}])
async def test_empty_fetch_is_given_nothing_and_does_not_wait(filled, nothing):
    with trio.fail_after(5):
        assert acquired(await filled.fetch(0, 0, MaxWaitMs=60_000, **nothing)) == {0: []}


async def test_one_batch_is_given_however_few_bytes_are_asked_for(filled):
    with trio.fail_after(5):
        answer = await filled.fetch(0, 0, MaxBytes=1, MinBytes=1, MaxWaitMs=60_000)
    assert acquired(answer) == {0: [(0, 1, 1)]}


async def test_wrong_partitions_have_errors_and_others_are_fetched(filled):
    topics = [*filled.topics(0, 2), {"TopicId": UNKNOWN, "Partitions": [{"PartitionIndex": 0}]}]
    with trio.fail_after(5):
        answer = await filled.fetch(0, Topics=topics, MaxWaitMs=60_000, MinBytes=1)
    partitions = {topic.topic_id: topic.partitions for topic in answer.responses}
    partitions[filled.topic_id].sort(key=lambda part: part.partition_index)
    codes = [(part.partition_index, part.error_code) for part in partitions[filled.topic_id]]
    assert codes == [(0, 0), (2, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    assert [part.error_code for part in partitions[UNKNOWN]] == [ErrorCode.UNKNOWN_TOPIC_ID]
    assert [part.acquired_records != [] for part in partitions[filled.topic_id]] == [True, False]


async def test_released_records_come_again_and_settled_ones_do_not(filled):
    await filled.fetch(0, 0)
    acks = [(0, 1, ACCEPT), (2, 3, RELEASE, REJECT), (4, 5, RELEASE)]
    answer = await filled.fetch(1, 0, acks=acks)
    assert parts(answer)[0].acknowledge_error_code == 0
    assert acquired(answer) == {0: [(2, 2, 2), (4, 5, 2)]}
    assert base_offsets(parts(answer)[0]) == [2, 4]


@pytest.mark.parametrize("api", ["fetch", "say"])
async def test_records_of_other_members_cannot_be_acknowledged(filled, api):
    await filled.fetch(0, 0, MaxRecords=2)
    await filled.fetch(0, 0, member="two")  # has the others
    refused = await getattr(filled, api)(1, 0, acks=[(0, 3, ACCEPT)])
    told = parts(refused)[0]
    code = told.acknowledge_error_code if api == "fetch" else told.error_code
    assert code == ErrorCode.INVALID_RECORD_STATE
    accepted = parts(await filled.say(2, 0, acks=[(0, 1, ACCEPT)]))[0]
    assert accepted.error_code == 0, "the one that was refused changed nothing"


async def test_partitions_are_acknowledged_each_by_itself(filled):
    await filled.produce(b"v", b"w", partition=1)
    await filled.fetch(0, 0, 1)
    topics = [
        *filled.topics(0, acks=[(0, 9, ACCEPT)]),  # there are not so many
        *filled.topics(1, acks=[(0, 1, ACCEPT)]),
        *filled.topics(2, acks=[(0, 1, ACCEPT)]),
        {"TopicId": UNKNOWN, "Partitions": [{"PartitionIndex": 0}]},
    ]
    answer = await filled.say(1, Topics=topics, acks=())
    codes = [[part.error_code for part in topic.partitions] for topic in answer.responses]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == [[BAD, 0, unknown], [ErrorCode.UNKNOWN_TOPIC_ID]]
    assert [topic.topic_id for topic in answer.responses] == [filled.topic_id, UNKNOWN]


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"GroupId": None}, BAD),
        ({"MemberId": ""}, BAD),
        ({"MemberId": None}, BAD),
        ({"MemberId": "m" * 37}, BAD),
        ({"MemberId": "m" * 36}, NO_SESSION),
        ({"GroupId": "other"}, NO_SESSION),
        ({"MemberId": "two"}, NO_SESSION),
        ({"ShareSessionEpoch": 2}, WRONG_EPOCH),
        ({"ShareSessionEpoch": 1}, 0),
    ],
    ids=str,
)
@pytest.mark.parametrize("api", ["fetch", "say"])
async def test_who_asks_must_have_a_session_and_be_at_its_epoch(filled, api, asked, code):
    await filled.fetch(0, 0)
    answer = await getattr(filled, api)(1, acks=(), **asked)
    assert answer.error_code == code
    assert answer.responses == []


async def test_a_session_begins_with_a_fetch_that_acknowledges_nothing(filled):
    answer = await filled.fetch(0, 0, 1, acks=[(0, 1, ACCEPT)])
    assert (answer.error_code, answer.responses) == (BAD, [])
    assert (await filled.say(0, 0, acks=[(0, 1, ACCEPT)])).error_code == WRONG_EPOCH


@pytest.mark.parametrize("api", ["fetch", "say"])
async def test_ending_session_releases_unacknowledged_records(filled, api):
    await filled.fetch(0, 0)
    last = await getattr(filled, api)(-1, 0, acks=[(0, 1, ACCEPT)])
    assert [*parts(last)] == [0]
    assert getattr(parts(last)[0], "acquired_records", []) == []
    assert (await filled.fetch(1)).error_code == NO_SESSION
    assert acquired(await filled.fetch(0, 0, member="two")) == {0: [(2, 5, 2)]}


async def test_partitions_come_and_go_in_a_session(filled):
    await filled.produce(b"v", partition=1)
    assert acquired(await filled.fetch(0, 1)) == {1: [(0, 0, 1)]}
    forgotten = [{"TopicId": filled.topic_id, "Partitions": [1]}]
    await filled.say(1, 1, acks=[(0, 0, RELEASE)])
    assert acquired(await filled.fetch(2, 0, ForgottenTopicsData=forgotten)) == {0: [(0, 5, 1)]}
    assert acquired(await filled.fetch(3, 1)) == {1: [(0, 0, 2)]}


# --- renewing -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", ["MaxBytes", "MinBytes", "MaxRecords", "MaxWaitMs"])
async def test_a_request_that_renews_asks_for_nothing_else(filled, wrong):
    await filled.fetch(0, 0)
    asked = {"MaxBytes": 0, "MinBytes": 0, "MaxRecords": 0, "MaxWaitMs": 0}
    refused = await filled.fetch(1, 0, acks=[(0, 1, RENEW)], IsRenewAck=True, **{**asked, wrong: 1})
    assert refused.error_code == BAD
    renewed = await filled.fetch(1, 0, acks=[(0, 1, RENEW)], IsRenewAck=True, **asked)
    assert parts(renewed)[0].acknowledge_error_code == 0
    assert acquired(renewed) == {0: []}


@pytest.mark.parametrize(("version", "is_renew", "code"), [(1, False, BAD), (2, False, BAD), (2, True, 0)])
async def test_locks_are_renewed_by_those_who_say_so_and_know_of_it(filled, version, is_renew, code):
    await filled.fetch(0, 0)
    more = {"IsRenewAck": is_renew} if version == 2 else {}
    nothing = {"MaxBytes": 0, "MaxRecords": 0}
    answer = await filled.fetch(1, 0, acks=[(0, 1, RENEW)], version=version, **nothing, **more)
    assert parts(answer)[0].acknowledge_error_code == code


# --- waiting --------------------------------------------------------------------------------------------------------


async def test_fetch_waits_for_new_or_released_records_or_its_time(group):
    answers: list[Any] = []

    async def wait(epoch: int, member: str, **more: Any) -> None:
        answers.append(await group.fetch(epoch, 0, member=member, MaxWaitMs=60_000, MinBytes=1, **more))

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait, 0, "one")
            await trio.testing.wait_all_tasks_blocked(0.01)
            assert answers == []
            await group.produce(b"v")
        assert acquired(answers[0]) == {0: [(0, 0, 1)]}
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait, 0, "two")
            await trio.testing.wait_all_tasks_blocked(0.01)
            assert len(answers) == 1
            await group.say(1, 0, acks=[(0, 0, RELEASE)])
        assert acquired(answers[1]) == {0: [(0, 0, 2)]}
        begun = trio.current_time()
        assert acquired(await group.fetch(2, MaxWaitMs=30, MinBytes=1)) == {}
        assert trio.current_time() - begun >= 0.03


async def test_fewer_bytes_are_given_when_the_time_is_over(filled):
    begun = trio.current_time()
    assert acquired(await filled.fetch(0, 0, MinBytes=1 << 19, MaxWaitMs=30)) == {0: [(0, 5, 1)]}
    assert trio.current_time() - begun >= 0.03


# --- what there is to read ------------------------------------------------------------------------------------------


async def test_what_was_deleted_is_skipped(filled):
    partitions = [{"PartitionIndex": 0, "Offset": 3}]
    request = {"Topics": [{"Name": "t", "Partitions": partitions}], "TimeoutMs": 5000}
    assert (await ask(filled.asked, "DeleteRecords", 2, request)).topics[0].partitions[0].low_watermark == 3
    assert acquired(await filled.fetch(0, 0)) == {0: [(3, 5, 1)]}


@pytest.mark.parametrize(
    ("isolation", "expected"),
    [("read_committed", [(1, 4, 1)]), ("read_uncommitted", [(0, 4, 1)])],  # 0 is aborted, 1 and 3 are markers
)
async def test_aborted_records_are_for_those_who_read_uncommitted(group, isolation, expected):
    await group.set_up(**{"share.isolation.level": isolation})
    txn = await ask(
        group.asked, "InitProducerId", 4, {"TransactionalId": "x", "TransactionTimeoutMs": 60_000}
    )
    producer = {"ProducerId": txn.producer_id, "ProducerEpoch": txn.producer_epoch}
    for number, committed in enumerate((False, True)):
        added = {f"V3AndBelow{name}": value for name, value in producer.items()}
        added |= {"V3AndBelowTransactionalId": "x", "V3AndBelowTopics": [{"Name": "t", "Partitions": [0]}]}
        await ask(group.asked, "AddPartitionsToTxn", 3, added)
        await group.produce(
            b"v", transactional=True, producer_id=txn.producer_id, producer_epoch=txn.producer_epoch,
            base_sequence=number,
        )  # fmt: skip
        end = {"TransactionalId": "x", "Committed": committed, **producer}
        assert (await ask(group.asked, "EndTxn", 3, end)).error_code == 0
        await trio.testing.wait_all_tasks_blocked(0.01)
    await group.produce(b"v")
    assert acquired(await group.fetch(0, 0)) == {0: expected}


# --- offsets of the group -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1])
async def test_offsets_are_described_with_what_is_left_to_be_delivered(filled, version):
    await filled.fetch(0, 0, 1, MaxRecords=4)
    assert parts(await filled.say(1, 0, acks=[(0, 1, ACCEPT)]))[0].error_code == 0
    asked = [{"TopicName": "t", "Partitions": [0, 1, 0]}, {"TopicName": "nowhere", "Partitions": [0]}]
    groups = [
        {"GroupId": "s", "Topics": asked}, {"GroupId": "s", "Topics": None}, {"GroupId": "no", "Topics": None},
    ]  # fmt: skip
    answer = await ask(filled.asked, "DescribeShareGroupOffsets", version, {"Groups": groups})
    named, everything, nothing = answer.groups
    assert [group.error_code for group in answer.groups] == [0, 0, 0]

    def told(group: Any) -> list[tuple[str, list[tuple[int, int, int]]]]:
        return [
            (topic.topic_name, [(row.partition_index, row.start_offset, row.lag) for row in topic.partitions])
            for topic in group.topics
        ]

    lag = (
        4 if version else -1
    )  # two of six are done, though nothing has been kept of where the group begins since
    mine = ("t", [(0, 0, lag), (1, -1, -1)])
    assert told(named) == [mine, ("nowhere", [(0, -1, -1)])]
    assert told(everything) == [mine]
    assert told(nothing) == []
    assert [topic.topic_id for topic in named.topics] == [filled.topic_id, bytes(16)]
    filled.asked.authorizer = DenyNamed((Operation.DESCRIBE, ResourceType.TOPIC, "t"))
    denied = (await ask(filled.asked, "DescribeShareGroupOffsets", version, {"Groups": groups[:2]})).groups
    refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    codes = [[(row.error_code, row.start_offset) for row in topic.partitions] for topic in denied[0].topics]
    assert codes == [[(refused, -1), (refused, -1)], [(0, -1)]]
    assert denied[1].topics == [], "of what is not named nothing is said"
