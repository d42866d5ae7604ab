"""One of three resources that a request names is refused by its name: it alone, in its place, and nothing happens to it."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from barnabas.records.building import encode_batch
from barnabas.records.record import Record
from barnabas.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from tests.support.broker import NOW_MS, Asked, ask_for_topic, broker_to_ask
from tests.support.plain_requests import Denied, DenyNamed, ask, codes

READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = (
    Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE, Operation.ALTER, Operation.DESCRIBE,
)  # fmt: skip
DESCRIBE_CONFIGS, ALTER_CONFIGS = Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID
NO_TOPIC, NO_GROUP, NO_ID, NOT_TRIED, UNKNOWN_PRODUCER = 29, 30, 53, 55, 49
NAMES = ("b", "secret", "a")
"""Neither in the order of their names nor in the reverse one."""
NEW = ("new-b", "hidden", "new-a")
RECORDS = encode_batch([Record(0, NOW_MS, None, b"v"), Record(1, NOW_MS, None, b"w")])
MIDDLE = [0, NO_TOPIC, 0]


class Case(NamedTuple):
    """A request about all three, what is denied, and the codes of the answer."""

    api: str
    version: int
    values: dict[str, Any]
    denied: Denied
    expected: list[int]
    denied_too: tuple[Denied, ...] = ()
    """Rights that would allow everything."""


def topics(items: str, name: str = "Name", **more: Any) -> list[dict[str, Any]]:
    """Return an entry for each topic; `items` is the field of its partitions, which has one entry."""
    return [{name: each, items: [more] if more else [0]} for each in NAMES]


def commits(group: str = "g", **more: Any) -> dict[str, Any]:
    partitions = topics("Partitions", PartitionIndex=0, CommittedOffset=7, CommittedMetadata="m")
    return {"GroupId": group, "Topics": partitions, **more}


def resources(**more: Any) -> dict[str, Any]:
    return {"Resources": [{"ResourceType": 2, "ResourceName": each, **more} for each in NAMES]}


CONFIGS = [{"Name": "retention.ms", "Value": "1000"}]
CASES = [
    Case(
        "Produce", 9,
        {"Acks": -1, "TimeoutMs": 5000, "TopicData": topics("PartitionData", Index=0, Records=RECORDS)},
        (WRITE, TOPIC, "secret"), MIDDLE,
    ),
    Case(
        "Fetch",
        12,
        {
            "MaxBytes": 1 << 20,
            "Topics": topics("Partitions", "Topic", Partition=0, FetchOffset=0, PartitionMaxBytes=1 << 20),
        },
        (READ, TOPIC, "secret"),
        MIDDLE,
    ),
    Case(
        "ListOffsets", 7, {"ReplicaId": -1, "Topics": topics("Partitions", PartitionIndex=0, Timestamp=-1)},
        (DESCRIBE, TOPIC, "secret"), MIDDLE,
    ),
    Case(
        "OffsetForLeaderEpoch", 4,
        {"ReplicaId": -1, "Topics": topics("Partitions", "Topic", Partition=0, LeaderEpoch=0)},
        (DESCRIBE, TOPIC, "secret"), MIDDLE, ((Operation.CLUSTER_ACTION, CLUSTER, CLUSTER_NAME),),
    ),
    Case(
        "DeleteRecords", 2, {"Topics": topics("Partitions", PartitionIndex=0, Offset=1), "TimeoutMs": 5000},
        (DELETE, TOPIC, "secret"), MIDDLE,
    ),
    Case("OffsetCommit", 8, commits(GenerationIdOrMemberEpoch=-1), (READ, TOPIC, "secret"), MIDDLE),
    Case(
        "OffsetCommit", 8, commits("secret", GenerationIdOrMemberEpoch=-1), (READ, GROUP, "secret"),
        [NO_GROUP] * 3,
    ),
    Case(
        "OffsetFetch", 7, {"GroupId": "g", "Topics": topics("PartitionIndexes")}, (DESCRIBE, TOPIC, "secret"),
        MIDDLE,
    ),
    Case(
        "OffsetFetch", 8,
        {"Groups": [{"GroupId": each, "Topics": [{"Name": "a", "PartitionIndexes": [0]}]} for each in NAMES]},
        (DESCRIBE, GROUP, "secret"), [0, NO_GROUP, 0],
    ),
    Case(
        "OffsetFetch", 8,
        {"Groups": [{"GroupId": each, "Topics": topics("PartitionIndexes")} for each in NAMES]},
        (DESCRIBE, TOPIC, "secret"), MIDDLE * 3,
    ),
    Case(
        "OffsetDelete", 0, {"GroupId": "g", "Topics": topics("Partitions", PartitionIndex=0)},
        (READ, TOPIC, "secret"), MIDDLE,
    ),
    Case(
        "TxnOffsetCommit", 3,
        commits(TransactionalId="x", ProducerId=0, ProducerEpoch=0, GenerationIdOrMemberEpoch=-1),
        (READ, TOPIC, "secret"), [UNKNOWN_PRODUCER, NO_TOPIC, UNKNOWN_PRODUCER],
    ),
    Case(
        "TxnOffsetCommit", 3,
        commits(TransactionalId="x", ProducerId=0, ProducerEpoch=0, GenerationIdOrMemberEpoch=-1),
        (WRITE, TRANSACTIONAL_ID, "x"), [NO_ID] * 3,
    ),
    Case(
        "AddPartitionsToTxn",
        3,
        {
            "V3AndBelowTransactionalId": "x", "V3AndBelowProducerId": 0, "V3AndBelowProducerEpoch": 0,
            "V3AndBelowTopics": topics("Partitions"),
        },
        (WRITE, TOPIC, "secret"),
        [NOT_TRIED, NO_TOPIC, NOT_TRIED],
    ),
    Case("DescribeProducers", 0, {"Topics": topics("PartitionIndexes")}, (READ, TOPIC, "secret"), MIDDLE),
    Case("DescribeConfigs", 4, resources(), (DESCRIBE_CONFIGS, TOPIC, "secret"), MIDDLE),
    Case("AlterConfigs", 2, resources(Configs=CONFIGS), (ALTER_CONFIGS, TOPIC, "secret"), MIDDLE),
    Case(
        "IncrementalAlterConfigs", 1, resources(Configs=[{**CONFIGS[0], "ConfigOperation": 0}]),
        (ALTER_CONFIGS, TOPIC, "secret"), MIDDLE,
    ),
    Case(
        "DescribeTopicPartitions",
        0,
        {"Topics": [{"Name": each} for each in NAMES], "ResponsePartitionLimit": 100},
        (DESCRIBE, TOPIC, "secret"),
        [0, 0, 0, 0, NO_TOPIC],  # in the order of names, two partitions each; what is refused comes last
    ),
    Case(
        "CreatePartitions", 3,
        {"Topics": [{"Name": each, "Count": 4, "Assignments": None} for each in NAMES], "TimeoutMs": 5000},
        (ALTER, TOPIC, "secret"), MIDDLE,
    ),
    Case("DescribeGroups", 5, {"Groups": NAMES}, (DESCRIBE, GROUP, "secret"), [0, NO_GROUP, 0]),
    Case(
        "FindCoordinator", 4, {"KeyType": 0, "CoordinatorKeys": NAMES}, (DESCRIBE, GROUP, "secret"),
        [0, NO_GROUP, 0],
    ),
    Case(
        "FindCoordinator", 4, {"KeyType": 1, "CoordinatorKeys": NAMES}, (DESCRIBE, TRANSACTIONAL_ID, "secret"),
        [0, NO_ID, 0],
    ),
    Case(
        "DescribeTransactions", 0, {"TransactionalIds": NAMES}, (DESCRIBE, TRANSACTIONAL_ID, "secret"),
        [0, NO_ID, 0],
    ),
    Case("DeleteGroups", 2, {"GroupsNames": NAMES}, (DELETE, GROUP, "secret"), [0, NO_GROUP, 0]),
    Case(
        "DeleteTopics",
        5,
        {"TopicNames": NAMES, "TimeoutMs": 5000},
        (DELETE, TOPIC, "secret"),
        [NO_TOPIC, 0, 0],  # refusals come first
        ((DELETE, CLUSTER, CLUSTER_NAME),),
    ),
    Case(
        "CreateTopics",
        4,
        {
            "Topics": [{"Name": each, "NumPartitions": 1, "ReplicationFactor": 1} for each in NEW],
            "timeoutMs": 5000,
        },
        (CREATE, TOPIC, "hidden"),
        [0, 0, NO_TOPIC, 0, 0, 0],  # each with the code of its settings
        ((CREATE, CLUSTER, CLUSTER_NAME),),
    ),
]  # fmt: skip


@pytest.fixture
async def asked(tmp_path):
    async with broker_to_ask(tmp_path, {"offsets.topic.num.partitions": "3"}) as asked:
        for name in NAMES:
            await ask_for_topic(asked, name)
            for api, version, values in (
                ("Produce", 9, CASES[0].values),
                ("OffsetCommit", 8, commits(name, GenerationIdOrMemberEpoch=-1)),
                ("InitProducerId", 4, {"TransactionalId": name, "TransactionTimeoutMs": 60_000}),
            ):
                if api != "Produce" or name == NAMES[-1]:
                    await ask(asked, api, version, values)
        await ask(asked, "OffsetCommit", 8, commits(GenerationIdOrMemberEpoch=-1))
        await ask(asked, "InitProducerId", 4, {"TransactionalId": "x", "TransactionTimeoutMs": 60_000})
        yield asked


async def test_denied_name_is_refused_in_place_and_others_answered(asked: Asked) -> None:
    for case in CASES:
        asked.authorizer = DenyNamed(case.denied, *case.denied_too)
        answer = await ask(asked, case.api, case.version, case.values)
        assert codes(answer) == case.expected, (case, answer)
        assert case.denied in asked.authorizer.asked, case
        assert {name for *_, name in asked.authorizer.asked} <= {*NAMES, *NEW, "g", "x", CLUSTER_NAME}, case
    image = asked.services.metadata.image
    assert sorted(image.topics.keys() & {*NAMES, *NEW}) == ["new-a", "new-b", "secret"], "the others are done"
    assert image.configs.get((2, "secret"), {}) == {}
    log = next(each for each in asked.services.logs if (each.topic, each.partition) == ("secret", 0))
    assert (log.log_start_offset, log.log_end_offset) == (0, 2), "what was there before"
    kept = await ask(asked, "OffsetFetch", 7, {"GroupId": "secret", "Topics": topics("PartitionIndexes")})
    assert [topic.partitions[0].committed_offset for topic in kept.topics] == [-1, 7, -1]


async def test_what_is_listed_leaves_out_what_is_denied_by_name(asked: Asked) -> None:
    cluster = (DESCRIBE, CLUSTER, CLUSTER_NAME)
    asked.authorizer = DenyNamed((DESCRIBE, GROUP, "secret"), cluster)
    listed = await ask(asked, "ListGroups", 4, {})
    assert {group.group_id for group in listed.groups} == {"a", "b", "g"}
    asked.authorizer = DenyNamed((DESCRIBE, GROUP, "secret"))  # who may describe the cluster sees all of it
    listed = await ask(asked, "ListGroups", 4, {})
    assert {group.group_id for group in listed.groups} == {"a", "b", "g", "secret"}
    asked.authorizer = DenyNamed((DESCRIBE, TRANSACTIONAL_ID, "secret"), cluster)
    listed = await ask(asked, "ListTransactions", 1, {})
    assert {transaction.transactional_id for transaction in listed.transaction_states} == {"a", "b", "x"}
    asked.authorizer = DenyNamed((DESCRIBE, TOPIC, "secret"))
    listed = await ask(asked, "Metadata", 12, {"Topics": None})
    assert {topic.name for topic in listed.topics} >= {"a", "b"}
    assert "secret" not in {topic.name for topic in listed.topics}


async def test_transaction_is_described_with_its_describable_topics(asked: Asked) -> None:
    producer = await ask(asked, "InitProducerId", 4, {"TransactionalId": "x", "TransactionTimeoutMs": 60_000})
    added = {
        "V3AndBelowTransactionalId": "x",
        "V3AndBelowProducerId": producer.producer_id,
        "V3AndBelowProducerEpoch": producer.producer_epoch,
        "V3AndBelowTopics": [{"Name": each, "Partitions": [1, 0]} for each in NAMES],
    }
    assert codes(await ask(asked, "AddPartitionsToTxn", 3, added)) == [0] * 6
    asked.authorizer = DenyNamed((DESCRIBE, TOPIC, "secret"))
    [told] = (await ask(asked, "DescribeTransactions", 0, {"TransactionalIds": ["x"]})).transaction_states
    assert [(topic.topic, topic.partitions) for topic in told.topics] == [("a", [0, 1]), ("b", [0, 1])]
    assert (told.transaction_state, told.transaction_timeout_ms, told.transaction_start_time_ms) == (
        "Ongoing", 60_000, NOW_MS,
    )  # fmt: skip
    assert (told.producer_id, told.producer_epoch) == (producer.producer_id, producer.producer_epoch)
