"""Zstandard frames (KIP-110), one or several, with or without their content size.

The library's bounded reader accepts a truncated frame as a whole one. So the frames are first measured by their block
headers; then the output is read in bounded steps.
"""

import zstandard

from barnabas.records.codecs.pieces import Compressor, Parts, Pieces
from barnabas.records.errors import CompressedStreamError, DecompressedTooLargeError
from barnabas.records.varint import Buffer

_MAGIC = 0xFD2FB528
_SKIPPABLE_MAGIC, _SKIPPABLE_MASK = 0x184D2A50, 0xFFFFFFF0
_WINDOW_BYTES_MAX = 1 << 27  # the library's own limit, and that of Kafka's clients
_BLOCK_RLE = 1
_BLOCK_RESERVED = 3


def compress(data: Buffer, level: int | None) -> bytes:
    """Compress into one frame; `level` is -131072 to 22, None is 3."""
    return zstandard.ZstdCompressor(level=3 if level is None else level).compress(data)


def decompress(data: Buffer, bytes_max: int) -> Parts:
    """Decompress all frames, by turns. Raises CompressedStreamError, DecompressedTooLargeError."""
    raw = bytes(data)
    announced = _check_frames(raw)
    if announced > bytes_max:
        raise DecompressedTooLargeError("zstd", bytes_max)
    out = Pieces("zstd", bytes_max)
    decompressor = zstandard.ZstdDecompressor(max_window_size=_WINDOW_BYTES_MAX)
    try:
        with decompressor.stream_reader(raw, read_across_frames=True) as reader:
            while part := reader.read(out.next_size):
                if out.add(part):
                    yield None
    except zstandard.ZstdError as error:
        raise CompressedStreamError(f"zstd frame is corrupt: {error}") from None
    return out.join()


def compressor(level: int | None, size: int) -> Compressor:
    """Return a compressor that accepts about `size` bytes of input in pieces."""
    # With the size, high levels do not take hundreds of megabytes for a small input.
    parameters = zstandard.ZstdCompressionParameters.from_level(
        3 if level is None else level, source_size=max(size, 1), write_content_size=0
    )
    stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    return Compressor(b"", stream.compress, stream.flush)


def _check_frames(raw: bytes) -> int:
    """Walk over all frames; return the sum of the content sizes that they announce."""
    pos = announced = 0
    if not raw:
        raise CompressedStreamError("zstd stream is empty")
    while pos < len(raw):
        magic = int.from_bytes(raw[pos : pos + 4], "little")
        if magic & _SKIPPABLE_MASK == _SKIPPABLE_MAGIC:
            pos += 8 + int.from_bytes(raw[pos + 4 : pos + 8], "little")
        elif magic == _MAGIC:
            size, pos = _check_frame(raw, pos + 4)
            announced += size
        else:
            raise CompressedStreamError(f"no zstd frame at byte {pos}: its magic number is missing")
    if pos > len(raw):
        raise CompressedStreamError("zstd frame is cut short")
    return announced


def _check_frame(raw: bytes, pos: int) -> tuple[int, int]:
    """Walk over the frame with its descriptor at `pos`: (announced content size or 0, position after it)."""
    try:
        descriptor = raw[pos]
        single_segment = descriptor & 0x20
        pos += 1 + (0 if single_segment else 1) + (0, 1, 2, 4)[descriptor & 3]
        size_bytes = (1 if single_segment else 0, 2, 4, 8)[descriptor >> 6]
        content_size = int.from_bytes(raw[pos : pos + size_bytes], "little") + (256 if size_bytes == 2 else 0)
        pos += size_bytes
        last = 0
        while not last:
            block = raw[pos] | raw[pos + 1] << 8 | raw[pos + 2] << 16
            last, kind, size = block & 1, block >> 1 & 3, block >> 3
            if kind == _BLOCK_RESERVED:
                raise CompressedStreamError("zstd block is of a reserved type")
            pos += 3 + (1 if kind == _BLOCK_RLE else size)
        return content_size, pos + (4 if descriptor & 4 else 0)
    except IndexError:
        raise CompressedStreamError("zstd frame is cut short") from None
