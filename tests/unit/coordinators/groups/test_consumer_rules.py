"""Consumer groups and members of the classic protocol in them, rule by rule: each case has one rule alone decide."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.coordinators.groups.classic import ClassicGroup
from barnabas.coordinators.groups.consumer import records
from barnabas.coordinators.groups.consumer.group import ConsumerGroup
from barnabas.coordinators.groups.consumer.member import ClassicProtocols, ConsumerMember
from barnabas.coordinators.groups.consumer.membership import Heartbeat
from barnabas.coordinators.groups.consumer.regex import Resolved
from barnabas.coordinators.groups.epoch_member import MemberState, changed
from barnabas.coordinators.groups.group import Committer
from barnabas.coordinators.groups.member import Member as ClassicMember
from barnabas.coordinators.groups.migration import can_upgrade
from barnabas.coordinators.groups.settings import GroupSettings, MigrationPolicy
from barnabas.coordinators.statemachine.context import EventContext
from barnabas.coordinators.statemachine.decision import Decision
from barnabas.wire.codec import encode_versioned
from barnabas.wire.generated.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.wire.generated.data import consumer_protocol_subscription as subscription
from barnabas.wire.generated.errors import ErrorCode
from tests.support.consumers import Client, Coordinator, joined, with_topic
from tests.support.refusals import code_of

TOPIC = (1).to_bytes(16, "big")
SAID = encode_versioned(subscription.CODEC, subscription.ConsumerProtocolSubscription(topics=["t"]), 1)
PROTOCOLS = ClassicProtocols(9_000, (("range", SAID),))


def slots(*partitions: int, since: int = 5) -> dict[tuple[bytes, int], int]:
    return {(TOPIC, partition): since for partition in partitions}


class World(Coordinator):
    """A group g in epoch 5, target epoch 5, of members that the test puts in."""

    def __init__(self, *members: ConsumerMember, **settings: Any) -> None:
        super().__init__(GroupSettings(**{"consumer_assignment_interval_ms": 0, **settings}))
        self.create("t", 4)
        self.now_ms = 1_000
        self.shard.groups["g"] = ConsumerGroup("g", self.settings, epoch=5, assignment_epoch=5)
        for member in members:
            self.group().put_member(member)
            self.group().put_target(member.id, frozenset(member.assigned))

    def context(self) -> EventContext:
        return EventContext(self.image, self.now_ms, Decision())


def member(id: str = "a", *, classic: bool = False, **fields: Any) -> ConsumerMember:
    values = {
        "epoch": 5,
        "previous_epoch": 4,
        "rebalance_timeout_ms": 7_000,
        "topics": frozenset({"t"}),
    } | fields
    return ConsumerMember(id, classic=PROTOCOLS if classic else None, **values)


# --- expressions ----------------------------------------------------------------------------------------------------


def test_resolved_expression_keeps_its_topics_for_others():
    """A member that may describe fewer topics changes nothing for others until the topics change."""
    coordinator = with_topic(2)

    def join(member_id: str, **allowed: Any) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id="g", member_id=member_id, member_epoch=0, rebalance_timeout_ms=5_000,
            subscribed_topic_regex="t.*", topic_partitions=[],
        )  # fmt: skip
        beat = Heartbeat(request, "c", "/h", "new", **allowed)
        coordinator.write(lambda shard, out: shard.consumer_heartbeat(beat, coordinator.now_ms, out))

    join("a")
    assert coordinator.group().regexes["t.*"].topics == {"t"}
    coordinator.group().topics_seen = coordinator.image.topics
    records_before = len(coordinator.journal)
    join("b", may_describe=lambda name: False)
    assert coordinator.group().regexes["t.*"].topics == {"t"}
    keys = [key for key, _ in coordinator.journal[records_before:]]
    resolved = coordinator.group().regexes["t.*"]
    assert records.regex_record("g", "t.*", resolved)[0] not in keys
    coordinator.create("t2", 1)
    join("c", may_describe=lambda name: name == "t2")
    assert coordinator.group().regexes["t.*"].topics == {"t2"}


# --- ending -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("has_partition_metadata", [True, False])
def test_all_that_was_written_of_a_group_ends_with_it(has_partition_metadata):
    """Also what Kafka before 4.1 has written, also targets of members that are gone; the group itself comes last."""
    world = World(member("a", assigned=slots(0)))
    group = world.group()
    group.put_target("gone", frozenset(slots(1)))
    group.regexes["t.*"] = Resolved(frozenset({"t"}), 1, 1)
    group.has_partition_metadata = has_partition_metadata
    out = Decision()
    group.end(out)
    expected = [
        *(records.member_tombstones("g", "a") + records.member_tombstones("g", "gone")),
        records.regex_tombstone("g", "t.*"), records.target_epoch_tombstone("g"),
        *([records.partition_metadata_tombstone("g")] if has_partition_metadata else []),
        records.epoch_tombstone("g"),
    ]  # fmt: skip
    assert sorted(out.records) == sorted(expected)
    assert out.records[-1] == records.epoch_tombstone("g")
    assert {value for _, value in out.records} == {None}


# --- leaving for a while ------------------------------------------------------------------------------------------


def test_static_member_away_has_its_whole_session_timeout():
    """Its rebalance timeout is shorter than its session timeout."""
    coordinator = with_topic(4)
    a = Client(coordinator, "a", instance_id="i", rebalance_timeout_ms=2_000)
    a.join()
    a.settle()
    b = Client(coordinator, "b")
    b.join()
    a.beat()
    assert coordinator.group().members["a"].state is MemberState.UNREVOKED
    coordinator.heartbeat("a", -2, instance_id="i")
    coordinator.advance(10_000)
    assert "a" in coordinator.group().members
    away = coordinator.group().members["a"]
    assert (away.epoch, away.revoking) == (-2, {})
    assert coordinator.reloaded().consumer_group("g").members["a"] == away
    coordinator.restart()
    coordinator.advance(10_000)
    assert "a" in coordinator.group().members
    b.beat()
    assert len(b.told) == 2, "what it had to give up, it has"


@pytest.mark.parametrize(
    ("epoch", "previous", "asked", "is_good"),
    [
        (5, 4, 5, True),
        (5, 4, 4, True),
        (5, 4, 3, False),
        (5, 4, 6, False),
        (-2, 4, 4, False),
        (-2, 4, 5, False),
    ],
)
@pytest.mark.parametrize("reported", [frozenset(), frozenset(slots(0))])
def test_member_away_is_not_one_that_missed_an_answer(epoch, previous, asked, is_good, reported):
    reporting = member("a", epoch=epoch, previous_epoch=previous, assigned=slots(0, 1))
    if is_good:
        reporting.check_epoch(asked, reported)
    else:
        assert code_of(reporting.check_epoch, asked, reported) == ErrorCode.FENCED_MEMBER_EPOCH


@pytest.mark.parametrize(
    ("policy", "protocol_type", "size_max", "can"),
    [
        ("bidirectional", "consumer", 2, True),
        ("upgrade", "consumer", 3, True),
        ("downgrade", "consumer", 3, False),
        ("disabled", "consumer", 3, False),
        ("upgrade", "connect", 3, False),
        ("upgrade", "consumer", 1, False),
    ],
)
def test_upgrade_needs_each_of_its_conditions(policy, protocol_type, size_max, can):
    settings = GroupSettings(migration_policy=MigrationPolicy(policy), consumer_size_max=size_max)
    group = ClassicGroup("g", settings)
    group.protocol_type = protocol_type
    for name in "ab":
        group.members.put(ClassicMember(name, None, "", "", 9, 9, [("range", SAID)]))
    assert can_upgrade(group) is can


# --- heartbeats that find nothing new -----------------------------------------------------------------------------


def content() -> tuple[Coordinator, int]:
    """A group in which a member has what it is to have, and its epoch."""
    coordinator = with_topic(2)
    client = Client(coordinator, "a")
    client.join()
    client.settle()
    client.beat()
    client.beat()
    return coordinator, client.epoch


def beat_of(epoch: int, **fields: Any) -> Heartbeat:
    client_id = str(fields.pop("client_id", "client"))
    return Heartbeat(
        ConsumerGroupHeartbeatRequest(**{"group_id": "g", "member_id": "a", "member_epoch": epoch} | fields),
        client_id, "/host", "new",
    )  # fmt: skip


@pytest.mark.parametrize(
    "fields",
    [
        {}, {"group_id": "h"}, {"member_id": "b"}, {"instance_id": "i"}, {"topic_partitions": []}, {"rack_id": "r"},
        {"rebalance_timeout_ms": 5}, {"subscribed_topic_names": ["t"]}, {"subscribed_topic_regex": ""},
        {"server_assignor": "range"}, {"client_id": "other"},
    ],
    ids=str,
)  # fmt: skip
def test_only_an_empty_heartbeat_can_be_up_to_date(fields):
    coordinator, epoch = content()
    for off in (-1, 0, 1):
        beat = beat_of(epoch + off, **fields)
        is_content = not fields and not off
        assert coordinator.shard.is_up_to_date(beat, coordinator.now_ms) is is_content
        assert (beat.unchanged is coordinator.group().members["a"]) is is_content


def test_no_member_is_content_whose_group_has_to_move_on():
    coordinator, epoch = content()
    Client(coordinator, "b").join()
    assert not coordinator.shard.is_up_to_date(beat_of(epoch), coordinator.now_ms)
    coordinator, epoch = content()
    coordinator.create("u", 1)
    assert not coordinator.shard.is_up_to_date(beat_of(epoch), coordinator.now_ms)
    coordinator, epoch = content()
    coordinator.group().put_member(changed(coordinator.group().members["a"], state=MemberState.UNRELEASED))
    assert not coordinator.shard.is_up_to_date(beat_of(epoch), coordinator.now_ms)


def test_a_member_that_says_again_what_is_known_writes_nothing():
    coordinator, epoch = content()
    before = list(coordinator.journal)
    group = coordinator.group()
    owned = [ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=TOPIC, partitions=[0, 1])]
    coordinator.heartbeat(
        "a", epoch, rebalance_timeout_ms=10_000, subscribed_topic_names=["t"], topic_partitions=owned
    )
    assert coordinator.journal == before
    assert coordinator.group().epoch == group.epoch == epoch


@pytest.mark.parametrize(
    ("member_id", "generation", "transactional", "code"),
    [
        ("", -1, True, 0),
        ("", -1, False, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", 5, True, ErrorCode.UNKNOWN_MEMBER_ID),
        ("a", 5, False, 0),
        ("a", -1, True, ErrorCode.STALE_MEMBER_EPOCH),
        ("a", 6, True, ErrorCode.STALE_MEMBER_EPOCH),
        ("nobody", 5, False, ErrorCode.UNKNOWN_MEMBER_ID),
        ("c", 5, False, 0),
        ("c", 4, False, ErrorCode.ILLEGAL_GENERATION),
    ],
)
def test_commit_needs_a_member_in_its_epoch_or_generation(member_id, generation, transactional, code):
    world = World(member("a", epoch=5), member("c", epoch=5, classic=True))
    committer = Committer(
        member_id, generation, transactional=transactional, topic_partitions=[("t", 1)], api_version=10
    )
    if code:
        assert code_of(world.shard.check_commit, "g", committer, 0, Decision()) == code
    else:
        world.shard.check_commit("g", committer, 0, Decision())


def test_another_preferred_assignor_begins_an_epoch():
    coordinator = Coordinator()
    a, b = joined(coordinator, "a", "b")
    epoch = coordinator.group().epoch
    coordinator.heartbeat("a", a.epoch, server_assignor="uniform")  # which is that of the broker
    assert coordinator.group().epoch == epoch
    coordinator.heartbeat("a", a.epoch, server_assignor="range")
    assert coordinator.group().epoch == epoch + 1
    coordinator.heartbeat("b", b.epoch, server_assignor="range")
    assert coordinator.group().epoch == epoch + 1
