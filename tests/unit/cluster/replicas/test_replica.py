"""A replica in its roles: which requests wait, which are woken with which error, and what moves the high watermark."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.errors import RequestError, StorageError
from barnabas.records.steps import run
from barnabas.wire.generated.errors import ErrorCode
from tests.support.logs import NOW_MS, batch
from tests.support.replicas import FOLLOWED, LAG_MAX_MS, LED, Node, Seen, fetch_once, fetched, leader

# --- waiting ------------------------------------------------------------------------------------------------------


async def outcome(wait: Callable[[], Awaitable[None]], *acts: Callable[[], Any]) -> list[int | None]:
    """After each act, what became of each wait: None for one that goes on, 0, or an error code."""
    results: list[int | None] = []
    ended: list[int] = []

    async def waits() -> None:
        try:
            await wait()
            ended.append(0)
        except RequestError as error:
            ended.append(error.code)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(waits)
        for act in (lambda: None, *acts):
            done = act()
            if isinstance(done, Awaitable):
                await done
            await trio.testing.wait_all_tasks_blocked()
            results.append(ended[0] if ended else None)
        nursery.cancel_scope.cancel()
    return results


async def test_acks_all_waits_for_the_slowest_in_sync_replica() -> None:
    node = await leader(LED._replace(isr=(1, 2, 3)))
    end = node.produce(b"x", b"y")
    assert await outcome(
        lambda: node.replica.wait_committed(end),
        lambda: fetched(node, 2, 2),
        lambda: fetched(node, 3, 1),
        lambda: fetched(node, 3, 2),
    ) == [None, None, None, 0]
    await node.replica.wait_committed(end)  # and nobody waits for what is reached


@pytest.mark.parametrize(
    ("act", "code"),
    [
        (lambda node: node.change(FOLLOWED), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (lambda node: node.replica.close(), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (
            lambda node: node.storage_failed(StorageError("/d", OSError(5, "broken"))),
            ErrorCode.KAFKA_STORAGE_ERROR,
        ),
    ],
    ids=["follows", "closed", "disk"],
)
@pytest.mark.parametrize("kind", ["committed", "flushed", "low watermark"])
async def test_waiters_fail_like_new_requests_when_leadership_is_lost(
    act: Callable[[Node], Any], code: int, kind: str
) -> None:
    node = await leader(flush_messages=1)
    replica = node.replica
    end = node.produce(b"x")
    wait = {
        "committed": lambda: replica.wait_committed(end),
        "flushed": lambda: replica.wait_flushed(end),
        "low watermark": lambda: replica.wait_low_watermark(1),
    }[kind]
    assert await outcome(wait, lambda: act(node)) == [None, code]
    assert replica.closed
    with pytest.raises(RequestError) as caught:
        await wait()
    assert caught.value.code == code
    with pytest.raises(RequestError) as caught:
        replica.append_own(batch(b"x"), now_ms=NOW_MS)
    assert caught.value.code == code


@pytest.mark.parametrize(("isr", "code"), [((1,), ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND), ((1, 2), 0)])
async def test_append_is_not_acknowledged_if_the_isr_shrinks(isr: tuple[int, ...], code: int) -> None:
    node = await leader(min_insync_replicas=2)
    end = node.produce(b"x")
    fetched(node, 2, end)
    await node.change(LED._replace(isr=isr, partition_epoch=8))
    assert await outcome(lambda: node.replica.wait_committed(end)) == [code]


@pytest.mark.parametrize(
    ("isr", "replicas", "acks", "is_taken"),
    [
        ((1, 2), (1, 2, 3), -1, True),
        ((1,), (1, 2, 3), -1, False),
        ((1,), (1, 2, 3), 1, True),
        ((1,), (1, 2, 3), 0, True),
        ((1,), (1,), -1, True),
    ],
)
async def test_acks_all_is_refused_while_too_few_are_in_sync(
    isr: tuple[int, ...], replicas: tuple[int, ...], acks: int, is_taken: bool
) -> None:
    node = await leader(LED._replace(isr=isr, replicas=replicas), min_insync_replicas=2)
    replica, records = node.replica, memoryview(batch(b"x"))
    validate = {"acks": acks, "api_version": 9, "now_ms": NOW_MS}
    attempts: list[Callable[[], Any]] = [
        lambda: replica.validate_at_once(records, acks, 9, NOW_MS),
        lambda: replica.validation(records, **validate),
        lambda: node.produce(b"x", acks=acks),
    ]
    if acks == -1:
        attempts.append(lambda: replica.append_own(batch(b"x"), now_ms=NOW_MS))
    for attempt in attempts:
        if is_taken:
            attempt()
        else:
            with pytest.raises(RequestError) as caught:
                attempt()
            assert caught.value.code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert (replica.log.log_end_offset > 0) is is_taken


async def test_valid_records_are_appended_in_the_leaders_epoch() -> None:
    node = await leader()
    replica = node.replica
    valid = run(replica.validation(memoryview(batch(b"x", b"y")), acks=1, api_version=9, now_ms=NOW_MS))
    result = replica.append(valid, acks=1, now_ms=NOW_MS)
    assert (result.base_offset, result.last_offset, replica.log.epochs.latest) == (0, 1, 5)
    own = replica.append_own(batch(b"z"), now_ms=NOW_MS)
    assert (own.base_offset, replica.log.log_end_offset) == (2, 3)
    assert replica.growth.appended_records == 3
    assert replica.growth.appended_bytes == result.size + own.size
    assert replica.growth.committed_bytes == 0
    fetched(node, 2, 2)
    assert replica.growth.committed_bytes == result.size


async def test_records_are_acknowledged_once_flushed_if_configured() -> None:
    node = await leader(LED._replace(replicas=(1,), isr=(1,)), flush_messages=1)
    replica = node.replica
    assert await outcome(lambda: replica.wait_flushed(0)) == [0]
    end = node.produce(b"x")
    assert node.flushes == [replica]
    assert replica.log.high_watermark == 0

    def flush() -> None:
        task = replica.log.begin_flush()
        assert task is not None
        task.run()
        task.finish(NOW_MS)
        replica.flushed()

    waits = [lambda: replica.wait_flushed(end), lambda: replica.wait_committed(end)]
    assert await outcome(waits[0], replica.flushed, flush) == [None, None, 0]
    assert replica.log.high_watermark == end
    for wait in waits:
        assert await outcome(wait) == [0]


async def test_a_follower_waits_for_its_flush_until_it_is_none() -> None:
    node = await leader(FOLLOWED, flush_messages=1)
    replica = node.replica
    await replica.wait_synced()  # there is nothing to wait for
    assert node.flushes == []
    replica.log.append_as_follower(batch(b"x", leader_epoch=6), now_ms=NOW_MS)
    assert await outcome(replica.wait_synced, replica.flushed) == [None, None]
    assert node.flushes == [replica]
    assert await outcome(replica.wait_synced, replica.close) == [None, ErrorCode.NOT_LEADER_OR_FOLLOWER]
    plain = await leader(FOLLOWED)
    plain.replica.log.append_as_follower(batch(b"x", leader_epoch=6), now_ms=NOW_MS)
    await plain.replica.wait_synced()
    assert plain.flushes == []


async def test_leader_flushes_records_of_a_follower_before_the_commit() -> None:
    node = await leader(FOLLOWED, flush_messages=1)
    replica = node.replica
    replica.log.append_as_follower(batch(b"x", leader_epoch=6), now_ms=NOW_MS)
    replica.lead(LED._replace(replicas=(1,), isr=(1,), leader_epoch=7))
    assert (node.flushes, replica.log.high_watermark) == ([replica], 0)
    replica.log.flush(NOW_MS)
    replica.flushed()
    assert replica.log.high_watermark == 1


async def test_follower_does_not_wait_for_what_is_synced_already() -> None:
    node = await leader(FOLLOWED, flush_messages=1)
    log = node.replica.log
    log.append_as_follower(batch(b"x", leader_epoch=6), now_ms=NOW_MS)
    log.recovery_point = log.log_end_offset  # by a flush after a roll, which counts no messages
    assert await outcome(node.replica.wait_synced) == [0]


async def test_the_low_watermark_waits_for_live_replicas_only() -> None:
    node = await leader()
    node.live = frozenset({1, 2})
    end = node.produce(b"x", b"y")
    fetched(node, 2, end)
    replica = node.replica
    replica.delete_records_before(2)
    assert replica.low_watermark == 0
    assert await outcome(
        lambda: replica.wait_low_watermark(2),
        lambda: fetched(node, 2, end, start=1),
        lambda: fetched(node, 3, end, start=0),
        lambda: fetched(node, 2, end, start=2),
    ) == [None, None, None, 0]
    assert replica.low_watermark == 2
    with pytest.raises(RequestError) as caught:
        replica.delete_records_before(3)
    assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("offset", [0, 1])
async def test_nobody_waits_for_a_low_watermark_that_is_there(offset: int) -> None:
    node = await leader()
    fetched(node, 2, node.produce(b"x", b"y"), start=1)
    fetched(node, 3, 2, start=1)
    node.replica.delete_records_before(1)
    assert await outcome(lambda: node.replica.wait_low_watermark(offset)) == [0]


async def test_low_watermark_rises_when_the_slowest_replica_leaves() -> None:
    node = await leader()
    fetched(node, 2, node.produce(b"x"))
    fetched(node, 3, 1, start=1)
    replica = node.replica
    replica.delete_records_before(1)
    gone = LED._replace(replicas=(1, 3), isr=(1,), partition_epoch=8)
    assert await outcome(lambda: replica.wait_low_watermark(1), lambda: node.change(gone)) == [None, 0]


# --- who is told --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("act", "of_end", "of_high_watermark"),
    [
        (lambda node: node.produce(b"y", acks=1), 1, 1),
        (lambda node: fetched(node, 2, 1), 0, 1),
        (lambda node: node.change(FOLLOWED), 2, 2),
        (lambda node: node.replica.close(), 1, 1),
        (lambda node: node.change(LED._replace(isr=(1,), partition_epoch=8)), 0, 1),
    ],
    ids=["append", "committed", "follows", "closed", "isr"],
)
async def test_who_reads_a_replica_hears_of_what_it_waits_for(
    act: Callable[[Node], Any], of_end: int, of_high_watermark: int
) -> None:
    node = await leader()
    node.produce(b"x")
    node.now_ms = 10 * LAG_MAX_MS
    end, high_watermark = Seen(node.replica, to_log_end=True), Seen(node.replica)
    done = act(node)
    if isinstance(done, Awaitable):
        await done
    assert (end.count, high_watermark.count) == (of_end, of_high_watermark)
    assert end.changes >= 1


async def test_a_watch_hears_where_the_log_begins_elsewhere() -> None:
    node = await leader()
    fetched(node, 2, node.produce(b"x"))
    seen = Seen(node.replica)
    node.replica.delete_records_before(1)
    assert seen.changes == 1


async def test_waiters_on_a_follower_see_appends_and_commits() -> None:
    ahead, node = await leader(), Node(2)
    end = ahead.produce(b"x", b"y")
    await node.create(LED)
    from barnabas.cluster.replicas.following import FollowerLog

    follower = FollowerLog(node.replica, lambda: NOW_MS)
    seen, of_end = Seen(node.replica), Seen(node.replica, to_log_end=True)
    assert fetch_once(follower, 2, ahead)
    assert (node.replica.log.log_end_offset, node.replica.log.high_watermark) == (end, 0)
    growth = node.replica.growth
    assert (growth.replicated_records, growth.committed_bytes) == (2, 0)
    assert fetch_once(follower, 2, ahead)  # the leader hears that it has them
    assert fetch_once(follower, 2, ahead)
    assert node.replica.log.high_watermark == end
    assert growth.committed_bytes == growth.replicated_bytes == growth.appended_bytes > 0
    assert (seen.count, of_end.count) == (3, 3)


# --- the high watermark -------------------------------------------------------------------------------------------


async def test_new_leader_commits_its_log_once_followers_have_it() -> None:
    node = await leader()
    end = node.produce(b"x", acks=1)
    assert not node.replica.is_high_watermark_behind
    await node.change(LED._replace(leader_epoch=6, partition_epoch=8))
    assert node.replica.is_high_watermark_behind
    fetched(node, 2, end)
    assert node.replica.log.high_watermark == end
    assert not node.replica.is_high_watermark_behind


async def test_a_new_leader_epoch_forgets_what_followers_had() -> None:
    node = await leader()
    fetched(node, 2, 0)
    assert node.replica.follower_epoch(2) == 20
    assert node.replica.follower_epoch(3) == node.replica.follower_epoch(4) == -1
    await node.change(LED._replace(leader_epoch=6, partition_epoch=8))
    assert node.replica.follower_epoch(2) == -1
    await node.change(FOLLOWED._replace(leader_epoch=7, partition_epoch=9))
    assert node.replica.follower_epoch(2) == -1


async def test_sole_replica_commits_at_once_until_it_gets_followers() -> None:
    node = await leader(LED._replace(replicas=(1,), isr=(1,)), min_insync_replicas=3)
    assert node.produce(b"x") == node.replica.log.high_watermark == 1
    await node.change(LED._replace(replicas=(1, 2), isr=(1, 2), partition_epoch=8))
    end = node.produce(b"y")
    assert node.replica.log.high_watermark == 1
    fetched(node, 2, end)
    assert node.replica.log.high_watermark == 2


async def test_lone_leader_commits_what_it_had_as_a_follower() -> None:
    node = await leader(FOLLOWED)
    replica = node.replica
    replica.log.append_as_follower(batch(b"x", b"y", leader_epoch=6), now_ms=NOW_MS)
    assert replica.log.high_watermark == 0
    alone = LED._replace(replicas=(1,), isr=(1,), leader_epoch=7, partition_epoch=9)
    await node.change(alone)
    assert replica.log.high_watermark == 2


async def test_uncommitted_records_are_news_after_a_role_change() -> None:
    node = await leader()
    end, growth = node.produce(b"x", acks=1), node.replica.growth
    await node.change(LED._replace(leader_epoch=6, partition_epoch=8))
    assert growth.committed_bytes < growth.appended_bytes
    fetched(node, 2, end)
    assert growth.committed_bytes == growth.appended_bytes
    await node.change(LED._replace(leader_epoch=7, partition_epoch=9))
    assert growth.committed_bytes == growth.appended_bytes
