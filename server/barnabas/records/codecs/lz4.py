"""LZ4 frames, also with the wrong header checksum of message format v0 (KAFKA-3160).

Old Java clients hashed the frame's magic number along with its descriptor. A writer of format v0 must do the same, because
these clients check it; a reader of v0 must ignore it. Kafka's Java clients read frames of independent blocks only, and only
the first frame. They check neither its content checksum nor its content size, and ignore bytes after the frame, so Kafka
accepts batches in which these are wrong.
"""

from lz4 import frame
from xxhash import xxh32_intdigest

from barnabas.records.codecs.pieces import Compressor, Parts, Pieces
from barnabas.records.errors import CompressedStreamError
from barnabas.records.varint import Buffer

_FRAME_MAGIC = b"\x04\x22\x4d\x18"
_FLAG_INDEPENDENT_BLOCKS = 0x20
_FLAG_CONTENT_SIZE = 0x08
_FLAG_CONTENT_CHECKSUM = 0x04
_CHECKSUM_BYTES = 4
_CONTENT_SIZE_BYTES = 8
_FLAG_DICTIONARY_ID = 0x01
_FAST_LEVEL = 9  # Kafka's default level means the fast compressor, all others mean the "high" one (KIP-390)
_HIGH_LEVEL_MIN, _HIGH_LEVEL_MAX = 3, 12


def compress(data: Buffer, level: int | None, *, broken_checksum: bool = False) -> bytes:
    """Compress into one frame of independent 64 KiB blocks; `level` is 1 to 17, None or 9 the fast one."""
    raw = frame.compress(
        data,
        compression_level=_library_level(level),
        block_size=frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    return _with_header_checksum(raw, broken=True) if broken_checksum else raw


def decompress(data: Buffer, bytes_max: int, *, ignore_checksum: bool = False) -> Parts:
    """Decompress one frame, by turns. Raises CompressedStreamError, DecompressedTooLargeError."""
    if bytes(data[:4]) != _FRAME_MAGIC:
        raise CompressedStreamError("no LZ4 frame: its magic number is missing")
    context = frame.create_decompression_context()
    out, rest, is_whole = Pieces("lz4", bytes_max), memoryview(data), False
    left_bytes = 0  # of the frame, that must follow the blocks
    try:
        if ignore_checksum or (len(data) > 4 and data[4] & (_FLAG_CONTENT_SIZE | _FLAG_CONTENT_CHECKSUM)):
            header = bytes(rest[: _header_end(data)])
            if not ignore_checksum and _with_header_checksum(header, broken=False) != header:
                raise CompressedStreamError("the checksum of the LZ4 frame's header is wrong")
            left_bytes = _CHECKSUM_BYTES if header[4] & _FLAG_CONTENT_CHECKSUM else 0
            rest = rest[len(header) :]
            frame.decompress_chunk(context, _with_blocks_alone(header))
        while not is_whole:
            part, used, is_whole = frame.decompress_chunk(context, rest, max_length=out.next_size)
            if not is_whole and not used and not part:
                raise CompressedStreamError("LZ4 frame is cut short")
            if out.add(part):
                yield None
            rest = rest[used:]
    except RuntimeError as error:
        raise CompressedStreamError(f"LZ4 frame is corrupt: {error}") from None
    if len(rest) < left_bytes:
        raise CompressedStreamError("LZ4 frame is cut short in the checksum of its content")
    return out.join()


def compressor(level: int | None, size: int) -> Compressor:  # noqa: ARG001 (other codecs want the size)
    """Return a compressor that accepts its input in pieces; for magic 2, with the correct header checksum."""
    stream = frame.LZ4FrameCompressor(
        block_size=frame.BLOCKSIZE_MAX64KB, block_linked=False, compression_level=_library_level(level)
    )
    return Compressor(stream.begin(), stream.compress, stream.flush)


def _library_level(level: int | None) -> int:
    if level in (None, _FAST_LEVEL):
        return 0
    return min(max(level or 0, _HIGH_LEVEL_MIN), _HIGH_LEVEL_MAX)


def has_linked_blocks(data: Buffer) -> bool:
    """Return whether the blocks of the frame depend on each other: Java clients cannot read that."""
    return len(data) > 4 and not data[4] & _FLAG_INDEPENDENT_BLOCKS


def _header_end(raw: Buffer) -> int:
    """Return where the blocks begin. Raises CompressedStreamError."""
    end = 7 + (_CONTENT_SIZE_BYTES if len(raw) > 4 and raw[4] & _FLAG_CONTENT_SIZE else 0)
    if len(raw) < end:
        raise CompressedStreamError("LZ4 frame is cut short in its header")
    if raw[4] & _FLAG_DICTIONARY_ID:
        raise CompressedStreamError("LZ4 frame needs a dictionary")
    return end


def _with_blocks_alone(header: bytes) -> bytes:
    """Return a header that promises nothing of the content: its blocks, then an end mark."""
    flags = header[4] & ~(_FLAG_CONTENT_SIZE | _FLAG_CONTENT_CHECKSUM)
    return _with_header_checksum(_FRAME_MAGIC + bytes((flags, header[5], 0)), broken=False)


def _with_header_checksum(raw: bytes, *, broken: bool) -> bytes:
    end = _header_end(raw) - 1
    checksum = xxh32_intdigest(raw[0 if broken else 4 : end]) >> 8 & 0xFF
    return raw[:end] + bytes((checksum,)) + raw[end + 1 :]
