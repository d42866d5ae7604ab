"""A member of a classic group: what it says in each version, what it does upon each error, and what it gives up when."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from barnabas.client import ClientSettings, ConnectionLostError, ResponseError, TopicPartition
from barnabas.client.consuming import protocol
from barnabas.client.consuming.classic import ClassicMembership, _AgainError
from barnabas.client.consuming.membership import Subscription
from barnabas.client.errors import FencedInstanceError
from barnabas.wire.generated.data import consumer_protocol_subscription as subscription_data
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.wire.generated.join_group import JoinGroupRequest, JoinGroupResponse
from barnabas.wire.generated.leave_group import LeaveGroupRequest, LeaveGroupResponse
from barnabas.wire.generated.sync_group import SyncGroupRequest, SyncGroupResponse
from tests.support.members import RecordingHost, StandinCoordinator, settings_of, topics_with

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
JOINS_AGAIN = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS}
LOST_COORDINATOR = {
    ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}  # fmt: skip
ERRORS = [code for code in ErrorCode if code]


class Group:
    """A coordinator with one member, which leads or follows."""

    def __init__(self, *assigned: TopicPartition, leader: str = "other") -> None:
        self.assigned = set(assigned)
        self.leader = leader
        self.joined = JoinGroupResponse(0, 0, 5, "consumer", "range", leader, False, "m")
        self.codes: dict[type, int] = {}

    def __call__(self, request: Any) -> Any:
        code = self.codes.get(type(request), 0)
        if isinstance(request, JoinGroupRequest):
            self.joined.error_code = code
            return self.joined
        if isinstance(request, SyncGroupRequest):
            return SyncGroupResponse(0, code, assignment=protocol.encode_assignment(self.assigned))
        if isinstance(request, HeartbeatRequest):
            return HeartbeatResponse(0, code)
        assert isinstance(request, LeaveGroupRequest)
        return LeaveGroupResponse(0, code)


class Case:
    """A member, its host and its coordinator."""

    def __init__(
        self, group: Group | None = None, *, versions: dict[str, int] | None = None, **settings: Any
    ) -> None:
        self.group = group or Group()
        self.client: Any = StandinCoordinator(self.group, **(versions or {}))
        self.host = RecordingHost()
        self.topics = topics_with(t=2, u=1)
        self.member = ClassicMembership(self.client, self.topics, settings_of(**settings), self.host)
        self.member.subscription = Subscription(["t", "u"])

    def of(self, kind: type) -> Any:
        """Return the newest request of a kind."""
        return [request for request in self.client.asked if isinstance(request, kind)][-1]


# --- what it says -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(10))
async def test_a_member_joins_as_the_version_has_it(version: int) -> None:
    case = Case(
        versions={"JoinGroup": version},
        instance_id="i" if version >= 5 else None,
        session_timeout_ms=11_000,
        max_poll_interval_ms=22_000,
        assignors=("roundrobin", "range"),
        rack="r",
    )
    case.member.member_id = "before"
    await case.member.join()
    sent = case.of(JoinGroupRequest)
    assert (sent.group_id, sent.member_id, sent.protocol_type) == ("g", "before", "consumer")
    assert sent.session_timeout_ms == 11_000
    assert sent.rebalance_timeout_ms == (22_000 if version else -1)
    assert sent.group_instance_id == ("i" if version >= 5 else None)
    assert [row.name for row in sent.protocols] == ["roundrobin", "range"], "the preferred one first"
    output, _ = subscription_data.CODEC.decode(sent.protocols[0].metadata, 2, 3)
    assert (output.topics, output.owned_partitions, output.generation_id, output.rack_id) == (
        ["t", "u"],
        [],
        -1,
        "r",
    )
    assert (case.member.member_id, case.member.generation) == ("m", 5)


@pytest.mark.parametrize(
    ("poll_ms", "request_ms", "patience_ms"),
    [(300_000, 30_000, 305_000), (1_000, 30_000, 30_000), (25_001, 30_000, 30_001)],
)
async def test_joining_may_take_as_long_as_the_others_may_and_a_bit(
    poll_ms: int, request_ms: int, patience_ms: int
) -> None:
    case = Case(max_poll_interval_ms=poll_ms)
    case.client.settings = ClientSettings(request_timeout_ms=request_ms)
    await case.member.join()
    assert case.client.timeouts_ms == [patience_ms, None]
    assert set(case.client.lanes) == {"group"}
    assert set(case.client.keys) == {("g", 0)}


# --- joining ----------------------------------------------------------------------------------------------------------


async def outcome_of(case: Case) -> str:
    """Join, and return what comes of it."""
    try:
        await case.member.join()
    except _AgainError:
        return "again"
    except FencedInstanceError:
        return "fenced"
    except ResponseError as error:
        return ErrorCode(error.code).name
    return "joined"


@pytest.mark.parametrize("request_kind", [JoinGroupRequest, SyncGroupRequest])
async def test_an_error_while_it_joins_lets_it_join_again_or_ends_it(request_kind: type) -> None:
    for code in ERRORS:
        case = Case()
        case.member.member_id, case.member.generation = "m", 4
        case.group.codes[request_kind] = code
        requires_id = request_kind is JoinGroupRequest and code is ErrorCode.MEMBER_ID_REQUIRED
        if requires_id:
            case.group.joined.member_id = "given"
        expected = "fenced" if code is ErrorCode.FENCED_INSTANCE_ID else code.name
        assert await outcome_of(case) == ("again" if code in JOINS_AGAIN or requires_id else expected), code
        expected = "" if code is ErrorCode.UNKNOWN_MEMBER_ID else "given" if requires_id else "m"
        assert case.member.member_id == expected, code
        is_lost = code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)
        assert case.member.generation == (-1 if is_lost else 4), code
        is_wrong = code in LOST_COORDINATOR
        assert case.client.forgotten == ["g"] * is_wrong, code
        assert not case.member.is_joining


async def test_a_leader_waits_for_topics_of_others_only_for_so_long(
    autojump_clock: trio.testing.MockClock,
) -> None:
    case = Case(Group(leader="m"))
    case.client.settings = ClientSettings(request_timeout_ms=2_000)
    output = protocol.encode_subscription("range", ["t", "other"], [], [], -1, "")
    case.group.joined.members = [JoinGroupResponse.JoinGroupResponseMember("m", None, output)]
    begun = trio.current_time()
    await case.member.join()
    assert trio.current_time() - begun == pytest.approx(2)
    assert case.topics.names == {"t", "u", "other"}
    (share,) = case.of(SyncGroupRequest).assignments
    assert protocol.decode_assignment(share.assignment) == {T0, T1}
    case.topics.errors["other"] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    begun = trio.current_time()
    await case.member.join()
    assert trio.current_time() == begun, "it is known that there is none"


@pytest.mark.parametrize(
    ("protocol_name", "metadata"),
    [("mine", b""), (None, b""), ("range", b"\0")],
    ids=["unknown", "none", "unreadable"],
)
async def test_a_leader_that_does_not_understand_the_others_says_so(
    protocol_name: str | None, metadata: bytes
) -> None:
    case = Case(Group(leader="m"))
    case.group.joined.protocol_name = protocol_name
    case.group.joined.members = [JoinGroupResponse.JoinGroupResponseMember("m", None, metadata)]
    with pytest.raises(ResponseError, match="INCONSISTENT_GROUP_PROTOCOL"):
        await case.member.join()
    assert case.member.generation == -1


async def test_an_assignment_that_cannot_be_read_ends_the_membership() -> None:
    case = Case()
    case.client.answer = lambda request: (
        SyncGroupResponse(assignment=b"\0") if isinstance(request, SyncGroupRequest) else case.group(request)
    )
    with pytest.raises(ResponseError, match="INCONSISTENT_GROUP_PROTOCOL"):
        await case.member.join()


async def test_cooperative_member_keeps_its_own_and_rejoins() -> None:
    case = Case(Group(T0, T1), assignors=("cooperative-sticky",))
    await case.member.join()
    case.group.assigned = {T1, U0}
    case.host.calls.clear()
    await case.member.join()
    assert case.host.calls == [("revoke", {T0}), ("add", {U0})]
    assert case.member.join_due.is_set()
    case.member.join_due = trio.Event()
    case.host.calls.clear()
    await case.member.join()
    assert case.host.calls == [("add", set())]
    assert not case.member.join_due.is_set(), "nothing was given up"


@pytest.mark.parametrize(
    ("failure", "joins"),
    [
        (ConnectionLostError("gone"), 2),
        (ResponseError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "joining"), 2),
        (ResponseError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "joining"), 1),
    ],
)
async def test_only_what_may_pass_is_tried_again(
    autojump_clock: trio.testing.MockClock, failure: Exception, joins: int
) -> None:
    case = Case(Group(T0))
    failures = [failure]

    def answer(request: Any) -> Any:
        return failures.pop() if failures else case.group(request)

    case.client.answer = answer
    case.member.wake()
    with trio.move_on_after(2):
        await case.member.run()
    assert sum(isinstance(request, JoinGroupRequest) for request in case.client.asked) == joins
    assert case.host.failures == [failure] * (joins == 1)
    assert case.client.forgotten == ["g"]


# --- heartbeats -------------------------------------------------------------------------------------------------------


def test_each_error_of_a_heartbeat_has_its_consequence() -> None:
    for code in ErrorCode:
        case = Case()
        case.member.generation, case.member.member_id = 5, "m"
        case.member.take_beat(code)
        is_lost = code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)
        assert case.member.join_due.is_set() is (is_lost or code is ErrorCode.REBALANCE_IN_PROGRESS), code
        assert case.member.generation == (-1 if is_lost else 5), code
        assert case.member.member_id == ("" if code is ErrorCode.UNKNOWN_MEMBER_ID else "m"), code
        is_harmless = not code or code in LOST_COORDINATOR or code in JOINS_AGAIN
        assert len(case.host.failures) == (not is_harmless), code
        if case.host.failures:
            kind = FencedInstanceError if code is ErrorCode.FENCED_INSTANCE_ID else ResponseError
            assert type(case.host.failures[0]) is kind, code
            assert getattr(case.host.failures[0], "code", code) == code


async def test_an_answer_of_an_older_generation_means_nothing(autojump_clock: trio.testing.MockClock) -> None:
    for change in ("generation", "joining", None):
        case = Case(heartbeat_interval_ms=500)
        case.member.generation, case.member.member_id = 5, "m"

        def answer(_: Any, case: Case = case, change: str | None = change) -> HeartbeatResponse:
            if change == "generation":
                case.member.generation = 6
            case.member.is_joining = change == "joining"
            return HeartbeatResponse(0, ErrorCode.REBALANCE_IN_PROGRESS)

        case.client.answer = answer
        with trio.move_on_after(0.7):
            await case.member.beat()
        assert case.member.join_due.is_set() is (change is None)


@pytest.mark.parametrize(("is_retriable", "beats"), [(True, 3), (False, 1)])
async def test_heartbeats_go_on_after_what_may_pass(
    autojump_clock: trio.testing.MockClock, is_retriable: bool, beats: int
) -> None:
    case = Case(heartbeat_interval_ms=500)
    failure = (
        ConnectionLostError("gone") if is_retriable else ResponseError(ErrorCode.INVALID_REQUEST, "beating")
    )
    case.client.answer = lambda _: failure
    case.member.generation = 5
    with trio.move_on_after(1.7):
        await case.member.beat()
    assert len(case.client.asked) == beats
    assert case.host.failures == [failure] * (not is_retriable)
