"""A member's data stay as they were when its group moves between the classic and the consumer protocol."""

from __future__ import annotations

import pytest

from barnabas.coordinators.groups.classic import ClassicGroup
from barnabas.coordinators.groups.consumer.group import ConsumerGroup
from barnabas.coordinators.groups.group import OffsetRetention
from barnabas.coordinators.groups.member import State
from barnabas.wire.codec import encode_versioned
from barnabas.wire.generated.data.consumer_protocol_subscription import CODEC as SUBSCRIPTION
from barnabas.wire.generated.data.consumer_protocol_subscription import ConsumerProtocolSubscription
from barnabas.wire.generated.join_group import JoinGroupRequest
from tests.support.classic_consumers import ClassicClient
from tests.support.consumers import Client

from .test_classic import Harness
from .test_migration import go_on, with_topic

SESSION_MS, REBALANCE_MS = 11_000, 23_000


def test_the_two_timeouts_of_a_classic_member_keep_their_places_there_and_back_and_after_a_restart():
    """The clients of other tests ask for the same in both."""
    coordinator = with_topic(6)
    a = ClassicClient(coordinator, "a", session_timeout_ms=SESSION_MS, rebalance_timeout_ms=REBALANCE_MS)
    go_on(a)
    c = Client(coordinator, "c", rebalance_timeout_ms=29_000)
    c.join()
    go_on(a, c)
    for groups in (coordinator.shard.groups, coordinator.reloaded().groups):
        group = groups["g"]
        assert isinstance(group, ConsumerGroup)
        member = group.members[a.member_id]
        assert member.classic is not None
        assert (member.classic.session_timeout_ms, member.rebalance_timeout_ms) == (SESSION_MS, REBALANCE_MS)
        assert group.members["c"].rebalance_timeout_ms == 29_000
    now_ms = coordinator.now_ms
    a.step()
    assert coordinator.timers["session", "g", a.member_id] == now_ms + SESSION_MS
    c.leave()
    for groups in (coordinator.shard.groups, coordinator.reloaded().groups):
        group = groups["g"]
        assert isinstance(group, ClassicGroup)
        classic = group.members[a.member_id]
        assert (classic.session_timeout_ms, classic.rebalance_timeout_ms) == (SESSION_MS, REBALANCE_MS)
    assert coordinator.timers["session", "g", a.member_id] == coordinator.now_ms + SESSION_MS
    assert coordinator.timers["join", "g"] == coordinator.now_ms + REBALANCE_MS


def test_nothing_is_remembered_of_a_classic_member_that_has_left_a_consumer_group_while_it_had_to_join_again():
    coordinator = with_topic(6)
    a, b, c = ClassicClient(coordinator, "a"), ClassicClient(coordinator, "b"), Client(coordinator, "c")
    go_on(a, b)
    c.join()
    go_on(a, b, c)
    coordinator.grow("t", 3)
    a.dawdles = True
    for _ in range(3):
        for client in (a, b):
            client.step()
        c.beat()
    group, member_id = coordinator.group(), a.member_id
    assert member_id in group.members
    assert member_id in group.rejoins_due_ms
    a.leave()
    assert member_id not in group.members
    assert member_id not in group.rejoins_due_ms
    assert not [timer for timer in coordinator.timers if member_id in timer]


@pytest.mark.parametrize(("protocol_type", "reads"), [("consumer", frozenset({"t"})), ("connect", None)])
def test_only_what_consumers_say_tells_which_offsets_are_in_use(protocol_type, reads):
    """The workers of another framework may write anything, also what looks like a subscription."""
    metadata = encode_versioned(SUBSCRIPTION, ConsumerProtocolSubscription(topics=["t"]), 0)
    h = Harness()
    h.join(
        "a",
        protocol_type=protocol_type,
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=metadata)],
    )
    h.sync("a", 1, a=b"")
    assert h.group.state is State.STABLE
    assert h.group.subscribed_topics() == reads
    assert h.group.offset_retention() == (None if reads is None else OffsetRetention(reads))
