"""gzip streams (RFC 1952), of one or several members.

The rule: bytes after a member that are no header of another member are ignored, as Java's reader ignores them, so Kafka
and its consumers accept such batches.
"""

import zlib

from barnabas.records.codecs.pieces import PIECE_BYTES, Compressor, Parts, Pieces
from barnabas.records.errors import CompressedStreamError
from barnabas.records.varint import Buffer

_WBITS_GZIP = 31
# zlib copies what it was given and has not used, at the end of a member and whenever its output is full: so it is given
# little at a time, and less in a stream of very many tiny members.
_STEP_BYTES = PIECE_BYTES
_STEP_BYTES_OF_MANY = 4096
_MAGIC = b"\x1f\x8b\x08"
_RESERVED_FLAGS = 0xE0
_SHORTEST_MEMBER_BYTES = 19
"""Java's reader looks for no other member in fewer."""


def compress(data: Buffer, level: int | None) -> bytes:
    """Compress into one member; `level` is 1 to 9, or -1 or None for zlib's default."""
    stream = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, _WBITS_GZIP)
    return stream.compress(data) + stream.flush()


def decompress(data: Buffer, bytes_max: int) -> Parts:
    """Decompress all members, by turns. Raises CompressedStreamError, DecompressedTooLargeError."""
    out = Pieces("gzip", bytes_max)
    stream = zlib.decompressobj(_WBITS_GZIP)
    at, step_bytes = 0, _STEP_BYTES
    try:
        while at < len(data):
            if stream.eof:
                if not _is_member(memoryview(data)[at:]):
                    break
                stream = zlib.decompressobj(_WBITS_GZIP)
                step_bytes = _STEP_BYTES_OF_MANY
            step: Buffer = memoryview(data)[at : at + step_bytes]
            at += len(step)
            while step:
                if out.add(stream.decompress(step, out.next_size)):
                    yield None
                step = b"" if stream.eof else stream.unconsumed_tail
            at -= len(stream.unused_data)
    except zlib.error as error:
        raise CompressedStreamError(f"gzip stream is corrupt: {error}") from None
    if not stream.eof:
        raise CompressedStreamError("gzip stream is cut short")
    return out.join()


def _is_member(data: memoryview) -> bool:
    """Return whether another member begins here."""
    return len(data) >= _SHORTEST_MEMBER_BYTES and bytes(data[:3]) == _MAGIC and not data[3] & _RESERVED_FLAGS


def compressor(level: int | None, size: int) -> Compressor:  # noqa: ARG001 (other codecs want the size)
    """Return a compressor that accepts its input in pieces."""
    stream = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, _WBITS_GZIP)
    return Compressor(b"", stream.compress, stream.flush)
