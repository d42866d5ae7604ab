"""OffsetFetch: which offsets of which groups are told, with all that was committed, version by version."""

from __future__ import annotations

from typing import Any

import pytest
import trio.testing

from barnabas.security.authorizer import Operation, ResourceType
from barnabas.wire.generated.errors import ErrorCode
from tests.support.broker import Asked, ask_for_topic, broker_to_ask
from tests.support.plain_requests import DenyNamed, ask, codes

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "offset.metadata.max.bytes": "4",
}
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT
DENY_U = (Operation.DESCRIBE, ResourceType.TOPIC, "u")
UNKNOWN_ID = b"x" * 16


def part(index: int, offset: int, epoch: int = -1, metadata: str | None = "") -> dict[str, Any]:
    return {
        "PartitionIndex": index, "CommittedOffset": offset, "CommittedLeaderEpoch": epoch,
        "CommittedMetadata": metadata,
    }  # fmt: skip


async def commit(asked: Asked, group: str = "g", **topics: list[dict[str, Any]]) -> list[int]:
    topic_list = [{"Name": name, "Partitions": parts} for name, parts in topics.items()]
    request = {"GroupId": group, "GenerationIdOrMemberEpoch": -1, "Topics": topic_list}
    return codes(await ask(asked, "OffsetCommit", 8, request))


@pytest.fixture
async def asked(tmp_path):
    async with broker_to_ask(tmp_path, SETTINGS) as asked:
        await ask_for_topic(asked)
        await ask_for_topic(asked, "u")
        assert await commit(asked, t=[part(1, 7, 3, "meta"), part(0, 5)], u=[part(0, 9, 4)]) == [0] * 3
        yield asked


def told(topics: list[Any]) -> list[tuple[str, list[tuple[int, int, int, str, int]]]]:
    """Index, offset, epoch, metadata and code of each partition."""
    return [
        (
            topic.name,
            [
                (
                    part.partition_index, part.committed_offset, part.committed_leader_epoch, part.metadata,
                    part.error_code,
                )
                for part in topic.partitions
            ],
        )
        for topic in topics
    ]  # fmt: skip


async def fetched(asked: Asked, version: int, *topics: tuple[str, list[int]], **more: Any) -> list[Any]:
    """Return the topics of the answer, asked for by name or, without any, all of them."""
    asked_for = [{"Name": name, "PartitionIndexes": indexes} for name, indexes in topics] or None
    if version < 8:
        return list(
            (await ask(asked, "OffsetFetch", version, {"GroupId": "g", "Topics": asked_for, **more})).topics
        )
    groups = [{"GroupId": "g", "Topics": asked_for}]
    return list((await ask(asked, "OffsetFetch", version, {"Groups": groups, **more})).groups[0].topics)


@pytest.mark.parametrize("version", [1, 4, 5, 7, 8, 9])
async def test_each_partition_has_what_was_committed_for_it(asked, version):
    epochs = version >= 5
    offsets = told(await fetched(asked, version, ("u", [1, 0]), ("t", [0, 1, 9]), ("nowhere", [0])))
    assert offsets == [
        ("u", [(1, -1, -1, "", 0), (0, 9, 4 if epochs else -1, "", 0)]),
        ("t", [(0, 5, -1, "", 0), (1, 7, 3 if epochs else -1, "meta", 0), (9, -1, -1, "", 0)]),
        ("nowhere", [(0, -1, -1, "", 0)]),
    ]


@pytest.mark.parametrize("version", [2, 7, 8])
async def test_all_offsets_are_those_of_topics_that_may_be_described(asked, version):
    everything = dict(told(await fetched(asked, version)))
    assert {name: sorted(part[:2] for part in parts) for name, parts in everything.items()} == {
        "t": [(0, 5), (1, 7)], "u": [(0, 9)],
    }  # fmt: skip
    asked.authorizer = DenyNamed(DENY_U)
    assert [name for name, _ in told(await fetched(asked, version))] == ["t"]
    named = told(await fetched(asked, version, ("u", [0]), ("t", [0])))
    assert named == [
        ("u", [(0, -1, -1, "", ErrorCode.TOPIC_AUTHORIZATION_FAILED)]), ("t", [(0, 5, -1, "", 0)]),
    ]  # fmt: skip


async def test_topics_are_named_by_their_ids_since_version_10(asked):
    ids = {name: asked.services.metadata.image.topics[name].id for name in ("t", "u")}

    async def by_id(*topic_ids: bytes) -> Any:
        topics = [{"TopicId": each, "PartitionIndexes": [0]} for each in topic_ids] or None
        answer = await ask(asked, "OffsetFetch", 10, {"Groups": [{"GroupId": "g", "Topics": topics}]})
        return [(topic.topic_id, told([topic])[0][1][0][1:]) for topic in answer.groups[0].topics]

    unknown = (UNKNOWN_ID, (-1, -1, "", ErrorCode.UNKNOWN_TOPIC_ID))
    assert await by_id(ids["u"], UNKNOWN_ID, ids["t"]) == [
        (ids["u"], (9, 4, "", 0)), unknown, (ids["t"], (5, -1, "", 0)),
    ]  # fmt: skip
    assert {topic[0] for topic in await by_id()} == set(ids.values())
    asked.authorizer = DenyNamed(DENY_U)
    assert {topic[0] for topic in await by_id()} == {ids["t"]}
    denied = (ids["u"], (-1, -1, "", ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    assert await by_id(ids["u"], UNKNOWN_ID) == [denied, unknown]


async def test_each_group_is_answered_with_all_its_offsets_once(asked):
    await commit(asked, "h", t=[part(0, 1)])
    asked.authorizer = DenyNamed((Operation.DESCRIBE, ResourceType.GROUP, "secret"))
    some = [{"Name": "t", "PartitionIndexes": [0]}]
    asked_for = [
        ("h", None), ("secret", None), ("g", some), ("h", None), ("h", some), ("nobody", None), ("g", some),
    ]  # fmt: skip
    groups = [{"GroupId": name, "Topics": topics} for name, topics in asked_for]
    answer = await ask(asked, "OffsetFetch", 8, {"Groups": groups})
    refused = ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert [(group.group_id, group.error_code) for group in answer.groups] == [
        ("h", 0), ("secret", refused), ("g", 0), ("h", 0), ("nobody", 0), ("g", 0),
    ]  # fmt: skip
    offsets = [
        [partition.committed_offset for topic in group.topics for partition in topic.partitions]
        for group in answer.groups
    ]
    assert offsets == [[1], [], [5], [1], [], [5]]


@pytest.mark.parametrize("version", [7, 8])
async def test_open_transactions_are_unstable_for_stable_reads(asked, version):
    txn = await ask(asked, "InitProducerId", 4, {"TransactionalId": "x", "TransactionTimeoutMs": 60_000})
    producer = {"ProducerId": txn.producer_id, "ProducerEpoch": txn.producer_epoch, "TransactionalId": "x"}
    await ask(asked, "AddOffsetsToTxn", 3, {**producer, "GroupId": "g"})
    offsets = {**producer, "GroupId": "g", "Topics": [{"Name": "t", "Partitions": [part(0, 6, 2, "new")]}]}
    assert codes(await ask(asked, "TxnOffsetCommit", 3, offsets)) == [0]
    topic = ("t", [0, 1])
    stable = told(await fetched(asked, version, topic, RequireStable=True))
    assert stable == [("t", [(0, -1, -1, "", UNSTABLE), (1, 7, 3, "meta", 0)])]
    plain = told(await fetched(asked, version, topic, RequireStable=False))
    assert plain == [("t", [(0, 5, -1, "", 0), (1, 7, 3, "meta", 0)])]
    assert (await ask(asked, "EndTxn", 3, {**producer, "Committed": True})).error_code == 0
    await trio.testing.wait_all_tasks_blocked(0.01)  # until the marker is there
    done = told(await fetched(asked, version, topic, RequireStable=True))
    assert done == [("t", [(0, 6, 2, "new", 0), (1, 7, 3, "meta", 0)])]


# --- what can be committed --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metadata", "fits"),
    [
        ("four", True), ("5char", False), ("äöü€", True), ("\U0001f600" * 2, True), ("\U0001f600" * 3, False),
        (None, True),
    ],
)  # fmt: skip
async def test_metadata_is_measured_as_java_and_fails_by_partition(asked, metadata, fits):
    too_large = ErrorCode.OFFSET_METADATA_TOO_LARGE
    told_codes = await commit(asked, t=[part(0, 11, metadata=metadata), part(1, 12)], u=[part(5, 1)])
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert told_codes == [0 if fits else too_large, 0, unknown]
    [(_, parts)] = told(await fetched(asked, 7, ("t", [0, 1])))
    assert [part[1] for part in parts] == [11 if fits else 5, 12]
    if fits:
        assert parts[0][3] == (metadata or "")


async def test_offsets_of_many_partitions_are_committed_and_answered(tmp_path):
    async with broker_to_ask(tmp_path, SETTINGS) as asked:
        await ask_for_topic(asked, partitions=600)
        parts = [
            part(index, index + 1, metadata="5char" if index % 100 == 99 else "") for index in range(601)
        ]
        answer = await commit(asked, t=parts)
        too_large = ErrorCode.OFFSET_METADATA_TOO_LARGE
        expected = [too_large if index % 100 == 99 else 0 for index in range(600)]
        assert answer == [*expected, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        rows = told(await fetched(asked, 7, ("t", [*range(600)])))[0][1]
        assert [row[1] for row in rows] == [-1 if code else index + 1 for index, code in enumerate(expected)]
