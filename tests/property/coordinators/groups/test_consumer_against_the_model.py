"""Random heartbeats and commits in a consumer group, by members of any id and epoch: the model predicts each answer.

Epochs, assignments and the time since which a member has a partition are compared after every step.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from barnabas.coordinators.groups import commits, reconciliation, targets
from barnabas.coordinators.groups.consumer import group as consumer_groups
from barnabas.coordinators.groups.consumer import membership
from barnabas.coordinators.groups.consumer.group import ConsumerGroup
from barnabas.coordinators.groups.epoch_group import ReconciledGroup
from barnabas.coordinators.groups.epoch_member import (
    LEAVE_FOR_A_WHILE_EPOCH,
    EpochMember,
    MemberState,
    changed,
)
from barnabas.coordinators.groups.group import FIRST_WITH_MEMBER_EPOCHS, LAST_WITHOUT_MEMBER_EPOCHS, Committer
from barnabas.coordinators.groups.settings import GroupSettings
from barnabas.coordinators.groups.topics import by_topic
from barnabas.errors import RequestError
from barnabas.wire.generated.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.wire.generated.errors import ErrorCode
from tests.models import consumer_group
from tests.support.consumers import Coordinator, owned_by
from tests.support.effort import examples
from tests.support.outcomes import outcome
from tests.support.slips import unnoticed

TOPICS = {"t": 3, "u": 2}
SUBSCRIPTIONS = st.sampled_from([("t",), ("t", "u"), ("u",), ("t", "u")])
REBALANCES = st.sampled_from([4_000, 10_000])


class Requests(RuleBasedStateMachine):
    """The clock goes on with each request, so that no two timers are due at the same moment."""

    def __init__(self) -> None:
        super().__init__()
        self.coordinator = Coordinator(
            GroupSettings(
                consumer_session_timeout_ms=consumer_group.SESSION_MS, consumer_assignment_interval_ms=0
            )
        )
        self.ids = {name: self.coordinator.create(name, count) for name, count in TOPICS.items()}
        self.names = {topic_id: name for name, topic_id in self.ids.items()}
        everything = [(name, index) for name, count in TOPICS.items() for index in range(count)]
        self.model = consumer_group.ConsumerGroup(everything, self.assigned)
        self.count = 0
        self.coordinator.now_ms = 1_000

    def named(self, partitions) -> frozenset[tuple[str, int]]:
        return frozenset((self.names[topic_id], index) for topic_id, index in partitions)

    def assigned(self) -> dict[str, frozenset[tuple[str, int]]]:
        """Return what the group has just assigned."""
        group = self.coordinator.group()
        return {member_id: self.named(group.target.get(member_id, ())) for member_id in group.members}

    # --- both sides -----------------------------------------------------------------------------------------

    def compare(self, event, predicted) -> None:
        """Let the group decide and the model predict; both must end in the same way and in the same state."""
        assert outcome(event) == outcome(predicted)
        self.same()
        self.coordinator.now_ms += 1

    def same(self) -> None:
        group = self.coordinator.shard.groups.get("g")
        assert (group is not None) is self.model.exists
        if isinstance(group, ConsumerGroup):
            members = {
                member.id: (
                    member.instance_id, frozenset(member.topics), member.epoch, member.previous_epoch,
                    self.named(member.assigned), self.named(member.revoking),
                    {
                        (self.names[topic_id], index): since
                        for (topic_id, index), since in {**member.assigned, **member.revoking}.items()
                    },
                )
                for member in group.members.values()
            }  # fmt: skip
            assert (group.epoch, group.assignment_epoch, members) == self.model.seen()

    def send(self, member_id, epoch, instance, topics, rebalance_ms, owned) -> None:
        now = self.coordinator.now_ms
        owned_ids = None if owned is None else {(self.ids[name], index) for name, index in owned}

        def event():
            response = self.coordinator.heartbeat(
                member_id, epoch, instance_id=instance, rebalance_timeout_ms=rebalance_ms,
                subscribed_topic_names=None if topics is None else list(topics),
                topic_partitions=None if owned_ids is None else [
                    ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=topic_id, partitions=partitions)
                    for topic_id, partitions in by_topic(owned_ids)
                ],
            )  # fmt: skip
            told = response.assignment
            assigned = None if told is None else self.named(owned_by(told.topic_partitions))
            return response.member_epoch, assigned

        self.compare(
            event,
            lambda: self.model.heartbeat(
                member_id, epoch, instance, None if topics is None else frozenset(topics), rebalance_ms,
                None if owned is None else frozenset(owned), now,
            ),
        )  # fmt: skip

    # --- requests -------------------------------------------------------------------------------------------

    @initialize(subscriptions=st.lists(SUBSCRIPTIONS, min_size=1, max_size=3))
    def first_members(self, subscriptions) -> None:
        for number, topics in enumerate(subscriptions):
            self.join_as(topics, "i" if number == 1 else None, 10_000)

    def join_as(self, topics, instance, rebalance_ms) -> None:
        self.count += 1
        self.send(f"m{self.count}", 0, instance, topics, rebalance_ms, frozenset())

    @rule(
        topics=SUBSCRIPTIONS, instance=st.sampled_from([None, None, None, "i", "j"]), rebalance_ms=REBALANCES
    )
    def join(self, topics, instance, rebalance_ms) -> None:
        if len(self.model.members) < 4:
            self.join_as(topics, instance, rebalance_ms)

    def member(self, data: st.DataObject) -> consumer_group.Member:
        return self.model.members[data.draw(st.sampled_from(sorted(self.model.members)))]

    def epoch(self, data: st.DataObject, member: consumer_group.Member) -> int:
        near = [member.epoch] * 6 + [member.previous_epoch] * 2 + [member.epoch + 1, member.epoch - 1]
        return max(data.draw(st.sampled_from(near)), 1)

    @precondition(lambda self: self.model.members)
    @rule(
        data=st.data(),
        topics=st.none() | SUBSCRIPTIONS,
        rebalance_ms=st.sampled_from([-1, 10_000]),
        instance=st.sampled_from(["its own"] * 6 + [None, "i", "j"]),
        owns=st.sampled_from(["assigned", "assigned", "all", "nothing", "not said", "more"]),
    )
    def beat(self, data, topics, rebalance_ms, instance, owns) -> None:
        member = self.member(data)
        owned = {
            "assigned": member.assigned,
            "all": member.assigned | member.revoking,
            "nothing": frozenset(),
            "not said": None,
            "more": member.assigned | {("t", 0)},
        }[owns]
        self.send(
            member.id, self.epoch(data, member), member.instance if instance == "its own" else instance,
            topics, rebalance_ms, owned,
        )  # fmt: skip

    @rule()
    def all_beat(self) -> None:
        """Each member gives up what it must, and says so, so that members move often."""
        for member in list(self.model.members.values()):
            self.send(member.id, max(member.epoch, 1), member.instance, None, -1, member.assigned)

    @precondition(lambda self: self.model.members)
    @rule(data=st.data(), instance=st.sampled_from(["its own"] * 6 + [None, "i", "j"]))
    def join_again(self, data, instance) -> None:
        member = self.member(data)
        instance = member.instance if instance == "its own" else instance
        self.send(member.id, 0, instance, tuple(member.topics), 10_000, frozenset())

    @precondition(lambda self: any(m.epoch == consumer_group.AWAY for m in self.model.members.values()))
    @rule(data=st.data(), topics=SUBSCRIPTIONS)
    def take_over(self, data, topics) -> None:
        """A member that is in the group takes over the instance id of one that has left for a while."""
        away = next(m for m in self.model.members.values() if m.epoch == consumer_group.AWAY)
        self.send(self.member(data).id, 0, away.instance, topics, 10_000, frozenset())

    @precondition(lambda self: self.model.members)
    @rule(data=st.data(), for_a_while=st.booleans(), says_instance=st.booleans())
    def leave(self, data, for_a_while, says_instance) -> None:
        member = self.member(data)
        if for_a_while and member.instance is not None:
            self.send(member.id, consumer_group.AWAY, member.instance, None, -1, None)
        elif len(self.model.members) > 1 or not for_a_while:
            self.send(member.id, -1, member.instance if says_instance else None, None, -1, None)

    @precondition(lambda self: any(m.instance and m.revoking for m in self.model.members.values()))
    @rule()
    def leave_for_a_while_in_time(self) -> None:
        """A static member leaves before it has given up what it must, and stays away for longer than it had for that."""
        member = next(m for m in self.model.members.values() if m.instance and m.revoking)
        self.send(member.id, consumer_group.AWAY, member.instance, None, -1, None)
        self.wait(12_000)

    @rule(epoch=st.integers(1, 3), instance=st.sampled_from([None, "i", "k"]))
    def beat_of_nobody(self, epoch, instance) -> None:
        self.send("nobody", epoch, instance, None, -1, None)

    @rule(
        data=st.data(), who=st.sampled_from(["member"] * 5 + ["nobody", ""]),
        places=st.sets(st.sampled_from([("t", 0), ("t", 1), ("u", 0)]), max_size=2),
        says_epochs=st.sampled_from([True, True, False]), in_transaction=st.booleans(),
    )  # fmt: skip
    def commit(self, data, who, places, says_epochs, in_transaction) -> None:
        if not self.model.exists:
            return
        member_id, epoch = who, -1
        if who == "member" and self.model.members:
            member = self.member(data)
            member_id, epoch = member.id, self.epoch(data, member)
        committer = Committer(
            member_id, epoch, None, places,
            FIRST_WITH_MEMBER_EPOCHS if says_epochs else LAST_WITHOUT_MEMBER_EPOCHS, in_transaction,
        )  # fmt: skip
        self.compare(
            lambda: self.coordinator.write(
                lambda shard, out: shard.check_commit("g", committer, self.coordinator.now_ms, out)
            ),
            lambda: self.model.commit(
                member_id, epoch, places, says_epochs=says_epochs, in_transaction=in_transaction
            ),
        )

    @precondition(lambda self: self.model.members)
    @rule(data=st.data(), who=st.sampled_from(["member", "member", "nobody", None]))
    def fetch_offsets(self, data, who) -> None:
        member_id, epoch = who, -1
        if who == "member":
            member = self.member(data)
            member_id, epoch = member.id, self.epoch(data, member)
        self.compare(
            lambda: self.coordinator.shard.check_fetch("g", member_id, epoch),
            lambda: self.model.fetch_offsets(member_id, epoch),
        )

    # --- without a request ----------------------------------------------------------------------------------

    @rule(ms=st.sampled_from([100, 3_900, 5_000, 12_000, 46_000]))
    def wait(self, ms) -> None:
        self.coordinator.advance(ms)
        self.model.pass_time(self.coordinator.now_ms)
        self.same()

    @rule()
    def restart(self) -> None:
        self.coordinator.restart()
        self.model.restart(self.coordinator.now_ms)
        self.same()


Requests.TestCase.settings = settings(max_examples=examples(120), stateful_step_count=50, deadline=None)
TestRequests = Requests.TestCase


# --- planted slips ----------------------------------------------------------------------------------------------


def _own_or_not(self, epoch, reported):
    if epoch != self.epoch and (epoch > self.epoch or epoch != self.previous_epoch or reported is None):
        raise RequestError(ErrorCode.FENCED_MEMBER_EPOCH)


def _epochs_to_come(self, epoch, reported):
    if epoch < self.epoch and not (
        epoch == self.previous_epoch and reported is not None and reported <= self.assigned.keys()
    ):
        raise RequestError(ErrorCode.FENCED_MEMBER_EPOCH)


_check_committer = commits.check_committer


def _any_time_since(member_epoch, committer, sinces):
    _check_committer(member_epoch, committer, [None if since is None else 0 for since in sinces])


def _any_place(member_epoch, committer, sinces):
    _check_committer(member_epoch, committer, [since for since in sinces if since is not None])


_step = reconciliation._step


def _what_is_not_said_is_given_up(member, epoch, target_epoch, target, taken, reported, adjust):
    owned = frozenset() if reported is None else reported
    return _step(member, epoch, target_epoch, target, taken, owned, adjust)


def _what_others_have_is_given(member, epoch, target_epoch, target, taken, reported, adjust):
    return _step(member, epoch, target_epoch, target, (), reported, adjust)


def _two_epochs_back(self, state, epoch, assigned, revoking):
    return changed(self, state=state, epoch=epoch, assigned=assigned, revoking=revoking)


def _revocation_without_end(self, timer, member_id):
    return None if timer == "revocation" else self.members.get(member_id)


_take_over = membership.take_over_static


def _instance_ids_are_taken(group, member_id, instance_id, context, *, by_classic):
    return _take_over(group, member_id, instance_id, context, by_classic=True)


def _stays_as_another(self, member):
    return False


def _as_until_now(group, epoch, target, records, context, before=None):
    targets.write_target(group, epoch, target, records, context)


def _away_with_nothing(group, member, context):
    away = changed(member, epoch=LEAVE_FOR_A_WHILE_EPOCH, revoking={}, assigned={})
    context.out.records.append(membership.records.current_record(group.id, away))


def _away_and_still_to_give_up(group, member, context):
    away = changed(member.away(), state=member.state)
    context.out.records.append(membership.records.current_record(group.id, away))


def _reconciled_by_epoch(self, epoch):
    return self.epoch == epoch and self.state is not MemberState.UNREVOKED


SLIPS = {
    "who is behind may own what is another's": (EpochMember, "check_epoch", _own_or_not),
    "an epoch to come is taken": (EpochMember, "check_epoch", _epochs_to_come),
    "commits of old epochs count everywhere": (consumer_groups, "check_committer", _any_time_since),
    "commits of old epochs count where nothing was given": (consumer_groups, "check_committer", _any_place),
    "silence is giving up": (reconciliation, "_step", _what_is_not_said_is_given_up),
    "a partition has two owners": (reconciliation, "_step", _what_others_have_is_given),
    "the epoch before is not kept": (EpochMember, "moved_to", _two_epochs_back),
    "nobody must give up in time": (ReconciledGroup, "overdue_member", _revocation_without_end),
    "an instance id is taken from who is there": (membership, "take_over_static", _instance_ids_are_taken),
    "who takes over stays what it was": (ReconciledGroup, "was_another", _stays_as_another),
    "who takes over is to have what it was to": (membership, "write_target", _as_until_now),
    "who leaves for a while keeps nothing": (membership, "leave_for_a_while", _away_with_nothing),
    "who leaves for a while must still give up": (
        membership,
        "leave_for_a_while",
        _away_and_still_to_give_up,
    ),
    "what others give up later is not waited for": (EpochMember, "is_reconciled_to", _reconciled_by_epoch),
}


def test_slips_are_noticed() -> None:
    assert unnoticed(Requests, SLIPS, f"{__file__}::test_slips_are_noticed") == []
