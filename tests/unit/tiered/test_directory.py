"""The store in a directory: Kafka's LocalTieredStorage reads and writes the same files (compat/tiered)."""

import pytest

from barnabas.tiered.directory import DirectoryStorage
from barnabas.tiered.storage import IndexKind, RemoteObjectNotFoundError, RemoteStorageError
from tests.support.remote_segments import PARTITION, local_files, remote_segment

LOG = bytes(range(256)) * 4
SEGMENT = remote_segment(123, 222, size=len(LOG))
FOLDER = "kafka-tiered-storage/orders-3-TAvVoTfwTTmKT52MOzofVQ"
NAME = f"{FOLDER}/00000000000000000123-AAAAAAAAAAAAAAAAAAAAAQ"


@pytest.fixture
def store(tmp_path):
    return DirectoryStorage(tmp_path / "store")


@pytest.fixture
def files(tmp_path):
    return local_files(tmp_path, LOG)


def names(tmp_path):
    folder = tmp_path / "store"
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_segment_has_the_names_of_kafkas_own_store(store, files, tmp_path) -> None:
    assert store.copy(SEGMENT, files) is None
    suffixes = ("index", "leader_epoch_checkpoint", "log", "snapshot", "timeindex", "txnindex")
    assert names(tmp_path) == [f"{NAME}.{suffix}" for suffix in suffixes]


@pytest.mark.parametrize(
    ("start", "length", "expected"),
    [(0, 10, LOG[:10]), (1000, 100, LOG[1000:]), (len(LOG), 5, b""), (5000, 5, b""), (0, 1 << 31, LOG)],
)
def test_range_ends_with_the_log(store, files, start, length, expected) -> None:
    store.copy(SEGMENT, files)
    assert store.read(SEGMENT, start, length) == expected


def test_indexes_are_read_whole(store, files) -> None:
    store.copy(SEGMENT, files)
    assert store.read_index(SEGMENT, IndexKind.OFFSET) == files.offset_index.read_bytes()
    assert store.read_index(SEGMENT, IndexKind.TIMESTAMP) == files.time_index.read_bytes()
    assert store.read_index(SEGMENT, IndexKind.TRANSACTION) == files.transaction_index.read_bytes()
    assert store.read_index(SEGMENT, IndexKind.PRODUCER_SNAPSHOT) == files.producer_snapshot.read_bytes()
    assert store.read_index(SEGMENT, IndexKind.LEADER_EPOCH) == files.leader_epochs


def test_what_is_not_stored_is_not_found(store, tmp_path) -> None:
    with pytest.raises(RemoteObjectNotFoundError, match="orders-3"):
        store.read(SEGMENT, 0, 10)
    store.copy(SEGMENT, local_files(tmp_path, LOG, has_transactions=False))
    with pytest.raises(RemoteObjectNotFoundError, match="txnindex"):
        store.read_index(SEGMENT, IndexKind.TRANSACTION)


def test_store_that_is_away_fails_and_is_not_empty(store, files, tmp_path) -> None:
    store.copy(SEGMENT, files)
    (tmp_path / "store" / "kafka-tiered-storage").rename(tmp_path / "away")
    for read in (
        lambda: store.read(SEGMENT, 0, 10),
        lambda: store.read_index(SEGMENT, IndexKind.TRANSACTION),
    ):
        with pytest.raises(RemoteStorageError, match="kafka-tiered-storage does not exist") as refused:
            read()
        assert not isinstance(refused.value, RemoteObjectNotFoundError)


def test_log_that_lost_its_end_is_damaged(store, files, tmp_path) -> None:
    store.copy(SEGMENT, files)
    log = tmp_path / "store" / f"{NAME}.log"
    log.write_bytes(LOG[:100])
    assert store.read(SEGMENT, 0, 100) == LOG[:100]
    with pytest.raises(RemoteStorageError, match="has 100 bytes, and not 1024"):
        store.read(SEGMENT, 50, 100)


def test_deletion_may_be_repeated(store, files, tmp_path) -> None:
    store.delete(SEGMENT)
    store.copy(SEGMENT, files)
    store.delete(SEGMENT)
    store.delete(SEGMENT)
    assert names(tmp_path) == []


def test_failed_copy_leaves_no_half_file_under_a_name(store, files, tmp_path) -> None:
    files.producer_snapshot.unlink()
    with pytest.raises(RemoteStorageError, match=r"local\.snapshot does not exist") as refused:
        store.copy(SEGMENT, files)
    assert not isinstance(refused.value, RemoteObjectNotFoundError)
    store.delete(SEGMENT)
    assert names(tmp_path) == []


def test_copy_may_be_repeated_and_replaces(store, files) -> None:
    store.copy(SEGMENT, files)
    files.log.write_bytes(LOG[::-1])
    store.copy(SEGMENT, files)
    assert store.read(SEGMENT, 0, 10) == LOG[::-1][:10]


def test_objects_of_a_partition_are_listed(store, files) -> None:
    assert list(store.objects(PARTITION)) == list(store.partitions()) == []
    store.copy(SEGMENT, files)
    assert list(store.partitions()) == [PARTITION]
    objects = {name: (segment_id, size) for segment_id, size, name in store.objects(PARTITION)}
    assert objects[f"{NAME}.log".partition("/")[2]] == ("AAAAAAAAAAAAAAAAAAAAAQ", len(LOG))
    assert len(objects) == 6


def test_directory_that_cannot_be_made_is_an_error(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RemoteStorageError, match="Not a directory"):
        DirectoryStorage(tmp_path / "file")
