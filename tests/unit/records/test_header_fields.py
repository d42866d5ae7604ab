"""Every field of a batch's header has its own place: all of them differ here, and each is looked for where it belongs."""

import struct

import pytest

from barnabas.records import batch, building
from barnabas.records.batch import TimestampType, read_header
from barnabas.records.compression import Codec
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
    fields = dict(zip(FIELDS, struct.unpack_from(">qiibIhiqqqhii", raw), strict=True))
    header = read_header(raw)
    assert {name: getattr(header, name) for name in FIELDS} == fields
    assert fields.pop("batch_length") == len(raw) - 12
    assert batch.check_crc(raw, 0, header)
    assert fields.pop("crc") == header.crc
    assert fields.pop("magic") == 2
    return tuple(fields.values())


ALL_DIFFER = {
    "base_offset": 38, "last_offset": 60, "producer_id": 1 << 40, "producer_epoch": 300,
    "base_sequence": 5_000_000, "leader_epoch": 70_000,
}  # fmt: skip


@pytest.mark.parametrize("span", [-1, 1 << 31])
def test_offsets_that_do_not_fit_one_batch(span):
    with pytest.raises(OverflowError):
        building.encode_batch([], base_offset=5, last_offset=5 + span)


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


# --- what is told of a header that cannot be ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bits", "size", "magic", "is_read"),
    [(16, 61, 2, True), (16, 62, 2, True), (16, 60, 2, False), (0, 61, 2, False), (16, 61, 1, False)],
)
def test_producer_of_a_transaction_is_in_the_first_header(bits, size, magic, is_read):
    raw = bytearray(building.encode_batch(RECORDS, transactional=bool(bits), **ALL_DIFFER))[:size]
    raw[batch.MAGIC_OFFSET] = magic
    assert batch.transactional_producer(memoryview(raw)) == (
        (1 << 40, 300, ALL_DIFFER["base_sequence"]) if is_read else None
    )
    assert batch.transactional_producer(raw) is None  # no memory of a request
