"""Offsets of open transactions that are forgotten before the transaction ends: as Kafka does, they stay forgotten."""

import pytest

from barnabas.coordinators.groups.expiry import forgetting_topics
from barnabas.coordinators.groups.records import CommittedOffset
from barnabas.coordinators.groups.shard import OFFSETS_PER_EVENT, GroupShard
from barnabas.coordinators.statemachine.decision import Decision
from barnabas.wire.generated.records.offset_commit import OffsetCommitValue

from .test_shard import NO_DELAY, NO_TOPICS, committed, performed

PRODUCER = 7
PLACE, ELSEWHERE = ("t", 0), ("u", 0)
DELETED_MS = 100


def group_deleted(shard):
    out = Decision()
    is_more = shard.delete_group("g", out)
    replayed(shard, out)
    return is_more


def offset_deleted(shard):
    out = Decision()
    shard.delete_offsets("g", [PLACE], out)
    replayed(shard, out)


def topic_deleted(shard):
    performed(shard, forgetting_topics(shard, frozenset({"t"}), DELETED_MS))


def replayed(shard, out, *, loading=False):
    for key, value in out.records:
        shard.replay(key, value, loading=loading)


def pending(shard, *places, at_ms=DELETED_MS, producer_id=PRODUCER, group_id="g"):
    for place in places:
        value = OffsetCommitValue(offset=10, commit_timestamp=at_ms)
        shard.replay_commit(CommittedOffset(group_id, place, value), producer_id)


@pytest.mark.parametrize("forget", [group_deleted, offset_deleted, topic_deleted])
@pytest.mark.parametrize("is_also_committed", [False, True])
def test_removed_pending_offset_is_not_committed(forget, is_also_committed):
    shard = GroupShard(NO_DELAY, NO_TOPICS)
    if is_also_committed:
        committed(shard, "g", PLACE, at_ms=0)
    pending(shard, PLACE)
    pending(shard, ELSEWHERE, group_id="other")
    forget(shard)
    shard.transaction_ended(PRODUCER, committed=True)
    assert {group_id: {*offsets} for group_id, offsets in shard.offsets.items()} == {"other": {ELSEWHERE}}
    assert shard.exists("g") is (forget is not group_deleted), (
        "a group that lost its last offset is kept empty"
    )


@pytest.mark.parametrize("forget", [offset_deleted, topic_deleted])
def test_offsets_that_were_not_forgotten_count_with_the_commit(forget):
    shard = GroupShard(NO_DELAY, NO_TOPICS)
    pending(shard, PLACE, ELSEWHERE)
    forget(shard)
    shard.transaction_ended(PRODUCER, committed=True)
    assert set(shard.offsets["g"]) == {ELSEWHERE}


def test_pending_offset_of_a_recreated_topic_counts():
    shard = GroupShard(NO_DELAY, NO_TOPICS)
    committed(shard, "g", PLACE, at_ms=0)
    pending(shard, PLACE, at_ms=DELETED_MS + 1)
    topic_deleted(shard)
    shard.transaction_ended(PRODUCER, committed=True)
    assert shard.offsets["g"][PLACE].offset == 10


def test_an_offset_committed_again_after_the_deletion_counts():
    shard = GroupShard(NO_DELAY, NO_TOPICS)
    pending(shard, PLACE)
    group_deleted(shard)
    pending(shard, ELSEWHERE)
    shard.transaction_ended(PRODUCER, committed=True)
    assert set(shard.offsets["g"]) == {ELSEWHERE}


def test_a_group_of_many_pending_offsets_is_deleted_in_parts():
    shard = GroupShard(NO_DELAY, NO_TOPICS)
    places = [("t", number) for number in range(OFFSETS_PER_EVENT + 1)]
    for producer_id in (PRODUCER, PRODUCER + 1):  # a place counts once, however many transactions have it
        pending(shard, *places, producer_id=producer_id)
    assert [group_deleted(shard), group_deleted(shard)] == [True, False]
    for producer_id in (PRODUCER, PRODUCER + 1):
        shard.transaction_ended(producer_id, committed=True)
    assert not shard.exists("g")
    assert shard.offsets == {}


def test_deletion_read_from_the_log_takes_the_pending_offset_too():
    shard, restarted = GroupShard(NO_DELAY, NO_TOPICS), GroupShard(NO_DELAY, NO_TOPICS)
    for machine in (shard, restarted):
        pending(machine, PLACE)
    out = Decision()
    assert shard.delete_group("g", out) is False
    replayed(restarted, out, loading=True)
    restarted.transaction_ended(PRODUCER, committed=True, loading=True)
    assert not restarted.exists("g")


# --- several transactions -------------------------------------------------------------------------------------------

A, B, PLAIN = 1, 2, -1


def staged(shard, producer_id, offset):
    shard.replay_commit(CommittedOffset("g", PLACE, OffsetCommitValue(offset=offset)), producer_id)


def seen(shard):
    """The offset that counts, and whether it may still change."""
    value = shard.offsets.get("g", {}).get(PLACE)
    return None if value is None else value.offset, PLACE in shard.pending.topic_partitions("g")


@pytest.mark.parametrize(
    ("commits", "ends", "states"),
    [
        ([(A, 10), (B, 20)], [(A, True), (B, True)], [(10, True), (20, False)]),
        ([(B, 20), (A, 10)], [(A, True), (B, True)], [(10, True), (10, False)]),
        ([(A, 10), (B, 20)], [(B, True), (A, True)], [(20, True), (20, False)]),
        ([(A, 10), (B, 20)], [(A, False), (B, True)], [(None, True), (20, False)]),
        ([(A, 10), (B, 20)], [(A, True), (B, False)], [(10, True), (10, False)]),
        ([(A, 10), (B, 20), (A, 11)], [(A, True), (B, True)], [(11, True), (11, False)]),
        ([(A, 10), (PLAIN, 5)], [(A, True)], [(5, False)]),
        ([(A, 10), (PLAIN, 5), (B, 20)], [(B, True), (A, True)], [(20, True), (20, False)]),
        ([(A, 10), (B, 20), (PLAIN, 5), (A, 11)], [(B, True), (A, True)], [(5, True), (11, False)]),
        ([(PLAIN, 5), (A, 10)], [(A, False)], [(5, False)]),
    ],
)
def test_the_last_commit_wins_whichever_transaction_ends_first(commits, ends, states):
    """As Kafka 4.3.1 answers; the offset is unstable until the last of the transactions is at its end."""
    shard = GroupShard(NO_DELAY, NO_TOPICS)
    for producer_id, offset in commits:
        staged(shard, producer_id, offset)
        assert seen(shard)[1] is any(
            number != PLAIN for number, _ in commits[: commits.index((producer_id, offset)) + 1]
        )
    for (producer_id, is_commit), state in zip(ends, states, strict=True):
        shard.transaction_ended(producer_id, committed=is_commit)
        assert seen(shard) == state
    assert not shard.pending.groups()


def test_only_places_that_several_have_committed_are_overruled():
    shard = GroupShard(NO_DELAY, NO_TOPICS)
    for producer_id, partitions in ((A, range(4)), (B, range(2, 6)), (3, range(3, 9))):
        for number in partitions:
            value = OffsetCommitValue(offset=10 * producer_id)
            shard.replay_commit(CommittedOffset("g", ("t", number), value), producer_id)
    shard.replay_commit(CommittedOffset("other", ("t", 0), OffsetCommitValue(offset=1)), B)
    shard.transaction_ended(B, committed=True)
    shard.transaction_ended(A, committed=True)
    assert {number: value.offset for (_, number), value in shard.offsets["g"].items()} == {
        0: 10, 1: 10, 2: 20, 3: 20, 4: 20, 5: 20,
    }  # fmt: skip
    shard.transaction_ended(3, committed=True)
    assert [shard.offsets["g"]["t", number].offset for number in range(2, 9)] == [20, *[30] * 6]
    assert shard.offsets["other"]["t", 0].offset == 1
    assert not shard.pending.has("g")


@pytest.mark.parametrize("is_commit", [True, False])
def test_withdrawn_pending_offset_overrules_nothing(is_commit):
    shard = GroupShard(NO_DELAY, NO_TOPICS)
    staged(shard, A, 10)
    staged(shard, B, 20)
    shard.pending.add(B, "g", PLACE, None)
    shard.transaction_ended(B, committed=True)
    shard.transaction_ended(A, committed=is_commit)
    assert seen(shard) == (10 if is_commit else None, False)
