"""Headers read one field at a time: each differs from its neighbours, so that none is taken for another."""

import struct

import pytest

from barnabas.records import batch, building, legacy
from barnabas.records.batch import transactional_producer
from barnabas.records.crc import crc32c
from barnabas.records.errors import Code, CorruptRecordsError, RecordsError
from barnabas.records.record import Record
from barnabas.records.rules import AppendRules
from barnabas.records.steps import run
from barnabas.records.validate import validate_own, validate_steps

NOW = 1_700_000_000_000
RISING = [Record(at, NOW + 10 * at, b"k%d" % at, b"v") for at in range(4)]
TRANSACTIONAL = building.encode_batch(
    RISING, producer_id=77, producer_epoch=5, base_sequence=9, transactional=True
)


@pytest.mark.parametrize(
    ("records", "producer"),
    [
        (memoryview(TRANSACTIONAL), (77, 5, 9)),
        (memoryview(TRANSACTIONAL + TRANSACTIONAL), (77, 5, 9)),
        (memoryview(TRANSACTIONAL[: batch.HEADER_SIZE]), (77, 5, 9)),
        (memoryview(TRANSACTIONAL[: batch.HEADER_SIZE - 1]), None),
        (TRANSACTIONAL, None),
        (None, None),
        (memoryview(building.encode_batch(RISING, producer_id=77, producer_epoch=5, base_sequence=9)), None),
        (memoryview(TRANSACTIONAL[:16] + b"\1" + TRANSACTIONAL[17:]), None),
    ],
    ids=["one", "two", "header only", "cut short", "not a view", "null", "idempotent only", "magic 1"],
)
def test_the_producer_of_a_transaction_is_read_where_there_is_one(records, producer):
    assert transactional_producer(records) == producer


V2 = building.encode_batch(RISING)
V1 = legacy.encode_message(RISING[0], magic=1)
V0 = legacy.encode_message(RISING[0], magic=0)


def with_length(raw, length):
    return raw[:8] + struct.pack(">i", length) + raw[12:]


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (V2[: batch.HEADER_SIZE - 1], "60 bytes are too few"),
        (b"", "0 bytes are too few"),
        (V2[:16] + b"\1" + V2[17:], "magic is 1"),
        (V2[:16] + b"\3" + V2[17:], "magic is 3"),
        (with_length(V2, 48), "length 48 is less"),
        (with_length(V2, -1), "length -1 is less"),
    ],
)
@pytest.mark.parametrize("before", [b"", b"x" * 7])
def test_a_header_of_a_batch_is_refused_for_what_is_wrong_with_it(raw, problem, before):
    with pytest.raises(CorruptRecordsError, match=problem):
        batch.read_header(before + raw, len(before))


def test_a_batch_that_is_cut_short_is_not_sound_whatever_its_checksum_says():
    header = batch.read_header(V2)
    for cut in (1, 10):
        header.crc = crc32c(V2[batch.ATTRIBUTES_OFFSET : -cut])
        assert not batch.check_crc(V2[:-cut], 0, header)
        assert not batch.check_crc(b"x" * cut + V2[:-cut], cut, header)
    header.crc = batch.read_header(V2).crc
    assert batch.check_crc(b"xx" + V2, 2, header)
    assert batch.check_crc(V2 + b"xx", 0, header)


def test_the_smallest_length_of_a_batch_is_taken():
    assert batch.read_header(with_length(V2, 49)).batch_length == 49


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (V1[:16], "16 bytes are too few for the header"),
        (b"", "0 bytes are too few for the header"),
        (V1[:16] + b"\3" + V1[17:], "magic 3 is unknown"),
        (V0[:25], "25 bytes are too few for a message of magic 0"),
        (V1[:33], "33 bytes are too few for a message of magic 1"),
        (with_length(V0, 13), "length 13 is too small for magic 0"),
        (with_length(V1, 21), "length 21 is too small for magic 1"),
        (V2[:60], "60 bytes are too few"),
    ],
)
@pytest.mark.parametrize("before", [b"", b"x" * 7])
def test_a_header_of_any_magic_is_refused_for_what_is_wrong_with_it(raw, problem, before):
    with pytest.raises(CorruptRecordsError, match=problem):
        batch.read_any_header(before + raw, len(before))


@pytest.mark.parametrize(("raw", "length"), [(V0[:26], 14), (V1[:34], 22)])
def test_the_smallest_header_of_a_message_is_taken(raw, length):
    header = batch.read_any_header(with_length(raw, length))
    assert (header.size, header.records_count) == (length + 12, 1)


@pytest.mark.parametrize("length", [-12, -1, 0, 13])
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_a_length_that_no_message_has_ends_no_iteration_in_silence(length, magic):
    raw = with_length((V0, V1, V2)[magic], length)
    with pytest.raises(CorruptRecordsError, match=str(length)):
        list(batch.iter_batches(V1 + raw, len(V1)))


def test_offsets_that_do_not_fit_one_batch_are_refused():
    one = [Record(5, NOW, None, b"")]
    for first, last in ((5, 4), (0, 1 << 31)):
        with pytest.raises(OverflowError, match=f"{first} to {last}"):
            building.encode_batch(one, base_offset=first, last_offset=last)
    for first, last in ((5, 5), (0, (1 << 31) - 1)):
        header = batch.read_header(building.encode_batch(one, base_offset=first, last_offset=last))
        assert (header.base_offset, header.last_offset) == (first, last)


@pytest.mark.parametrize("transactional", [False, True])
def test_pairs_make_the_batch_that_records_make(transactional):
    pairs = [(b"a", b"1"), (b"b", None), (b"c", b"")]
    producer = {"producer_id": 12, "producer_epoch": 3, "transactional": transactional}
    records = [Record(at, NOW, key, value) for at, (key, value) in enumerate(pairs)]
    raw = building.encode_pairs(pairs, NOW, **producer)
    assert raw == building.encode_batch(records, **producer)
    header = batch.read_header(raw)
    assert (header.is_transactional, header.producer_id, header.producer_epoch) == (transactional, 12, 3)
    plain = batch.read_header(building.encode_pairs(pairs, NOW))
    assert (plain.has_producer_id, plain.is_transactional) == (False, False)


# --- what is validated, before it has its place -------------------------------------------------------------------


def test_what_is_validated_begins_at_0_until_it_has_its_place():
    valid = run(validate_steps(bytearray(V2), api_version=9, config=AppendRules(), now_ms=NOW))
    assert (valid.base_offset, valid.last_offset, valid.offset_of_max_timestamp) == (0, 3, 3)
    assert (valid.max_timestamp, valid.record_count) == (NOW + 30, 4)
    valid.place(100, 6)
    assert (valid.base_offset, valid.last_offset, valid.offset_of_max_timestamp) == (100, 103, 103)
    assert batch.read_header(valid.records).leader_epoch == 6


def test_a_coordinators_own_batch_is_taken_as_it_is():
    """Even where a producer's would be refused: its offset, its control bit, records without keys."""
    records = [Record(8 + at, NOW + 10 * at, None, b"v") for at in range(4)]
    raw = building.encode_batch(records, control=True)
    rules = AppendRules(compacted=True, max_message_bytes=len(raw), segment_bytes=len(raw))
    valid = validate_own(bytearray(raw), config=rules, now_ms=NOW - 5)
    assert bytes(valid.records) == raw
    assert (valid.base_offset, valid.last_offset, valid.max_timestamp) == (8, 11, NOW + 30)
    assert (valid.log_append_time_ms, valid.record_count) == (-1, 4)
    stamped = validate_own(bytearray(raw), config=AppendRules(timestamp_type="LogAppendTime"), now_ms=NOW - 5)
    assert (stamped.max_timestamp, stamped.log_append_time_ms) == (NOW - 5, NOW - 5)


@pytest.mark.parametrize(
    ("limits", "code", "names"),
    [
        ({"max_message_bytes": -1}, Code.MESSAGE_TOO_LARGE, "max.message.bytes"),
        ({"segment_bytes": -1}, Code.RECORD_LIST_TOO_LARGE, "segment"),
    ],
)
@pytest.mark.parametrize("magic", [1, 2])
def test_the_limit_that_is_passed_is_named(limits, code, names, magic):
    raw = V2 if magic == 2 else V1
    sizes = {"max_message_bytes": 1000, "segment_bytes": 2000}
    size = len(raw)
    if magic == 1 and "segment_bytes" in limits:  # what it becomes
        size = len(building.encode_batch(RISING[:1]))
    rules = AppendRules(**sizes | dict.fromkeys(limits, size - 1))

    def attempts():
        if magic == 2:
            yield lambda: validate_own(bytearray(raw), config=rules, now_ms=NOW)
        yield lambda: run(validate_steps(raw, api_version=1, config=rules, now_ms=NOW))

    for attempt in attempts():
        with pytest.raises(RecordsError) as caught:
            attempt()
        assert caught.value.code == code
        assert names in caught.value.message
        assert f"{size} bytes" in caught.value.message
        assert f" {size - 1}" in caught.value.message
