"""Assignors of the classic protocol: complete, even, sticky, and safe for members that keep what they have."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.client import TopicPartition
from barnabas.client.consuming.assignors import ASSIGNORS
from barnabas.client.consuming.members import Assignment, Member
from barnabas.client.consuming.protocol import (
    decode_assignment,
    decode_member,
    encode_assignment,
    encode_subscription,
)

TOPICS = ("a", "b", "c")
COUNTS = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 7), min_size=1)
MEMBERS = st.lists(
    st.tuples(st.frozensets(st.sampled_from(TOPICS), min_size=1), st.booleans()), min_size=1, max_size=5
)


def members_of(drawn: list[tuple[frozenset[str], bool]]) -> list[Member]:
    return [Member(f"m{n}", topics, f"i{n}" if static else None) for n, (topics, static) in enumerate(drawn)]


def had(members: list[Member], assignment: Assignment, generation: int) -> list[Member]:
    """The members as they come to the next round."""
    return [
        Member(
            member.id, member.topics, member.instance_id, frozenset(assignment.get(member.id, ())), generation
        )
        for member in members
    ]


def wanted(members: list[Member], counts: dict[str, int]) -> set[TopicPartition]:
    return {
        TopicPartition(topic, number)
        for topic, count in counts.items()
        if any(topic in member.topics for member in members)
        for number in range(count)
    }


def check(members: list[Member], counts: dict[str, int], assignment: Assignment) -> None:
    assert assignment.keys() == {member.id for member in members}
    everything = [place for places in assignment.values() for place in places]
    assert len(everything) == len(set(everything))
    assert set(everything) == wanted(members, counts)
    for member in members:
        assert {place.topic for place in assignment[member.id]} <= member.topics


@pytest.mark.parametrize("name", ["range", "roundrobin", "sticky"])
@given(MEMBERS, COUNTS)
@settings(max_examples=60, deadline=None)
def test_each_partition_has_one_member_that_wants_it(name: str, drawn, counts) -> None:
    members = members_of(drawn)
    assignment = ASSIGNORS[name].assign(members, counts)
    check(members, counts, assignment)
    assert assignment == ASSIGNORS[name].assign(members[::-1], counts), (
        "it depends on the order of the members"
    )


@given(MEMBERS, COUNTS)
@settings(max_examples=80, deadline=None)
def test_sticky_shares_are_as_even_as_subscriptions_allow(drawn, counts) -> None:
    members = members_of(drawn)
    assignment = ASSIGNORS["sticky"].assign(members, counts)
    for giver in members:
        for taker in members:
            if len(assignment[giver.id]) > len(assignment[taker.id]) + 1:
                assert not {place.topic for place in assignment[giver.id]} & taker.topics


@given(MEMBERS, COUNTS, st.integers(0, 4))
@settings(max_examples=80, deadline=None)
def test_who_stays_keeps_what_it_has_up_to_its_share(drawn, counts, leaves: int) -> None:
    topics = frozenset(counts)
    members = [Member(entry.id, topics, entry.instance_id) for entry in members_of(drawn)]
    first = ASSIGNORS["sticky"].assign(members, counts)
    assert ASSIGNORS["sticky"].assign(had(members, first, 1), counts) == first
    remaining = [entry for entry in had(members, first, 1) if entry.id != f"m{leaves}"]
    if remaining:
        second = ASSIGNORS["sticky"].assign(remaining, counts)
        check(remaining, counts, second)
        assert all(set(first[entry.id]) <= set(second[entry.id]) for entry in remaining)


@given(MEMBERS, COUNTS, MEMBERS)
@settings(max_examples=80, deadline=None)
def test_cooperative_members_never_have_the_same_partition(drawn, counts, later) -> None:
    assign = ASSIGNORS["cooperative-sticky"].assign
    members = members_of(drawn)
    assignment = assign(members, counts)
    check(members, counts, assignment)
    newcomers = members_of(later)
    held = {entry.id: set(assignment.get(entry.id, ())) for entry in newcomers}
    gone = [entry for entry in members if entry.id not in held]
    assert gone == [] or len(newcomers) < len(members)
    for generation in range(2, 5):
        joining = [
            Member(entry.id, entry.topics, entry.instance_id, frozenset(held[entry.id]), generation - 1)
            for entry in newcomers
        ]
        assignment = assign(joining, counts)
        # Each takes up its own at its own time: what is new to one must be nobody else's before.
        for entry in newcomers:
            for other in newcomers:
                if entry is not other:
                    subscribed = {place for place in held[other.id] if place.topic in other.topics}
                    assert not set(assignment[entry.id]) & subscribed
        held = {member_id: set(places) for member_id, places in assignment.items()}
    check(newcomers, counts, assignment)


def test_a_range_is_shared_out_as_kafka_does() -> None:
    members = [Member("c", frozenset("ab")), Member("b", frozenset("ab"), "z"), Member("a", frozenset("a"))]
    assignment = ASSIGNORS["range"].assign(members, {"a": 4, "b": 3})
    assert {key: [f"{place}" for place in value] for key, value in assignment.items()} == {
        "b": ["a-0", "a-1", "b-0", "b-1"],  # a static member comes first
        "a": ["a-2"],
        "c": ["a-3", "b-2"],
    }


def test_a_newer_generation_wins_and_equal_ones_both_lose() -> None:
    place = TopicPartition("a", 0)
    old, new = Member("m1", frozenset("a"), None, frozenset([place]), 3), Member("m2", frozenset("a"))
    new.owned, new.generation = frozenset([place]), 4
    assert ASSIGNORS["sticky"].assign([old, new], {"a": 1})["m2"] == [place]
    old.generation = 4
    assert ASSIGNORS["cooperative-sticky"].assign([old, new], {"a": 1}) == {"m1": [], "m2": []}


@pytest.mark.parametrize("name", list(ASSIGNORS))
def test_members_are_read_as_they_were_written(name: str) -> None:
    places = [TopicPartition("a", 1), TopicPartition("a", 0), TopicPartition("ü", 5)]
    data = encode_subscription(name, ["ü", "a"], places, places, 7, "")
    member = decode_member(name, "m", "i", data)
    assert member == Member("m", frozenset(("a", "ü")), "i", frozenset(places), 7)
    assert decode_assignment(encode_assignment(places)) == set(places)
    assert decode_assignment(b"") == set()


def test_broken_memory_is_as_good_as_none() -> None:
    data = bytearray(encode_subscription("sticky", ["a"], [], [TopicPartition("a", 1)], 7, ""))
    at = data.index((b"\x00\x01a"), 9)  # in the user data
    data[at - 4 : at] = (1 << 20).to_bytes(4, "big")
    member = decode_member("sticky", "m", None, bytes(data))
    assert (member.owned, member.generation) == (frozenset(), -1)
