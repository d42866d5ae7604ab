"""The assignors: everything is given to a subscriber; evenly, and without moving what may stay."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from barnabas.coordinators.groups.assignors import ASSIGNORS
from barnabas.coordinators.groups.assignors.subscriber import Subscriber
from barnabas.wire.topic_partitions import TopicIdPartitions

TOPIC_IDS = [bytes([n]) * 16 for n in range(4)]
COUNTS = st.dictionaries(st.sampled_from(TOPIC_IDS), st.integers(1, 12), min_size=1)
WANTED = st.sets(st.sampled_from(TOPIC_IDS), min_size=1)


def subscribers(subscriptions: list[set[bytes]], counts: dict[bytes, int]) -> list[Subscriber]:
    return [
        Subscriber(f"m{number}", frozenset(topic_ids & counts.keys()))
        for number, topic_ids in enumerate(subscriptions)
    ]


def check_complete(
    target: dict[str, TopicIdPartitions], members: list[Subscriber], counts: dict[bytes, int]
) -> None:
    assert target.keys() == {member.id for member in members}
    read = frozenset().union(*(member.topic_ids for member in members))
    given_away = sorted(
        topic_partition for topic_partitions in target.values() for topic_partition in topic_partitions
    )
    assert given_away == sorted((t, p) for t in read for p in range(counts[t]))
    for member in members:
        assert {topic_id for topic_id, _ in target[member.id]} <= member.topic_ids


@given(st.sampled_from(sorted(ASSIGNORS)), st.lists(WANTED, min_size=1, max_size=8), COUNTS)
def test_everything_is_given_to_one_who_wants_it(
    name: str, topics: list[set[bytes]], counts: dict[bytes, int]
) -> None:
    members = subscribers(topics, counts)
    check_complete(ASSIGNORS[name](members, counts), members, counts)


@given(WANTED, st.integers(1, 8), st.integers(1, 8), COUNTS)
def test_uniform_is_even_and_moves_only_what_it_must(
    topics: set[bytes], before: int, after: int, counts: dict[bytes, int]
) -> None:
    first = ASSIGNORS["uniform"](subscribers([topics] * before, counts), counts)
    members = [
        Subscriber(member.id, member.topic_ids, assigned=first.get(member.id, frozenset()))
        for member in subscribers([topics] * after, counts)
    ]
    second = ASSIGNORS["uniform"](members, counts)
    check_complete(second, members, counts)
    loads = sorted(len(topic_partitions) for topic_partitions in second.values())
    assert loads[-1] - loads[0] <= 1
    for member in members:
        # Nobody loses a slot and gets another one instead.
        assert second[member.id] <= member.assigned or member.assigned <= second[member.id]


@given(st.lists(WANTED, min_size=2, max_size=6), COUNTS)
def test_uniform_leaves_no_move_that_would_help(topics: list[set[bytes]], counts: dict[bytes, int]) -> None:
    members = subscribers(topics, counts)
    target = ASSIGNORS["uniform"](members, counts)
    for taker in members:
        for giver in members:
            movable = [
                topic_partition
                for topic_partition in target[giver.id]
                if topic_partition[0] in taker.topic_ids
            ]
            assert not movable or len(target[giver.id]) <= len(target[taker.id]) + 1


@given(st.lists(WANTED, min_size=1, max_size=6), COUNTS)
def test_uniform_keeps_what_is_even_already(topics: list[set[bytes]], counts: dict[bytes, int]) -> None:
    members = subscribers(topics, counts)
    first = ASSIGNORS["uniform"](members, counts)
    again = [Subscriber(member.id, member.topic_ids, assigned=first[member.id]) for member in members]
    assert ASSIGNORS["uniform"](again, counts) == first


@given(st.integers(1, 6), st.integers(1, 12))
def test_range_gives_the_same_numbers_of_topics_of_the_same_size(members: int, partitions: int) -> None:
    counts = dict.fromkeys(TOPIC_IDS[:2], partitions)
    target = ASSIGNORS["range"](subscribers([set(counts)] * members, counts), counts)
    for topic_partitions in target.values():
        first, second = ([p for t, p in sorted(topic_partitions) if t == topic_id] for topic_id in counts)
        assert first == second
        assert first == list(range(first[0], first[0] + len(first))) if first else True


def test_range_puts_static_members_first() -> None:
    counts = {TOPIC_IDS[0]: 3}
    topic = frozenset(counts)
    members = [Subscriber("a", topic), Subscriber("z", topic, "i2"), Subscriber("y", topic, "i1")]
    target = ASSIGNORS["range"](members, counts)
    assert [min(p for _, p in target[member_id]) for member_id in "yza"] == [0, 1, 2]
