"""A log dir that Apache Kafka wrote: it is opened, recovered, and written again to the same bytes."""

import shutil
from pathlib import Path

import pytest

from barnabas.log.format import names
from barnabas.records.batch import iter_batches
from tests.support.logs import NOW_MS, Broker, read_all

GOLDEN = Path(__file__).parents[2] / "golden" / "log" / "kafka-3.9.1"
SETTINGS = {"segment_bytes": 2_000, "index_interval_bytes": 200}


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@pytest.fixture
def kafka_dir(tmp_path):
    return Path(shutil.copytree(GOLDEN, tmp_path / "data"))


def test_dir_closed_by_kafka_is_opened_and_closed_unchanged(kafka_dir, caplog):
    broker = Broker(kafka_dir, **SETTINGS)
    log = broker.log("golden")
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (3, 62, 62)
    assert [segment.base_offset for segment in log.segments] == [0, 16, 35, 36, 56]
    assert log.epochs.entries == [(0, 3)]
    written_by = {header.producer_id for segment in log.segments for _, header in segment.headers()}
    assert {producer.producer_id for producer in log.producers.active()} == written_by
    assert broker.manager.node_id == 1
    assert broker.manager.cluster_id == "Ly9rYWZrYS1jbHVzdGVyLQ"
    assert not caplog.records
    broker.manager.close()
    assert contents(kafka_dir / "golden-0") == contents(GOLDEN / "golden-0")
    for name in (
        names.RECOVERY_POINT_CHECKPOINT,
        names.LOG_START_CHECKPOINT,
        names.HIGH_WATERMARK_CHECKPOINT,
    ):
        assert (kafka_dir / name).read_bytes() == (GOLDEN / name).read_bytes()


def test_its_records_and_aborted_transactions_are_read(kafka_dir):
    log = Broker(kafka_dir, **SETTINGS).log("golden")
    values = [record.value[: record.value.index(b"y")] for record in read_all(log) if b"y" in record.value]
    assert values == [b"%s-%d-%d" % (who, n, i) for who in (b"t1", b"t2") for n in range(5) for i in range(4)]
    aborted = log.aborted_transactions(0, log.last_stable_offset)
    assert [(entry.first_offset, entry.last_offset) for entry in aborted] == [
        (17, 21),
        (27, 31),
        (42, 46),
        (52, 56),
    ]
    assert log.aborted_transactions(32, 42) == []
    assert log.aborted_transactions(56, 62) == aborted[3:]


def test_what_recovery_rebuilds_is_what_kafka_wrote(kafka_dir):
    (kafka_dir / names.CLEAN_SHUTDOWN).unlink()
    (kafka_dir / names.RECOVERY_POINT_CHECKPOINT).unlink()
    for path in (kafka_dir / "golden-0").iterdir():
        if path.suffix in (".index", ".timeindex", ".txnindex", ".snapshot"):
            path.write_bytes(b"\0" * 5)
    broker = Broker(kafka_dir, **SETTINGS)
    assert broker.log("golden").log_end_offset == 62
    broker.manager.close()
    kept = contents(kafka_dir / "golden-0")
    for name, data in contents(GOLDEN / "golden-0").items():
        assert kept[name] == data, name


def test_the_same_batches_make_the_same_files(kafka_dir, tmp_path):
    source = Broker(kafka_dir, **SETTINGS).log("golden")
    broker = Broker(tmp_path / "ours", **SETTINGS)
    log = broker.log("golden")
    for segment in source.segments:
        data = segment.file.read(segment.size, 0)
        for position, header in iter_batches(data):
            log.append_as_follower(bytearray(data[position : position + header.size]), now_ms=NOW_MS)
    log.advance_high_watermark(62)
    log.delete_records_before(3)
    broker.manager.close()
    theirs = contents(GOLDEN / "golden-0")
    ours = contents(Path(log.dir))
    del theirs["partition.metadata"], ours["partition.metadata"]
    assert sorted(ours) == sorted(theirs)
    for name, data in theirs.items():
        assert ours[name] == data, name
