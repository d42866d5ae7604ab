"""Checksums of batches on both sides of the size from which on they are summed up in a thread."""

from __future__ import annotations

import pytest

from barnabas.records import validate as validation
from barnabas.records.batch import CRC_OFFSET, HEADER_SIZE, read_header
from barnabas.records.building import encode_batch
from barnabas.records.errors import Code, CorruptRecordsError
from barnabas.records.record import Record
from barnabas.records.rules import AppendRules
from barnabas.records.steps import Work
from barnabas.records.validate import validate_steps
from tests.support.whole_steps import validate_produce

NOW = 1_700_000_000_000
LIMIT = 4 << 20
RULES = AppendRules(max_message_bytes=16 << 20, segment_bytes=64 << 20)
HEADER_ONLY = AppendRules(max_message_bytes=16 << 20, segment_bytes=64 << 20, record_validation="header")


def batch_of(size: int) -> bytearray:
    """A batch of exactly so many bytes."""
    room = size - len(encode_batch([Record(0, NOW, None, bytes(LIMIT))])) + LIMIT
    batch = bytearray(encode_batch([Record(0, NOW, None, bytes(room))]))
    assert len(batch) == size
    return batch


@pytest.mark.parametrize("rules", [RULES, HEADER_ONLY], ids=["full", "header"])
@pytest.mark.parametrize("size", [LIMIT, LIMIT + 1, 2 * LIMIT])
@pytest.mark.parametrize("at", [CRC_OFFSET, HEADER_SIZE + 100, -1], ids=["checksum", "first", "last"])
def test_a_large_batch_with_one_wrong_bit_is_refused(size, at, rules):
    batch = batch_of(size)
    batch[at] ^= 1
    with pytest.raises(CorruptRecordsError, match="checksum") as refused:
        validate_produce(batch, api_version=9, config=rules, now_ms=NOW, first_offset=5, leader_epoch=0)
    assert refused.value.code == Code.CORRUPT_MESSAGE


@pytest.mark.parametrize("size", [LIMIT, LIMIT + 1])
def test_a_large_batch_that_is_whole_is_taken(size):
    batch = batch_of(size)
    valid = validate_produce(batch, api_version=9, config=RULES, now_ms=NOW, first_offset=5, leader_epoch=0)
    assert (valid.base_offset, valid.last_offset, len(valid.records)) == (5, 5, size)


@pytest.mark.parametrize(("size", "in_a_thread"), [(LIMIT, False), (LIMIT + 1, True)])
@pytest.mark.parametrize("sound", [True, False])
def test_what_the_thread_says_of_the_checksum_counts(size, in_a_thread, sound):
    """The steps ask for it as work for a thread, and believe the answer."""
    assert validation._SUM_AT_ONCE_BYTES == LIMIT
    steps = validate_steps(batch_of(size), api_version=9, config=HEADER_ONLY, now_ms=NOW)
    if not in_a_thread:
        with pytest.raises(StopIteration):
            next(steps)
        return
    work = next(steps)
    assert isinstance(work, Work)
    with pytest.raises(StopIteration if sound else CorruptRecordsError):
        steps.send(sound)


# --- timestamps ---------------------------------------------------------------------------------------------------


def test_header_has_the_first_and_the_latest_timestamp():
    """None of the three is like another, so that none can take another's place."""
    records = [
        Record(0, NOW - 30, b"k", b"v"),
        Record(1, NOW - 50, b"k", b"v"),
        Record(2, NOW - 10, b"k", b"v"),
    ]
    batch = bytearray(encode_batch(records))
    header = read_header(batch)
    assert (header.base_timestamp, header.max_timestamp) == (NOW - 30, NOW - 10)
    valid = validate_produce(batch, api_version=9, config=RULES, now_ms=NOW, first_offset=5, leader_epoch=0)
    assert (valid.max_timestamp, valid.offset_of_max_timestamp) == (NOW - 10, 7)
    [stored] = valid.batches
    assert (stored.base_timestamp, stored.max_timestamp) == (NOW - 30, NOW - 10)
