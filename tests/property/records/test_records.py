"""Records of any shape survive any format, and no bytes do more harm than a clear error."""

import struct

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from barnabas.records import batch, building, convert, legacy, varint
from barnabas.records.batch import TimestampType
from barnabas.records.compression import Codec, compress, decompress
from barnabas.records.errors import InvalidRecordsError, RecordsError
from barnabas.records.record import Record, encode_body, iter_body
from barnabas.records.rules import AppendRules
from barnabas.records.scan import BodyScan, scan_body
from tests.support.conversion import up_convert
from tests.support.whole_steps import down_convert, validate_produce

NOW = 1_700_000_000_000
CODECS = st.sampled_from(list(Codec))
OLD_CODECS = st.sampled_from([Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
FIELDS = st.none() | st.binary(max_size=40) | st.integers(0, 300).map(lambda size: b"z" * size)
TIMESTAMPS = st.integers(NOW - 100, NOW + 100) | st.integers(-1, 2**60)
HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3)


@st.composite
def record_lists(draw, headers=HEADERS, gaps=True, min_size=1):
    count = draw(st.integers(min_size, 12) | st.integers(60, 140))
    if draw(st.booleans()):  # all alike, as from most producers
        key, value, timestamp = draw(FIELDS), draw(FIELDS), draw(TIMESTAMPS)
        step = draw(st.integers(0, 200))
        return [Record(at, timestamp + at * step, key, value) for at in range(count)]
    offset = draw(st.integers(0, 2**40)) if gaps else 0
    records = []
    for _ in range(min(count, 12)):
        records.append(Record(offset, draw(TIMESTAMPS), draw(FIELDS), draw(FIELDS), draw(headers)))
        offset += draw(st.integers(1, 100)) if gaps else 1
    return records


def without_headers(records, magic):
    return [Record(r.offset, r.timestamp if magic else -1, r.key, r.value) for r in records]


def assert_clear(error):
    assert error.code
    assert error.message


def read_all(raw):
    records = []
    for pos, header in batch.iter_batches(raw):
        assert batch.check_crc(raw, pos, header)
        records += (batch if header.magic == 2 else legacy).read_records(raw, pos)
    assert batch.whole_size(raw) == len(raw)
    return records


@given(st.integers(-(2**63), 2**63 - 1))
def test_varints(value):
    raw = varint.encode_varint(value)
    zigzag = value << 1 if value >= 0 else -2 * value - 1
    assert varint.read_unsigned(raw, 0, len(raw), 64) == (zigzag, len(raw))


@given(st.binary(max_size=12))
def test_any_bytes_as_varint(raw):
    for bits in (32, 64):
        try:
            number, end = varint.read_unsigned(raw, 0, len(raw), bits)
        except InvalidRecordsError:
            continue
        assert 0 <= number < 1 << bits
        assert 0 < end <= len(raw)


@given(record_lists(), CODECS, st.none() | st.integers(0, 2**50))
def test_batches_round_trip(records, codec, delete_horizon_ms):
    raw = building.encode_batch(records, codec=codec, delete_horizon_ms=delete_horizon_ms)
    assert read_all(raw) == records
    header = batch.read_header(raw)
    assert (header.codec, header.size, header.records_count) == (codec, len(raw), len(records))
    assert header.max_timestamp == max(record.timestamp for record in records)
    assert header.delete_horizon_ms == delete_horizon_ms
    assert (
        building.assemble_batch(header, encode_body(records, header.base_offset, header.base_timestamp))
        == raw
    )


@given(record_lists(), st.integers(0, 1), OLD_CODECS)
def test_message_sets_round_trip(records, magic, codec):
    raw = legacy.encode_message_set(records, magic=magic, codec=codec)
    assert read_all(raw) == without_headers(records, magic)


@given(record_lists(), st.integers(0, 1), OLD_CODECS, st.sampled_from(list(TimestampType)[1:]))
def test_down_and_up_again(records, magic, codec, timestamp_type):
    raw = building.encode_batch(records, codec=codec, timestamp_type=timestamp_type, max_timestamp=NOW)
    down = down_convert(raw, magic, bytes_max=1 << 30)
    assert read_all(down) == without_headers(batch.read_records(raw), magic)
    up = up_convert(down, convert.new_header(7, codec=codec))
    expected = without_headers(read_all(down), 1)
    for offset, record in enumerate(expected, 7):
        record.offset = offset
    assert read_all(up) == expected


@given(record_lists(gaps=False), CODECS, CODECS, st.sampled_from(["full", "header"]), st.booleans())
def test_a_leader_keeps_what_it_takes(records, source, target, mode, append_time):
    rules = AppendRules(
        compression_type="producer" if source is target else target.name.lower(),
        record_validation=mode,
        timestamp_type="LogAppendTime" if append_time else "CreateTime",
        message_timestamp_after_max_ms=2**62,
    )
    raw = bytearray(
        building.encode_batch(records, codec=source, producer_id=5, producer_epoch=1, base_sequence=3)
    )
    result = validate_produce(raw, api_version=9, config=rules, now_ms=NOW, first_offset=99, leader_epoch=2)
    kept = batch.read_records(result.records)
    assert [record.offset for record in kept] == list(range(99, 99 + len(records)))
    assert [(r.key, r.value, r.headers) for r in kept] == [(r.key, r.value, r.headers) for r in records]
    assert [r.timestamp for r in kept] == [NOW if append_time else r.timestamp for r in records]
    header = batch.read_header(result.records)
    assert result.batches == [header]
    assert batch.check_crc(result.records, 0, header)
    assert (header.codec, header.base_sequence, header.last_sequence) == (target, 3, 2 + len(records))


def decode(body, count, base_timestamp):
    """Say with the decoder what the scan must say."""
    records = list(iter_body(body, count, 0, base_timestamp))
    timestamps = [record.timestamp for record in records]
    consecutive = [record.offset for record in records] == list(range(count))
    nulls = sum(record.key is None for record in records)
    return BodyScan(min(timestamps), max(timestamps), nulls, consecutive)


def outcome(reader, *args):
    try:
        return reader(*args)
    except InvalidRecordsError:
        return "refused"


@given(record_lists(gaps=False), st.data())
@settings(max_examples=400)
def test_the_scan_accepts_what_the_decoder_accepts(records, data):
    base = records[0].timestamp
    body = encode_body(records, 0, base)
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(body) - 1))
        how = data.draw(st.sampled_from(["set", "insert", "delete", "copy"]))
        if how == "set":
            body[at] = data.draw(st.integers(0, 255))
        elif how == "insert":
            body.insert(at, data.draw(st.integers(0, 255)))
        elif how == "delete" and len(body) > 1:
            del body[at]
        else:
            body[at:at] = body[at : at + data.draw(st.integers(1, 40))]
    count = len(records) + data.draw(st.sampled_from([0, 0, 0, 1, -1]))
    if count > 0:
        assert outcome(scan_body, bytes(body), count, base) == outcome(decode, bytes(body), count, base)


@given(st.binary(max_size=300), st.integers(1, 40), st.integers(-(2**63), 2**63 - 1))
@example(b"\x0c\0\0\0\0\0\0", 1, 2**63 - 1)
@example(b"\x0c\0\x02\0\0\0\0", 1, 2**63 - 1)
@example(b"\x0c\0\x01\0\0\0\0", 1, -(2**63))
def test_any_bytes_as_body(body, count, base_timestamp):
    assert outcome(scan_body, body, count, base_timestamp) == outcome(decode, body, count, base_timestamp)


@given(st.binary(max_size=200), st.sampled_from(list(Codec)[1:]), st.sampled_from([0, 1, 2]))
def test_any_bytes_as_compressed_stream(raw, codec, magic):
    try:
        assert len(decompress(codec, raw, magic=magic, bytes_max=5_000)) <= 5_000
    except RecordsError as error:
        assert_clear(error)


@given(st.binary(max_size=3_000), st.sampled_from(list(Codec)[1:]), st.data())
@settings(max_examples=300)
def test_damaged_compressed_streams(plain, codec, data):
    raw = bytearray(compress(codec, plain))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        assert len(decompress(codec, raw, magic=2, bytes_max=10_000)) <= 10_000
    except RecordsError as error:
        assert_clear(error)


def resealed(raw):
    """Give each batch or message the right checksum, as a client does that does not know better."""
    for pos, header in list(batch.iter_batches(raw)):
        at = batch.CRC_OFFSET if header.magic == 2 else batch.LEGACY_CRC_OFFSET
        struct.pack_into(">I", raw, pos + at, batch.compute_crc(raw, pos, header))
    return raw


@pytest.mark.parametrize("mode", ["full", "header"])
@given(st.data(), record_lists(gaps=False), st.integers(0, 2), CODECS, st.booleans())
@settings(max_examples=300)
def test_damaged_produce_requests(mode, data, records, magic, codec, is_resealed):
    """Damage is refused with a code, or harmless: what was taken can be read by all readers."""
    if magic == 2:
        raw = bytearray(building.encode_batch(records, codec=codec))
    else:
        raw = bytearray(legacy.encode_message_set(records, magic=magic, codec=min(codec, Codec.LZ4)))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(raw) - 1) | st.integers(0, min(60, len(raw) - 1)))
        raw[at] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del raw[data.draw(st.integers(0, len(raw))) :]
    try:
        if is_resealed:
            resealed(raw)
        result = validate_produce(
            raw,
            api_version=data.draw(st.sampled_from([0, 1, 2, 3, 6, 9, 13])),
            config=AppendRules(
                record_validation=mode,
                compacted=data.draw(st.booleans()),
                compression_type=data.draw(st.sampled_from(["producer", "gzip", "uncompressed"])),
                decompressed_bytes_max=1 << 20,
            ),
            now_ms=NOW,
            first_offset=1_000,
            leader_epoch=1,
        )
    except RecordsError as error:
        assert_clear(error)
        return
    assert len(result.records) == sum(header.size for header in result.batches)
    for header in result.batches:
        assert batch.read_header(result.records) == header
        assert batch.check_crc(result.records, 0, header)
        if mode == "full":
            offsets = [record.offset for record in batch.read_records(result.records)]
            assert offsets == list(range(result.base_offset, result.last_offset + 1))
            assert len(offsets) == result.record_count


@given(st.data(), record_lists(), st.integers(0, 2), CODECS)
def test_one_flipped_byte_never_goes_unseen(data, records, magic, codec):
    if magic == 2:
        raw, first = bytearray(building.encode_batch(records, codec=codec)), batch.MAGIC_OFFSET
    else:
        raw, first = bytearray(legacy.encode_message_set(records[:1], magic=magic)), batch.LEGACY_CRC_OFFSET
    at = data.draw(st.integers(8, 11) | st.integers(first, len(raw) - 1))
    raw[at] ^= data.draw(st.integers(1, 255))
    try:
        batches = list(batch.iter_batches(raw))
    except RecordsError:
        return
    assert not any(batch.check_crc(raw, pos, header) for pos, header in batches)


@given(record_lists(), st.integers(0, 2), CODECS, st.data())
def test_cut_anywhere(records, magic, codec, data):
    if magic == 2:
        raw = building.encode_batch(records, codec=codec)
    else:
        raw = legacy.encode_message_set(records, magic=magic, codec=min(codec, Codec.LZ4))
    cut = raw[: data.draw(st.integers(0, len(raw) - 1))]
    whole = batch.whole_size(cut)
    assert whole < len(raw)
    assert [header.size for _, header in batch.iter_batches(cut)] == [
        header.size for pos, header in batch.iter_batches(raw) if pos + header.size <= whole
    ]


@given(st.binary(max_size=400))
def test_any_bytes_as_records(raw):
    try:
        entries = list(batch.iter_batches(raw))
    except RecordsError:
        return
    for pos, header in entries:
        assert pos + header.size <= len(raw)
        batch.check_crc(raw, pos, header)
        try:
            (batch if header.magic == 2 else legacy).read_records(raw, pos, decompressed_bytes_max=10_000)
        except RecordsError as error:
            assert_clear(error)
