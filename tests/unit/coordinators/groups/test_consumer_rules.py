"""Consumer groups and members of the classic protocol in them, rule by rule: each case has one rule alone decide."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.config.features import RecordVersions
from barnabas.coordinators.groups.classic import ClassicGroup
from barnabas.coordinators.groups.consumer import records
from barnabas.coordinators.groups.consumer.group import ConsumerGroup
from barnabas.coordinators.groups.consumer.member import ClassicProtocols, ConsumerMember
from barnabas.coordinators.groups.consumer.membership import Heartbeat, remove
from barnabas.coordinators.groups.consumer.regex import Resolved
from barnabas.coordinators.groups.epoch_group import CLOCK_STEP_MS
from barnabas.coordinators.groups.epoch_member import MemberState, changed
from barnabas.coordinators.groups.group import Committer
from barnabas.coordinators.groups.member import Member as ClassicMember
from barnabas.coordinators.groups.migration import _is_settled, can_upgrade
from barnabas.coordinators.groups.records import is_whole, offset_record
from barnabas.coordinators.groups.settings import GroupSettings, MigrationPolicy
from barnabas.coordinators.groups.streams.assignor import Worker, assign_tasks
from barnabas.coordinators.groups.streams.group import StreamsGroup
from barnabas.coordinators.groups.streams.member import StreamsMember
from barnabas.coordinators.groups.streams.tasks import ACTIVE, STANDBY, WARMUP
from barnabas.coordinators.groups.streams.topology import Shape
from barnabas.coordinators.statemachine.context import EventContext
from barnabas.coordinators.statemachine.decision import Decision
from barnabas.wire.codec import encode_versioned
from barnabas.wire.generated.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.wire.generated.data import consumer_protocol_subscription as subscription
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.records import offset_commit
from barnabas.wire.generated.records.offset_commit import OffsetCommitValue
from tests.support.consumers import Client, Coordinator, with_topic
from tests.support.refusals import code_of
from tests.support.streams import Member as StreamsClient
from tests.support.streams import Streams

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


# --- moving between protocols ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "is_settled"),
    [
        ({}, True),
        ({"epoch": 6}, False),
        ({"a": {"epoch": 4}}, False),
        ({"leaving": {"epoch": 4}}, True),
        ({"a": {"assigned": slots(0, 3)}}, False),
        ({"a": {"assigned": {}}}, False),
        ({"a": {"assigned": slots(0), "revoking": slots(1)}}, True),
        ({"leaving": {"assigned": {}}}, False),
    ],
)
def test_members_need_not_join_again_only_where_all_have_and_know_what_they_shall_have(change, is_settled):
    world = World(member("a", assigned=slots(0, 1)), member("leaving", assigned=slots(2)))
    group = world.group()
    for name, fields in change.items():
        if name == "epoch":
            group.epoch = fields
        else:
            group.put_member(changed(group.members[name], **fields))
    assert _is_settled(group, "leaving") is is_settled


# --- expressions ----------------------------------------------------------------------------------------------------


def test_an_expression_that_is_known_keeps_its_topics_whoever_else_uses_it():
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


# --- who commits ----------------------------------------------------------------------------------------------------

CASES: list[tuple[dict[str, Any], int]] = [
    ({"generation": -1, "transactional": True, "member_id": ""}, 0),
    ({"generation": -1, "transactional": False, "member_id": ""}, ErrorCode.UNKNOWN_MEMBER_ID),
    ({"generation": 5, "transactional": True, "member_id": ""}, ErrorCode.UNKNOWN_MEMBER_ID),
    ({"generation": 0, "transactional": True, "member_id": ""}, ErrorCode.UNKNOWN_MEMBER_ID),
    ({"generation": 5, "transactional": True, "member_id": "a"}, 0),
    ({"generation": 5, "transactional": False, "member_id": "a"}, 0),
    ({"generation": -1, "transactional": True, "member_id": "a"}, ErrorCode.STALE_MEMBER_EPOCH),
    ({"generation": -1, "transactional": False, "member_id": "a"}, ErrorCode.STALE_MEMBER_EPOCH),
    ({"generation": 6, "transactional": True, "member_id": "a"}, ErrorCode.STALE_MEMBER_EPOCH),
    ({"generation": 5, "transactional": False, "member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "code"), CASES)
@pytest.mark.parametrize("kind", ["consumer", "streams"])
def test_who_may_commit_to_a_group_with_members(kind, fields, code):
    world = World(member("a", assigned=slots(0)))
    if kind == "streams":
        world.shard.groups["g"] = group = StreamsGroup("g", world.settings, epoch=5)
        group.put_member(StreamsMember("a", epoch=5, assigned={(ACTIVE, "0", 0): 5}))
    committer = Committer(fields["member_id"], fields["generation"], transactional=fields["transactional"],
                          topic_partitions=[("t", 1)], api_version=10)  # fmt: skip
    if code:
        assert code_of(world.shard.check_commit, "g", committer, 0, Decision()) == code
    else:
        world.shard.check_commit("g", committer, 0, Decision())


@pytest.mark.parametrize("kind", ["consumer", "streams"])
@pytest.mark.parametrize(("generation", "code"), [(-1, 0), (0, ErrorCode.UNKNOWN_MEMBER_ID)])
def test_a_group_without_members_keeps_offsets_for_who_names_no_epoch(kind, generation, code):
    world = World()
    if kind == "streams":
        world.shard.groups["g"] = StreamsGroup("g", world.settings)
    committer = Committer("", generation, api_version=10)
    if code:
        assert code_of(world.shard.check_commit, "g", committer, 0, Decision()) == code
    else:
        world.shard.check_commit("g", committer, 0, Decision())


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


@pytest.mark.parametrize("has_partition_metadata", [True, False])
def test_what_kafka_has_written_of_topics_ends_with_the_next_epoch(has_partition_metadata):
    world = World(member("a", assigned=slots(0)))
    world.group().has_partition_metadata = has_partition_metadata
    context = world.context()
    remove(world.group(), [member("a")], context)
    tombstone = records.partition_metadata_tombstone("g")
    assert (tombstone in context.out.records) is has_partition_metadata


# --- time -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("interval_ms", "assigned_ms", "since_ms", "is_within"),
    [
        (1_000, 50_000, 999, True), (1_000, 50_000, 1_000, False), (1_000, 50_000, 0, True),
        (0, 50_000, 0, False), (1_000, 0, 5, False), (1_000, 50_000, -CLOCK_STEP_MS + 1, True),
        (1_000, 50_000, -CLOCK_STEP_MS, False),
    ],
)  # fmt: skip
def test_the_last_assignment_is_as_long_ago_as_the_clock_says_unless_that_was_set_back(
    interval_ms, assigned_ms, since_ms, is_within
):
    group = World().group()
    group.assigned_ms = assigned_ms
    assert group.was_assigned_within(interval_ms, assigned_ms + since_ms) is is_within


def test_a_target_counts_as_made_when_it_was_written():
    coordinator = with_topic(2)
    coordinator.now_ms = 7_000
    Client(coordinator, "a").join()
    for shard in (coordinator.shard, coordinator.reloaded()):
        group = shard.consumer_group("g")
        assert (group.assignment_epoch, group.assigned_ms) == (group.epoch, 7_000)
    streams = Streams()
    streams.now_ms = 8_000
    client = StreamsClient(streams, "a")
    client.beat()
    client.beat()
    assert streams.streams().assigned_ms == 8_000


# --- tasks ------------------------------------------------------------------------------------------------------------


def test_a_process_has_a_copy_of_a_task_until_the_last_of_its_members_has_given_it_up():
    group = StreamsGroup("g", GroupSettings())
    one = StreamsMember("a", process_id="p", assigned={(ACTIVE, "0", 1): 1}, revoking={(STANDBY, "1", 2): 1})
    other = StreamsMember("b", process_id="p", assigned={(STANDBY, "0", 1): 1})
    for each in (one, other):
        group.put_member(each)
    assert group.copies == {("p", ("0", 1)): 2, ("p", ("1", 2)): 1}
    assert group.active == {("0", 1): "p"}
    group.put_member(StreamsMember("c", process_id="q", assigned={(WARMUP, "0", 1): 1}))
    group.drop_member("a")
    assert group.copies == {("p", ("0", 1)): 1, ("q", ("0", 1)): 1}
    assert group.active == {}
    taken = group.taken("p")
    assert (STANDBY, "0", 1) in taken
    assert (STANDBY, "1", 2) not in taken
    group.drop_member("b")
    group.drop_member("c")
    assert (group.copies, group.active) == ({}, {})


def test_who_runs_a_task_is_the_last_that_was_given_it():
    group = StreamsGroup("g", GroupSettings())
    group.put_member(StreamsMember("a", process_id="p", revoking={(ACTIVE, "0", 1): 1}))
    group.put_member(StreamsMember("b", process_id="q", assigned={(ACTIVE, "0", 1): 1}))
    group.drop_member("a")
    assert group.active == {("0", 1): "q"}


def test_active_tasks_are_shared_out_by_themselves_whatever_copies_there_are():
    """Copies do not count where active tasks stay, and active tasks count where copies stay."""
    shapes = {"0": Shape(4, False, frozenset()), "1": Shape(4, True, frozenset())}
    had = frozenset({(ACTIVE, name, number) for name in "01" for number in range(4)})
    workers = [Worker("a", "p", had), Worker("b", "q"), Worker("c", "r")]
    target = assign_tasks(workers, shapes, 1)
    counts = {
        role: sorted(sum(task[0] == role for task in tasks) for tasks in target.values())
        for role in (ACTIVE, STANDBY)
    }
    assert counts[ACTIVE] == [2, 3, 3]
    assert sum(counts[STANDBY]) == 4
    assert sorted(map(len, target.values())) == [4, 4, 4]
    assert target["a"] & had == {task for task in target["a"] if task[0] == ACTIVE}


# --- leaving for a while ------------------------------------------------------------------------------------------


def test_a_static_member_that_is_away_is_waited_for_although_it_had_to_give_something_up():
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
def test_a_member_that_is_away_is_not_one_that_has_missed_an_answer(
    epoch, previous, asked, is_good, reported
):
    one = member("a", epoch=epoch, previous_epoch=previous, assigned=slots(0, 1))
    if is_good:
        one.check_epoch(asked, reported)
    else:
        assert code_of(one.check_epoch, asked, reported) == ErrorCode.FENCED_MEMBER_EPOCH


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
def test_each_condition_of_becoming_a_consumer_group_counts_by_itself(policy, protocol_type, size_max, can):
    settings = GroupSettings(migration_policy=MigrationPolicy(policy), consumer_size_max=size_max)
    group = ClassicGroup("g", settings)
    group.protocol_type = protocol_type
    for name in "ab":
        group.members.put(ClassicMember(name, None, "", "", 9, 9, [("range", SAID)]))
    assert can_upgrade(group) is can


@pytest.mark.parametrize(("expires_ms", "is_kept"), [(-1, True), (0, False), (1, False)])
@pytest.mark.parametrize("version", [1, 2, 3])
def test_an_offset_that_expires_by_itself_or_is_written_in_an_old_version_is_read_as_it_was_written(
    expires_ms, version, is_kept
):
    versions = RecordVersions(offset_commit=version)
    value = OffsetCommitValue(offset=5, leader_epoch=3, expire_timestamp=expires_ms)
    assert is_whole(value, versions) is (is_kept and version == 3)
    _, data = offset_record("g", "t", 0, value, versions)
    assert data is not None
    read = offset_commit.RECORD.decode_value(data)
    assert read.expire_timestamp == expires_ms
    assert (read == value) is is_whole(value, versions)


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
def test_only_a_heartbeat_that_says_nothing_may_find_its_member_content(fields):
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
