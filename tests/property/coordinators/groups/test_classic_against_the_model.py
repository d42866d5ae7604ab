"""Random requests to a classic group, from members of any id, instance and generation: the model predicts each answer.

Answers, state, members, assignments and what comes with time are compared after every step; a restart in between finds what
was written.
"""

from __future__ import annotations

from itertools import chain
from types import SimpleNamespace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from barnabas.cluster.metadata.image import ClusterImage
from barnabas.coordinators.groups.classic import ClassicGroup
from barnabas.coordinators.groups.classic_state import ClassicState
from barnabas.coordinators.groups.group import Committer
from barnabas.coordinators.groups.member import Joining, Members, State
from barnabas.coordinators.groups.settings import GroupSettings
from barnabas.coordinators.groups.shard import GroupShard
from barnabas.coordinators.statemachine.decision import Decision
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.heartbeat import HeartbeatRequest
from barnabas.wire.generated.join_group import JoinGroupRequest, JoinGroupResponse
from barnabas.wire.generated.leave_group import LeaveGroupRequest
from barnabas.wire.generated.sync_group import SyncGroupRequest
from tests.models import classic_group
from tests.support.effort import examples
from tests.support.outcomes import outcome
from tests.support.slips import unnoticed

NO_TOPICS = SimpleNamespace(image=ClusterImage(""))
INSTANCES = st.sampled_from([None, None, None, "i", "j"])
KINDS = st.sampled_from(["consumer"] * 9 + ["connect", ""])
PROTOCOLS = st.builds(
    lambda names, blob: [(name, blob) for name in names.split()],
    st.sampled_from(
        ["range uniform", "uniform range", "sticky uniform range", "range", "uniform range sticky"]
    ),
    st.sampled_from([b"1", b"2"]),
)
SPLIT_VOTE = st.permutations(
    [[("range", b"1"), ("uniform", b"1")], *2 * [[("uniform", b"1"), ("range", b"1")]]]
)
"""Three members, two of which prefer another protocol."""
SESSIONS = st.sampled_from([6_000, 45_000, 45_000, 1_800_000])
REBALANCES = st.sampled_from([5_000, 20_000, 400_000])


class Requests(RuleBasedStateMachine):
    """The clock goes on with each request, so that no two timers are due at the same moment."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_000
        self.waiter = 0
        self.ids = ["nobody"]
        self.journal: list[tuple[bytes, bytes | None]] = []
        self.begin()
        self.model = classic_group.ClassicGroup(self.picked)

    def begin(self) -> None:
        self.shard = GroupShard(GroupSettings(), NO_TOPICS)
        self.answers: dict[int, tuple[object, ...]] = {}
        self.timers: dict[object, int] = {}

    def picked(self, what: str, allowed: set[str]) -> str:
        """Return what the group has taken, if the model allows it."""
        taken = self.group.leader if what == "leader" else self.group.protocol
        return taken if taken in allowed else min(allowed)

    @property
    def group(self) -> ClassicGroup:
        return self.shard.groups["g"]

    # --- both sides -----------------------------------------------------------------------------------------

    def settle(self, out: Decision) -> None:
        for key, value in out.records:
            self.journal.append((key, value))
            self.shard.replay(key, value, loading=False)
        for waiter, answer in out.replies:
            self.answers[waiter] = shown(answer)
        for timer, at_ms in (*chain.from_iterable(out.many_timers), *out.timers.items()):
            if at_ms is None:
                self.timers.pop(timer, None)
            else:
                self.timers[timer] = at_ms

    def compare(self, event, predicted) -> None:
        """Let the group decide and the model predict; both must end in the same way and in the same state."""
        out = Decision()
        try:
            got = event(out)
        except RequestError as error:
            got = error.code.name
        else:
            self.settle(out)
        expected = outcome(predicted)
        assert got == expected
        self.same()
        self.now += 1

    def same(self) -> None:
        assert self.answers == self.model.answers
        model = self.model
        if "g" not in self.shard.groups:
            assert (model.state, model.generation, model.members, model.pending) == ("Empty", 0, {}, {})
            return
        group = self.group
        got = (
            group.state_name,
            group.generation,
            group.protocol,
            group.leader,
            sorted(group.members),
            sorted(group.pending),
        )
        assert got == (
            model.state, model.generation, model.protocol, model.leader, sorted(model.members), sorted(model.pending),
        )  # fmt: skip
        if group.state is State.STABLE:
            assignments = {member.id: member.assignment for member in model.members.values()}
            assert {
                member_id: group.assignments.get(member_id, b"") for member_id in assignments
            } == assignments

    def member(self, data: st.DataObject) -> tuple[str, str | None]:
        """Return a member's id and instance, mostly those that belong together."""
        member_id = data.draw(st.sampled_from([*self.model.members, *self.model.pending, *self.ids[-2:]]))
        member = self.model.members.get(member_id)
        instance = None if member is None else member.instance
        return member_id, data.draw(st.sampled_from([instance] * 5 + [None, "i", "j"]))

    def generation(self, data: st.DataObject) -> int:
        now = self.model.generation
        return data.draw(st.sampled_from([now] * 6 + [now - 1, now + 1, -1]))

    # --- requests -------------------------------------------------------------------------------------------

    @initialize(
        offers=st.lists(PROTOCOLS, min_size=1, max_size=4) | SPLIT_VOTE, instance=st.sampled_from([None, "i"])
    )
    def first_members(self, offers, instance) -> None:
        for protocols in offers:
            self.waiter += 1
            self.ids.append(f"m{self.waiter}")
            member = classic_group.Member(self.ids[-1], instance, 45_000, 20_000, tuple(protocols))
            self.join_as(member, "consumer", is_new=True)
            instance = None

    @rule(
        data=st.data(), is_new=st.booleans(), instance=INSTANCES, kind=KINDS, protocols=PROTOCOLS,
        session_ms=SESSIONS, rebalance_ms=REBALANCES, needs_known_id=st.booleans(),
    )  # fmt: skip
    def join(self, data, is_new, instance, kind, protocols, session_ms, rebalance_ms, needs_known_id) -> None:
        self.waiter += 1
        waiter, now, new_id = self.waiter, self.now, f"m{self.waiter}"
        member_id, instance = ("", instance) if is_new else self.member(data)
        if not is_new and member_id in self.model.members and data.draw(st.booleans()):
            protocols = list(self.model.members[member_id].protocols)
        self.ids.append(new_id)
        request = JoinGroupRequest(
            group_id="g", session_timeout_ms=session_ms, rebalance_timeout_ms=rebalance_ms, member_id=member_id,
            group_instance_id=instance, protocol_type=kind,
            protocols=[
                JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=blob) for name, blob in protocols
            ],
        )  # fmt: skip
        joining = Joining(
            request, "c", "/h", waiter, new_id, known_id_required=needs_known_id, can_skip_assignment=True
        )
        self.compare(
            lambda out: self.shard.join(joining, now, out),
            lambda: self.model.join(
                waiter, member_id, new_id, instance, kind, tuple(protocols), session_ms, rebalance_ms, now,
                needs_known_id=needs_known_id,
            ),
        )  # fmt: skip

    @rule(data=st.data(), says_kind=st.sampled_from([None, "consumer", "connect"]), says=st.booleans())
    def sync(self, data, says_kind, says) -> None:
        self.waiter += 1
        waiter, now = self.waiter, self.now
        member_id, instance = self.member(data)
        generation = self.generation(data)
        protocol = data.draw(st.sampled_from([self.model.protocol, "range"])) if says else None
        assignments = {
            member_id: f"{member_id}/{waiter}".encode()
            for member_id in [*list(self.model.members)[:2], "nobody"]
        }
        request = SyncGroupRequest(
            group_id="g", generation_id=generation, member_id=member_id, group_instance_id=instance,
            protocol_type=says_kind, protocol_name=protocol,
            assignments=[
                SyncGroupRequest.SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
                for member_id, assignment in assignments.items()
            ],
        )  # fmt: skip
        self.compare(
            lambda out: self.shard.sync(request, waiter, now, out),
            lambda: self.model.sync(
                waiter, member_id, instance, generation, says_kind, protocol, assignments, now
            ),
        )

    @rule(data=st.data())
    def heartbeat(self, data) -> None:
        now = self.now
        member_id, instance = self.member(data)
        generation = self.generation(data)
        request = HeartbeatRequest(
            group_id="g", generation_id=generation, member_id=member_id, group_instance_id=instance
        )
        self.compare(
            lambda out: self.shard.heartbeat(request, now, out),
            lambda: self.model.heartbeat(member_id, instance, generation, now),
        )

    @precondition(lambda self: "g" in self.shard.groups)
    @rule(data=st.data(), count=st.integers(1, 2), by_instance=st.booleans())
    def leave(self, data, count, by_instance) -> None:
        now = self.now
        leavers = [self.member(data) for _ in range(count)]
        if by_instance:
            leavers = [
                ("", instance) if instance else (member_id, instance) for member_id, instance in leavers
            ]
        request = [
            LeaveGroupRequest.MemberIdentity(member_id=member_id, group_instance_id=instance)
            for member_id, instance in leavers
        ]
        self.compare(
            lambda out: [ErrorCode(code).name for code in self.shard.leave("g", request, now, out)],
            lambda: self.model.leave(leavers, now),
        )

    @precondition(lambda self: "g" in self.shard.groups)
    @rule(data=st.data(), nobody=st.sampled_from([False, False, True]), in_transaction=st.booleans())
    def commit(self, data, nobody, in_transaction) -> None:
        now = self.now
        member_id, instance = ("", None) if nobody else self.member(data)
        generation = self.generation(data)
        committer = Committer(member_id, generation, instance, transactional=in_transaction)
        self.compare(
            lambda out: self.shard.check_commit("g", committer, now, out),
            lambda: self.model.commit(member_id, instance, generation, now, in_transaction=in_transaction),
        )

    @rule()
    def all_join(self) -> None:
        """All known members join again, so that generations begin often."""
        for member in list(self.model.members.values()):
            if member.id in self.model.members and member.join_waiter is None:
                self.join_again(member)

    def join_again(self, member: classic_group.Member) -> None:
        self.waiter += 1
        self.join_as(member, self.model.protocol_type, is_new=False)

    def join_as(self, member: classic_group.Member, kind: str, *, is_new: bool) -> None:
        """Send the JoinGroup of a member, in the version in which a new one is let in at once."""
        waiter, now, member_id = self.waiter, self.now, "" if is_new else member.id
        request = JoinGroupRequest(
            group_id="g", session_timeout_ms=member.session_ms, rebalance_timeout_ms=member.rebalance_ms,
            member_id=member_id, group_instance_id=member.instance, protocol_type=kind,
            protocols=[
                JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=blob)
                for name, blob in member.protocols
            ],
        )  # fmt: skip
        joining = Joining(
            request, "c", "/h", waiter, member.id, known_id_required=False, can_skip_assignment=True
        )
        self.compare(
            lambda out: self.shard.join(joining, now, out),
            lambda: self.model.join(
                waiter, member_id, member.id, member.instance, kind, member.protocols,
                member.session_ms, member.rebalance_ms, now, needs_known_id=False,
            ),
        )  # fmt: skip

    @precondition(lambda self: self.model.state == "CompletingRebalance")
    @rule()
    def all_sync(self) -> None:
        """All members sync, the leader last, so that groups are stable often."""
        for member_id in sorted(self.model.members, key=lambda member: (member == self.model.leader, member)):
            self.sync_again(self.model.members[member_id])

    def sync_again(self, member: classic_group.Member) -> None:
        self.waiter += 1
        waiter, now, generation = self.waiter, self.now, self.model.generation
        request = SyncGroupRequest(
            group_id="g", generation_id=generation, member_id=member.id, group_instance_id=member.instance
        )
        self.compare(
            lambda out: self.shard.sync(request, waiter, now, out),
            lambda: self.model.sync(waiter, member.id, member.instance, generation, None, None, {}, now),
        )

    # --- without a request ----------------------------------------------------------------------------------

    @rule(ms=st.sampled_from([1_000] * 3 + [3_000] * 3 + [5_000, 9_000, 30_000, 300_000]))
    def wait(self, ms: int) -> None:
        until = self.now + ms
        while due := [(at_ms, timer) for timer, at_ms in self.timers.items() if at_ms <= until]:
            at_ms, timer = min(due, key=lambda entry: entry[0])
            del self.timers[timer]
            out = Decision()
            self.shard.expire(timer, at_ms, out)
            self.settle(out)
            self.model.pass_time(at_ms)  # step by step: a leader that is picked may leave in the same wait
        self.model.pass_time(until)
        self.now = until
        self.same()

    @rule()
    def restart(self) -> None:
        self.begin()
        for key, value in self.journal:
            self.shard.replay(key, value, loading=True)
        out = Decision()
        self.shard.loaded(self.now, out)
        self.settle(out)
        # Members are heard of one after the other from now on, so that no two sessions end at the same moment.
        self.model = self.model.restarted(self.now) or classic_group.ClassicGroup(self.picked)
        self.same()
        self.now += 1
        for member_id in sorted(self.model.members):
            self.hear(member_id)

    def hear(self, member_id: str) -> None:
        member, now = self.model.members[member_id], self.now
        request = HeartbeatRequest(
            group_id="g",
            generation_id=self.model.generation,
            member_id=member_id,
            group_instance_id=member.instance,
        )
        self.compare(
            lambda out: self.shard.heartbeat(request, now, out),
            lambda: self.model.heartbeat(member_id, member.instance, self.model.generation, now),
        )


def shown(answer: object) -> tuple[object, ...]:
    """An answer, as the model says it."""
    code = ErrorCode(answer.error_code).name
    if isinstance(answer, JoinGroupResponse):
        told = tuple(sorted(member.member_id for member in answer.members))
        return ("join", code, answer.generation_id, answer.leader, answer.member_id, told)
    return ("sync", code, answer.assignment)


Requests.TestCase.settings = settings(max_examples=examples(120), stateful_step_count=50, deadline=None)
TestRequests = Requests.TestCase


# --- planted slips ----------------------------------------------------------------------------------------------


def _any_later_generation(self, member_id, instance_id, generation, now_ms, out):
    member = self.known_member(member_id, instance_id)
    if generation < self.generation:
        raise RequestError(ErrorCode.ILLEGAL_GENERATION)
    self.watch_session(member, now_ms, out)


def _instance_ids_fence_nobody(self, member_id, instance_id):
    member = self.members.get(member_id)
    if member is None or (instance_id is not None and instance_id not in self.static_ids):
        raise RequestError(ErrorCode.UNKNOWN_MEMBER_ID)
    return member


_check_commit = ClassicState.check_commit


def _commits_while_members_sync(self, committer, context):
    _check_commit(
        self, committer._replace(transactional=bool(committer.member_id) or committer.transactional), context
    )


def _no_generation_in_commits(self, committer, context):
    generation = self.generation if committer.generation > 0 else committer.generation
    _check_commit(self, committer._replace(generation=generation), context)


_end_syncs = ClassicGroup._end_syncs


def _assignments_stay(self, code, out):
    before = self.assignments
    _end_syncs(self, code, out)
    self.assignments = before


def _first_known_to_all(self, current=None):
    first, *others = list(self._by_id.values())
    return next(name for name in first.protocol_names if all(name in m.protocol_names for m in others))


_restored = getattr(ClassicState.restored, "__func__", None)  # not there where it is compiled


def _static_ids_are_not_restored(cls, group_id, settings, value):
    group = _restored(cls, group_id, settings, value)
    group.static_ids.clear()
    return group


_rejoin = ClassicGroup._rejoin


def _leader_joins_in_vain(self, member, joining, protocols, now_ms, out):
    leader, self.leader = self.leader, None if self.state is State.STABLE else self.leader
    try:
        _rejoin(self, member, joining, protocols, now_ms, out)
    finally:
        self.leader = leader


SLIPS = {
    "a heartbeat of a generation to come is taken": (ClassicGroup, "heartbeat", _any_later_generation),
    "an instance id fences nobody": (ClassicState, "known_member", _instance_ids_fence_nobody),
    "offsets are committed while members sync": (ClassicState, "check_commit", _commits_while_members_sync),
    "offsets of any generation are committed": (ClassicState, "check_commit", _no_generation_in_commits),
    "who has been given an id is not waited for": (
        ClassicGroup,
        "_all_joined",
        lambda self: len(self.members.joining) == len(self.members),
    ),
    "who does not sync stays": (ClassicGroup, "sync_expired", lambda self, now_ms, out: None),
    "the protocol is that of the first member": (Members, "choose_protocol", _first_known_to_all),
    "instance ids are forgotten by a restart": (
        ClassicState,
        "restored",
        classmethod(_static_ids_are_not_restored),
    ),
    "a leader that joins again begins no rebalance": (ClassicGroup, "_rejoin", _leader_joins_in_vain),
    "any protocol type may join a group that gathers": (
        ClassicGroup,
        "_accepts",
        lambda self, kind, protocols: (
            bool(kind and protocols)
            and (not self.members or self.members.shares([name for name, _ in protocols]))
        ),
    ),
}


def test_slips_are_noticed() -> None:
    assert unnoticed(Requests, SLIPS, f"{__file__}::test_slips_are_noticed") == []
