"""A member of a group of the consumer protocol: what its heartbeats say, what each answer means, and how it reconciles."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from barnabas.client import ConnectionLostError, ResponseError, TopicPartition
from barnabas.client.consuming.heartbeating import ConsumerMembership
from barnabas.client.consuming.membership import Subscription
from barnabas.client.errors import FencedInstanceError
from barnabas.wire.generated.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse as Response
from barnabas.wire.generated.errors import ErrorCode
from tests.support.members import RecordingHost, StandinCoordinator, settings_of, topics_with

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
FENCED = {ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID}
COORDINATOR = {
    ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}  # fmt: skip


def assigned(**parts: list[int]) -> Any:
    topics = [Response.TopicPartitions(name.encode().ljust(16), numbers) for name, numbers in parts.items()]
    return Response.Assignment(topics)


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


@pytest.mark.parametrize("instance_id", [None, "i"])
async def test_a_heartbeat_says_only_what_has_changed(instance_id: str | None) -> None:
    case = Case(instance_id=instance_id, rack="r", max_poll_interval_ms=9_000, server_assignor="range")
    case.member.member_id = "own"
    always = {"group_id": "g", "member_id": "own"} | ({"instance_id": instance_id} if instance_id else {})
    everything = {
        "rack_id": "r", "rebalance_timeout_ms": 9_000, "subscribed_topic_names": ["t", "u"],
        "server_assignor": "range", "topic_partitions": [],
    }  # fmt: skip
    await case.member.beat()
    assert case.said == {**always, **everything}, "it joins, in epoch 0"
    assert (case.member.member_id, case.member.generation) == ("given", 3)
    always |= {"member_id": "given", "member_epoch": 3}
    await case.member.beat()
    assert case.said == always
    case.member.subscription = Subscription(["u"])
    await case.member.beat()
    assert case.said == {**always, "subscribed_topic_names": ["u"]}
    case.member.owned = {b"u": [0]}
    await case.member.beat()
    (owned,) = case.said["topic_partitions"]
    assert (owned.topic_id, owned.partitions) == (b"u", [0])
    case.member.rejoin()
    await case.member.beat()
    assert case.said == {
        **{name: value for name, value in always.items() if name != "member_epoch"},
        **everything,
        "subscribed_topic_names": ["u"],
    }, "everything anew, and it has nothing"


async def test_what_a_response_leaves_out_stays_as_it_is() -> None:
    case = Case()
    await case.member.beat()
    case.response = Response(0, 0, None, None, 4, 0)
    await case.member.beat()
    assert (set(case.client.lanes), set(case.client.keys)) == ({"group"}, {("g", 0)})
    assert (case.member.member_id, case.member.generation, case.member.interval_ms) == ("given", 4, 700)
    assert case.member.target is None
    assert not case.member.reconcile_due.is_set()
    case.response = Response(0, 0, None, None, 4, 0, assigned(t=[1]))
    await case.member.beat()
    assert case.member.target == {b"t".ljust(16): [1]}
    assert case.member.reconcile_due.is_set()


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


async def test_an_answer_to_a_member_that_has_left_or_was_fenced_meanwhile_means_nothing() -> None:
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


@pytest.mark.parametrize(("instance_id", "epoch"), [(None, -1), ("i", -2)])
async def test_a_member_leaves_for_good_and_a_static_one_for_a_while(
    instance_id: str | None, epoch: int
) -> None:
    case = Case(instance_id=instance_id)
    await case.member.leave()
    assert case.client.asked == [], "it is not in the group"
    case.member.generation, case.member.member_id = 0, "m"
    await case.member.leave()
    (sent,) = case.client.asked
    assert (sent.group_id, sent.member_id, sent.member_epoch, sent.instance_id) == (
        "g",
        "m",
        epoch,
        instance_id,
    )
    assert case.member.generation == -1


async def test_it_beats_at_the_interval_and_once_more_when_something_has_changed(
    autojump_clock: trio.testing.MockClock,
) -> None:
    case = Case()
    times: list[float] = []
    begun = trio.current_time()

    def answer(_: Any) -> Any:
        times.append(round(trio.current_time() - begun, 3))
        return Response(0, 0, None, "m", 3, 500)

    case.client.answer = answer
    async with trio.open_nursery() as nursery:
        nursery.start_soon(case.member.run)
        await trio.sleep(0.7)
        case.member.wake()
        await trio.sleep(0.6)
        nursery.cancel_scope.cancel()
    assert times == [0.0, 0.5, 0.7, 1.2]


@pytest.mark.parametrize("is_retriable", [True, False])
async def test_only_what_may_pass_is_tried_again_and_then_everything_is_said(
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


@pytest.mark.parametrize(("busy_s", "steps_back"), [(10.0, False), (10.001, True)])
async def test_a_member_whose_program_takes_too_long_leaves_until_it_asks_for_more(
    autojump_clock: trio.testing.MockClock, busy_s: float, steps_back: bool
) -> None:
    case = Case(max_poll_interval_ms=10_000)
    await case.member.beat()
    case.host.assigned, case.host.busy = {T0}, busy_s
    async with trio.open_nursery() as nursery:
        nursery.start_soon(case.member.run)
        await trio.sleep(0.1)
        assert [one.member_epoch for one in case.client.asked[1:]] == [-1 if steps_back else 3]
        assert case.host.calls == [("lose", {T0})] * steps_back
        if steps_back:
            assert case.member.generation == -1
            case.host.busy = 0.0
            case.host.is_idle.set()
            await trio.sleep(0.1)
            assert case.client.asked[2].member_epoch == 0, "it joins again"
        nursery.cancel_scope.cancel()


# --- reconciling ------------------------------------------------------------------------------------------------------


async def reconciled(case: Case) -> None:
    """Let the member reconcile what it can now."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(case.member.reconcile)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()


async def test_what_is_gone_is_given_up_before_what_is_new_is_taken_on() -> None:
    case = Case()
    case.member.generation = 3
    case.host.assigned = {T0, T1}
    target = case.member.target = {b"t".ljust(16): [1], b"u".ljust(16): [0]}
    case.member.reconcile_due.set()
    await reconciled(case)
    assert case.host.calls == [("revoke", {T0}), ("add", {U0})]
    assert case.host.assigned == {T1, U0}
    assert (case.member.target, case.member.owned) == (None, target)
    assert case.member.beat_due.is_set(), "the broker is told"


async def test_a_target_that_has_been_reached_is_told_without_a_callback() -> None:
    case = Case()
    case.member.generation, case.host.assigned = 3, {T0}
    case.member.target = {b"t".ljust(16): [0]}
    case.member.reconcile_due.set()
    await reconciled(case)
    assert case.host.calls == []
    assert case.member.owned == {b"t".ljust(16): [0]}


async def test_a_topic_that_is_not_known_yet_is_asked_for_and_waited_for() -> None:
    case = Case()
    case.member.generation = 3
    case.member.target = {b"new".ljust(16): [0], b"t".ljust(16): [0]}
    case.member.reconcile_due.set()
    await reconciled(case)
    assert case.host.calls == []
    assert case.topics.refresh_due.is_set()
    assert not case.member.beat_due.is_set()
    case.topics.infos.update(topics_with(new=1).infos)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(case.member.follow_topics)
        nursery.start_soon(case.member.reconcile)
        await trio.testing.wait_all_tasks_blocked()
        case.topics.announce()
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert case.host.calls == [("add", {T0, TopicPartition("new", 0)})]


@pytest.mark.parametrize("when", ["revoke", "add"])
async def test_a_member_that_is_fenced_while_it_reconciles_loses_what_it_has(when: str) -> None:
    case = Case()
    case.member.generation, case.host.assigned = 3, {T0}
    case.member.target = {b"t".ljust(16): [1]}
    usual = getattr(case.host, when)

    async def fenced(places: set[TopicPartition]) -> None:
        await usual(places)
        case.member.generation = -1

    setattr(case.host, when, fenced)
    case.member.reconcile_due.set()
    await reconciled(case)
    lost = set() if when == "revoke" else {T1}
    expected = [("revoke", {T0}), ("add", {T1}), ("lose", lost)]
    assert case.host.calls == [one for one in expected if when == "add" or one[0] != "add"]
    assert case.host.assigned == set()
    assert case.member.owned == {}


async def test_an_assignment_that_changes_while_it_is_reconciled_is_not_told_as_reached() -> None:
    case = Case()
    case.member.generation = 3
    case.member.target = {b"t".ljust(16): [0]}
    usual = case.host.add

    async def changed(places: set[TopicPartition]) -> None:
        await usual(places)
        if places == {T0}:
            case.member.target = {b"t".ljust(16): [1]}

    case.host.add = changed  # type: ignore[method-assign]
    case.member.reconcile_due.set()
    await reconciled(case)
    assert case.member.owned == {}
    assert case.member.target == {b"t".ljust(16): [1]}
    case.member.reconcile_due.set()
    await reconciled(case)
    assert case.host.assigned == {T1}
    assert case.member.owned == {b"t".ljust(16): [1]}


async def test_partitions_are_lost_before_the_member_joins_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    case = Case()
    case.host.assigned = {T0}
    order: list[str] = []
    usual = case.host.lose

    async def lose(places: set[TopicPartition]) -> None:
        await trio.sleep(1)
        order.append("lost")
        await usual(places)

    def answer(_: Any) -> Any:
        order.append("joined")
        return case.response

    case.host.lose, case.client.answer = lose, answer  # type: ignore[method-assign]
    with trio.move_on_after(1.5):
        await case.member.run()
    assert order == ["lost", "joined"]


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
