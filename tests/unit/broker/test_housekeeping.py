"""Periodic work on logs, in the event loop and in threads."""

import threading
from types import SimpleNamespace

import trio

from barnabas.broker.housekeeping import clean_forever, clean_logs
from barnabas.config.loading import BrokerConfig
from barnabas.log.cleaner.cleaner import LogCleaner
from barnabas.log.rate_limit import RateLimit
from barnabas.loop_budget import LoopBudget
from tests.support.logs import NOW_MS, Broker, append, batch, read_all


def dirty_logs(tmp_path):
    logs = Broker(tmp_path, cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.0)
    for n in range(3):
        for value in (b"old", b"new"):
            append(logs.log("t", n), batch(value))
        logs.log("t", n).roll()
        logs.log("t", n).flush(NOW_MS)
    return logs, SimpleNamespace(
        logs=logs.manager, now_ms=lambda: NOW_MS, config=BrokerConfig(), budget=LoopBudget()
    )


async def test_all_dirty_logs_are_compacted(tmp_path):
    logs, broker = dirty_logs(tmp_path)
    await clean_logs(broker, LogCleaner(lambda: broker.logs))
    for n in range(3):
        assert [record.value for record in read_all(logs.log("t", n))] == [b"new"]


async def test_a_broker_that_stops_does_not_wait_for_the_cleaner(tmp_path):
    logs, broker = dirty_logs(tmp_path)
    with trio.CancelScope() as scope:

        def stop_the_broker(_):
            trio.from_thread.run_sync(scope.cancel)
            trio.from_thread.check_cancelled()

        await clean_logs(broker, LogCleaner(lambda: broker.logs, throttle=stop_the_broker))
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
    await clean_logs(broker, cleaner)
    assert (cleaner.dedupe_bytes, cleaner.load_factor) == (1048576, 0.5)


def values(log):
    return [record.value for record in read_all(log)]


async def test_as_many_logs_are_compacted_at_once_as_there_are_to_be_threads(
    tmp_path, monkeypatch, autojump_clock
):
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
        nursery.start_soon(clean_forever, broker)
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
    await clean_logs(broker, cleaner)
    assert cleaner.dedupe_bytes == (128 << 20) // 4
