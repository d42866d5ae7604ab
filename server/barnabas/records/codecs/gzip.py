"""gzip streams (RFC 1952), of one or several members."""

import zlib

from barnabas.records.errors import CompressedStreamError, DecompressedTooLargeError
from barnabas.records.varint import Buffer

_WBITS_GZIP = 31
# zlib copies whatever follows the end of a member. Small steps keep a stream of very many tiny members from
# copying its own tail over and over.
_STEP_BYTES = 4096


def compress(data: Buffer, level: int | None) -> bytes:
    """Compress into one member; `level` is 1 to 9, or -1 or None for zlib's default."""
    stream = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, _WBITS_GZIP)
    return stream.compress(data) + stream.flush()


def decompress(data: Buffer, bytes_max: int) -> bytes:
    """Decompress all members. Raises CompressedStreamError, DecompressedTooLargeError."""
    try:
        stream = zlib.decompressobj(_WBITS_GZIP)
        first = stream.decompress(data, bytes_max + 1)
        if len(first) > bytes_max:
            raise DecompressedTooLargeError("gzip", bytes_max)
        if not stream.eof:
            raise CompressedStreamError("gzip stream is cut short")
        if not stream.unused_data:
            return first
        return first + _decompress_members(stream.unused_data, bytes_max - len(first), bytes_max)
    except zlib.error as error:
        raise CompressedStreamError(f"gzip stream is corrupt: {error}") from None


def _decompress_members(data: bytes, left: int, bytes_max: int) -> bytes:
    parts = []
    stream = zlib.decompressobj(_WBITS_GZIP)
    for at in range(0, len(data), _STEP_BYTES):
        step = data[at : at + _STEP_BYTES]
        while step:
            if stream.eof:
                stream = zlib.decompressobj(_WBITS_GZIP)
            part = stream.decompress(step, left + 1)
            left -= len(part)
            if left < 0:
                raise DecompressedTooLargeError("gzip", bytes_max)
            parts.append(part)
            step = stream.unused_data if stream.eof else stream.unconsumed_tail
    if not stream.eof:
        raise CompressedStreamError("gzip stream is cut short")
    return b"".join(parts)
