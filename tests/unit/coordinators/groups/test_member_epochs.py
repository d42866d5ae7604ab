"""Epochs fence members of consumer groups that are behind, and of classic groups that are ahead."""

from __future__ import annotations

import pytest

from barnabas.coordinators.groups.epoch_member import EpochMember
from barnabas.coordinators.statemachine.decision import Decision
from barnabas.wire.generated.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.wire.generated.errors import ErrorCode
from tests.support.consumers import Client, Coordinator
from tests.support.refusals import code_of

from .test_classic import Harness

MEMBER: EpochMember[int] = EpochMember("m", epoch=7, previous_epoch=5, assigned={1: 7, 2: 5}, revoking={3: 5})
FENCED = ErrorCode.FENCED_MEMBER_EPOCH


@pytest.mark.parametrize("reported", [None, set(), {1}, {1, 2}, {9}])
def test_a_member_in_its_epoch_may_report_anything(reported):
    MEMBER.check_epoch(7, reported)


@pytest.mark.parametrize("reported", [set(), {1}, {2}, {1, 2}])
def test_member_one_epoch_behind_resumes_with_its_partitions(reported):
    MEMBER.check_epoch(5, reported)


@pytest.mark.parametrize("reported", [None, {9}, {1, 9}, {3}, {1, 2, 3}])
def test_member_behind_with_foreign_partitions_is_fenced(reported):
    """It would read a partition that another member has been given since."""
    assert code_of(MEMBER.check_epoch, 5, reported) == FENCED


@pytest.mark.parametrize("epoch", [0, 4, 6, 8])
def test_a_member_in_any_other_epoch_is_fenced_whatever_it_has(epoch):
    assert code_of(MEMBER.check_epoch, epoch, {1}) == FENCED


def test_new_member_is_not_one_epoch_behind():
    assert code_of(EpochMember("m", epoch=1, assigned={}).check_epoch, 2, set()) == FENCED


def test_consumer_with_partitions_of_others_is_fenced():
    coordinator = Coordinator()
    topic_id = coordinator.create("t", 4)
    a, b = Client(coordinator, "a"), Client(coordinator, "b")
    a.join()
    b.join()
    for _ in range(4):
        for client in (a, b):
            client.beat()
            client.settle()
    assert len(a.owned) == len(b.owned) == 2
    coordinator.create("more", 1)
    coordinator.grow("t", 2)
    a.beat(lost=True)  # a is in another epoch now, and has not heard of it
    member = coordinator.group().members["a"]
    assert member.epoch == a.epoch + 1
    partitions = sorted(partition for _, partition in a.owned | b.owned)

    def reporting(*owned: int) -> list[ConsumerGroupHeartbeatRequest.TopicPartitions]:
        return [ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=topic_id, partitions=list(owned))]

    fields = {"rebalance_timeout_ms": 10_000, "subscribed_topic_names": ["t"]}
    assert code_of(
        coordinator.heartbeat, "a", a.epoch, topic_partitions=reporting(*partitions), **fields
    ) == FENCED  # fmt: skip
    own = sorted(partition for _, partition in a.owned)
    answer = coordinator.heartbeat("a", a.epoch, topic_partitions=reporting(*own), **fields)
    assert answer.member_epoch == member.epoch


@pytest.mark.parametrize("ahead", [1, 2, 1000])
def test_future_generation_is_refused(ahead):
    """It is of another group of this name, or of a coordinator that has lost what it wrote."""
    h = Harness()
    h.stable_pair()
    out = Decision()
    generation = h.group.generation
    h.group.heartbeat("a", None, generation, 0, out)
    timers = dict(out.timers)
    assert timers
    out = Decision()
    code = code_of(h.group.heartbeat, "a", None, generation + ahead, 5_000, out)
    assert code == ErrorCode.ILLEGAL_GENERATION
    assert not out.timers, "the session is not prolonged"
    assert code_of(h.sync, "a", generation + ahead) == ErrorCode.ILLEGAL_GENERATION
