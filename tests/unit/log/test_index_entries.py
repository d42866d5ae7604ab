"""An entry of an index is believed only if it fits the batch that it is of, and its neighbours."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.log.disk import OsDisk
from barnabas.log.format.offset_index import OffsetIndex
from barnabas.log.format.time_index import TimeIndex
from barnabas.log.index_checks import time_entry_holds
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


# --- the time index -----------------------------------------------------------------------------------------------


def times(segment: Segment, *entries: tuple[int, int]) -> None:
    """Set the time index, as a damaged file may be: with entries that do not rise too."""
    segment.time_index = TimeIndex(BASE)
    for after_ms, offset in entries:
        segment.time_index.last_timestamp = -1
        segment.time_index.append(NOW_MS + after_ms, offset)


@pytest.mark.parametrize("entry", [(0, 101), (2, 101), (1, 102), (5, 105), (3, 106), (1, 99)])
def test_a_time_does_not_hold_that_is_of_another_batch_or_of_none(segment, entry):
    times(segment, entry)
    assert not time_entry_holds(segment, 0)


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
