"""Brokers of Kafka 4.4 answer some requests differently; these are answers of one of them (kafka_2.13 4.4.0)."""

import math
from uuid import uuid4

import pytest

from barnabas.wire.generated.alter_client_quotas import AlterClientQuotasRequest
from barnabas.wire.generated.api_versions import ApiVersionsRequest
from barnabas.wire.generated.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.wire.generated.create_partitions import CreatePartitionsRequest
from barnabas.wire.generated.delete_groups import DeleteGroupsRequest
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.incremental_alter_configs import IncrementalAlterConfigsRequest
from barnabas.wire.generated.init_producer_id import InitProducerIdRequest
from barnabas.wire.generated.join_group import JoinGroupRequest
from barnabas.wire.generated.metadata import MetadataRequest
from barnabas.wire.generated.offset_fetch import OffsetFetchRequest
from barnabas.wire.generated.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from barnabas.wire.generated.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
)
from barnabas.wire.generated.txn_offset_commit import TxnOffsetCommitRequest
from tests.support.broker import ask_for_topic, broker_to_ask

SETTINGS = {
    "kafka.version": "4.4", "group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}  # fmt: skip
NO_ID, OTHER_ID = bytes(16), b"x" * 16
OTHER_CODES = {5: ErrorCode.ILLEGAL_GENERATION, 6: ErrorCode.STALE_MEMBER_EPOCH}


@pytest.fixture
async def ask(tmp_path):
    async with broker_to_ask(tmp_path, SETTINGS) as asked:
        await ask_for_topic(asked)
        yield asked


# --- ApiVersions v5 --------------------------------------------------------------------------------------------


def versions_asked(**fields):
    return ApiVersionsRequest(client_software_name="x", client_software_version="1", **fields)


async def test_client_at_another_node_or_cluster_must_bootstrap_again(ask):
    cluster = (await ask(MetadataRequest(topics=[]), 12)).cluster_id
    node = ask.services.broker_id
    for meant in ({}, {"cluster_id": cluster, "node_id": node}):
        answer = await ask(versions_asked(**meant), 5)
        assert answer.error_code == 0
        assert answer.api_keys
    for cluster_id, node_id in ((cluster, node + 1), (cluster, -2), ("other", node), ("", node)):
        answer = await ask(versions_asked(cluster_id=cluster_id, node_id=node_id), 5)
        assert (answer.error_code, answer.api_keys) == (ErrorCode.REBOOTSTRAP_REQUIRED, [])
    for half in ({"cluster_id": cluster}, {"cluster_id": "other"}, {"node_id": node}, {"node_id": -2}):
        answer = await ask(versions_asked(**half), 5)
        assert (answer.error_code, answer.api_keys) == (ErrorCode.INVALID_REQUEST, [])


# --- TxnOffsetCommit v6 ----------------------------------------------------------------------------------------


class Transaction:
    """One open transaction that commits offsets, in any version."""

    def __init__(self, ask, producer, topic_id):
        self.ask, self.producer, self.topic_id = ask, producer, topic_id

    async def commit(self, version, group_id, epoch=-1, member_id="", topics=None):
        """The error codes, by topic and partition."""
        asked = topics or [("t", self.topic_id, [0])]
        request = TxnOffsetCommitRequest(
            transactional_id="txn", group_id=group_id, producer_id=self.producer[0],
            producer_epoch=self.producer[1], generation_id_or_member_epoch=epoch, member_id=member_id,
            topics=[
                TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(
                    name="" if version >= 6 else name, topic_id=topic_id if version >= 6 else NO_ID,
                    partitions=[
                        TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
                            partition_index=index, committed_offset=7, committed_metadata=""
                        )
                        for index in indexes
                    ],
                )
                for name, topic_id, indexes in asked
            ],
        )  # fmt: skip
        answer = await self.ask(request, version)
        ids = [topic_id for _, topic_id, _ in asked]
        expected = list(dict.fromkeys(ids)) if version >= 6 else [NO_ID for _ in ids]
        assert [topic.topic_id for topic in answer.topics] == expected
        return [[part.error_code for part in topic.partitions] for topic in answer.topics]


@pytest.fixture
async def transaction(ask):
    named = await ask(MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t")]), 12)
    got = await ask(InitProducerIdRequest(transactional_id="txn", transaction_timeout_ms=60_000), 4)
    return Transaction(ask, (got.producer_id, got.producer_epoch), named.topics[0].topic_id)


async def test_offsets_of_a_transaction_name_topics_by_id(ask, transaction):
    topics = [
        ("t", transaction.topic_id, [0, 1, 9]), ("nope", OTHER_ID, [0, 1]), ("", NO_ID, [0]), ("no", OTHER_ID, [2]),
    ]  # fmt: skip
    unknown, unknown_id = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID
    by_name = await transaction.commit(5, "by-name", topics=topics)
    assert by_name == [[0, 0, unknown], [unknown, unknown], [unknown], [unknown]]
    by_id = await transaction.commit(6, "by-id", topics=topics)
    assert by_id == [[0, 0, unknown], [unknown_id, unknown_id, unknown_id], [unknown_id]], "an id once"
    (shard,) = await ask.services.group_coordinator.machines()
    named = OffsetFetchRequest.OffsetFetchRequestTopics(name="t", partition_indexes=[0])
    group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="by-id", topics=[named])
    pending = OffsetFetchRequest(groups=[group], require_stable=True)
    assert (await ask(pending, 8)).groups[0].topics[0].partitions[0].error_code == (
        ErrorCode.UNSTABLE_OFFSET_COMMIT
    )
    assert "by-id" not in shard.offsets  # until the transaction ends


@pytest.mark.parametrize("version", [5, 6])
async def test_txn_commit_of_a_stale_member_or_absent_group_is_refused(ask, transaction, version):
    member_id = str(uuid4())
    for group_id, beat in (
        ("consumers", ConsumerGroupHeartbeatRequest(
            group_id="consumers", member_id=member_id, member_epoch=0, rebalance_timeout_ms=60_000,
            subscribed_topic_names=["t"], topic_partitions=[],
        )),
        ("streams", StreamsGroupHeartbeatRequest(
            group_id="streams", member_id=member_id, member_epoch=0, rebalance_timeout_ms=60_000,
            process_id="p", client_tags=[], active_tasks=[], standby_tasks=[], warmup_tasks=[],
            topology=StreamsGroupHeartbeatRequest.Topology(epoch=0, subtopologies=[
                StreamsGroupHeartbeatRequest.Subtopology(subtopology_id="0", source_topics=["t"])
            ]),
        )),
    ):  # fmt: skip
        answer = await ask(beat, 1 if group_id == "consumers" else 0)
        assert answer.error_code == 0
        epoch = answer.member_epoch
        assert await transaction.commit(version, group_id, epoch, member_id) == [[0]]
        assert await transaction.commit(version, group_id) == [[0]], "nothing is said of a member"
        for other in (epoch - 1, epoch + 5, -1):
            assert await transaction.commit(version, group_id, other, member_id) == [[OTHER_CODES[version]]]
        stranger = await transaction.commit(version, group_id, epoch, "stranger")
        assert stranger == [[ErrorCode.UNKNOWN_MEMBER_ID]]
    absent = ErrorCode.GROUP_ID_NOT_FOUND if version == 6 else ErrorCode.ILLEGAL_GENERATION
    assert await transaction.commit(version, "absent", 3, "m") == [[absent]]


@pytest.mark.parametrize("version", [5, 6])
async def test_classic_generation_is_illegal_in_each_version(ask, transaction, version):
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
    joined = await ask(
        JoinGroupRequest(
            group_id="classic", session_timeout_ms=10_000, rebalance_timeout_ms=20_000,
            protocol_type="consumer", protocols=[protocol],
        ), 3,
    )  # fmt: skip
    assert await transaction.commit(version, "classic", joined.generation_id, joined.member_id) == [[0]]
    assert await transaction.commit(version, "classic", joined.generation_id + 1, joined.member_id) == [
        [ErrorCode.ILLEGAL_GENERATION]
    ]


# --- DeleteGroups v3, StreamsGroupTopologyDescriptionUpdate v0 -------------------------------------------------


@pytest.mark.parametrize("version", [2, 3])
async def test_groups_are_deleted_and_nothing_more_is_said(ask, version):
    beat = ConsumerGroupHeartbeatRequest(
        group_id="busy", member_id=str(uuid4()), member_epoch=0, rebalance_timeout_ms=60_000,
        subscribed_topic_names=["t"], topic_partitions=[],
    )  # fmt: skip
    assert (await ask(beat, 1)).error_code == 0
    answer = await ask(DeleteGroupsRequest(groups_names=["busy", "absent", "absent"]), version)
    assert [(result.group_id, result.error_code, result.error_message) for result in answer.results] == [
        ("busy", ErrorCode.NON_EMPTY_GROUP, None),
        ("absent", ErrorCode.GROUP_ID_NOT_FOUND, None),
    ]


async def test_there_is_no_place_for_descriptions_of_topologies(ask):
    description = StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescription(
        subtopologies=[], global_stores=[]
    )
    request = StreamsGroupTopologyDescriptionUpdateRequest(
        group_id="g", member_id="m", topology_epoch=0, topology_description=description
    )
    answer = await ask(request, 0)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert answer.error_message


# --- quotas ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("release", "code"), [("", ErrorCode.INVALID_REQUEST), ("4.3", 0), ("4.4", ErrorCode.INVALID_REQUEST)]
)
@pytest.mark.parametrize("name", ["request_percentage", "controller_mutation_rate"])
async def test_a_quota_is_finite_to_brokers_of_4_4(tmp_path, release, code, name):
    async with broker_to_ask(tmp_path, SETTINGS | {"kafka.version": release}) as ask:
        user = AlterClientQuotasRequest.EntityData(entity_type="user", entity_name="u")
        for value, told in ((math.inf, code), (5.5, 0), (math.nan, ErrorCode.INVALID_REQUEST)):
            operation = AlterClientQuotasRequest.OpData(key=name, value=value)
            entry = AlterClientQuotasRequest.EntryData(entity=[user], ops=[operation])
            answer = await ask(AlterClientQuotasRequest(entries=[entry]), 1)
            assert answer.entries[0].error_code == told, value


# --- CreatePartitions, settings ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("release", "small_one"),
    [("4.3", 0), ("4.4", ErrorCode.POLICY_VIOLATION), ("", ErrorCode.POLICY_VIOLATION)],
)
async def test_too_many_new_partitions_are_refused_as_a_whole(tmp_path, release, small_one):
    async with broker_to_ask(tmp_path, SETTINGS | {"kafka.version": release}) as ask:
        await ask_for_topic(ask)
        await ask_for_topic(ask, "small")
        topics = [
            CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=count, assignments=None)
            for name, count in (("small", 3), ("t", 10_003))
        ]
        answer = await ask(CreatePartitionsRequest(topics=topics, timeout_ms=1_000, validate_only=True), 3)
        large_one = small_one or ErrorCode.INVALID_PARTITIONS
        assert [result.error_code for result in answer.results] == [small_one, large_one]


@pytest.mark.parametrize(
    ("release", "code"), [("4.3", 0), ("4.4", ErrorCode.INVALID_REQUEST), ("", ErrorCode.INVALID_REQUEST)]
)
async def test_list_of_a_broker_with_an_item_twice_is_refused(tmp_path, release, code):
    async with broker_to_ask(tmp_path, SETTINGS | {"kafka.version": release}) as ask:
        setting = IncrementalAlterConfigsRequest.AlterableConfig(
            name="log.cleanup.policy", config_operation=0, value="delete,delete"
        )
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=4, resource_name=str(ask.services.broker_id), configs=[setting]
        )
        answer = await ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
        assert answer.responses[0].error_code == code
