"""The map of the cleaner against a dict, through all its sizes, with keys that collide."""

from random import Random

import pytest

from barnabas.log.cleaner import offset_map
from barnabas.log.cleaner.offset_map import NO_OFFSET, SLOT_SIZE, OffsetMap


@pytest.mark.parametrize("slots", [1, 2, 3, 7, 20])
@pytest.mark.parametrize("load", [0.1, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("first", [4, 1 << 10])
def test_every_put_and_get(slots, load, first):
    offsets, plain = OffsetMap(slots * SLOT_SIZE + SLOT_SIZE - 1, load, slots_min=first), {}
    slots = max(2, slots)
    count_max = max(1, min(int(slots * load), slots - 1))
    assert (offsets.slots_max, offsets.count_max) == (slots, count_max)
    random = Random(slots)
    for offset in range(0, 300, 2):
        key = b"%d" % random.randrange(3 * slots)
        if offsets.is_full:
            assert len(plain) == count_max
            key = random.choice(list(plain))
        offsets.put(key, offset)
        plain[key] = offset
        assert offsets.latest_offset == offset
        assert len(offsets) == len(plain) <= count_max
        assert offsets.is_full is (len(plain) == count_max)
        for number in range(3 * slots):
            key = b"%d" % number
            assert offsets.get(key) == plain.get(key, NO_OFFSET)
    assert len(offsets._table) <= slots * SLOT_SIZE


@pytest.mark.parametrize("slots", [8, 9, 11, 64])
def test_it_grows_when_three_quarters_of_it_are_used(slots):
    offsets = OffsetMap(slots * SLOT_SIZE, 0.9, slots_min=4)
    sizes = []
    while not offsets.is_full:
        offsets.put(b"%d" % len(offsets), len(offsets))
        sizes.append(len(offsets._table) // SLOT_SIZE)
    expected, size = [], 4
    for count in range(1, len(sizes) + 1):
        limit = offsets.count_max if size == slots else int(size * 0.75)
        if count > limit:
            size = min(2 * size, slots)
        expected.append(size)
    assert sizes == expected
    with pytest.raises(AssertionError):
        offsets.put(b"one more", 99)


def test_keys_of_the_same_place_are_told_apart(monkeypatch):
    """All of them begin their search at the last slot, and go on at the first."""
    digests = {b"%d" % n: bytes((0xFF,)) * 8 + bytes((n,)) * 8 for n in range(6)}

    class Digest:
        def __init__(self, key):
            self.key = key

        def digest(self):
            return digests[self.key]

    monkeypatch.setattr(offset_map, "blake2b", lambda key, digest_size: Digest(key))
    offsets = OffsetMap(8 * SLOT_SIZE, 0.9)
    for n in range(5):
        offsets.put(b"%d" % n, 10 + n)
    offsets.put(b"2", 50)
    assert [offsets.get(b"%d" % n) for n in range(6)] == [10, 11, 50, 13, 14, NO_OFFSET]
    assert len(offsets) == 5
