"""A member of a group of the consumer protocol: what its heartbeats say, what each answer means, and how it reconciles."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from barnabas.client import ConnectionLostError, ResponseError
from barnabas.client.consuming.heartbeating import ConsumerMembership
from barnabas.client.consuming.membership import Subscription
from barnabas.client.errors import FencedInstanceError
from barnabas.wire.generated.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse as Response
from barnabas.wire.generated.errors import ErrorCode
from tests.support.members import RecordingHost, StandinCoordinator, settings_of, topics_with

FENCED = {ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID}
COORDINATOR = {
    ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}  # fmt: skip


class Case:
    """A member, its host, and a coordinator that answers with `response`."""

    def __init__(self, **settings: Any) -> None:
        self.response: Any = Response(0, 0, None, "given", 3, 700)
        self.client: Any = StandinCoordinator(lambda _: self.response)
        self.host = RecordingHost()
        self.topics = topics_with(t=2, u=1)
        self.member = ConsumerMembership(self.client, self.topics, settings_of(**settings), self.host)
        self.member.subscription = Subscription(["u", "t"])

    @property
    def said(self) -> dict[str, Any]:
        """The fields of the newest request that say anything."""
        request = self.client.asked[-1]
        silent = type(request)()
        fields = {name: getattr(request, name) for name in request.__slots__}
        return {name: value for name, value in fields.items() if value != getattr(silent, name)}


# --- heartbeats -------------------------------------------------------------------------------------------------------


async def test_each_error_of_a_heartbeat_has_its_consequence() -> None:
    for code in ErrorCode:
        case = Case()
        case.member.generation, case.member.member_id = 3, "m"
        case.member.interval_ms = 5_000
        case.response = Response(0, code, "why", "m", 3, 5_000)
        outcome: Any = None
        try:
            await case.member.beat()
        except (ResponseError, FencedInstanceError) as error:
            outcome = error
        is_fenced = code in FENCED
        assert case.member.generation == (-1 if is_fenced else 3), code
        assert case.member.reconcile_due.is_set() is is_fenced, code
        assert case.member.beat_due.is_set() is is_fenced, code
        assert case.client.forgotten == ["g"] * bool(code in COORDINATOR), code
        may_pass = code in COORDINATOR or (code.retriable and not is_fenced)
        assert case.member.interval_ms == (1_000 if may_pass else 5_000), code
        if not code or is_fenced:
            assert outcome is None, code
        elif code is ErrorCode.FENCED_INSTANCE_ID:
            assert isinstance(outcome, FencedInstanceError)
        else:
            assert (outcome.code, outcome.message) == (code, None if may_pass else "why"), code


async def test_late_response_to_a_member_that_left_is_ignored() -> None:
    for change in ("left", "fenced"):
        case = Case()
        case.member.generation = 2

        def answer(_: Any, case: Case = case, change: str = change) -> Any:
            if change == "left":
                case.member.has_left = True
            else:
                case.member.generation = -1
            return Response(0, 0, None, "other", 9, 1)

        case.client.answer = answer
        await case.member.beat()
        assert (case.member.generation, case.member.member_id == "other") == (
            2 if change == "left" else -1,
            False,
        )


@pytest.mark.parametrize("is_retriable", [True, False])
async def test_retry_of_a_heartbeat_sends_all_fields(
    autojump_clock: trio.testing.MockClock, is_retriable: bool
) -> None:
    case = Case()
    failure = (
        ConnectionLostError("gone")
        if is_retriable
        else ResponseError(ErrorCode.GROUP_MAX_SIZE_REACHED, "beating")
    )
    await case.member.beat()
    answers = [failure]
    case.client.answer = lambda _: answers.pop() if answers else case.response
    with trio.move_on_after(0.15):
        await case.member.run()
    assert case.host.failures == [failure] * (not is_retriable)
    assert len(case.client.asked) == (3 if is_retriable else 2)
    assert ("subscribed_topic_names" in case.said) is is_retriable


async def test_a_member_without_a_subscription_does_not_join(autojump_clock: trio.testing.MockClock) -> None:
    case = Case()
    case.member.subscription = Subscription()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(case.member.run)
        await trio.sleep(5)
        assert case.client.asked == []
        case.member.subscribe(Subscription(["t"]))
        await trio.sleep(0.01)
        assert len(case.client.asked) == 1
        nursery.cancel_scope.cancel()


# --- reconciling ------------------------------------------------------------------------------------------------------


async def test_topics_of_a_pattern_are_told_when_they_change() -> None:
    import re

    case = Case()
    case.member.subscription = Subscription(pattern=re.compile("t|v"))
    await case.member.beat()
    assert case.said["subscribed_topic_names"] == ["t"]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(case.member.follow_topics)
        for topics, is_new in (({}, False), ({"v": 1}, True)):
            await trio.testing.wait_all_tasks_blocked()
            case.topics.infos.update(topics_with(**topics).infos)
            case.topics.announce()
            await trio.testing.wait_all_tasks_blocked()
            assert case.member.beat_due.is_set() is is_new
        nursery.cancel_scope.cancel()
    case.topics.infos["v"].is_internal = True
    assert case.member.subscription.topics(case.topics) == {"t"}, "no pattern finds an internal topic"
