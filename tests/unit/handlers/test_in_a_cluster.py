"""A broker of a cluster says which can be reached and which lead, and refuses requests that are the controller's."""

import pytest

from barnabas.cluster.metadata.changes import (
    BrokerFenced,
    BrokerRegistered,
    ControllerChanged,
    PartitionChanged,
    TopicCreated,
    TopicDeleted,
)
from barnabas.cluster.metadata.image import BROKER, NO_TOPIC_ID, BrokerInfo, Delta, PartitionInfo, TopicInfo
from barnabas.coordinators.locator import ImageLocator
from barnabas.serving import apis
from barnabas.wire.generated.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from barnabas.wire.generated.create_partitions import CreatePartitionsRequest
from barnabas.wire.generated.create_topics import CreateTopicsRequest
from barnabas.wire.generated.delete_topics import DeleteTopicsRequest
from barnabas.wire.generated.describe_cluster import DescribeClusterRequest
from barnabas.wire.generated.describe_topic_partitions import DescribeTopicPartitionsRequest
from barnabas.wire.generated.elect_leaders import ElectLeadersRequest
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.find_coordinator import FindCoordinatorRequest
from barnabas.wire.generated.list_config_resources import ListConfigResourcesRequest
from barnabas.wire.generated.list_partition_reassignments import ListPartitionReassignmentsRequest
from barnabas.wire.generated.metadata import MetadataRequest
from barnabas.wire.generated.produce import ProduceRequest
from barnabas.wire.generated.update_features import UpdateFeaturesRequest
from tests.support.broker import broker_to_ask
from tests.support.clusters import seen_in_cluster
from tests.support.logs import batch

NOT_CONTROLLER = ErrorCode.NOT_CONTROLLER
TOPIC_ID = bytes(range(16))
BROKERS = [
    BrokerInfo(1, "a", {"PLAINTEXT": ("one", 9001), "INTERNAL": ("one.internal", 9101)}),
    BrokerInfo(2, "b", {"PLAINTEXT": ("two", 9002), "INTERNAL": ("two.internal", 9102)}),
    BrokerInfo(3, "b", {"INTERNAL": ("three.internal", 9103)}),
]
PARTITIONS = (
    PartitionInfo(2, (2, 1), (2, 1), leader_epoch=5),
    PartitionInfo(3, (3, 2), (3,), leader_epoch=6),  # led where the client's listener is not
    PartitionInfo(4, (4, 2), (4,), leader_epoch=7, offline=(4,)),  # led by a broker that is gone
    PartitionInfo(-1, (4, 3), (4,), leader_epoch=8, offline=(4,)),
    PartitionInfo(2, (2, 3), (2, 3)),
)


def cluster(controller=2):
    return [
        *map(BrokerRegistered, BROKERS),
        ControllerChanged(controller, 7),
        TopicCreated(TopicInfo("t", TOPIC_ID, PARTITIONS)),
    ]


def described(topic):
    return [
        (
            part.error_code, part.leader_id, part.leader_epoch, part.replica_nodes, part.isr_nodes,
            part.offline_replicas,
        )
        for part in topic.partitions
    ]  # fmt: skip


LEADER, LISTENER, REPLICA = (
    ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.LISTENER_NOT_FOUND, ErrorCode.REPLICA_NOT_AVAILABLE,
)  # fmt: skip


@pytest.mark.parametrize("version", range(14))
async def test_metadata_names_whom_the_client_can_reach(tmp_path, version):
    async with broker_to_ask(tmp_path) as ask:
        seen_in_cluster(ask, cluster())
        request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t")])
        answer = await ask(request, version)
        assert [(broker.node_id, broker.host, broker.port) for broker in answer.brokers] == [
            (1, "one", 9001),
            (2, "two", 9002),
        ]
        if version >= 1:
            assert [broker.rack for broker in answer.brokers] == ["a", "b"]
            assert answer.controller_id == 2
        gone = [4] if version >= 5 else []
        epochs = [5, 6, 7, 8, 0] if version >= 7 else [-1] * 5
        missing = LISTENER if version >= 6 else LEADER
        if version == 0:
            replicas = [([2, 1], [2, 1]), ([2], []), ([2], []), ([], []), ([2], [2])]
        else:
            replicas = [([2, 1], [2, 1]), ([3, 2], [3]), ([4, 2], [4]), ([4, 3], [4]), ([2, 3], [2, 3])]
        assert described(answer.topics[0]) == [
            (0, 2, epochs[0], *replicas[0], []),
            (missing, -1, epochs[1], *replicas[1], []),
            (LEADER, -1, epochs[2], *replicas[2], gone),
            (LEADER, -1, epochs[3], *replicas[3], gone),
            (REPLICA if version == 0 else 0, 2, epochs[4], *replicas[4], []),
        ]


async def test_each_listener_advertises_itself(tmp_path):
    async with broker_to_ask(tmp_path) as ask:
        seen_in_cluster(ask, cluster())
        ask.connection.listener = "INTERNAL"
        answer = await ask(MetadataRequest(topics=None), 12)
        assert [(broker.node_id, broker.host, broker.port) for broker in answer.brokers] == [
            (1, "one.internal", 9101), (2, "two.internal", 9102), (3, "three.internal", 9103),
        ]  # fmt: skip
        codes = [partition.error_code for partition in answer.topics[0].partitions]
        assert codes == [0, 0, LEADER, LEADER, 0]
        cluster_answer = await ask(DescribeClusterRequest(), 1)
        assert [(broker.broker_id, broker.host) for broker in cluster_answer.brokers] == [
            (1, "one.internal"), (2, "two.internal"), (3, "three.internal"),
        ]  # fmt: skip
        assert cluster_answer.controller_id == 2


async def test_fenced_brokers_are_resources_with_settings(tmp_path):
    async with broker_to_ask(tmp_path) as ask:
        seen_in_cluster(ask, [*cluster(), BrokerFenced(BrokerInfo(9, "c", {}))])
        answer = await ask(ListConfigResourcesRequest(resource_types=[BROKER]), 1)
        assert [resource.resource_name for resource in answer.config_resources] == ["1", "2", "3", "9"]


async def test_fenced_brokers_are_described_when_asked_for(tmp_path):
    async with broker_to_ask(tmp_path) as ask:
        away = BrokerInfo(9, "c", {"PLAINTEXT": ("nine", 9009)})
        seen_in_cluster(ask, [*cluster(), BrokerFenced(away)])
        answers = [
            await ask(DescribeClusterRequest(include_fenced_brokers=asked), 2) for asked in (False, True)
        ]
        described = [[(node.broker_id, node.is_fenced) for node in answer.brokers] for answer in answers]
        assert described == [[(1, False), (2, False)], [(1, False), (2, False), (9, True)]]


async def test_pages_of_partitions_say_the_same(tmp_path):
    async with broker_to_ask(tmp_path) as ask:
        seen_in_cluster(ask, cluster())
        topics = [DescribeTopicPartitionsRequest.TopicRequest(name="t")]
        answer = await ask(DescribeTopicPartitionsRequest(topics=topics, response_partition_limit=100), 0)
        parts = [(row.error_code, row.leader_id, row.offline_replicas) for row in answer.topics[0].partitions]
        assert parts == [(0, 2, []), (0, -1, []), (0, -1, [4]), (0, -1, [4]), (0, 2, [])]


@pytest.mark.parametrize(("leader", "code"), [(2, 0), (3, 15), (4, 15), (-1, 15)])
async def test_a_coordinator_is_where_the_client_can_reach_it(tmp_path, leader, code):
    async with broker_to_ask(tmp_path, {"offsets.topic.num.partitions": "1"}) as ask:
        await ask(FindCoordinatorRequest(key="g"), 3)  # makes the topic
        metadata = seen_in_cluster(ask, cluster())
        await metadata.apply(
            [PartitionChanged("__consumer_offsets", 0, PartitionInfo(leader, (2,), (2,), leader_epoch=1))]
        )
        services = ask.services
        locator = ImageLocator(
            metadata, groups=services.group_coordinator, transactions=services.transaction_coordinator,
            shares=services.lazy_shares,
        )  # fmt: skip
        ask.services = services._replace(coordinator_locator=locator)
        answer = await ask(FindCoordinatorRequest(key="g"), 3)
        expected = (2, "two", 9002) if code == 0 else (-1, "", -1)
        assert (answer.error_code, answer.node_id, answer.host, answer.port) == (code, *expected)


async def test_who_produces_to_the_wrong_broker_learns_the_leader(tmp_path):
    async with broker_to_ask(tmp_path) as ask:
        before = ask.services.metadata.image
        changes = cluster()
        metadata = seen_in_cluster(ask, changes)
        ask.services.replicas.publish(Delta.of(before, metadata.image, changes))
        records = [ProduceRequest.PartitionProduceData(index=index, records=batch(b"v")) for index in (1, 4)]
        topics = [ProduceRequest.TopicProduceData(name="t", partition_data=records)]
        answer = await ask(ProduceRequest(acks=1, timeout_ms=1000, topic_data=topics), 10)
        parts = [
            (response.error_code, response.current_leader.leader_id, response.current_leader.leader_epoch)
            for response in answer.responses[0].partition_responses
        ]
        assert parts == [(6, 3, 6), (6, 2, 0)]
        assert [(node.node_id, node.host, node.port, node.rack) for node in answer.node_endpoints] == [
            (2, "two", 9002, "b")
        ]


# --- what only the controller answers -----------------------------------------------------------------------

CREATE = CreateTopicsRequest(
    topics=[CreateTopicsRequest.CreatableTopic(name="new", num_partitions=1, replication_factor=1)]
)
GROW = CreatePartitionsRequest(
    topics=[CreatePartitionsRequest.CreatePartitionsTopic(name="t", count=9, assignments=None)]
)
ELECT = ElectLeadersRequest(
    topic_partitions=[ElectLeadersRequest.TopicPartitions(topic="t", partitions=[0, 1])]
)
MOVE = AlterPartitionReassignmentsRequest(
    topics=[
        AlterPartitionReassignmentsRequest.ReassignableTopic(
            name="t",
            partitions=[AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=0, replicas=[1])],
        )
    ]
)  # fmt: skip
FEATURE = UpdateFeaturesRequest(
    feature_updates=[UpdateFeaturesRequest.FeatureUpdateKey(feature="group.version", max_version_level=1)]
)


def codes_of(answer):
    """Error codes of an answer: at its top, and of what it lists."""
    match type(answer).__name__:
        case "CreateTopicsResponse":
            return None, [(topic.name, topic.error_code) for topic in answer.topics]
        case "DeleteTopicsResponse":
            return None, [(row.name, row.topic_id, row.error_code) for row in answer.responses]
        case "CreatePartitionsResponse":
            return None, [(result.name, result.error_code) for result in answer.results]
        case "ElectLeadersResponse":
            results = answer.replica_election_results
            return answer.error_code, [
                (result.topic, part.partition_id, part.error_code)
                for result in results
                for part in result.partition_result
            ]
        case "AlterPartitionReassignmentsResponse":
            return answer.error_code, list(answer.responses)
        case "ListPartitionReassignmentsResponse":
            return answer.error_code, list(answer.topics)
        case "UpdateFeaturesResponse":
            return answer.error_code, list(answer.results)
    raise AssertionError(answer)


@pytest.mark.parametrize(
    ("request_", "version", "expected"),
    [
        (CREATE, 0, (None, [("new", NOT_CONTROLLER)])),
        (CREATE, 7, (None, [("new", NOT_CONTROLLER)])),
        (DeleteTopicsRequest(topic_names=["t"]), 1, (None, [("t", bytes(16), NOT_CONTROLLER)])),
        (
            DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=TOPIC_ID)]),
            6,
            (None, [(None, TOPIC_ID, NOT_CONTROLLER)]),
        ),
        (GROW, 3, (None, [("t", NOT_CONTROLLER)])),
        (ELECT, 2, (0, [("t", 0, NOT_CONTROLLER), ("t", 1, NOT_CONTROLLER)])),
        (ElectLeadersRequest(topic_partitions=None), 2, (NOT_CONTROLLER, [])),
        (MOVE, 0, (NOT_CONTROLLER, [])),
        (ListPartitionReassignmentsRequest(topics=None), 0, (NOT_CONTROLLER, [])),
        (FEATURE, 1, (NOT_CONTROLLER, [])),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, int | tuple) else None,
)
async def test_what_is_the_controllers_is_refused_elsewhere(tmp_path, request_, version, expected):
    async with broker_to_ask(tmp_path) as ask:
        metadata = seen_in_cluster(ask, cluster(controller=2))
        assert codes_of(await ask(request_, version)) == expected
        assert metadata.decided == []


async def test_a_topic_without_an_id_is_deleted(tmp_path):
    """As all are while `inter.broker.protocol.version` is older than 2.8."""
    async with broker_to_ask(tmp_path) as ask:
        changes = [change for change in cluster(controller=1) if not isinstance(change, TopicCreated)]
        metadata = seen_in_cluster(ask, [*changes, TopicCreated(TopicInfo("t", NO_TOPIC_ID, PARTITIONS))])
        request = DeleteTopicsRequest(topic_names=["t", "unknown"])
        assert sorted(codes_of(await ask(request, 5))[1]) == [
            ("t", NO_TOPIC_ID, 0),
            ("unknown", NO_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        assert metadata.decided == [TopicDeleted("t")]


async def test_the_controller_itself_answers(tmp_path):
    async with broker_to_ask(tmp_path) as ask:
        metadata = seen_in_cluster(ask, cluster(controller=1))
        assert codes_of(await ask(CREATE, 7)) == (None, [("new", 0)])
        assert isinstance(metadata.decided[0], TopicCreated)


def test_the_table_says_which_apis_are_the_controllers():
    names = {api.name for api in apis.BY_KEY.values() if api.controller}
    assert names >= {
        "CreateTopics", "DeleteTopics", "CreatePartitions", "ElectLeaders", "AlterPartitionReassignments",
        "ListPartitionReassignments", "UpdateFeatures",
    }  # fmt: skip
    assert not names & {"AlterConfigs", "IncrementalAlterConfigs", "CreateAcls", "DeleteAcls"}
