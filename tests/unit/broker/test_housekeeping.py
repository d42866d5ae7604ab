"""Periodic work on logs, in the event loop and in threads."""

import errno
import threading
from types import SimpleNamespace

import pytest
import trio

from barnabas.broker.housekeeping import SEGMENTS_PER_TURN, Housekeeping
from barnabas.cluster.replicas.failures import LogDirFailures
from barnabas.config.loading import BrokerConfig
from barnabas.environment.real import real_environment
from barnabas.errors import StorageError
from barnabas.log.cleaner.cleaner import LogCleaner
from barnabas.log.rate_limit import RateLimit
from barnabas.serving.loop_budget import LoopBudget
from barnabas.testing.memory_disk import MemoryDisk
from tests.support.logs import NOW_MS, Broker, append, batch, read_all


def dirty_logs(tmp_path):
    logs = Broker(tmp_path, cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.0)
    for n in range(3):
        for value in (b"old", b"new"):
            append(logs.log("t", n), batch(value))
        logs.log("t", n).roll()
        logs.log("t", n).flush(NOW_MS)
    config = BrokerConfig()
    failures = LogDirFailures(logs.manager, lambda: NOW_MS, lambda: None)
    housekeeping = housekeeping_of(logs, failures, LoopBudget(), config)
    return logs, SimpleNamespace(logs=logs.manager, config=config, housekeeping=housekeeping)


def housekeeping_of(logs, failures, budget, config, *, is_served=lambda _: True):
    idle = SimpleNamespace(expire_offsets=trio.sleep_forever, expire_ids=trio.sleep_forever)
    environment = real_environment(clock_ms=lambda: NOW_MS)
    return Housekeeping(config, logs.manager, failures, idle, idle, budget, environment, is_served=is_served)


async def test_log_without_a_replica_is_not_shortened_or_compacted(tmp_path):
    """As one of a topic that no controller has named yet: its settings are not known."""
    logs = Broker(
        tmp_path, cleanup_policy=frozenset({"compact", "delete"}), min_cleanable_dirty_ratio=0.0,
        retention_ms=1,
    )  # fmt: skip
    log = logs.log()
    for value in (b"old", b"new"):
        append(log, batch(value, timestamp=NOW_MS - 1_000))
    log.roll()
    log.flush(NOW_MS)
    failures = LogDirFailures(logs.manager, lambda: NOW_MS, lambda: None)
    for is_served, remaining in ((False, [b"old", b"new"]), (True, [])):
        housekeeping = housekeeping_of(
            logs, failures, LoopBudget(), BrokerConfig(), is_served=lambda _, is_served=is_served: is_served
        )
        await housekeeping.clean_logs(LogCleaner(lambda: logs.manager))
        await housekeeping.apply_retention()
        assert values(log) == remaining


async def test_all_dirty_logs_are_compacted(tmp_path):
    logs, broker = dirty_logs(tmp_path)
    await broker.housekeeping.clean_logs(LogCleaner(lambda: broker.logs))
    for n in range(3):
        assert [record.value for record in read_all(logs.log("t", n))] == [b"new"]


async def test_a_broker_that_stops_does_not_wait_for_the_cleaner(tmp_path):
    logs, broker = dirty_logs(tmp_path)
    with trio.CancelScope() as scope:

        def stop_the_broker(_):
            trio.from_thread.run_sync(scope.cancel)
            trio.from_thread.check_cancelled()

        await broker.housekeeping.clean_logs(LogCleaner(lambda: broker.logs, throttle=stop_the_broker))
    assert scope.cancelled_caught
    for n in range(3):
        assert [record.value for record in read_all(logs.log("t", n))] == [b"old", b"new"]
    assert list(tmp_path.glob("*/*.cleaned")) == []


async def test_the_cleaner_obeys_settings_that_were_changed(tmp_path):
    _, broker = dirty_logs(tmp_path)
    cleaner = LogCleaner(lambda: broker.logs)
    broker.config.set_dynamic(
        {"log.cleaner.dedupe.buffer.size": "1048576"}, {"log.cleaner.io.buffer.load.factor": "0.5"}
    )
    await broker.housekeeping.clean_logs(cleaner)
    assert (cleaner.dedupe_bytes, cleaner.load_factor) == (1048576, 0.5)


def values(log):
    return [record.value for record in read_all(log)]


async def test_logs_compacted_at_once_are_limited_by_threads(tmp_path, monkeypatch, autojump_clock):
    """The number is changed while the cleaner runs; each of the two that then run waits for the other one."""
    logs, broker = dirty_logs(tmp_path)
    broker.config.set_dynamic({"log.cleaner.threads": "0"}, {})
    meeting, met = threading.Barrier(2, timeout=60), []

    def throttle(_limit, _count, _is_cancelled):
        if threading.get_ident() not in met:
            met.append(threading.get_ident())
            if len(met) <= 2:
                meeting.wait()

    monkeypatch.setattr(RateLimit, "use", throttle)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.housekeeping.run)
        await trio.sleep(60)
        assert values(logs.log("t", 0)) == [b"old", b"new"], "nobody is there to do it"
        broker.config.set_dynamic({"log.cleaner.threads": "2"}, {})
        while any(values(logs.log("t", n)) != [b"new"] for n in range(3)):
            await trio.sleep(1)
        nursery.cancel_scope.cancel()
    assert len(met) >= 2


async def test_the_memory_for_keys_is_shared_by_the_threads(tmp_path):
    _, broker = dirty_logs(tmp_path)
    broker.config.set_dynamic({"log.cleaner.threads": "4"}, {})
    cleaner = LogCleaner(lambda: broker.logs)
    await broker.housekeeping.clean_logs(cleaner)
    assert cleaner.dedupe_bytes == (128 << 20) // 4


class CountingBudget:
    """Counts how often others could have run."""

    def __init__(self):
        self.count = 0

    async def checkpoint(self):
        self.count += 1


def many_logs(disk, count, **settings):
    logs = Broker("/a", disk=disk, **settings)
    for n in range(count):
        append(logs.log("t", n), batch(timestamp=NOW_MS - 10**12))
    failures, budget = [], CountingBudget()
    told = SimpleNamespace(failed=failures.append)
    return logs, housekeeping_of(logs, told, budget, BrokerConfig()), budget, failures


@pytest.mark.parametrize(
    "work", [Housekeeping.apply_retention, Housekeeping.flush_due, Housekeeping.write_checkpoints]
)
async def test_others_may_run_after_each_log(work):
    _, housekeeping, budget, failures = many_logs(MemoryDisk(), 30, flush_ms=0)
    await work(housekeeping)
    assert budget.count >= 30
    assert failures == []


async def test_a_log_with_many_old_segments_is_shortened_step_by_step():
    logs, housekeeping, budget, _ = many_logs(MemoryDisk(), 1, segment_bytes=100)
    for _ in range(100):
        append(logs.log(), batch(timestamp=NOW_MS - 10**12))
    await housekeeping.apply_retention()
    assert len(logs.log().segments) == 1
    assert budget.count >= 100 // SEGMENTS_PER_TURN


@pytest.mark.parametrize(
    ("work", "operation"), [(Housekeeping.apply_retention, "rename"), (Housekeeping.flush_due, "sync")]
)
async def test_failing_log_does_not_keep_others_from_their_turn(work, operation):
    disk = MemoryDisk()
    logs, housekeeping, _, failures = many_logs(disk, 3, flush_ms=0)
    failing = logs.log("t", 0).dir

    def fault(asked, path):
        return OSError(errno.ENOSPC, "full") if asked == operation and path.startswith(failing) else None

    disk.fault = fault
    await work(housekeeping)
    disk.fault = None
    assert len(failures) == 1
    for n in (1, 2):
        log = logs.log("t", n)
        done = log.log_start_offset if work is Housekeeping.apply_retention else log.recovery_point
        assert done == 1


@pytest.mark.parametrize("also_logs", [False, True])
async def test_files_that_vanish_are_reported(also_logs):
    disk = MemoryDisk()
    logs, housekeeping, _, failures = many_logs(disk, 3)
    disk.remove_tree(logs.log("t", 1).dir)
    await housekeeping.find_missing(also_logs=also_logs)
    assert [logs.manager.lose_missing(error)[0].partition for error in failures] == [1] * also_logs
    assert list(logs.manager.missing) == [("t", 1)] * also_logs
    disk.remove("/a/.lock")
    failures.clear()
    await housekeeping.find_missing(also_logs=False)
    (failure,) = failures
    logs.manager.lose_missing(failure)
    assert list(logs.manager.offline) == ["/a"]


def test_a_log_dir_that_was_replaced_gets_nothing_more():
    disk = MemoryDisk()
    logs, _, _, _ = many_logs(disk, 1)
    disk.remove_tree("/a")
    disk.make_dirs("/a")
    for change in (logs.manager.write_checkpoints, lambda: logs.log("t", 1)):
        with pytest.raises(StorageError, match="removed or replaced"):
            change()
    logs.manager.close()
    assert disk.list("/a") == []
