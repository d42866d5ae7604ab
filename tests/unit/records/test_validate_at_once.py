"""Records that are validated at once: the same verdict and the same bytes as by steps, or left to the steps."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.records import batch, building, legacy
from barnabas.records.at_once import validate_at_once
from barnabas.records.compression import Codec
from barnabas.records.errors import RecordsError
from barnabas.records.record import Record
from barnabas.records.rules import AppendRules
from barnabas.records.steps import RECORDS_PER_STEP, run
from barnabas.records.validate import validate_steps

NOW = 1_700_000_000_000
HOUR_MS = 3_600_000


def records_of(count, *, timestamp=NOW, key=b"k", offsets=None):
    numbers = offsets or range(count)
    return [Record(number, timestamp, key, b"v" * 20, []) for number in numbers]


def verdict(validate, raw, rules, api_version):
    """The outcome for a copy of some records: the error's code and text, or the bytes to be appended."""
    copy = memoryview(bytearray(raw))
    try:
        valid = validate(copy, api_version=api_version, config=rules, now_ms=NOW)
    except RecordsError as error:
        return error.code, error.message
    if valid is None:
        return None
    return (
        bytes(valid.records),
        valid.last_offset,
        valid.max_timestamp,
        valid.log_append_time_ms,
        valid.record_count,
    )


def both(raw, rules=None, api_version=9):
    """The verdicts at once and by steps."""
    rules = rules or AppendRules()
    by_steps = verdict(lambda copy, **how: run(validate_steps(copy, **how)), raw, rules, api_version)
    return verdict(validate_at_once, raw, rules, api_version), by_steps


def is_refused(by_steps):
    return len(by_steps) == 2


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("count", [1, 15, 200])
def test_a_small_batch_is_taken_at_once_as_it_is_by_steps(codec, count):
    raw = building.encode_batch(
        records_of(count), codec=codec, producer_id=7, producer_epoch=0, base_sequence=3
    )
    at_once, by_steps = both(raw)
    assert at_once == by_steps
    assert len(at_once) == 5


@pytest.mark.parametrize(
    "rules",
    [
        AppendRules(timestamp_type="LogAppendTime"),
        AppendRules(record_validation="header"),
        AppendRules(compacted=True),
        AppendRules(max_message_bytes=60),
        AppendRules(segment_bytes=60),
        AppendRules(message_timestamp_after_max_ms=0),
    ],
)
def test_every_rule_of_a_topic_holds_at_once_too(rules):
    at_once, by_steps = both(building.encode_batch(records_of(3, timestamp=NOW - 1)), rules)
    assert at_once == (None if is_refused(by_steps) else by_steps)


@pytest.mark.parametrize(
    ("raw", "rules"),
    [
        (building.encode_batch(records_of(2)), AppendRules(compression_type="gzip")),
        (building.encode_batch(records_of(2, key=None)), AppendRules(compacted=True)),
        (building.encode_batch(records_of(2, timestamp=NOW + 2 * HOUR_MS)), AppendRules()),
        (building.encode_batch(records_of(RECORDS_PER_STEP + 1)), AppendRules()),
        (building.encode_batch(records_of(1)) * 2, AppendRules()),
        (building.encode_batch(records_of(1))[:-1], AppendRules()),
        (legacy.encode_message_set(records_of(2), magic=1), AppendRules()),
        (b"", AppendRules()),
    ],
    ids=["another codec", "no keys", "late", "many", "two batches", "cut short", "old", "empty"],
)  # fmt: skip
def test_batch_that_must_change_is_left_to_the_steps(raw, rules):
    assert both(raw, rules)[0] is None


@pytest.mark.parametrize("api_version", [2, 3, 6, 9])
def test_the_version_of_the_request_counts(api_version):
    at_once, by_steps = both(building.encode_batch(records_of(2), codec=Codec.ZSTD), api_version=api_version)
    assert at_once == (None if is_refused(by_steps) else by_steps)


@given(st.integers(0, 120), st.integers(0, 255), st.booleans())
def test_a_damaged_batch_is_refused_for_the_same_reason(position, value, is_summed):
    raw = bytearray(building.encode_batch(records_of(3)))
    raw[position % len(raw)] = value
    if (
        is_summed
        and raw[batch.MAGIC_OFFSET] == 2
        and len(raw) == batch.LOG_OVERHEAD + int.from_bytes(raw[8:12], "big")
    ):
        header = batch.read_header(raw)
        struct.pack_into(">I", raw, batch.CRC_OFFSET, batch.compute_crc(raw, 0, header))
    at_once, by_steps = both(raw)
    assert at_once in (None, by_steps)
