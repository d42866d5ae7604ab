"""A shard of groups by itself: commits to unknown groups, removal of offsets in parts."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.coordinators.groups.classic import ClassicGroup
from barnabas.coordinators.groups.commits import check_committer
from barnabas.coordinators.groups.consumer.group import ConsumerGroup
from barnabas.coordinators.groups.consumer.member import ConsumerMember
from barnabas.coordinators.groups.expiry import expiring, forgetting_topics
from barnabas.coordinators.groups.group import LAST_WITHOUT_MEMBER_EPOCHS, Committer
from barnabas.coordinators.groups.records import INT32_MAX, CommittedOffset, group_record
from barnabas.coordinators.groups.settings import GroupSettings
from barnabas.coordinators.groups.shard import OFFSETS_PER_EVENT, GroupShard
from barnabas.coordinators.groups.share.group import ShareGroup
from barnabas.coordinators.groups.streams.group import StreamsGroup
from barnabas.coordinators.groups.streams.member import StreamsMember
from barnabas.coordinators.statemachine.decision import Decision
from barnabas.wire.errors import DecodeError
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.records.group_metadata import GroupMetadataValue
from barnabas.wire.generated.records.offset_commit import OffsetCommitValue
from tests.support.refusals import code_of

from .test_classic import NO_DELAY, NO_TOPICS, Harness

KINDS = {
    "classic": ClassicGroup, "consumer": ConsumerGroup, "share": ShareGroup, "streams": StreamsGroup,
}  # fmt: skip


def with_group(kind: str) -> GroupShard:
    shard = GroupShard(NO_DELAY, NO_TOPICS)
    shard.groups["g"] = KINDS[kind]("g", NO_DELAY)
    return shard


def committed(shard: GroupShard, group_id: str, *offsets: tuple[str, int], at_ms: int = 0) -> None:
    for place in offsets:
        shard.replay_commit(CommittedOffset(group_id, place, OffsetCommitValue(commit_timestamp=at_ms)), -1)


def settled(shard: GroupShard, out: Decision) -> None:
    for key, value in out.records:
        shard.replay(key, value, loading=False)


def performed(shard: GroupShard, events: Any) -> int:
    """Number of events, all of which have decided."""
    count = 0
    for event in events:
        count += 1
        out = Decision()
        event(shard, out)
        settled(shard, out)
    return count


# --- finding --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("has_offsets", "version", "generation", "code"),
    [
        (False, 9, 0, ErrorCode.GROUP_ID_NOT_FOUND),
        (False, 8, 0, ErrorCode.ILLEGAL_GENERATION),
        (False, 10, 5, ErrorCode.GROUP_ID_NOT_FOUND),
        (True, 9, 0, ErrorCode.UNKNOWN_MEMBER_ID),
        (True, 8, 5, ErrorCode.UNKNOWN_MEMBER_ID),
        (True, 9, -1, 0),
        (False, 9, -1, 0),
    ],
)
def test_commit_to_an_unknown_group_has_its_versions_error(has_offsets, version, generation, code):
    shard = GroupShard(NO_DELAY, NO_TOPICS)
    if has_offsets:
        committed(shard, "g", ("t", 0))
    committer = Committer("m", generation, api_version=version)
    if code:
        assert code_of(shard.check_commit, "g", committer, 0, Decision()) == code
    else:
        shard.check_commit("g", committer, 0, Decision())


# --- offsets in parts -----------------------------------------------------------------------------------------------


def test_offsets_committed_before_a_topic_deletion_are_removed():
    shard = GroupShard(NO_DELAY, NO_TOPICS)
    committed(shard, "g", ("t", 0), ("u", 0), at_ms=100)
    committed(shard, "g", ("t", 1), at_ms=101)
    committed(shard, "h", ("t", 2), at_ms=100)
    performed(shard, forgetting_topics(shard, frozenset({"t"}), 100))
    assert {group_id: set(offsets) for group_id, offsets in shard.offsets.items()} == {
        "g": {("u", 0), ("t", 1)}
    }
    assert "h" in shard.groups, "a group whose last offset is gone is kept empty for a while"


@pytest.mark.parametrize(
    ("count", "events"),
    [(0, 1), (1, 1), (OFFSETS_PER_EVENT, 1), (OFFSETS_PER_EVENT + 1, 2), (2 * OFFSETS_PER_EVENT + 1, 3)],
)
def test_a_group_with_many_offsets_is_deleted_in_parts(count, events):
    h = Harness()
    h.join("a")
    h.leave("a")
    committed(h.shard, "g", *(("t", number) for number in range(count)))
    for number in range(1, events + 1):
        out = Decision()
        assert h.shard.delete_group("g", out) is (number < events)
        assert len(out.records) <= OFFSETS_PER_EVENT + 1
        assert h.shard.exists("g")
        h.settle(out)
    assert not h.shard.exists("g")


def test_offsets_expire_a_retention_after_their_commit():
    now_ms = 1_700_000_000_000
    shard = GroupShard(GroupSettings(offsets_retention_ms=1_000), NO_TOPICS)
    committed(shard, "g", ("t", 0), at_ms=now_ms - 1_000)
    committed(shard, "g", ("t", 1), at_ms=now_ms - 999)
    performed(shard, expiring(shard, now_ms))
    assert set(shard.offsets["g"]) == {("t", 1)}


def test_pending_offsets_do_not_expire_and_keep_the_group():
    shard = GroupShard(GroupSettings(offsets_retention_ms=1_000), NO_TOPICS)
    shard.groups["g"] = ClassicGroup("g", shard.settings)
    committed(shard, "g", ("t", 0), ("t", 1), at_ms=0)
    shard.replay_commit(CommittedOffset("g", ("t", 0), OffsetCommitValue()), 7)
    performed(shard, expiring(shard, 5_000))
    assert set(shard.offsets["g"]) == {("t", 0)}
    shard.offsets.clear()
    performed(shard, expiring(shard, 5_000))
    assert "g" in shard.groups
    shard.transaction_ended(7, committed=False)
    performed(shard, expiring(shard, 5_000))
    assert "g" not in shard.groups


@pytest.mark.parametrize(("generation", "is_good"), [(INT32_MAX - 1, True), (INT32_MAX, False)])
def test_record_with_the_last_generation_is_refused(generation, is_good):
    shard = GroupShard(NO_DELAY, NO_TOPICS)
    value = GroupMetadataValue(protocol_type="consumer", generation=generation)
    key, data = group_record("g", value, NO_DELAY.record_versions)
    if is_good:
        shard.replay(key, data, loading=True)
        assert shard.group("g").generation == generation
    else:
        with pytest.raises(DecodeError):
            shard.replay(key, data, loading=True)
    shard.replay(key, data, loading=False)
    assert ("g" in shard.groups) is is_good, "while it runs the group is ahead of its record"


@pytest.mark.parametrize("kind", ["consumer", "streams"])
@pytest.mark.parametrize(
    ("member_id", "epoch", "code"),
    [
        (None, -1, 0),
        (None, 0, ErrorCode.UNKNOWN_MEMBER_ID),
        (None, 5, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("a", 5, 0),
        ("a", -1, ErrorCode.STALE_MEMBER_EPOCH),
        ("a", 4, ErrorCode.STALE_MEMBER_EPOCH),
        ("a", 6, ErrorCode.STALE_MEMBER_EPOCH),
    ],
)
def test_who_asks_for_offsets_as_a_member_names_its_epoch(kind, member_id, epoch, code):
    shard = with_group(kind)
    group: Any = shard.groups["g"]
    group.put_member({"consumer": ConsumerMember, "streams": StreamsMember}[kind]("a", epoch=5))
    if code:
        assert code_of(shard.check_fetch, "g", member_id, epoch) == code
    else:
        shard.check_fetch("g", member_id, epoch)
    shard.check_fetch("none", member_id, epoch)


@pytest.mark.parametrize(
    ("version", "transactional", "epoch", "since", "code"),
    [
        (LAST_WITHOUT_MEMBER_EPOCHS, False, 5, 5, ErrorCode.UNSUPPORTED_VERSION),
        (LAST_WITHOUT_MEMBER_EPOCHS, True, 5, 5, 0),
        (LAST_WITHOUT_MEMBER_EPOCHS, True, 4, 5, ErrorCode.ILLEGAL_GENERATION),
        (LAST_WITHOUT_MEMBER_EPOCHS, True, 6, 5, ErrorCode.ILLEGAL_GENERATION),
        (LAST_WITHOUT_MEMBER_EPOCHS + 1, True, 4, 5, ErrorCode.STALE_MEMBER_EPOCH),
        (LAST_WITHOUT_MEMBER_EPOCHS + 1, False, 4, 5, ErrorCode.STALE_MEMBER_EPOCH),
        (LAST_WITHOUT_MEMBER_EPOCHS + 1, False, 4, 4, 0),
        (LAST_WITHOUT_MEMBER_EPOCHS + 1, False, 4, 3, 0),
        (LAST_WITHOUT_MEMBER_EPOCHS + 1, False, 4, None, ErrorCode.STALE_MEMBER_EPOCH),
        (LAST_WITHOUT_MEMBER_EPOCHS + 1, False, 5, None, 0),
    ],
)
def test_commit_in_another_epoch_needs_an_assignment_since(version, transactional, epoch, since, code):
    committer = Committer("a", epoch, transactional=transactional, api_version=version)
    if code:
        assert code_of(check_committer, 5, committer, [since]) == code
    else:
        check_committer(5, committer, [since])
