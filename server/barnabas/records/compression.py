"""Compression of records: the codec ids of the protocol, their names and levels, and bounded decompression.

The rule: a codec's library is loaded when records first need it, and no input makes more output than allowed.
"""

from enum import IntEnum

from barnabas.records.errors import UnsupportedCompressionError
from barnabas.records.varint import Buffer


class Codec(IntEnum):
    """Codec ids, as in bits 0-2 of the attributes of a batch or message."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


_CODECS = tuple(Codec)  # by id
CODEC_NAMES = {codec: codec.name.lower() for codec in Codec}
CODECS_BY_NAME = {name: codec for codec, name in CODEC_NAMES.items()} | {"uncompressed": Codec.NONE}

# Lowest and highest level (KIP-390, KIP-780); gzip also takes -1, its default. snappy has none.
LEVELS = {Codec.GZIP: (1, 9), Codec.LZ4: (1, 17), Codec.ZSTD: (-131072, 22)}


def codec_of(codec_id: int) -> Codec:
    """Return the codec with that id. Raises UnsupportedCompressionError for one that does not exist."""
    if 0 <= codec_id < len(_CODECS):
        return _CODECS[codec_id]
    raise UnsupportedCompressionError(f"compression codec {codec_id} is unknown")


def is_valid_level(codec: int, level: int) -> bool:
    """Say whether Kafka's `compression.<codec>.level` may be `level`."""
    low, high = LEVELS.get(Codec(codec), (0, -1))
    return low <= level <= high or (codec == Codec.GZIP and level == -1)


def compress(codec: int, data: Buffer, level: int | None = None, *, magic: int = 2) -> bytes:
    """Compress `data` for a batch or wrapper message of format `magic`; `level` None is Kafka's default.

    Raises UnsupportedCompressionError for an unknown codec, or zstd below magic 2.
    """
    known = codec_of(codec)
    if known is Codec.NONE:
        return bytes(data)
    if known is Codec.GZIP:
        from barnabas.records.codecs import gzip

        return gzip.compress(data, level)
    if known is Codec.SNAPPY:
        from barnabas.records.codecs import snappy

        return snappy.compress(data, level)
    if known is Codec.LZ4:
        from barnabas.records.codecs import lz4

        return lz4.compress(data, level, broken_checksum=magic == 0)
    _refuse_old_zstd(magic)
    from barnabas.records.codecs import zstd

    return zstd.compress(data, level)


def decompress(codec: int, data: Buffer, *, magic: int, bytes_max: int) -> bytes:
    """Decompress what a batch or wrapper message of format `magic` holds, to at most `bytes_max` bytes.

    Raises CompressedStreamError for a broken stream, DecompressedTooLargeError once the output would grow
    beyond `bytes_max`, UnsupportedCompressionError for an unknown codec, or zstd below magic 2.
    """
    known = codec_of(codec)
    if known is Codec.NONE:
        return bytes(data)
    if known is Codec.GZIP:
        from barnabas.records.codecs import gzip

        return gzip.decompress(data, bytes_max)
    if known is Codec.SNAPPY:
        from barnabas.records.codecs import snappy

        return snappy.decompress(data, bytes_max)
    if known is Codec.LZ4:
        from barnabas.records.codecs import lz4

        return lz4.decompress(data, bytes_max, ignore_checksum=magic == 0)
    _refuse_old_zstd(magic)
    from barnabas.records.codecs import zstd

    return zstd.decompress(data, bytes_max)


def _refuse_old_zstd(magic: int) -> None:
    if magic < 2:
        raise UnsupportedCompressionError(f"message format v{magic} knows no zstd")
