"""gzip streams (RFC 1952), of one or several members."""

import zlib

from barnabas.records.codecs.pieces import Compressor, Pieces
from barnabas.records.errors import CompressedStreamError
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
        out = Pieces("gzip", bytes_max)
        out.add(stream.decompress(data, out.next_size))
        while not stream.eof:
            if not stream.unconsumed_tail:
                raise CompressedStreamError("gzip stream is cut short")
            out.add(stream.decompress(stream.unconsumed_tail, out.next_size))
        if stream.unused_data:
            _decompress_members(stream.unused_data, out)
        return out.join()
    except zlib.error as error:
        raise CompressedStreamError(f"gzip stream is corrupt: {error}") from None


def _decompress_members(data: bytes, out: Pieces) -> None:
    stream = zlib.decompressobj(_WBITS_GZIP)
    for at in range(0, len(data), _STEP_BYTES):
        step = data[at : at + _STEP_BYTES]
        while step:
            if stream.eof:
                stream = zlib.decompressobj(_WBITS_GZIP)
            out.add(stream.decompress(step, out.next_size))
            step = stream.unused_data if stream.eof else stream.unconsumed_tail
    if not stream.eof:
        raise CompressedStreamError("gzip stream is cut short")


def compressor(level: int | None, size: int) -> Compressor:  # noqa: ARG001 (other codecs want the size)
    """Make a compressor that takes its input in pieces."""
    stream = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, _WBITS_GZIP)
    return Compressor(b"", stream.compress, stream.flush)
