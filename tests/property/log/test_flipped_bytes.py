"""Every byte of a small data dir is damaged in turn: what it costs is one batch, or a file that can be rebuilt.

Never an empty log in the place of one with records, and never a start that ends without a word of what to do.
"""

from __future__ import annotations

import logging
import random

import pytest

from barnabas.errors import StorageError
from barnabas.log.format import names
from barnabas.records.validate import Origin
from barnabas.testing.memory_disk import Inode, MemoryDisk
from barnabas.tools.logtool.overlay import apply_changes
from barnabas.tools.logtool.places import open_partition
from barnabas.tools.logtool.repair import plan_repair
from tests.support.effort import EFFORT, drawing
from tests.support.logs import TOPIC_ID, Broker, append, batch, marker, read_all

SETTINGS = {"segment_bytes": 1_200, "index_interval_bytes": 150}
NO_CHECKSUM = (names.LOG_START_CHECKPOINT,)
"""Files of Kafka's own format in which another digit is another truth: what they say is bounded, not known to be right."""
SAMPLE = 600  # of the bytes, on an ordinary day


def written(*, clean: bool) -> MemoryDisk:
    """A log of several segments, epochs, transactions and producers."""
    disk = MemoryDisk()
    disk.make_dirs("/data")
    broker = Broker("/data", disk=disk, **SETTINGS)
    log = broker.log()
    for n in range(16):
        append(
            log,
            batch(b"%d" % n, b"x" * 50, producer_id=3, producer_epoch=0, base_sequence=2 * n),
            epoch=n // 8,
        )
    for n, commit in enumerate((False, True)):
        records = batch(b"t", producer_id=7, producer_epoch=0, base_sequence=n, transactional=True)
        append(log, records, epoch=2)
        append(log, marker(commit=commit, producer_id=7), epoch=2, origin=Origin.COORDINATOR)
    append(log, batch(b"last"), epoch=2)
    broker.manager.write_meta("cluster", 5)
    broker.manager.write_checkpoints()
    if clean:
        broker.manager.close()
    else:
        broker.crash()
    disk.locks.clear()
    return disk


def files(inode: Inode, path: str = "") -> dict[str, Inode]:
    inodes: dict[str, Inode] = {}
    for name, child in inode.names.items():
        inodes |= files(child, f"{path}/{name}") if child.is_dir else {f"{path}/{name}": child}
    return inodes


def places(disk: MemoryDisk, rng: random.Random) -> list[tuple[str, int]]:
    every = [
        (path, at) for path, inode in sorted(files(disk.root).items()) for at in range(len(inode.content))
    ]
    return every if EFFORT > 1 else sorted(rng.sample(every, SAMPLE))


def opened(disk: MemoryDisk):
    broker = Broker("/data", disk=disk, **SETTINGS)
    log = broker.manager.get("t", 0)
    assert log is not None
    log.advance_high_watermark(log.log_end_offset)
    return broker, log


@pytest.mark.parametrize("clean", [True, False], ids=["after a clean stop", "after a crash"])
def test_one_damaged_byte_costs_one_batch_or_a_rebuilt_file(clean, caplog):
    caplog.set_level(logging.ERROR)
    rng = drawing()
    sound = written(clean=clean)
    before = read_all(opened(sound.fork())[1])
    assert len(before) > 30
    refused: list[tuple[str, str]] = []
    for path, at in places(sound, rng):
        where = f"byte {at} of {path}"
        disk = sound.fork()
        files(disk.root)[path].content[at] ^= 1 << rng.randrange(8)
        try:
            broker, log = opened(disk)
        except StorageError as error:
            # A start that refuses says which file it is and what to do, and that helps.
            refused.append((path, str(error)))
            disk.locks.clear()
            disk.remove(path)
            check(opened(disk)[1], before, f"{where}, and the file removed", path)
            continue
        if path.endswith(NO_CHECKSUM):
            continue
        if clean and path.endswith(names.LOG):
            # A start after a clean stop looks at the log's end only: what readers meet later is cut out by the tool.
            broker.manager.close()
            place = open_partition(disk, "/data/t-0")
            apply_changes(disk, plan_repair(disk, place, salvage=True).changes)
            broker, log = opened(disk)
        check(log, before, where, path)
        for segment in log.segments:  # lookups by what is derived from the batches
            segment.load_max_timestamp()
        assert log.topic_id is None or len(log.topic_id) == len(TOPIC_ID)
        end_offset = log.log_end_offset
        assert append(log, batch(b"more"), epoch=9).base_offset == end_offset, where
        broker.crash()
        disk.locks.clear()
        broker, log = opened(disk)
        check(log, before, f"{where}, and another start", path)
        assert log.log_end_offset == end_offset + 1, where
    for path, message in refused:
        assert path == f"/data/{names.META_PROPERTIES}"
        assert f"rm {path}" in message


def check(log, before, where: str, path: str) -> None:
    """All is there but one batch at most."""
    kept = {(record.offset, record.value) for record in read_all(log)}
    missing = [record for record in before if (record.offset, record.value) not in kept]
    assert len(missing) <= (2 if path.endswith(names.LOG) else 0), (where, missing)
