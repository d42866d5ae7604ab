"""Every record that a group writes: each value is in the field that is named for it, and comes back from there."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

import pytest

from barnabas.cluster.metadata.image import ClusterImage
from barnabas.config.features import RecordVersions
from barnabas.coordinators.groups.consumer import records as of_consumers
from barnabas.coordinators.groups.consumer.member import ClassicProtocols, ConsumerMember
from barnabas.coordinators.groups.consumer.regex import Resolved
from barnabas.coordinators.groups.epoch_member import MemberState
from barnabas.coordinators.groups.records import offset_record, offset_tombstone
from barnabas.coordinators.groups.settings import GroupSettings
from barnabas.coordinators.groups.shard import GroupShard
from barnabas.coordinators.groups.share import records as of_shares
from barnabas.coordinators.groups.share.member import ShareMember
from barnabas.coordinators.groups.share.topic_states import TopicStates
from barnabas.coordinators.groups.streams import records as of_streams
from barnabas.coordinators.groups.streams.member import StreamsMember
from barnabas.coordinators.statemachine.decision import Record
from barnabas.wire import registry
from barnabas.wire.codec import record_type_id
from barnabas.wire.generated.records import offset_commit
from barnabas.wire.generated.records.offset_commit import OffsetCommitValue
from barnabas.wire.generated.records.streams_group_topology import StreamsGroupTopologyValue

GROUP, MEMBER = "the-group", "the-member"
T, U = b"t" * 16, b"u" * 16
CONSUMER = ConsumerMember(
    MEMBER, instance_id="the-instance", rack_id="the-rack", client_id="the-client", client_host="the-host",
    rebalance_timeout_ms=21, epoch=22, previous_epoch=23, state=MemberState.UNREVOKED,
    assigned={(T, 1): 24}, revoking={(U, 2): 25}, topics=frozenset({"a", "b"}), regex="the-regex",
    server_assignor="the-assignor", classic=ClassicProtocols(26, (("range", b"said"), ("sticky", b"other"))),
)  # fmt: skip
STREAMS = StreamsMember(
    MEMBER, instance_id="the-instance", rack_id="the-rack", client_id="the-client", client_host="the-host",
    rebalance_timeout_ms=21, epoch=22, previous_epoch=23, state=MemberState.UNREVOKED,
    assigned={("active", "s", 1): 24, ("standby", "s", 2): 27, ("warmup", "s", 3): 28},
    revoking={("active", "s", 4): 25, ("standby", "s", 5): 29, ("warmup", "s", 6): 30},
    topology_epoch=31, process_id="the-process", endpoint=("the-endpoint", 32), client_tags=(("zone", "x"),),
)  # fmt: skip
SHARE = ShareMember(
    MEMBER, "the-rack", "the-client", "the-host", frozenset({"a", "b"}), 22, 23, frozenset({(T, 1), (U, 2)})
)
KNOWN = TopicStates(
    {T: frozenset({1})}, {U: frozenset({2, 3})}, frozenset({b"v" * 16}), {T: "t", U: "u", b"v" * 16: "v"}
)
GIVEN: dict[str, Any] = {
    "group_id": GROUP, "member_id": MEMBER, "epoch": 11, "topics_hash": 12, "now_ms": 13, "validated_epoch": 14,
    "settings": {"one": "1", "two": "2"}, "regex": "the-regex", "resolved": Resolved(frozenset({"a"}), 15, 16),
    "topic_partitions": [(T, 1), (U, 2)], "tasks": [("active", "s", 1), ("standby", "s", 2), ("warmup", "s", 3)],
    "topic_states": KNOWN, "value": StreamsGroupTopologyValue(epoch=31),
}  # fmt: skip
"""Arguments of the functions of records, by the names of their parameters."""


def decoded(record: Record) -> tuple[Any, Any]:
    key, value = record
    kind = registry.record_type("__consumer_offsets", record_type_id(key))
    return kind.decode_key(key), None if value is None else kind.decode_value(value)


def replayed(*written: Record) -> GroupShard:
    class Nothing:
        image = ClusterImage("")

    shard = GroupShard(GroupSettings(), Nothing())  # type: ignore[arg-type]
    for key, value in written:
        shard.replay(key, value, loading=True)
    return shard


def same(actual: object, expected: object) -> None:
    assert is_dataclass(actual)
    for field in fields(actual):
        assert getattr(actual, field.name) == getattr(expected, field.name), field.name


def test_consumer_member_fields_survive_replay():
    r = of_consumers
    shard = replayed(
        r.epoch_record(GROUP, 11, 12), r.member_record(GROUP, CONSUMER), r.current_record(GROUP, CONSUMER),
        r.target_record(GROUP, MEMBER, [(T, 1), (U, 2)]), r.target_epoch_record(GROUP, 10, 13),
        r.regex_record(GROUP, "the-regex", GIVEN["resolved"]),
    )  # fmt: skip
    group = shard.consumer_group(GROUP)
    same(CONSUMER, group.members[MEMBER])
    assert (group.epoch, group.topics_hash, group.assignment_epoch) == (11, 12, 10)
    assert group.target == {MEMBER: frozenset({(T, 1), (U, 2)})}
    assert group.regexes == {"the-regex": GIVEN["resolved"]}
    assert group.static_ids == {"the-instance": MEMBER}
    for key, value in of_consumers.member_tombstones(GROUP, MEMBER):
        shard.replay(key, value, loading=True)
    assert (group.members, group.target, group.static_ids) == ({}, {}, {})


def test_streams_member_fields_survive_replay():
    r = of_streams
    shard = replayed(
        r.epoch_record(GROUP, 11, 12, 14, {"one": "1"}), r.member_record(GROUP, STREAMS), r.current_record(GROUP, STREAMS),
        r.target_record(GROUP, MEMBER, GIVEN["tasks"]), r.target_epoch_record(GROUP, 10, 13),
    )  # fmt: skip
    group = shard.streams_group(GROUP)
    same(STREAMS, group.members[MEMBER])
    assert (group.epoch, group.topics_hash, group.assignment_epoch) == (11, 12, 10)
    assert group.target == {MEMBER: frozenset(GIVEN["tasks"])}


def test_share_member_fields_survive_replay():
    r = of_shares
    shard = replayed(
        r.epoch_record(GROUP, 11, 12), r.member_record(GROUP, SHARE), r.current_record(GROUP, SHARE),
        r.target_record(GROUP, MEMBER, [(T, 1)]), r.target_epoch_record(GROUP, 10, 13), r.topic_states_record(GROUP, KNOWN),
    )  # fmt: skip
    group = shard.share_group(GROUP)
    same(SHARE, group.members[MEMBER])
    assert (group.epoch, group.topics_hash, group.assignment_epoch) == (11, 12, 10)
    assert group.target == {MEMBER: frozenset({(T, 1)})}
    _, value = decoded(r.topic_states_record(GROUP, KNOWN))
    same(KNOWN, of_shares.topic_states_of(value))


@pytest.mark.parametrize("expire", [-1, 44])
def test_committed_offset_has_kafkas_fields(expire):
    value = OffsetCommitValue(
        offset=41, leader_epoch=42, metadata="the-metadata", commit_timestamp=43, expire_timestamp=expire
    )
    key, read = decoded(offset_record(GROUP, "the-topic", 7, value, RecordVersions()))
    assert (key.group, key.topic, key.partition) == (GROUP, "the-topic", 7)
    assert (read.offset, read.metadata, read.commit_timestamp, read.expire_timestamp) == (
        41,
        "the-metadata",
        43,
        expire,
    )
    assert offset_tombstone(GROUP, "the-topic", 7) == (offset_commit.RECORD.encode_key(key), None)
