"""A member of a group that takes over the instance id of a static member that is away: the member that it was is gone.

The target is that of the members that are left. Apache Kafka 4.0 to 4.3 keeps the epoch where the topics are those of the
member that is away, and writes no target for a member that is to have what it had before the other's was moved to it.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.classic_consumers import ClassicClient
from tests.support.consumers import Client, Coordinator, converge

from .test_large_assignments import Aside
from .test_migration import go_on


def two_topics(coordinator: Coordinator | None = None) -> tuple[Coordinator, bytes, bytes]:
    """A coordinator with topics t of 3 partitions and u of 2."""
    coordinator = coordinator or Coordinator()
    return coordinator, coordinator.create("t", 3), coordinator.create("u", 2)


def all_of(topic_id: bytes, count: int) -> set[tuple[bytes, int]]:
    return {(topic_id, partition) for partition in range(count)}


def takes_over(client: Client, away: Client, **fields: Any) -> None:
    """`away` leaves for a while, and a member of its group joins with its instance id."""
    away.leave(for_a_while=True)
    client.instance_id = away.instance_id
    for name, value in fields.items():
        setattr(client, name, value)
    client.join()


def come_to_rest(aside: Aside, *clients: Client) -> None:
    """All beat and do as they are told, and what they ask for is computed."""
    for _ in range(6):
        for client in clients:
            client.beat()
            client.settle()
        while aside.needed:
            aside.compute()


def target(coordinator: Coordinator) -> dict[str, set[tuple[bytes, int]]]:
    """The target, which is the same for a broker that reads it."""
    assert coordinator.reloaded().groups == coordinator.shard.groups
    return {member_id: set(part) for member_id, part in coordinator.group().target.items()}


@pytest.mark.parametrize("topics", [["t"], ["u"]])
def test_takeover_discards_the_target_being_computed(monkeypatch, topics):
    monkeypatch.setattr("barnabas.coordinators.groups.consumer.target.COMPUTED_ASIDE_FROM", 0)
    aside = Aside()
    _, t, u = two_topics(aside)
    a, b, c = Client(aside, "a", instance_id="i"), Client(aside, "b"), Client(aside, "c")
    a.join()
    b.join()
    come_to_rest(aside, a, b)
    c.join()
    (needed,) = aside.needed
    computed = needed.compute()
    takes_over(b, a, topics=topics)
    aside.write(lambda shard, out: shard.write_part_of_target(needed, computed.items(), aside.now_ms, out))
    aside.compute()
    assert aside.group().assignment_epoch < aside.group().epoch
    come_to_rest(aside, b, c)
    subscribed = all_of(t, 3) | (all_of(u, 2) if "u" in topics else set())
    assert sorted(topic for part in target(aside).values() for topic in part) == sorted(subscribed)
    assert b.owned | c.owned == subscribed
    assert aside.state() == "Stable"


@pytest.mark.parametrize("instance_id", [None, "i"])
def test_takeover_ends_the_join_timer_of_a_classic_member(instance_id):
    """By itself, or with the instance id that it has taken over."""
    coordinator = Coordinator()
    coordinator.create("t", 4)
    a, c = (
        ClassicClient(coordinator, "a", rebalance_timeout_ms=3_000),
        Client(coordinator, "c", instance_id="i"),
    )
    c.join()
    go_on(a, c)
    a.dawdles = True
    Client(coordinator, "d").join()
    a.step()
    if instance_id is not None:
        c.leave(for_a_while=True)
    changed = Client(coordinator, a.member_id, instance_id=instance_id)
    changed.join()
    coordinator.advance(3_000)
    assert changed.beat() == 0
    assert coordinator.group().rejoins_due_ms == {}


def joins_as(coordinator: Coordinator, member_id: str, instance_id: str) -> Client:
    """A member with this id joins by the consumer protocol, and does what it is told."""
    client = Client(coordinator, member_id, instance_id=instance_id)
    client.join()
    client.settle()
    return client


def test_present_classic_member_can_be_taken_over():
    """As in Kafka: the process that had it has been replaced by one with the other protocol."""
    coordinator = Coordinator()
    t = coordinator.create("t", 4)
    a, c = ClassicClient(coordinator, "a", instance_id="i"), Client(coordinator, "c")
    c.join()
    go_on(a, c)
    again = joins_as(coordinator, "c", "i")
    assert target(coordinator) == {"c": all_of(t, 4)}
    assert coordinator.group().classic_members == 0
    converge(again)
    assert again.owned == all_of(t, 4)


def test_upgrade_by_takeover_has_the_target_of_the_others():
    coordinator = Coordinator()
    t = coordinator.create("t", 4)
    a, b = ClassicClient(coordinator, "a", instance_id="i"), ClassicClient(coordinator, "b", instance_id="j")
    go_on(a, b)
    again = joins_as(coordinator, b.member_id, "i")
    assert target(coordinator) == {b.member_id: all_of(t, 4)}
    assert coordinator.group().static_ids == {"i": b.member_id}
    converge(again)
    assert again.owned == all_of(t, 4)
