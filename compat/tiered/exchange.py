"""Segments that one store has written, read and deleted by another: ours and those of Java, in both directions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from uuid import UUID

from barnabas.tiered.segment import RemoteSegment, TopicIdPartition
from barnabas.tiered.storage import IndexKind, RemoteStorage, RemoteStorageError, SegmentFiles
from barnabas.tiered.stores import open_store
from compat.tiered.java import JavaStorage, Oracle
from compat.tiered.plugin import CLASS as AIVEN_CLASS
from tests.support.remote_segments import local_files, remote_segment
from tests.support.rsa_keys import key_files

LOCAL_CLASS = "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"
FILESYSTEM = "io.aiven.kafka.tieredstorage.storage.filesystem.FileSystemStorage"
CHUNK = 100_000
SIZES = (61, CHUNK - 1, CHUNK, CHUNK + 1, 5 * CHUNK, 5 * CHUNK + 77_777)
RANGES = 20
FIELDS = "REMOTE_SIZE,OBJECT_PREFIX,OBJECT_KEY"

Store = RemoteStorage | JavaStorage


def local(oracle: Oracle, folder: Path, seed: int) -> Iterator[str]:
    """Yield what differs between our store in a directory and Kafka's."""
    settings = {"dir": str(folder)}
    yield from _both(
        "directory",
        lambda: open_store("directory", settings),
        lambda: JavaStorage(oracle, LOCAL_CLASS, settings),
        folder,
        seed,
    )


def aiven(oracle: Oracle, folder: Path, seed: int) -> Iterator[str]:
    """Yield what differs between our store in the layout of the plug-in and the plug-in, for each of its modes."""
    for mode, changes in _modes(folder).items():
        root = folder / mode
        root.mkdir()
        settings = {
            "storage.backend.class": FILESYSTEM,
            "storage.root": str(root),
            "chunk.size": str(CHUNK),
            "key.prefix": "tiered/",
            **changes,
        }
        yield from _both(
            mode,
            lambda settings=settings: open_store("aiven", settings),
            lambda settings=settings: JavaStorage(oracle, AIVEN_CLASS, settings),
            root,
            seed,
        )


def _modes(folder: Path) -> dict[str, dict[str, str]]:
    public, private = key_files(folder)
    compressed = {"compression.enabled": "true"}
    encrypted = {
        "encryption.enabled": "true",
        "encryption.key.pair.id": "a",
        "encryption.key.pairs": "a",
        "encryption.key.pairs.a.public.key.file": str(public),
        "encryption.key.pairs.a.private.key.file": str(private),
    }
    return {
        "plain": {},
        "compressed": compressed,
        "encrypted": encrypted,
        "compressed-encrypted": compressed | encrypted,
        "custom-metadata": compressed | encrypted | {"custom.metadata.fields.include": FIELDS},
    }


def _both(
    mode: str, ours: Callable[[], Store], theirs: Callable[[], Store], folder: Path, seed: int
) -> Iterator[str]:
    for direction, writing, reading in (("ours to Java", ours, theirs), ("Java to ours", theirs, ours)):
        random = Random(f"{seed} {mode} {direction}")
        for size in SIZES:
            for has_transactions in (True, False):
                log = random.randbytes(size // 2) + bytes(size - size // 2)
                files = local_files(folder, log, has_transactions=has_transactions)
                segment = _segment(random, size, is_transaction_index_empty=not has_transactions)
                try:
                    segment = replace(segment, custom_metadata=writing().copy(segment, files))
                    for text in _read(reading(), segment, files, log, random):
                        yield f"{mode}, {direction}, {size} bytes: {text}"
                    reading().delete(segment)
                    writing().delete(segment)
                except RemoteStorageError as error:
                    yield f"{mode}, {direction}, {size} bytes: {error}"
        rest = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("local.")]
        if rest:
            yield f"{mode}, {direction}: after all deletions there are {rest}"


def _read(
    store: Store, segment: RemoteSegment, files: SegmentFiles, log: bytes, random: Random
) -> Iterator[str]:
    ranges = [(0, len(log))]
    for _ in range(RANGES):
        start = random.randrange(len(log))
        ranges.append((start, random.choice((1, 10, CHUNK, len(log)))))
    for start, length in ranges:
        if store.read(segment, start, length) != log[start : start + length]:
            yield f"{length} bytes from {start} are others"
    for kind, source in {
        IndexKind.OFFSET: files.offset_index,
        IndexKind.TIMESTAMP: files.time_index,
        IndexKind.PRODUCER_SNAPSHOT: files.producer_snapshot,
        IndexKind.LEADER_EPOCH: files.leader_epochs,
        IndexKind.TRANSACTION: files.transaction_index,
    }.items():
        try:
            content: bytes | None = store.read_index(segment, kind)
        except RemoteStorageError:
            content = None
        if content != (source.read_bytes() if isinstance(source, Path) else source):
            yield f"{kind.name} is another"


def _segment(random: Random, size: int, *, is_transaction_index_empty: bool) -> RemoteSegment:
    topic_id, segment_id = (UUID(int=random.getrandbits(128)) for _ in range(2))
    partition = TopicIdPartition(random.choice(("t", "a.b-c_d")), random.randrange(100), topic_id)
    start = random.randrange(10**6)
    segment = remote_segment(
        start, start + 99, size=size, is_transaction_index_empty=is_transaction_index_empty
    )
    return replace(segment, partition=partition, segment_id=segment_id)
