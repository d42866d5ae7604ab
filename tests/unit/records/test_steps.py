"""Long work on records by steps: the same verdict and bytes as at once, and no step that is long."""

import gzip
import struct
import zlib
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.records import batch, building, convert, legacy
from barnabas.records.compression import Codec, compress
from barnabas.records.errors import Code, InvalidRecordsError
from barnabas.records.record import Record, iter_body
from barnabas.records.rules import AppendRules
from barnabas.records.scan import Scanner, scan_body
from barnabas.records.steps import RECORDS_PER_STEP, Reserve, Work, run
from barnabas.records.validate import validate_steps
from barnabas.records.varint import encode_varint
from tests.support.steps import kinds

NOW = 1_700_000_000_000


def packed_batch(body, count, codec=Codec.GZIP, **fields):
    """A batch with this body, whatever it says."""
    header = convert.new_header(0, codec=codec)
    header.base_timestamp = header.max_timestamp = NOW
    header.records_count, header.last_offset_delta = count, count - 1
    for name, value in fields.items():
        setattr(header, name, value)
    return building.join_batch(header, compress(codec, body))


def validation(raw, rules=AppendRules(), api_version=9):  # noqa: B008 (it is frozen)
    return validate_steps(raw, api_version=api_version, config=rules, now_ms=NOW)


@given(st.data())
def test_a_scan_in_pieces_says_what_the_decoder_says(data):
    headers = data.draw(
        st.lists(
            st.lists(
                st.tuples(st.sampled_from(["", "h", "häh"]), st.none() | st.binary(max_size=3)), max_size=40
            ),
            min_size=1,
            max_size=30,
        )
    )
    records = [Record(n, NOW + n * 7 % 5, None, b"v", each) for n, each in enumerate(headers)]
    body = bytearray(building.encode_batch(records)[batch.HEADER_SIZE :])
    for _ in range(data.draw(st.integers(0, 2))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))

    def in_pieces():
        scanner = Scanner(bytes(body), len(records), NOW)
        while not scanner.advance(data.draw(st.integers(1, 50))):
            pass
        return scanner.result()

    def outcome(scan):
        try:
            return repr(scan())
        except InvalidRecordsError as error:
            return str(error)

    assert outcome(in_pieces) == outcome(lambda: scan_body(bytes(body), len(records), NOW))
    try:
        list(iter_body(bytes(body), len(records), 0, NOW))
    except InvalidRecordsError:
        assert isinstance(outcome(in_pieces), str)
        assert not outcome(in_pieces).startswith("BodyScan")
    else:
        assert outcome(in_pieces).startswith("BodyScan")


@pytest.mark.parametrize("count", [1, 2, 40, 3_000])
def test_records_may_begin_in_the_middle_of_what_is_scanned(count):
    records = [Record(n, NOW + n % 5, b"k" if n % 3 else None, b"v" * 9) for n in range(count)]
    body = bytes(building.encode_batch(records)[batch.HEADER_SIZE :])
    for before in (b"x", b"\xff" * 40):
        scanner = Scanner(before + body, count, records[0].timestamp, len(before))
        while not scanner.advance(RECORDS_PER_STEP):
            pass
        assert scanner.result() == scan_body(body, count, records[0].timestamp)
    with pytest.raises(InvalidRecordsError, match=r"cut short|beyond the batch"):
        Scanner(b"xx" + body[:-1], count, records[0].timestamp, 2).advance(10 * count + 1_000)


def test_timestamps_that_all_differ_are_not_all_kept():
    records = [Record(n, NOW + n * n % 99_991 - 50_000, None, b"v" * (n % 3)) for n in range(20_000)]
    body = building.encode_batch(records)[batch.HEADER_SIZE :]
    scanner = Scanner(body, len(records), records[0].timestamp)
    while not scanner.advance(RECORDS_PER_STEP):
        assert len(scanner.raw_deltas) < 2_000
    scan = scanner.result()
    timestamps = [record.timestamp for record in records]
    assert (scan.min_timestamp, scan.max_timestamp) == (min(timestamps), max(timestamps))


def misnumbered(count, size):
    """The body of records that all say offset 0, each with a value of its own of so many bytes, most of them 0."""
    random = Random(count)
    body = []
    for _ in range(count):
        value = random.randbytes(3) + bytes(size - 3)
        fields = b"\0\0\0\1" + encode_varint(size) + value + b"\0"
        body.append(encode_varint(len(fields)) + fields)
    return b"".join(body)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_offsets_that_are_all_0_are_rewritten_in_steps(codec):
    count = 8_000
    seen, valid = kinds(validation(packed_batch(misnumbered(count, 4), count, codec)))
    assert len(seen) >= 2 * count / RECORDS_PER_STEP  # the scan, then the rewriting
    assert [record.offset for record in batch.read_records(valid.records)] == list(range(count))
    assert batch.check_crc(valid.records, 0, valid.batches[0])


def test_a_rewritten_batch_is_refused_as_soon_as_it_is_too_large():
    count, rules = 50_000, AppendRules(max_message_bytes=600_000, compression_type="uncompressed")
    raw = packed_batch(misnumbered(count, 200), count)
    assert len(raw) < rules.max_message_bytes
    seen, error = kinds(validation(raw, rules))
    assert error.code == Code.MESSAGE_TOO_LARGE
    # Scanned as a whole, but written only until it was too large: the first piece of 1 MiB.
    assert len(seen) < 1.5 * count / RECORDS_PER_STEP


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_what_decompresses_to_much_is_announced_and_done_as_work(codec):
    value = bytes(20 << 20)
    fields = b"\0\0\0\1" + encode_varint(len(value)) + value + b"\0"
    raw = packed_batch(encode_varint(len(fields)) + fields, 1, codec)
    seen, valid = kinds(validation(raw))
    assert "Reserve" in seen
    assert seen[seen.index("Reserve") + 1] == "Work"
    assert valid.record_count == 1
    rules = AppendRules(decompressed_bytes_max=10 << 20)
    assert kinds(validation(raw, rules))[1].code == Code.MESSAGE_TOO_LARGE
    rules = AppendRules(compression_type="zstd")
    assert batch.read_records(kinds(validation(raw, rules))[1].records)[0].value == value
    rules = AppendRules(compression_type="uncompressed")
    assert kinds(validation(raw, rules))[1].code == Code.MESSAGE_TOO_LARGE


def test_a_record_of_very_many_headers_is_checked_in_steps():
    many = 40_000
    fields = b"\0\0\0\1\1" + encode_varint(many) + b"\0\1" * many
    body = encode_varint(len(fields)) + fields
    seen, valid = kinds(validation(packed_batch(body, 1, Codec.NONE)))
    assert len(seen) >= many / RECORDS_PER_STEP - 10
    assert valid.record_count == 1
    damaged = body[:-2] + b"\1\1"  # the last header's key is null
    assert kinds(validation(packed_batch(damaged, 1, Codec.NONE)))[1].code == Code.INVALID_RECORD


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_old_message_sets_are_converted_in_steps(codec):
    count = 8_000
    raw = legacy.encode_message_set([Record(n, NOW, None, b"") for n in range(count)], magic=1, codec=codec)
    seen, valid = kinds(validation(raw, api_version=2))
    assert len(seen) >= count / RECORDS_PER_STEP
    assert valid.record_count == count
    down = convert.down_convert_steps(valid.records, 1, bytes_max=1 << 30)
    seen, converted = kinds(down)
    assert len(seen) >= count / RECORDS_PER_STEP
    assert sum(len(legacy.read_records(converted, at)) for at, _ in batch.iter_batches(converted)) == count


def test_nested_wrappers_are_refused_unopened():
    inner = legacy.encode_message_set([Record(0, NOW, None, b"x")], magic=1, codec=Codec.GZIP)
    raw = legacy.encode_message(Record(0, NOW, None, gzip.compress(inner)), magic=1, codec=Codec.GZIP)
    assert kinds(validation(raw, api_version=2))[1].code == Code.INVALID_RECORD


def test_a_large_value_goes_to_old_readers_piece_by_piece():
    value = struct.pack(">I", 7) * (1 << 20)
    raw = building.encode_batch([Record(5, NOW, b"k", value), Record(6, NOW, None, b"x")], codec=Codec.GZIP)
    seen, converted = kinds(convert.down_convert_steps(raw, 1, bytes_max=0))
    assert len(seen) > len(value) >> 16
    assert [(r.offset, r.key, r.value) for r in legacy.read_records(converted)] == [
        (5, b"k", value),
        (6, None, b"x"),
    ]


def test_the_error_of_work_is_met_where_it_was_asked_for():
    def steps():
        try:
            yield Work(lambda: zlib.decompress(b"no"))
        except zlib.error:
            yield Reserve(1)
            return "caught"

    assert run(steps()) == "caught"
