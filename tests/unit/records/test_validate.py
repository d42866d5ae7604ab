"""A leader checks, patches or refuses the records of a produce request."""

import struct
from dataclasses import replace

import lz4.frame
import pytest

from barnabas.records import batch, building, control, legacy
from barnabas.records.batch import TimestampType, read_records
from barnabas.records.compression import Codec, compress
from barnabas.records.errors import Code, InvalidRecordsError, RecordError, RecordsError
from barnabas.records.record import Record
from barnabas.records.rules import RECORD_ERRORS_MAX, AppendRules
from barnabas.records.validate import Origin
from barnabas.records.validated import ValidatedBatches
from tests.support.whole_steps import validate_produce

NOW = 1_700_000_000_000
RECORDS = [Record(at, NOW - 10 + at, b"key-%d" % at, b"v" * at, [("h", b"x")] * (at % 2)) for at in range(12)]
FULL = AppendRules()
HEADER_ONLY = AppendRules(record_validation="header")
LARGE = AppendRules(max_message_bytes=10_000_000, message_timestamp_after_max_ms=2**62)
MODES = pytest.mark.parametrize("rules", [FULL, HEADER_ONLY], ids=["full", "header"])


def validate(buf, rules=FULL, api_version=9, **kwargs) -> ValidatedBatches:
    kwargs = {"now_ms": NOW, "first_offset": 500, "leader_epoch": 8} | kwargs
    return validate_produce(buf, api_version=api_version, config=rules, **kwargs)


def refused(buf, rules=FULL, api_version=9, **kwargs) -> RecordsError:
    with pytest.raises(RecordsError) as caught:
        validate(buf, rules, api_version, **kwargs)
    assert caught.value.message
    return caught.value


def with_header(raw, **fields):
    """Change fields of a batch's header and give it the right checksum again."""
    header = batch.read_header(raw)
    body = raw[batch.HEADER_SIZE :]
    codec = header.codec
    for name, value in fields.items():
        setattr(header, name, value)
    attributes, header.attributes = header.attributes, header.attributes & ~batch.CODEC_MASK
    out = bytearray(building.assemble_batch(header, body))
    if "attributes" not in fields:
        attributes = attributes & ~batch.CODEC_MASK | codec
    struct.pack_into(">h", out, batch.ATTRIBUTES_OFFSET, attributes)
    header = batch.read_header(out)
    struct.pack_into(">I", out, batch.CRC_OFFSET, batch.compute_crc(out, 0, header))
    return out


def shifted(records, first_offset=500):
    return [Record(first_offset + at, r.timestamp, r.key, r.value, r.headers) for at, r in enumerate(records)]


@MODES
@pytest.mark.parametrize("codec", list(Codec))
def test_good_batch_is_patched_where_it_lies(codec, rules):
    raw = bytearray(
        building.encode_batch(RECORDS, codec=codec, producer_id=9, producer_epoch=1, base_sequence=70)
    )
    before = bytes(raw)
    result = validate(memoryview(raw), rules)
    assert batch.read_records(raw) == shifted(RECORDS)
    assert bytes(result.records) == raw
    assert raw[batch.MAGIC_OFFSET :] == before[batch.MAGIC_OFFSET :]
    header = batch.read_header(raw)
    assert result == ValidatedBatches(result.records, 500, 511, NOW + 1, 511, -1, 12, [header])
    assert (header.leader_epoch, header.producer_id, header.last_sequence) == (8, 9, 81)


def test_read_only_memory_is_copied():
    raw = building.encode_batch(RECORDS)
    for buf in (raw, memoryview(raw)):
        assert batch.read_records(validate(buf).records) == shifted(RECORDS)
    assert batch.read_records(raw) == RECORDS


@MODES
@pytest.mark.parametrize("codec", list(Codec))
def test_log_append_time(codec, rules):
    rules = AppendRules(timestamp_type="LogAppendTime", record_validation=rules.record_validation)
    result = validate(bytearray(building.encode_batch(RECORDS, codec=codec)), rules)
    assert {record.timestamp for record in batch.read_records(result.records)} == {NOW}
    assert (result.log_append_time_ms, result.max_timestamp, result.offset_of_max_timestamp) == (
        NOW,
        NOW,
        511,
    )
    assert batch.read_header(result.records) == result.batches[0]
    assert batch.check_crc(result.records, 0, result.batches[0])


@MODES
@pytest.mark.parametrize("source", list(Codec))
@pytest.mark.parametrize("target", list(Codec))
@pytest.mark.parametrize("timestamp_type", ["CreateTime", "LogAppendTime"])
def test_topic_with_its_own_codec(source, target, timestamp_type, rules):
    name = "uncompressed" if target is Codec.NONE else target.name.lower()
    rules = AppendRules(
        compression_type=name, timestamp_type=timestamp_type, record_validation=rules.record_validation
    )
    raw = building.encode_batch(
        RECORDS, codec=source, producer_id=9, producer_epoch=1, base_sequence=70, transactional=True
    )
    result = validate(bytearray(raw), rules)
    header = batch.read_header(result.records)
    assert result.batches == [header]
    assert batch.check_crc(result.records, 0, header)
    assert (header.codec, header.is_transactional, header.producer_id, header.last_sequence) == (
        target,
        True,
        9,
        81,
    )
    expected = shifted(RECORDS)
    if timestamp_type == "LogAppendTime":
        for record in expected:
            record.timestamp = NOW
    assert batch.read_records(result.records) == expected


def test_level_is_used_for_the_topics_codec_only():
    records = [Record(0, NOW, None, b"".join(b"%d," % (at * at) for at in range(5_000)))]
    raw = building.encode_batch(records)
    sizes = [
        len(validate(raw, AppendRules(compression_type="gzip", compression_level=level)).records)
        for level in (1, 9)
    ]
    assert sizes[0] > sizes[1]
    assert validate(raw, AppendRules(compression_level=9)).batches[0].codec == Codec.NONE


@pytest.mark.parametrize("api_version", [3, 5, 6])
def test_zstd_before_produce_v7(api_version):
    raw = building.encode_batch(RECORDS, codec=Codec.ZSTD)
    assert refused(raw, api_version=api_version).code == Code.UNSUPPORTED_COMPRESSION_TYPE
    assert validate(raw, api_version=7).record_count == 12


@pytest.mark.parametrize("api_version", [3, 9, 13])
def test_what_produce_takes_since_v3(api_version):
    good = building.encode_batch(RECORDS)
    old = legacy.encode_message_set(RECORDS, magic=1)
    for buf in (b"", good[:-1], good[:30], old, good + good):
        assert refused(buf, api_version=api_version).code == Code.INVALID_RECORD
    assert validate(good + good[:-1], api_version=api_version).records == validate(good).records


@pytest.mark.parametrize("api_version", [0, 1, 2])
def test_old_produce_without_whole_messages_appends_nothing(api_version):
    old = legacy.encode_message_set(RECORDS[:1], magic=1)
    for buf in (b"", old[:-1], old[:5]):
        result = validate(buf, api_version=api_version)
        assert (result.base_offset, result.record_count, result.batches) == (-1, 0, [])
        assert len(result.records) == 0


@MODES
def test_wrong_checksum(rules):
    raw = bytearray(building.encode_batch(RECORDS))
    raw[-3] ^= 1
    assert refused(raw, rules).code == Code.CORRUPT_MESSAGE
    old = bytearray(legacy.encode_message_set(RECORDS, magic=1))
    old[-1] ^= 1
    assert refused(old, rules, 2).code == Code.CORRUPT_MESSAGE


@MODES
@pytest.mark.parametrize("api_version", [0, 2, 3, 9])
@pytest.mark.parametrize(("at", "value"), [(16, 3), (16, 0xFF), (8, 0xFF), (11, 13)])
def test_impossible_magic_or_length(api_version, rules, at, value):
    raw = bytearray(building.encode_batch(RECORDS))
    raw[8:12] = bytes(4) if at == 11 else raw[8:12]
    raw[at] = value
    assert refused(raw, rules, api_version).code == Code.CORRUPT_MESSAGE


@MODES
@pytest.mark.parametrize(
    "fields",
    [
        {"base_offset": 1},
        {"records_count": 0},
        {"records_count": -1},
        {"records_count": 11},
        {"records_count": 13},
        {"records_count": 0, "last_offset_delta": -1},
        {"last_offset_delta": -1},
        {"last_offset_delta": 10},
        {"last_offset_delta": 2**31 - 1},
        {"attributes": batch.CONTROL_BIT},
        {"attributes": batch.CONTROL_BIT | batch.TRANSACTIONAL_BIT, "producer_id": 1},
        {"producer_id": 1, "base_sequence": -1},
        {"producer_id": 1, "base_sequence": -5},
    ],
    ids=str,
)
def test_headers_that_producers_must_not_send(fields, rules):
    assert refused(with_header(building.encode_batch(RECORDS), **fields), rules).code == Code.INVALID_RECORD


def as_another_broker_has_it(codec=Codec.NONE, bits=batch.TIMESTAMP_TYPE_BIT, **fields):
    return with_header(building.encode_batch(RECORDS, codec=codec), attributes=bits | codec, **fields)


OLD_WITH_APPEND_TIME = {
    "timestamp_type": TimestampType.LOG_APPEND_TIME, "append_timestamp": NOW,
}  # fmt: skip


@MODES
def test_where_the_broker_sets_the_time_a_producer_must_not(rules):
    rules = replace(rules, timestamp_type="LogAppendTime")
    assert refused(as_another_broker_has_it(), rules).code == Code.INVALID_TIMESTAMP
    old = legacy.encode_message_set(RECORDS, magic=1, **OLD_WITH_APPEND_TIME)
    assert refused(old, rules, 2).code == Code.INVALID_TIMESTAMP


@MODES
@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize(
    "bits",
    [batch.TIMESTAMP_TYPE_BIT, batch.DELETE_HORIZON_BIT, batch.TIMESTAMP_TYPE_BIT | batch.DELETE_HORIZON_BIT],
)
def test_fields_of_another_broker_are_cleared_in_a_batch(rules, codec, bits):
    raw = as_another_broker_has_it(codec, bits)
    result = validate(raw, rules)
    (header,) = result.batches
    assert header.attributes == codec
    assert batch.check_crc(result.records, 0, header)
    assert bytes(result.records[batch.HEADER_SIZE :]) == bytes(raw[batch.HEADER_SIZE :])
    assert [r.timestamp for r in read_records(result.records, 0)] == [r.timestamp for r in RECORDS]
    with_horizon = as_another_broker_has_it(codec, batch.DELETE_HORIZON_BIT)
    assert validate(with_horizon, replace(rules, timestamp_type="LogAppendTime")).batches[0].attributes == (
        codec | batch.TIMESTAMP_TYPE_BIT
    )


@MODES
@pytest.mark.parametrize("max_timestamp", [-1, NOW + 10**10])
def test_a_time_of_append_that_no_record_may_have_is_refused(rules, max_timestamp):
    raw = as_another_broker_has_it(max_timestamp=max_timestamp)
    assert refused(raw, rules).code == Code.INVALID_TIMESTAMP


@MODES
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_old_messages_with_a_time_of_append_have_that_time(rules, codec):
    old = legacy.encode_message_set(RECORDS, magic=1, codec=codec, **OLD_WITH_APPEND_TIME)
    result = validate(old, rules, 2)
    assert result.batches[0].attributes == codec
    assert {record.timestamp for record in read_records(result.records, 0)} == {NOW}


@MODES
@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codec(codec, rules):
    raw = with_header(building.encode_batch(RECORDS), attributes=codec)
    assert refused(raw, rules).code == Code.UNSUPPORTED_COMPRESSION_TYPE


@pytest.mark.parametrize("codec", list(Codec)[1:])
def test_broken_stream_under_a_good_checksum(codec):
    raw = with_header(building.encode_batch(RECORDS), attributes=codec)
    assert refused(raw).code == Code.INVALID_RECORD


def test_lz4_blocks_that_java_cannot_read():
    records = [Record(0, NOW, None, b"0123456789" * 10_000)]  # in one block there is nothing to link
    plain = building.encode_batch(records)
    body = lz4.frame.compress(
        plain[batch.HEADER_SIZE :], block_linked=True, block_size=lz4.frame.BLOCKSIZE_MAX64KB
    )
    raw = with_header(plain[: batch.HEADER_SIZE] + body, attributes=Codec.LZ4)
    assert batch.read_records(raw) == records
    assert "LZ4" in refused(raw).message


@MODES
def test_sizes(rules):
    raw = building.encode_batch(RECORDS)
    mode = rules.record_validation
    assert validate(raw, AppendRules(max_message_bytes=len(raw), record_validation=mode)).record_count == 12
    too_small = AppendRules(max_message_bytes=len(raw) - 1, record_validation=mode)
    assert refused(raw, too_small).code == Code.MESSAGE_TOO_LARGE
    old = legacy.encode_message_set(RECORDS, magic=1)
    largest = max(header.size for _, header in batch.iter_batches(old))
    assert refused(old, AppendRules(max_message_bytes=largest - 1), 2).code == Code.MESSAGE_TOO_LARGE
    assert validate(raw, AppendRules(segment_bytes=len(raw), record_validation=mode)).record_count == 12
    segment = AppendRules(segment_bytes=len(raw) - 1, record_validation=mode)
    assert refused(raw, segment).code == Code.RECORD_LIST_TOO_LARGE


def test_size_counts_again_after_the_codec_changed():
    records = [Record(0, NOW, None, bytes(10_000))]
    raw = building.encode_batch(records, codec=Codec.GZIP)
    rules = AppendRules(compression_type="uncompressed", max_message_bytes=5_000)
    assert len(raw) < 5_000
    assert refused(raw, rules).code == Code.MESSAGE_TOO_LARGE


@MODES
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("api_version", [2, 9])
def test_keys_of_compacted_topics(rules, codec, api_version):
    rules = AppendRules(compacted=True, record_validation=rules.record_validation)
    records = [
        Record(r.offset, r.timestamp, r.key if at % 3 else None, r.value) for at, r in enumerate(RECORDS)
    ]
    encode = building.encode_batch
    if api_version == 2:

        def encode(records, codec):
            return legacy.encode_message_set(records, magic=1, codec=codec)

    error = refused(encode(records, codec=codec), rules, api_version)
    assert isinstance(error, InvalidRecordsError)
    assert error.code == Code.INVALID_RECORD
    assert [record_error.batch_index for record_error in error.record_errors] == [0, 3, 6, 9]
    assert validate(encode(RECORDS, codec=codec), rules, api_version).record_count == 12


@MODES
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("api_version", [2, 9])
def test_timestamps_out_of_range(rules, codec, api_version):
    rules = AppendRules(
        message_timestamp_before_max_ms=100,
        message_timestamp_after_max_ms=50,
        record_validation=rules.record_validation,
    )
    encode = building.encode_batch
    if api_version == 2:

        def encode(records, codec):
            return legacy.encode_message_set(records, magic=1, codec=codec)

    fine = [Record(at, ts, b"k", b"v") for at, ts in enumerate((NOW - 100, NOW, NOW + 50, -1))]
    assert validate(encode(fine, codec=codec), rules, api_version).max_timestamp == NOW + 50
    records = [Record(at, ts, b"k", b"v") for at, ts in enumerate((NOW - 101, NOW, NOW + 51, -1, 0, -2))]
    error = refused(encode(records, codec=codec), rules, api_version)
    assert isinstance(error, InvalidRecordsError)
    assert error.code == Code.INVALID_TIMESTAMP
    assert [record_error.batch_index for record_error in error.record_errors] == [0, 2, 4, 5]
    append_time = AppendRules(timestamp_type="LogAppendTime", message_timestamp_before_max_ms=1)
    assert validate(encode(records, codec=codec), append_time, api_version).max_timestamp == NOW


def test_full_check_finds_a_header_that_hides_a_timestamp():
    records = [Record(0, NOW, None, b""), Record(1, NOW + 10**10, None, b"")]
    raw = with_header(building.encode_batch(records), max_timestamp=NOW)
    error = refused(raw)
    assert isinstance(error, InvalidRecordsError)
    assert [record_error.batch_index for record_error in error.record_errors] == [1]
    assert validate(raw, HEADER_ONLY).max_timestamp == NOW


def test_missing_key_and_bad_timestamp_are_both_told():
    records = [Record(0, 5, b"k", b""), Record(1, NOW, None, b"")]
    rules = AppendRules(compacted=True, message_timestamp_before_max_ms=100)
    error = refused(building.encode_batch(records), rules)
    assert isinstance(error, InvalidRecordsError)
    assert error.code == Code.INVALID_TIMESTAMP
    assert [record_error.batch_index for record_error in error.record_errors] == [0, 1]
    assert all(
        isinstance(record_error, RecordError) and record_error.message for record_error in error.record_errors
    )


def test_record_errors_are_limited():
    records = [Record(at, NOW, None, b"") for at in range(3 * RECORD_ERRORS_MAX)]
    error = refused(building.encode_batch(records), AppendRules(compacted=True))
    assert isinstance(error, InvalidRecordsError)
    assert len(error.record_errors) == RECORD_ERRORS_MAX
    assert len(error.message) < 1_000


def test_a_wrong_max_timestamp_is_put_right():
    for claimed in (NOW + 20, 0, -1):
        raw = with_header(building.encode_batch(RECORDS), max_timestamp=claimed)
        result = validate(raw)
        header = batch.read_header(result.records)
        assert header.max_timestamp == result.max_timestamp == NOW + 1
        assert batch.check_crc(result.records, 0, header)


def test_batch_without_timestamps():
    result = validate(building.encode_batch([Record(0, -1, b"k", b"v")]))
    assert (result.max_timestamp, result.offset_of_max_timestamp) == (-1, -1)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
@pytest.mark.parametrize("deltas", [(0, 2, 1), (1, 2, 3), (0, 0, 0), (0, 1, 5)])
def test_offsets_that_do_not_count_up_are_rewritten(deltas, codec):
    """Kafka does so for compressed batches and leaves the others as they are, to the harm of consumers."""
    records = [Record(delta, NOW, b"%d" % at, None) for at, delta in enumerate(deltas)]
    raw = with_header(
        building.encode_batch(records, base_offset=0, last_offset=2 + 5, codec=codec), last_offset_delta=2
    )
    result = validate(raw)
    assert [(r.offset, r.key) for r in batch.read_records(result.records)] == [
        (500, b"0"),
        (501, b"1"),
        (502, b"2"),
    ]
    assert result.batches == [batch.read_header(result.records)]
    assert batch.check_crc(result.records, 0, result.batches[0])


def test_malformed_records_are_found_by_the_full_check_only():
    raw = bytearray(building.encode_batch(RECORDS))
    raw[-2] = 0x08  # the last header's value becomes a longer one
    header = batch.read_header(raw)
    struct.pack_into(">I", raw, batch.CRC_OFFSET, batch.compute_crc(raw, 0, header))
    assert refused(bytes(raw)).code == Code.INVALID_RECORD
    assert validate(bytes(raw), HEADER_ONLY).record_count == 12
    assert (
        refused(bytes(raw), AppendRules(record_validation="header", compacted=True)).code
        == Code.INVALID_RECORD
    )


def test_coordinators_write_control_batches():
    marker = control.encode_end_marker(
        commit=False, producer_id=3, producer_epoch=1, coordinator_epoch=2, timestamp_ms=NOW
    )
    rules = AppendRules(compacted=True, compression_type="zstd")
    assert refused(marker, rules).code == Code.INVALID_RECORD
    result = validate(marker, rules, origin=Origin.COORDINATOR)
    assert (result.base_offset, result.last_offset) == (500, 500)
    assert batch.read_header(result.records).is_control
    assert batch.read_header(result.records).codec == Codec.NONE


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("target", ["producer", "uncompressed", "zstd"])
@pytest.mark.parametrize("timestamp_type", ["CreateTime", "LogAppendTime"])
def test_old_message_sets_become_one_batch(magic, codec, target, timestamp_type):
    raw = legacy.encode_message_set(RECORDS, magic=magic, codec=codec)
    rules = AppendRules(compression_type=target, timestamp_type=timestamp_type)
    result = validate(raw + raw[:25], rules, api_version=magic + 1)
    expected = [
        Record(500 + at, r.timestamp if magic else -1, r.key, r.value) for at, r in enumerate(RECORDS)
    ]
    if timestamp_type == "LogAppendTime":
        for record in expected:
            record.timestamp = NOW
    assert batch.read_records(result.records) == expected
    header = batch.read_header(result.records)
    assert result.batches == [header]
    assert header.codec == {"producer": codec, "uncompressed": Codec.NONE, "zstd": Codec.ZSTD}[target]
    assert (header.leader_epoch, header.has_producer_id) == (8, False)
    assert result.max_timestamp == (NOW if timestamp_type == "LogAppendTime" else NOW + 1 if magic else -1)


def test_old_message_sets_that_kafka_refuses():
    first = legacy.encode_message_set(RECORDS, magic=1, codec=Codec.GZIP)
    plain = legacy.encode_message_set(RECORDS[:1], magic=1)
    older = legacy.encode_message_set(RECORDS[:1], magic=0)
    inner = legacy.encode_message_set(RECORDS[:1], magic=0)
    mixed_inside = legacy.encode_message(
        Record(0, NOW, None, compress(Codec.GZIP, inner)), magic=1, codec=Codec.GZIP
    )
    new = building.encode_batch(RECORDS)
    for buf in (
        first + first,
        first + plain,
        plain + first,
        plain + older,
        mixed_inside,
        new + new,
        new + plain,
        plain + new,
    ):
        assert refused(buf, api_version=2).code == Code.INVALID_RECORD


def test_magic_2_in_an_old_produce_request_is_taken():
    """Kafka does not check this, for the sake of clients that get it wrong."""
    assert validate(building.encode_batch(RECORDS), api_version=1).record_count == 12


def test_inner_checksum_of_an_old_message_set():
    inner = bytearray(legacy.encode_message_set(RECORDS[:1], magic=1))
    inner[-1] ^= 1
    raw = legacy.encode_message(Record(0, NOW, None, compress(Codec.GZIP, inner)), magic=1, codec=Codec.GZIP)
    assert refused(raw, api_version=2).code == Code.CORRUPT_MESSAGE
