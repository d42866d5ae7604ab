"""Closing many logs at once: all of them last, or their dir is not marked as closed cleanly."""

from __future__ import annotations

import errno
from pathlib import Path
from random import Random

import pytest

from barnabas.log.closing import SYNCS_CONCURRENT
from barnabas.log.format import names
from barnabas.testing.memory_disk import MemoryDisk
from tests.support.logs import NOW_MS, Broker, batch

LOGS = 2 * SYNCS_CONCURRENT + 3
PATH = Path("/data")


def make(disk: MemoryDisk) -> Broker:
    disk.make_dirs("/data")
    disk.sync_dir("/")
    broker = Broker(PATH, disk=disk)
    for n in range(LOGS):
        log = broker.manager.create("t", n, bytes(16))
        for value in range(n % 3):  # some are empty
            log.append_as_leader(batch(b"%d" % value), leader_epoch=n, now_ms=NOW_MS)
    return broker


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_what_was_closed_outlives_a_power_cut(seed, caplog):
    disk = MemoryDisk()
    broker = make(disk)
    ends = {log.partition: log.log_end_offset for log in broker.manager}
    broker.manager.close()
    again = Broker(PATH, disk=disk.crash(None if seed is None else Random(seed)))
    assert {log.partition: log.log_end_offset for log in again.manager} == ends
    assert "not closed cleanly" not in caplog.text
    again.manager.close()


@pytest.mark.parametrize("broken", [0, SYNCS_CONCURRENT, LOGS - 1])
def test_a_dir_in_which_one_log_cannot_be_synced_is_not_marked(broken):
    disk = MemoryDisk()
    broker = make(disk)
    broker.manager.get("t", broken).append_as_leader(batch(), leader_epoch=broken, now_ms=NOW_MS)
    disk.fault = lambda op, path: (
        OSError(errno.EIO, "broken") if op == "sync" and f"/t-{broken}/" in path else None
    )
    broker.manager.close()
    assert "/data" in broker.manager.offline
    disk.fault = None
    assert names.CLEAN_SHUTDOWN not in [entry.name for entry in disk.list("/data")]
    again = Broker(PATH, disk=disk)
    assert len(list(again.manager)) == LOGS
    again.manager.close()
