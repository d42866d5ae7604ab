"""The producer snapshots in a partition's directory.

The rule: a snapshot only saves time. A damaged or misplaced one is removed, and the log is replayed instead.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from barnabas.log.disk import Disk
from barnabas.log.format import CorruptFileError, names, snapshot
from barnabas.log.producers import ProducerState

log = logging.getLogger(__name__)


class ProducerSnapshots:
    """Saves, loads and removes the snapshots of one partition; `offsets` are those of its snapshots."""

    __slots__ = ("_disk", "directory", "offsets")

    def __init__(self, disk: Disk, directory: str, offsets: Iterable[int] = ()) -> None:
        self._disk = disk
        self.directory = directory
        self.offsets = set(offsets)

    def path(self, offset: int) -> str:
        """Return the path of the snapshot at `offset`."""
        return f"{self.directory}/{names.file_name(offset, names.SNAPSHOT)}"

    def save(self, producers: ProducerState) -> None:
        """Write a snapshot, named by the producers' end offset. Raises OSError."""
        file = self._disk.open(self.path(producers.end_offset), create=True)
        file.truncate(0)
        file.write(snapshot.encode(producers.snapshot()), 0)
        self.offsets.add(producers.end_offset)

    def load(self, producers: ProducerState, log_start_offset: int, end_offset: int, now_ms: int) -> None:
        """Load the newest good snapshot after `log_start_offset` and up to `end_offset`; without one, no producers.

        Removes damaged snapshots, and those out of this range. Raises OSError.
        """
        for offset in sorted(self.offsets, reverse=True):
            if log_start_offset < offset <= end_offset or offset == end_offset:
                try:
                    entries = snapshot.decode(self._disk.read(self.path(offset)))
                except (CorruptFileError, FileNotFoundError) as error:
                    log.warning("removing the producer snapshot %s: %s", self.path(offset), error)
                else:
                    producers.load(entries, offset, now_ms)
                    return
            self.remove([offset])
        producers.clear(log_start_offset)

    def peek(self, producers: ProducerState, log_start_offset: int, end_offset: int) -> None:
        """Do the same as `load` without changing any file. Raises OSError."""
        producers.clear(log_start_offset)
        for offset in sorted(self.offsets, reverse=True):
            if log_start_offset < offset <= end_offset:
                try:
                    producers.load(snapshot.decode(self._disk.read(self.path(offset))), offset, 0)
                except (CorruptFileError, FileNotFoundError):
                    continue
                return

    def remove(self, offsets: Iterable[int]) -> None:
        """Remove snapshots. Raises OSError."""
        for offset in list(offsets):
            self._disk.remove(self.path(offset))
            self.offsets.discard(offset)

    def mark_deleted(self, offset: int) -> str | None:
        """Rename a snapshot so that it may be removed later; returns its new path. Raises OSError."""
        if offset not in self.offsets:
            return None
        self.offsets.discard(offset)
        target = self.path(offset) + names.DELETED
        try:
            self._disk.rename(self.path(offset), target)
        except FileNotFoundError:
            return None
        return target
