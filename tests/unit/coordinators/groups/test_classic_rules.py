"""A classic group, rule by rule, where two of them are easily taken for one: each case has one of them alone decide."""

from __future__ import annotations

import pytest

from barnabas.coordinators.groups.group import Committer
from barnabas.coordinators.groups.member import MANY_MEMBERS, Member, State
from barnabas.coordinators.groups.settings import GroupSettings
from barnabas.coordinators.statemachine.decision import Decision
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.join_group import JoinGroupResponse
from barnabas.wire.generated.sync_group import SyncGroupRequest
from tests.support.refusals import code_of

from .test_classic import Harness, subscription
from .test_classic_times import REBALANCE_MS, SESSION_MS, protocols, session, stable

FULL = JoinGroupResponse(error_code=ErrorCode.GROUP_MAX_SIZE_REACHED)
OTHER = protocols("range", metadata=b"other")


# --- who is let in ------------------------------------------------------------------------------------------------


def test_an_id_that_was_given_is_not_that_of_a_static_member():
    h = stable("a")
    h.join("given", known=True)
    assert code_of(h.join, "", "given", group_instance_id="s") == ErrorCode.UNKNOWN_MEMBER_ID
    assert h.group.pending == {"given"}


def test_who_was_given_an_id_and_comes_is_not_waited_for_any_longer():
    h = stable("a")
    h.join("given", known=True, now=2_000)
    joined = h.join("", "given", now=3_000)
    assert h.group.pending == set()
    again = h.join("", "a", now=4_000)
    assert h.answers[joined].generation_id == h.answers[again].generation_id == 2


def test_ids_that_were_given_take_no_room_in_a_stable_group():
    h = Harness(GroupSettings(initial_rebalance_delay_ms=0, size_max=2))
    h.join("a")
    h.sync("a", 1, a=b"1")
    h.join("given", known=True)
    assert h.join("b") not in h.answers
    assert set(h.group.members) == {"a", "b"}


def test_while_a_group_gathers_there_is_room_for_as_many_as_come_first_and_for_these_again():
    h = Harness(GroupSettings(initial_rebalance_delay_ms=3_000, size_max=2))
    first = h.join("a")
    h.join("b")
    assert h.answers[h.join("c")] == FULL
    again = h.join("", "a")
    assert h.answers[first].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert again not in h.answers
    assert set(h.group.members) == {"a", "b"}


def test_a_member_that_comes_again_too_late_finds_a_full_group():
    h = Harness(GroupSettings(initial_rebalance_delay_ms=0, size_max=2))
    h.stable_pair()
    h.join("", "a", protocols=OTHER)
    assert h.group.state is State.PREPARING_REBALANCE
    assert h.join("c") not in h.answers
    assert h.answers[h.join("", "b")] == FULL


def test_the_next_members_of_a_group_that_was_left_may_be_of_another_protocol_type():
    h = stable("a")
    h.leave("a")
    assert h.group.state is State.EMPTY
    answer = h.join("w", protocol_type="connect", protocols=protocols("compatible"))
    assert (h.answers[answer].error_code, h.answers[answer].protocol_type) == (0, "connect")
    assert h.answers[answer].protocol_name == "compatible"
    assert h.group.protocol_type == "connect"


@pytest.mark.parametrize(
    ("names", "is_in"), [(("range", "mine"), True), (("mine", "range"), True), (("mine",), False)]
)
def test_one_protocol_in_common_with_all_is_enough(names, is_in):
    h = stable("a", "b")
    if is_in:
        assert h.join("c", protocols=protocols(*names)) not in h.answers
    else:
        assert code_of(h.join, "c", protocols=protocols(*names)) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


# --- who joins again ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("member_id", ["a", "b"])
@pytest.mark.parametrize("said", [protocols("range"), OTHER], ids=["the same", "something else"])
def test_while_members_wait_for_their_parts_only_who_says_something_else_has_all_join_again(member_id, said):
    h = Harness()
    h.join("a")
    h.join("b")
    h.join("", "a")
    waiting = h.sync("b", 2)
    asked = h.join("", member_id, now=3_000, protocols=said)
    if said == OTHER:
        assert asked not in h.answers
        assert h.answers[waiting].error_code == ErrorCode.REBALANCE_IN_PROGRESS
        assert h.group.state is State.PREPARING_REBALANCE
        assert ("sync", "g") not in h.timers
    else:
        assert h.answers[asked].generation_id == 2
        assert bool(h.answers[asked].members) is (member_id == "a")
        assert (h.group.state, waiting in h.answers) == (State.COMPLETING_REBALANCE, False)
        assert h.timers[session(member_id)] == 3_000 + SESSION_MS


@pytest.mark.parametrize(
    "change",
    [
        {"session_timeout_ms": 7_000},
        {"rebalance_timeout_ms": 50_000},
        {"protocols": protocols("range", "more")},
    ],
    ids=lambda change: next(iter(change)),
)
def test_each_thing_that_a_member_says_anew_counts_by_itself(change):
    h = stable("a", "b")
    before = h.group.members["a"]
    h.join("", "a", now=2_000, **change)
    after = h.group.members["a"]
    said = {
        "session_timeout_ms": after.session_timeout_ms,
        "rebalance_timeout_ms": after.rebalance_timeout_ms,
        "protocols": protocols(*after.protocol_names),
    }
    was = {
        "session_timeout_ms": before.session_timeout_ms,
        "rebalance_timeout_ms": before.rebalance_timeout_ms,
        "protocols": protocols("range"),
    }
    assert said == was | change
    assert (after.id, after.client_id, after.client_host, after.joined_in) == (
        "a",
        "c",
        "/h",
        before.joined_in,
    )
    h.join("", "b", now=3_000)
    assert h.timers[session("a")] == 3_000 + said["session_timeout_ms"]
    assert h.timers["sync", "g"] == 3_000 + max(said["rebalance_timeout_ms"], REBALANCE_MS)


def test_a_member_of_a_group_that_was_left_by_all_is_not_known():
    h = stable("a")
    h.leave("a")
    assert code_of(h.join, "", "a") == ErrorCode.UNKNOWN_MEMBER_ID


def test_who_is_superseded_is_answered_once():
    h = stable("a", "b")
    first = h.join("", "a", protocols=OTHER)
    h.join("", "a", protocols=OTHER)
    h.answers.pop(first)
    h.leave("a")
    assert first not in h.answers


# --- rebalancing --------------------------------------------------------------------------------------------------


def test_only_who_comes_while_a_first_generation_gathers_prolongs_it():
    h = Harness(GroupSettings(initial_rebalance_delay_ms=3_000))
    h.join("a")
    h.expire("join", "g", now=3_000)
    h.sync("a", 1, a=b"1")
    h.join("b", now=4_000)
    assert h.timers["join", "g"] == 4_000 + REBALANCE_MS
    h.expire("join", "g", now=34_000)
    assert (h.group.state, set(h.group.members)) == (State.COMPLETING_REBALANCE, {"b"})


@pytest.mark.parametrize(
    ("rebalance_ms", "ends_ms"), [(3_000, 3_000), (4_000, 4_000), (7_000, 7_000), (60_000, 60_000)]
)
def test_a_first_generation_gathers_for_a_rebalance_timeout_at_most(rebalance_ms, ends_ms):
    h = Harness(GroupSettings(initial_rebalance_delay_ms=3_000))
    first, now = h.join("m0", rebalance_timeout_ms=rebalance_ms), 0
    while first not in h.answers:
        now = h.timers["join", "g"]
        h.join(f"m{now}", now=now - 1, rebalance_timeout_ms=rebalance_ms)
        h.expire("join", "g", now=now)
    assert now == ends_ms


def test_nobody_who_came_to_a_generation_long_ago_prolongs_the_first_one_after_it():
    h = Harness(GroupSettings(initial_rebalance_delay_ms=3_000))
    h.join("a", rebalance_timeout_ms=3_000)
    h.join("b", rebalance_timeout_ms=3_000)
    h.expire("join", "g", now=3_000)
    assert h.group.generation == 1, "there is no time left for more"
    h.leave("a", "b")
    assert h.group.state is State.EMPTY
    waiting = h.join("c", now=10_000)
    assert h.timers["join", "g"] == 13_000
    h.expire("join", "g", now=13_000)
    assert h.answers[waiting].generation_id == 3


def test_a_generation_that_gathers_ends_when_the_last_who_was_missed_leaves():
    h = stable("a", "b", "c")
    waiting = h.join("", "a", protocols=OTHER)
    h.join("", "c")
    assert waiting not in h.answers
    h.leave("b")
    assert h.answers[waiting].generation_id == h.group.generation


@pytest.mark.parametrize("initial", [True, False])
def test_who_leaves_a_first_generation_does_not_begin_it(initial):
    h = Harness(GroupSettings(initial_rebalance_delay_ms=3_000))
    waiting = h.join("a")
    h.join("b")
    if not initial:
        h.expire("join", "g", now=3_000)
        h.expire("join", "g", now=6_000)
        assert h.group.generation == 1
    h.leave("b")
    assert (h.group.state, waiting in h.answers) == (State.PREPARING_REBALANCE, not initial)


@pytest.mark.parametrize("state", [State.STABLE, State.COMPLETING_REBALANCE])
def test_a_member_that_is_gone_has_the_others_join_again(state):
    h = stable("a", "b", "c")
    if state is State.COMPLETING_REBALANCE:
        for member_id in ("a", "b", "c"):
            h.join("", member_id, protocols=OTHER)
        waiting = h.sync("c", h.group.generation)
    assert h.group.state is state
    h.expire("session", "g", "b", now=20_000)
    assert h.group.state is State.PREPARING_REBALANCE
    assert set(h.group.members) == {"a", "c"}
    assert session("b") not in h.timers
    if state is State.COMPLETING_REBALANCE:
        assert h.answers[waiting].error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_who_leaves_while_it_waits_is_answered_whatever_it_waits_for():
    h = stable("a", "b")
    joining = h.join("", "a", protocols=OTHER)
    h.leave("a")
    assert h.answers[joining].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    h.join("", "b")
    h.join("c")
    h.join("", "b")
    syncing = h.sync("c", h.group.generation)
    h.leave("c")
    assert h.answers[syncing].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert h.group.leader == "b"


def test_an_id_that_was_given_and_is_forgotten_disturbs_nobody_in_a_stable_group():
    h = stable("a")
    h.join("given", known=True)
    h.expire("session", "g", "given", now=20_000)
    assert (h.group.state, h.group.pending) == (State.STABLE, set())


def test_an_id_that_is_given_back_is_not_waited_for():
    h = stable("a")
    h.join("given", known=True)
    h.leave("given")
    assert session("given") not in h.timers


def test_who_has_synced_in_one_generation_has_not_in_the_next():
    h = stable("a", "b")
    for member_id in ("a", "b"):
        h.join("", member_id, protocols=OTHER)
    h.sync("a", h.group.generation, a=b"1", b=b"2")
    assert h.group.synced == {"a"}
    h.expire("sync", "g", now=90_000)
    assert set(h.group.members) == {"a"}


def test_who_has_left_in_the_meantime_is_not_missed_among_those_who_have_synced():
    h = stable("a", "b", "c")
    h.leave("b")
    assert h.group.synced == {"a", "c"}


def test_the_time_for_syncing_means_nothing_while_members_gather():
    """Those who have not synced in the generation before may be on their way."""
    h = stable("a", "b")
    for member_id in ("a", "b"):
        h.join("", member_id, protocols=OTHER)
    h.sync("b", h.group.generation)
    h.join("c")
    assert h.group.synced == {"b"}
    h.expire("sync", "g", now=90_000)
    assert (h.group.state, set(h.group.members)) == (State.PREPARING_REBALANCE, {"a", "b", "c"})


def test_a_member_that_is_dropped_and_comes_again_is_a_new_one_to_all_who_count():
    """Its assignment is not kept for it, nor that of the generation before for those who are late."""
    h = stable("a", "b")
    for member_id in ("a", "b"):
        h.join("", member_id, protocols=OTHER)
    h.join("", "b", protocols=protocols("range", metadata=b"another"))
    assert h.group.assignments == {}


# --- generations --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("off", [-1, 1])
@pytest.mark.parametrize("what", ["heartbeat", "sync", "commit"])
def test_a_generation_before_and_one_to_come_are_refused(what, off):
    h = stable("a", "b")
    generation = h.group.generation + off
    actions = {
        "heartbeat": lambda: h.group.heartbeat("a", None, generation, 0, Decision()),
        "sync": lambda: h.sync("a", generation),
        "commit": lambda: h.shard.check_commit("g", Committer("a", generation), 0, Decision()),
    }
    assert code_of(actions[what]) == ErrorCode.ILLEGAL_GENERATION


@pytest.mark.parametrize("state", ["gathering", "waiting"])
def test_a_heartbeat_finds_its_member_while_members_join_again(state):
    h = stable("a", "b")
    h.join("", "a", protocols=OTHER, now=2_000)
    if state == "waiting":
        h.join("", "b", now=2_000)
    out = Decision()
    h.group.heartbeat("b", None, h.group.generation, 3_000, out)
    assert out.timers == {session("b"): 3_000 + SESSION_MS}
    assert h.group.is_joining is (state == "gathering")


# --- small things ---------------------------------------------------------------------------------------------------


def test_an_id_that_is_given_back_to_an_empty_group_begins_no_generation():
    h = stable("a")
    h.leave("a")
    generation, records = h.group.generation, len(h.journal)
    h.join("given", known=True)
    h.leave("given")
    assert (h.group.state, h.group.generation, len(h.journal)) == (State.EMPTY, generation, records)


def test_a_static_member_that_names_its_member_id_leaves_only_as_itself():
    h = stable("a")
    h.join("s-1", group_instance_id="s")
    fenced = code_of(h.group.leave, "another", "s", Decision())
    assert fenced == ErrorCode.FENCED_INSTANCE_ID
    assert code_of(h.group.leave, "a", "s", Decision()) == ErrorCode.FENCED_INSTANCE_ID
    h.group.leave("s-1", "s", Decision())
    assert (set(h.group.members), h.group.static_ids) == ({"a"}, {})


def test_a_sync_that_names_a_protocol_that_was_not_chosen_is_refused_although_its_member_knows_it():
    h = Harness()
    h.join("a", protocols=protocols("range", "sticky"))
    h.waiter += 1
    request = SyncGroupRequest(group_id="g", generation_id=1, member_id="a", protocol_name="sticky")
    refused = code_of(h.group.sync, request, 1, 0, Decision())
    assert refused == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_member_that_waits_for_its_part_is_not_dropped_when_its_session_is_over():
    h = stable("a", "b")
    for member_id in ("a", "b"):
        h.join("", member_id, protocols=OTHER)
    h.sync("b", h.group.generation, now=2_000)
    h.expire("session", "g", "b", now=12_000)
    assert set(h.group.members) == {"a", "b"}
    assert h.timers[session("b")] == 12_000 + SESSION_MS


@pytest.mark.parametrize("count", [MANY_MEMBERS - 1, MANY_MEMBERS])
def test_however_many_members_are_late_their_sessions_and_instance_ids_end_and_another_leads(count):
    h = Harness()
    members = [Member(f"m{n}", f"s{n}", "", "", 9, 9, [("range", b"")]) for n in range(count)]
    late = Member("late", None, "", "", 9, 9, [("range", b"")])
    h.join("in time")
    group = h.group
    for member in (*members, late):
        group.members.put(member)
        if member.instance_id is not None:
            group.static_ids[member.instance_id] = member.id
        h.timers[session(member.id)] = 9
    group.leader, group.state, group.synced = "m0", State.COMPLETING_REBALANCE, {"in time", "late"}
    h.expire("sync", "g", now=50_000)
    assert list(group.members) == ["in time", "late"]
    assert (group.static_ids, group.leader, group.state) == ({}, "in time", State.PREPARING_REBALANCE)
    assert {key for key in h.timers if key[0] == "session"} == {session("in time"), session("late")}


def test_topics_are_read_anew_when_another_protocol_is_chosen():
    h = stable("a")
    said = [("range", subscription("x")), ("sticky", subscription("y"))]
    h.group.members.put(h.group.members["a"].again("a", said, 1, 1))
    assert h.group.subscribed_topics() == {"x"}
    h.group.protocol = "sticky"
    assert h.group.subscribed_topics() == {"y"}
    h.group.protocol = None
    assert h.group.subscribed_topics() is None
    h.group.protocol, h.group.protocol_type = "sticky", "connect"
    assert h.group.subscribed_topics() is None
    assert h.group.offset_retention() is None


class Watched(Harness):
    """Notes of each event whether it says that it changes the group ahead of its records."""

    def __init__(self) -> None:
        super().__init__()
        self.ahead: list[bool] = []

    def settle(self, out: Decision) -> None:
        self.ahead.append(out.is_ahead)
        super().settle(out)


@pytest.mark.parametrize(
    "event",
    [
        lambda h: h.join("c"),
        lambda h: h.join("", "b"),
        lambda h: h.join("", "b", protocols=OTHER),
        lambda h: h.sync("b", 2),
        lambda h: h.leave("b"),
        lambda h: h.leave("given"),
        lambda h: h.expire("session", "g", "b", now=20_000),
        lambda h: h.expire("session", "g", "given", now=20_000),
        lambda h: h.expire("join", "g", now=40_000),
        lambda h: h.expire("sync", "g", now=40_000),
    ],
)
def test_an_event_that_changes_a_group_says_so_since_its_records_come_later(event):
    """If it fails halfway only the log says what is true."""
    h = Watched()
    h.stable_pair()
    h.join("given", known=True)
    h.ahead.clear()
    event(h)
    assert h.ahead == [True]


def test_an_event_that_merely_hears_of_a_member_is_no_reason_to_read_the_group_again():
    h = stable("a", "b")
    out = Decision()
    h.group.heartbeat("a", None, h.group.generation, 0, out)
    h.shard.check_commit("g", Committer("a", h.group.generation), 0, out)
    assert not out.is_ahead
    for change in (h.group.begin_rebalance, h.group.members_left):
        out = Decision()
        change(0, out)
        assert out.is_ahead
