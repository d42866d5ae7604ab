"""The map from keys to their last offsets."""

import pytest

from barnabas.log.cleaner.offset_map import NO_OFFSET, SLOT_SIZE, OffsetMap


def test_the_last_offset_of_a_key_is_found():
    offsets = OffsetMap(1 << 20)
    for offset in range(3_000):
        offsets.put(b"%d" % (offset % 1_000), offset)
    assert len(offsets) == 1_000
    assert [offsets.get(b"%d" % n) for n in range(1_000)] == list(range(2_000, 3_000))
    assert offsets.get(b"other") == NO_OFFSET
    assert offsets.latest_offset == 2_999


def test_offset_zero_and_the_empty_key_are_nothing_special():
    offsets = OffsetMap(1 << 10)
    assert offsets.get(b"") == NO_OFFSET
    offsets.put(b"", 0)
    assert offsets.get(b"") == 0
    assert OffsetMap(1 << 10).latest_offset == NO_OFFSET


@pytest.mark.parametrize("slots", [2, 3, 10, 1_000, 5_000])
def test_it_is_full_before_its_memory_is(slots):
    offsets = OffsetMap(slots * SLOT_SIZE, 0.9)
    count = 0
    while not offsets.is_full:
        offsets.put(b"%d" % count, count)
        count += 1
    assert count == max(1, min(int(slots * 0.9), slots - 1))
    assert [offsets.get(b"%d" % n) for n in range(count)] == list(range(count))
    offsets.put(b"0", count)
    assert offsets.get(b"0") == count
    assert len(offsets._table) <= slots * SLOT_SIZE


def test_a_full_table_still_ends_its_searches():
    offsets = OffsetMap(10 * SLOT_SIZE, 1.0)
    while not offsets.is_full:
        offsets.put(b"%d" % len(offsets), len(offsets))
    assert len(offsets) == 9
    assert offsets.get(b"not there") == NO_OFFSET
