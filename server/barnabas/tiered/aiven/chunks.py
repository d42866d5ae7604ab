"""A log as the plug-in stores it: cut into chunks, each compressed with zstd and then encrypted, if that is asked for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from threading import Lock
from typing import BinaryIO, Final

import zstandard

from barnabas.records.batch import (
    ATTRIBUTES_OFFSET,
    CODEC_MASK,
    HEADER_SIZE,
    LEGACY_ATTRIBUTES_OFFSET,
    MAGIC_OFFSET,
)
from barnabas.tiered.aiven.encryption import OVERHEAD_BYTES, ChunkCipher, EncryptionError
from barnabas.tiered.aiven.manifest import ChunkIndex

_MAGIC_MAX: Final = 2


class ChunkError(Exception):
    """Bytes that are not the expected chunk of the log: damaged, or of another chunk."""


class ChunkWriter:
    """Cuts a log into chunks for its object. Their index is complete once `chunks` is exhausted."""

    def __init__(
        self,
        log: BinaryIO,
        chunk_size: int,
        file_size: int,
        *,
        is_compressed: bool,
        cipher: ChunkCipher | None,
        limit: RateLimit | None = None,
    ) -> None:
        self._limit = limit
        self._log = log
        self._chunk_size = chunk_size
        self._file_size = file_size
        self._is_compressed = is_compressed
        self._cipher = cipher
        self._sizes: list[int] = []

    def chunks(self) -> Iterator[bytes]:
        """Yield the chunks of the log, as they are stored."""
        self._sizes.clear()
        compress = zstandard.ZstdCompressor().compress if self._is_compressed else None
        while chunk := self._log.read(self._chunk_size):
            if self._limit is not None:
                self._limit.spend(len(chunk))
            if compress is not None:
                chunk = compress(chunk)
            if self._cipher is not None:
                chunk = self._cipher.encrypt(chunk)
            self._sizes.append(len(chunk))
            yield chunk

    def index(self) -> ChunkIndex:
        """Return the places of the chunks."""
        size = self._chunk_size + (OVERHEAD_BYTES if self._cipher is not None else 0)
        # A log of one chunk has the size of a full chunk too, which is not among those that were written.
        sizes = tuple(self._sizes)
        if self._is_compressed:
            return ChunkIndex(self._chunk_size, self._file_size, sizes)
        return ChunkIndex(self._chunk_size, self._file_size, sizes, fixed_size=size)


def original_chunk(data: bytes, size: int, *, is_compressed: bool, cipher: ChunkCipher | None) -> bytes:
    """Return a chunk of the log out of its stored bytes.

    Args:
        data: the chunk as it is stored.
        size: bytes of the log that the chunk has.
        is_compressed: whether it is a zstd frame.
        cipher: that of the segment, None if it is not encrypted.

    Raises:
        ChunkError: the bytes are damaged.

    """
    try:
        if cipher is not None:
            data = cipher.decrypt(data)
        if is_compressed:
            if zstandard.frame_content_size(data) != size:
                raise ChunkError(
                    f"a chunk is a frame of {zstandard.frame_content_size(data)} bytes, not {size}"
                )
            data = zstandard.ZstdDecompressor().decompress(data)
    except (EncryptionError, zstandard.ZstdError) as error:
        raise ChunkError(str(error)) from error
    if len(data) != size:
        raise ChunkError(f"a chunk has {len(data)} bytes, not {size}")
    return data


def has_compressed_records(log: BinaryIO) -> bool:
    """Return whether the first batch of a log is compressed, from which the plug-in infers the rest. Seeks to the start."""
    header = log.read(HEADER_SIZE)
    log.seek(0)
    if len(header) < HEADER_SIZE or header[MAGIC_OFFSET] > _MAGIC_MAX:
        return True  # what is no batch is not compressed, as the plug-in does
    position = ATTRIBUTES_OFFSET + 1 if header[MAGIC_OFFSET] == _MAGIC_MAX else LEGACY_ATTRIBUTES_OFFSET
    return bool(header[position] & CODEC_MASK)


class RateLimit:
    """Bytes that all uploads may read in a second; a thread that is ahead sleeps."""

    def __init__(
        self,
        bytes_per_second: int,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._bytes_per_second = bytes_per_second
        self._clock = clock
        self._sleep = sleep
        self._lock = Lock()
        self._next = 0.0

    def spend(self, size: int) -> None:
        """Wait until `size` more bytes may be read."""
        with self._lock:
            now = self._clock()
            begin = max(self._next, now - 1)  # a second's worth may be spent at once
            self._next = begin + size / self._bytes_per_second
            delay = self._next - now
        if delay > 0:
            self._sleep(delay)
