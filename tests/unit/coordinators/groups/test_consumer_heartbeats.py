"""ConsumerGroupHeartbeat in detail: what an answer says and when, which timers it sets, what ends with a member."""

from __future__ import annotations

from barnabas.coordinators.groups.epoch_member import MemberState
from tests.support.consumers import Client, converge, joined, with_topic

SESSION_MS, REBALANCE_MS = 45_000, 10_000  # the default, and what clients of the harness ask for


def timer(name: str, member_id: str) -> tuple[str, str, str]:
    return name, "g", member_id


# --- what is answered ---------------------------------------------------------------------------------------------


def test_repeated_heartbeat_has_the_same_answer_until_a_change():
    coordinator = with_topic()
    (a,) = joined(coordinator, "a")
    first = coordinator.heartbeat("a", a.epoch)
    assert coordinator.heartbeat("a", a.epoch) == first
    coordinator.configure("g", consumer_heartbeat_interval_ms="7000")
    second = coordinator.heartbeat("a", a.epoch)
    assert (first.heartbeat_interval_ms, second.heartbeat_interval_ms) == (5_000, 7_000)
    answered = len(coordinator.journal)
    assert coordinator.heartbeat("a", a.epoch) == second
    assert len(coordinator.journal) == answered, "nothing is written of it"


# --- timers -------------------------------------------------------------------------------------------------------


def test_revocation_timer_lasts_until_partitions_are_revoked():
    coordinator = with_topic()
    (a,) = joined(coordinator, "a")
    Client(coordinator, "b").join()
    coordinator.now_ms += 500
    a.beat()
    assert coordinator.group().members["a"].state is MemberState.UNREVOKED
    due_ms = coordinator.now_ms + REBALANCE_MS
    assert coordinator.timers[timer("revocation", "a")] == due_ms
    coordinator.now_ms += 500
    a.beat()
    assert coordinator.timers[timer("revocation", "a")] == due_ms, "asking again does not put it off"
    a.settle()
    a.beat()
    assert coordinator.group().members["a"].state is MemberState.STABLE
    assert timer("revocation", "a") not in coordinator.timers


# --- static members -----------------------------------------------------------------------------------------------


def test_static_member_away_has_revoked_its_partitions():
    coordinator = with_topic()
    a = Client(coordinator, "a", instance_id="i")
    b = Client(coordinator, "b")
    a.join()
    a.settle()
    b.join()
    a.beat()
    assert coordinator.group().members["a"].state is MemberState.UNREVOKED
    a.leave(for_a_while=True)
    coordinator.restart()
    b.beat()
    coordinator.advance(REBALANCE_MS)
    assert set(coordinator.group().members) == {"a", "b"}, "its rebalance timeout ends with its leave"
    assert len(b.told) == 2


def test_instance_id_has_one_owner_after_a_restart():
    coordinator = with_topic()
    a = Client(coordinator, "a", instance_id="i")
    a.join()
    converge(a)
    a.leave(for_a_while=True)
    again = Client(coordinator, "a2", instance_id="i")
    again.join()
    assert len(again.told) == 4
    assert coordinator.timers.keys() == {timer("session", "a2")}
    restored = coordinator.reloaded().consumer_group("g")
    assert restored.members.keys() == {"a2"}
    assert restored.static_ids == {"i": "a2"}
    assert restored.target.keys() == {"a2"}
    assert restored.members["a2"] == coordinator.group().members["a2"]
