"""The layout of Aiven's plug-in, over a directory; the plug-in itself reads and writes the same objects (compat/tiered)."""

import json
from dataclasses import replace
from random import Random
from threading import Barrier, Event, Thread

import pytest

from barnabas.tiered.aiven.custom_metadata import CustomMetadata
from barnabas.tiered.aiven.objects import DirectoryObjects
from barnabas.tiered.aiven.storage import AivenSettings, AivenStorage
from barnabas.tiered.storage import IndexKind, RemoteObjectNotFoundError, RemoteStorageError
from barnabas.tiered.stores import open_store
from tests.support.remote_segments import PARTITION, local_files, remote_segment
from tests.support.rsa_keys import key_files

LOG = Random(1).randbytes(2_500) + bytes(7_777)
SEGMENT = remote_segment(123, 222, size=len(LOG))
FOLDER = "orders-TAvVoTfwTTmKT52MOzofVQ/3"
SEGMENT_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
NAME = f"{FOLDER}/00000000000000000123-{SEGMENT_ID}"
MODES = [(False, False), (True, False), (False, True), (True, True)]


@pytest.fixture
def settings(tmp_path):
    root = tmp_path / "store"
    root.mkdir()
    return {"storage.backend.class": "filesystem", "storage.root": str(root), "chunk.size": "1000"}


@pytest.fixture
def files(tmp_path):
    return local_files(tmp_path, LOG)


def encrypted(folder, number=0):
    public, private = key_files(folder, number)
    return {
        "encryption.enabled": "true",
        "encryption.key.pair.id": f"key{number}",
        "encryption.key.pairs": f"key{number}",
        f"encryption.key.pairs.key{number}.public.key.file": str(public),
        f"encryption.key.pairs.key{number}.private.key.file": str(private),
    }


def opened(settings, **changes):
    return open_store(
        "aiven", {**settings, **{name.replace("_", "."): value for name, value in changes.items()}}
    )


def manifest(tmp_path, name=NAME):
    return json.loads((tmp_path / "store" / f"{name}.rsm-manifest").read_bytes())


@pytest.mark.parametrize(("is_compressed", "is_encrypted"), MODES)
def test_segment_is_read_as_it_was_copied(settings, files, tmp_path, is_compressed, is_encrypted) -> None:
    if is_encrypted:
        settings |= encrypted(tmp_path)
    store = opened(settings, compression_enabled=str(is_compressed).lower())
    assert store.copy(SEGMENT, files) is None
    reader = opened(settings)
    ranges = [
        (0, 1),
        (999, 2),
        (1000, 1000),
        (0, len(LOG)),
        (10_276, 1),
        (10_276, 50),
        (len(LOG), 5),
        (2_500, 3_500),
    ]
    for start, length in ranges:
        assert reader.read(SEGMENT, start, length) == LOG[start : start + length]
    for kind, content in {
        IndexKind.OFFSET: files.offset_index.read_bytes(),
        IndexKind.TIMESTAMP: files.time_index.read_bytes(),
        IndexKind.TRANSACTION: files.transaction_index.read_bytes(),
        IndexKind.PRODUCER_SNAPSHOT: files.producer_snapshot.read_bytes(),
        IndexKind.LEADER_EPOCH: files.leader_epochs,
    }.items():
        assert reader.read_index(SEGMENT, kind) == content
    stored = (tmp_path / "store" / f"{NAME}.log").read_bytes()
    assert (bytes(100) in stored) is not (is_compressed or is_encrypted)
    described = manifest(tmp_path)
    assert described["compression"] is is_compressed
    assert ("encryption" in described) is is_encrypted
    assert described["chunkIndex"]["type"] == ("variable" if is_compressed else "fixed")


def test_manifest_has_the_sizes_of_fixed_chunks(settings, files, tmp_path) -> None:
    opened(settings).copy(SEGMENT, files)
    described = manifest(tmp_path)
    assert described["chunkIndex"] == {
        "type": "fixed", "originalChunkSize": 1000, "originalFileSize": 10_277, "transformedChunkSize": 1000,
        "finalTransformedChunkSize": 277,
    }  # fmt: skip
    assert described["segmentIndexes"]["offset"] == {"position": 0, "size": 60}
    assert described["segmentIndexes"]["transaction"] == {"position": 60 + 70 + 9 + 8, "size": 21}
    assert described["remoteLogSegmentMetadata"]["remoteLogSegmentId"]["topicIdPartition"] == {
        "topicId": "TAvVoTfwTTmKT52MOzofVQ", "topicPartition": {"topic": "orders", "partition": 3},
    }  # fmt: skip


def test_indexes_without_bytes_and_without_transactions(settings, tmp_path) -> None:
    files = local_files(tmp_path, LOG, has_transactions=False)
    files.offset_index.write_bytes(b"")
    store = opened(settings | encrypted(tmp_path))
    store.copy(SEGMENT, files)
    assert store.read_index(SEGMENT, IndexKind.OFFSET) == b""
    with pytest.raises(RemoteObjectNotFoundError, match="txnindex"):
        store.read_index(SEGMENT, IndexKind.TRANSACTION)
    assert manifest(tmp_path)["segmentIndexes"]["transaction"] is None


def test_heuristic_leaves_compressed_records_as_they_are(settings, tmp_path) -> None:
    for attributes, is_compressed in ((0, True), (4, False)):
        batch = bytes(16) + b"\x02" + bytes(4) + bytes((0, attributes)) + bytes(1_000)
        segment = replace(SEGMENT, size=len(batch), start_offset=attributes)
        store = opened(settings, compression_enabled="true", compression_heuristic_enabled="true")
        store.copy(segment, local_files(tmp_path, batch))
        assert store.read(segment, 0, 2_000) == batch
        name = f"{FOLDER}/{attributes:020}-AAAAAAAAAAAAAAAAAAAAAQ"
        assert manifest(tmp_path, name)["compression"] is is_compressed


def test_custom_metadata_lead_to_objects_of_another_prefix(settings, files, tmp_path) -> None:
    fields = "REMOTE_SIZE,OBJECT_PREFIX,OBJECT_KEY"
    store = opened(settings, key_prefix="old/", custom_metadata_fields_include=fields)
    custom = store.copy(SEGMENT, files)
    sizes = sum(path.stat().st_size for path in (tmp_path / "store/old").rglob("*") if path.is_file())
    assert CustomMetadata.from_bytes(custom) == CustomMetadata(sizes, "old/", NAME)
    moved = opened(settings, key_prefix="new/")
    segment = replace(SEGMENT, custom_metadata=custom)
    assert moved.read(segment, 0, 100) == LOG[:100]
    with pytest.raises(RemoteObjectNotFoundError):
        moved.read(SEGMENT, 0, 100)
    moved.delete(segment)
    assert list((tmp_path / "store").iterdir()) == []
    with pytest.raises(RemoteStorageError, match="custom metadata"):
        moved.read(replace(SEGMENT, custom_metadata=b"\x01\x00\x7f"), 0, 1)


def test_segments_of_an_earlier_key_are_read_with_its_pair(settings, files, tmp_path) -> None:
    opened(settings | encrypted(tmp_path, 0)).copy(SEGMENT, files)
    both = {
        **settings,
        **encrypted(tmp_path, 0),
        **encrypted(tmp_path, 1),
        "encryption.key.pairs": "key0,key1",
    }
    assert opened(both).read(SEGMENT, 0, 10) == LOG[:10]
    assert opened({**both, "encryption.enabled": "false"}).read(SEGMENT, 0, 10) == LOG[:10]
    with pytest.raises(RemoteStorageError, match=r"RSA key 'key0' is not among encryption\.key\.pairs"):
        opened(settings | encrypted(tmp_path, 1)).read(SEGMENT, 0, 10)


@pytest.mark.parametrize(("is_compressed", "is_encrypted"), MODES[1:])
def test_damaged_chunk_is_an_error(settings, files, tmp_path, is_compressed, is_encrypted) -> None:
    settings |= encrypted(tmp_path) if is_encrypted else {}
    opened(settings, compression_enabled=str(is_compressed).lower()).copy(SEGMENT, files)
    path = tmp_path / "store" / f"{NAME}.log"
    data = bytearray(path.read_bytes())
    data[2] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(RemoteStorageError, match=r"chunk 0 of .*\.log"):
        opened(settings).read(SEGMENT, 0, 10)
    path.write_bytes(data[:-1])
    with pytest.raises(RemoteStorageError, match=r"ends at byte"):
        opened(settings).read(SEGMENT, 10_200, 10)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "no manifest"),
        (b"[]", "no manifest"),
        (b'{"version": "2"}', "no manifest version '2'"),
        (b'{"version": "1", "segmentIndexes": null}', "no manifest"),
    ],
)
def test_damaged_manifest_is_an_error(settings, files, tmp_path, content, problem) -> None:
    store = opened(settings)
    store.copy(SEGMENT, files)
    (tmp_path / "store" / f"{NAME}.rsm-manifest").write_bytes(content)
    with pytest.raises(RemoteStorageError, match=problem):
        store.read(SEGMENT, 0, 10)


def test_deletion_may_be_repeated_and_lists_are_empty(settings, files, tmp_path) -> None:
    store = opened(settings, key_prefix="tier/a-")
    store.delete(SEGMENT)
    store.copy(SEGMENT, files)
    assert list(store.partitions()) == [PARTITION]
    keys = [f"tier/a-{NAME}.{suffix}" for suffix in ("indexes", "log", "rsm-manifest")]
    sizes = {key: (tmp_path / "store" / key).stat().st_size for key in keys}
    listed = {key: size for segment_id, size, key in store.objects(PARTITION) if segment_id == SEGMENT_ID}
    assert listed == sizes
    assert store.read(SEGMENT, 0, 1) == LOG[:1]
    store.delete(SEGMENT)
    store.delete(SEGMENT)
    assert list(store.partitions()) == list(store.objects(PARTITION)) == []
    with pytest.raises(RemoteObjectNotFoundError):
        store.read(SEGMENT, 0, 1)


def test_copy_of_another_size_than_the_record_is_refused(settings, files) -> None:
    with pytest.raises(RemoteStorageError, match="has 10277 bytes, and its record says 5"):
        opened(settings).copy(replace(SEGMENT, size=5), files)


def test_copy_without_a_source_is_no_missing_object(settings, files) -> None:
    files.time_index.unlink()
    store = opened(settings)
    with pytest.raises(RemoteStorageError) as refused:
        store.copy(SEGMENT, files)
    assert not isinstance(refused.value, RemoteObjectNotFoundError)
    store.delete(SEGMENT)
    assert list(store.partitions()) == []


def test_chunks_stay_in_memory_up_to_the_bound(settings, files, tmp_path) -> None:
    opened(settings).copy(SEGMENT, files)
    store = opened(settings, fetch_chunk_cache_size="2000")
    assert store.read(SEGMENT, 0, 3_000) == LOG[:3_000]
    (tmp_path / "store" / f"{NAME}.log").unlink()
    assert store.read(SEGMENT, 1_000, 2_000) == LOG[1_000:3_000]
    with pytest.raises(RemoteObjectNotFoundError):
        store.read(SEGMENT, 0, 1)


class CountedObjects(DirectoryObjects):
    """Objects that tell when so many ranges were read."""

    def __init__(self, root, count) -> None:
        super().__init__(root)
        self.ranges, self.count, self.are_read = [], count, Event()

    def get_range(self, key, start, length):
        self.ranges.append(start)
        if len(self.ranges) == self.count:
            self.are_read.set()
        return super().get_range(key, start, length)


def test_chunks_beyond_those_read_are_prefetched(settings, files, tmp_path) -> None:
    opened(settings).copy(SEGMENT, files)
    objects = CountedObjects(tmp_path / "store", 4)
    store = AivenStorage(objects, AivenSettings(chunk_size=1000, prefetch_bytes=3000))
    assert store.read(SEGMENT, 0, 500) == LOG[:500]
    assert objects.are_read.wait(timeout=10)
    assert sorted(objects.ranges) == [0, 1000, 2000, 3000]
    store.close()


def test_threads_read_at_the_same_time(settings, files) -> None:
    store = opened(settings, compression_enabled="true", fetch_chunk_cache_size="3000")
    store.copy(SEGMENT, files)
    barrier, failures = Barrier(8), []

    def reader(seed: int) -> None:
        random = Random(seed)
        barrier.wait()
        for _ in range(100):
            start, length = random.randrange(len(LOG)), random.randrange(3_000)
            if store.read(SEGMENT, start, length) != LOG[start : start + length]:
                failures.append((start, length))

    threads = [Thread(target=reader, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
