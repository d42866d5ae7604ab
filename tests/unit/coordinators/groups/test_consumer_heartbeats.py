"""ConsumerGroupHeartbeat in detail: what an answer says and when, which timers it sets, what ends with a member."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.coordinators.groups.consumer.membership import SMALL_GROUP_MAX
from barnabas.coordinators.groups.epoch_member import MemberState
from barnabas.wire.generated.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.wire.generated.errors import ErrorCode
from tests.support.consumers import Client, converge, joined, owned_by, partitions_of, with_topic
from tests.support.refusals import code_of

SESSION_MS, REBALANCE_MS = 45_000, 10_000  # the default, and what clients of the harness ask for
JOINING: dict[str, Any] = {
    "rebalance_timeout_ms": REBALANCE_MS, "topic_partitions": [], "subscribed_topic_names": ["t"],
}  # fmt: skip


def timer(name: str, member_id: str) -> tuple[str, str, str]:
    return name, "g", member_id


def reporting(client: Client) -> list[ConsumerGroupHeartbeatRequest.TopicPartitions]:
    by_id: dict[bytes, list[int]] = {}
    for topic_id, partition in sorted(client.owned):
        by_id.setdefault(topic_id, []).append(partition)
    return [
        ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=topic_id, partitions=partitions)
        for topic_id, partitions in by_id.items()
    ]


# --- what is answered ---------------------------------------------------------------------------------------------


def test_the_assignment_is_told_to_who_joins_and_when_it_changes_and_not_again():
    coordinator = with_topic()
    answer = coordinator.heartbeat("a", 0, **JOINING)
    assert answer.assignment is not None
    assert len(owned_by(answer.assignment.topic_partitions)) == 4
    quiet = coordinator.heartbeat("a", answer.member_epoch)
    assert (quiet.member_id, quiet.member_epoch, quiet.heartbeat_interval_ms, quiet.assignment) == (
        "a", answer.member_epoch, answer.heartbeat_interval_ms, None,
    )  # fmt: skip
    coordinator.grow("t", 1)
    changed = coordinator.heartbeat("a", answer.member_epoch)
    assert changed.member_epoch == answer.member_epoch + 1
    assert changed.assignment is not None
    assert len(owned_by(changed.assignment.topic_partitions)) == 5


@pytest.mark.parametrize(
    "left_out", [None, "rebalance_timeout_ms", "subscribed_topic_names", "topic_partitions"]
)
def test_the_assignment_is_told_to_who_says_everything_and_not_if_something_is_left_out(left_out):
    coordinator = with_topic()
    (a,) = joined(coordinator, "a")
    fields: dict[str, Any] = {**JOINING, "topic_partitions": reporting(a)}
    if left_out is not None:
        del fields[left_out]
    answer = coordinator.heartbeat("a", a.epoch, **fields)
    assert (answer.assignment is not None) == (left_out is None)


def test_a_heartbeat_that_is_repeated_is_answered_as_before_until_something_changes():
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


def test_who_joins_again_gets_its_epoch_and_keeps_what_it_has():
    coordinator = with_topic()
    (a,) = joined(coordinator, "a")
    again = coordinator.heartbeat("a", 0, **JOINING)
    assert again.member_epoch == a.epoch
    assert again.assignment is not None
    assert owned_by(again.assignment.topic_partitions) == a.owned
    assert coordinator.group().epoch == a.epoch


# --- subscriptions ------------------------------------------------------------------------------------------------


def test_another_subscription_raises_the_epoch_and_saying_the_same_again_does_not():
    coordinator = with_topic()
    coordinator.create("u", 2)
    (a,) = joined(coordinator, "a")
    epoch = coordinator.group().epoch
    coordinator.heartbeat("a", a.epoch, subscribed_topic_names=["t"], rebalance_timeout_ms=REBALANCE_MS)
    assert coordinator.group().epoch == epoch
    answer = coordinator.heartbeat("a", a.epoch, subscribed_topic_names=["t", "u"])
    assert answer.member_epoch == coordinator.group().epoch == epoch + 1
    assert answer.assignment is not None
    assert len(owned_by(answer.assignment.topic_partitions)) == 6
    assert coordinator.reloaded().consumer_group("g").members["a"].topics == frozenset({"t", "u"})


def test_a_topic_that_nobody_reads_changes_nothing_when_it_comes():
    coordinator = with_topic()
    (a,) = joined(coordinator, "a")
    epoch = coordinator.group().epoch
    coordinator.create("other", 3)
    assert coordinator.heartbeat("a", a.epoch).member_epoch == epoch
    assert coordinator.group().epoch == epoch


def test_an_expression_that_nobody_uses_any_more_is_forgotten():
    coordinator = with_topic()
    a, b = Client(coordinator, "a", topics=(), regex="t.*"), Client(coordinator, "b")
    for client in (a, b):
        client.join()
    converge(a, b)
    assert set(coordinator.group().regexes) == {"t.*"}
    a.leave()
    assert coordinator.group().regexes == {}
    assert coordinator.reloaded().consumer_group("g").regexes == {}


# --- timers -------------------------------------------------------------------------------------------------------


def test_every_heartbeat_gives_a_whole_session_whether_it_says_something_or_not():
    coordinator = with_topic()
    (a,) = joined(coordinator, "a")
    for says in ({}, {"subscribed_topic_names": ["t"]}, {"topic_partitions": reporting(a)}):
        coordinator.now_ms += 1_000
        coordinator.heartbeat("a", a.epoch, **says)
        assert coordinator.timers == {timer("session", "a"): coordinator.now_ms + SESSION_MS}
        assert coordinator.group().epoch == a.epoch


def test_who_must_give_up_has_its_rebalance_timeout_and_no_timer_once_it_has():
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


def test_no_timer_is_left_of_a_member_that_has_gone():
    coordinator = with_topic()
    (a,) = joined(coordinator, "a")
    b = Client(coordinator, "b")
    b.join()
    a.beat()
    epoch = coordinator.group().epoch
    a.leave()
    assert coordinator.timers.keys() == {timer("session", "b")}
    assert coordinator.group().members.keys() == {"b"}
    assert coordinator.group().epoch == epoch + 1
    converge(b)
    assert partitions_of(b) == [0, 1, 2, 3]


# --- static members -----------------------------------------------------------------------------------------------


def test_a_static_member_that_leaves_for_a_while_keeps_its_partitions_and_its_time_runs_on():
    coordinator = with_topic()
    a = Client(coordinator, "a", instance_id="i")
    b = Client(coordinator, "b")
    a.join()
    b.join()
    converge(a, b)
    due_ms = coordinator.timers[timer("session", "a")]
    coordinator.now_ms += 1_000
    held = set(coordinator.group().members["a"].assigned)
    a.leave(for_a_while=True)
    assert coordinator.timers[timer("session", "a")] == due_ms
    assert set(coordinator.group().members["a"].assigned) == held
    for _ in range(3):
        b.beat()
    assert len(b.owned) == 2, "nobody else gets what it has"


def test_a_static_member_that_leaves_for_a_while_has_given_up_what_it_must():
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


def test_who_takes_over_an_instance_is_the_only_one_that_has_it_also_after_a_restart():
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


def test_a_member_that_took_over_an_instance_is_fenced_with_the_old_epoch():
    coordinator = with_topic()
    (a,) = joined(coordinator, "a", instance_id="i")
    epoch = a.epoch
    a.leave(for_a_while=True)
    Client(coordinator, "a2", instance_id="i").join()
    assert code_of(coordinator.heartbeat, "a", epoch, instance_id="i") == ErrorCode.FENCED_INSTANCE_ID


# --- when there is an assignment ----------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [0, 1])
def test_small_groups_are_assigned_at_once_and_larger_ones_when_they_are_at_rest(more):
    coordinator = with_topic(partitions=SMALL_GROUP_MAX - 2 + more)
    coordinator.now_ms = 10_000
    a = Client(coordinator, "a")
    a.join()
    coordinator.now_ms += 1
    Client(coordinator, "b").join()
    assert (coordinator.group().assignment_epoch == coordinator.group().epoch) == (not more)
    coordinator.now_ms += 19
    a.beat()
    assert (coordinator.group().assignment_epoch == coordinator.group().epoch) == (not more)
    coordinator.now_ms += 1
    a.beat()
    assert coordinator.group().assignment_epoch == coordinator.group().epoch


# --- what makes no sense ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fields", [{"rebalance_timeout_ms": 0}, {"subscribed_topic_names": []}])
def test_a_join_with_the_smallest_of_everything_is_taken(fields):
    assert with_topic().heartbeat("a", 0, **{**JOINING, **fields}).error_code == 0


def test_before_version_1_an_id_is_needed_to_stay_and_to_leave_but_not_to_join():
    coordinator = with_topic()
    for epoch, code in ((1, ErrorCode.INVALID_REQUEST), (-1, ErrorCode.INVALID_REQUEST)):
        assert code_of(coordinator.heartbeat, "", epoch, api_version=0) == code
    assert coordinator.heartbeat("", 0, api_version=0, **JOINING).member_epoch == 2


def test_a_member_that_is_not_in_the_group_is_told_so_before_its_epoch_is_looked_at():
    coordinator = with_topic()
    joined(coordinator, "a")
    assert code_of(coordinator.heartbeat, "b", 7) == ErrorCode.UNKNOWN_MEMBER_ID
    assert code_of(coordinator.heartbeat, "b", -1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert code_of(coordinator.heartbeat, "b", 1, instance_id="i") == ErrorCode.UNKNOWN_MEMBER_ID
