"""Plan for the files of a partition's directory when it is opened.

The rule: names in, names out; the loader does it. The steps are ordered so that after a crash between any two of them a
new plan leads to the same result.

A cleaner writes `.cleaned` files, renames them to `.swap` when they are complete (the last base offset first), marks the
old files `.deleted`, and removes the suffix `.swap`. So `.deleted` and `.cleaned` files are to be removed, and while
there is a `.cleaned` file, the `.swap` files at and after its offset belong to the same unfinished group. All other
`.swap` files are complete, and replace the segments in their range.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from barnabas.log.format import names
from barnabas.log.format.names import SegmentFile


class Rename(NamedTuple):
    """A rename of a file."""

    source: str
    target: str


class Leftovers:
    """First step: files to remove, and the base offsets of `.swap` logs: step two needs their end offsets."""

    __slots__ = ("remove", "swap_files", "swapped_logs")

    def __init__(self) -> None:
        self.remove: list[str] = []
        self.swapped_logs: list[int] = []
        self.swap_files: list[str] = []


def plan_leftovers(file_names: Iterable[str]) -> Leftovers:
    """Find the files of an interrupted deletion or compaction."""
    plan = Leftovers()
    cleaned_min: int | None = None
    swaps: list[tuple[str, SegmentFile]] = []
    for name in file_names:
        file = names.parse_file_name(name)
        if file is None:
            if name.endswith((names.DELETED, ".tmp")):
                plan.remove.append(name)
        elif file.mark == names.DELETED:
            plan.remove.append(name)
        elif file.mark == names.CLEANED:
            plan.remove.append(name)
            if cleaned_min is None or file.base_offset < cleaned_min:
                cleaned_min = file.base_offset
        elif file.mark == names.SWAP:
            swaps.append((name, file))
    for name, file in swaps:
        if cleaned_min is not None and file.base_offset >= cleaned_min:
            plan.remove.append(name)
            continue
        plan.swap_files.append(name)
        if file.suffix == names.LOG:
            plan.swapped_logs.append(file.base_offset)
    return plan


def plan_swap(
    file_names: Iterable[str], leftovers: Leftovers, swap_ranges: Sequence[tuple[int, int]]
) -> tuple[list[str], list[Rename]]:
    """Second step: finish the swap. Returns the files to remove, and then those to rename.

    `swap_ranges` are (base offset, end offset) of the swapped-in logs. Segments between the first and the last of these
    offsets were compacted into them.
    """
    if not leftovers.swap_files:
        return [], []
    start = min((base for base, _ in swap_ranges), default=0)
    end = max((end for _, end in swap_ranges), default=0)
    remove = []
    for name in file_names:
        file = names.parse_file_name(name)
        if file is not None and not file.mark and start <= file.base_offset < end:
            remove.append(name)
    renames = [Rename(name, name.removesuffix(names.SWAP)) for name in leftovers.swap_files]
    return sorted(remove), sorted(renames)


class SegmentFiles:
    """A segment's files in the directory."""

    __slots__ = ("base_offset", "has_offset_index", "has_time_index", "has_txn_index")

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.has_offset_index = False
        self.has_time_index = False
        self.has_txn_index = False

    @property
    def has_indexes(self) -> bool:
        """True if the segment has both indexes, as every sealed segment does."""
        return self.has_offset_index and self.has_time_index


class Inventory(NamedTuple):
    """Third step: the segments and snapshots, by offset, and index files without a segment."""

    segments: list[SegmentFiles]
    snapshots: list[int]
    orphans: list[str]


def take_inventory(file_names: Iterable[str]) -> Inventory:
    """Sort the files of a directory without leftovers."""
    files = [(name, file) for name in file_names if (file := names.parse_file_name(name)) and not file.mark]
    segments = {
        file.base_offset: SegmentFiles(file.base_offset) for _, file in files if file.suffix == names.LOG
    }
    snapshots: list[int] = []
    orphans: list[str] = []
    for name, file in files:
        if file.suffix == names.SNAPSHOT:
            snapshots.append(file.base_offset)
            continue
        segment = segments.get(file.base_offset)
        if segment is None:
            orphans.append(name)
        elif file.suffix == names.OFFSET_INDEX:
            segment.has_offset_index = True
        elif file.suffix == names.TIME_INDEX:
            segment.has_time_index = True
        elif file.suffix == names.TXN_INDEX:
            segment.has_txn_index = True
    return Inventory([segments[base] for base in sorted(segments)], sorted(snapshots), orphans)


def first_to_check(base_offsets: Sequence[int], recovery_point: int, *, is_clean: bool) -> int:
    """Return the index of the first segment with records after the recovery point."""
    if is_clean:
        return len(base_offsets)
    for n in range(1, len(base_offsets)):
        if base_offsets[n] > recovery_point:
            return n - 1
    return max(0, len(base_offsets) - 1)


def stray_snapshots(snapshots: Sequence[int], base_offsets: Sequence[int]) -> list[int]:
    """Return the snapshots to remove: those not at the start of a segment, except one after the last segment."""
    bases = set(base_offsets)
    last_base = max(base_offsets, default=0)
    strays = sorted(offset for offset in snapshots if offset not in bases)
    if strays and strays[-1] >= last_base:
        strays.pop()
    return strays
