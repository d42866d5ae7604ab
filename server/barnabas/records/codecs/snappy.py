"""snappy in its two framings: one raw block, or the blocks of xerial's Java library.

    xerial  = 82 "SNAPPY" 00, version int32 (1), oldest compatible version int32 (1), blocks
    block   = length int32 (big-endian), raw snappy block of that length

Kafka's Java clients and brokers write xerial, librdkafka and sarama write raw blocks. All of them read both; we write
xerial, as a Java broker does.
"""

from collections.abc import Generator
from struct import Struct

import cramjam
import snappy

from barnabas.records.codecs.pieces import PIECE_BYTES, Compressor, Parts, Pieces
from barnabas.records.errors import CompressedStreamError, DecompressedTooLargeError
from barnabas.records.varint import Buffer

XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_BLOCK_BYTES = 32 * 1024  # as xerial's output stream
_LENGTH = Struct(">i")


def compress(data: Buffer, level: int | None) -> bytes:
    """Compress into xerial blocks of 32 KiB; snappy has no levels."""
    assert level is None, "snappy has no compression levels"
    parts = [_XERIAL_HEADER]
    with memoryview(data) as view:
        for at in range(0, len(view), _BLOCK_BYTES):
            block = snappy.compress(view[at : at + _BLOCK_BYTES])
            parts += (_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def decompress(data: Buffer, bytes_max: int) -> Parts:
    """Decompress either framing, by turns. Raises CompressedStreamError, DecompressedTooLargeError."""
    out = Pieces("snappy", bytes_max)
    with memoryview(data) as view:
        if bytes(view[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
            yield from _decompress_block(view, bytes_max, bytes_max, out)
            return out.join()
        pos = len(_XERIAL_HEADER)
        room = bytes_max
        if len(view) < pos:
            raise CompressedStreamError("snappy stream is cut short in its header")
        while pos < len(view):
            if len(view) - pos < _LENGTH.size:
                raise CompressedStreamError("snappy stream is cut short")
            (size,) = _LENGTH.unpack_from(view, pos)
            pos += _LENGTH.size
            if not 0 < size <= len(view) - pos:
                raise CompressedStreamError(f"snappy block of {size} bytes where {len(view) - pos} are left")
            room -= yield from _decompress_block(view[pos : pos + size], room, bytes_max, out)
            pos += size
        return out.join()


def _decompress_block(
    block: memoryview, room: int, bytes_max: int, out: Pieces
) -> Generator[None, None, int]:
    """Decompress a raw block, of at most `room` bytes, and append it to `out`; returns its size."""
    if _announced_size(block) > room:
        raise DecompressedTooLargeError("snappy", bytes_max)
    try:
        decompressed = memoryview(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise CompressedStreamError(f"snappy block is corrupt: {error}") from None
    for at in range(0, len(decompressed), PIECE_BYTES):
        if out.add(bytes(decompressed[at : at + PIECE_BYTES])):
            yield None
    return len(decompressed)


def compressor(level: int | None, size: int) -> Compressor:  # noqa: ARG001 (other codecs want the size)
    """Return a compressor that takes its input in pieces; each piece becomes separate blocks."""
    return Compressor(_XERIAL_HEADER, lambda piece: compress(piece, level)[len(_XERIAL_HEADER) :], bytes)


def _announced_size(block: memoryview) -> int:
    """Return the varint (no zigzag) at the start of a raw block: the size that the library will allocate."""
    size = 0
    for at, byte in enumerate(block[:5]):
        size |= (byte & 0x7F) << 7 * at
        if byte < 0x80:
            return size
    raise CompressedStreamError("snappy block does not begin with its size")
