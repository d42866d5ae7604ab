"""Records that weigh little and cost much: bombs of every codec and format, zero deltas, nested wrappers."""

from __future__ import annotations

from compat.hostile.attack import Act, PeerClosed, Target, attack, produce_values
from compat.hostile.batches import (
    CODECS,
    GZIP,
    LZ4,
    SNAPPY,
    ZSTD,
    batch,
    bomb,
    compressed,
    many_small,
    message,
    nested,
    record,
    zero_deltas,
)

MB = 1_000_000
CORRUPT, TOO_LARGE, INVALID_RECORD, UNSUPPORTED_CODEC, UNSUPPORTED_FORMAT = 2, 10, 87, 76, 43
REFUSED = frozenset({CORRUPT, TOO_LARGE, INVALID_RECORD, UNSUPPORTED_CODEC, UNSUPPORTED_FORMAT})
TAKEN_OR_REFUSED = REFUSED | {0}
VERSION_OF_MAGIC = {0: 1, 1: 2, 2: 7}
"""The Produce version that a client of that format speaks."""


def produced(target: Target, topic: str, data: bytes, magic: int = 2) -> int | None:
    """The error code of a produce; None when the broker closed the connection, which is an answer too."""
    try:
        return target.produce(topic, data, version=VERSION_OF_MAGIC[magic])
    except PeerClosed:
        return None


def again_and_again(
    target: Target, topic: str, data: list[bytes], magic: int, allowed: frozenset[int]
) -> None:
    """Produce each batch at least once, and repeat them while there is time."""
    target.create_topics([topic])
    target.begin()
    while True:
        for content in data:
            code = produced(target, topic, content, magic)
            target.expect(
                code is None or code in allowed, f"{len(content)} bytes were answered with error {code}"
            )
        if not target.goes_on:
            break
    target.delete_topics([topic])


def add_bombs() -> None:
    """Add rows for each codec and format: one huge record, and very many empty ones."""
    for magic in (0, 1, 2):
        for name, codec in CODECS.items():
            if (codec == ZSTD and magic < 2) or (codec == LZ4 and magic == 0):
                continue  # there are none
            needs = (("Produce", VERSION_OF_MAGIC[magic]),)

            def act(target: Target, magic: int = magic, codec: int = codec, name: str = name) -> None:
                # snappy's own format compresses zeros to a twentieth only
                size = target.sized(127 * MB, 60 * MB) // (8 if codec == SNAPPY else 1)
                # Kafka goes by the compressed size, and takes what it can decompress.
                again_and_again(
                    target,
                    f"hostile-bomb-{name}-{magic}",
                    [bomb(magic, codec, size)],
                    magic,
                    TAKEN_OR_REFUSED,
                )

            attack(
                f"bomb-{name}-v{magic}",
                f"one record of 127 MB in a {name} batch of format v{magic}",
                "taken, or refused as too large or corrupt",
                needs=needs,
            )(act)

            def act_many(target: Target, magic: int = magic, codec: int = codec, name: str = name) -> None:
                data = many_small(magic, codec, target.sized(200_000, 50_000))
                again_and_again(target, f"hostile-many-{name}-{magic}", [data], magic, TAKEN_OR_REFUSED)

            attack(
                f"many-records-{name}-v{magic}",
                f"200,000 empty records in a {name} batch of format v{magic}",
                "taken or refused",
                needs=needs,
            )(act_many)


add_bombs()


@attack(
    "zero-deltas",
    "10 KB of gzip with 1,000,000 records whose offset deltas are all 0",
    "taken or refused; soon",
    rss_mb_max=400,
)
def zero_deltas_of_one(target: Target) -> None:
    data = zero_deltas(target.sized(1_000_000, 200_000))
    again_and_again(target, "hostile-zero-deltas", [data], 2, TAKEN_OR_REFUSED)


@attack(
    "zero-deltas-lz4",
    "300,000 records with deltas of 5 in lz4 and zstd",
    "taken or refused; soon",
    rss_mb_max=400,
)
def zero_deltas_of_others(target: Target) -> None:
    count = target.sized(300_000, 100_000)
    data = [batch(record(b"", 5) * count, count, codec=codec) for codec in (LZ4, ZSTD)]
    again_and_again(target, "hostile-zero-deltas-lz4", data, 2, TAKEN_OR_REFUSED)


@attack(
    "zero-deltas-many-partitions",
    "100,000 records with deltas of 0 for each of 20 partitions in one request",
    "each is answered",
    rss_mb_max=400,
)
def zero_deltas_of_many(target: Target) -> None:
    topic = "hostile-zero-deltas-many"
    target.create_topics([topic], 20)
    data = zero_deltas(target.sized(100_000, 20_000))
    target.begin()
    values = produce_values(topic, [(n, data) for n in range(20)])
    parts = target.ask("Produce", 7, values)["Responses"][0]["PartitionResponses"]
    codes = {part["ErrorCode"] for part in parts}
    target.expect(len(parts) == 20 and codes <= TAKEN_OR_REFUSED, f"answered with {codes}")
    target.delete_topics([topic])


def recompressing(target: Target, codec: str) -> None:
    topic = f"hostile-recompress-{codec}"
    target.create_topics([topic], compression_type=codec)
    data = bomb(2, GZIP, target.sized(127 * MB, 60 * MB))
    target.begin()
    while True:
        code = produced(target, topic, data)
        target.expect(code is None or code in TAKEN_OR_REFUSED, f"answered with error {code}")
        if not target.goes_on:
            break
    target.delete_topics([topic])


def add_recompressions() -> None:
    """A row for each codec that a topic may ask for."""
    for codec in ("gzip", "zstd", "uncompressed"):
        act: Act = lambda target, codec=codec: recompressing(target, codec)  # noqa: E731
        attack(
            f"recompress-to-{codec}",
            f"a gzip bomb of 127 MB to a topic with compression.type={codec}",
            "taken or refused",
        )(act)


add_recompressions()


@attack(
    "nested-wrappers",
    "message sets of formats v0 and v1, wrapped 2 to 200 times",
    "refused",
    needs=(("Produce", 2),),
)
def nested_wrappers(target: Target) -> None:
    data = [nested(magic, depth) for magic in (0, 1) for depth in (2, 5, 200)]
    # A wrapper of a thousand wrappers of a thousand messages.
    inner = message(1, message(1, b"") * 1000, codec=GZIP)
    data.append(message(1, inner * 1000, codec=GZIP))
    again_and_again(target, "hostile-nested", data, 1, REFUSED)


@attack("codec-lies", "snappy lengths of 4 GB, streams cut short, the wrong codec's bytes", "refused")
def codec_lies(target: Target) -> None:
    good = compressed(GZIP, record(b"x"))
    zstd_lie = b"\x28\xb5\x2f\xfd\xe0" + b"\xff" * 8  # a frame header that tells 2^64-1 bytes
    streams = {
        SNAPPY: [
            b"\xff\xff\xff\xff\x0f" + bytes(20),
            b"\x82SNAPPY\0" + b"\0\0\0\1" * 2 + b"\x7f\xff\xff\xff",
        ],
        GZIP: [good[:-5], good[:4], compressed(ZSTD, b"x"), b""],
        LZ4: [compressed(LZ4, bytes(1000))[:-6], b"\x04\x22\x4d\x18", good],
        ZSTD: [zstd_lie, compressed(ZSTD, bytes(1000))[:-3], good],
    }
    data = []
    for codec, bodies in streams.items():
        data += [_batch_around(codec, body) for body in bodies]
    again_and_again(target, "hostile-codec-lies", data, 2, REFUSED)


def _batch_around(codec: int, body: bytes) -> bytes:
    """A batch that says it is compressed, around bytes as they are."""
    import struct

    import crc32c

    plain = batch(body, 1)
    tail = bytearray(plain[21:])
    struct.pack_into(">h", tail, 0, codec)
    return plain[:17] + struct.pack(">I", crc32c.crc32c(bytes(tail))) + bytes(tail)


@attack("record-lies", "batches with wrong counts, lengths and offsets, and good checksums", "refused")
def record_lies(target: Target) -> None:
    whole = record(b"x")
    data = [
        batch(whole, 2_000_000_000),
        batch(whole, -1),
        batch(whole, 1, last_delta=2**31 - 1),
        batch(whole + b"\0", 1),
        batch(b"\xfe\xff\xff\xff\x0f" + whole, 1),
        batch(whole * 3, 1),
        batch(b"", 5, codec=0),
        # One record that says it has 2^31-1 headers.
        batch(b"\x16\0\0\0\x01\x02x\xfe\xff\xff\xff\x0f", 1),
    ]
    again_and_again(target, "hostile-record-lies", data, 2, REFUSED)
