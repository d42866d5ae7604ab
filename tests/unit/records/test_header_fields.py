"""Every field of a batch's header has its own place: all of them differ here, and each is looked for where it belongs."""

import struct

import pytest

from barnabas.records import batch, building, control, convert, legacy
from barnabas.records.batch import BatchHeader, TimestampType, read_header
from barnabas.records.compression import Codec
from barnabas.records.errors import CorruptRecordsError, InvalidRecordsError
from barnabas.records.record import Record

RECORDS = [
    Record(40, 900, b"a", b"1"),
    Record(41, 950, None, b"2", [("h", b"x")]),
    Record(45, 910, b"c", None),
]
FIELDS = (
    "base_offset", "batch_length", "leader_epoch", "magic", "crc", "attributes", "last_offset_delta",
    "base_timestamp", "max_timestamp", "producer_id", "producer_epoch", "base_sequence", "records_count",
)  # fmt: skip


def fields_of(raw):
    """The header as the layout in the protocol guide has it, and its checksum left out."""
    found = dict(zip(FIELDS, struct.unpack_from(">qiibIhiqqqhii", raw), strict=True))
    header = read_header(raw)
    assert {name: getattr(header, name) for name in FIELDS} == found
    assert found.pop("batch_length") == len(raw) - 12
    assert batch.check_crc(raw, 0, header)
    assert found.pop("crc") == header.crc
    assert found.pop("magic") == 2
    return tuple(found.values())


ALL_DIFFER = {
    "base_offset": 38, "last_offset": 60, "producer_id": 1 << 40, "producer_epoch": 300,
    "base_sequence": 5_000_000, "leader_epoch": 70_000,
}  # fmt: skip


@pytest.mark.parametrize("codec", list(Codec))
def test_what_is_encoded_is_where_it_belongs(codec):
    raw = building.encode_batch(RECORDS, codec=codec, **ALL_DIFFER)
    assert fields_of(raw) == (38, 70_000, codec, 22, 900, 950, 1 << 40, 300, 5_000_000, 3)
    assert batch.read_records(raw) == RECORDS


@pytest.mark.parametrize(
    ("how", "bits", "base_timestamp", "max_timestamp"),
    [
        ({"timestamp_type": TimestampType.LOG_APPEND_TIME, "max_timestamp": 77}, 8, 900, 77),
        ({"transactional": True}, 16, 900, 950),
        ({"control": True}, 32, 900, 950),
        ({"delete_horizon_ms": 5}, 64, 5, 950),
        ({"delete_horizon_ms": 0}, 64, 0, 950),
        ({"max_timestamp": 0}, 0, 900, 0),
    ],
)
def test_attributes_and_timestamps(how, bits, base_timestamp, max_timestamp):
    raw = building.encode_batch(RECORDS, **ALL_DIFFER, **how)
    assert fields_of(raw) == (38, 70_000, bits, 22, base_timestamp, max_timestamp, 1 << 40, 300, 5_000_000, 3)
    header = read_header(raw)
    assert header.is_transactional == (bits == 16)
    assert header.is_control == (bits == 32)
    assert header.has_delete_horizon == (bits == 64)
    assert header.delete_horizon_ms == (base_timestamp if bits == 64 else None)
    assert (header.timestamp_type is TimestampType.LOG_APPEND_TIME) == (bits == 8)


@pytest.mark.parametrize(
    ("offsets", "expected"),
    [
        ({}, (40, 5)),
        ({"base_offset": 30}, (30, 15)),
        ({"last_offset": 50}, (40, 10)),
        ({"base_offset": 40, "last_offset": 45}, (40, 5)),
    ],
)
def test_either_offset_may_be_left_to_the_records(offsets, expected):
    header = read_header(building.encode_batch(RECORDS, **offsets))
    assert (header.base_offset, header.last_offset_delta) == expected
    assert (header.last_offset, header.next_offset) == (sum(expected), sum(expected) + 1)


@pytest.mark.parametrize("offsets", [{}, {"base_offset": 3}, {"last_offset": 3}])
def test_without_records_both_offsets_are_needed(offsets):
    with pytest.raises(InvalidRecordsError):
        building.encode_batch([], **offsets)


def test_an_empty_batch_has_the_values_of_nothing():
    raw = building.encode_batch([], codec=Codec.GZIP, base_offset=3, last_offset=4)
    assert fields_of(raw) == (3, -1, 0, 1, -1, -1, -1, -1, -1, 0)


@pytest.mark.parametrize("span", [-1, 1 << 31])
def test_offsets_that_do_not_fit_one_batch(span):
    with pytest.raises(OverflowError):
        building.encode_batch([], base_offset=5, last_offset=5 + span)


def test_offsets_that_just_fit_one_batch():
    assert read_header(building.encode_batch([], base_offset=5, last_offset=5)).last_offset == 5
    assert read_header(
        building.encode_batch([], base_offset=5, last_offset=4 + (1 << 31))
    ).last_offset == 4 + (1 << 31)
    for offset in (4, 5 + (1 << 31)):
        with pytest.raises(OverflowError):
            building.encode_batch([Record(offset, 0, None, None)], base_offset=5, last_offset=6)


@pytest.mark.parametrize(("transactional", "bits"), [(False, 0), (True, 16)])
def test_pairs_of_one_timestamp(transactional, bits):
    pairs = [(b"k", b"v"), (b"gone", None)]
    raw = building.encode_pairs(pairs, 77, producer_id=1 << 40, producer_epoch=3, transactional=transactional)
    assert fields_of(raw) == (0, -1, bits, 1, 77, 77, 1 << 40, 3, -1, 2)
    assert batch.read_records(raw) == [Record(0, 77, b"k", b"v"), Record(1, 77, b"gone", None)]
    assert fields_of(building.encode_pairs(pairs[:1], 5)) == (0, -1, 0, 0, 5, 5, -1, -1, -1, 1)


@pytest.mark.parametrize("append_time", [False, True])
@pytest.mark.parametrize("bits", [0, batch.TRANSACTIONAL_BIT, batch.CONTROL_BIT])
@pytest.mark.parametrize(("kept", "codec"), [(RECORDS[2:], Codec.LZ4), ([], Codec.NONE)])
def test_what_a_cleaner_keeps_has_all_other_fields_of_the_batch(append_time, bits, kept, codec):
    raw = building.encode_batch(
        RECORDS,
        codec=Codec.LZ4,
        transactional=bool(bits & batch.TRANSACTIONAL_BIT),
        control=bool(bits & batch.CONTROL_BIT),
        timestamp_type=TimestampType(int(append_time)),
        max_timestamp=990,
        **ALL_DIFFER,
    )
    cleaned = building.retain_records(read_header(raw), kept)
    base = 910 if kept else -1
    latest = 910 if kept and not append_time else 990
    assert fields_of(cleaned) == (
        38, 70_000, codec | bits | 8 * append_time, 22, base, latest, 1 << 40, 300, 5_000_000, len(kept),
    )  # fmt: skip
    with_horizon = building.retain_records(read_header(raw), kept, delete_horizon_ms=33)
    assert read_header(with_horizon).delete_horizon_ms == 33
    assert read_header(building.retain_records(read_header(with_horizon), kept)).delete_horizon_ms is None


def test_a_level_is_that_of_the_codec():
    records = [Record(0, 0, None, b"".join(b"%d," % (at * at) for at in range(5_000)))]
    sizes = [len(building.encode_batch(records, codec=Codec.GZIP, level=level)) for level in (1, 9)]
    header = read_header(building.encode_batch(records, codec=Codec.GZIP, level=1))
    assert sizes[0] > sizes[1]
    assert [len(building.retain_records(header, records, level=level)) for level in (1, 9)] == sizes


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_marker_keeps_its_epochs_apart(commit):
    raw = control.encode_end_marker(
        commit=commit, producer_id=9, producer_epoch=3, coordinator_epoch=70_000, timestamp_ms=55, base_offset=21,
        leader_epoch=80_000,
    )  # fmt: skip
    assert fields_of(raw) == (21, 80_000, 48, 0, 55, 55, 9, 3, -1, 1)
    [record] = batch.read_records(raw)
    kind = control.ControlType.COMMIT if commit else control.ControlType.ABORT
    assert (record.key, record.value) == (struct.pack(">hh", 0, commit), struct.pack(">hi", 0, 70_000))
    assert control.parse_end_marker(record) == control.EndMarker(kind, 70_000)
    assert control.parse_end_marker(record).is_commit is commit
    alone = control.encode_end_marker(
        commit=commit, producer_id=9, producer_epoch=3, coordinator_epoch=0, timestamp_ms=55
    )
    assert fields_of(alone)[:2] == (0, -1)


@pytest.mark.parametrize(
    ("how", "bits", "latest"),
    [
        ({}, 0, -1),
        ({"append_timestamp": 5}, 0, 5),
        ({"timestamp_type": TimestampType.LOG_APPEND_TIME, "append_timestamp": 5}, 8, 5),
        ({"codec": Codec.ZSTD}, 4, -1),
    ],
)
def test_a_new_header_is_of_no_producer(how, bits, latest):
    header = convert.new_header(17, leader_epoch=6, **how)
    assert header == BatchHeader(17, 0, 6, 2, 0, bits, 0, -1, latest, -1, -1, -1, 0)
    assert convert.new_header(0).leader_epoch == -1


# --- changes in place ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("timestamp_type", [TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME])
@pytest.mark.parametrize("latest", [-1, 900, 949, 950, 1_000])
@pytest.mark.parametrize("bits", [0, 8, 16, 64, 72, 0x80, 0x87])
def test_the_type_and_the_latest_timestamp_of_a_batch_are_set(timestamp_type, latest, bits):
    raw = bytearray(b"..." + building.encode_batch(RECORDS, **ALL_DIFFER))
    struct.pack_into(">h", raw, 3 + batch.ATTRIBUTES_OFFSET, bits)
    before = read_header(raw, 3)
    struct.pack_into(">I", raw, 3 + batch.CRC_OFFSET, batch.compute_crc(raw, 3, before))
    batch.set_max_timestamp(raw, 3, timestamp_type, latest)
    is_same = before.timestamp_type is timestamp_type and latest == 950 and not bits & 64
    expected = bits if is_same else bits & 0x17 | 8 * timestamp_type
    assert raw[:3] == b"..."
    assert fields_of(raw[3:]) == (38, 70_000, expected, 22, 900, latest, 1 << 40, 300, 5_000_000, 3)


def test_a_placed_batch_has_its_offset_and_epoch_alone():
    raw = bytearray(building.encode_batch(RECORDS, **ALL_DIFFER))
    header = read_header(raw)
    header.base_offset, header.leader_epoch = 1 << 50, 9
    batch.place_batch(raw, header)
    assert fields_of(raw) == (1 << 50, 9, 0, 22, 900, 950, 1 << 40, 300, 5_000_000, 3)


@pytest.mark.parametrize(
    ("sequence", "delta", "last"),
    [(-1, 3, -1), (0, 3, 3), (7, 0, 7), (batch.SEQUENCE_MAX - 3, 3, batch.SEQUENCE_MAX), (batch.SEQUENCE_MAX - 3, 4, 0),
     (batch.SEQUENCE_MAX, 2, 1)],
)  # fmt: skip
def test_the_last_sequence_counts_up_and_wraps(sequence, delta, last):
    header = read_header(building.encode_batch(RECORDS))
    header.base_sequence, header.last_offset_delta = sequence, delta
    assert header.last_sequence == last


# --- what is told of a header that cannot be ----------------------------------------------------------------------


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("attributes", [0, 1, 8, 9, 0xF8])
def test_an_old_message_is_shown_as_a_batch_of_its_own(magic, attributes):
    raw = bytearray(legacy.encode_message(Record(7, 55, b"k", b"v"), magic=magic))
    raw[17] = attributes
    header = batch.read_any_header(b"??" + raw, 2)
    crc = int.from_bytes(raw[12:16], "big")
    known = attributes & (0x0F if magic else 0x07)
    time, count = (55 if magic else -1), (-1 if attributes & 7 else 1)
    assert header == BatchHeader(7, len(raw) - 12, -1, magic, crc, known, 0, time, time, -1, -1, -1, count)


@pytest.mark.parametrize(
    ("encode", "size_min"),
    [
        (lambda: building.encode_batch([], base_offset=0, last_offset=0), 61),
        (lambda: legacy.encode_message(Record(0, 0, None, None), magic=1), 34),
        (lambda: legacy.encode_message(Record(0, 0, None, None), magic=0), 26),
    ],
)
def test_the_smallest_of_each_format_is_read_and_nothing_less(encode, size_min):
    raw = encode()
    assert len(raw) == size_min
    assert batch.read_any_header(raw).size == size_min
    for size in range(size_min):
        with pytest.raises(CorruptRecordsError):
            batch.read_any_header(raw[:size])
        assert list(batch.iter_batches(raw[:size])) == []
        assert batch.whole_size(raw + raw[:size]) == size_min
    short = raw[:8] + (size_min - 13).to_bytes(4, "big") + raw[12:]
    with pytest.raises(CorruptRecordsError):
        batch.read_any_header(short + b"more")
    assert [pos for pos, _ in batch.iter_batches(b"!" + raw * 2, 1)] == [1, 1 + size_min]
    assert batch.whole_size(b"!" + raw * 2, 1) == 2 * size_min


@pytest.mark.parametrize(
    ("bits", "size", "magic", "found"),
    [(16, 61, 2, True), (16, 62, 2, True), (16, 60, 2, False), (0, 61, 2, False), (16, 61, 1, False)],
)
def test_the_producer_of_a_transaction_is_seen_in_the_first_header(bits, size, magic, found):
    raw = bytearray(building.encode_batch(RECORDS, transactional=bool(bits), **ALL_DIFFER))[:size]
    raw[batch.MAGIC_OFFSET] = magic
    assert batch.transactional_producer(memoryview(raw)) == (
        (1 << 40, 300, ALL_DIFFER["base_sequence"]) if found else None
    )
    assert batch.transactional_producer(raw) is None  # no memory of a request
