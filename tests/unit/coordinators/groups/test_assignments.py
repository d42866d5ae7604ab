"""Assignors by example: who gets which partitions, for small groups whose right answer can be told by hand."""

from __future__ import annotations

from collections import Counter

import pytest

from barnabas.coordinators.groups.assignors.range import assign_ranges
from barnabas.coordinators.groups.assignors.simple import assign_shared
from barnabas.coordinators.groups.assignors.subscriber import Subscriber, readers_by_topic
from barnabas.coordinators.groups.assignors.uniform import assign_uniformly

A, B, C = b"a", b"b", b"c"


def members(*ids: str, topics: frozenset[bytes] = frozenset({A, B})) -> list[Subscriber]:
    return [Subscriber(id, topics) for id in ids]


def of(topic_id: bytes, *partitions: int) -> frozenset[tuple[bytes, int]]:
    return frozenset((topic_id, partition) for partition in partitions)


# --- range --------------------------------------------------------------------------------------------------------


def test_ranges_are_runs_of_which_the_first_are_longer():
    assert assign_ranges(members("x", "y", "z"), {A: 8}) == {
        "x": of(A, 0, 1, 2), "y": of(A, 3, 4, 5), "z": of(A, 6, 7),
    }  # fmt: skip


def test_each_topic_has_ranges_of_its_own_so_that_equal_topics_are_shared_alike():
    assert assign_ranges(members("y", "x"), {A: 3, B: 3}) == {
        "x": of(A, 0, 1) | of(B, 0, 1), "y": of(A, 2) | of(B, 2),
    }  # fmt: skip


def test_with_fewer_partitions_than_members_the_last_get_none():
    assert assign_ranges(members("x", "y", "z"), {A: 2}) == {"x": of(A, 0), "y": of(A, 1), "z": frozenset()}


def test_static_members_come_first_in_the_order_of_their_instances():
    group = [
        Subscriber("1", frozenset({A})),
        Subscriber("2", frozenset({A}), "late"),
        Subscriber("3", frozenset({A}), "early"),
    ]
    assert assign_ranges(group, {A: 4}) == {"3": of(A, 0, 1), "2": of(A, 2), "1": of(A, 3)}


def test_a_topic_is_shared_by_its_readers_only():
    group = [*members("x", topics=frozenset({A})), *members("y"), *members("z", topics=frozenset({B, C}))]
    assert assign_ranges(group, {A: 2, B: 3, C: 1}) == {
        "x": of(A, 0), "y": of(A, 1) | of(B, 0, 1), "z": of(B, 2) | of(C, 0),
    }  # fmt: skip


def test_readers_are_in_the_order_that_is_asked_for_and_topics_without_readers_are_left_out():
    group = [*members("x", "y"), *members("z", topics=frozenset({B}))]
    assert readers_by_topic(group, ["z", "y", "x"], [A, B, C]) == {A: ["y", "x"], B: ["z", "y", "x"]}


# --- uniform --------------------------------------------------------------------------------------------------------


def test_a_new_group_is_shared_evenly_topic_by_topic():
    given = assign_uniformly(members("x", "y"), {A: 2, B: 2})
    assert given == {"x": of(A, 0) | of(B, 0), "y": of(A, 1) | of(B, 1)}


@pytest.mark.parametrize("count", [1, 4, 5, 6, 7])
def test_shares_differ_by_one_at_most_and_every_partition_is_given_once(count):
    given = assign_uniformly(members("x", "y", "z"), {A: count})
    assert sorted(len(mine) for mine in given.values())[0] >= count // 3
    assert max(len(mine) for mine in given.values()) <= -(-count // 3)
    assert Counter(each for mine in given.values() for each in mine) == Counter(of(A, *range(count)))


def test_who_has_more_keeps_the_larger_share():
    group = [
        Subscriber("x", frozenset({A}), assigned=of(A, 0, 1)),
        Subscriber("y", frozenset({A}), assigned=of(A, 2, 3, 4)),
    ]
    assert assign_uniformly(group, {A: 5}) == {"x": of(A, 0, 1), "y": of(A, 2, 3, 4)}


def test_a_newcomer_gets_its_share_and_nobody_gets_more_than_before():
    group = [
        Subscriber("x", frozenset({A}), assigned=of(A, 0, 1, 2)),
        Subscriber("y", frozenset({A}), assigned=of(A, 3, 4, 5)),
        Subscriber("z", frozenset({A})),
    ]
    assert assign_uniformly(group, {A: 6}) == {"x": of(A, 0, 1), "y": of(A, 3, 4), "z": of(A, 2, 5)}


def test_partitions_that_are_no_more_and_topics_that_nobody_wants_are_not_given():
    group = [
        Subscriber("x", frozenset({A}), assigned=of(A, 0, 7) | of(B, 0)),
        Subscriber("y", frozenset({A})),
    ]
    assert assign_uniformly(group, {A: 2, B: 1}) == {"x": of(A, 0), "y": of(A, 1)}
    assert assign_uniformly([], {A: 2}) == {}


def test_a_partition_that_two_members_claim_is_kept_by_one():
    different = [
        Subscriber("x", frozenset({A}), assigned=of(A, 0)),
        Subscriber("y", frozenset({A, B}), assigned=of(A, 0)),
    ]
    given = assign_uniformly(different, {A: 2, B: 2})
    assert given["x"] == of(A, 0, 1)
    assert given["y"] == of(B, 0, 1)


def test_with_different_subscriptions_loads_are_made_even_where_they_can_be():
    group = [
        Subscriber("x", frozenset({A}), assigned=of(A, 0, 1, 2, 3)),
        Subscriber("y", frozenset({A, B})),
        Subscriber("z", frozenset({B}), assigned=of(B, 0)),
    ]
    given = assign_uniformly(group, {A: 4, B: 1})
    assert given == {"x": of(A, 0, 1), "y": of(A, 2, 3), "z": of(B, 0)}


def test_topics_of_few_readers_are_given_first_and_the_others_make_up_for_them():
    group = [
        Subscriber("x", frozenset({A, B})),
        Subscriber("y", frozenset({B})),
        Subscriber("z", frozenset({B, C})),
    ]
    given = assign_uniformly(group, {A: 2, B: 3, C: 1})
    assert given["x"] == of(A, 0, 1)
    assert len(given["y"]) == 2
    assert given["y"] <= of(B, 0, 1, 2)
    assert of(C, 0) < given["z"]


def test_what_a_member_had_of_a_topic_that_it_no_longer_reads_goes_to_others():
    group = [
        Subscriber("x", frozenset({B}), assigned=of(A, 0) | of(B, 0)),
        Subscriber("y", frozenset({A, B}), assigned=of(B, 5)),
    ]
    assert assign_uniformly(group, {A: 1, B: 1}) == {"x": of(B, 0), "y": of(A, 0)}


# --- share groups ---------------------------------------------------------------------------------------------------


def test_members_of_a_share_group_have_a_partition_together_where_there_are_too_few():
    given = assign_shared(members("x", "y", "z", topics=frozenset({A})), of(A, 0))
    assert given == dict.fromkeys("xyz", of(A, 0))


def test_each_partition_goes_to_as_many_members_and_each_member_has_as_many():
    given = assign_shared(members("v", "w", "x", "y", topics=frozenset({A})), of(A, 0, 1))
    assert Counter(each for mine in given.values() for each in mine) == {(A, 0): 2, (A, 1): 2}
    assert {len(mine) for mine in given.values()} == {1}


def test_with_more_partitions_than_members_each_is_given_once():
    given = assign_shared(members("x", "y", topics=frozenset({A})), of(A, 0, 1, 2))
    assert Counter(each for mine in given.values() for each in mine) == Counter(of(A, 0, 1, 2))
    assert {member_id: len(mine) for member_id, mine in given.items()} == {"x": 2, "y": 1}


def test_nobody_in_a_share_group_changes_a_partition_without_need():
    group = [
        Subscriber("x", frozenset({A}), assigned=of(A, 1)),
        Subscriber("y", frozenset({A}), assigned=of(A, 0)),
        Subscriber("z", frozenset({B}), assigned=of(A, 2)),
    ]
    given = assign_shared(group, of(A, 0, 1) | of(B, 0))
    assert given == {"x": of(A, 1), "y": of(A, 0), "z": of(B, 0)}
