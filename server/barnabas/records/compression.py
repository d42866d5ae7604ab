"""Compression of records: the codec ids of the protocol, their names and levels, and bounded decompression.

The rule: a codec's library is loaded when records first need it, and no input produces more output than allowed. Small data
is handled immediately, larger data in steps and in `Work`, see docs/decisions/0079-records-in-steps.md.
"""

from collections.abc import Callable
from enum import IntEnum
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Final

from barnabas.records.errors import DecompressedTooLargeError, UnsupportedCompressionError
from barnabas.records.steps import Reserve, Steps, Work
from barnabas.records.varint import Buffer

if TYPE_CHECKING:
    from barnabas.records.codecs.pieces import Compressor, Parts

SMALL_COMPRESSED_BYTES: Final = 64 << 10
SMALL_BYTES: Final = 1 << 20
"""Limits of what is small: 64 KiB compressed and 1 MiB decompressed, at most some 3 ms of gzip, the slowest.

With LZ4 all that makes up to 1 MiB is small: it takes 0.2 to 0.3 ms, and a thread for it would cost as much.
"""

MEDIUM_BYTES = 8 << 20
"""Decompressed size that is tried next for larger data: even larger data are rare and decompressed one at a time."""

COMPRESS_AT_ONCE_BYTES = 32 << 10


class Codec(IntEnum):
    """Codec ids, as in bits 0-2 of the attributes of a batch or message."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


_CODECS = tuple(Codec)  # by id
_loaded = {0}  # ids of codecs whose libraries are there
CODEC_NAMES = {codec: codec.name.lower() for codec in Codec}
CODECS_BY_NAME = {name: codec for codec, name in CODEC_NAMES.items()} | {"uncompressed": Codec.NONE}

# Lowest and highest level (KIP-390, KIP-780); gzip also takes -1, its default. snappy has none.
LEVELS = {Codec.GZIP: (1, 9), Codec.LZ4: (1, 17), Codec.ZSTD: (-131072, 22)}


def codec_of(codec_id: int) -> Codec:
    """Return the codec with that id. Raises UnsupportedCompressionError if the id is unknown."""
    if 0 <= codec_id < len(_CODECS):
        return _CODECS[codec_id]
    raise UnsupportedCompressionError(f"compression codec {codec_id} is unknown")


def is_loaded(codec: int) -> bool:
    """Return whether the library of a codec is loaded."""
    return codec in _loaded


def load_steps(*codecs: int) -> Steps[None]:
    """Load the libraries of codecs in steps, unless they are loaded: loading takes up to 50 ms."""
    for codec in codecs:
        if codec not in _loaded and codec < len(_CODECS):
            yield Work(partial(_load, codec))


def _load(codec: int) -> None:
    import_module(f"barnabas.records.codecs.{CODEC_NAMES[_CODECS[codec]]}")
    _loaded.add(codec)


def is_valid_level(codec: int, level: int) -> bool:
    """Return whether Kafka's `compression.<codec>.level` may be `level`."""
    low, high = LEVELS.get(Codec(codec), (0, -1))
    return low <= level <= high or (codec == Codec.GZIP and level == -1)


def compress(codec: int, data: Buffer, level: int | None = None, *, magic: int = 2) -> bytes:
    """Compress `data` for a batch or wrapper message of format `magic`; `level` None is Kafka's default.

    Raises UnsupportedCompressionError for an unknown codec, or zstd below magic 2.
    """
    kind = codec_of(codec)
    if kind is Codec.NONE:
        return bytes(data)
    if kind is Codec.GZIP:
        from barnabas.records.codecs import gzip

        return gzip.compress(data, level)
    if kind is Codec.SNAPPY:
        from barnabas.records.codecs import snappy

        return snappy.compress(data, level)
    if kind is Codec.LZ4:
        from barnabas.records.codecs import lz4

        return lz4.compress(data, level, broken_checksum=magic == 0)
    _refuse_old_zstd(magic)
    from barnabas.records.codecs import zstd

    return zstd.compress(data, level)


def decompress(codec: int, data: Buffer, *, magic: int, bytes_max: int) -> bytes:
    """Decompress the body of a batch or wrapper message of format `magic`, to at most `bytes_max` bytes.

    Raises CompressedStreamError for a broken stream, DecompressedTooLargeError once the output would grow
    beyond `bytes_max`, UnsupportedCompressionError for an unknown codec, or zstd below magic 2.
    """
    if codec == Codec.NONE:
        return bytes(data)
    from barnabas.records.codecs.pieces import whole

    return whole(_decompress(codec, data, magic, bytes_max))


def _decompress(codec: int, data: Buffer, magic: int, bytes_max: int) -> "Parts":
    """Begin to decompress, by turns. Raises UnsupportedCompressionError."""
    kind = codec_of(codec)
    if kind is Codec.GZIP:
        from barnabas.records.codecs import gzip

        return gzip.decompress(data, bytes_max)
    if kind is Codec.SNAPPY:
        from barnabas.records.codecs import snappy

        return snappy.decompress(data, bytes_max)
    if kind is Codec.LZ4:
        from barnabas.records.codecs import lz4

        return lz4.decompress(data, bytes_max, ignore_checksum=magic == 0)
    _refuse_old_zstd(magic)
    from barnabas.records.codecs import zstd

    return zstd.decompress(data, bytes_max)


def decompress_small(codec: int, data: Buffer, *, magic: int, bytes_max: int = SMALL_BYTES) -> bytes | None:
    """Decompress if the result has at most `bytes_max` bytes; else return None. Raises as `decompress`."""
    if len(data) > (SMALL_BYTES if codec == Codec.LZ4 else SMALL_COMPRESSED_BYTES):
        return None
    try:
        return decompress(codec, data, magic=magic, bytes_max=bytes_max)
    except DecompressedTooLargeError:
        return None


def decompress_steps(codec: int, data: Buffer, *, magic: int, bytes_max: int) -> Steps[bytes]:
    """Decompress possibly large data in steps; raises as `decompress`."""
    if codec == Codec.NONE:
        return bytes(data)
    for ceiling in (SMALL_BYTES, MEDIUM_BYTES):
        if ceiling < bytes_max:
            yield Reserve(ceiling)
            try:
                body = yield from _work_steps(_decompress(codec, data, magic, ceiling))
            except DecompressedTooLargeError:
                continue
            return body
    yield Reserve(bytes_max)
    return (yield from _work_steps(_decompress(codec, data, magic, bytes_max)))


def _work_steps(parts: "Parts") -> Steps[bytes]:
    """Decompress in threads, one call for each step: the event loop has the interpreter in between."""
    body: bytes | None = None
    while body is None:
        body = yield Work(partial(_next_part, parts))
    return body


def _next_part(parts: "Parts") -> bytes | None:
    try:
        next(parts)
    except StopIteration as end:
        body: bytes = end.value
        return body
    return None


def compressor(codec: int, level: int | None, size: int) -> "Compressor":
    """Return a compressor that accepts about `size` bytes of input in pieces, for magic 2. Raises as `compress`."""
    kind = codec_of(codec)
    if kind is Codec.GZIP:
        from barnabas.records.codecs import gzip

        return gzip.compressor(level, size)
    if kind is Codec.SNAPPY:
        from barnabas.records.codecs import snappy

        return snappy.compressor(level, size)
    if kind is Codec.LZ4:
        from barnabas.records.codecs import lz4

        return lz4.compressor(level, size)
    from barnabas.records.codecs import zstd

    return zstd.compressor(level, size)


class Output:
    """The body of a batch being written: compressed piece by piece unless it is small, and refused once it is too large.

    `too_large(size)` returns the error for a result of more than `bytes_max` bytes, of which `size` are known. Add data,
    run `flush` as `Work` whenever `is_due`, and at last `finish`.
    """

    __slots__ = ("_codec", "_level", "_max", "_parts", "_size", "_stream", "_too_large", "pending")

    def __init__(
        self, codec: int, level: int | None, bytes_max: int, too_large: Callable[[int], Exception]
    ) -> None:
        self._codec = codec
        self._level = level
        self._max = bytes_max
        self._too_large = too_large
        self.pending = bytearray()  # data are added here; replaced by each `flush`
        self._parts: list[bytes] = []
        self._size = 0
        self._stream: Compressor | None = None

    @property
    def is_due(self) -> bool:
        """True if the pending data must be flushed before more are added."""
        return len(self.pending) >= SMALL_BYTES

    def flush(self) -> None:
        """Compress the pending data. Raises the error of `too_large`."""
        if not self._codec:
            if len(self.pending) > self._max:
                raise self._too_large(len(self.pending))
            return
        if self._stream is None:
            self._stream = compressor(self._codec, self._level, len(self.pending) * 2)
            self._take(self._stream.start)
        data, self.pending = self.pending, bytearray()
        self._take(self._stream.add(data))

    def flush_steps(self) -> Steps[None]:
        """Do the same by steps."""
        if self._codec:
            yield Work(self.flush)
        else:
            self.flush()

    def _take(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > self._max:
            raise self._too_large(self._size)
        self._parts.append(part)

    def finish(self) -> Buffer:
        """Return the whole body, compressed. Raises the error of `too_large`."""
        if self._stream is None:
            if not self._codec:
                self.flush()
                return self.pending
            self._take(compress(self._codec, self.pending, self._level))
        else:
            self.flush()
            self._take(self._stream.finish())
        return b"".join(self._parts)

    def finish_steps(self) -> Steps[Buffer]:
        """Do the same by steps."""
        if (self._stream is None and len(self.pending) <= COMPRESS_AT_ONCE_BYTES) or not self._codec:
            return self.finish()
        body: Buffer = yield Work(self.finish)
        return body


def _refuse_old_zstd(magic: int) -> None:
    if magic < 2:
        raise UnsupportedCompressionError(f"message format v{magic} knows no zstd")
