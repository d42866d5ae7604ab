"""Random heartbeats and commits in a streams group, by members of any id and epoch: the model predicts each answer.

Epochs, statuses, targets and tasks are compared after every step, while topics come, grow and go.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas.coordinators.groups import reconciliation
from barnabas.coordinators.groups.epoch_group import EpochGroup, ReconciledGroup
from barnabas.coordinators.groups.epoch_member import EpochMember, changed
from barnabas.coordinators.groups.group import FIRST_WITH_MEMBER_EPOCHS, LAST_WITHOUT_MEMBER_EPOCHS, Committer
from barnabas.coordinators.groups.settings import GroupSettings
from barnabas.coordinators.groups.streams import answers, membership
from barnabas.coordinators.groups.streams import group as streams_groups
from barnabas.coordinators.groups.streams.group import StreamsGroup
from barnabas.coordinators.groups.streams.member import StreamsMember
from barnabas.coordinators.groups.streams.membership import Heartbeat
from barnabas.coordinators.groups.streams.requests import check_heartbeat
from barnabas.coordinators.groups.streams.tasks import (
    ACTIVE,
    ROLES,
    STANDBY,
    WARMUP,
    TakenTasks,
    of_role,
    read_tasks,
)
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.streams_group_heartbeat import StreamsGroupHeartbeatRequest as Request
from tests.models import streams_group
from tests.models.streams_group import (
    AWAY,
    INITIAL_DELAY_MS,
    INTERVAL_MS,
    MISSING_INTERNAL,
    NOTHING,
    SESSION_MS,
    Beat,
    Part,
    Topology,
)  # fmt: skip
from tests.support.consumers import Coordinator
from tests.support.effort import examples
from tests.support.outcomes import outcome
from tests.support.slips import unnoticed

PARTS = (Part("0", "in"), Part("1", "more", "store-changelog"))
TOPOLOGIES = [Topology(1, PARTS)] * 8 + [Topology(0, PARTS[:1]), Topology(1, PARTS[:1]), Topology(2, PARTS)]
PROCESSES = st.sampled_from("pqr")


class Requests(RuleBasedStateMachine):
    """The clock goes on with each request, so that no two timers are due at the same moment."""

    def __init__(self) -> None:
        super().__init__()
        self.coordinator = Coordinator(
            GroupSettings(
                streams_session_timeout_ms=SESSION_MS,
                streams_initial_rebalance_delay_ms=INITIAL_DELAY_MS,
                streams_assignment_interval_ms=INTERVAL_MS,
            )
        )
        self.model = streams_group.StreamsGroup(self.assigned)
        self.count = 0
        self.has_moved = False
        """Some member has come back as another process."""
        self.coordinator.now_ms = 1_000

    def assigned(self):
        """Return what the group has just assigned."""
        group = self.coordinator.shard.streams_group("g")
        return {member_id: group.target.get(member_id, NOTHING) for member_id in group.members}

    # --- both sides -----------------------------------------------------------------------------------------

    def compare(self, event, predicted) -> None:
        """Let the group decide and the model predict; both must end in the same way and in the same state."""
        assert outcome(event) == outcome(predicted)
        self.same()
        self.coordinator.now_ms += 1

    def same(self) -> None:
        group = self.coordinator.shard.groups.get("g")
        assert (group is not None) is self.model.exists
        if isinstance(group, StreamsGroup):
            members = {
                member.id: (
                    member.instance_id, member.process_id, member.topology_epoch, member.epoch, member.previous_epoch,
                    frozenset(member.assigned), frozenset(member.revoking),
                    {task: at for task, at in {**member.assigned, **member.revoking}.items() if task[0] == ACTIVE},
                )
                for member in group.members.values()
            }  # fmt: skip
            seen = group.state_name, group.epoch, group.assignment_epoch, group.target, members
            assert seen == self.model.seen()

    def send(self, beat: Beat) -> None:
        now = self.coordinator.now_ms
        self.compare(lambda: self.answered(beat), lambda: self.model.heartbeat(beat, now))

    def answered(self, beat: Beat):
        request = Request(
            group_id="g", member_id=beat.member_id, member_epoch=beat.epoch, instance_id=beat.instance,
            process_id=beat.process, rebalance_timeout_ms=beat.rebalance_ms, shutdown_application=beat.stops_all,
            topology=None if beat.topology is None else written(beat.topology),
        )  # fmt: skip
        for role in ROLES if beat.owned is not None else ():
            tasks = of_role(role, beat.owned or ())
            setattr(request, f"{role}_tasks", [Request.TaskIds(name, numbers) for name, numbers in tasks])
        check_heartbeat(request)
        event = Heartbeat(request, "client", "/host")
        answer = self.coordinator.write(
            lambda shard, out: shard.streams_heartbeat(event, self.coordinator.now_ms, out)
        )
        response = answer.response
        statuses = [status.status_code for status in response.status or ()]
        assert bool(answer.to_create) is (MISSING_INTERNAL in statuses)
        tasks = response.active_tasks, response.standby_tasks, response.warmup_tasks
        told = None if tasks[0] is None else read_tasks(*tasks)
        return response.member_epoch, told, statuses

    # --- requests -------------------------------------------------------------------------------------------

    @initialize(topics=st.sampled_from([("in", "more", "store-changelog")] * 4 + [("in", "more"), ("in",)]),
                processes=st.lists(PROCESSES, min_size=1, max_size=3), standbys=st.integers(0, 1))  # fmt: skip
    def begin(self, topics, processes, standbys) -> None:
        for name in topics:
            self.create(name, 2)
        self.configure(standbys)
        for number, process in enumerate(processes):
            self.join_as(process, "i" if number == 1 else None, TOPOLOGIES[0])
        self.wait(INITIAL_DELAY_MS)
        self.all_beat(says_owned=True)

    def join_as(self, process, instance, topology) -> None:
        former = self.model.static(instance)
        self.has_moved = self.has_moved or (former is not None and former.process != process)
        self.count += 1
        self.send(Beat(f"m{self.count}", 0, instance, process, 10_000, topology, NOTHING))

    @precondition(lambda self: len(self.model.members) < 4)
    @rule(
        process=PROCESSES,
        instance=st.sampled_from([None, None, None, "i", "j"]),
        topology=st.sampled_from(TOPOLOGIES),
    )
    def join(self, process, instance, topology) -> None:
        self.join_as(process, instance, topology)

    def member(self, data: st.DataObject) -> streams_group.Member:
        return self.model.members[data.draw(st.sampled_from(sorted(self.model.members)))]

    def epoch(self, data: st.DataObject, member: streams_group.Member) -> int:
        near = [member.epoch] * 6 + [member.previous_epoch] * 2 + [member.epoch + 1, member.epoch - 1]
        return max(data.draw(st.sampled_from(near)), 1)

    @precondition(lambda self: self.model.members)
    @rule(
        data=st.data(), instance=st.sampled_from(["its own"] * 6 + [None, "i", "j"]),
        owns=st.sampled_from(["assigned", "assigned", "all", "nothing", "not said", "more", "no such"]),
        rebalance_ms=st.sampled_from([-1, -1, -1, 4_000, 10_000]), stops_all=st.sampled_from([False] * 15 + [True]),
    )  # fmt: skip
    def beat(self, data, instance, owns, rebalance_ms, stops_all) -> None:
        member = self.member(data)
        if owns == "no such" and self.model.delay_due_ms is not None:
            return  # topics that it has looked at count for the tasks that are assigned after the delay
        owned = {
            "assigned": member.assigned,
            "all": member.assigned | member.revoking,
            "nothing": NOTHING,
            "not said": None,
            "more": member.assigned | {(ACTIVE, "0", 0)},
            "no such": member.assigned | {(ACTIVE, "1", 7)},
        }[owns]
        self.send(
            Beat(
                member.id, self.epoch(data, member), member.instance if instance == "its own" else instance, None,
                rebalance_ms, None, owned, stops_all,
            )
        )  # fmt: skip

    @rule(says_owned=st.sampled_from([True, True, False]))
    def all_beat(self, says_owned) -> None:
        """Each member gives up what it must, and often says so, so that members move often."""
        for member in list(self.model.members.values()):
            owned = member.assigned if says_owned else None
            self.send(Beat(member.id, max(member.epoch, 1), member.instance, owned=owned))

    @precondition(lambda self: self.model.members)
    @rule(
        data=st.data(), process=PROCESSES, topology=st.sampled_from(TOPOLOGIES),
        instance=st.sampled_from(["its own"] * 6 + [None, "i", "j"]), owned=st.sampled_from([NOTHING] * 7 + [None]),
    )  # fmt: skip
    def join_again(self, data, process, topology, instance, owned) -> None:
        member = self.member(data)
        self.has_moved = self.has_moved or process != member.process
        instance = member.instance if instance == "its own" else instance
        self.send(Beat(member.id, 0, instance, process, 10_000, topology, owned))

    @precondition(lambda self: self.model.members)
    @rule(
        data=st.data(), epoch=st.sampled_from([-1, AWAY, AWAY]), says_instance=st.booleans(),
        stops_all=st.sampled_from([False, False, True]),
    )  # fmt: skip
    def leave(self, data, epoch, says_instance, stops_all) -> None:
        member = self.member(data)
        instance = member.instance if says_instance or epoch == AWAY else None
        self.send(Beat(member.id, epoch, instance, stops_all=stops_all))

    @precondition(lambda self: any(m.epoch == AWAY for m in self.model.members.values()))
    @rule(data=st.data(), process=st.none() | PROCESSES)
    def take_over(self, data, process) -> None:
        """A member that is known takes over the instance id of one that has left for a while."""
        away = next(m for m in self.model.members.values() if m.epoch == AWAY)
        self.has_moved = True
        self.send(
            Beat(
                self.member(data).id,
                0,
                away.instance,
                process or away.process,
                10_000,
                TOPOLOGIES[0],
                NOTHING,
            )
        )

    @precondition(lambda self: any(m.revoking for m in self.model.members.values()))
    @rule()
    def give_up_nothing(self) -> None:
        self.wait(12_000)

    @precondition(lambda self: any(m.instance and m.revoking for m in self.model.members.values()))
    @rule()
    def leave_for_a_while_in_time(self) -> None:
        """A static member leaves before it has given up what it must, and stays away for longer than it had for that."""
        member = next(m for m in self.model.members.values() if m.instance and m.revoking)
        self.send(Beat(member.id, AWAY, member.instance))
        self.wait(12_000)

    @rule(epoch=st.sampled_from([1, 2, -1, AWAY]), instance=st.sampled_from([None, "i", "k"]))
    def beat_of_nobody(self, epoch, instance) -> None:
        self.send(Beat("nobody", epoch, instance))

    @rule(
        epoch=st.integers(0, 1),
        topology=st.sampled_from([None, TOPOLOGIES[0]]),
        rebalance_ms=st.sampled_from([-1, 1]),
    )
    def beat_that_does_not_fit(self, epoch, topology, rebalance_ms) -> None:
        if (epoch == 0) != (topology is not None) or rebalance_ms == -1:
            self.send(Beat("nobody", epoch, None, "p", rebalance_ms, topology, NOTHING))

    @rule(
        data=st.data(), who=st.sampled_from(["member"] * 5 + ["nobody", ""]),
        places=st.sets(st.sampled_from([("in", 0), ("more", 0), ("more", 1), ("else", 0)]), max_size=2),
        says_epochs=st.sampled_from([True, True, False]), in_transaction=st.booleans(),
    )  # fmt: skip
    def commit(self, data, who, places, says_epochs, in_transaction) -> None:
        if not self.model.exists:
            return
        member_id, epoch = who, -1
        if who == "member" and self.model.members:
            member = self.member(data)
            member_id, epoch = (
                member.id,
                max(data.draw(st.sampled_from([member.previous_epoch, self.epoch(data, member)])), 1),
            )
            its_own = [
                (part.source, task[2]) for task in member.since for part in PARTS if part.id == task[1]
            ]
            places = data.draw(st.sampled_from([places, set(its_own)]))
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

    # --- without a request ----------------------------------------------------------------------------------

    def create(self, name: str, partitions: int) -> None:
        topic_id = self.coordinator.create(name, partitions)
        self.model.topics[name] = int.from_bytes(topic_id, "big"), partitions

    @rule(
        name=st.sampled_from(["in", "more", "store-changelog", "store-changelog", "else"]),
        more=st.integers(1, 2),
    )
    def change_topics(self, name, more) -> None:
        """A topic that is not there comes; one that is there grows, or goes."""
        if name not in self.model.topics:
            self.create(name, more)
        elif more == 2:
            self.coordinator.delete(name)
            del self.model.topics[name]
        else:
            topic_id, partitions = self.model.topics[name]
            self.coordinator.grow(name, more)
            self.model.topics[name] = topic_id, partitions + more

    @rule(standbys=st.integers(0, 1))
    def configure(self, standbys) -> None:
        self.coordinator.configure("g", streams_num_standby_replicas=str(standbys))
        self.model.standbys = standbys

    @rule(ms=st.sampled_from([100, 1_000, 3_900, 12_000, 46_000]))
    def wait(self, ms) -> None:
        end_ms = self.coordinator.now_ms + ms
        while (due := self.model.next_due()) is not None and due[0] <= end_ms:
            self.coordinator.advance(due[0] - self.coordinator.now_ms)
            while due is not None and due[0] == self.coordinator.now_ms:
                self.model.happens(*due)
                due = self.model.next_due()
            self.same()
        self.coordinator.advance(end_ms - self.coordinator.now_ms)
        self.same()

    @rule()
    def restart(self) -> None:
        self.coordinator.restart()
        self.model.restart(self.coordinator.now_ms)
        self.same()

    @invariant()
    def nothing_runs_twice(self) -> None:
        members = self.model.members.values()
        active = [
            task for member in members for task in member.assigned | member.revoking if task[0] == ACTIVE
        ]
        assert len(active) == len(set(active))
        running = {
            (member.process, member.id, task[1:])
            for member in members
            for task in member.assigned | member.revoking
        }
        copies = [(process, task_id) for process, _, task_id in running]
        assert self.has_moved or len(copies) == len(set(copies))


def written(topology: Topology) -> Request.Topology:
    return Request.Topology(
        epoch=topology.epoch,
        subtopologies=[
            Request.Subtopology(
                subtopology_id=part.id, source_topics=[part.source],
                state_changelog_topics=[Request.TopicInfo(name=part.changelog)] if part.changelog else [],
            )
            for part in topology.parts
        ],
    )  # fmt: skip


Requests.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=50, deadline=None)
TestRequests = Requests.TestCase


# --- planted slips ----------------------------------------------------------------------------------------------

_step, _joining, _settle_topology = reconciliation._step, membership._joining, membership._settle_topology
_away, _check_committer, _remove, _status = (
    EpochMember.away, streams_groups.check_committer, membership.remove, answers.status,
)  # fmt: skip


def _run_or_not(self, epoch, reported):
    if epoch != self.epoch and (epoch > self.epoch or epoch != self.previous_epoch or reported is None):
        raise RequestError(ErrorCode.FENCED_MEMBER_EPOCH)


def _any_time_since(member_epoch, committer, sinces):
    _check_committer(member_epoch, committer, [None if since is None else 0 for since in sinces])


def _where_a_copy_is(self, task):
    return any((self._process_id, (role, *task[1:])) in self._copies for role in (STANDBY, WARMUP))


def _where_it_is_active(self, task):
    return task[0] == ACTIVE and task[1:] in self._active


def _what_is_not_said_is_given_up(member, epoch, target_epoch, target, taken, reported, adjust):
    reported = frozenset() if reported is None else reported
    return _step(member, epoch, target_epoch, target, taken, reported, adjust)


def _instance_ids_are_taken(group, request, context):
    former_id = group.static_ids.get(request.instance_id)
    if former_id is not None and former_id != request.member_id:
        return membership._take_over(group, group.members[former_id], request.member_id, context)
    return _joining(group, request, context)


def _its_own_target(self, member):
    if member.id not in self.target and member.instance_id is not None:
        return self.target.get(self.static_ids.get(member.instance_id, ""), NOTHING)
    return self.target.get(member.id, NOTHING)


def _newest_topology(group, request, context):
    group_epoch = 1 << 31 if group.topology is None else group.topology.epoch
    if request.topology is not None and request.topology.epoch > group_epoch:
        return group.topology
    return _settle_topology(group, request, context)


def _only_the_same_topology(group, request, context):
    topology = _settle_topology(group, request, context)
    if request.topology is not None and request.topology.epoch != topology.epoch:
        raise RequestError(ErrorCode.INVALID_REQUEST)
    return topology


def _stops_no_longer(group, member, context):
    _remove(group, member, context)
    if group.shutdown_by == member.id:
        group.shutdown_by = None


def _equal_topology_is_stale(group, member, topology, configured, delayed_by, tags):
    member = changed(member, topology_epoch=member.topology_epoch - 1)
    return _status(group, member, topology, configured, delayed_by, tags)


def _no_look_is_forgotten(group, context):
    group.waits_for_members = False


SLIPS = {
    "who is behind may run what is another's": (EpochMember, "check_epoch", _run_or_not),
    "commits of old epochs count everywhere": (streams_groups, "check_committer", _any_time_since),
    "a task is active twice": (TakenTasks, "__contains__", _where_a_copy_is),
    "a process has two copies of a task": (TakenTasks, "__contains__", _where_it_is_active),
    "a copy is given up to be run": (membership, "change_roles", lambda *_: None),
    "silence is giving up": (reconciliation, "_step", _what_is_not_said_is_given_up),
    "nobody must give up in time": (
        ReconciledGroup, "overdue_member",
        lambda self, timer, member_id: None if timer == "revocation" else self.members.get(member_id),
    ),
    "an instance id is taken from who is there": (membership, "_joining", _instance_ids_are_taken),
    "who takes an instance id over has its own target": (ReconciledGroup, "target_of", _its_own_target),
    "who leaves for a while must still give up": (
        EpochMember, "away", lambda self: changed(_away(self), state=self.state, revoking=self.revoking),
    ),
    "who leaves for a while keeps its epochs": (
        EpochMember, "away", lambda self: changed(_away(self), assigned=self.assigned),
    ),
    "a static member may change its process": (StreamsMember, "wants_the_same", lambda self, other: True),
    "whoever comes back has the group assigned anew": (
        StreamsMember, "wants_the_same", lambda self, other: self == other,
    ),
    "a newer topology is passed over": (membership, "_settle_topology", _newest_topology),
    "an older topology is refused": (membership, "_settle_topology", _only_the_same_topology),
    "an equal topology is stale": (answers, "status", _equal_topology_is_stale),
    "an assignment waits for nothing": (
        EpochGroup, "was_assigned_within", lambda self, interval_ms, now_ms: False,
    ),
    "after the delay nothing is assigned": (membership, "_assign_after_delay", _no_look_is_forgotten),
    "tasks that there are not are reported": (membership, "_check_reported", lambda configured, reported: None),
    "the end is called off with who has asked for it": (membership, "remove", _stops_no_longer),
}  # fmt: skip


def test_slips_are_noticed() -> None:
    assert unnoticed(Requests, SLIPS, f"{__file__}::test_slips_are_noticed") == []
