"""Assignments of large groups: computed aside on what the group was like, and written only if it still is."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.coordinators.groups.consumer.membership import EPOCH_OF_NEW
from barnabas.coordinators.groups.consumer.target import TargetNeeded
from barnabas.coordinators.groups.share import membership as share
from barnabas.coordinators.groups.share.topic_states import TopicStates
from barnabas.coordinators.groups.streams import membership as streams
from barnabas.coordinators.groups.streams.topology import Shape
from barnabas.coordinators.statemachine.decision import Decision, slices
from tests.support.consumers import Client, Coordinator, converge

from .test_share import Coordinator as ShareCoordinator
from .test_share import T

PARTITIONS = 8


class Aside(Coordinator):
    """A coordinator that computes no assignment until it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.needed: list[TargetNeeded] = []

    def write(self, event: Any) -> Any:
        out = Decision()
        result = event(self.shard, out)
        self.needed += out.effects
        self._settle(out)
        return result

    def compute(self, *, fails: bool = False) -> None:
        needed = self.needed.pop(0)
        target = None if fails else needed.compute()
        self.write(lambda shard, out: shard.target_computed(needed, target, self.now_ms, out))


@pytest.fixture
def coordinator(monkeypatch: pytest.MonkeyPatch) -> Aside:
    monkeypatch.setattr("barnabas.coordinators.groups.consumer.target.COMPUTED_ASIDE_FROM", 0)
    coordinator = Aside()
    coordinator.create("t", PARTITIONS)
    return coordinator


def settle(coordinator: Aside, *clients: Client) -> None:
    """Let all be heard of, and what they ask for be computed, some times."""
    for _ in range(6):
        for client in clients:
            client.beat()
        while coordinator.needed:
            coordinator.compute()


def test_a_member_has_an_epoch_and_nothing_until_then(coordinator: Aside) -> None:
    client = Client(coordinator, "a")
    client.join()
    assert (client.epoch, client.owned) == (EPOCH_OF_NEW, set())
    assert coordinator.state() == "Assigning"
    for _ in range(4):
        client.beat()
    assert len(coordinator.needed) == 2, "by the first member and by its group, not by each heartbeat"
    coordinator.compute()
    coordinator.compute()
    converge(client)
    assert len(client.owned) == PARTITIONS
    assert coordinator.state() == "Stable"


def test_what_is_computed_for_an_earlier_epoch_is_not_used(coordinator: Aside) -> None:
    a, b, c = (Client(coordinator, name) for name in "abc")
    a.join()
    b.join()
    assert [needed.epoch for needed in coordinator.needed] == [2, 3]
    c.join()
    assert len(coordinator.needed) == 2, "one at a time, whoever else comes"
    coordinator.compute()
    coordinator.compute()
    assert not coordinator.group().target
    a.beat()
    b.beat()
    assert [needed.epoch for needed in coordinator.needed] == [4]
    coordinator.compute()
    converge(a, b, c)
    assert sorted(len(client.owned) for client in (a, b, c)) == [2, 3, 3]
    assert not a.owned & b.owned


@pytest.mark.parametrize("leaves", [False, True])
def test_target_in_parts_counts_once_it_is_complete(coordinator: Aside, leaves: bool) -> None:
    clients = [Client(coordinator, f"c{n}") for n in range(4)]
    for client in clients:
        client.join()
    settle(coordinator, *clients)
    converge(*clients)
    before = coordinator.group().assignment_epoch
    late = Client(coordinator, "late")
    late.join()
    needed = coordinator.needed.pop()
    target = needed.compute()
    for part in slices(list(target.items()), 2):
        assert coordinator.write(
            lambda shard, out, part=part: shard.write_part_of_target(needed, part, coordinator.now_ms, out)
        )
        for client in (*clients, late):
            client.beat()
        assert coordinator.group().assignment_epoch == before
        if leaves:
            late.leave()
            assert not coordinator.write(
                lambda shard, out, part=part: shard.write_part_of_target(
                    needed, part, coordinator.now_ms, out
                )
            )
            break
    coordinator.write(lambda shard, out: shard.target_computed(needed, target, coordinator.now_ms, out))
    everybody = clients if leaves else [*clients, late]
    settle(coordinator, *everybody)
    converge(*everybody)
    owned = [partition for client in everybody for partition in client.owned]
    assert len(owned) == len(set(owned)) == PARTITIONS
    assert max(len(client.owned) for client in everybody) <= 2


def test_one_that_cannot_be_computed_is_tried_again(coordinator: Aside) -> None:
    client = Client(coordinator, "a")
    client.join()
    coordinator.compute(fails=True)
    assert not coordinator.group().target
    client.beat()
    coordinator.compute()
    converge(client)
    assert len(client.owned) == PARTITIONS


def test_a_group_that_is_gone_needs_none(coordinator: Aside) -> None:
    client = Client(coordinator, "a")
    client.join()
    client.leave()
    before = list(coordinator.journal)
    coordinator.compute()
    assert coordinator.journal == before


# --- which are large, of every kind -------------------------------------------------------------------------------


def needed(kind: str, members: int, partitions: int, replicas: int = 0) -> Any:
    """A target of two topics, or subtopologies, as far as its size is looked at."""
    everybody: Any = (None,) * members
    half = partitions // 2
    counts = {"t": half, "u": partitions - half}
    by_id = {name.encode(): count for name, count in counts.items()}
    nothing: Any = None
    if kind == "consumer":
        return TargetNeeded("g", 1, everybody, nothing, nothing, by_id)
    if kind == "share":
        topic_states = TopicStates(
            initialized={topic: frozenset(range(count)) for topic, count in by_id.items()}
        )
        return share.TargetNeeded("g", 1, everybody, {}, topic_states, nothing)
    shapes = {name: Shape(count, True, frozenset()) for name, count in counts.items()}
    return streams.TargetNeeded("g", 1, everybody, nothing, shapes, replicas)


def test_large_share_group_computes_one_target_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.coordinators.groups.share.membership.COMPUTED_ASIDE_FROM", 0)
    coordinator = ShareCoordinator()
    asked: list[Any] = []
    apply = coordinator.apply

    def applied(out: Decision) -> None:
        asked.extend(out.effects)
        apply(out)

    monkeypatch.setattr(coordinator, "apply", applied)
    answer = coordinator.beat("a", 0, "t").response
    group = coordinator.shard.share_group("g")
    assert (answer.member_epoch, group.assignment_epoch) == (1, 1), (
        "the epoch that a new member needs until then"
    )
    coordinator.beat("b", 0, "t")
    coordinator.beat("a", 1)
    assert len({needed.epoch for needed in asked}) == len(asked) == 2, "by the first member, and by its group"
    assert group.assigning_epoch == asked[-1].epoch
    for _ in range(4):
        for needed in asked:
            out = Decision()
            coordinator.shard.target_computed(needed, needed.compute(), coordinator.now_ms, out)
            applied(out)
        asked.clear()
        assert group.assigning_epoch == 0
        for member in "ab":
            coordinator.beat(member, group.members[member].epoch)
    assert sorted(coordinator.has("a") + coordinator.has("b")) == [(T, 0), (T, 1)]
    assert group.epoch == group.assignment_epoch
    assert {member.epoch for member in group.members.values()} == {group.epoch}
