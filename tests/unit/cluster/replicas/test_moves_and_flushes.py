"""Work of a broker beside its event loop: logs that are moved between log dirs, flushes, and quotas of replication."""

from __future__ import annotations

import errno
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.cluster.metadata.changes import TopicCreated
from barnabas.cluster.metadata.image import PartitionInfo, TopicInfo
from barnabas.cluster.replicas.failures import LogDirFailures
from barnabas.cluster.replicas.flushing import FULL_RETRY_SECONDS, Flusher
from barnabas.cluster.replicas.moving import LogMover
from barnabas.cluster.replicas.throttling import ReplicationThrottle
from barnabas.config.loading import BrokerConfig
from barnabas.environment.real import OsThreads, real_environment
from barnabas.errors import RequestError, StorageError
from barnabas.log import moving
from barnabas.wire.generated.errors import ErrorCode
from tests.support.logs import NOW_MS, TOPIC_ID
from tests.support.replicas import Node

SOLE = PartitionInfo(1, (1,), (1,), 5, 7)
ELSEWHERE = PartitionInfo(2, (2, 3), (2, 3), 5, 7)
BROKEN = OSError(errno.EIO, "broken")


async def moved() -> tuple[Node, LogMover, str, str]:
    """A broker with a log of ten batches, its mover, and the log dirs from where and to where it may move."""
    node = Node(1, dirs=("/d", "/e", "/f"))
    await node.apply([TopicCreated(TopicInfo("t", TOPIC_ID, (SOLE, ELSEWHERE)))])
    for n in range(10):
        node.produce(b"%d" % n)
    failures = LogDirFailures(node.logs, lambda: NOW_MS, lambda: None)
    failures.on_lost.append(node.replicas.lose)
    mover = LogMover(
        BrokerConfig({}), node.logs, node.replicas, failures, real_environment(node.disk, lambda: NOW_MS)
    )
    source = node.replica.log.log_dir
    target = next(path for path in node.dirs if path != source)
    return node, mover, source, target


async def run_until_idle(mover: LogMover) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(mover.run)
        with trio.fail_after(30):
            while mover._logs.moves.get("t", 0) is not None:
                await trio.sleep(0.001)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("partition", "target", "offline", "code"),
    [
        (("t", 0), "/nowhere", "", ErrorCode.LOG_DIR_NOT_FOUND),
        (("t", 0), "/f", "/f", ErrorCode.KAFKA_STORAGE_ERROR),
        (("t", 1), "/f", "", ErrorCode.REPLICA_NOT_AVAILABLE),
        (("u", 0), "/f", "", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
async def test_a_move_that_cannot_be_is_refused(
    partition: tuple[str, int], target: str, offline: str, code: int
) -> None:
    node, mover, *_ = await moved()
    if offline:
        node.logs.take_offline(offline, StorageError(offline, BROKEN))
    with pytest.raises(RequestError) as caught:
        mover.start(*partition, target)
    assert caught.value.code == code
    assert node.logs.moves.get("t", 0) is None


@pytest.mark.parametrize("last_step_bytes", [0, 1 << 20])
async def test_a_log_is_served_from_where_it_was_moved_to(
    last_step_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moving, "LAST_STEP_BYTES", last_step_bytes)
    node, mover, source, target = await moved()
    replica, flushes = node.replica, len(node.flushes)
    mover.start("t", 0, source)  # it is there
    assert node.logs.moves.get("t", 0) is None
    mover.start("t", 0, target)
    await run_until_idle(mover)
    assert node.replica is replica
    assert (replica.log.log_dir, replica.log.log_end_offset, replica.log.high_watermark) == (target, 10, 10)
    assert replica.log is node.logs.get("t", 0)
    assert len(node.flushes) == flushes + 1
    assert node.produce(b"more") == 11


@pytest.mark.parametrize("is_ours", [False, True])
async def test_failed_move_leaves_its_log_and_the_next_one_runs(
    is_ours: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(moving, "LAST_STEP_BYTES", 0)
    node, mover, source, target = await moved()
    other = next(path for path in node.dirs if path not in (source, target))

    def failing(*_: Any) -> None:
        raise ZeroDivisionError if is_ours else StorageError(target, BROKEN)

    with monkeypatch.context() as patched:
        patched.setattr(moving.Move, "run", failing)
        mover.start("t", 0, target)
        await run_until_idle(mover)
    assert "could not be moved to" in caplog.text
    assert (target in node.logs.offline) is not is_ours
    assert (node.replica.log.log_dir, node.replica.log.log_end_offset) == (source, 10)
    mover.start("t", 0, other)
    await run_until_idle(mover)
    assert node.replica.log.log_dir == other


# --- flushes ------------------------------------------------------------------------------------------------------


def request_flush_of(node: Node, flusher: Flusher) -> None:
    node.replica._context.request_flush = flusher.request


async def flushing(nursery: trio.Nursery, *, is_full: bool = False) -> tuple[Node, Flusher]:
    """A broker that syncs each record; with `is_full` its log dir stays online where a sync fails."""
    node = Node(1, flush_messages=1)
    failed = (lambda error: RequestError(ErrorCode.KAFKA_STORAGE_ERROR)) if is_full else node.storage_failed
    flusher = Flusher(lambda: NOW_MS, failed, OsThreads())
    nursery.start_soon(flusher.run)
    await trio.testing.wait_all_tasks_blocked()
    await node.apply([TopicCreated(TopicInfo("t", TOPIC_ID, (SOLE,)))])
    request_flush_of(node, flusher)
    return node, flusher


async def test_flush_requested_during_another_follows_it() -> None:
    async with trio.open_nursery() as nursery:
        node, _ = await flushing(nursery)
        ends = [node.produce(b"%d" % n) for n in range(5)]
        with trio.fail_after(30):
            await node.replica.wait_flushed(ends[0])
            end = node.produce(b"late")
            await node.replica.wait_committed(end)
        assert node.replica.log.recovery_point == end
        nursery.cancel_scope.cancel()


async def test_flush_requested_before_the_flusher_runs_is_made() -> None:
    node = Node(1, flush_messages=1)
    await node.apply([TopicCreated(TopicInfo("t", TOPIC_ID, (SOLE,)))])
    flusher = Flusher(lambda: NOW_MS, node.storage_failed, OsThreads())
    request_flush_of(node, flusher)
    end = node.produce(b"x")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(flusher.run)
        with trio.fail_after(30):
            await node.replica.wait_committed(end)
        nursery.cancel_scope.cancel()


async def test_sync_on_a_full_disk_is_retried_later(autojump_clock: Any) -> None:
    class AtOnce:
        async def run(self, work: Any, *, limiter: Any = None) -> Any:
            await trio.lowlevel.checkpoint()
            return work()

    async with trio.open_nursery() as nursery:
        node, flusher = await flushing(nursery, is_full=True)
        flusher._threads = AtOnce()  # type: ignore[assignment]
        with node.disk.failing("sync", number=errno.ENOSPC):
            end = node.produce(b"x")
            await trio.sleep(2.5 * FULL_RETRY_SECONDS)
            assert node.replica.log.high_watermark == 0
        begun = trio.current_time()
        await node.replica.wait_committed(end)
        assert 0 < trio.current_time() - begun <= FULL_RETRY_SECONDS
        nursery.cancel_scope.cancel()


# --- quotas of replication ----------------------------------------------------------------------------------------


class Followed:
    """A replica as a throttle sees it."""

    def __init__(self, index: int, names: tuple[str, ...], topic: str = "t") -> None:
        self.topic = topic
        self.index = index
        self.log = self
        self.config = names


def throttle(rate_max: int | None, clock: list[int]) -> ReplicationThrottle:
    return ReplicationThrottle(
        1, lambda config: config, lambda: rate_max, samples=11, sample_ms=1_000, clock_ms=lambda: clock[0]  # type: ignore[return-value, arg-type]
    )  # fmt: skip


NAMES = ("0:1", "1:2")


@pytest.mark.parametrize(
    ("index", "names", "size", "rate_max", "is_held"),
    [
        (0, NAMES, 1_001, 1_000, True),
        (0, NAMES, 1_000, 1_000, False),
        (0, NAMES, 1_001, None, False),
        (1, NAMES, 9_999, 1_000, False),
        (7, ("*",), 1_001, 1_000, True),
        (0, (), 9_999, 1_000, False),
    ],
)
def test_a_throttled_replica_waits_once_there_was_too_much(
    index: int, names: tuple[str, ...], size: int, rate_max: int | None, is_held: bool
) -> None:
    clock = [0]
    quota = throttle(rate_max, clock)
    replica: Any = Followed(index, names)
    assert not quota.holds(replica)
    quota.used(replica, size)
    assert quota.holds(replica) is is_held
    clock[0] = 60_000
    assert not quota.holds(replica)
