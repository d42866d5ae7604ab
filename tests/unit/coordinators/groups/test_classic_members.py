"""Members of the classic protocol in a consumer group: joining, joining again, leaving."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.coordinators.groups.consumer import classic_members
from barnabas.coordinators.groups.consumer.member import ClassicProtocols
from barnabas.coordinators.groups.epoch_member import MemberState
from barnabas.coordinators.groups.member import Joining
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.join_group import JoinGroupRequest
from barnabas.wire.generated.sync_group import SyncGroupRequest
from tests.support.refusals import code_of

from .test_consumer_rules import PROTOCOLS, SAID, World, member, slots


def joining(member_id: str = "", **fields: Any) -> Joining:
    request = JoinGroupRequest(
        group_id="g", session_timeout_ms=9_000, rebalance_timeout_ms=7_000, member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name=n, metadata=m) for n, m in PROTOCOLS.protocols],
    )  # fmt: skip
    id_required = bool(fields.pop("id_required", False))
    for name, value in fields.items():
        setattr(request, name, value)
    return Joining(request, "c", "/h", 77, "new", known_id_required=id_required, can_skip_assignment=True)


def protocol(name: str = "range", metadata: bytes = SAID) -> Any:
    return [JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=metadata)]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"protocols": protocol(metadata=b"")}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": protocol(metadata=b"\0")}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": protocol("another")}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"group_instance_id": "s", "member_id": "a"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"group_instance_id": "i", "member_id": "a"}, ErrorCode.FENCED_INSTANCE_ID),
    ],
)
def test_join_that_does_not_fit_a_consumer_group_is_refused(fields, code):
    world = World(member("a", classic=True), member("i-1", instance_id="i"))
    assert code_of(classic_members.join, world.group(), joining(**fields), world.context()) == code


def test_a_full_group_takes_its_members_again_and_nobody_else():
    world = World(member("a", classic=True), consumer_size_max=1)
    full = code_of(classic_members.join, world.group(), joining("b"), world.context())
    assert full == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert classic_members.join(world.group(), joining("a"), world.context()) is not None


def test_who_joins_by_the_classic_protocol_is_what_it_says():
    world = World(member("a", classic=True, rack_id="known", regex="t.*"))
    context = world.context()
    after = classic_members.join(world.group(), joining("a", session_timeout_ms=8_000), context)
    assert after is not None
    assert (after.rack_id, after.regex, after.client_id, after.client_host) == ("known", "", "c", "/h")
    assert (after.rebalance_timeout_ms, after.topics) == (7_000, {"t"})
    assert after.classic == ClassicProtocols(8_000, PROTOCOLS.protocols)
    classic_members.answer_join(world.group(), after, joining("a"), context)
    timers = {key[0]: at_ms for key, at_ms in context.out.timers.items() if key[2] == "a"}
    assert timers["session"] == 1_000 + 8_000
    assert (timers["rejoin"], timers["resync"]) == (None, 1_000 + 7_000)
    [(waiter, answer)] = context.out.replies
    assert (waiter, answer.generation_id, answer.leader, answer.members) == (77, after.epoch, "", [])


def test_returning_static_member_takes_over_its_partitions():
    world = World(member("i-1", classic=True, instance_id="i", assigned=slots(0)))
    after = classic_members.join(world.group(), joining(group_instance_id="i"), world.context())
    assert after is not None
    assert (after.id, after.instance_id, after.assigned.items() >= slots(0).items()) == ("new", "i", True)


@pytest.mark.parametrize(
    ("state", "epoch", "missing", "owner", "must"),
    [
        (MemberState.STABLE, 5, (), None, False),
        (MemberState.STABLE, 4, (), None, True),
        (MemberState.UNREVOKED, 5, (), None, True),
        (MemberState.UNRELEASED, 5, (3,), "b", False),
        (MemberState.UNRELEASED, 5, (3,), None, True),
        (MemberState.UNRELEASED, 4, (3,), "b", True),
    ],
)
def test_a_member_must_join_again_when_it_can_take_a_step(state, epoch, missing, owner, must):
    world = World(
        member("a", classic=True, state=state, epoch=epoch, assigned=slots(0)),
        *([member(owner, assigned=slots(*missing))] if owner else []),
    )
    group = world.group()
    group.put_target("a", frozenset(slots(0, *missing)))
    context = world.context()
    assert classic_members.must_join_again(group, "a", None, epoch, context) is must
    assert context.out.timers["session", "g", "a"] == 1_000 + 9_000
    assert context.out.timers.get(("rejoin", "g", "a")) == (1_000 + 7_000 if must else None)
    world.now_ms = 3_000
    context = world.context()
    assert classic_members.must_join_again(group, "a", None, epoch, context) is must
    assert context.out.timers.get(("rejoin", "g", "a")) == (1_000 + 7_000 if must else None), (
        "from when it was told"
    )


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (("a", None, 4), ErrorCode.ILLEGAL_GENERATION),
        (("a", None, 6), ErrorCode.ILLEGAL_GENERATION),
        (("b", None, 5), ErrorCode.UNKNOWN_MEMBER_ID),
        (("nobody", None, 5), ErrorCode.UNKNOWN_MEMBER_ID),
        (("a", "i", 5), ErrorCode.FENCED_INSTANCE_ID),
        (("i-1", "none", 5), ErrorCode.UNKNOWN_MEMBER_ID),
        (("i-1", "i", 5), 0),
    ],
)
def test_classic_heartbeat_is_checked_as_a_members(args, code):
    world = World(member("a", classic=True), member("b"), member("i-1", classic=True, instance_id="i"))
    action = classic_members.must_join_again
    if code:
        assert code_of(action, world.group(), *args, world.context()) == code
    else:
        assert not action(world.group(), *args, world.context())


@pytest.mark.parametrize(
    ("epoch", "state", "is_behind"),
    [
        (5, MemberState.STABLE, False),
        (4, MemberState.STABLE, True),
        (4, MemberState.UNRELEASED, True),
        (4, MemberState.UNREVOKED, False),
        (5, MemberState.UNRELEASED, False),
    ],
)
def test_sync_behind_the_group_rebalances_unless_revoking(epoch, state, is_behind):
    world = World(member("a", classic=True, epoch=epoch, state=state, assigned=slots(1)))
    for field in ("protocol_type", "protocol_name"):
        request = SyncGroupRequest(group_id="g", generation_id=epoch, member_id="a", **{field: "other"})
        code = code_of(classic_members.sync, world.group(), request, 78, world.context())
        assert code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    request = SyncGroupRequest(group_id="g", generation_id=epoch, member_id="a")
    context = world.context()
    classic_members.sync(world.group(), request, 78, context)
    [(waiter, answer)] = context.out.replies
    assert waiter == 78
    if is_behind:
        assert answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS
        assert context.out.timers == {("rejoin", "g", "a"): 1_000 + 7_000}
    else:
        assert (answer.error_code, bool(answer.assignment)) == (0, True)
        assert context.out.timers == {("session", "g", "a"): 1_000 + 9_000, ("resync", "g", "a"): None}


@pytest.mark.parametrize(
    ("args", "member_id"),
    [
        (("a", None), "a"),
        (("i-1", "i"), "i-1"),
        (("", "i"), "i-1"),
        (("i-1", None), "i-1"),
        (("a", "i"), ErrorCode.FENCED_INSTANCE_ID),
        (("i-1", "j"), ErrorCode.UNKNOWN_MEMBER_ID),
        (("", "j"), ErrorCode.UNKNOWN_MEMBER_ID),
        (("nobody", None), ErrorCode.UNKNOWN_MEMBER_ID),
        (("", None), ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_who_leaves_is_named_by_its_id_or_by_its_instance_id(args, member_id):
    """Of either protocol: the request may be an operator's."""
    group = World(member("a", classic=True), member("i-1", instance_id="i")).group()
    if isinstance(member_id, str):
        assert classic_members.leaver(group, *args).id == member_id
    else:
        assert code_of(classic_members.leaver, group, *args) == member_id
