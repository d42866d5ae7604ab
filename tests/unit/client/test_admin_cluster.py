"""An administrator asks about brokers and their replicas as each version has it, and mixes no two values up."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.client import ConnectionLostError, ResponseError
from barnabas.client.administration.cluster import (
    BrokerInfo,
    ClusterInfo,
    LogDir,
    QuorumNode,
    Reassignment,
    ReplicaSize,
)
from barnabas.client.administration.words import SAFE_DOWNGRADE, UNCLEAN, UPGRADE
from barnabas.wire.generated.alter_partition_reassignments import AlterPartitionReassignmentsResponse
from barnabas.wire.generated.describe_cluster import DescribeClusterResponse
from barnabas.wire.generated.describe_log_dirs import DescribeLogDirsResponse
from barnabas.wire.generated.describe_quorum import DescribeQuorumResponse
from barnabas.wire.generated.elect_leaders import ElectLeadersResponse
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.list_partition_reassignments import ListPartitionReassignmentsResponse
from barnabas.wire.generated.unregister_broker import UnregisterBrokerResponse
from barnabas.wire.generated.update_features import UpdateFeaturesResponse
from tests.support.scripted_admin import code_of, scripted_admin

DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
PLACE = ("t", 0)


# --- the cluster ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize("fenced", [False, True])
async def test_cluster_description_has_fenced_brokers_by_version(version: int, fenced: bool) -> None:
    entry = DescribeClusterResponse.DescribeClusterBroker
    answer = DescribeClusterResponse(
        cluster_id="id",
        controller_id=7,
        brokers=[entry(9, "nine", 99, "r", fenced and version >= 2), entry(8, "eight", 88)],
    )
    async with scripted_admin(lambda *_: answer, {"DescribeCluster": version}) as admin:
        assert await admin.describe_cluster(fenced=fenced) == ClusterInfo(
            "id",
            7,
            (
                BrokerInfo(8, "eight", 88, None, False),
                BrokerInfo(9, "nine", 99, "r", fenced and version >= 2),
            ),
        )
        assert admin.request.include_fenced_brokers is (fenced and version >= 2)
        answer.error_code, answer.error_message = DENIED, "why"
        with pytest.raises(ResponseError, match=r"CLUSTER_AUTHORIZATION_FAILED \(why\)"):
            await admin.describe_cluster()


async def test_old_cluster_is_described_by_its_metadata() -> None:
    async with scripted_admin(None) as admin:
        connection = await admin.client.any_connection()
        del connection.versions[60]
        assert await admin.describe_cluster() == ClusterInfo(
            "c", 1, (BrokerInfo(1, "one", 1, None, False), BrokerInfo(2, "two", 2, None, False))
        )
        assert admin.asked == []


async def test_log_dirs_are_told_by_broker_with_each_of_their_sizes() -> None:
    created = DescribeLogDirsResponse
    size = created.DescribeLogDirsPartition
    topics = [
        created.DescribeLogDirsTopic("u", [size(3, 30, 31, True)]),
        created.DescribeLogDirsTopic("t", [size(2, 20, 21), size(1, 10, 11)]),
    ]
    dirs = [
        created.DescribeLogDirsResult(0, "/a", topics, 1000, 999),
        created.DescribeLogDirsResult(57, "/b", [], 5, 4),
    ]

    def answer(host: str, _: Any) -> DescribeLogDirsResponse:
        return created(error_code=DENIED) if host == "two" else created(results=dirs)

    async with scripted_admin(answer, {"DescribeLogDirs": 4}) as admin:
        result: Any = await admin.log_dirs()
        assert list(result) == [1, 2]
        first, second = result[1]
        assert first == LogDir(1, "/a", 1000, 999, None, (
            ReplicaSize("t", 1, 10, 11, False), ReplicaSize("t", 2, 20, 21, False), ReplicaSize("u", 3, 30, 31, True),
        ))  # fmt: skip
        assert (second.path, second.total_bytes, second.usable_bytes, code_of(second.error)) == (
            "/b",
            5,
            4,
            57,
        )
        assert code_of(result[2]) == DENIED
        admin.asked.clear()
        assert list(await admin.log_dirs([1])) == [1]
        assert admin.hosts == ["one"]


async def test_missing_broker_does_not_hide_log_dirs_of_others() -> None:
    async with scripted_admin(
        lambda *_: DescribeLogDirsResponse(), {"DescribeLogDirs": 4}, retries=0
    ) as admin:
        result = await admin.log_dirs([1, 5])
        assert result[1] == []
        assert isinstance(result[5], ConnectionLostError)


@pytest.mark.parametrize("version", range(3))
async def test_features_are_updated_as_the_version_has_it(version: int) -> None:
    created = UpdateFeaturesResponse
    answer = created(
        results=[
            created.UpdatableFeatureResult("a", 0, None),
            created.UpdatableFeatureResult("b", 96, "why"),
        ][: 9 * (version < 2)]
    )
    async with scripted_admin(
        lambda *_: answer, {"UpdateFeatures": version}, request_timeout_ms=20_000
    ) as admin:
        outcomes: Any = await admin.update_features(
            {"a": 1, "b": 2}, kind=SAFE_DOWNGRADE, only_check=version >= 1
        )
        assert outcomes["a"] is None
        if version < 2:
            assert (code_of(outcomes["b"]), outcomes["b"].message) == (96, "why")
        else:
            assert outcomes["b"] is None
        sent = admin.request
        assert (sent.timeout_ms, sent.validate_only) == (16_000, version >= 1)
        updates = [
            (
                feature_update.feature,
                feature_update.max_version_level,
                feature_update.allow_downgrade,
                feature_update.upgrade_type,
            )
            for feature_update in sent.feature_updates
        ]
        kind = (False, SAFE_DOWNGRADE) if version else (True, UPGRADE)
        assert updates == [("a", 1, *kind), ("b", 2, *kind)]
        await admin.update_features({"a": 1})
        assert not admin.request.feature_updates[0].allow_downgrade
        assert not admin.request.validate_only
        assert admin.hosts == ["one", "one"], "the controller"
        answer.error_code, answer.error_message, answer.results = DENIED, "no", []
        with pytest.raises(ResponseError, match=r"updating features: CLUSTER_AUTHORIZATION_FAILED \(no\)"):
            await admin.update_features({"a": 1})


@pytest.mark.parametrize("version", range(3))
async def test_leaders_are_elected_of_some_partitions_or_of_all(version: int) -> None:
    created = ElectLeadersResponse
    result = created.PartitionResult
    answer = created(replica_election_results=[created.ReplicaElectionResult("t", [
        result(0, 0), result(1, ErrorCode.ELECTION_NOT_NEEDED, "is led"),
        result(2, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "why"),
    ])])  # fmt: skip
    async with scripted_admin(lambda *_: answer, {"ElectLeaders": version}) as admin:
        outcomes: Any = await admin.elect_leaders([("t", 2), ("t", 0), ("t", 1)], kind=UNCLEAN)
        assert [outcomes["t", 0], outcomes["t", 1]] == [None, None]
        assert (code_of(outcomes["t", 2]), outcomes["t", 2].message) == (
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            "why",
        )
        sent = admin.request
        assert [(part.topic, part.partitions) for part in sent.topic_partitions] == [("t", [0, 1, 2])]
        assert (sent.election_type, sent.timeout_ms) == (1 if version else 0, 24_000)
        await admin.elect_leaders(None)
        assert (admin.request.topic_partitions, admin.request.election_type) == (None, 0)
        if version:
            answer.error_code = DENIED
            with pytest.raises(ResponseError, match="electing leaders: CLUSTER"):
                await admin.elect_leaders(None)


async def test_a_quorum_has_voters_and_observers() -> None:
    created = DescribeQuorumResponse
    state = created.ReplicaState
    part = created.PartitionData(
        0, 0, None, 3, 4, 5, [state(3, bytes(16), 6, 7, 8)], [state(9, bytes(16), 10, 11, 12)]
    )  # fmt: skip
    answer = created(
        topics=[created.TopicData("__cluster_metadata", [part])],
        nodes=[created.Node(3, [created.Listener("CONTROLLER", "c3", 9093)])],
    )
    async with scripted_admin(lambda *_: answer, {"DescribeQuorum": 2}) as admin:
        nodes = [QuorumNode(3, "voter", 6, 7, 8, ("c3:9093",)), QuorumNode(9, "observer", 10, 11, 12)]
        assert await admin.quorum() == (3, 4, nodes)
        (topic,) = admin.request.topics
        assert (topic.topic_name, [partition.partition_index for partition in topic.partitions]) == (
            "__cluster_metadata",
            [0],
        )
        part.error_code = ErrorCode.INVALID_REQUEST
        with pytest.raises(ResponseError, match="INVALID_REQUEST"):
            await admin.quorum()
        answer.error_code, answer.topics = DENIED, []
        with pytest.raises(ResponseError, match="CLUSTER_AUTHORIZATION_FAILED"):
            await admin.quorum()


async def test_a_broker_is_unregistered_at_the_controller() -> None:
    answer = UnregisterBrokerResponse()
    async with scripted_admin(lambda *_: answer, {"UnregisterBroker": 0}) as admin:
        await admin.unregister_broker(4)
        assert (admin.request.broker_id, admin.hosts) == (4, ["one"])
        answer.error_code, answer.error_message = ErrorCode.BROKER_ID_NOT_REGISTERED, "why"
        with pytest.raises(ResponseError, match=r"unregistering broker 4: BROKER_ID_NOT_REGISTERED \(why\)"):
            await admin.unregister_broker(4)


async def test_replicas_that_move_are_told_with_what_comes_and_goes() -> None:
    created = ListPartitionReassignmentsResponse
    part = created.OngoingPartitionReassignment(4, [1, 2], [2], [3])
    answer = created(topics=[created.OngoingTopicReassignment("t", [part])])
    async with scripted_admin(lambda *_: answer, {"ListPartitionReassignments": 0}) as admin:
        assert await admin.reassignments() == {("t", 4): Reassignment((1, 2), (2,), (3,))}
        answer.error_code = DENIED
        with pytest.raises(ResponseError, match="listing reassignments"):
            await admin.reassignments()


async def test_replicas_are_moved_or_their_move_is_cancelled() -> None:
    created = AlterPartitionReassignmentsResponse
    parts = [
        created.ReassignablePartitionResponse(0, 0, None),
        created.ReassignablePartitionResponse(2, 85, "why"),
    ]
    answer = created(responses=[created.ReassignableTopicResponse("t", parts)])
    async with scripted_admin(lambda *_: answer, {"AlterPartitionReassignments": 0}) as admin:
        outcomes: Any = await admin.reassign({("t", 2): None, PLACE: (2, 1)})
        assert (outcomes[PLACE], code_of(outcomes["t", 2]), outcomes["t", 2].message) == (None, 85, "why")
        (topic,) = admin.request.topics
        assert [(row.partition_index, row.replicas) for row in topic.partitions] == [(0, [2, 1]), (2, None)]
        answer.error_code = DENIED
        with pytest.raises(ResponseError, match="reassigning partitions"):
            await admin.reassign({PLACE: None})
