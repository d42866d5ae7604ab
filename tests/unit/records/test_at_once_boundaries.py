"""The border between what is validated at once and what is left to the steps, condition by condition.

Each case breaks one condition alone, and stands beside the last one that does not: whatever is taken has the verdict and
the bytes of the steps, and what could be taken is not left to them for nothing.
"""

import struct

import pytest

from barnabas.records import batch, building
from barnabas.records.at_once import must_look_at_records, scan_small, validate_at_once
from barnabas.records.batch import SEQUENCE_MAX, read_header
from barnabas.records.compression import SMALL_BYTES, Codec, load_steps
from barnabas.records.errors import RecordsError
from barnabas.records.record import Record
from barnabas.records.rules import UNBOUNDED_MS, AppendRules
from barnabas.records.scan import COPIED_BYTES_MAX
from barnabas.records.steps import RECORDS_PER_STEP, run
from barnabas.records.validate import validate_steps

NOW = 1_700_000_000_000
LARGE = {"max_message_bytes": 1 << 30, "segment_bytes": 1 << 30}
HEADER_ONLY = AppendRules(record_validation="header")


@pytest.fixture(autouse=True, scope="module")
def codecs():
    run(load_steps(*Codec))


def encoded(count=3, *, codec=Codec.NONE, value=b"v" * 20, key=b"k", headers=(), timestamps=None, **how):
    times = timestamps or [NOW] * count
    records = [Record(n, times[n], key, value, list(headers)) for n in range(count)]
    return bytearray(building.encode_batch(records, codec=codec, **how))


def with_fields(raw, **fields):
    """The same batch with other fields in its header, and the checksum that they have."""
    header = read_header(raw)
    for name, value in fields.items():
        setattr(header, name, value)
    values = [getattr(header, name) for name in header.__dataclass_fields__]
    struct.pack_into(">qiibIhiqqqhii", raw, 0, *values)
    header.magic = 2
    struct.pack_into(">I", raw, batch.CRC_OFFSET, batch.compute_crc(raw, 0, header))
    return raw


def outcome(validate, raw, rules, api_version):
    try:
        valid = validate(memoryview(bytearray(raw)), api_version=api_version, config=rules, now_ms=NOW)
    except RecordsError as error:
        return error.code
    return valid and (bytes(valid.records), valid.max_timestamp, valid.log_append_time_ms, valid.batches)


def is_taken(raw, rules=AppendRules(), api_version=9):  # noqa: B008 (it is frozen)
    result = outcome(validate_at_once, raw, rules, api_version)
    by_steps = outcome(lambda *args, **how: run(validate_steps(*args, **how)), raw, rules, api_version)
    assert result in (None, by_steps)
    return result is not None


def sized(size):
    """A batch of one record that has that size."""
    value_size = size
    while len(raw := encoded(1, value=bytes(value_size))) != size:
        value_size += size - len(raw)
    return raw


SMALL = encoded()
SIZE = len(SMALL)


@pytest.mark.parametrize(
    ("rules", "taken"),
    [
        (AppendRules(max_message_bytes=SIZE), True),
        (AppendRules(max_message_bytes=SIZE - 1), False),
        (AppendRules(segment_bytes=SIZE), True),
        (AppendRules(segment_bytes=SIZE - 1), False),
        (AppendRules(compression_type="uncompressed"), True),
        (AppendRules(compression_type="gzip"), False),
        (AppendRules(compacted=True), True),
        (AppendRules(timestamp_type="LogAppendTime"), True),
    ],
    ids=str,
)
@pytest.mark.parametrize("validation", ["full", "header"])
def test_settings_of_the_topic(rules, taken, validation):
    settings = {name: getattr(rules, name) for name in rules.__dataclass_fields__}
    for name in ("append_time", "is_age_bounded"):
        del settings[name]
    assert is_taken(SMALL, AppendRules(**(settings | {"record_validation": validation}))) is taken


@pytest.mark.parametrize(
    ("fields", "taken"),
    [
        ({}, True),
        ({"magic": 1}, False),
        ({"base_offset": 1}, False),
        ({"base_offset": -1}, False),
        ({"records_count": 2}, False),
        ({"records_count": 0, "last_offset_delta": -1}, False),
        ({"last_offset_delta": 3}, False),
        ({"last_offset_delta": 1}, False),
        ({"batch_length": SIZE - batch.LOG_OVERHEAD - 1}, False),
        ({"batch_length": SIZE - batch.LOG_OVERHEAD + 1}, False),
        ({"attributes": batch.TIMESTAMP_TYPE_BIT}, False),
        ({"attributes": batch.TRANSACTIONAL_BIT}, False),
        ({"attributes": batch.CONTROL_BIT}, False),
        ({"attributes": batch.DELETE_HORIZON_BIT}, False),
        ({"attributes": 5}, False),
        ({"producer_id": -1, "base_sequence": -1}, True),
        ({"producer_id": -1, "base_sequence": -2}, True),
        ({"producer_id": 0, "base_sequence": -1}, False),
        ({"producer_id": 0, "base_sequence": 0}, True),
        ({"producer_id": 7, "base_sequence": 0}, True),
        ({"producer_id": 7, "base_sequence": SEQUENCE_MAX}, True),
        ({"leader_epoch": 5}, True),
    ],
    ids=str,
)
@pytest.mark.parametrize("rules", [AppendRules(), HEADER_ONLY], ids=["full", "header"])
def test_fields_of_the_header(fields, taken, rules):
    assert is_taken(with_fields(bytearray(SMALL), **fields), rules) is taken


@pytest.mark.parametrize(("api_version", "taken"), [(0, True), (2, True), (3, False), (6, False), (7, True)])
def test_zstd_is_for_clients_that_know_it(api_version, taken):
    assert is_taken(encoded(codec=Codec.ZSTD), api_version=api_version) is taken
    assert is_taken(encoded(codec=Codec.LZ4), api_version=api_version)


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("other", list(Codec))
def test_a_topic_with_the_codec_of_the_batch_leaves_it_as_it_is(codec, other):
    name = "uncompressed" if other is Codec.NONE else other.name.lower()
    assert is_taken(encoded(codec=codec), AppendRules(compression_type=name)) is (codec is other)
    assert is_taken(encoded(codec=codec))


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize(
    ("count", "taken"), [(1, True), (RECORDS_PER_STEP, True), (RECORDS_PER_STEP + 1, False)]
)
def test_as_many_records_as_one_step_looks_at(codec, count, taken):
    raw = encoded(count, codec=codec, value=None)
    assert is_taken(raw) is taken
    scanner = scan_small(raw, read_header(raw), AppendRules())
    assert (scanner is not None) is taken
    assert scanner is None or scanner.span() == (NOW, NOW)


@pytest.mark.parametrize("rules", [AppendRules(**LARGE), AppendRules(record_validation="header", **LARGE)])
@pytest.mark.parametrize(("size", "taken"), [(SMALL_BYTES, True), (SMALL_BYTES + 1, False)])
def test_batches_up_to_a_megabyte(size, taken, rules):
    raw = sized(size)
    assert len(raw) == size
    assert is_taken(raw, rules) is taken
    assert (scan_small(raw, read_header(raw), rules) is not None) is taken


@pytest.mark.parametrize(
    "size", [COPIED_BYTES_MAX - 1, COPIED_BYTES_MAX, COPIED_BYTES_MAX + 1, 5 * COPIED_BYTES_MAX]
)
def test_records_are_looked_at_in_a_copy_or_in_place(size):
    raw = sized(size)
    assert is_taken(raw, AppendRules(**LARGE))
    keyless = encoded(5, value=bytes(size // 5), key=None)
    assert is_taken(keyless, AppendRules(**LARGE))
    assert not is_taken(keyless, AppendRules(compacted=True, **LARGE))
    raw[batch.HEADER_SIZE + 8] ^= 1
    header = read_header(raw)
    assert not is_taken(raw, AppendRules(**LARGE))  # the checksum is wrong
    struct.pack_into(">I", raw, batch.CRC_OFFSET, batch.compute_crc(raw, 0, header))
    assert not is_taken(raw, AppendRules(**LARGE))  # a field does not fit the record
    assert is_taken(raw, AppendRules(record_validation="header", **LARGE))


@pytest.mark.parametrize(
    ("bytes_max", "size", "taken"),
    [(1 << 27, SMALL_BYTES // 2, True), (1 << 27, SMALL_BYTES, False), (5_000, 4_000, True), (5_000, 5_000, False)],
)  # fmt: skip
def test_what_decompresses_to_much_is_left(bytes_max, size, taken):
    raw = encoded(1, value=bytes(size), codec=Codec.GZIP)
    assert is_taken(raw, AppendRules(decompressed_bytes_max=bytes_max)) is taken


@pytest.mark.parametrize(("count", "taken"), [(16, True), (17, True), (3_000, True), (5_000, False)])
def test_a_record_of_very_many_headers_is_left(count, taken):
    assert is_taken(encoded(1, headers=[("h", None)] * count)) is taken


def test_short_or_protected_memory_is_left():
    def taken(buf):
        return validate_at_once(buf, api_version=9, config=AppendRules(), now_ms=NOW)

    assert taken(memoryview(bytearray(SMALL))) is not None
    assert taken(memoryview(bytes(SMALL))) is None
    for size in (0, 12, 60, 61, 62):
        assert taken(memoryview(bytearray(SMALL[:size]))) is None


# --- timestamps ---------------------------------------------------------------------------------------------------

CALM = {"record_validation": "header", "message_timestamp_after_max_ms": 50}


@pytest.mark.parametrize(
    ("rules", "base", "latest", "must_look"),
    [
        ({}, NOW, NOW + 50, False),
        ({}, NOW, NOW + 51, True),
        ({}, NOW + 51, NOW, False),  # the base timestamp is no record's, where the first one was removed
        ({"timestamp_type": "LogAppendTime"}, NOW, NOW + 51, False),
        ({"message_timestamp_before_max_ms": NOW}, 0, NOW, False),
        ({"message_timestamp_before_max_ms": NOW - 1}, 0, NOW, True),
        ({"message_timestamp_before_max_ms": NOW + 9}, 0, NOW + 50, False),
        ({"message_timestamp_before_max_ms": 1 << 60, "message_timestamp_after_max_ms": 1 << 61}, 0, NOW, False),
        ({"message_timestamp_after_max_ms": UNBOUNDED_MS}, 0, NOW + (1 << 60), False),
        ({"compacted": True}, NOW, NOW, True),
        ({"record_validation": "full"}, NOW, NOW, True),
    ],
)  # fmt: skip
def test_the_header_alone_shows_that_the_rules_are_obeyed(rules, base, latest, must_look):
    header = read_header(SMALL)
    header.base_timestamp, header.max_timestamp = base, latest
    assert must_look_at_records(header, AppendRules(**(CALM | rules)), NOW) is must_look


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("rules", [AppendRules(), HEADER_ONLY], ids=["full", "header"])
def test_the_first_timestamp_is_not_the_latest(codec, rules):
    raw = encoded(timestamps=(NOW - 500, NOW + 7, NOW - 9), codec=codec)
    assert is_taken(raw, rules)
    valid = validate_at_once(memoryview(raw), api_version=9, config=rules, now_ms=NOW)
    assert (valid.max_timestamp, valid.offset_of_max_timestamp) == (NOW + 7, 2)
    assert batch.read_records(valid.records)[0].timestamp == NOW - 500


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("claimed", [NOW + 7, NOW - 600, -1])
def test_a_latest_timestamp_that_is_no_records_is_put_right(codec, claimed):
    raw = with_fields(encoded(timestamps=(NOW - 500, NOW - 7, NOW - 9), codec=codec), max_timestamp=claimed)
    assert is_taken(raw)
    valid = validate_at_once(memoryview(raw), api_version=9, config=AppendRules(), now_ms=NOW)
    assert valid.max_timestamp == valid.batches[0].max_timestamp == NOW - 7
