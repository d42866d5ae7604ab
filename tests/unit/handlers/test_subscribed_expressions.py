"""Subscriptions by expression: what a group is given, how long matching may take, and when a group has its next turn."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from barnabas.handlers.shared import expressions
from barnabas.security.authorizer import Operation, ResourceType
from barnabas.serving.loop_budget import LoopBudget
from barnabas.wire.generated.errors import ErrorCode
from tests.support.at_once import NoThreads
from tests.support.broker import ask_for_topic, broker_to_ask
from tests.support.plain_requests import DenyNamed, ask

SETTINGS = {"offsets.topic.num.partitions": "1", "group.consumer.assignment.interval.ms": "0"}


class Clock:
    """A clock of which each look takes a while."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.look_seconds = 0.0

    def __call__(self) -> float:
        self.seconds += self.look_seconds
        return self.seconds


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
async def asked(tmp_path, clock):
    budget = LoopBudget(clock=clock)
    async with broker_to_ask(tmp_path, SETTINGS, budget=budget, threads=NoThreads()) as asked:
        for name in ("t", "u"):
            await ask_for_topic(asked, name)
        await heartbeat(asked, "none", group="the first, for which the topic of offsets is made")
        yield asked


async def heartbeat(asked: Any, expression: str | None, *, group: str = "g", epoch: int = 0) -> Any:
    values = {"GroupId": group, "MemberId": "m", "MemberEpoch": epoch, "SubscribedTopicRegex": expression}
    if epoch == 0:
        values |= {"RebalanceTimeoutMs": 60_000, "TopicPartitions": []}
    return await ask(asked, "ConsumerGroupHeartbeat", 1, values)


def topics_assigned(answer: Any) -> int:
    return len(answer.assignment.topic_partitions) if answer.assignment is not None else 0


async def test_topics_that_may_not_be_described_do_not_match(asked):
    asked.authorizer = DenyNamed((Operation.DESCRIBE, ResourceType.TOPIC, "u"))
    answer = await heartbeat(asked, "[tu]")
    assert (answer.error_code, topics_assigned(answer)) == (0, 1)


async def test_each_topic_is_authorized_once_for_an_expression(asked):
    asked.authorizer = authorizer = DenyNamed()
    await heartbeat(asked, "[tu]")
    assert sorted(name for _, kind, name in authorizer.asked if kind == ResourceType.TOPIC) == ["t", "u"]


async def test_an_expression_that_the_group_has_authorizes_nothing(asked):
    first = await heartbeat(asked, "[tu]")
    await heartbeat(asked, None, epoch=first.member_epoch)
    asked.authorizer = authorizer = DenyNamed()
    answer = await heartbeat(asked, "[tu]", epoch=first.member_epoch)
    assert answer.error_code == 0
    assert [name for _, kind, name in authorizer.asked if kind == ResourceType.TOPIC] == []


async def test_a_topic_that_is_new_is_matched_by_a_later_heartbeat(asked):
    first = await heartbeat(asked, ".*[tv]")
    await ask_for_topic(asked, "v")
    answer = await heartbeat(asked, None, epoch=first.member_epoch)
    assert (answer.error_code, topics_assigned(answer)) == (0, 2)


async def test_an_expression_that_takes_too_long_is_refused(asked, clock):
    clock.look_seconds = 2 * expressions.SECONDS_MAX
    answer = await heartbeat(asked, "[tu]+")
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert "takes more than 1 s of CPU" in answer.error_message


async def test_the_next_expression_of_a_group_waits_ten_times_as_long(asked, clock, autojump_clock):
    clock.look_seconds = 0.01
    first = await heartbeat(asked, "a.*")
    began, clock.look_seconds = trio.current_time(), 0.0
    await heartbeat(asked, "b.*", epoch=first.member_epoch)
    assert 0.1 <= trio.current_time() - began <= expressions.REST_SECONDS_MAX
    began = trio.current_time()
    await heartbeat(asked, "c.*", epoch=first.member_epoch)
    assert trio.current_time() == began, "the second took no time"


async def test_the_rest_of_a_group_keeps_no_other_group_waiting(asked, clock, autojump_clock):
    clock.look_seconds = 0.01
    await heartbeat(asked, "d.*")
    began, clock.look_seconds = trio.current_time(), 0.0
    await heartbeat(asked, "e.*", group="h")
    assert trio.current_time() == began


async def test_a_heartbeat_without_an_expression_never_waits(asked, clock, autojump_clock):
    clock.look_seconds = 0.01
    first = await heartbeat(asked, "f.*")
    began, clock.look_seconds = trio.current_time(), 0.0
    await heartbeat(asked, None, epoch=first.member_epoch)
    assert trio.current_time() == began


async def test_members_that_bring_the_same_expression_match_it_once(asked, clock, autojump_clock):
    first = await heartbeat(asked, "none")
    await heartbeat(asked, None, epoch=first.member_epoch)
    clock.look_seconds = 0.01
    answers = []

    async def join(member: str) -> None:
        values = {"GroupId": "g", "MemberId": member, "MemberEpoch": 0, "SubscribedTopicRegex": "[tu]?"}
        values |= {"RebalanceTimeoutMs": 60_000, "TopicPartitions": []}
        answers.append(await ask(asked, "ConsumerGroupHeartbeat", 1, values))

    asked.authorizer = authorizer = DenyNamed()
    async with trio.open_nursery() as nursery:
        for number in range(5):
            nursery.start_soon(join, f"m{number}")
    assert [answer.error_code for answer in answers] == [0] * 5
    assert sorted(name for _, kind, name in authorizer.asked if kind == ResourceType.TOPIC) == ["t", "u"]
