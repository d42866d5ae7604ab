"""Checksums of batches on both sides of the size from which on they are summed up in a thread."""

from __future__ import annotations

import pytest

from barnabas.records.building import encode_batch
from barnabas.records.record import Record
from barnabas.records.rules import AppendRules
from barnabas.records.validate import validate_produce

NOW = 1_700_000_000_000
LIMIT = 4 << 20
RULES = AppendRules(max_message_bytes=16 << 20, segment_bytes=64 << 20)


def batch_of(size: int) -> bytearray:
    """A batch of exactly so many bytes."""
    room = size - len(encode_batch([Record(0, NOW, None, bytes(LIMIT))])) + LIMIT
    batch = bytearray(encode_batch([Record(0, NOW, None, bytes(room))]))
    assert len(batch) == size
    return batch


@pytest.mark.parametrize("size", [LIMIT, LIMIT + 1])
def test_a_large_batch_that_is_whole_is_taken(size):
    batch = batch_of(size)
    valid = validate_produce(batch, api_version=9, config=RULES, now_ms=NOW, first_offset=5, leader_epoch=0)
    assert (valid.base_offset, valid.last_offset, len(valid.records)) == (5, 5, size)
