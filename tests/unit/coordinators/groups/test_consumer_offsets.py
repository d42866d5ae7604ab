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
