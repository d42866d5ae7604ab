"""Iteration over the batches of a segment file.

The rule: `iter_headers` trusts the log and reads as little as possible; `iter_checked` trusts nothing, and holds at most
`chunk_bytes` in memory, whatever lengths headers claim.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, Protocol
from zlib import crc32

from barnabas.log.format.offset_index import OFFSET_DELTA_MAX
from barnabas.records.batch import (
    ATTRIBUTES_OFFSET,
    HEADER_SIZE,
    MAGIC_OFFSET,
    BatchHeader,
    check_crc,
    iter_records,
    read_any_header,
    require_order,
)
from barnabas.records.control import EndMarker, parse_end_marker
from barnabas.records.crc import crc32c
from barnabas.records.errors import CorruptRecordsError, RecordsError

if TYPE_CHECKING:
    from barnabas.log.disk import File


class ReadableFile(Protocol):
    """A file of batches, for reading."""

    def read(self, size: int, position: int) -> bytes:
        """Read `size` bytes at `position`, fewer only at the end of the file."""


HOP_BYTES: Final = 4096  # about the distance of two index entries
SWEEP_BYTES: Final = 1 << 20
CHECK_BYTES: Final = 1 << 18
"""Bytes read at a time for a checksum: they fit into the CPU's cache."""

Problem = Callable[[int, str], None]


def iter_headers(
    file: ReadableFile, position: int, end: int, *, chunk_bytes: int = HOP_BYTES
) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of the batches from `position`, the start of a batch, to `end`.

    Raises CorruptRecordsError at an impossible header, or a batch that reaches beyond `end`.
    """
    chunk, chunk_at = b"", position
    while position < end:
        at = position - chunk_at
        if len(chunk) - at < HEADER_SIZE and chunk_at + len(chunk) < end:
            chunk = file.read(min(chunk_bytes, end - position), position)
            chunk_at, at = position, 0
        header = read_any_header(chunk, at)
        if header.size > end - position:
            raise CorruptRecordsError(f"a batch of {header.size} bytes at {position} reaches beyond {end}")
        yield position, header
        position += header.size


def iter_whole(
    file: File, end: int, *, chunk_bytes: int = SWEEP_BYTES
) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Yield (position, header, bytes) of the batches from the beginning of the file to `end`.

    The bytes are valid until the next iteration. Raises CorruptRecordsError as `iter_headers`.
    """
    position = chunk_at = 0
    chunk = memoryview(b"")
    while position < end:
        at = position - chunk_at
        size = HEADER_SIZE
        if len(chunk) - at >= HEADER_SIZE:
            size = read_any_header(chunk, at).size
        if len(chunk) - at < size and chunk_at + len(chunk) < end:
            read_bytes = min(max(chunk_bytes, size), end - position)
            chunk, chunk_at, at = memoryview(file.read(read_bytes, position)), position, 0
        header = read_any_header(chunk, at)
        if header.size > end - position:
            raise CorruptRecordsError(f"a batch of {header.size} bytes at {position} reaches beyond {end}")
        if header.size > len(chunk) - at:
            continue
        yield position, header, chunk[at : at + header.size]
        position += header.size


def read_marker(file: ReadableFile, position: int, header: BatchHeader) -> EndMarker | None:
    """Return the end marker in the control batch at `position`; None for another control record or a missing batch."""
    record = next(iter_records(file.read(header.size, position)), None)
    return None if record is None else parse_end_marker(record)


def sound_header_at(
    file: File, position: int, end: int, *, chunk_bytes: int = CHECK_BYTES
) -> BatchHeader | None:
    """Return the header of the batch at `position` if the whole batch is before `end`, and its checksum is correct."""
    if position >= end:
        return None
    try:
        header = read_any_header(file.read(min(HEADER_SIZE, end - position), position))
        if header.size > end - position:
            return None
        chunk = memoryview(file.read(min(chunk_bytes, header.size), position))
        is_sound = (
            check_crc(chunk, 0, header)
            if header.size <= len(chunk)
            else _check_long(file, chunk, header, position, chunk_bytes)
        )
    except RecordsError:
        return None
    return header if is_sound else None


def iter_checked(
    file: File, end: int, *, base_offset: int, on_problem: Problem, chunk_bytes: int = CHECK_BYTES
) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of the sound batches from the beginning of the file.

    Stops at the first that is not sound (cut short, impossible header, wrong checksum, offset that falls or is out of
    the segment's range), after a call of `on_problem` with its position and the fault.
    """
    position = chunk_at = 0
    next_offset, end_offset = base_offset, base_offset + OFFSET_DELTA_MAX + 1
    chunk = memoryview(b"")
    while position < end:
        at = position - chunk_at
        available = len(chunk) - at
        try:
            if available < HEADER_SIZE and (at or not chunk):
                chunk, chunk_at, at = _read_chunk(file, position, end, chunk_bytes), position, 0
                available = len(chunk)
            header = read_any_header(chunk, at)
            size = header.size
            if size > end - position:
                on_problem(position, f"the batch is cut short: {end - position} of {size} bytes")
                return
            require_order(header, next_offset, end_offset)
            if size > available and at:
                chunk, chunk_at, at = _read_chunk(file, position, end, chunk_bytes), position, 0
                available = len(chunk)
            is_sound = (
                check_crc(chunk, at, header)
                if size <= available
                else _check_long(file, chunk, header, position, chunk_bytes)
            )
        except RecordsError as error:
            on_problem(position, error.message)
            return
        if not is_sound:
            on_problem(position, "the checksum is wrong")
            return
        yield position, header
        next_offset = header.next_offset
        position += size


def _read_chunk(file: File, position: int, end: int, chunk_bytes: int) -> memoryview:
    return memoryview(file.read(min(chunk_bytes, end - position), position))


def _check_long(file: File, chunk: memoryview, header: BatchHeader, position: int, chunk_bytes: int) -> bool:
    """Compute the checksum of a batch that begins with `chunk`, piece by piece: its claimed length may be large."""
    add, start = (crc32c, ATTRIBUTES_OFFSET) if header.magic == 2 else (crc32, MAGIC_OFFSET)
    crc = add(chunk[start:])
    start = len(chunk)
    while start < header.size:
        piece = file.read(min(chunk_bytes, header.size - start), position + start)
        if not piece:
            return False
        crc = add(piece, crc)
        start += len(piece)
    return crc == header.crc
