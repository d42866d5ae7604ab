"""Checkpoints, and logs that are made under the name of one that was deleted."""

from errno import EIO

import pytest

from barnabas.errors import StorageError
from barnabas.testing.memory_disk import MemoryDisk
from tests.support.logs import NOW_MS, Broker, append, batch, read_all


@pytest.fixture
def broker():
    """A topic with a log start of 20, as the checkpoint says."""
    broker = Broker("/a", disk=MemoryDisk())
    log = broker.log()
    for _ in range(20):
        append(log, batch())
    log.delete_records_before(20)
    append(log, batch(b"old"))
    broker.manager.write_checkpoints()
    return broker


def values(broker):
    log = broker.log()
    log.advance_high_watermark(log.log_end_offset)
    return [record.value for record in read_all(log)]


def create_again(broker):
    broker.manager.delete("t", 0, NOW_MS)
    append(broker.log(), batch(b"new"))


def test_log_recreated_after_deletion_survives_a_crash(broker):
    create_again(broker)
    broker.restart(clean=False)
    assert values(broker) == [b"new"]


def test_log_recreated_after_a_crash_survives_the_next_crash(broker):
    broker.manager.delete("t", 0, NOW_MS)
    broker.restart(clean=False)
    append(broker.log(), batch(b"new"))
    broker.restart(clean=False)
    assert values(broker) == [b"new"]


def test_a_plan_that_was_begun_before_does_not_say_what_was_then(broker):
    plan = broker.manager.begin_checkpoints()
    for log in broker.manager:
        plan.add(log)
    create_again(broker)
    broker.manager.checkpoints.write(plan)
    broker.manager.checkpoints.written(plan)
    broker.restart(clean=False)
    assert values(broker) == [b"new"]


def test_checkpoints_are_written_once_for_all_deleted_logs():
    disk = MemoryDisk()
    broker = Broker("/a", disk=disk)
    for n in range(50):
        broker.log("t", n)
    broker.manager.write_checkpoints()
    for n in range(50):
        broker.manager.delete("t", n, NOW_MS)
    assert broker.manager.checkpoints.is_outdated
    written = []
    disk.fault = lambda operation, path: written.append(path) if path.endswith("point-checkpoint") else None
    for n in range(50):
        broker.log("t", n)
    assert len(written) <= 3
    checkpoints = broker.manager.checkpoints
    assert not any(checkpoints.may_mislead("/a", ("t", n)) for n in range(50))
    assert checkpoints.is_outdated, "the new logs are not named yet"
    broker.manager.write_checkpoints()
    assert not checkpoints.is_outdated


def test_files_that_are_written_later_end_the_doubt(broker):
    broker.manager.delete("t", 0, NOW_MS)
    assert broker.manager.checkpoints.is_outdated
    broker.manager.write_checkpoints()
    assert not broker.manager.checkpoints.is_outdated


def test_log_deleted_during_a_checkpoint_stays_in_doubt(broker):
    plan = broker.manager.begin_checkpoints()
    broker.manager.delete("t", 0, NOW_MS)
    broker.manager.checkpoints.write(plan)
    broker.manager.checkpoints.written(plan)
    assert broker.manager.checkpoints.is_outdated


def test_nothing_is_in_doubt_in_a_log_dir_that_is_offline(broker):
    broker.manager.take_offline("/a", StorageError("/a", OSError("broken")))
    assert not broker.manager.checkpoints.is_outdated


def test_plan_is_not_written_to_a_dir_that_went_offline(broker):
    plan = broker.manager.begin_checkpoints()
    broker.manager.take_offline("/a", StorageError("/a", OSError(EIO, "for a moment")))
    broker.manager.checkpoints.write(plan)
    broker.restart(clean=False)
    assert broker.log().log_start_offset == 20
    assert values(broker) == [b"old"]
