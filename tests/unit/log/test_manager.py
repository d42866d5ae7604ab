"""All logs of a broker: opening, locking, deleting, log dirs that fail."""

import shutil
from pathlib import Path

import pytest

from barnabas.errors import StorageError
from barnabas.log.config import LogConfig
from barnabas.log.format import names
from barnabas.log.manager import LogManager
from barnabas.testing.memory_disk import MemoryDisk
from tests.support.faults import FaultyDisk
from tests.support.logs import NOW_MS, TOPIC_ID, Broker, append, batch, flushes_due, read_all


@pytest.fixture
def broker(tmp_path):
    return Broker(tmp_path / "data", segment_bytes=2_000)


def directory(broker: Broker, name: str = "t-0") -> Path:
    return Path(broker.dirs[0]) / name


def test_a_new_dir_is_made_and_empty(broker):
    assert list(broker.manager) == []
    assert broker.manager.get("t", 0) is None
    assert (broker.manager.cluster_id, broker.manager.node_id) == (None, None)


def test_topics_with_all_sorts_of_names_are_found_again(broker):
    keys = [("t", 0), ("a-b", 12), ("a-b-0", 1), ("x.y_z", 3)]
    for key in keys:
        append(broker.log(*key), batch(b"v"))
    broker.restart(clean=True)
    assert sorted((log.topic, log.partition) for log in broker.manager) == sorted(keys)
    assert all(log.log_end_offset == 1 and log.topic_id == TOPIC_ID for log in broker.manager)


def test_a_dir_in_use_is_refused(broker):
    with pytest.raises(StorageError, match="another broker is using it"):
        LogManager(broker.dirs, config_for=lambda topic: LogConfig()).open(NOW_MS)
    broker.restart(clean=True)


def test_a_dir_that_cannot_be_made_is_explained(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError, match="file/data"):
        Broker(tmp_path / "file" / "data")


def test_clean_shutdown_file_exists_only_while_stopped(broker):
    mark = directory(broker, names.CLEAN_SHUTDOWN)
    assert not mark.exists()
    broker.manager.close()
    assert mark.read_bytes() == b'{"version":0,"brokerEpoch":-1}'
    broker.start()
    assert not mark.exists()


@pytest.mark.parametrize(("epochs", "expected"), [((7, 7), 7), ((7, 8), -1), ((7, None), -1)])
def test_broker_epoch_is_that_of_all_clean_shutdown_marks(tmp_path, epochs, expected):
    broker = Broker(tmp_path / "one", tmp_path / "two")
    broker.manager.broker_epoch = 7
    broker.manager.close()
    mark = Path(broker.dirs[1], names.CLEAN_SHUTDOWN)
    mark.unlink() if epochs[1] is None else mark.write_text(mark.read_text().replace("7", str(epochs[1])))
    assert broker.start().previous_broker_epoch == expected


def test_dir_of_a_zookeeper_cluster_opens_in_kafka(broker):
    """Kafka 3.9 with ZooKeeper refuses version 1; with KRaft, as a broker that is alone, it has no other."""
    path = Path(broker.dirs[0], "meta.properties")
    broker.manager.write_meta("c1", 7)
    directory_id = broker.manager.meta[broker.dirs[0]].directory_id
    alone = path.read_text()
    assert {"version=1", "node.id=7", "cluster.id=c1"} < set(alone.splitlines())
    broker.manager.write_meta("c1", 7, on_zookeeper=True)
    expected = alone.replace("version=1", "version=0").replace("node.id", "broker.id")
    assert sorted(path.read_text().splitlines()) == sorted(expected.splitlines())
    broker.restart(clean=True)
    meta = broker.manager.meta[broker.dirs[0]]
    assert (meta.version, meta.node_id, meta.directory_id) == (0, 7, directory_id)
    broker.manager.write_meta("c1", 7)
    assert broker.manager.meta[broker.dirs[0]].version == 0, "it goes both ways"


def test_a_dir_belongs_to_one_broker_of_one_cluster(broker, tmp_path):
    broker.manager.write_meta("c1", 1)
    assert (broker.manager.cluster_id, broker.manager.node_id) == ("c1", 1)
    directory_id = broker.manager.meta[broker.dirs[0]].directory_id
    broker.restart(clean=True)
    assert (broker.manager.cluster_id, broker.manager.node_id) == ("c1", 1)
    assert broker.manager.meta[broker.dirs[0]].directory_id == directory_id
    broker.manager.close()
    other = Broker(tmp_path / "other")
    other.manager.write_meta("c2", 1)
    other.manager.close()
    with pytest.raises(StorageError, match="cluster_id is c2"):
        Broker(tmp_path / "data", tmp_path / "other")
    broker.start()


def test_damaged_meta_properties_are_explained(broker):
    broker.manager.close()
    directory(broker, names.META_PROPERTIES).write_bytes(b"version=9\n")
    with pytest.raises(StorageError, match=r"meta.properties is damaged"):
        broker.start()


def test_strange_directories_are_left_alone(broker):
    broker.manager.close()
    for name in ("lost+found", "t-0.00-stray", "__cluster_metadata-0", "metadata"):
        directory(broker, name).mkdir()
        directory(broker, name).joinpath("00000000000000000000.log").write_bytes(b"x")
    broker.start()
    assert list(broker.manager) == []
    assert directory(broker, "lost+found").joinpath("00000000000000000000.log").exists()


def test_a_deleted_log_is_removed_after_the_delay(broker):
    append(broker.log(), batch(b"a"))
    region = broker.log().read(0, max_bytes=100, upper_offset=1)
    broker.manager.delete("t", 0, NOW_MS)
    assert broker.manager.get("t", 0) is None
    (marked,) = directory(broker, "").glob("t-0.*-delete")
    assert read_all(broker.log()) == []
    assert broker.manager.remove_due(NOW_MS + 59_999) == 0
    assert broker.manager.remove_due(NOW_MS + 60_000) == 1
    assert not marked.exists()
    assert directory(broker).exists()
    assert region.to_bytes()


def test_deletions_are_finished_after_a_restart(broker):
    append(broker.log(), batch(b"a"))
    broker.manager.delete("t", 0, NOW_MS)
    broker.restart(clean=False)
    assert broker.manager.get("t", 0) is None
    broker.manager.remove_due(NOW_MS)
    assert list(directory(broker, "").glob("t-0*")) == []


def test_logs_go_to_the_dir_that_has_the_fewest(tmp_path):
    broker = Broker(tmp_path / "a", tmp_path / "b", tmp_path / "c")
    for n in range(7):
        broker.log("t", n)
    counts = [sum(log.log_dir == path for log in broker.manager) for path in broker.dirs]
    assert sorted(counts) == [2, 2, 3]
    broker.restart(clean=True)
    assert len(broker.manager) == 7


def test_a_log_in_two_dirs_is_explained(tmp_path):
    broker = Broker(tmp_path / "a", tmp_path / "b")
    log = broker.log()
    broker.manager.close()
    other = next(path for path in broker.dirs if path != log.log_dir)
    shutil.copytree(log.dir, f"{other}/t-0")
    with pytest.raises(StorageError, match="t-0 is also in"):
        broker.start()


def test_a_dir_that_fails_goes_offline_alone(tmp_path):
    broker = Broker(tmp_path / "a", tmp_path / "b")
    logs = [broker.log("t", n) for n in range(4)]
    error = StorageError(broker.dirs[0], OSError("gone"))
    lost = broker.manager.take_offline(broker.dirs[0], error)
    assert {log.log_dir for log in lost} == {broker.dirs[0]}
    assert broker.manager.online == broker.dirs[1:]
    assert sorted(broker.manager, key=id) == sorted((log for log in logs if log not in lost), key=id)
    assert broker.log("new").log_dir == broker.dirs[1]
    broker.manager.close()
    assert not (tmp_path / "a" / names.CLEAN_SHUTDOWN).exists()
    assert (tmp_path / "b" / names.CLEAN_SHUTDOWN).exists()


def test_a_dir_that_cannot_be_opened_does_not_stop_the_others(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    broker = Broker(tmp_path / "file" / "x", tmp_path / "b")
    assert broker.manager.online == [str(tmp_path / "b")]
    assert isinstance(broker.manager.offline[str(tmp_path / "file" / "x")].cause, OSError)
    append(broker.log(), batch(b"a"))


def test_checkpoints_are_written_for_each_dir(tmp_path):
    broker = Broker(tmp_path / "a", tmp_path / "b", segment_bytes=2_000)
    for n in range(2):
        log = broker.log("t", n)
        append(log, batch(b"a"))
        append(log, batch(b"b"))
        log.delete_records_before(n)
        log.flush(NOW_MS)
    broker.manager.write_checkpoints()
    first, second = (Path(log.log_dir) for log in (broker.log("t", 0), broker.log("t", 1)))
    assert (first / names.RECOVERY_POINT_CHECKPOINT).read_bytes() == b"0\n1\nt 0 2\n"
    assert (first / names.LOG_START_CHECKPOINT).read_bytes() == b"0\n0\n"
    assert (second / names.LOG_START_CHECKPOINT).read_bytes() == b"0\n1\nt 1 1\n"
    assert (second / names.HIGH_WATERMARK_CHECKPOINT).read_bytes() == b"0\n1\nt 1 2\n"


@pytest.mark.parametrize(
    "name", [names.RECOVERY_POINT_CHECKPOINT, names.LOG_START_CHECKPOINT, names.HIGH_WATERMARK_CHECKPOINT]
)
@pytest.mark.parametrize("clean", [True, False])
def test_damaged_checkpoints_are_not_used(broker, caplog, name, clean):
    append(broker.log(), batch(b"a"))
    broker.manager.write_checkpoints()
    broker.manager.close() if clean else broker.crash()
    directory(broker, name).write_bytes(b"\0\0\0")
    broker.start()
    assert broker.log().log_end_offset == 1
    assert f"{name} is damaged" in caplog.text


def test_the_high_watermark_is_restored_from_its_checkpoint(broker):
    log = broker.log()
    for _ in range(3):
        log.append_as_leader(batch(b"a"), leader_epoch=0, now_ms=NOW_MS)
    log.advance_high_watermark(2)
    broker.restart(clean=True)
    assert (broker.log().high_watermark, broker.log().log_end_offset) == (2, 3)


def run_flushes(broker, now_ms):
    tasks = flushes_due(broker.manager, now_ms)
    for task in tasks:
        task.run()
        task.finish(now_ms)
    return len(tasks)


def test_logs_are_flushed_when_flush_ms_is_over(tmp_path):
    broker = Broker(tmp_path, flush_ms=1_000)
    append(broker.log(), batch(b"a"))
    assert run_flushes(broker, NOW_MS + 999) == 0
    assert run_flushes(broker, NOW_MS + 1_000) == 1
    assert broker.log().recovery_point == 1
    assert run_flushes(broker, NOW_MS + 9_000) == 0
    append(broker.log(), batch(b"a"))
    assert run_flushes(broker, NOW_MS + 1_999) == 0
    assert run_flushes(broker, NOW_MS + 2_000) == 1


def test_logs_are_flushed_after_flush_messages(tmp_path):
    broker = Broker(tmp_path, flush_messages=3)
    log = broker.log()
    append(log, batch(b"a", b"b"))
    assert not log.wants_flush
    assert flushes_due(broker.manager, NOW_MS) == []
    append(log, batch(b"c"))
    assert log.wants_flush
    task = log.begin_flush()
    append(log, batch(b"d", b"e"))
    task.run()
    task.finish(NOW_MS)
    assert (log.recovery_point, log.unflushed_messages, log.wants_flush) == (3, 2, False)


def test_a_rolled_segment_is_flushed(broker):
    log = broker.log()
    append(log, batch(b"a" * 1_500))
    assert run_flushes(broker, NOW_MS) == 0
    append(log, batch(b"a" * 1_500))
    task = log.begin_due_flush(NOW_MS + 5)
    assert log.active.file not in task.files, "who writes to it would wait for the sync"
    append(log, batch(b"b"))
    task.run()
    task.finish(NOW_MS + 5)
    assert log.recovery_point == log.active.base_offset == 1
    assert (log.last_flush_ms, log.unflushed_messages) == (NOW_MS, 3), (
        "flush.ms and flush.messages are of all records"
    )
    assert run_flushes(broker, NOW_MS) == 0


def test_when_flush_ms_is_over_all_of_a_rolled_log_is_flushed(tmp_path):
    broker = Broker(tmp_path, flush_ms=1_000)
    log = broker.log()
    append(log, batch(b"a" * 1_500))
    append(log, batch(b"a" * 1_500))
    assert run_flushes(broker, NOW_MS + 1_000) == 1
    assert (log.recovery_point, log.unflushed_messages, log.last_flush_ms) == (2, 0, NOW_MS + 1_000)


def test_flush_is_void_if_the_log_was_truncated_meanwhile(broker):
    log = broker.log()
    for _ in range(4):
        append(log, batch(b"a"))
    task = log.begin_flush()
    log.truncate_to(2, now_ms=NOW_MS)
    for _ in range(3):
        append(log, batch(b"b"))
    task.run()
    task.finish(NOW_MS)
    assert log.recovery_point == 0


def test_unsynced_records_count_after_a_crash_and_a_truncation(tmp_path):
    broker = Broker(tmp_path, flush_messages=2)
    for _ in range(3):
        append(broker.log(), batch(b"a"))
    broker.restart(clean=False)
    log = broker.log()
    assert (log.unflushed_messages, log.wants_flush) == (3, True)
    log.truncate_to(2, now_ms=NOW_MS)
    assert (log.unflushed_messages, log.wants_flush) == (2, True)
    log.flush(NOW_MS)
    assert (log.unflushed_messages, log.wants_flush) == (0, False)


def test_a_log_deleted_meanwhile_need_not_be_flushed(broker):
    log = broker.log()
    for _ in range(4):
        append(log, batch(b"a" * 1_000))
    task = log.begin_flush()
    broker.manager.delete("t", 0, NOW_MS)
    broker.manager.remove_due(NOW_MS + 60_000)
    task.run()
    task.finish(NOW_MS)
    assert log.begin_flush() is None


def test_usage_tells_the_size_of_the_volume(broker):
    usage = broker.manager.usage(broker.dirs[0])
    assert usage.total > usage.usable > 0


# --- disks that fail ---


@pytest.fixture
def disk():
    return FaultyDisk()


@pytest.mark.parametrize("truncate_fails", [False, True])
@pytest.mark.parametrize("room", [0, 1, 70])
def test_a_write_that_fails_leaves_the_log_as_it_was(tmp_path, disk, room, truncate_fails):
    broker = Broker(tmp_path, disk=disk)
    log = broker.log()
    append(log, batch(b"a"))
    disk.room, disk.truncate_fails = room, truncate_fails
    with pytest.raises(StorageError, match="no room left"):
        append(log, batch(b"b" * 100))
    disk.room, disk.truncate_fails = None, False
    assert (log.log_end_offset, log.high_watermark) == (1, 1)
    assert [record.value for record in read_all(log)] == [b"a"]
    assert append(log, batch(b"c")).base_offset == 1
    broker.restart(clean=False)
    broker.log().advance_high_watermark(2)
    assert [record.value for record in read_all(broker.log())] == [b"a", b"c"]


def test_what_a_failed_write_left_is_cut_off_after_a_crash(tmp_path, disk, caplog):
    broker = Broker(tmp_path, disk=disk)
    append(broker.log(), batch(b"a"))
    disk.room, disk.truncate_fails = 70, True
    with pytest.raises(StorageError):
        append(broker.log(), batch(b"b" * 100))
    disk.room, disk.truncate_fails = None, False
    broker.restart(clean=False)
    assert broker.log().log_end_offset == 1
    assert "cutting off 70 bytes" in caplog.text


def test_a_sync_that_fails_leaves_the_recovery_point(tmp_path, disk):
    broker = Broker(tmp_path, disk=disk)
    log = broker.log()
    append(log, batch(b"a"))
    disk.sync_fails = True
    with pytest.raises(StorageError, match="sync failed"):
        log.flush(NOW_MS)
    assert log.recovery_point == 0
    broker.manager.close()
    assert not (tmp_path / names.CLEAN_SHUTDOWN).exists()
    disk.sync_fails = False
    broker.start()
    assert broker.log().log_end_offset == 1


def test_a_read_that_fails_names_the_log_dir(tmp_path, disk):
    broker = Broker(tmp_path, disk=disk)
    log = broker.log()
    append(log, batch(b"a", b"b", timestamp=NOW_MS))
    disk.read_fails = True
    for attempt in (
        lambda: log.read(1, max_bytes=10, upper_offset=2),
        lambda: log.offset_for_timestamp(NOW_MS),
        lambda: log.offset_of_max_timestamp(),
        lambda: log.truncate_to(1, now_ms=NOW_MS),
    ):
        with pytest.raises(StorageError) as error:
            attempt()
        assert error.value.log_dir == str(tmp_path)


@pytest.mark.parametrize("path", ["/data", "/srv/broker/data"])
def test_a_new_log_dir_outlives_a_power_cut(path):
    disk = MemoryDisk()
    logs = LogManager([path], config_for=lambda _: LogConfig(), disk=disk)
    logs.open(0)
    logs.write_meta("cluster", 1)
    assert disk.crash().stat(f"{path}/{names.META_PROPERTIES}").size
