"""Fields that may differ between a recorded answer and a live one, and how far: each row with what it must refuse."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from barnabas.tools.tap.comparison import differences
from barnabas.tools.tap.substitution import Substitutes
from barnabas.wire.generated.api_versions import ApiVersionsResponse
from barnabas.wire.generated.create_delegation_token import CreateDelegationTokenResponse
from barnabas.wire.generated.describe_acls import DescribeAclsResponse
from barnabas.wire.generated.describe_groups import DescribeGroupsResponse
from barnabas.wire.generated.describe_producers import DescribeProducersResponse
from barnabas.wire.generated.describe_transactions import DescribeTransactionsResponse
from barnabas.wire.generated.fetch import FetchResponse
from barnabas.wire.generated.metadata import MetadataResponse
from barnabas.wire.generated.produce import ProduceResponse
from barnabas.wire.generated.sasl_authenticate import SaslAuthenticateResponse

_Partition = MetadataResponse.MetadataResponsePartition


def _found(recorded: Any, live: Any) -> list[str]:
    return [row.path.rpartition(".")[2] for row in differences(recorded, live, Substitutes(), 1, "")]


def _metadata(*ids: int, **partition: Any) -> MetadataResponse:
    """A cluster of these brokers, with a partition on all of them that the first one leads."""
    whole = {"leader_id": ids[0], "replica_nodes": list(ids), "isr_nodes": list(ids)} | partition
    nodes = [MetadataResponse.MetadataResponseBroker(id_, f"host-{id_}", 9092) for id_ in ids]
    topic = MetadataResponse.MetadataResponseTopic(name="t", partitions=[_Partition(**whole)])
    return MetadataResponse(brokers=nodes, cluster_id="c", controller_id=ids[0], topics=[topic])


def test_another_cluster_is_no_difference() -> None:
    assert _found(_metadata(1, 2, 3), _metadata(11, 12)) == []


@pytest.mark.parametrize(
    ("field", "partition"),
    [
        ("leader_id", {"leader_id": -1}),
        ("leader_id", {"leader_id": 13}),
        ("leader_id", {"leader_id": 11, "replica_nodes": [12, 13], "isr_nodes": [12, 13]}),
        ("replica_nodes", {"replica_nodes": [11, 11]}),
        ("replica_nodes", {"replica_nodes": [12], "isr_nodes": [12]}),
        ("replica_nodes", {"replica_nodes": [11, 14], "isr_nodes": [11, 14]}),
        ("isr_nodes", {"isr_nodes": [11]}),
        ("isr_nodes", {"isr_nodes": []}),
        ("isr_nodes", {"isr_nodes": [11, 12, 13]}),
        ("offline_replicas", {"offline_replicas": [12]}),
    ],
)
def test_a_partition_that_is_worse_off_is_a_difference(field: str, partition: dict[str, Any]) -> None:
    live = _metadata(11, 12, 13, **{"replica_nodes": [11, 12], "isr_nodes": [11, 12]} | partition)
    assert field in _found(_metadata(1, 2), live)


def test_a_partition_that_was_worse_off_may_be_better() -> None:
    recorded = _metadata(1, 2, isr_nodes=[1], offline_replicas=[2])
    assert _found(recorded, _metadata(11, 12)) == []
    assert _found(recorded, _metadata(11, 12, isr_nodes=[11], offline_replicas=[12])) == []


def test_a_leader_that_comes_back_is_a_difference_too() -> None:
    assert _found(_metadata(1, leader_id=-1), _metadata(11)) == ["leader_id"]


@pytest.mark.parametrize("change", ["no host", "no port", "an id twice", "nobody"])
def test_a_broker_has_an_id_and_an_address(change: str) -> None:
    live = _metadata(11, 12)
    if change == "no host":
        live.brokers[1].host = ""
    elif change == "no port":
        live.brokers[1].port = -1
    elif change == "an id twice":
        live.brokers.append(deepcopy(live.brokers[0]))
    else:
        live.brokers = []
    assert "brokers" in _found(_metadata(1, 2), live)


def test_who_was_not_throttled_is_not_throttled_now() -> None:
    def answer(throttle_ms: int) -> ProduceResponse:
        return ProduceResponse([], throttle_ms)

    assert _found(answer(5), answer(0)) == _found(answer(5), answer(700)) == []
    assert _found(answer(0), answer(5)) == _found(answer(5), answer(-1)) == ["throttle_time_ms"]


def test_the_host_of_an_acl_is_compared() -> None:
    def answer(host: str) -> DescribeAclsResponse:
        entry = DescribeAclsResponse.AclDescription("User:a", host, 3, 3)
        return DescribeAclsResponse(
            resources=[DescribeAclsResponse.DescribeAclsResource(2, "t", 3, acls=[entry])]
        )

    assert _found(answer("*"), answer("10.0.0.1")) == ["host"]


def _of_producers(epoch: int) -> DescribeProducersResponse:
    state = DescribeProducersResponse.ProducerState(7, 0, 3, 1, epoch, 5)
    part = DescribeProducersResponse.PartitionResponse(0, active_producers=[state])
    return DescribeProducersResponse(topics=[DescribeProducersResponse.TopicResponse("t", partitions=[part])])


def _of_a_group(host: str) -> DescribeGroupsResponse:
    member = DescribeGroupsResponse.DescribedGroupMember("m", client_id="c", client_host=host)
    return DescribeGroupsResponse(
        groups=[DescribeGroupsResponse.DescribedGroup(group_id="g", members=[member])]
    )


def _of_a_fetch(replica: int) -> FetchResponse:
    part = FetchResponse.PartitionData(preferred_read_replica=replica)
    return FetchResponse(responses=[FetchResponse.FetchableTopicResponse("t", partitions=[part])])


def _of_endpoints(*ids: int) -> ProduceResponse:
    return ProduceResponse(node_endpoints=[ProduceResponse.NodeEndpoint(id_, "h", 9092) for id_ in ids])


def _of_append(time_ms: int) -> ProduceResponse:
    part = ProduceResponse.PartitionProduceResponse(0, 0, 5, log_append_time_ms=time_ms)
    return ProduceResponse([ProduceResponse.TopicProduceResponse("t", partition_responses=[part])])


def _of_a_transaction(begun_ms: int) -> DescribeTransactionsResponse:
    state = DescribeTransactionsResponse.TransactionState(
        transactional_id="x", transaction_start_time_ms=begun_ms
    )
    return DescribeTransactionsResponse(transaction_states=[state])


@pytest.mark.parametrize(
    ("make", "recorded", "other", "refused"),
    [
        (_of_producers, 4, 9, -1),
        (_of_a_group, "/1.2.3.4", "/5.6.7.8", ""),
        (_of_a_fetch, 2, 3, -1),
        (_of_append, 5, 9, -1),
        (_of_a_transaction, 5, 9, -1),
        (lambda lifetime: SaslAuthenticateResponse(session_lifetime_ms=lifetime), 5000, 4000, 0),
        (lambda token: SaslAuthenticateResponse(auth_bytes=token), b"***", b"v=proof", b""),
        (lambda epoch: ApiVersionsResponse(finalized_features_epoch=epoch), 7, 0, -1),
        (lambda issued: CreateDelegationTokenResponse(issue_timestamp_ms=issued), 5, 9, 0),
        (lambda expires: CreateDelegationTokenResponse(expiry_timestamp_ms=expires), 5, 9, 0),
        (lambda latest: CreateDelegationTokenResponse(max_timestamp_ms=latest), 5, 9, 0),
        (lambda secret: CreateDelegationTokenResponse(hmac=secret), b"***", b"abc", b""),
        (lambda name: MetadataResponse(cluster_id=name), "a", "b", None),
        (lambda ids: _of_endpoints(*ids), (1,), (2,), ()),
    ],
)  # fmt: skip
def test_other_value_of_a_kind_is_no_difference(make: Any, recorded: Any, other: Any, refused: Any) -> None:
    assert _found(make(recorded), make(other)) == []
    assert len(_found(make(recorded), make(refused))) == 1
    assert len(_found(make(refused), make(recorded))) == 1
