"""Damage in the directory of a metadata log with one writer, detected before anything in it changes.

The rule: traces of a crash are not damage: one append at the end that was not written completely, nor acknowledged.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.log.disk import file_names
from barnabas.log.format import CorruptFileError, names
from barnabas.log.format.quorum_state import QUORUM_STATE, QuorumState
from barnabas.log.scan import iter_checked, sound_header_at

if TYPE_CHECKING:
    from barnabas.log.disk import Disk, File

log = logging.getLogger(__name__)

DAMAGED = ".damaged"


def find_damage(disk: Disk, path: str) -> list[str]:
    """Describe the damaged places of a directory. Raises OSError."""
    present = file_names(disk, path)
    parsed = (names.parse_file_name(name) for name in present)
    segments = sorted(file.base_offset for file in parsed if file and file[1:] == (names.LOG, ""))
    ids = sorted((names.parse_checkpoint_name(name) or (0, 0), name) for name in present)
    snapshots = [(end_offset, name) for (end_offset, _), name in ids if end_offset]
    damage = _in_snapshots(disk, path, [name for _, name in snapshots])
    next_offset = snapshots[-1][0] if snapshots else 0  # the log may begin before the newest snapshot
    for base_offset in segments:
        segment = f"{path}/{names.file_name(base_offset, names.LOG)}"
        if base_offset > next_offset:
            damage.append(f"{segment}: offsets {next_offset} to {base_offset - 1} are missing before it")
        next_offset = _in_segment(disk, segment, base_offset, damage, is_last=base_offset == segments[-1])
    return damage


def _in_segment(disk: Disk, path: str, base_offset: int, damage: list[str], *, is_last: bool) -> int:
    """Append the damage of a segment, and return the offset after its last sound batch."""
    file, next_offset = disk.open(path), base_offset
    problems: list[tuple[int, str]] = []
    for _, header in iter_checked(
        file, file.size(), base_offset=base_offset, on_problem=lambda at, text: problems.append((at, text))
    ):
        next_offset = header.next_offset
    for position, text in problems:
        from barnabas.cluster.kraft.salvage import has_batch_from  # not needed by most starts

        if not is_last or has_batch_from(file, position, base_offset):
            damage.append(f"{path}, byte {position}: {text}")
        else:
            log.warning("%s ends in a batch that was not written whole: cut off", path)
    return next_offset


def _in_snapshots(disk: Disk, path: str, snapshots: list[str]) -> list[str]:
    """Describe damaged snapshots, the newest last; only the newest is read beyond its header."""
    damage = []
    for name in snapshots:
        file = disk.open(f"{path}/{name}")
        size = file.size()
        problems = [] if sound_header_at(file, 0, size) is not None else ["its header is damaged"]
        if name == snapshots[-1] and not problems:
            _in_newest(file, size, problems)
        damage += [f"{path}/{name}: {problem}" for problem in problems[:1]]
    return damage


def _in_newest(file: File, size: int, problems: list[str]) -> None:
    """Append the damage of the newest snapshot, read as a whole."""
    next_offset, is_control = 0, False
    for position, header in iter_checked(
        file, size, base_offset=0, on_problem=lambda at, text: problems.append(f"byte {at}: {text}")
    ):
        if header.base_offset != next_offset:
            problems.append(f"byte {position}: a batch begins at {header.base_offset}, not {next_offset}")
        next_offset, is_control = header.next_offset, header.is_control
    if not problems and not (next_offset > 1 and is_control):
        problems.append("it ends before its footer")


def set_aside_election(disk: Disk, path: str) -> None:
    """Rename `quorum-state` if it cannot be read: the only voter's epoch is in its log. Raises OSError."""
    file = f"{path}/{QUORUM_STATE}"
    try:
        QuorumState.decode(disk.read(file))
    except FileNotFoundError:
        pass
    except CorruptFileError as error:
        log.warning(
            "%s: %s. It is written anew; as it was, it is in %s%s", file, error, QUORUM_STATE, DAMAGED
        )
        disk.rename(file, file + DAMAGED)
