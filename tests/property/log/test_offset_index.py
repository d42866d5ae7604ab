"""Lookups in an offset index: as `bisect` in a list, however entries are spread; an end, whatever the entries are."""

from __future__ import annotations

from bisect import bisect_right
from random import Random

from barnabas.log.format import CorruptFileError
from barnabas.log.format.offset_index import ENTRY_SIZE, OffsetIndex
from tests.support.effort import drawing, examples

INT32 = 2**31


def drawn(random: Random) -> tuple[OffsetIndex, list[int], list[int]]:
    """An index with its offsets and positions: mostly even steps, at times a large one."""
    index = OffsetIndex(random.choice((0, 1_000, 2**40)))
    offset, position = index.base_offset - 1, -1
    offsets, positions = [], []
    jump = random.choice((0.0, 0.01, 0.3))
    for _ in range(random.choice((0, 1, 2, 3, 10, 100, 1_000))):
        offset += random.randint(1, 50) if random.random() >= jump else random.randint(1, 100_000)
        position += random.randint(1, 5_000) if random.random() >= jump else random.randint(1, 1_000_000)
        index.append(offset, position)
        offsets.append(offset)
        positions.append(position)
    return index, offsets, positions


def test_a_lookup_finds_what_bisect_finds() -> None:
    random = drawing()
    for _ in range(examples(300)):
        index, offsets, positions = drawn(random)
        end_offset = (offsets or [index.base_offset])[-1] + 5
        end_position = (positions or [0])[-1] + 5
        near = [at + by for at in random.sample(offsets, min(len(offsets), 5)) for by in (-1, 0, 1)]
        for offset in [*near, *(random.randint(index.base_offset - 5, end_offset) for _ in range(10))]:
            assert index.slots_up_to(offset) == bisect_right(offsets, offset), offset
        near = [at + by for at in random.sample(positions, min(len(positions), 5)) for by in (-1, 0, 1)]
        for position in [*near, *(random.randint(-5, end_position) for _ in range(10))]:
            assert index.slots_before(position) == bisect_right(positions, position - 1), position


def test_lookup_in_damaged_entries_ends_within_the_index() -> None:
    random = drawing()
    for _ in range(examples(300)):
        data = random.randbytes(ENTRY_SIZE * random.randint(1, 200))
        try:
            index = OffsetIndex(0, data)
        except CorruptFileError:
            continue
        for _ in range(10):
            number = random.randint(-INT32, INT32)
            assert 0 <= index.slots_up_to(number) <= len(index), number
            assert 0 <= index.slots_before(number) <= len(index), number
