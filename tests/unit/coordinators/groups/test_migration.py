"""Groups that move between the classic and the consumer protocol while their members go on."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.coordinators.groups.classic import ClassicGroup
from barnabas.coordinators.groups.consumer.group import ConsumerGroup
from barnabas.coordinators.groups.member import State
from barnabas.coordinators.groups.settings import GroupSettings, MigrationPolicy
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.leave_group import LeaveGroupRequest
from tests.support.classic_consumers import ClassicClient
from tests.support.consumers import Client, Coordinator

AnyClient = Client | ClassicClient


def with_topic(partitions: int = 4, **settings: Any) -> Coordinator:
    coordinator = Coordinator(
        GroupSettings(initial_rebalance_delay_ms=0, consumer_assignment_interval_ms=0, **settings)
    )
    coordinator.create("t", partitions)
    return coordinator


def go_on(*clients: AnyClient, rounds: int = 100) -> None:
    """Let all of them do what they do until nothing changes any more."""
    quiet = 0
    for _ in range(rounds):
        before = [set(client.owned) for client in clients]
        for client in clients:
            if isinstance(client, ClassicClient):
                client.step()
            else:
                client.beat()
                client.settle()
        quiet = quiet + 1 if before == [client.owned for client in clients] else 0
        if quiet == 8:  # joining takes a client several steps in which it owns nothing new
            return
    raise AssertionError(f"no agreement after {rounds} rounds")


def check_shared(coordinator: Coordinator, *clients: AnyClient) -> None:
    """Every slot of the topic has one owner among these."""
    topic = coordinator.image.topics["t"]
    held = sorted(topic_partition for client in clients for topic_partition in client.owned)
    assert held == [(topic.id, partition) for partition in range(len(topic.partitions))]
    loads = [len(client.owned) for client in clients]
    assert max(loads) - min(loads) <= 1


def classic_pair(coordinator: Coordinator, **fields: Any) -> tuple[ClassicClient, ClassicClient]:
    a, b = ClassicClient(coordinator, "a", **fields), ClassicClient(coordinator, "b", **fields)
    go_on(a, b)
    check_shared(coordinator, a, b)
    return a, b


@pytest.mark.parametrize("cooperative", [False, True])
def test_upgrade_keeps_the_members_of_a_classic_group(cooperative: bool) -> None:
    coordinator = with_topic(6)
    a, b = classic_pair(coordinator)
    a.cooperative = b.cooperative = cooperative
    c = Client(coordinator, "c")
    c.join()
    assert isinstance(coordinator.shard.groups["g"], ConsumerGroup)
    assert c.told == set(), "the others still have everything"
    assert coordinator.group().members["a"].assigned.keys() == a.owned
    go_on(a, b, c)
    check_shared(coordinator, a, b, c)
    assert coordinator.state() == "Stable"
    assert coordinator.reloaded().groups == coordinator.shard.groups


def test_classic_members_can_still_join_and_leave_after_that() -> None:
    coordinator = with_topic(6)
    a, b = classic_pair(coordinator)
    c, d = Client(coordinator, "c"), ClassicClient(coordinator, "d")
    c.join()
    go_on(a, b, c, d)
    check_shared(coordinator, a, b, c, d)
    a.leave()
    go_on(b, c, d)
    check_shared(coordinator, b, c, d)


def test_last_consumer_member_leaving_downgrades_the_group() -> None:
    coordinator = with_topic(6)
    a, b = classic_pair(coordinator)
    c = Client(coordinator, "c")
    c.join()
    go_on(a, b, c)
    c.leave()
    group = coordinator.shard.groups["g"]
    assert isinstance(group, ClassicGroup)
    assert group.state is State.PREPARING_REBALANCE
    go_on(a, b)
    check_shared(coordinator, a, b)
    assert group.state is State.STABLE
    restored = coordinator.reloaded().groups["g"]
    assert isinstance(restored, ClassicGroup)
    assert restored.record() == group.record()


def test_downgraded_members_keep_their_timeouts() -> None:
    coordinator = with_topic(4)
    (a, b), c = (
        classic_pair(coordinator, session_timeout_ms=11_000, rebalance_timeout_ms=12_000),
        Client(coordinator, "c"),
    )
    c.join()
    go_on(a, b, c)
    c.leave()
    group = coordinator.reloaded().groups["g"]
    assert isinstance(group, ClassicGroup)
    timeouts = {(member.session_timeout_ms, member.rebalance_timeout_ms) for member in group.members.values()}
    assert timeouts == {(11_000, 12_000)}


def test_one_that_is_not_heard_of_takes_it_along_too() -> None:
    coordinator = with_topic(4, consumer_session_timeout_ms=6_000)
    (a, b), c = classic_pair(coordinator), Client(coordinator, "c")
    c.join()
    go_on(a, b, c)
    for _ in range(3):
        coordinator.advance(2_000)
        a.step()
        b.step()
    assert isinstance(coordinator.shard.groups["g"], ClassicGroup)
    go_on(a, b)
    check_shared(coordinator, a, b)


def test_the_last_member_of_the_classic_protocol_just_leaves() -> None:
    coordinator = with_topic(4)
    a, c = ClassicClient(coordinator, "a"), Client(coordinator, "c")
    go_on(a)
    c.join()
    go_on(a, c)
    a.leave()
    go_on(c)
    check_shared(coordinator, c)
    assert isinstance(coordinator.shard.groups["g"], ConsumerGroup)
    c.leave()
    assert coordinator.state() == "Empty"


def test_a_static_member_changes_its_protocol_and_back() -> None:
    coordinator = with_topic(4)
    a = ClassicClient(coordinator, "a", instance_id="ia")
    b = ClassicClient(coordinator, "b", instance_id="ib")
    go_on(a, b)
    held = set(b.owned)
    upgraded = Client(coordinator, "b2", instance_id="ib")
    upgraded.join()
    assert coordinator.group().static_ids == {"ia": "a", "ib": "b2"}
    assert upgraded.told == held
    go_on(a, upgraded)
    check_shared(coordinator, a, upgraded)
    held = set(upgraded.owned)
    back = ClassicClient(coordinator, "b3", instance_id="ib")
    back.step()
    group = coordinator.shard.groups["g"]
    assert isinstance(group, ClassicGroup)
    assert group.state is State.STABLE, "nobody else has to do anything"
    go_on(a, back)
    assert back.owned == held
    check_shared(coordinator, a, back)


def test_members_that_wait_are_sent_back_to_join_again() -> None:
    coordinator = with_topic(4)
    a, b = classic_pair(coordinator)
    d = ClassicClient(coordinator, "d")
    d.step()
    a.step()
    assert a.waiter is not None
    c = Client(coordinator, "c")
    c.join()
    a.step()
    assert a.error == ErrorCode.REBALANCE_IN_PROGRESS
    go_on(a, b, c, d)
    check_shared(coordinator, a, b, c, d)


@pytest.mark.parametrize(
    ("policy", "up", "down"),
    [
        (MigrationPolicy.DISABLED, False, False),
        (MigrationPolicy.UPGRADE, True, False),
        (MigrationPolicy.DOWNGRADE, False, True),
        (MigrationPolicy.BIDIRECTIONAL, True, True),
    ],
)
def test_the_policy_says_which_ways_are_open(policy: MigrationPolicy, up: bool, down: bool) -> None:
    coordinator = with_topic(4, migration_policy=policy)
    classic_pair(coordinator)
    c = Client(coordinator, "c")
    if up:
        c.join()
        assert isinstance(coordinator.shard.groups["g"], ConsumerGroup)
    else:
        with pytest.raises(RequestError) as caught:
            c.join()
        assert caught.value.code == ErrorCode.GROUP_ID_NOT_FOUND
        assert isinstance(coordinator.shard.groups["g"], ClassicGroup)
    other = with_topic(4, migration_policy=policy)
    c, a = Client(other, "c"), ClassicClient(other, "a")
    c.join()
    go_on(a, c)
    c.leave()
    assert isinstance(other.shard.groups["g"], ClassicGroup if down else ConsumerGroup)
    go_on(a)
    check_shared(other, a)


def test_a_group_of_something_else_stays_what_it_is() -> None:
    coordinator = with_topic(4)
    a, _ = classic_pair(coordinator)
    coordinator.shard.group("g").protocol_type = "connect"
    with pytest.raises(RequestError) as caught:
        Client(coordinator, "c").join()
    assert caught.value.code == ErrorCode.GROUP_ID_NOT_FOUND
    assert a.joined


def test_a_subscription_that_cannot_be_read_stops_the_move() -> None:
    coordinator = with_topic(4)
    classic_pair(coordinator)
    group = coordinator.shard.group("g")
    group.members.put(group.members["a"].again("a", [("range", b"\x00")], 1, 1))
    written = len(coordinator.journal)
    with pytest.raises(RequestError) as caught:
        Client(coordinator, "c").join()
    assert caught.value.code == ErrorCode.GROUP_ID_NOT_FOUND
    assert coordinator.shard.groups["g"] is group
    assert len(coordinator.journal) == written


def test_an_empty_group_becomes_what_its_next_member_needs() -> None:
    coordinator = with_topic(4)
    a = ClassicClient(coordinator, "a")
    go_on(a)
    a.leave()
    c = Client(coordinator, "c")
    c.join()
    assert coordinator.state() == "Stable"
    c.leave()
    a = ClassicClient(coordinator, "a2")
    go_on(a)
    check_shared(coordinator, a)
    assert isinstance(coordinator.reloaded().groups["g"], ClassicGroup)


def mixed(coordinator: Coordinator) -> tuple[ClassicClient, Client]:
    a, c = ClassicClient(coordinator, "a", rebalance_timeout_ms=3_000), Client(coordinator, "c")
    c.join()
    go_on(a, c)
    return a, c


def failure_of(client: ClassicClient) -> int:
    client.error = 0
    client.step()
    if client.waiter is not None:
        client.step()
    return client.error


def test_classic_member_late_to_join_is_removed() -> None:
    coordinator = with_topic(4)
    a, _ = mixed(coordinator)
    a.dawdles = True
    Client(coordinator, "d").join()
    a.step()
    coordinator.advance(1_500)
    a.step()  # being told again does not give it more time
    coordinator.advance(1_499)
    assert "a" in coordinator.group().members
    coordinator.advance(1)
    assert "a" not in coordinator.group().members


def test_a_classic_member_that_does_not_sync_in_time_is_removed() -> None:
    coordinator = with_topic(4)
    c, a = Client(coordinator, "c"), ClassicClient(coordinator, "a", rebalance_timeout_ms=3_000)
    c.join()
    a.join()
    assert "a" in coordinator.group().members
    coordinator.advance(3_000)
    assert "a" not in coordinator.group().members


def test_classic_members_are_checked_by_generation_and_protocol() -> None:
    coordinator = with_topic(4)
    a, c = mixed(coordinator)
    a.generation += 1
    assert failure_of(a) == ErrorCode.ILLEGAL_GENERATION
    go_on(a, c)
    other = ClassicClient(coordinator, "x", protocol="sticky")
    other.step()
    other.step()  # takes the answer
    assert other.error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    impostor = ClassicClient(coordinator, "y", member_id="c", generation=c.epoch, joined=True)
    assert failure_of(impostor) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_full_group_takes_no_classic_member_either() -> None:
    coordinator = with_topic(4, consumer_size_max=1)
    c, a = Client(coordinator, "c"), ClassicClient(coordinator, "a")
    c.join()
    a.step()
    a.step()  # takes the answer
    assert a.error == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_operator_may_remove_the_last_consumer_member() -> None:
    coordinator = with_topic(4)
    mixed(coordinator)
    (consumer_id,) = [m.id for m in coordinator.group().members.values() if m.classic is None]
    gone = [LeaveGroupRequest.MemberIdentity(member_id=consumer_id)]
    now_ms = coordinator.now_ms
    assert coordinator.write(lambda shard, out: shard.leave("g", gone, now_ms, out)) == [0]
    assert isinstance(coordinator.shard.groups["g"], ClassicGroup)


def test_change_of_protocol_alone_keeps_the_epoch() -> None:
    coordinator = with_topic(6)
    a, _ = classic_pair(coordinator)
    generation = coordinator.shard.groups["g"].generation
    answer = coordinator.heartbeat(
        a.member_id, 0, rebalance_timeout_ms=5000, subscribed_topic_names=list(a.topics), topic_partitions=[]
    )
    assert answer.member_epoch == generation
    assert coordinator.group().epoch == generation


def test_up_and_downgrades_reassign_no_owned_partition() -> None:
    coordinator = with_topic(2)
    a = ClassicClient(coordinator, "a")
    go_on(a)
    assert len(a.owned) == 2
    c = Client(coordinator, "c")
    c.join()
    c.leave()
    assert isinstance(coordinator.shard.groups["g"], ClassicGroup)
    d = Client(coordinator, "d")
    d.join()
    assert d.told == set(), "a has not been heard of meanwhile"
    go_on(a, d)
    check_shared(coordinator, a, d)


def test_early_downgrade_of_a_static_member_rebalances() -> None:
    coordinator = with_topic(4)
    a = ClassicClient(coordinator, "a", instance_id="ia")
    go_on(a)
    c = Client(coordinator, "c", instance_id="ic")
    c.join()
    back = ClassicClient(coordinator, "c2", instance_id="ic")
    back.step()
    group = coordinator.shard.groups["g"]
    assert isinstance(group, ClassicGroup)
    assert group.state is State.PREPARING_REBALANCE, "a has not given up what c was to have"
    go_on(a, back)
    check_shared(coordinator, a, back)


def test_failed_rebalance_keeps_partitions_in_an_upgrade() -> None:
    coordinator = with_topic(4)
    a, b = classic_pair(coordinator)
    a.cooperative = b.cooperative = True
    had = set(a.owned)
    a.join()
    b.join()  # the leader's sync never comes, and another member arrives
    ClassicClient(coordinator, "late").step()
    group = coordinator.shard.group("g")
    assert group.assignments.get("a", b"") == b""
    c = Client(coordinator, "c")
    c.join()
    assert coordinator.group().members["a"].assigned.keys() == had == a.owned


def test_upgrade_during_the_first_join_keeps_members() -> None:
    coordinator = Coordinator(
        GroupSettings(initial_rebalance_delay_ms=3_000, consumer_assignment_interval_ms=0)
    )
    coordinator.create("t", 4)
    a = ClassicClient(coordinator, "a")
    a.step()
    classic = coordinator.shard.groups["g"]
    assert isinstance(classic, ClassicGroup)
    assert classic.protocol is None
    c = Client(coordinator, "c")
    c.join()
    member = coordinator.group().members[next(iter(classic.members))]
    assert (member.topics, member.classic is not None) == ({"t"}, True)
    go_on(a, c)
    check_shared(coordinator, a, c)
