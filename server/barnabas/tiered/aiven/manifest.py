"""The manifest of a segment: JSON beside its objects, with the places of chunks and indexes. Pure.

The rule: it is written for the plug-in's parser, which refuses unknown fields, and reads the plug-in's output.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, Final

import zstandard

from barnabas.tiered.segment import RemoteSegment
from barnabas.tiered.storage import IndexKind
from barnabas.wire.ids import uuid_text

VERSION: Final = "1"
INDEXES: Final = {
    IndexKind.OFFSET: "offset",
    IndexKind.TIMESTAMP: "timestamp",
    IndexKind.PRODUCER_SNAPSHOT: "producerSnapshot",
    IndexKind.LEADER_EPOCH: "leaderEpoch",
    IndexKind.TRANSACTION: "transaction",
}
"""Indexes in the order of their bytes in the object of the indexes, and their names in the manifest."""
INDEX_BYTES_MAX: Final = 10 * 1024 * 1024
"""Bytes of a list of chunk sizes, at most: the plug-in's own limit."""


class ManifestError(Exception):
    """Bytes that are no manifest, or one of an unknown version."""


@dataclass(frozen=True)
class ChunkIndex:
    """Places of the chunks of a log, in the log and in its object.

    Attributes:
        chunk_size: bytes of the log in each chunk but the last.
        file_size: bytes of the log.
        sizes: bytes of each chunk in the object.
        fixed_size: bytes of each chunk but the last in the object, if they are all alike; None if they vary.
    """

    chunk_size: int
    file_size: int
    sizes: tuple[int, ...]
    fixed_size: int | None = None

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """Position of each chunk in the object, and the object's end."""
        return tuple(accumulate(self.sizes, initial=0))

    def chunks(self, start: int, length: int) -> range:
        """Return the numbers of the chunks that hold a range of the log."""
        end = min(start + length, self.file_size)
        return range(start // self.chunk_size, -(-end // self.chunk_size)) if start < end else range(0)

    def original_size(self, number: int) -> int:
        """Return the bytes of the log in a chunk."""
        return min(self.chunk_size, self.file_size - number * self.chunk_size)

    def to_json(self) -> dict[str, Any]:
        """Return the index in the form of the manifest."""
        if self.fixed_size is not None:
            of_chunks: dict[str, Any] = {
                "transformedChunkSize": self.fixed_size,
                "finalTransformedChunkSize": self.sizes[-1],
            }
        else:
            packed = zstandard.ZstdCompressor().compress(pack_sizes(self.sizes))
            of_chunks = {"transformedChunks": b64encode(packed).decode()}
        return {
            "type": "variable" if self.fixed_size is None else "fixed",
            "originalChunkSize": self.chunk_size,
            "originalFileSize": self.file_size,
            **of_chunks,
        }

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> ChunkIndex:
        """Read the index of a manifest. Raises ManifestError, KeyError, TypeError, ValueError."""
        chunk_size, file_size = int(fields["originalChunkSize"]), int(fields["originalFileSize"])
        if chunk_size <= 0 or file_size < 0:
            raise ManifestError(f"chunks of {chunk_size} bytes, of a log of {file_size}")
        count = max(1, -(-file_size // chunk_size))
        size = None
        if fields["type"] == "fixed":
            size, last = int(fields["transformedChunkSize"]), int(fields["finalTransformedChunkSize"])
            sizes = (*[size] * (count - 1), last)
        elif fields["type"] == "variable":
            sizes = unpack_sizes(_decompressed(b64decode(fields["transformedChunks"], validate=True)))
        else:
            raise ManifestError(f"there is no index of chunks of type {fields['type']!r}")
        if len(sizes) != count or min(sizes) < 0:
            raise ManifestError(f"{len(sizes)} chunks of {chunk_size} bytes, of a log of {file_size}")
        return cls(chunk_size, file_size, sizes, size)


@dataclass(frozen=True)
class Encryption:
    """Encryption of a segment's objects.

    Attributes:
        data_key: the wrapped AES key, as KEYID:BASE64.
        aad: additional data that each chunk is bound to.
    """

    data_key: str
    aad: bytes


@dataclass(frozen=True)
class Manifest:
    """Description of a segment's objects.

    Attributes:
        chunk_index: chunks of the log.
        indexes: position and size of each index in the object of the indexes; a segment may lack that of transactions.
        is_compressed: whether each chunk of the log is a zstd frame.
        encryption: None if the objects are not encrypted.
    """

    chunk_index: ChunkIndex
    indexes: dict[IndexKind, tuple[int, int]]
    is_compressed: bool
    encryption: Encryption | None

    def to_bytes(self, segment: RemoteSegment) -> bytes:
        """Return the bytes of the manifest's object, with the facts of the segment's record for human readers."""
        indexes: dict[str, dict[str, int] | None] = dict.fromkeys(INDEXES.values())
        for kind, (position, size) in self.indexes.items():
            indexes[INDEXES[kind]] = {"position": position, "size": size}
        fields = {
            "version": VERSION,
            "chunkIndex": self.chunk_index.to_json(),
            "segmentIndexes": indexes,
            "compression": self.is_compressed,
        }
        if self.encryption is not None:
            aad = b64encode(self.encryption.aad).decode()
            fields["encryption"] = {"dataKey": self.encryption.data_key, "aad": aad}
        return json.dumps({**fields, "remoteLogSegmentMetadata": _described(segment)}).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Manifest:
        """Read a manifest. Raises ManifestError."""
        try:
            fields = json.loads(data)
            if fields["version"] != VERSION:
                raise ManifestError(f"there is no manifest version {fields['version']!r}")
            places = {kind: fields["segmentIndexes"][name] for kind, name in INDEXES.items()}
            indexes = {
                kind: (int(place["position"]), int(place["size"]))
                for kind, place in places.items()
                if place is not None or kind is not IndexKind.TRANSACTION
            }
            encryption = fields.get("encryption")
            return cls(
                chunk_index=ChunkIndex.from_json(fields["chunkIndex"]),
                indexes=indexes,
                is_compressed=bool(fields["compression"]),
                encryption=encryption and Encryption(encryption["dataKey"], b64decode(encryption["aad"])),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ManifestError(f"no manifest of a segment: {error!r}") from error


def pack_sizes(sizes: tuple[int, ...]) -> bytes:
    """Return sizes of chunks, packed as by the plug-in: their differences to the smallest, the last one separately."""
    count = len(sizes).to_bytes(4, "big")
    if len(sizes) < 2:
        return count + b"".join(size.to_bytes(4, "big") for size in sizes)
    *sizes_before, last = sizes
    base = min(sizes_before)
    width = max(1, -(-(max(sizes_before) - base).bit_length() // 8))
    differences = b"".join((size - base).to_bytes(width, "big") for size in sizes_before)
    return count + base.to_bytes(4, "big") + bytes((width,)) + differences + last.to_bytes(4, "big")


def unpack_sizes(data: bytes) -> tuple[int, ...]:
    """Return the sizes that `pack_sizes` packed. Raises ManifestError."""
    count = int.from_bytes(data[:4], "big")
    width = data[8] if count > 1 and len(data) > 8 else 0
    expected = 4 + 4 * count if count < 2 else 9 + width * (count - 1) + 4
    if len(data) != expected or width > 4:
        raise ManifestError(f"sizes of {count} chunks in {len(data)} bytes")
    if count < 2:
        return (int.from_bytes(data[4:], "big"),) * count
    base = int.from_bytes(data[4:8], "big")
    ends = range(9, 9 + width * count, width)
    sizes = (base + int.from_bytes(data[start:end], "big") for start, end in pairwise(ends))
    return (*sizes, int.from_bytes(data[-4:], "big"))


def _decompressed(data: bytes) -> bytes:
    try:
        size = zstandard.frame_content_size(data)
        if not 0 <= size <= INDEX_BYTES_MAX:
            raise ManifestError(f"an index of chunks of {size} bytes")
        return zstandard.ZstdDecompressor().decompress(data)
    except zstandard.ZstdError as error:
        raise ManifestError(f"an index of chunks that is damaged: {error}") from error


def _described(segment: RemoteSegment) -> dict[str, Any]:
    partition = segment.partition
    return {
        "remoteLogSegmentId": {
            "topicIdPartition": {
                "topicId": uuid_text(partition.topic_id.bytes),
                "topicPartition": {"topic": partition.topic, "partition": partition.partition},
            },
            "id": uuid_text(segment.segment_id.bytes),
        },
        "startOffset": segment.start_offset,
        "endOffset": segment.end_offset,
        "maxTimestampMs": segment.max_timestamp,
        "brokerId": segment.broker_id,
        "eventTimestampMs": segment.event_timestamp,
        "segmentLeaderEpochs": {str(epoch): offset for epoch, offset in segment.leader_epochs},
    }
