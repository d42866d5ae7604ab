"""A log with tiered storage: what is local goes when it is stored remotely, and the log start stays (KIP-405)."""

import pytest

from barnabas.errors import RequestError
from barnabas.log.config import LogConfig
from barnabas.log.errors import Code
from tests.support.logs import NOW_MS, Broker, append, batch, read_all

SMALL = {
    "segment_bytes": 2_000,
    "remote_storage_enable": True,
    "local_retention_bytes": 1,
    "retention_ms": -1,
}


@pytest.fixture
def broker(tmp_path):
    return Broker(tmp_path, **SMALL)


def fill(broker, count=100):
    """Return a log of five or more segments, all of it committed."""
    log = broker.log()
    for n in range(count):
        append(log, batch(b"%d" % n, b"x" * 50))
    assert len(log.segments) > 4
    return log


def test_segments_that_are_not_stored_remotely_stay(broker):
    log = fill(broker)
    assert log.apply_retention(NOW_MS) == 0
    log.highest_remote_offset = log.segments[2].base_offset - 1
    assert log.apply_retention(NOW_MS) == 2
    assert log.apply_retention(NOW_MS) == 0


def test_local_deletion_moves_the_local_log_start_only(broker):
    log = fill(broker)
    second = log.segments[1].base_offset
    log.highest_remote_offset = second - 1
    log.apply_retention(NOW_MS)
    assert (log.log_start_offset, log.local_log_start_offset) == (0, second)
    assert [record.offset for record in read_all(log, second)] == list(range(second, 200))


def test_offset_below_the_local_log_start_is_in_the_tier(broker):
    log = fill(broker)
    log.highest_remote_offset = log.segments[1].base_offset - 1
    log.apply_retention(NOW_MS)
    with pytest.raises(RequestError) as moved:
        log.read(0, max_bytes=100, upper_offset=200)
    assert moved.value.code == Code.OFFSET_MOVED_TO_TIERED_STORAGE
    log.delete_records_before(1)
    with pytest.raises(RequestError) as gone:
        log.read(0, max_bytes=100, upper_offset=200)
    assert gone.value.code == Code.OFFSET_OUT_OF_RANGE


def test_segment_below_the_log_start_goes_without_being_stored(broker):
    log = fill(broker)
    log.delete_records_before(log.segments[2].base_offset)
    assert log.apply_retention(NOW_MS) == 2
    assert log.log_start_offset == log.local_log_start_offset == log.segments[0].base_offset


def test_log_that_is_copied_no_more_obeys_its_whole_retention(tmp_path):
    broker = Broker(tmp_path, **SMALL, remote_log_copy_disable=True, retention_bytes=4_000)
    log = fill(broker)
    assert log.apply_retention(NOW_MS) > 0
    assert log.log_start_offset == log.segments[0].base_offset > 0


@pytest.mark.parametrize("is_clean", [True, False])
def test_log_start_survives_a_restart(broker, is_clean):
    log = fill(broker)
    log.flush(NOW_MS)
    second = log.segments[1].base_offset
    log.highest_remote_offset = second - 1
    log.apply_retention(NOW_MS)
    log.delete_records_before(5)
    broker.restart(clean=is_clean)
    log = broker.log()
    assert (log.log_start_offset, log.local_log_start_offset) == (5, second)
    assert log.epochs.epoch_at(5) == 0
    assert log.log_end_offset == 200
    assert log.highest_remote_offset == -1
    assert log.apply_retention(NOW_MS) == 0


def test_log_start_is_local_when_tiering_is_off_again(broker):
    log = fill(broker)
    log.highest_remote_offset = log.segments[1].base_offset - 1
    log.apply_retention(NOW_MS)
    second = log.segments[0].base_offset
    broker.config = LogConfig(**{**SMALL, "remote_storage_enable": False})
    broker.restart(clean=True)
    assert broker.log().log_start_offset == second


def test_snapshot_of_producers_is_there_at_each_segments_end(broker):
    log = fill(broker)
    bases = [segment.base_offset for segment in log.segments[1:]]
    assert log.store.snapshots.offsets >= set(bases)
