"""A consumer group (KIP-848), heartbeat by heartbeat, without a broker."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from barnabas.coordinators.groups.consumer import records
from barnabas.coordinators.groups.consumer.membership import (
    EPOCH_OF_NEW,
    LARGE_INTERVAL_MS,
    REST_SIZE_PER_MS,
    SMALL_GROUP_MAX,
)
from barnabas.coordinators.groups.epoch_member import MemberState
from barnabas.wire.generated.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.records import consumer_group_partition_metadata as partition_metadata
from tests.support.consumers import Client, converge, joined, partitions_of, with_topic
from tests.support.refusals import code_of

JOINING: dict[str, Any] = {
    "rebalance_timeout_ms": 5_000,
    "subscribed_topic_names": ["t"],
    "topic_partitions": [],
}


# --- assigning and moving -----------------------------------------------------------------------------------


def test_group_without_subscriptions_stays_in_its_first_epoch() -> None:
    coordinator = with_topic()
    nothing = {**JOINING, "subscribed_topic_names": []}
    assert coordinator.heartbeat("a", 0, **nothing).member_epoch == EPOCH_OF_NEW
    assert coordinator.heartbeat("b", 0, **JOINING).member_epoch == EPOCH_OF_NEW + 1


def test_a_slot_is_given_on_only_when_its_owner_has_given_it_up() -> None:
    coordinator = with_topic()
    (a,) = joined(coordinator, "a")
    b = Client(coordinator, "b")
    b.join()
    assert b.told == set()
    assert coordinator.state() == "Reconciling"
    assert coordinator.group().members["b"].state is MemberState.UNRELEASED
    a.beat()
    assert len(a.told) == 2
    assert a.epoch == 2, "it stays in its epoch until it has given up what it must"
    b.beat()
    assert b.told == set(), "a has been told, and has not said yet that it has done so"
    a.settle()
    a.beat()
    assert a.epoch == 3
    b.beat()
    assert len(b.told) == 2
    assert not a.told & b.told
    assert coordinator.state() == "Stable"


def test_many_who_come_together_are_assigned_together() -> None:
    count = SMALL_GROUP_MAX // 2
    coordinator = with_topic(count)
    coordinator.now_ms = 1_000_000
    first = [Client(coordinator, f"m{number}") for number in range(count)]
    for client in first:
        client.join()
    group, at_once = coordinator.group(), EPOCH_OF_NEW + count
    assert group.assignment_epoch == group.epoch == at_once
    late = [Client(coordinator, f"late{number}") for number in range(3)]
    for client in late:
        client.join()
    group = coordinator.group()
    assert (group.epoch, group.assignment_epoch) == (at_once + 3, at_once)
    assert coordinator.state() == "Assigning"
    rest_ms = (len(group.members) + count) // REST_SIZE_PER_MS
    coordinator.advance(rest_ms - 1)
    late[0].beat()
    assert coordinator.group().assignment_epoch == at_once, "another one may be about to come"
    coordinator.advance(1)
    late[0].beat()
    assert coordinator.group().assignment_epoch == at_once + 3
    converge(*first, *late)
    assert sorted(len(client.owned) for client in (*first, *late)) == [0] * 3 + [1] * count
    assert coordinator.state() == "Stable"


def test_few_with_very_many_partitions_are_assigned_together() -> None:
    coordinator = with_topic(5 * SMALL_GROUP_MAX)
    coordinator.now_ms = 1_000_000
    clients = [Client(coordinator, f"m{number}") for number in range(3)]
    for client in clients:
        client.join()
    assert len(clients[0].told) == 5 * SMALL_GROUP_MAX, "the first assignment waits for nothing"
    assert coordinator.group().assignment_epoch == EPOCH_OF_NEW + 1
    assert coordinator.state() == "Assigning"
    coordinator.advance((3 + 5 * SMALL_GROUP_MAX) // REST_SIZE_PER_MS)
    converge(*clients)
    owned = [len(client.owned) for client in clients]
    assert sum(owned) == 5 * SMALL_GROUP_MAX
    assert max(owned) - min(owned) <= 1
    assert coordinator.group().assignment_epoch == EPOCH_OF_NEW + 3


def test_those_who_keep_coming_are_assigned_after_a_second() -> None:
    coordinator = with_topic(1)
    coordinator.now_ms = 1_000_000
    for number in range(SMALL_GROUP_MAX - 1):
        Client(coordinator, f"m{number}").join()
    assigned_ms = coordinator.group().assigned_ms
    step_ms, seen = SMALL_GROUP_MAX // REST_SIZE_PER_MS - 1, []
    for number in range(3 * LARGE_INTERVAL_MS // step_ms // 2):
        coordinator.advance(step_ms)
        Client(coordinator, f"late{number}").join()
        if (now_ms := coordinator.group().assigned_ms) != assigned_ms:
            seen.append(now_ms - assigned_ms)
            assigned_ms = now_ms
    assert len(seen) == 1
    assert LARGE_INTERVAL_MS <= seen[0] < LARGE_INTERVAL_MS + step_ms


def test_a_group_is_assigned_once_in_its_interval() -> None:
    coordinator = with_topic(2, consumer_assignment_interval_ms=1_000)
    coordinator.now_ms = 1_000_000
    a, b = Client(coordinator, "a"), Client(coordinator, "b")
    a.join()
    assert len(a.told) == 2, "the first assignment waits for nothing"
    coordinator.advance(999)
    b.join()
    assert coordinator.state() == "Assigning"
    coordinator.advance(1)
    b.beat()
    converge(a, b)
    assert [len(client.owned) for client in (a, b)] == [1, 1]


@pytest.mark.parametrize("ids", [2, SMALL_GROUP_MAX + 3])
def test_clock_set_back_delays_no_assignment(ids: int) -> None:
    coordinator = with_topic(ids, consumer_assignment_interval_ms=1_000)
    coordinator.now_ms = 1_000_000_000
    clients = [Client(coordinator, f"m{number}") for number in range(ids)]
    for client in clients:
        client.join()
    coordinator.now_ms -= 3_600_000
    converge(*clients)
    assert [len(client.owned) for client in clients] == [1] * ids


def test_a_request_that_comes_late_does_not_set_the_clock_back() -> None:
    coordinator = with_topic(2, consumer_assignment_interval_ms=1_000)
    coordinator.now_ms = 1_000_000
    Client(coordinator, "a").join()
    coordinator.now_ms -= 400
    Client(coordinator, "b").join()
    assert coordinator.state() == "Assigning"


def test_a_group_may_have_an_interval_of_its_own() -> None:
    coordinator = with_topic(2, consumer_assignment_interval_ms=1_000)
    coordinator.now_ms = 1_000_000
    coordinator.configure("g", consumer_assignment_interval_ms="5000")
    a, b = Client(coordinator, "a"), Client(coordinator, "b")
    a.join()
    coordinator.advance(4_999)
    b.join()
    assert coordinator.state() == "Assigning"
    coordinator.advance(1)
    b.beat()
    assert coordinator.state() != "Assigning"


def test_topics_that_change_are_noticed_with_the_next_heartbeat() -> None:
    coordinator = with_topic(2)
    (a,) = joined(coordinator, "a", topics=("t", "later"))
    coordinator.grow("t", 1)
    converge(a)
    assert partitions_of(a) == [0, 1, 2]
    coordinator.create("later", 1)
    converge(a)
    assert len(a.owned) == 4
    coordinator.delete("t")
    converge(a)
    assert len(a.owned) == 1
    epoch = coordinator.group().epoch
    coordinator.create("of no interest", 1)
    converge(a)
    assert coordinator.group().epoch == epoch


def test_a_topic_made_again_is_another_topic() -> None:
    coordinator = with_topic(1)
    (a,) = joined(coordinator, "a")
    before = set(a.owned)
    coordinator.delete("t")
    coordinator.create("t", 1)
    converge(a)
    assert len(a.owned) == 1
    assert a.owned != before


def test_expressions_match_whole_names_and_new_topics() -> None:
    coordinator = with_topic(1)
    (a,) = joined(coordinator, "a", topics=(), regex="t|log-.*")
    coordinator.create("log-1", 1)
    coordinator.create("xlog-1", 1)
    converge(a)
    assert coordinator.group().subscribed_topics() == {"t", "log-1"}
    a.topics, a.regex = ("xlog-1",), ""
    a.beat(full=True)
    converge(a)
    assert coordinator.group().regexes == {}
    assert coordinator.group().subscribed_topics() == {"xlog-1"}


def test_the_assignor_that_most_members_ask_for_is_taken() -> None:
    coordinator = with_topic(3)
    a, b, c = (Client(coordinator, name, assignor="range") for name in "abc")
    for client in (a, b, c):
        client.join()
    converge(a, b, c)
    assert coordinator.group().assignor_name(coordinator.group().members.values()) == "range"
    assert [partitions_of(client) for client in (a, b, c)] == [[0], [1], [2]]


# --- refusing -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"topic_partitions": None}, ErrorCode.INVALID_REQUEST),
        (
            {"topic_partitions": [ConsumerGroupHeartbeatRequest.TopicPartitions(partitions=[1])]},
            ErrorCode.INVALID_REQUEST,
        ),
        ({"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": " "}, ErrorCode.INVALID_REQUEST),
        ({"server_assignor": "sticky"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"subscribed_topic_regex": "(?=x)"}, ErrorCode.INVALID_REGULAR_EXPRESSION),
    ],
)
def test_a_join_that_makes_no_sense_is_refused(fields: dict[str, Any], code: int) -> None:
    coordinator = with_topic()
    assert code_of(coordinator.heartbeat, "a", 0, **{**JOINING, **fields}) == code
    assert coordinator.journal == []
    assert coordinator.shard.groups == {}


def test_the_fields_of_later_heartbeats_are_checked() -> None:
    coordinator = with_topic()
    joined(coordinator, "a")
    assert code_of(coordinator.heartbeat, "", 1) == ErrorCode.INVALID_REQUEST
    assert code_of(coordinator.heartbeat, "a", -3) == ErrorCode.INVALID_REQUEST
    assert code_of(coordinator.heartbeat, "a", -2) == ErrorCode.INVALID_REQUEST
    assert code_of(coordinator.heartbeat, "", 0, **JOINING) == ErrorCode.INVALID_REQUEST


def test_before_version_1_the_coordinator_makes_the_member_id() -> None:
    coordinator = with_topic()
    response = coordinator.heartbeat("", 0, api_version=0, **JOINING)
    assert response.member_id == "made-by-coordinator"


def test_members_and_groups_that_are_not_there_are_told_so() -> None:
    coordinator = with_topic()
    assert code_of(coordinator.heartbeat, "a", 1) == ErrorCode.GROUP_ID_NOT_FOUND
    assert code_of(coordinator.heartbeat, "a", -1) == ErrorCode.GROUP_ID_NOT_FOUND
    joined(coordinator, "a")
    assert code_of(coordinator.heartbeat, "b", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert code_of(coordinator.heartbeat, "b", -1) == ErrorCode.UNKNOWN_MEMBER_ID


# --- static members -----------------------------------------------------------------------------------------


def test_returning_static_member_keeps_partitions_and_epoch() -> None:
    coordinator = with_topic()
    a = Client(coordinator, "a", instance_id="i")
    b = Client(coordinator, "b")
    a.join()
    b.join()
    converge(a, b)
    held, epoch = set(a.owned), coordinator.group().epoch
    a.leave(for_a_while=True)
    assert coordinator.group().members["a"].epoch == -2
    again = Client(coordinator, "a2", instance_id="i")
    again.join()
    assert again.told == held
    assert coordinator.group().epoch == epoch
    assert set(coordinator.group().members) == {"b", "a2"}


def test_instance_id_takes_its_partitions_along() -> None:
    coordinator = with_topic()
    a = Client(coordinator, "a", instance_id="i")
    b = Client(coordinator, "b")
    a.join()
    b.join()
    converge(a, b)
    its_own = set(a.owned)
    a.leave(for_a_while=True)
    b.instance_id = "i"
    b.join()
    assert b.told == its_own
    converge(b)
    assert len(b.owned) == 4, "what it had before is nobody's now"


# --- time ---------------------------------------------------------------------------------------------------


def test_a_member_that_does_not_give_up_in_time_is_removed() -> None:
    coordinator = with_topic()
    (a,) = joined(coordinator, "a", rebalance_timeout_ms=3_000)
    b = Client(coordinator, "b")
    b.join()
    a.beat()
    coordinator.advance(2_999)
    assert a.beat() == 0
    coordinator.advance(1)
    assert set(coordinator.group().members) == {"b"}
    converge(b)
    assert partitions_of(b) == [0, 1, 2, 3]


def test_a_group_can_have_timeouts_of_its_own() -> None:
    coordinator = with_topic()
    coordinator.configure("g", consumer_session_timeout_ms="50000", consumer_heartbeat_interval_ms="7000")
    assert coordinator.heartbeat("a", 0, **JOINING).heartbeat_interval_ms == 7_000
    coordinator.advance(49_999)
    assert coordinator.state() == "Stable"
    coordinator.advance(1)
    assert coordinator.state() == "Empty"


def test_restart_gives_whole_timeouts_and_resumes() -> None:
    coordinator = with_topic()
    a, b = joined(coordinator, "a", "b")
    coordinator.advance(44_000)
    coordinator.restart()
    coordinator.advance(44_999)
    assert a.beat() == b.beat() == 0
    assert coordinator.state() == "Stable"


def test_who_had_to_give_up_slots_before_a_restart_still_has_to() -> None:
    coordinator = with_topic()
    (a,) = joined(coordinator, "a", rebalance_timeout_ms=3_000)
    Client(coordinator, "b").join()
    a.beat()
    coordinator.restart()
    assert coordinator.group().members["a"].state is MemberState.UNREVOKED
    coordinator.advance(3_000)
    assert set(coordinator.group().members) == {"b"}


# --- records ------------------------------------------------------------------------------------------------


def test_partitions_without_epochs_have_the_members_epoch() -> None:
    coordinator = with_topic()
    joined(coordinator, "a")
    member = coordinator.group().members["a"]
    written = records.current_assignment.RECORD.decode_value(
        records.current_record("g", replace(member, epoch=5))[1] or b""
    )
    for topic in written.assigned_partitions:
        topic.assignment_epochs = None
    assert set(records.partitions_with_epochs(written.assigned_partitions, 5).values()) == {5}


def test_what_kafka_wrote_of_partitions_ends_with_the_next_epoch() -> None:
    coordinator = with_topic()
    (a,) = joined(coordinator, "a")
    key = partition_metadata.RECORD.encode_key(
        partition_metadata.ConsumerGroupPartitionMetadataKey(group_id="g")
    )
    value = partition_metadata.RECORD.encode_value(partition_metadata.ConsumerGroupPartitionMetadataValue())
    coordinator.shard.replay(key, value, loading=True)
    assert coordinator.group().has_partition_metadata
    coordinator.grow("t", 1)
    converge(a)
    assert (key, None) in coordinator.journal
    assert not coordinator.group().has_partition_metadata


def test_a_state_that_is_not_known_makes_the_member_join_again() -> None:
    coordinator = with_topic()
    (a,) = joined(coordinator, "a")
    group = coordinator.group()
    group.put_member(replace(group.members["a"], state=MemberState.UNKNOWN))
    assert a.beat() == ErrorCode.FENCED_MEMBER_EPOCH
    a.join()
    converge(a)
    assert partitions_of(a) == [0, 1, 2, 3]
    assert coordinator.state() == "Stable"
