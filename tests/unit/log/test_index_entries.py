"""An entry of an index is believed only if it fits the batch that it is of, and its neighbours."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.log.disk import OsDisk
from barnabas.log.format.offset_index import OffsetIndex
from barnabas.log.format.time_index import TimeIndex
from barnabas.log.index_checks import offset_entry_holds, time_entry_holds
from barnabas.records.batch import BatchHeader, iter_batches
from tests.support.logs import NOW_MS, batch, rebase

BASE = 100


class Segment:
    """Three batches: offsets 100-101 of NOW_MS + 1, 102-104 of NOW_MS + 5, 105 of NOW_MS + 3."""

    base_offset = BASE

    def __init__(self, directory: Path) -> None:
        data, offset = b"", BASE
        for count, after_ms in ((2, 1), (3, 5), (1, 3)):
            raw = batch(*[b"v"] * count, timestamp=NOW_MS + after_ms)
            rebase(raw, 0, offset, 0)
            data, offset = data + raw, offset + count
        (directory / "log").write_bytes(data)
        self.file = OsDisk().open(str(directory / "log"))
        self.size = len(data)
        self.batches = list(iter_batches(data))
        self.positions = [position for position, _ in self.batches]
        self.offset_index = OffsetIndex(BASE)
        self.time_index = TimeIndex(BASE)

    def find(self, offset: int) -> tuple[int, BatchHeader] | None:
        return next(
            ((position, header) for position, header in self.batches if header.last_offset >= offset), None
        )


@pytest.fixture
def segment(tmp_path):
    return Segment(tmp_path)


# --- the offset index ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "offset"), [(0, 101), (0, 103), (1, 104), (2, 105)])
def test_entry_of_a_batch_that_ends_by_its_offset_holds(segment, number, offset):
    segment.offset_index.append(offset, segment.positions[number])
    assert offset_entry_holds(segment, 0)


@pytest.mark.parametrize(("number", "offset"), [(0, 100), (1, 103), (2, 104)])
def test_entry_of_a_batch_that_ends_later_does_not_hold(segment, number, offset):
    segment.offset_index.append(offset, segment.positions[number])
    assert not offset_entry_holds(segment, 0)


@pytest.mark.parametrize("shift", [-1, 1, 61])
def test_an_entry_does_not_hold_where_no_batch_begins(segment, shift):
    segment.offset_index.append(105, segment.positions[1] + shift)
    assert not offset_entry_holds(segment, 0)


def test_entry_at_or_after_the_segments_end_does_not_hold(segment):
    for position in (segment.size, segment.size + 1):
        segment.offset_index = OffsetIndex(BASE)
        segment.offset_index.append(105, position)
        assert not offset_entry_holds(segment, 0)
    segment.size -= 1  # the last batch is not whole
    segment.offset_index = OffsetIndex(BASE)
    segment.offset_index.append(105, segment.positions[2])
    assert not offset_entry_holds(segment, 0)


def test_entry_of_another_segments_batch_does_not_hold(segment):
    segment.base_offset = BASE + 1
    segment.offset_index.append(101, segment.positions[0])
    assert not offset_entry_holds(segment, 0)


@pytest.mark.parametrize("slot", [-1, 0, 1])
def test_there_is_nothing_wrong_with_an_entry_that_is_not_there(segment, slot):
    assert offset_entry_holds(segment, slot)
    assert time_entry_holds(segment, slot)


# --- the time index -----------------------------------------------------------------------------------------------


def times(segment: Segment, *entries: tuple[int, int]) -> None:
    """Set the time index, as a damaged file may be: with entries that do not rise too."""
    segment.time_index = TimeIndex(BASE)
    for after_ms, offset in entries:
        segment.time_index.last_timestamp = -1
        segment.time_index.append(NOW_MS + after_ms, offset)


@pytest.mark.parametrize("entry", [(1, 101), (1, 100), (5, 104), (5, 102), (3, 105)])
def test_time_that_is_the_largest_of_its_batch_holds(segment, entry):
    times(segment, entry)
    assert time_entry_holds(segment, 0)


@pytest.mark.parametrize("entry", [(0, 101), (2, 101), (1, 102), (5, 105), (3, 106), (1, 99)])
def test_time_of_another_batch_or_none_does_not_hold(segment, entry):
    times(segment, entry)
    assert not time_entry_holds(segment, 0)


def test_time_of_a_compacted_offset_does_not_hold(segment):
    """The batch that is found then begins later: of the entry's own batch nothing is known."""
    del segment.batches[0]
    times(segment, (5, 101))
    assert not time_entry_holds(segment, 0)


def test_times_hold_that_rise_with_their_offsets(segment):
    times(segment, (1, 101), (5, 104))
    assert [time_entry_holds(segment, slot) for slot in (0, 1)] == [True, True]


@pytest.mark.parametrize(
    "entries",
    [
        [(1, 101), (1, 104)],  # the times do not rise
        [(5, 104), (1, 101)],
        [(3, 105), (5, 104)],  # the offsets fall
    ],
)
def test_of_two_neighbours_that_do_not_rise_neither_holds(segment, entries):
    times(segment, *entries)
    assert [time_entry_holds(segment, slot) for slot in (0, 1)] == [False, False]


def test_middle_entry_is_compared_with_both_neighbours(segment):
    times(segment, (1, 101), (5, 104), (3, 105))
    assert [time_entry_holds(segment, slot) for slot in (0, 1, 2)] == [True, False, False]
    times(segment, (6, 100), (5, 104), (7, 105))
    assert not time_entry_holds(segment, 1)
