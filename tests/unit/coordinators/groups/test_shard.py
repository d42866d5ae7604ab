"""A shard of groups by itself: groups of each kind by id, who may commit where none is, and what is done in parts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.coordinators.groups import expiry
from barnabas.coordinators.groups.classic import ClassicGroup
from barnabas.coordinators.groups.commits import check_committer
from barnabas.coordinators.groups.consumer import records
from barnabas.coordinators.groups.consumer.group import ConsumerGroup
from barnabas.coordinators.groups.consumer.member import ConsumerMember
from barnabas.coordinators.groups.consumer.target import TargetNeeded
from barnabas.coordinators.groups.expiry import OFFSETS_PER_STEP, expiring, forgetting_topics
from barnabas.coordinators.groups.group import LAST_WITHOUT_MEMBER_EPOCHS, Committer
from barnabas.coordinators.groups.records import INT32_MAX, CommittedOffset, group_record
from barnabas.coordinators.groups.settings import GroupSettings
from barnabas.coordinators.groups.shard import OFFSETS_PER_EVENT, GroupShard
from barnabas.coordinators.groups.share import membership as share_membership
from barnabas.coordinators.groups.share.group import ShareGroup
from barnabas.coordinators.groups.streams import membership as streams_membership
from barnabas.coordinators.groups.streams.group import StreamsGroup
from barnabas.coordinators.groups.streams.member import StreamsMember
from barnabas.coordinators.statemachine.decision import Decision, nothing
from barnabas.wire.errors import DecodeError
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.records.group_metadata import GroupMetadataValue
from barnabas.wire.generated.records.offset_commit import OffsetCommitValue
from tests.support.consumers import Client, with_topic
from tests.support.refusals import code_of

from .test_classic import NO_DELAY, NO_TOPICS, Harness
from .test_share import Coordinator as ShareCoordinator

RUNS_SOURCES = True
"""Stand-ins here are for classes that may be compiled, where nothing else is taken for them."""

KINDS = {
    "classic": ClassicGroup, "consumer": ConsumerGroup, "share": ShareGroup, "streams": StreamsGroup,
}  # fmt: skip


def with_group(kind: str) -> GroupShard:
    shard = GroupShard(NO_DELAY, NO_TOPICS)
    shard.groups["g"] = KINDS[kind]("g", NO_DELAY)
    return shard


def committed(shard: GroupShard, group_id: str, *offsets: tuple[str, int], at_ms: int = 0) -> None:
    for one in offsets:
        shard.replay_commit(CommittedOffset(group_id, one, OffsetCommitValue(commit_timestamp=at_ms)), -1)


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


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_is_found_as_what_it_is_and_as_nothing_else(kind):
    shard = with_group(kind)
    for other, group in KINDS.items():
        assert (shard.find("g", group) is not None) is (other == kind)
        assert shard.find("h", group) is None
    ways = {
        "classic": (shard.group, ErrorCode.UNKNOWN_MEMBER_ID),
        "consumer": (shard.consumer_group, ErrorCode.GROUP_ID_NOT_FOUND),
        "share": (shard.share_group, ErrorCode.GROUP_ID_NOT_FOUND),
        "streams": (shard.streams_group, ErrorCode.GROUP_ID_NOT_FOUND),
    }
    for other, (way, code) in ways.items():
        if other == kind:
            assert way("g") is shard.groups["g"]
        else:
            assert code_of(way, "g") == code
        assert code_of(way, "h") == code


def test_why_there_is_no_group_of_a_kind_is_said_as_it_is():
    assert with_group("share").why_not("g", StreamsGroup) == "group 'g' is a share group, not a streams group"
    shard = with_group("share")
    assert shard.why_not("h", StreamsGroup) == "there is no group 'h'"
    committed(shard, "h", ("t", 0))
    assert shard.why_not("h", StreamsGroup) == "group 'h' is a classic group, not a streams group"


def test_a_group_exists_by_its_members_by_its_offsets_or_by_those_of_a_transaction():
    shard = with_group("classic")
    committed(shard, "offsets", ("t", 0))
    shard.replay_commit(CommittedOffset("pending", ("t", 0), OffsetCommitValue()), 7)
    assert [shard.exists(name) for name in ("g", "offsets", "pending", "none")] == [True, True, True, False]
    shard.transaction_ended(7, committed=False)
    assert shard.groups.keys() == {"g", "pending"}, "kept empty until unused groups end"


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
def test_who_commits_to_a_group_that_is_not_there_is_told_by_generation_and_version(
    has_offsets, version, generation, code
):
    shard = GroupShard(NO_DELAY, NO_TOPICS)
    if has_offsets:
        committed(shard, "g", ("t", 0))
    committer = Committer("m", generation, api_version=version)
    if code:
        assert code_of(shard.check_commit, "g", committer, 0, Decision()) == code
    else:
        shard.check_commit("g", committer, 0, Decision())


def test_the_streams_group_that_was_made_for_its_first_member_is_the_one_that_its_record_makes_known():
    shard = GroupShard(NO_DELAY, NO_TOPICS)
    made = shard.new_streams_group("g")
    assert shard.replayed_streams_group("other") is not made
    assert shard.replayed_streams_group("g") is not made, "it was for the record that came next"
    made = shard.new_streams_group("g")
    assert shard.replayed_streams_group("g") is made
    assert shard.replayed_streams_group("g") is not made


@pytest.mark.parametrize("producer_id", [-1, 7])
def test_of_what_a_transaction_writes_only_offsets_count_and_not_yet(producer_id):
    """Groups are in no transaction."""
    coordinator = with_topic(1)
    Client(coordinator, "a").join()
    out = Decision()
    records.write_epoch(out, "h", 5, 6)
    shard = coordinator.shard
    shard.replay_decoded(out.decoded[0], producer_id)
    assert ("h" in shard.groups) is (producer_id == -1)
    shard.replay_decoded(CommittedOffset("o", ("t", 0), OffsetCommitValue(offset=3)), producer_id)
    assert ("o" in shard.offsets) is (producer_id == -1)
    assert shard.pending.has("o") is (producer_id != -1)


# --- what is large --------------------------------------------------------------------------------------------------


def test_an_event_of_a_member_that_has_what_it_is_to_have_is_never_large_unless_it_says_more():
    coordinator = with_topic(4)
    a, b = Client(coordinator, "a"), Client(coordinator, "b")
    a.join()
    a.settle()
    a.beat()
    shard = coordinator.shard
    assert shard.event_size("g", "a", says_more=False) == 0
    assert shard.event_size("g", "a") == 1 + 4 + 4, "topics, what it has and what it is to have"
    assert shard.event_size("g", "nobody", says_more=False) == 1
    assert shard.event_size("none", "a") == 0
    coordinator.create("u", 1)
    assert shard.event_size("g", "a", says_more=False) > 0, "the topics are others"
    a.beat()
    assert shard.event_size("g", "a", says_more=False) == 0
    b.join()
    assert shard.event_size("g", "a", says_more=False) > 0, "the target is another"
    assert shard.event_size("g", "b", says_more=False) > 0, "it waits for what others give up"
    a.beat()
    a.settle()
    assert shard.event_size("g", "a", says_more=False) > 0, "it has not said that it has given it up"
    h = Harness()
    h.stable_pair()
    assert h.shard.event_size("g", "a") == 0


# --- what is computed aside -----------------------------------------------------------------------------------------


def needed(kind: str, group_id: str = "g") -> Any:
    """A target that a group of a kind has asked for, as far as the shard looks at it."""
    types = {
        "consumer": TargetNeeded, "share": share_membership.TargetNeeded,
        "streams": streams_membership.TargetNeeded,
    }  # fmt: skip
    found = object.__new__(types[kind])
    object.__setattr__(found, "group_id", group_id)
    object.__setattr__(found, "epoch", 7)
    return found


@pytest.mark.parametrize("kind", ["consumer", "share", "streams"])
@pytest.mark.parametrize(
    ("epoch", "assigned", "counts"), [(7, 6, True), (8, 6, False), (7, 7, False), (6, 6, False)]
)
def test_a_target_counts_for_the_group_and_the_epoch_that_it_was_asked_for(kind, epoch, assigned, counts):
    shard = with_group(kind)
    group: Any = shard.groups["g"]
    group.epoch, group.assignment_epoch, group.assigning_epoch = epoch, assigned, 7
    group.members["m"] = SimpleNamespace()
    part = [("m", frozenset()), ("gone", frozenset())]
    out = Decision()
    assert shard.write_part_of_target(needed(kind), part, 5, out) is counts
    assert len(out.records) == counts, "nothing is written of who is gone"
    assert not shard.write_part_of_target(needed(kind, "h"), part, 5, Decision())
    out = Decision()
    shard.target_computed(needed(kind, "h"), {"m": frozenset()}, 5, out)
    assert (out.records, group.assigning_epoch) == ([], 7)
    shard.target_computed(needed(kind), {"m": frozenset()}, 5, out)
    assert len(out.records) == 2 * counts, "the member's part, and the epoch"
    assert group.assigning_epoch == 0


@pytest.mark.parametrize("kind", ["consumer", "share", "streams"])
@pytest.mark.parametrize("target", [None, {}, {"m": frozenset(), "n": frozenset()}, {"n": frozenset()}])
def test_a_target_for_other_members_than_there_are_is_asked_for_again(kind, target):
    shard = with_group(kind)
    group: Any = shard.groups["g"]
    group.epoch, group.assignment_epoch, group.assigning_epoch = 7, 6, 7
    group.members["m"] = SimpleNamespace()
    out = Decision()
    shard.target_computed(needed(kind), target, 5, out)
    assert (out.records, group.assigning_epoch) == ([], 0)


def test_a_target_of_an_epoch_before_does_not_end_the_computation_that_goes_on():
    shard = with_group("consumer")
    group: Any = shard.groups["g"]
    group.epoch, group.assignment_epoch, group.assigning_epoch = 8, 6, 8
    shard.target_computed(needed("consumer"), {}, 5, Decision())
    assert group.assigning_epoch == 8


def test_what_a_member_of_a_share_group_will_be_assigned_is_known_ahead_only_of_members():
    coordinator = ShareCoordinator()
    coordinator.beat("m", 0, "t")
    ahead = coordinator.shard.share_assignment_ahead("g", "m")
    assert ahead is not None
    assert [topic.partitions for topic in ahead.topic_partitions] == [[0, 1]]
    assert coordinator.has("m") == [], "nothing is decided"
    assert coordinator.shard.share_assignment_ahead("g", "nobody") is None
    assert coordinator.shard.share_assignment_ahead("m", "m") is None
    other = ShareCoordinator()
    other.beat("m", 0, "t", begins=False)
    assert other.shard.share_assignment_ahead("g", "m") is None, "no partition has a state yet"


# --- offsets in parts -----------------------------------------------------------------------------------------------


def test_only_what_was_committed_until_then_in_deleted_topics_is_forgotten():
    shard = GroupShard(NO_DELAY, NO_TOPICS)
    committed(shard, "g", ("t", 0), ("u", 0), at_ms=100)
    committed(shard, "g", ("t", 1), at_ms=101)
    committed(shard, "h", ("t", 2), at_ms=100)
    performed(shard, forgetting_topics(shard, frozenset({"t"}), 100))
    assert {group_id: set(offsets) for group_id, offsets in shard.offsets.items()} == {
        "g": {("u", 0), ("t", 1)}
    }
    assert "h" in shard.groups, "a group whose last offset is gone is kept empty for a while"


def test_others_may_run_between_the_parts_of_a_long_search():
    shard = GroupShard(NO_DELAY, NO_TOPICS)
    committed(shard, "g", *(("t", number) for number in range(OFFSETS_PER_STEP + OFFSETS_PER_EVENT + 1)))
    for search in (
        lambda: forgetting_topics(shard, frozenset({"none"}), 100), lambda: expiring(shard, 0),
    ):  # fmt: skip
        assert [event is nothing for event in search()] == [True, True], (
            "after a full part, and after a group"
        )
    events = list(forgetting_topics(shard, frozenset({"t"}), 100))
    assert sum(event is nothing for event in events) == 2
    assert len(events) - 2 == OFFSETS_PER_STEP // OFFSETS_PER_EVENT + 2
    performed(shard, events)
    assert shard.offsets == {}


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


def test_offsets_of_a_transaction_do_not_expire_and_keep_their_group():
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


@pytest.mark.parametrize("generations", [0, 1])
def test_an_unused_group_ends_with_a_record_where_there_are_any_of_it(generations):
    h = Harness()
    if generations:
        h.join("a")
        h.leave("a")
    else:
        h.shard.groups["g"] = ClassicGroup("g", NO_DELAY)
    records = len(h.journal)
    for event in expiring(h.shard, 10**15):
        out = Decision()
        event(h.shard, out)
        h.settle(out)
    assert "g" not in h.shard.groups
    assert len(h.journal) - records == generations


def test_a_group_that_has_a_member_again_when_its_end_is_decided_does_not_end():
    h = Harness()
    h.join("a")
    h.leave("a")
    events = list(expiring(h.shard, 10**15))
    h.join("b")
    for event in events:
        event(h.shard, out := Decision())
        h.settle(out)
    assert set(h.group.members) == {"b"}


@pytest.mark.parametrize("at_once", [1, 2, 50])
def test_between_groups_others_may_run_now_and_then(monkeypatch, at_once):
    monkeypatch.setattr(expiry, "GROUPS_PER_STEP", at_once)
    shard = GroupShard(NO_DELAY, NO_TOPICS)
    for number in range(4):
        committed(shard, f"g{number}", ("t", 0), at_ms=10**15)
    for search in (forgetting_topics(shard, frozenset({"none"}), 1), expiring(shard, 0)):
        assert len(list(search)) == -(-4 // at_once)


def test_an_offset_that_is_gone_when_its_topic_is_forgotten_is_not_missed():
    shard = GroupShard(NO_DELAY, NO_TOPICS)
    committed(shard, "g", ("t", 0), ("t", 1))
    events = list(forgetting_topics(shard, frozenset({"t"}), 100))
    shard.delete_offsets("g", [("t", 0)], out := Decision())
    settled(shard, out)
    performed(shard, events)
    assert shard.offsets == {}


@pytest.mark.parametrize(("generation", "is_good"), [(INT32_MAX - 1, True), (INT32_MAX, False)])
def test_a_generation_after_which_there_can_be_no_other_is_not_believed(generation, is_good):
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
def test_who_commits_in_another_epoch_is_told_by_version_unless_it_has_had_the_partition_since(
    version, transactional, epoch, since, code
):
    committer = Committer("a", epoch, transactional=transactional, api_version=version)
    if code:
        assert code_of(check_committer, 5, committer, [since]) == code
    else:
        check_committer(5, committer, [since])
