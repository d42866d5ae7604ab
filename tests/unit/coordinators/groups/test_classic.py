"""A classic group, event by event, without a broker."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from barnabas.cluster.metadata.image import ClusterImage
from barnabas.config.features import RecordVersions
from barnabas.coordinators.groups.group import Committer
from barnabas.coordinators.groups.member import Joining, State
from barnabas.coordinators.groups.settings import TOGETHER_MS, GroupSettings
from barnabas.coordinators.groups.shard import GroupShard
from barnabas.coordinators.statemachine.decision import Decision
from barnabas.errors import RequestError
from barnabas.wire.codec import encode_versioned
from barnabas.wire.generated.data.consumer_protocol_subscription import CODEC as SUBSCRIPTION
from barnabas.wire.generated.data.consumer_protocol_subscription import ConsumerProtocolSubscription
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.join_group import JoinGroupRequest, JoinGroupResponse
from barnabas.wire.generated.leave_group import LeaveGroupRequest
from barnabas.wire.generated.records.offset_commit import OffsetCommitValue
from barnabas.wire.generated.sync_group import SyncGroupRequest, SyncGroupResponse
from tests.support.outcomes import apply
from tests.support.refusals import code_of

NO_DELAY = GroupSettings(initial_rebalance_delay_ms=0)

NO_TOPICS = SimpleNamespace(image=ClusterImage(""))


class Harness:
    """A shard with one group; keeps the answers by waiter and replays what is decided."""

    def __init__(self, settings: GroupSettings = NO_DELAY) -> None:
        self.shard = GroupShard(settings, NO_TOPICS)
        self.answers: dict[int, JoinGroupResponse | SyncGroupResponse] = {}
        self.journal: list[tuple[bytes, bytes | None]] = []
        self.timers: dict[object, int] = {}
        self.waiter = 0
        self.client_id = "c"

    def settle(self, out: Decision) -> None:
        self.journal += out.records
        apply(out, self.shard, self.timers)
        self.answers.update(out.replies)
        for to, reply in out.many_replies:
            self.answers.update({waiter: reply(member_id) for member_id, waiter in to.items()})

    def gather(self, now: int) -> None:
        """Begin the first generation of a group that waits for no other member."""
        if self.timers.get(("join", "g")) == now + TOGETHER_MS:
            self.expire("join", "g", now=now)

    def join(
        self, new_id: str, member_id: str = "", *, now: int = 0, id_required: bool = False, **fields: object
    ) -> int:
        self.waiter += 1
        out = Decision()
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=30_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"m")],
        )
        for name, value in fields.items():
            setattr(request, name, value)
        joining = Joining(
            request,
            self.client_id,
            "/h",
            self.waiter,
            new_id,
            known_id_required=id_required,
            can_skip_assignment=True,
        )
        self.shard.join(joining, now, out)
        self.settle(out)
        self.gather(now)
        return self.waiter

    def sync(self, member_id: str, generation: int, now: int = 0, **assignments: bytes) -> int:
        self.waiter += 1
        out = Decision()
        entries = [
            SyncGroupRequest.SyncGroupRequestAssignment(member_id=name, assignment=value)
            for name, value in assignments.items()
        ]
        request = SyncGroupRequest(
            group_id="g", generation_id=generation, member_id=member_id, assignments=entries
        )
        self.shard.group("g").sync(request, self.waiter, now, out)
        self.settle(out)
        return self.waiter

    def leave(self, *member_ids: str) -> list[int]:
        out = Decision()
        members = [LeaveGroupRequest.MemberIdentity(member_id=member_id) for member_id in member_ids]
        codes = self.shard.leave("g", members, 5, out)
        self.settle(out)
        return codes

    def expire(self, *timer: object, now: int) -> None:
        out = Decision()
        self.shard.expire(timer, now, out)
        self.settle(out)

    def stable_pair(self) -> None:
        """Members a (leader) and b in a stable generation 2."""
        self.join("a")
        self.join("b")
        self.join("", "a")
        self.sync("b", 2)
        self.sync("a", 2, a=b"1", b=b"2")
        assert self.group.state is State.STABLE

    @property
    def group(self):  # type: ignore[no-untyped-def]
        return self.shard.groups["g"]


@pytest.mark.parametrize(("group_version", "offset_version"), [(0, 1), (1, 1), (2, 2), (3, 3)])
def test_records_have_the_versions_of_the_release(group_version: int, offset_version: int) -> None:
    versions = RecordVersions(group_metadata=group_version, offset_commit=offset_version)
    h = Harness(GroupSettings(initial_rebalance_delay_ms=0, record_versions=versions))
    h.stable_pair()
    of_group = [value for _, value in h.journal if value is not None]
    assert {int.from_bytes(value[:2], "big") for value in of_group} == {group_version}
    out = Decision()
    offsets = [
        (("t", 0), OffsetCommitValue(offset=5, leader_epoch=3, commit_timestamp=7)),
        (("t", 1), OffsetCommitValue(offset=6, leader_epoch=3, commit_timestamp=7, expire_timestamp=9)),
    ]
    h.shard.commit("g", offsets, out)
    assert [int.from_bytes((value or b"")[:2], "big") for _, value in out.records] == [offset_version, 1]
    h.settle(out)
    other = GroupShard(NO_DELAY, NO_TOPICS)
    for key, value in h.journal:
        other.replay(key, value, loading=True)
    assert list(other.group("g").members) == list(h.group.members)
    assert other.group("g").generation == h.group.generation
    assert other.offsets == h.shard.offsets
    assert other.offsets["g"]["t", 0].leader_epoch == (3 if offset_version == 3 else -1)


def test_members_leaving_together_cause_one_rebalance() -> None:
    h = Harness()
    h.stable_pair()
    waiting = h.join("c")
    assert h.leave("a", "c", "nobody", "b") == [0, 0, ErrorCode.UNKNOWN_MEMBER_ID, 0]
    assert h.answers[waiting] == JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
    assert h.group.state is State.EMPTY
    assert h.group.generation == 3


def test_group_without_delay_begins_without_pending_ids() -> None:
    h = Harness()
    h.join("c-1", id_required=True)
    joined = h.join("s-1", group_instance_id="s", id_required=True)
    assert h.answers[joined].generation_id == 1
    assert h.group.pending == {"c-1"}


def test_returning_static_member_keeps_its_described_client() -> None:
    h = Harness()
    h.client_id = "the first"
    h.join("s-1", group_instance_id="s")
    h.sync("s-1", 1)
    h.client_id = "the second"
    h.join("s-2", group_instance_id="s")
    assert h.group.members["s-2"].client_id == "the first"


def test_a_negative_rebalance_timeout_is_over_at_once() -> None:
    h = Harness()
    h.join("a", rebalance_timeout_ms=-1)
    assert h.timers["sync", "g"] == -1
    h.expire("sync", "g", now=0)
    assert h.group.state is State.EMPTY


def test_join_to_an_offsets_only_group_checks_protocols_first() -> None:
    h = Harness()
    h.shard.offsets["g"] = {("t", 0): OffsetCommitValue()}
    assert code_of(h.join, "x", "nobody", protocols=[]) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert code_of(h.join, "x", "nobody") == ErrorCode.UNKNOWN_MEMBER_ID


def test_returning_static_member_fences_its_old_id() -> None:
    h = Harness()
    h.join("s-1", group_instance_id="s")
    h.sync("s-1", 1, **{"s-1": b"mine"})
    back = h.join("s-2", group_instance_id="s")
    assert h.answers[back].generation_id == 1
    assert h.answers[back].skip_assignment
    assert h.group.state is State.STABLE
    assert code_of(h.group.heartbeat, "s-1", "s", 1, 0, Decision()) == ErrorCode.FENCED_INSTANCE_ID
    synced = h.sync("s-2", 1)
    assert h.answers[synced].assignment == b"mine"


def test_first_generation_without_delay_waits_a_few_ms(monkeypatch) -> None:
    h = Harness(NO_DELAY)
    monkeypatch.setattr(h, "gather", lambda now: None)
    first, second = h.join("a"), h.join("b", now=TOGETHER_MS - 1)
    h.expire("join", "g", now=TOGETHER_MS)
    assert h.timers["join", "g"] == 2 * TOGETHER_MS
    third = h.join("c", now=TOGETHER_MS + 1)
    h.expire("join", "g", now=2 * TOGETHER_MS)
    assert h.answers == {}
    h.expire("join", "g", now=3 * TOGETHER_MS)
    assert {h.answers[member].generation_id for member in (first, second, third)} == {1}


def test_errors_of_members() -> None:
    h = Harness()
    h.stable_pair()
    assert code_of(h.join, "", "nobody") == ErrorCode.UNKNOWN_MEMBER_ID
    assert code_of(h.join, "c", session_timeout_ms=1) == ErrorCode.INVALID_SESSION_TIMEOUT
    assert code_of(h.join, "c", protocol_type="connect") == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert code_of(h.join, "c", protocols=[]) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert code_of(h.sync, "a", 1) == ErrorCode.ILLEGAL_GENERATION
    assert code_of(h.sync, "nobody", 2) == ErrorCode.UNKNOWN_MEMBER_ID
    assert code_of(h.group.heartbeat, "a", None, 1, 0, Decision()) == ErrorCode.ILLEGAL_GENERATION
    assert code_of(h.group.heartbeat, "nobody", None, 2, 0, Decision()) == ErrorCode.UNKNOWN_MEMBER_ID
    assert code_of(h.group.leave, "nobody", None, Decision()) == ErrorCode.UNKNOWN_MEMBER_ID
    for field in ("protocol_type", "protocol_name"):
        request = SyncGroupRequest(group_id="g", generation_id=2, member_id="a", **{field: "other"})
        assert code_of(h.group.sync, request, 1, 0, Decision()) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    h.join("c", now=1)
    assert code_of(h.sync, "a", 2) == ErrorCode.REBALANCE_IN_PROGRESS
    h.join("given", id_required=True)
    assert code_of(h.join, "", "given", group_instance_id="s") == ErrorCode.UNKNOWN_MEMBER_ID


def test_member_that_rejoins_has_its_new_session_timeout() -> None:
    h = Harness()
    h.stable_pair()
    h.join("", "a", session_timeout_ms=20_000, now=100)
    h.join("", "b", now=100)
    h.sync("b", 3, now=200)
    h.sync("a", 3, now=200, a=b"1", b=b"2")
    assert (h.timers["session", "g", "a"], h.timers["session", "g", "b"]) == (20_200, 10_200)


def test_full_group_lets_its_own_members_rejoin() -> None:
    h = Harness(GroupSettings(initial_rebalance_delay_ms=0, size_max=2))
    h.stable_pair()
    assert h.answers[h.join("c")].error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    for member_id in ("a", "b"):
        waiter = h.join("", member_id)
    assert h.answers[waiter].generation_id == 3


def test_more_than_100_protocols_are_inconsistent() -> None:
    protocols = [JoinGroupRequest.JoinGroupRequestProtocol(name=f"{n}", metadata=b"") for n in range(101)]
    assert code_of(Harness().join, "a", protocols=protocols) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_sync_of_a_member_that_leaves_is_unknown_member() -> None:
    h = Harness()
    h.join("a")
    h.join("b")
    h.join("", "a")
    waiter = h.sync("b", 2)
    assert h.leave("b") == [0]
    assert h.answers[waiter].error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_group_of_another_kind_is_named_as_such() -> None:
    h = Harness()
    h.stable_pair()
    with pytest.raises(RequestError, match="group 'g' is a classic group, not a streams group"):
        h.shard.streams_group("g")
    with pytest.raises(RequestError, match="there is no group 'other'"):
        h.shard.streams_group("other")


def test_who_may_commit() -> None:
    h = Harness()
    check = h.shard.check_commit
    assert code_of(check, "g", Committer("", 3), 0, Decision()) == ErrorCode.ILLEGAL_GENERATION
    check("g", Committer("", -1), 0, Decision())
    h.stable_pair()
    assert code_of(check, "g", Committer("", -1), 0, Decision()) == ErrorCode.UNKNOWN_MEMBER_ID
    assert code_of(check, "g", Committer("a", 1), 0, Decision()) == ErrorCode.ILLEGAL_GENERATION
    check("g", Committer("a", 2), 0, Decision())
    h.join("c", now=1)
    h.join("", "a", now=1)
    h.join("", "b", now=1)
    assert h.group.state is State.COMPLETING_REBALANCE
    assert code_of(check, "g", Committer("a", 3), 0, Decision()) == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_group_with_members_is_not_deleted() -> None:
    h = Harness()
    h.stable_pair()
    assert code_of(h.shard.delete_group, "g", Decision()) == ErrorCode.NON_EMPTY_GROUP


# --- what members read ------------------------------------------------------------


def subscription(*topics: str) -> bytes:
    return encode_versioned(SUBSCRIPTION, ConsumerProtocolSubscription(topics=list(topics)), 0)


def test_subscribed_topics_are_cached_until_a_member_changes() -> None:
    h = Harness()
    h.stable_pair()
    members = h.group.members
    for member_id, topics in (("a", ("x", "y")), ("b", ("y",))):
        members.put(members[member_id].again(member_id, [("range", subscription(*topics))], 1, 1))
    assert h.shard.subscription_size("g") >= 2
    topics = h.group.subscribed_topics()
    assert topics == {"x", "y"}
    assert h.group.subscribed_topics() is topics
    assert h.shard.subscription_size("g") == 0
    members.put(members["a"].again("a", [("range", subscription("z"))], 1, 1))
    assert h.shard.subscription_size("g") >= 2
    assert h.group.subscribed_topics() == {"y", "z"}


# --- counting ---------------------------------------------------------------------------------------------------


def test_emptied_group_waits_for_members_like_a_new_one() -> None:
    h = Harness(GroupSettings())
    h.join("a")
    h.expire("join", "g", now=3_000)
    h.leave("a")
    h.expire("join", "g", now=3_000)
    assert (h.group.state, h.group.generation) == (State.EMPTY, 2)
    first = h.join("b", now=10_000)
    second = h.join("c", now=11_000)
    h.expire("join", "g", now=13_000)
    assert h.answers.keys().isdisjoint({first, second})
    assert h.timers["join", "g"] == 16_000
    h.expire("join", "g", now=16_000)
    assert h.answers[first].generation_id == h.answers[second].generation_id == 3
