"""A leader and its followers: who is proposed for the ISR, who may fetch, and what a failed disk ends."""

from __future__ import annotations

import pytest

from barnabas.cluster.replicas.replica import Replica
from barnabas.cluster.replication.roles import Role
from barnabas.errors import RequestError, StorageError
from barnabas.wire.generated.errors import ErrorCode
from tests.support.logs import NOW_MS, batch
from tests.support.replicas import FOLLOWED, LAG_MAX_MS, LED, Seen, fetched, leader

# --- the ISR ------------------------------------------------------------------------------------------------------


async def test_a_follower_that_has_caught_up_is_proposed_once_if_it_lives() -> None:
    node = await leader()
    end = node.produce(b"x", acks=1)
    node.live = frozenset({1, 2})
    fetched(node, 2, end)
    fetched(node, 3, end)
    assert node.proposals == []
    node.live = frozenset({1, 2, 3})
    fetched(node, 3, end - 1)
    assert node.proposals == []
    fetched(node, 3, end)
    fetched(node, 3, end)
    [(replica, change)] = node.proposals
    assert replica is node.replica
    assert change == (frozenset({1, 2, 3}), 5, 7)


async def test_followers_that_lag_are_proposed_to_leave() -> None:
    node = await leader(LED._replace(isr=(1, 2, 3)))
    end = node.produce(b"x", acks=1)
    node.now_ms = 10
    fetched(node, 3, end)
    node.now_ms = LAG_MAX_MS
    node.replica.shrink_isr()
    assert node.proposals == []
    node.now_ms = LAG_MAX_MS + 1
    node.replica.shrink_isr()
    node.replica.shrink_isr()
    [(_, change)] = node.proposals
    assert change == (frozenset({1, 3}), 5, 7)
    await node.change(FOLLOWED)
    node.replica.shrink_isr()
    assert len(node.proposals) == 1


async def test_having_what_is_committed_is_not_having_caught_up() -> None:
    node = await leader()
    node.produce(b"x", acks=1)
    node.now_ms = LAG_MAX_MS
    fetched(node, 2, 0)
    node.now_ms = LAG_MAX_MS + 1
    node.replica.shrink_isr()
    assert [change.isr for _, change in node.proposals] == [{1}]


@pytest.mark.parametrize("way", ["metadata", "proposal"])
async def test_who_joins_has_the_lag_time_from_then_on(way: str) -> None:
    node = await leader()
    end = node.produce(b"x", acks=1)
    fetched(node, 2, end)
    node.produce(b"y", acks=1)
    fetched(node, 3, end)
    node.now_ms = 5_000
    fetched(node, 2, end + 1)
    if way == "metadata":
        await node.change(LED._replace(isr=(1, 2, 3), partition_epoch=8))
    else:
        node.replica.isr_settled(node.proposals[0][1], partition_epoch=8)
    node.proposals.clear()
    for since_ms, count in ((LAG_MAX_MS, 0), (LAG_MAX_MS + 1, 1)):
        node.now_ms = 5_000 + since_ms
        node.replica.shrink_isr()
        assert len(node.proposals) == count


@pytest.mark.parametrize(("partition_epoch", "isr"), [(8, {1}), (None, {1, 2})])
async def test_the_high_watermark_moves_with_the_answer_to_a_proposal(
    partition_epoch: int | None, isr: set[int]
) -> None:
    node = await leader()
    end = node.produce(b"x", acks=1)
    node.now_ms = LAG_MAX_MS + 1
    node.replica.shrink_isr()
    [(replica, change)] = node.proposals
    seen = Seen(replica)
    replica.isr_settled(change, partition_epoch=partition_epoch)
    assert replica.in_sync_replicas == isr
    assert replica.log.high_watermark == (end if partition_epoch else 0)
    assert seen.changes >= 1


# --- who may fetch ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("broker", "epoch", "code"),
    [(2, 5, 0), (3, -1, 0), (4, 5, ErrorCode.UNKNOWN_LEADER_EPOCH), (4, 0, ErrorCode.UNKNOWN_LEADER_EPOCH),
     (4, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER), (1, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER)],
)  # fmt: skip
async def test_only_replicas_fetch_as_followers(broker: int, epoch: int, code: int) -> None:
    node = await leader()
    assert node.replica.has_follower(broker) is (not code)
    if code:
        with pytest.raises(RequestError) as caught:
            node.replica.check_follower(broker, epoch)
        assert caught.value.code == code
        before = node.replica.log.high_watermark
        fetched(node, broker, 0)  # nothing comes of it
        assert (node.proposals, node.replica.log.high_watermark) == ([], before)
    else:
        node.replica.check_follower(broker, epoch)


@pytest.mark.parametrize(
    ("epoch", "code"),
    [(-1, 0), (5, 0), (4, ErrorCode.FENCED_LEADER_EPOCH), (0, ErrorCode.FENCED_LEADER_EPOCH),
     (6, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)  # fmt: skip
@pytest.mark.parametrize("role", [Role.LEADER, Role.FOLLOWER])
async def test_the_epoch_that_a_client_believes_in_is_checked(epoch: int, code: int, role: Role) -> None:
    node = await leader(LED if role is Role.LEADER else LED._replace(leader=2))
    find = node.replicas.leader if role is Role.LEADER else node.replicas.local
    if code:
        with pytest.raises(RequestError) as caught:
            find("t", 0, epoch)
        assert caught.value.code == code
    else:
        assert find("t", 0, epoch).role is role


async def test_what_is_led_here_is_known_of_followers_and_nothing_else() -> None:
    node = await leader()
    replica = node.replica
    fetched(node, 2, 0)
    assert (replica.is_leader, replica.is_offline, replica.is_in_sync(2), replica.is_in_sync(3)) == (
        True, False, True, False,
    )  # fmt: skip
    assert [one.broker_id for one in replica.read_replicas(0)] == [2]
    await node.change(FOLLOWED)
    assert (replica.is_leader, replica.is_in_sync(2), replica.has_follower(2)) == (False, False, False)
    assert replica.read_replicas(0) == []
    assert not replica.is_high_watermark_behind
    for ask in (lambda: replica.in_sync_replicas, lambda: replica.low_watermark):
        with pytest.raises(RequestError) as caught:
            ask()
        assert caught.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    replica.close()
    assert replica.is_offline


class Throttle:
    """Holds all, and counts."""

    def __init__(self, *, is_over: bool) -> None:
        self.is_over = is_over
        self.sizes: list[int] = []

    def holds(self, replica: Replica) -> bool:
        return self.is_over

    def used(self, replica: Replica, size: int) -> None:
        self.sizes.append(size)


@pytest.mark.parametrize(
    ("is_over", "broker", "is_held"), [(True, 3, True), (True, 2, False), (False, 3, False)]
)
async def test_a_throttle_holds_followers_back_that_are_out_of_sync(
    is_over: bool, broker: int, is_held: bool
) -> None:
    node = await leader()
    throttle = Throttle(is_over=is_over)
    node.replica._context.leader_throttle = throttle
    assert node.replica.holds_back(broker) is is_held
    node.replica.sent_to_follower(77)
    assert throttle.sizes == [77]


# --- disks that fail ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("own", [False, True])
async def test_an_append_that_meets_a_failed_disk_takes_the_replica_offline(own: bool) -> None:
    node = await leader()
    replica = node.replica
    with node.disk.failing("write"):
        if own:
            with pytest.raises(StorageError):
                replica.append_own(batch(b"x"), now_ms=NOW_MS)
        else:
            with pytest.raises(RequestError) as caught:
                node.produce(b"x")
            assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert replica.is_offline
    assert node.logs.offline


async def test_a_copy_of_the_log_is_flushed_for_those_who_wait() -> None:
    node = await leader(flush_messages=1)
    replica = node.replica
    replica.replace_log(replica.log)
    assert node.flushes == [replica]
