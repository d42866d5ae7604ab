"""Segments as objects of the plug-in: `.log` in chunks, `.indexes`, and `.rsm-manifest`, which is written last.

    PREFIX TOPIC-TOPICID/PARTITION/START-SEGMENTID.log ...

The rule: a segment is whole once its manifest is there. Manifests, and chunks that were read, are kept in memory.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Final
from uuid import UUID

from barnabas.tiered.aiven.chunk_cache import ChunkCache
from barnabas.tiered.aiven.chunks import (
    ChunkError,
    ChunkWriter,
    RateLimit,
    has_compressed_records,
    original_chunk,
)
from barnabas.tiered.aiven.custom_metadata import (
    OBJECT_KEY,
    OBJECT_PREFIX,
    REMOTE_SIZE,
    CustomMetadata,
    CustomMetadataError,
)
from barnabas.tiered.aiven.encryption import ChunkCipher, EncryptionError, KeyRing
from barnabas.tiered.aiven.manifest import INDEXES, Manifest, ManifestError
from barnabas.tiered.aiven.objects import Objects
from barnabas.tiered.segment import RemoteSegment, TopicIdPartition
from barnabas.tiered.storage import IndexKind, RemoteObjectNotFoundError, RemoteStorageError, SegmentFiles
from barnabas.wire.ids import parse_uuid, uuid_text

LOG: Final = "log"
INDEXES_OBJECT: Final = "indexes"
MANIFEST: Final = "rsm-manifest"
SUFFIXES: Final = (LOG, INDEXES_OBJECT, MANIFEST)


@dataclass(frozen=True)
class AivenSettings:
    """The plug-in's settings that the layout depends on.

    Attributes:
        chunk_size: bytes of a log in each chunk.
        key_prefix: what the key of each object begins with.
        is_compressed: whether chunks are compressed.
        is_heuristic: whether logs that are compressed already are left as they are.
        custom_fields: names of the custom metadata that a segment's record keeps.
        manifests_max: manifests in memory, at most.
        cache_bytes: bytes of chunks in memory, at most.
        prefetch_bytes: bytes of a log that are loaded beyond those that are read; 0 for none.
        prefetch_threads: threads that load them.
        upload_bytes_per_second: bytes that all uploads read in a second, at most; None for no limit.
    """

    chunk_size: int
    key_prefix: str = ""
    is_compressed: bool = False
    is_heuristic: bool = False
    custom_fields: tuple[str, ...] = ()
    manifests_max: int = 1000
    cache_bytes: int = 32 << 20
    prefetch_bytes: int = 0
    prefetch_threads: int = 2
    upload_bytes_per_second: int | None = None


@dataclass
class _Segment:
    """A stored segment: its manifest, and the cipher of its data key, if it has any."""

    manifest: Manifest
    cipher: ChunkCipher | None = field(repr=False)


class AivenStorage:
    """Segments in a store of objects."""

    def __init__(self, objects: Objects, settings: AivenSettings, keys: KeyRing | None = None) -> None:
        self._objects = objects
        self._settings = settings
        self._keys = keys if keys is not None else KeyRing({})
        self._cache = ChunkCache(settings.cache_bytes)
        self._lock = Lock()
        self._manifests: OrderedDict[str, _Segment] = OrderedDict()
        self._prefetching: ThreadPoolExecutor | None = None
        if settings.prefetch_bytes:
            self._prefetching = ThreadPoolExecutor(settings.prefetch_threads, "tiered-prefetch")
        limit = settings.upload_bytes_per_second
        self._limit = RateLimit(limit) if limit is not None else None

    def copy(self, segment: RemoteSegment, files: SegmentFiles) -> bytes | None:
        """Store a segment; returns the configured custom metadata. Raises RemoteStorageError."""
        settings = self._settings
        cipher, encryption = self._keys.new_cipher() if self._keys.is_active else (None, None)
        name = self._new_name(segment)
        try:
            with files.log.open("rb") as log:
                size = log.seek(0, 2)
                log.seek(0)
                if size != segment.size:
                    raise RemoteStorageError(
                        f"{files.log} has {size} bytes, and its record says {segment.size}"
                    )
                is_compressed = settings.is_compressed
                if is_compressed and settings.is_heuristic:
                    is_compressed = not has_compressed_records(log)
                writer = ChunkWriter(
                    log,
                    settings.chunk_size,
                    size,
                    is_compressed=is_compressed,
                    cipher=cipher,
                    limit=self._limit,
                )
                stored = self._objects.put(f"{name}.{LOG}", writer.chunks())
            content, places = _packed_indexes(files, cipher)
        except OSError as error:
            raise RemoteStorageError(f"the copy of {name}: {error}") from error
        stored += self._objects.put(f"{name}.{INDEXES_OBJECT}", content)
        manifest = Manifest(writer.index(), places, is_compressed, encryption)
        stored += self._objects.put(f"{name}.{MANIFEST}", manifest.to_bytes(segment))
        if not settings.custom_fields:
            return None
        return CustomMetadata(
            remote_size=stored if REMOTE_SIZE in settings.custom_fields else None,
            prefix=settings.key_prefix if OBJECT_PREFIX in settings.custom_fields else None,
            key=_main_path(segment) if OBJECT_KEY in settings.custom_fields else None,
        ).to_bytes()

    def read(self, segment: RemoteSegment, start: int, length: int) -> bytes:
        """Bytes of a segment's log. Raises RemoteStorageError."""
        name = self._name(segment)
        stored = self._stored(name)
        index = stored.manifest.chunk_index
        numbers = index.chunks(start, length)
        parts = [self._chunk(name, stored, number) for number in numbers]
        self._prefetch(name, stored, numbers.stop)
        if not parts:
            return b""
        first = numbers.start * index.chunk_size
        if len(parts) == 1:
            return parts[0][start - first : start - first + length]
        parts[0] = parts[0][start - first :]
        parts[-1] = parts[-1][: start + length - (numbers.stop - 1) * index.chunk_size]
        return b"".join(parts)

    def read_index(self, segment: RemoteSegment, kind: IndexKind) -> bytes:
        """Whole bytes of an index. Raises RemoteStorageError."""
        name = self._name(segment)
        stored = self._stored(name)
        place = stored.manifest.indexes.get(kind)
        if place is None:
            raise RemoteObjectNotFoundError(f"{name} has no {kind.value}")
        position, size = place
        if not size:
            return b""
        data = self._objects.get_range(f"{name}.{INDEXES_OBJECT}", position, size)
        if stored.cipher is None:
            return data
        try:
            return stored.cipher.decrypt(data)
        except EncryptionError as error:
            raise RemoteStorageError(f"{kind.value} of {name}: {error}") from error

    def delete(self, segment: RemoteSegment) -> None:
        """Remove all objects of a segment, its manifest first. Raises RemoteStorageError."""
        name = self._name(segment)
        self._objects.delete([f"{name}.{suffix}" for suffix in (MANIFEST, INDEXES_OBJECT, LOG)])
        with self._lock:
            self._manifests.pop(name, None)
        self._cache.forget(lambda key: isinstance(key, tuple) and key[0] == name)

    def objects(self, partition: TopicIdPartition) -> Iterator[tuple[str, int, str]]:
        """Objects of a partition: Kafka's text of the segment's id, bytes, key. Raises RemoteStorageError."""
        for key, size in self._objects.list(f"{self._settings.key_prefix}{_folder(partition)}"):
            file_name = key.rpartition("/")[2]
            yield file_name.partition("-")[2].partition(".")[0], size, key

    def partitions(self) -> Iterator[TopicIdPartition]:
        """Partitions that have objects below the prefix. Raises RemoteStorageError."""
        prefix = self._settings.key_prefix
        seen: set[TopicIdPartition] = set()
        for key, _ in self._objects.list(prefix.rpartition("/")[0]):
            topic, _, rest = key.removeprefix(prefix).partition("/")
            with suppress(ValueError):
                topic_id = UUID(bytes=parse_uuid(topic[-22:]))
                partition = TopicIdPartition(topic[:-23], int(rest.partition("/")[0]), topic_id)
                if partition not in seen and key.startswith(prefix):
                    seen.add(partition)
                    yield partition

    def close(self) -> None:
        """Release connections, chunks and threads."""
        if self._prefetching is not None:
            self._prefetching.shutdown(wait=True, cancel_futures=True)
        self._cache.clear()
        self._objects.close()

    def _new_name(self, segment: RemoteSegment) -> str:
        return f"{self._settings.key_prefix}{_main_path(segment)}"

    def _name(self, segment: RemoteSegment) -> str:
        """Key of a segment's objects without suffix; custom metadata comes before the settings of today."""
        if not segment.custom_metadata:
            return self._new_name(segment)
        try:
            custom = CustomMetadata.from_bytes(segment.custom_metadata)
        except CustomMetadataError as error:
            raise RemoteStorageError(f"segment {segment.segment_id}: {error}") from error
        prefix = self._settings.key_prefix if custom.prefix is None else custom.prefix
        return f"{prefix}{_main_path(segment) if custom.key is None else custom.key}"

    def _stored(self, name: str) -> _Segment:
        with self._lock:
            stored = self._manifests.get(name)
            if stored is not None:
                self._manifests.move_to_end(name)
                return stored
        try:
            manifest = Manifest.from_bytes(self._objects.get(f"{name}.{MANIFEST}"))
            cipher = self._keys.cipher(manifest.encryption) if manifest.encryption is not None else None
        except (ManifestError, EncryptionError) as error:
            raise RemoteStorageError(f"{name}.{MANIFEST}: {error}") from error
        stored = _Segment(manifest, cipher)
        with self._lock:
            self._manifests[name] = stored
            while len(self._manifests) > self._settings.manifests_max:
                self._manifests.popitem(last=False)
        return stored

    def _chunk(self, name: str, stored: _Segment, number: int) -> bytes:
        return self._cache.get((name, number), lambda: self._load(name, stored, number))

    def _load(self, name: str, stored: _Segment, number: int) -> bytes:
        index = stored.manifest.chunk_index
        data = self._objects.get_range(f"{name}.{LOG}", index.starts[number], index.sizes[number])
        size = index.original_size(number)
        try:
            return original_chunk(
                data, size, is_compressed=stored.manifest.is_compressed, cipher=stored.cipher
            )
        except ChunkError as error:
            raise RemoteStorageError(f"chunk {number} of {name}.{LOG}: {error}") from error

    def _prefetch(self, name: str, stored: _Segment, begin: int) -> None:
        if self._prefetching is None:
            return
        index = stored.manifest.chunk_index
        count = -(-self._settings.prefetch_bytes // index.chunk_size)
        for number in range(begin, min(begin + count, len(index.sizes))):
            if (name, number) not in self._cache:
                self._prefetching.submit(self._chunk, name, stored, number)


def _packed_indexes(
    files: SegmentFiles, cipher: ChunkCipher | None
) -> tuple[bytes, dict[IndexKind, tuple[int, int]]]:
    sources: dict[IndexKind, Path | bytes | None] = {
        IndexKind.OFFSET: files.offset_index,
        IndexKind.TIMESTAMP: files.time_index,
        IndexKind.PRODUCER_SNAPSHOT: files.producer_snapshot,
        IndexKind.LEADER_EPOCH: files.leader_epochs,
        IndexKind.TRANSACTION: files.transaction_index,
    }
    parts: list[bytes] = []
    places: dict[IndexKind, tuple[int, int]] = {}
    position = 0
    for kind in INDEXES:
        source = sources[kind]
        if source is None:
            continue
        data = source.read_bytes() if isinstance(source, Path) else source
        if data and cipher is not None:
            data = cipher.encrypt(data)
        places[kind] = (position, len(data))
        position += len(data)
        parts.append(data)
    return b"".join(parts), places


def _folder(partition: TopicIdPartition) -> str:
    return f"{partition.topic}-{uuid_text(partition.topic_id.bytes)}/{partition.partition}"


def _main_path(segment: RemoteSegment) -> str:
    return f"{_folder(segment.partition)}/{segment.start_offset:020}-{uuid_text(segment.segment_id.bytes)}"
