"""Functions of untrusted bytes: decoders, records, compression, records of coordinators, settings.

Each is one function of bytes, so that a coverage-guided fuzzer can drive it too (`python -m compat.fuzz.guided`). The rule:
what it raises is what its docstring says, and what it accepts can be written and read again.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import crc32c

from barnabas.cluster.metadata.image import ClusterImage
from barnabas.config.loading import BrokerConfig
from barnabas.config.properties import format_properties
from barnabas.config.setting import SettingError
from barnabas.coordinators.groups.settings import GroupSettings
from barnabas.coordinators.groups.shard import GroupShard
from barnabas.coordinators.transactions.settings import TransactionSettings
from barnabas.coordinators.transactions.shard import TransactionShard
from barnabas.errors import StorageError
from barnabas.records import batch, building, legacy
from barnabas.records.compression import Codec, compress, decompress
from barnabas.records.errors import RecordsError
from barnabas.records.record import Record
from barnabas.records.rules import AppendRules
from barnabas.security.jaas import JaasError, parse_jaas
from barnabas.testing.memory_disk import MemoryDisk
from barnabas.testing.simulation.broker import quiet_logs
from barnabas.wire import registry
from barnabas.wire.errors import DecodeError, EncodeError
from barnabas.wire.generated.index import APIS
from compat.fuzz.target import Growth, Round, RunRound, Target
from compat.hostile.messages import EXTREMES, filled
from compat.kit.wire import encode, message
from tests.support.whole_steps import down_convert, parse_properties, validate_produce

CORPUS = Path(__file__).with_name("corpus")
NOW_MS = 1_700_000_000_000
DECOMPRESSED_BYTES_MAX = 1 << 20
Check = Callable[[bytes], None]


@dataclass(frozen=True)
class Pure:
    """A function of bytes, and initial inputs. An exception of `check` is a finding."""

    name: str
    takes: str
    check: Check
    seeds: Callable[[], list[bytes]]


# --- requests and responses -----------------------------------------------------------------------------------------


@cache
def _codecs() -> list[tuple[int, bool, int]]:
    """Return (key, whether it is the request, version) of everything that can be decoded."""
    return [
        (key, is_request, version)
        for key in sorted(APIS)
        for is_request in (True, False)
        for codec in (registry.codec(key)[0 if is_request else 1],)
        for version in range(codec.min_version, codec.max_version + 1)
    ]


def decode_message(data: bytes) -> None:
    """Decode the rest of `data` as the message that its first two bytes choose; it must survive encoding and decoding."""
    if len(data) < 2:
        return
    every = _codecs()
    key, is_request, version = every[int.from_bytes(data[:2], "big") % len(every)]
    codec = registry.codec(key)[0 if is_request else 1]
    decoder = codec.decoders[version]
    assert decoder is not None
    try:
        message, _ = decoder(memoryview(data)[2:], 0)
    except DecodeError:
        return
    try:
        written = codec.encode_bytes(message, version)
    except EncodeError as error:
        raise AssertionError(f"{codec.name} v{version} was read and cannot be written: {error}") from error
    again, end = decoder(memoryview(written), 0)
    assert end == len(written), f"{codec.name} v{version}: {len(written) - end} bytes are left over"
    assert codec.encode_bytes(again, version) == written, (
        f"{codec.name} v{version} is not written the same again"
    )


def _messages() -> list[bytes]:
    messages = []
    for index, (key, is_request, version) in enumerate(_codecs()):
        name = f"{registry.name_of(key)}{'Request' if is_request else 'Response'}"
        try:
            definition = message(name)
            values = filled(registry.name_of(key), version) if is_request else {}
            messages.append(struct.pack(">H", index) + encode(definition, version, values))
        except (KeyError, AssertionError):
            continue
    return messages


# --- records --------------------------------------------------------------------------------------------------------

RULES = (
    AppendRules(decompressed_bytes_max=DECOMPRESSED_BYTES_MAX),
    AppendRules(
        decompressed_bytes_max=DECOMPRESSED_BYTES_MAX, compression_type="zstd", timestamp_type="LogAppendTime"
    ),
    AppendRules(
        decompressed_bytes_max=DECOMPRESSED_BYTES_MAX, compacted=True, compression_type="uncompressed"
    ),
    AppendRules(decompressed_bytes_max=DECOMPRESSED_BYTES_MAX, record_validation="header"),
)
RIGHT_CHECKSUM = 0x80


def append_records(data: bytes) -> None:
    """Validate the rest of `data` as records of a produce request, and read what is accepted in every format.

    The first byte chooses the rules, and whether checksums are put right first; the second the version of Produce.
    """
    if len(data) < 2:
        return
    rules = RULES[data[0] % len(RULES)]
    records = bytearray(data[2:])
    if data[0] & RIGHT_CHECKSUM:
        _put_right(records)
    try:
        valid = validate_produce(
            records, api_version=data[1] % 14, config=rules, now_ms=NOW_MS, first_offset=7, leader_epoch=1
        )
    except RecordsError as error:
        assert error.message, "an error says what is wrong"
        return
    kept = bytes(valid.records)
    assert batch.whole_size(kept) == len(kept), "what is appended ends in half a batch"
    for position, header in batch.iter_batches(kept):
        if header.magic == 2:
            assert batch.check_crc(kept, position, header), "what is appended has a wrong checksum"
        if rules.record_validation == "full":
            reader = batch if header.magic == 2 else legacy
            reader.read_records(kept, position)
    for magic in (0, 1):
        try:
            down_convert(kept, magic, bytes_max=1 << 20, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX)
        except RecordsError:
            continue


def _put_right(records: bytearray) -> None:
    """Set the right checksum and size of every batch and message."""
    if len(records) >= 61 and records[16] == 2:
        struct.pack_into(">i", records, 8, len(records) - 12)
        struct.pack_into(">I", records, 17, crc32c.crc32c(bytes(records[21:])))
    elif len(records) >= 17:
        import zlib

        struct.pack_into(">i", records, 8, len(records) - 12)
        struct.pack_into(">I", records, 12, zlib.crc32(bytes(records[16:])))


def _batches() -> list[bytes]:
    records = [
        Record(n, NOW_MS + n, b"key" if n % 2 else None, b"value" * n, [("h", b"x")] if n == 3 else [])
        for n in range(5)
    ]
    alike = [Record(n, NOW_MS, None, b"v" * 20) for n in range(100)]
    plain = [Record(record.offset, record.timestamp, record.key, record.value) for record in records]
    batches = []
    for flags in (0x80, 0x81, 0x82, 0x83):
        for codec in Codec:
            head = bytes((flags, 9))
            batches += [head + building.encode_batch(some, codec=codec) for some in (records, alike)]
            if codec is not Codec.ZSTD:
                old = bytes((flags, 2))
                batches += [
                    old + legacy.encode_message_set(plain, magic=magic, codec=codec) for magic in (0, 1)
                ]
        batches.append(
            bytes((flags, 9))
            + building.encode_batch(
                records, producer_id=5, producer_epoch=1, base_sequence=3, transactional=True
            )
        )
    return batches


def decompress_stream(data: bytes) -> None:
    """Decompress the rest of `data` with the codec and format that its first byte chooses, to at most 1 MB."""
    if not data:
        return
    try:
        plain = decompress(data[0] % 6, data[1:], magic=data[0] // 64 % 3, bytes_max=DECOMPRESSED_BYTES_MAX)
    except RecordsError:
        return
    assert len(plain) <= max(DECOMPRESSED_BYTES_MAX, len(data)), f"{len(plain)} bytes"


def _streams() -> list[bytes]:
    bodies = (b"", b"a" * 5000, bytes(range(256)) * 20, random.Random(1).randbytes(3000))
    return [
        bytes((codec + 6 * 22,)) + bytes(compress(codec, body, magic=2))
        for codec in Codec
        if codec is not Codec.NONE
        for body in bodies
    ]


# --- what coordinators read again -----------------------------------------------------------------------------------

TOPICS = ("__consumer_offsets", "__transaction_state")
NO_TOPICS = SimpleNamespace(image=ClusterImage(""))


def replay_records(data: bytes) -> None:
    """Replay keys and values as a coordinator that loads a partition does: each may be refused, none breaks the next."""
    if not data:
        return
    shard: GroupShard | TransactionShard = (
        GroupShard(GroupSettings(), NO_TOPICS)
        if data[0] % 2 == 0
        else TransactionShard(TransactionSettings())
    )
    at = 1
    while at + 4 <= len(data):
        key_size, value_size = struct.unpack_from(">HH", data, at)
        key = data[at + 4 : at + 4 + key_size]
        value = data[at + 4 + key_size : at + 4 + key_size + value_size]
        at += 4 + key_size + value_size
        try:
            shard.replay(key, value or None, loading=True)
        except DecodeError:
            continue


def _coordinator_records() -> list[bytes]:
    records = []
    for number, topic in enumerate(TOPICS):
        everything = b""
        for type_id in registry.record_type_ids(topic):
            kind = registry.record_type(topic, type_id)
            for version in range(kind.value.min_version, kind.value.max_version + 1):
                key = kind.encode_key(kind.key.message())
                value = kind.encode_value(kind.value.message(), version)
                data = struct.pack(">HH", len(key), len(value)) + key + value
                records.append(bytes((number,)) + data)
                everything += data
        records.append(bytes((number,)) + everything)
    return records


# --- a data dir after a crash ---------------------------------------------------------------------------------------


def recover(data: bytes) -> None:
    """Start on a data dir of which six bytes each damage one place: file, way, position, value.

    The start is refused with a sentence, or the log can be read, appended to, and opened again with the same end.
    """
    from tests.property.log.test_flipped_bytes import files, opened
    from tests.support.logs import append, read_all
    from tests.support.logs import batch as records

    disk = _data_dir().fork()
    kept = files(disk.root)
    paths = sorted(kept)
    for start in range(0, min(len(data), 60) - 5, 6):
        which, way, position, value = struct.unpack_from(">BBHH", data, start)
        content = kept[paths[which % len(paths)]].content
        at = position % (len(content) + 1)
        if way % 4 == 0:
            content[at : at + 1] = value.to_bytes(2, "big")[1:]
        elif way % 4 == 1:
            del content[at:]
        elif way % 4 == 2:
            content[at:at] = bytes(value % 300)
        else:
            content[at : at + 2] = value.to_bytes(2, "big")
    try:
        broker, log = opened(disk)
    except StorageError as error:
        assert str(error)
        return
    except AssertionError:
        return  # the log is not there any more: its log dir or its name is not
    with suppress(RecordsError, StorageError):
        read_all(log)
    end_offset = append(log, records(b"more"), epoch=99).base_offset + 1
    broker.crash()
    disk.locks.clear()
    _, log = opened(disk)
    assert log.log_end_offset == end_offset, f"{log.log_end_offset} after another start, not {end_offset}"


@cache
def _data_dir() -> MemoryDisk:
    from tests.property.log.test_flipped_bytes import written

    return written(clean=False)


def _damages() -> list[bytes]:
    draw = random.Random(1)
    return [draw.randbytes(6 * count) for count in (1, 1, 1, 2, 3, 10) for _ in range(5)]


# --- settings -------------------------------------------------------------------------------------------------------


def read_settings(data: bytes) -> None:
    """Read a file of settings: each value is accepted, or rejected with the setting's name."""
    text = data.decode(errors="replace")
    try:
        properties = parse_properties(text)
    except SettingError as error:
        assert "line " in str(error)
        return
    assert parse_properties(format_properties(properties)) == properties, (
        "settings are not read again as they were written"
    )
    for name, value in properties.items():
        try:
            BrokerConfig({name: value})
        except SettingError as error:
            assert name in str(error) or len(name) > 200, f"{error} does not name {name}"


def _settings() -> list[bytes]:
    return [
        b"# a comment\nlisteners=PLAINTEXT://127.0.0.1:9092,SSL://:9093\nlog.dirs = /a,/b\\\n  ,/c\n",
        b"num.partitions:3\nlog.retention.hours 24\n!x\ncompression.type=zstd\n\\u0041=\\t\\n",
        b"listener.security.protocol.map=A:PLAINTEXT,B:SASL_SSL\nadvertised.listeners=A://h:1,B://[::1]:2\n",
        b'listener.name.a.scram-sha-256.sasl.jaas.config=x required a="b";\nsuper.users=User:a;User:b\n',
        b"max.connections.per.ip.overrides=127.0.0.1:5,::1:9\nquota.window.num=11\nsegment.bytes=1e9\n",
    ]


def read_jaas(data: bytes) -> None:
    """Read a login configuration; an error does not repeat what may be a password."""
    try:
        entry = parse_jaas(data.decode(errors="replace"))
    except JaasError:
        return
    assert entry.module


def _jaas() -> list[bytes]:
    return [
        b'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b" user_a="b";',
        b"a.B sufficient // comment\n x='1' /* y */ z=\"\\n\\101\";",
        b"X required;",
    ]


PURE = [
    Pure("decode", "requests and responses of every version, decoded", decode_message, _messages),
    Pure(
        "records",
        "record batches and message sets, as a produce request brings them",
        append_records,
        _batches,
    ),
    Pure("compression", "compressed streams of every codec", decompress_stream, _streams),
    Pure(
        "coordinators",
        "records of __consumer_offsets and __transaction_state",
        replay_records,
        _coordinator_records,
    ),
    Pure("recovery", "a data dir after a crash, damaged in some places", recover, _damages),
    Pure("settings", "files of settings", read_settings, _settings),
    Pure("jaas", "login configurations", read_jaas, _jaas),
]


# --- run at random --------------------------------------------------------------------------------------------------


def corpus_of(name: str) -> list[bytes]:
    """Return the inputs that are kept for a target: those that have shown something, or reached what others do not."""
    directory = CORPUS / name
    return [path.read_bytes() for path in sorted(directory.iterdir())] if directory.is_dir() else []


def changed(data: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    """Return an input with some bytes, numbers or stretches changed, or with a part of another one."""
    copy = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        kind = rng.randrange(9)
        at = rng.randrange(len(copy) + 1)
        if kind == 0 and at < len(copy):
            copy[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            copy[at : at + 1] = rng.randbytes(1)
        elif kind == 2:
            copy[at : at + 4] = struct.pack(">I", rng.choice(EXTREMES) & 0xFFFFFFFF)
        elif kind == 3:
            copy[at : at + 2] = struct.pack(">H", rng.choice((0, 1, 2, len(copy), 0x7FFF, 0xFFFF)))
        elif kind == 4:
            copy[at : at + 1] = rng.choice(
                (b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x80\x10", b"\x01", b"\x00", b"\xff" * 11)
            )
        elif kind == 5:
            del copy[at : at + rng.choice((1, 2, 4, 30))]
        elif kind == 6:
            copy[at:at] = rng.randbytes(rng.choice((1, 2, 9, 100)))
        elif kind == 7:
            end = min(at + rng.randrange(1, 60), len(copy))
            copy[at:at] = copy[at:end] * rng.choice((1, 1, 3, 50))
        else:
            other = rng.choice(others)
            start = rng.randrange(len(other) + 1)
            copy[at : at + rng.randrange(40)] = other[start : start + rng.randrange(1, 60)]
    return bytes(copy)


def _runner(pure: Pure) -> tuple[RunRound, Callable[[], list]]:  # type: ignore[type-arg]
    seeds = [*pure.seeds(), *corpus_of(pure.name)]
    growth = Growth()

    def run_round(rng: random.Random, count: int) -> Round:
        with quiet_logs():
            return rounds(rng, count)

    def rounds(rng: random.Random, count: int) -> Round:
        result = Round()
        for number in range(count):
            data = rng.choice(seeds) if number % 100 else rng.randbytes(rng.randrange(300))
            if rng.random() < 0.98:
                data = changed(data, rng, seeds)
            result.inputs += 1
            try:
                pure.check(data)
            except Exception as error:
                result.found(f"{type(error).__name__}: {str(error)[:300]}", data)
        growth.look()
        return result

    return run_round, growth.findings


def _target(pure: Pure) -> Target:
    return Target(pure.name, pure.takes, lambda: _runner(pure))


TARGETS = [_target(pure) for pure in PURE]
