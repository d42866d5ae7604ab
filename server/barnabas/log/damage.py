"""Damage in the middle of a segment: its extent, and how the sound part is kept.

The rule: nothing sound is removed. Bytes cut out of a log are kept beside it, in a file `<base>.log.damaged-<offset>`,
and their replacement is synced before they are removed. After a crash in between, the next recovery comes to the same
result.

A damaged batch is cut out by splitting the segment: the part after the damage becomes a segment at the offset of its
first batch. Readers then see a gap in the offsets, as after compaction.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import NamedTuple

from barnabas.errors import lacks_room
from barnabas.log.disk import Disk, File
from barnabas.log.format import names
from barnabas.log.scan import sound_header_at
from barnabas.records.batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC_OFFSET,
    BatchHeader,
    read_any_header,
    read_header,
)
from barnabas.records.errors import RecordsError

log = logging.getLogger(__name__)

COPY_BYTES = 1 << 20
SUMMED_BYTES_MIN = 64 << 20
"""Least number of bytes that a search checksums before it gives up: each apparent header costs a checksum."""


class Damage(NamedTuple):
    """Unsound part of a segment file, from `position` up to `end`, where a sound batch begins or the file ends.

    `offset` is the first missing offset, `next_offset` that of the sound batch (-1 without one).
    """

    path: str
    position: int
    end: int
    offset: int
    next_offset: int
    reason: str

    @property
    def lost(self) -> str:
        """The missing offsets in words; empty if the sound batch does not begin after the damage."""
        if self.next_offset < 0:
            return f"offsets from {self.offset} on"
        if self.next_offset <= self.offset:
            return "no offset"
        return f"offsets {self.offset} to {self.next_offset - 1}"


class SoundBatch(NamedTuple):
    """Position and base offset of a sound batch."""

    position: int
    base_offset: int


def find_sound_batch(
    file: File,
    position: int,
    end: int,
    *,
    first_offset: int = 0,
    offset_limit: int = 1 << 63,
    chunk_bytes: int = COPY_BYTES,
) -> SoundBatch | None:
    """Return the first batch (magic 2) at or after `position` that is sound and fits the log there.

    It has a good checksum, offsets from `first_offset` up to before `offset_limit`, and is followed by another batch or
    the end: a batch inside a record's value does not belong to the log. Raises OSError.
    """
    declared = _declared_next(file, position, end)
    if declared is not None and _belongs(declared[1], first_offset, offset_limit):
        return SoundBatch(declared[0], declared[1].base_offset)
    budget = max(SUMMED_BYTES_MIN, 16 * (end - position))
    position += 1
    while end - position >= HEADER_SIZE:
        data = file.read(min(chunk_bytes, end - position), position)
        at = data.find(2, MAGIC_OFFSET)
        while at >= 0:
            start = position + at - MAGIC_OFFSET
            header = _header_at(data, at - MAGIC_OFFSET, file, start)
            if (
                header is not None
                and header.size <= end - start
                and _belongs(header, first_offset, offset_limit)
            ):
                budget -= header.size
                if _begins_chain(file, start, header, end):
                    return SoundBatch(start, header.base_offset)
                if budget < 0:
                    return None
            at = data.find(2, at + 1)
        if len(data) <= MAGIC_OFFSET:
            return None
        position += len(data) - MAGIC_OFFSET
    return None


def _declared_next(file: File, position: int, end: int) -> tuple[int, BatchHeader] | None:
    """Return the next sound batch, if both the length and the offsets of the batch at `position` lead to it."""
    try:
        header = read_any_header(file.read(HEADER_SIZE, position))
    except RecordsError:
        return None
    following = sound_header_at(file, position + header.size, end)
    if following is None or following.base_offset != header.next_offset:
        return None
    return position + header.size, following


def _header_at(data: bytes, at: int, file: File, start: int) -> BatchHeader | None:
    length = int.from_bytes(data[at + 8 : at + LOG_OVERHEAD], "big")
    if length < HEADER_SIZE - LOG_OVERHEAD:
        return None
    try:
        if len(data) - at >= HEADER_SIZE:
            return read_header(data, at)
        return read_header(file.read(HEADER_SIZE, start))
    except RecordsError:
        return None


def _belongs(header: BatchHeader, first_offset: int, offset_limit: int) -> bool:
    return first_offset <= header.base_offset <= header.last_offset < offset_limit


def _begins_chain(file: File, position: int, header: BatchHeader, end: int) -> bool:
    if sound_header_at(file, position, end) is None:
        return False
    at_next = position + header.size
    if at_next == end:
        return True
    following = sound_header_at(file, at_next, end)
    return following is not None and following.base_offset >= header.next_offset


def true_base_offset(
    file: File, position: int, end: int, next_offset: int, next_base: int | None = None
) -> int | None:
    """Return the true base offset of the batch at `position` if only that is damaged.

    No checksum covers base offsets. It is certain if the batch fills exactly the gap between `next_offset` and the next
    sound batch, or the next segment, which begins at `next_base`. Raises OSError.
    """
    header = sound_header_at(file, position, end)
    if header is None or header.magic != 2 or header.last_offset_delta < 0:
        return None
    at_next = position + header.size
    following = sound_header_at(file, at_next, end)
    following_offset = (
        following.base_offset if following is not None else next_base if at_next == end else None
    )
    return next_offset if following_offset == next_offset + header.last_offset_delta + 1 else None


def is_known_gap(file_names: Collection[str], offset: int) -> bool:
    """Return whether records were cut out of the log at `offset`, so that a gap follows it."""
    return any(name.endswith(f"{names.LOG}{names.DAMAGED}{offset}") for name in file_names)


def keep_damaged(disk: Disk, damage: Damage, end: int) -> str:
    """Copy the bytes from the damage up to `end` into a file beside the segment; returns its path.

    The copy is synced when this returns. Raises OSError.
    """
    target = f"{damage.path}{names.DAMAGED}{damage.offset}"
    _copy(disk, damage.path, damage.position, end, target)
    return target


def leave_undecided(disk: Disk, directory: str, offset: int) -> None:
    """Note in the directory of an internal topic's partition that records at this offset are missing.

    Its coordinator continues without them only after an operator's decision. Raises OSError.
    """
    parsed_name = names.parse_dir_name(directory.rpartition("/")[2])
    if parsed_name is not None and parsed_name.topic in names.INTERNAL_TOPICS:
        disk.replace(f"{directory}/{names.UNDECIDED}{offset}", b"", sync=True)


def undecided(disk: Disk, directory: str) -> list[str]:
    """Return the paths of the notes of `leave_undecided` in a log's directory. Raises OSError."""
    return [
        f"{directory}/{entry.name}"
        for entry in disk.list(directory)
        if entry.name.startswith(names.UNDECIDED)
    ]


def split_off(disk: Disk, directory: str, damage: Damage, end: int) -> None:
    """Make a separate segment of the part after the damage; it is synced when this returns. Raises OSError."""
    target = f"{directory}/{names.file_name(damage.next_offset, names.LOG)}"
    _copy(disk, damage.path, damage.end, end, target)


def put_back(disk: Disk, directory: str, end_offset: int) -> list[str]:
    """Restore the sound batches in files of damage that belong at `end_offset` or later, as segments.

    The damaged bytes stay in these files. Returns the paths of files in which sound batches stay too, as their offsets
    are in use again. Raises OSError.
    """
    paths_with_rest = []
    found_names = [entry.name for entry in disk.list(directory) if names.LOG + names.DAMAGED in entry.name]
    for name in sorted(found_names, key=_cut_offset):
        path = f"{directory}/{name}"
        file = disk.open(path)
        size = file.size()
        batch = _first_sound(file, size, end_offset)
        rest = size
        if batch is not None:
            target = f"{directory}/{names.file_name(batch.base_offset, names.LOG)}"
            _copy(disk, path, batch.position, size, target)
            end_offset, rest = batch.base_offset + 1, batch.position
            if not rest:
                disk.remove(path)
                continue
            file.truncate(rest)
        if _first_sound(file, rest, 0) is not None:
            paths_with_rest.append(path)
    return paths_with_rest


def _first_sound(file: File, end: int, first_offset: int) -> SoundBatch | None:
    first = sound_header_at(file, 0, end)
    if first is not None and _belongs(first, first_offset, 1 << 63):
        return SoundBatch(0, first.base_offset)
    return find_sound_batch(file, 0, end, first_offset=first_offset)


def _cut_offset(name: str) -> int:
    offset = name.rpartition(names.DAMAGED)[2]
    return int(offset) if offset.isdecimal() else -1


def _copy(disk: Disk, source: str, start: int, end: int, target: str) -> None:
    temporary = f"{target}.tmp"
    disk.remove(temporary)
    file, copy = disk.open(source), disk.open(temporary, create=True)
    position = start
    try:
        while position < end:
            data = file.read(min(COPY_BYTES, end - position), position)
            if not data:
                break
            copy.write(data, position - start)
            position += len(data)
        copy.sync()
    except OSError as error:
        disk.remove(temporary)
        if lacks_room(error):
            text = f"no room for {end - start} bytes of the damaged {source}, which would be lost: make room"
            raise OSError(error.errno, text) from error
        raise
    disk.rename(temporary, target)
    disk.sync_dir(target.rpartition("/")[0])
