"""Compressed streams: framings of all kinds, limits, damage."""

import gzip
import random
import tracemalloc
import zlib

import lz4.frame
import pytest
import snappy
import zstandard
from xxhash import xxh32_intdigest

from barnabas.records import compression
from barnabas.records.codecs import lz4 as lz4_codec
from barnabas.records.compression import Codec, compress, decompress, decompress_small
from barnabas.records.errors import (
    Code,
    CompressedStreamError,
    DecompressedTooLargeError,
    InvalidRecordsError,
    UnsupportedCompressionError,
)

MIB = 1 << 20
TEXT = b"".join(b"line %d of some text that repeats itself\n" % number for number in range(5_000))
NOISE = bytes((value * value * 7 + (value >> 3)) & 0xFF for value in range(70_000))
STREAMING = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]


def unpack(codec, data, bytes_max=MIB, magic=2):
    return decompress(codec, data, magic=magic, bytes_max=bytes_max)


@pytest.mark.parametrize(
    ("codec", "magic"),
    [(codec, magic) for codec in Codec for magic in (0, 1, 2) if codec < Codec.ZSTD or magic == 2],
)
@pytest.mark.parametrize(
    "data", [b"", b"x", TEXT, NOISE, bytes(100_000)], ids=["empty", "x", "text", "noise", "zeros"]
)
def test_round_trip(codec, magic, data):
    if codec is Codec.ZSTD and magic < 2:
        pytest.skip("zstd came after these formats")
    packed = compress(codec, data, magic=magic)
    assert isinstance(packed, bytes)
    assert unpack(codec, packed, magic=magic) == data
    assert unpack(codec, memoryview(bytearray(packed)), len(data), magic) == data


@pytest.mark.parametrize("codec", STREAMING)
def test_output_beyond_the_limit_is_refused(codec):
    packed = compress(codec, TEXT)
    with pytest.raises(DecompressedTooLargeError) as caught:
        unpack(codec, packed, len(TEXT) - 1)
    assert caught.value.code == Code.MESSAGE_TOO_LARGE


def raw_zstd_without_size(data):
    stream = zstandard.ZstdCompressor().compressobj()
    return stream.compress(data) + stream.flush()


def many_members(data):
    return b"".join(gzip.compress(data[at : at + 1000], mtime=0) for at in range(0, len(data), 1000))


def xerial(*blocks):
    return b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01" + b"".join(
        len(block).to_bytes(4, "big") + block for block in map(snappy.compress, blocks)
    )


FOREIGN = {
    "gzip with a name and a comment": (
        Codec.GZIP,
        b"\x1f\x8b\x08\x18\0\0\0\0\0\x03name\0comment\0"
        + zlib.compress(TEXT, wbits=-15)
        + zlib.crc32(TEXT).to_bytes(4, "little") + len(TEXT).to_bytes(4, "little"),
    ),
    "gzip of two members": (Codec.GZIP, gzip.compress(TEXT[:50_000]) + gzip.compress(TEXT[50_000:])),
    "gzip of many members": (Codec.GZIP, many_members(TEXT)),
    "gzip with empty members": (Codec.GZIP, gzip.compress(b"") + gzip.compress(TEXT) + gzip.compress(b"")),
    "snappy as one raw block": (Codec.SNAPPY, snappy.compress(TEXT)),
    "snappy in uneven xerial blocks": (Codec.SNAPPY, xerial(TEXT[:1], b"", TEXT[1:100_000], TEXT[100_000:])),
    "lz4 with content size and checksums": (
        Codec.LZ4,
        lz4.frame.compress(TEXT, content_checksum=True, block_checksum=True, block_linked=False),
    ),
    "lz4 of linked blocks": (Codec.LZ4, lz4.frame.compress(TEXT, block_linked=True, block_size=4)),
    "lz4 of 4 MB blocks": (Codec.LZ4, lz4.frame.compress(TEXT, block_size=7, block_linked=False)),
    "lz4 of uncompressed blocks": (Codec.LZ4, lz4.frame.compress(NOISE, block_linked=False)),
    "zstd without content size": (Codec.ZSTD, raw_zstd_without_size(TEXT)),
    "zstd with checksum": (Codec.ZSTD, zstandard.ZstdCompressor(write_checksum=True).compress(TEXT)),
    "zstd of two frames": (
        Codec.ZSTD,
        raw_zstd_without_size(TEXT[:9]) + zstandard.ZstdCompressor().compress(TEXT[9:]),
    ),
    "zstd after a skippable frame": (
        Codec.ZSTD,
        b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc" + zstandard.ZstdCompressor().compress(TEXT),
    ),
    "zstd of raw and RLE blocks": (
        Codec.ZSTD,
        bytes.fromhex("28b52ffd0060") + b"\x18\x00\x00abc" + b"\x53\x00\x00z",
    ),
}  # fmt: skip
PLAIN = {"lz4 of uncompressed blocks": NOISE, "zstd of raw and RLE blocks": b"abc" + b"z" * 10}
for descriptor, fields in {
    0x01: "60 00", 0x02: "60 0000", 0x03: "60 00000000",  # a dictionary's id of 0, which is none
    0x40: "60 2c00", 0x80: "60 2c010000", 0xC0: "60 2c01000000000000",  # the content's size
    0x60: "2c00", 0xA0: "2c010000", 0xE0: "2c01000000000000", 0x62: "0000 2c00",  # in one segment
}.items():  # fmt: skip
    name = f"zstd with descriptor {descriptor:02x}"
    FOREIGN[name] = (Codec.ZSTD, bytes.fromhex(f"28b52ffd{descriptor:02x}{fields}630900") + b"z")
    PLAIN[name] = b"z" * 300
FOREIGN["zstd of one segment of few bytes"] = (Codec.ZSTD, bytes.fromhex("28b52ffd2003190000") + b"abc")
PLAIN["zstd of one segment of few bytes"] = b"abc"


@pytest.mark.parametrize("name", FOREIGN)
def test_framings_of_other_writers(name):
    codec, packed = FOREIGN[name]
    assert unpack(codec, packed) == PLAIN.get(name, TEXT)


@pytest.mark.parametrize("name", FOREIGN)
def test_framings_of_other_writers_are_bounded(name):
    codec, packed = FOREIGN[name]
    size = len(PLAIN.get(name, TEXT))
    assert len(unpack(codec, packed, size)) == size
    for bytes_max in (0, 1, size // 2, size - 1):
        with pytest.raises(DecompressedTooLargeError):
            unpack(codec, packed, bytes_max)


@pytest.mark.parametrize("name", FOREIGN)
def test_streams_cut_anywhere_are_refused(name):
    codec, packed = FOREIGN[name]
    cuts = {*range(min(len(packed), 80)), *range(0, len(packed), 101), *range(len(packed) - 20, len(packed))}
    refused = 0
    for cut in cuts:
        try:
            plain = unpack(codec, packed[:cut])
        except CompressedStreamError:
            refused += 1
        else:  # nothing showed that another block, member or frame was to follow
            assert PLAIN.get(name, TEXT).startswith(plain)
    if "member" in name:  # less than a member's header is no part of the stream
        assert refused >= len(cuts) * 0.5
    elif any(word in name for word in ("xerial", "frame")):
        assert refused >= len(cuts) * 0.9
    else:
        assert refused == len(cuts)


TAILS = (b"\0", b"garbage", b"\0" * 9000, b"garbage" * 9000)


@pytest.mark.parametrize("name", [name for name in FOREIGN if "zstd" in name and "skippable" not in name])
def test_bytes_after_a_zstd_stream_are_refused(name):
    codec, packed = FOREIGN[name]
    for tail in TAILS:
        with pytest.raises(CompressedStreamError):
            unpack(codec, packed + tail)


@pytest.mark.parametrize("name", [name for name in FOREIGN if "gzip" in name or "lz4" in name])
def test_bytes_after_a_gzip_or_lz4_stream_are_no_part_of_it(name):
    codec, packed = FOREIGN[name]
    for tail in TAILS:
        assert unpack(codec, packed + tail) == PLAIN.get(name, TEXT)


def test_of_a_gzip_stream_all_members_are_read_that_java_reads():
    first, other = gzip.compress(TEXT[:500], mtime=0), gzip.compress(TEXT[500:], mtime=0)
    assert unpack(Codec.GZIP, first + other) == TEXT
    for begun in (other[:10], other[:18], b"\x1f\x8b\x08\xff" + b"q" * 40, b"\0" * 8 + other):
        assert unpack(Codec.GZIP, first + begun) == TEXT[:500]
    for cut in (other[:60], other[:-1], other[:10] + b"\0" * 20):
        with pytest.raises(CompressedStreamError):
            unpack(Codec.GZIP, first + cut)


@pytest.mark.parametrize("size", [0, 1, 300_000])
def test_lz4_frame_may_be_wrong_only_about_its_content(size):
    plain = TEXT[:size]

    def pack(**options):
        return bytearray(lz4.frame.compress(plain, block_linked=False, **options))

    wrong_sum = pack(content_checksum=True)
    wrong_sum[-1] ^= 1
    wrong_size = pack(store_size=True, content_checksum=True)
    if size:
        wrong_size[6] ^= 1
        wrong_size[14] = xxh32_intdigest(bytes(wrong_size[4:14])) >> 8 & 0xFF
    for packed in (wrong_sum, wrong_size):
        assert unpack(Codec.LZ4, bytes(packed)) == plain
    for cut in range(1, 5):
        with pytest.raises(CompressedStreamError):
            unpack(Codec.LZ4, bytes(wrong_sum[:-cut]))
    for options, at in (({"content_checksum": True}, 6), ({"store_size": True}, 14))[: 2 if size else 1]:
        packed = pack(**options)
        packed[at] ^= 1
        with pytest.raises(CompressedStreamError):
            unpack(Codec.LZ4, bytes(packed))
    if size:
        packed = pack(block_checksum=True, content_checksum=True)
        packed[-9] ^= 1  # the last of the block's checksum: an end mark and the content's checksum follow
        with pytest.raises(CompressedStreamError):
            unpack(Codec.LZ4, bytes(packed))


@pytest.mark.parametrize("codec", STREAMING)
@pytest.mark.parametrize("garbage", [b"", b"\1", b"garbage" * 10, b"\xff" * 40, b"\1" * 64])
def test_garbage_is_no_stream(codec, garbage):
    with pytest.raises(CompressedStreamError) as caught:
        unpack(codec, garbage)
    assert caught.value.code == Code.INVALID_RECORD
    assert isinstance(caught.value, InvalidRecordsError)


@pytest.mark.parametrize(
    ("size", "text"), [(1, "cut short"), (3, "cut short"), (4, "of 7 bytes where 0 are left")]
)
def test_snappy_stream_may_end_only_after_a_block(size, text):
    for blocks in ((), (b"abc",), (b"abc", b"def")):
        whole = xerial(*blocks)
        assert unpack(Codec.SNAPPY, whole) == b"".join(blocks)
        with pytest.raises(CompressedStreamError, match=text):
            unpack(Codec.SNAPPY, whole + b"\0\0\0\7"[:size])


BOMBS = {
    Codec.GZIP: lambda size: gzip.compress(bytes(size), 9),
    Codec.SNAPPY: lambda size: snappy.compress(bytes(size)),
    Codec.LZ4: lambda size: lz4.frame.compress(bytes(size), block_linked=False, store_size=False),
    Codec.ZSTD: lambda size: raw_zstd_without_size(bytes(size)),
}


@pytest.mark.parametrize("codec", STREAMING)
def test_a_bomb_takes_no_more_memory_than_allowed(codec):
    bomb = BOMBS[codec](200 * MIB)
    unpack(codec, compress(codec, b"load the library first"))
    tracemalloc.start()
    try:
        with pytest.raises(DecompressedTooLargeError):
            unpack(codec, bomb, 8 * MIB)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 18 * MIB + len(bomb)  # the parts and, at worst, their joint copy


@pytest.mark.parametrize("codec", STREAMING)
def test_what_is_small_depends_on_how_long_it_takes(codec):
    """Of a slow codec what is compressed within 64 KiB, of LZ4 all that makes up to 1 MiB."""
    noise = random.Random(1).randbytes
    cases = (
        (noise(60_000), True),
        (noise(900_000), codec is Codec.LZ4),
        (bytes(MIB), True),
        (bytes(MIB + 1), False),
        (noise(MIB + 1), False),
    )
    for data, is_small in cases:
        packed = compress(codec, data, magic=2, level=None)
        assert decompress_small(codec, packed, magic=2) == (data if is_small else None)


@pytest.mark.parametrize(
    "announced",
    [b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x80\x40", xerial()[:16] + b"\0\0\0\x06\xff\xff\xff\xff\x0f\0"],
)
def test_announced_size_is_not_believed_by_snappy(announced):
    with pytest.raises(DecompressedTooLargeError):
        unpack(Codec.SNAPPY, announced + b"\0" * 20)


def test_announced_size_is_not_believed_by_zstd():
    frame = bytearray(zstandard.ZstdCompressor().compress(b"abc" * 1000))
    assert frame[4] & 0xC0 == 0x40  # a size of two bytes
    frame[5:7] = b"\xff\xff"
    with pytest.raises(CompressedStreamError):
        unpack(Codec.ZSTD, bytes(frame))
    with pytest.raises(DecompressedTooLargeError):
        unpack(Codec.ZSTD, bytes(frame), 5_000)


@pytest.mark.parametrize("size", [b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\0\0", b"\0\0\0\x30"])
def test_impossible_xerial_block_sizes_are_refused(size):
    with pytest.raises(CompressedStreamError):
        unpack(Codec.SNAPPY, xerial() + size + b"abc")


def test_zstd_window_beyond_the_limit_is_refused():
    with pytest.raises(CompressedStreamError):
        unpack(Codec.ZSTD, bytes.fromhex("28b52ffd00f8") + b"\x19\x00\x00abc")


def test_format_v0_has_the_wrong_header_checksum():
    """KAFKA-3160: these bytes are what Java clients wrote and expected before 0.10."""
    right, wrong = compress(Codec.LZ4, TEXT), compress(Codec.LZ4, TEXT, magic=0)
    assert right[:6] == wrong[:6] == bytes.fromhex("04224d186040")
    assert (right[6], wrong[6]) == (0x82, 0x1A)
    assert right[7:] == wrong[7:]
    assert unpack(Codec.LZ4, wrong, magic=0) == unpack(Codec.LZ4, right, magic=0) == TEXT
    with pytest.raises(CompressedStreamError):
        unpack(Codec.LZ4, wrong, magic=1)


def test_wrong_header_checksum_with_content_size():
    frame = bytearray(lz4.frame.compress(TEXT, store_size=True, block_linked=False))
    frame[14] ^= 0xFF
    assert unpack(Codec.LZ4, bytes(frame), magic=0) == TEXT


@pytest.mark.parametrize(
    "header", ["04224d18", "04224d186140", "04224d186940", "04224d1861400000000000", "04224d184d40"]
)
def test_odd_lz4_headers_of_format_v0(header):
    for tail in (b"", b"\0", b"\0" * 30):
        with pytest.raises(CompressedStreamError):
            unpack(Codec.LZ4, bytes.fromhex(header) + tail, magic=0)


def test_we_write_lz4_frames_that_java_reads():
    assert not lz4_codec.has_linked_blocks(compress(Codec.LZ4, TEXT))
    assert lz4_codec.has_linked_blocks(lz4.frame.compress(TEXT))


def test_we_write_snappy_as_java_does():
    packed = compress(Codec.SNAPPY, TEXT)
    assert packed.startswith(bytes.fromhex("82534e415050590000000001 00000001"))
    assert unpack(Codec.SNAPPY, packed) == TEXT


@pytest.mark.parametrize("codec", [5, 6, 7, -1])
def test_unknown_codecs(codec):
    with pytest.raises(UnsupportedCompressionError) as caught:
        unpack(codec, b"abc")
    assert caught.value.code == Code.UNSUPPORTED_COMPRESSION_TYPE
    with pytest.raises(UnsupportedCompressionError):
        compress(codec, b"abc")


@pytest.mark.parametrize("magic", [0, 1])
def test_zstd_came_with_format_v2(magic):
    with pytest.raises(UnsupportedCompressionError):
        compress(Codec.ZSTD, b"abc", magic=magic)
    with pytest.raises(UnsupportedCompressionError):
        unpack(Codec.ZSTD, compress(Codec.ZSTD, b"abc"), magic=magic)


@pytest.mark.parametrize(
    ("codec", "valid", "invalid"),
    [
        (Codec.GZIP, (-1, 1, 6, 9), (-2, 0, 10)),
        (Codec.LZ4, (1, 9, 17), (0, -1, 18)),
        (Codec.ZSTD, (-131072, -1, 0, 3, 22), (-131073, 23)),
        (Codec.SNAPPY, (), (0, 1, -1)),
        (Codec.NONE, (), (0, 1, -1)),
    ],
)
def test_levels(codec, valid, invalid):
    for level in valid:
        assert compression.is_valid_level(codec, level)
        assert unpack(codec, compress(codec, TEXT, level)) == TEXT
    for level in invalid:
        assert not compression.is_valid_level(codec, level)


def test_higher_levels_compress_more():
    for codec, low, high in ((Codec.GZIP, 1, 9), (Codec.LZ4, 9, 17), (Codec.ZSTD, -1000, 19)):
        assert len(compress(codec, TEXT, high)) < len(compress(codec, TEXT, low))


def test_names():
    assert compression.CODECS_BY_NAME["uncompressed"] is compression.CODECS_BY_NAME["none"] is Codec.NONE
    assert [compression.CODEC_NAMES[codec] for codec in Codec] == ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.mark.parametrize("seed", range(40))
def test_gzip_members_of_any_size_are_read_whole(seed):
    """Members end anywhere in what zlib is given at a time, and what comes out is limited at a time, too."""
    rng = random.Random(seed)
    parts = [
        rng.choice([rng.randbytes, bytes])(rng.choice([0, 1, 5_000, 70_000, 300_000, 3_000_000]))
        for _ in range(rng.randrange(1, 6))
    ]
    whole, data = b"".join(parts), b"".join(gzip.compress(part, 1) for part in parts)
    assert decompress(Codec.GZIP, data, magic=2, bytes_max=len(whole)) == whole
    assert decompress(Codec.GZIP, data + b"zz", magic=2, bytes_max=len(whole)) == whole
    last_is_tiny = len(parts) > 1 and len(parts[-1]) <= 1
    for cut in 1, 9:
        try:
            unpacked = decompress(Codec.GZIP, data[:-cut], magic=2, bytes_max=len(whole))
        except CompressedStreamError:
            continue
        assert last_is_tiny  # what is left of it is too short for a member
        assert unpacked == b"".join(parts[:-1])
