"""Many logs after a crash, checked by several threads: the same as by one, told of, and stopped by a disk that fails."""

from pathlib import Path

import pytest

from barnabas.errors import StorageError
from barnabas.log.format import names
from barnabas.log.recovery import parallel
from tests.support.faults import FaultyDisk
from tests.support.logs import Broker, append, batch, read_all

LOGS = 12
SEGMENT_FILES = (names.LOG, names.OFFSET_INDEX, names.TIME_INDEX, names.SNAPSHOT)


@pytest.fixture
def crashed(tmp_path):
    """A broker that ended without farewell: logs of several segments, every third one with a torn tail."""
    broker = Broker(tmp_path, disk=FaultyDisk(), segment_bytes=2_000, index_interval_bytes=200)
    for partition in range(LOGS):
        for number in range(30):
            append(broker.log("t", partition), batch(b"%d" % number * 40, timestamp=1_000 + number))
    broker.crash()
    for partition in range(0, LOGS, 3):
        last = max(Path(tmp_path, f"t-{partition}").glob("*.log"))
        last.write_bytes(last.read_bytes()[:-7])
    return broker


def state(broker):
    """The state of the loaded logs, and the contents of the files then."""
    logs = sorted(broker.manager, key=lambda log: log.partition)
    recovered = []
    for log in logs:
        log.advance_high_watermark(log.log_end_offset)
        recovered.append(
            (log.partition, log.log_end_offset, len(log.segments), [r.value for r in read_all(log)])
        )
    broker.manager.close()
    files = {
        str(path.relative_to(broker.dirs[0])): path.read_bytes()
        for path in Path(broker.dirs[0]).rglob("*")
        if path.suffix in SEGMENT_FILES
    }
    return recovered, files


def test_several_threads_find_what_one_finds(crashed, tmp_path, caplog):
    crashed.recovery_threads = 4
    crashed.start()
    recovered, files = state(crashed)
    assert [end for _, end, _, _ in recovered] == [
        29 if partition % 3 == 0 else 30 for partition in range(LOGS)
    ]
    assert caplog.text.count("cutting off") == LOGS / 3
    assert f"its {LOGS} logs were checked" in caplog.text
    Path(tmp_path, names.CLEAN_SHUTDOWN).unlink()
    crashed.recovery_threads = 1
    crashed.start()
    assert state(crashed) == (recovered, files)


def test_files_opened_by_threads_count_against_the_pool(crashed):
    crashed.recovery_threads = 3
    crashed.start()
    held = sum(segment._is_pooled for log in crashed.manager for segment in log.segments)
    assert len(crashed.manager.pool) == held > 0
    assert all(segment._pool is crashed.manager.pool for log in crashed.manager for segment in log.segments)
    crashed.manager.close()


def test_it_is_told_how_far_it_is(crashed, monkeypatch, caplog):
    monkeypatch.setattr(parallel, "TELL_SECONDS", 0.0)
    crashed.recovery_threads = 2
    crashed.start()
    assert f"{LOGS} of {LOGS} logs" in caplog.text
    crashed.manager.close()


def test_a_disk_that_fails_ends_it(crashed):
    crashed.recovery_threads = 4
    crashed.disk.read_fails = True
    with pytest.raises(StorageError, match="read failed"):
        crashed.start()
    crashed.disk.read_fails = False
    crashed.start()
    assert len(list(crashed.manager)) == LOGS
    crashed.manager.close()
