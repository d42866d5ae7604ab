"""Assignors by example: the partitions of each member of small groups, with answers worked out by hand."""

from __future__ import annotations

from barnabas.coordinators.groups.assignors.range import assign_ranges
from barnabas.coordinators.groups.assignors.simple import assign_shared
from barnabas.coordinators.groups.assignors.subscriber import Subscriber
from barnabas.coordinators.groups.assignors.uniform import assign_uniformly

A, B, C = b"a", b"b", b"c"


def of(topic_id: bytes, *partitions: int) -> frozenset[tuple[bytes, int]]:
    return frozenset((topic_id, partition) for partition in partitions)


# --- range --------------------------------------------------------------------------------------------------------


def test_static_members_are_first_in_order_of_instance_ids():
    group = [
        Subscriber("1", frozenset({A})),
        Subscriber("2", frozenset({A}), "late"),
        Subscriber("3", frozenset({A}), "early"),
    ]
    assert assign_ranges(group, {A: 4}) == {"3": of(A, 0, 1), "2": of(A, 2), "1": of(A, 3)}


# --- uniform --------------------------------------------------------------------------------------------------------


def test_a_partition_that_two_members_claim_is_kept_by_one():
    different = [
        Subscriber("x", frozenset({A}), assigned=of(A, 0)),
        Subscriber("y", frozenset({A, B}), assigned=of(A, 0)),
    ]
    assignment = assign_uniformly(different, {A: 2, B: 2})
    assert assignment["x"] == of(A, 0, 1)
    assert assignment["y"] == of(B, 0, 1)


def test_topics_with_few_readers_are_assigned_first():
    group = [
        Subscriber("x", frozenset({A, B})),
        Subscriber("y", frozenset({B})),
        Subscriber("z", frozenset({B, C})),
    ]
    assignment = assign_uniformly(group, {A: 2, B: 3, C: 1})
    assert assignment["x"] == of(A, 0, 1)
    assert len(assignment["y"]) == 2
    assert assignment["y"] <= of(B, 0, 1, 2)
    assert of(C, 0) < assignment["z"]


# --- share groups ---------------------------------------------------------------------------------------------------


def test_share_group_moves_no_partition_without_need():
    group = [
        Subscriber("x", frozenset({A}), assigned=of(A, 1)),
        Subscriber("y", frozenset({A}), assigned=of(A, 0)),
        Subscriber("z", frozenset({B}), assigned=of(A, 2)),
    ]
    assignment = assign_shared(group, of(A, 0, 1) | of(B, 0))
    assert assignment == {"x": of(A, 1), "y": of(A, 0), "z": of(B, 0)}
