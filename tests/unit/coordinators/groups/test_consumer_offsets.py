"""Offsets of a consumer group (KIP-848): commits, fetches, and retention."""

from __future__ import annotations

from barnabas.coordinators.groups.expiry import expiring
from barnabas.coordinators.groups.group import Committer
from barnabas.coordinators.statemachine.decision import Decision
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.records.offset_commit import OffsetCommitValue
from tests.support.consumers import Client, Coordinator, converge, joined, partitions_of, with_topic
from tests.support.refusals import code_of


def check_commit(
    coordinator: Coordinator, member_id: str, epoch: int, *partitions: int, version: int = 9
) -> None:
    coordinator.shard.check_commit(
        "g",
        Committer(
            member_id,
            epoch,
            topic_partitions=[("t", partition) for partition in partitions],
            api_version=version,
        ),
        0,
        Decision(),
    )


def test_commits_are_checked_against_the_member_epoch() -> None:
    coordinator = with_topic()
    a, _ = joined(coordinator, "a", "b")
    kept = partitions_of(a)
    lost = [partition for partition in range(4) if partition not in kept]
    check_commit(coordinator, "a", 3, *range(4))
    assert code_of(check_commit, coordinator, "a", 4, *kept) == ErrorCode.STALE_MEMBER_EPOCH
    assert code_of(check_commit, coordinator, "c", 3) == ErrorCode.UNKNOWN_MEMBER_ID
    assert code_of(check_commit, coordinator, "", -1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert code_of(check_commit, coordinator, "a", 3, version=8) == ErrorCode.UNSUPPORTED_VERSION
    # What it has had since then may be committed late (KIP-1251), what it has no more may not.
    check_commit(coordinator, "a", 2, *kept)
    assert code_of(check_commit, coordinator, "a", 2, *lost) == ErrorCode.STALE_MEMBER_EPOCH


def test_member_may_commit_until_it_reports_revocation() -> None:
    """Each answer is that of Apache Kafka 4.3.1: epochs are compared, and only for an older one the partitions count."""
    coordinator = with_topic()
    (a,) = joined(coordinator, "a")
    b, before = Client(coordinator, "b"), a.epoch
    b.join()
    a.beat()
    lost = sorted(partition for _, partition in a.owned - a.told)
    assert (a.epoch, len(lost)) == (before, 2)
    a.settle()  # it has given them up, and its last commit is on its way: nobody else has them before it has said so
    check_commit(coordinator, "a", before, *lost)
    b.beat()
    assert not b.told
    check_commit(coordinator, "a", before, *lost)

    a.beat()
    assert a.epoch == before + 1
    for _ in range(2):
        assert code_of(check_commit, coordinator, "a", before, *lost) == ErrorCode.STALE_MEMBER_EPOCH
        check_commit(coordinator, "a", before, *partitions_of(a))
        check_commit(coordinator, "a", before + 1, *lost)
        b.beat()
        b.settle()
    assert partitions_of(b) == lost

    a.leave()
    for epoch in (before, before + 1, -1):
        assert code_of(check_commit, coordinator, "a", epoch, *lost) == ErrorCode.UNKNOWN_MEMBER_ID


def test_returned_static_member_commits_in_any_epoch() -> None:
    coordinator = with_topic()
    (a,) = joined(coordinator, "a")
    b = Client(coordinator, "b", instance_id="i")
    b.join()
    converge(a, b)
    kept, epoch = partitions_of(b), b.epoch
    assert code_of(check_commit, coordinator, "b", epoch - 1, *kept) == ErrorCode.STALE_MEMBER_EPOCH
    b.leave(for_a_while=True)
    b.join()
    assert b.epoch == epoch
    check_commit(coordinator, "b", epoch - 1, *kept)


def test_offsets_of_subscribed_topics_do_not_expire() -> None:
    coordinator = with_topic()
    (a,) = joined(coordinator, "a")
    committed = OffsetCommitValue(offset=7, commit_timestamp=0)
    topic_partitions = [(("t", 0), committed), (("other", 0), committed)]
    coordinator.write(lambda shard, out: shard.commit("g", topic_partitions, out))
    later_ms = coordinator.settings.offsets_retention_ms

    def expire() -> None:
        for event in expiring(coordinator.shard, later_ms):
            coordinator.write(event)

    expire()
    assert list(coordinator.shard.offsets["g"]) == [("t", 0)]
    a.leave()
    expire()
    assert coordinator.shard.groups == coordinator.shard.offsets == {}
    assert coordinator.reloaded().groups == {}
