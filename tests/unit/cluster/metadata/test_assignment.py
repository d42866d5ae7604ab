"""Replicas of new partitions: Kafka's documented examples, and what holds for all clusters."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.cluster.metadata import topic_decisions
from barnabas.cluster.metadata.assignment import RacksMissingError, assign
from barnabas.cluster.metadata.image import BrokerInfo, ClusterImage, PartitionInfo, TopicInfo
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode

SIX = {0: "rack1", 1: "rack3", 2: "rack3", 3: "rack2", 4: "rack2", 5: "rack1"}


def test_brokers_of_different_racks_alternate():
    # The example in the documentation of Kafka's AdminUtils.
    assert assign(SIX, 7, 3, start=0, shift=0) == [
        (0, 3, 1), (3, 1, 5), (1, 5, 4), (5, 4, 2), (4, 2, 0), (2, 0, 3), (0, 4, 2),
    ]  # fmt: skip


def test_followers_shift_with_each_round():
    # The table in the documentation of Kafka's AdminUtils: ten partitions on five brokers.
    assert assign(dict.fromkeys(range(5)), 10, 3, start=0, shift=0) == [
        (0, 1, 2), (1, 2, 3), (2, 3, 4), (3, 4, 0), (4, 0, 1), (0, 2, 3), (1, 3, 4), (2, 4, 0), (3, 0, 1), (4, 1, 2),
    ]  # fmt: skip


def test_some_brokers_without_a_rack_are_refused():
    with pytest.raises(RacksMissingError, match=r"brokers \[2\] have no rack"):
        assign({1: "a", 2: None}, 1, 1, start=0, shift=0)


@given(
    count=st.integers(1, 12),
    rack_count=st.integers(0, 4),
    replication_factor=st.integers(1, 12),
    partitions=st.integers(1, 60),
    start=st.integers(0, 2**32),
    shift=st.integers(0, 2**32),
    first=st.integers(0, 30),
)
def test_replicas_are_spread(count, rack_count, replication_factor, partitions, start, shift, first):
    replication_factor = min(replication_factor, count)
    racks = {id_: f"rack{id_ % rack_count}" if rack_count else None for id_ in range(count)}
    assigned = assign(racks, partitions, replication_factor, start=start, shift=shift, first=first)
    assert len(assigned) == partitions
    for replicas in assigned:
        assert len(set(replicas)) == len(replicas) == replication_factor
        used = len({racks[id_] for id_ in replicas})
        assert used == min(replication_factor, len(set(racks.values()))) or not rack_count
    leaders = Counter(replicas[0] for replicas in assigned)
    assert max(leaders.values()) - min(leaders[id_] for id_ in racks) <= 1


def image_of(racks, **partition):
    image = ClusterImage("c")
    brokers = {id_: BrokerInfo(id_, rack, {}) for id_, rack in racks.items()}
    partitions = (PartitionInfo(2, (2, 3), (2, 3), **partition),)
    return ClusterImage(
        image.cluster_id, brokers=brokers, topics={"t": TopicInfo("t", bytes(16), partitions)}
    )


def test_new_partitions_go_on_from_the_first_one():
    (added,) = topic_decisions.add_partitions(image_of(dict.fromkeys((1, 2, 3))), "t", 3)
    assert [partition.replicas for partition in added.partitions] == [(3, 2), (1, 3)]


def test_no_partitions_are_added_while_some_are_reassigned():
    with pytest.raises(RequestError) as caught:
        topic_decisions.add_partitions(image_of({1: None, 2: None, 3: None}, adding=(3,)), "t", 3)
    assert caught.value.code == ErrorCode.REASSIGNMENT_IN_PROGRESS


def test_a_topic_is_refused_where_only_some_brokers_have_a_rack():
    with pytest.raises(RequestError) as caught:
        topic_decisions.add_partitions(image_of({1: "a", 2: None, 3: None}), "t", 3)
    assert caught.value.code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
