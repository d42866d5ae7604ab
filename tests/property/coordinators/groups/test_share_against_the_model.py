"""Random heartbeats in a share group, by members of any id and epoch: the model predicts each answer.

Epochs, targets and assignments are compared after every step, while topics come and grow.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from barnabas.coordinators.groups import share_states
from barnabas.coordinators.groups.epoch_group import EpochGroup
from barnabas.coordinators.groups.settings import GroupSettings
from barnabas.coordinators.groups.share import membership
from barnabas.coordinators.groups.share.group import ShareGroup
from barnabas.coordinators.groups.share.member import ShareMember
from barnabas.coordinators.groups.share.membership import Heartbeat, check_heartbeat
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.models import share_group
from tests.models.share_group import INTERVAL_MS, SESSION_MS
from tests.support.consumers import Coordinator, owned_by
from tests.support.effort import examples
from tests.support.outcomes import outcome
from tests.support.slips import unnoticed

SUBSCRIPTIONS = st.sampled_from(
    [frozenset({"t"}), frozenset({"t", "u"}), frozenset({"u"}), frozenset({"t", "v"})]
)


class Requests(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.coordinator = Coordinator(
            GroupSettings(share_session_timeout_ms=SESSION_MS, share_assignment_interval_ms=INTERVAL_MS)
        )
        self.model = share_group.ShareGroup(self.assigned)
        self.names: dict[bytes, str] = {}
        self.count = 0
        self.coordinator.now_ms = 1_000

    def named(self, partitions) -> frozenset[tuple[str, int]]:
        return frozenset((self.names[topic_id], index) for topic_id, index in partitions)

    def assigned(self):
        """Return what the group has just assigned."""
        group = self.coordinator.shard.share_group("g")
        return {member_id: self.named(group.target.get(member_id, ())) for member_id in group.members}

    # --- both sides -----------------------------------------------------------------------------------------

    def send(self, member_id: str, epoch: int, topics: frozenset[str] | None) -> None:
        """Let the group decide and the model predict; both must end in the same way and in the same state."""
        now = self.coordinator.now_ms
        got = outcome(lambda: self.answered(member_id, epoch, topics))
        assert got == outcome(lambda: self.model.heartbeat(member_id, epoch, topics, now))
        self.same()
        self.coordinator.now_ms += 1

    def answered(self, member_id: str, epoch: int, topics: frozenset[str] | None):
        names = None if topics is None else sorted(topics)
        request = ShareGroupHeartbeatRequest(
            group_id="g", member_id=member_id, member_epoch=epoch, subscribed_topic_names=names
        )
        check_heartbeat(request)
        beat = Heartbeat(request, "client", "/host")
        answer = self.coordinator.write(
            lambda shard, out: shard.share_heartbeat(beat, self.coordinator.now_ms, out)
        )
        if answer.beginning is not None:
            begun = answer.beginning.offsets
            self.coordinator.write(lambda shard, out: share_states.begun(shard, "g", begun, [], out))
        told = answer.response.assignment
        return answer.response.member_epoch, None if told is None else self.named(
            owned_by(told.topic_partitions)
        )

    def same(self) -> None:
        group = self.coordinator.shard.groups.get("g")
        assert (group is not None) is self.model.exists
        if isinstance(group, ShareGroup):
            members = {
                member.id: (member.topics, member.epoch, member.previous_epoch, self.named(member.assigned))
                for member in group.members.values()
            }
            target = {member_id: self.named(assigned) for member_id, assigned in group.target.items()}
            seen = group.state_name, group.epoch, group.assignment_epoch, target, members
            assert seen == self.model.seen()

    # --- requests -------------------------------------------------------------------------------------------

    @initialize(subscriptions=st.lists(SUBSCRIPTIONS, min_size=1, max_size=3))
    def begin(self, subscriptions) -> None:
        self.create("t", 3)
        self.create("u", 2)
        for topics in subscriptions:
            self.join(topics)
        self.all_beat()

    @rule(topics=SUBSCRIPTIONS)
    def join(self, topics) -> None:
        if len(self.model.members) < 4:
            self.count += 1
            self.send(f"m{self.count}", 0, topics)

    def member(self, data: st.DataObject) -> share_group.Member:
        return self.model.members[data.draw(st.sampled_from(sorted(self.model.members)))]

    @precondition(lambda self: self.model.members)
    @rule(data=st.data(), topics=st.none() | SUBSCRIPTIONS | st.just(frozenset[str]()))
    def beat(self, data, topics) -> None:
        member = self.member(data)
        near = (
            [member.epoch] * 5 + [member.previous_epoch] * 3 + [member.epoch + 1, member.previous_epoch - 1]
        )
        self.send(member.id, max(data.draw(st.sampled_from(near)), 0), topics)

    @rule()
    def all_beat(self) -> None:
        for member in list(self.model.members.values()):
            self.send(member.id, member.epoch, None)

    @precondition(lambda self: self.model.members)
    @rule(data=st.data(), joins_again=st.sampled_from([True, True, False]))
    def leave(self, data, joins_again) -> None:
        member = self.member(data)
        self.send(member.id, 0 if joins_again else -1, member.topics)

    @rule(member_id=st.sampled_from(["nobody", "", "a" * 37, "a" * 36]), epoch=st.integers(-2, 2))
    def beat_of_nobody(self, member_id, epoch) -> None:
        self.send(member_id, epoch, None)

    # --- without a request ----------------------------------------------------------------------------------

    def create(self, name: str, partitions: int) -> None:
        self.names[self.coordinator.create(name, partitions)] = name
        self.model.topics[name] = partitions

    @rule(name=st.sampled_from(["t", "u", "v", "other"]))
    def change_topics(self, name) -> None:
        """A topic that is not there comes, one that is there grows."""
        if name not in self.model.topics:
            self.create(name, 2)
        elif self.model.topics[name] < 5:
            self.coordinator.grow(name, 1)
            self.model.topics[name] += 1

    @rule(ms=st.sampled_from([10, 10, 40_000, 46_000]))
    def wait(self, ms) -> None:
        self.coordinator.advance(ms)
        self.model.pass_time(self.coordinator.now_ms)
        self.same()

    @rule()
    def restart(self) -> None:
        self.coordinator.restart()
        self.model.restart(self.coordinator.now_ms)
        self.same()


Requests.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
TestRequests = Requests.TestCase


# --- planted slips ----------------------------------------------------------------------------------------------

_check_epoch, _moved, _heartbeat = membership._check_epoch, membership._moved, membership.heartbeat


def _only_the_newest(member, epoch):
    if epoch != member.epoch:
        raise RequestError(ErrorCode.FENCED_MEMBER_EPOCH)


def _any_older(member, epoch):
    if epoch > member.epoch:
        raise RequestError(ErrorCode.FENCED_MEMBER_EPOCH)


def _all_of_the_target(member, target, target_epoch, changed, image):
    moved = _moved(member, target, target_epoch, changed, image)
    return moved if moved is member else replace(moved, assigned=target)


def _the_epoch_before_is_lost(member, target, target_epoch, changed, image):
    moved = _moved(member, target, target_epoch, changed, image)
    return moved if moved.epoch == member.epoch else replace(moved, previous_epoch=member.previous_epoch)


def _begins_again(group, beat, context):
    if beat.request.member_epoch == 0:
        group.members.pop(beat.request.member_id, None)
    return _heartbeat(group, beat, context)


SLIPS = {
    "who is one answer behind is fenced": (membership, "_check_epoch", _only_the_newest),
    "who is many answers behind goes on": (membership, "_check_epoch", _any_older),
    "members have what they do not want": (membership, "_moved", _all_of_the_target),
    "the epoch before is not kept": (membership, "_moved", _the_epoch_before_is_lost),
    "partitions that get a state are not given": (membership, "_is_outdated", lambda group, image: False),
    "an assignment waits for nothing": (
        EpochGroup, "was_assigned_within", lambda self, interval_ms, now_ms: False,
    ),
    "a member id may be longer": (membership, "MEMBER_ID_LENGTH_MAX", 37),
    "a group of nobody is stable": (ShareGroup, "state_name", property(lambda self: "Stable")),
    "who joins again begins anew": (membership, "heartbeat", _begins_again),
    "a subscription that ends is not seen": (
        ShareMember, "after_heartbeat",
        lambda self, request, client_id, client_host: replace(
            self, topics=self.topics | frozenset(request.subscribed_topic_names or ())
        ),
    ),
}  # fmt: skip


def test_slips_are_noticed() -> None:
    assert unnoticed(Requests, SLIPS, f"{__file__}::test_slips_are_noticed") == []
