"""The journal of the embedded store: lines of JSON, each with its number and its checksum, in several copies.

The rule: all copies hold the same bytes, so that what is damaged in one of them is taken from the same place of another.
A copy is written after the journal itself has been synced: what it has is true. Credentials are among the changes: only
the owner of the files may read them.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from errno import EIO
from typing import Final

from barnabas.cluster.metadata import encoding
from barnabas.cluster.metadata.image import Change
from barnabas.errors import StorageError
from barnabas.log.disk import Disk, File

log = logging.getLogger(__name__)

JOURNAL = "barnabas-metadata.jsonl"
COPY = "barnabas-metadata.copy.jsonl"
DAMAGED = "barnabas-metadata.damaged.jsonl"
"""Copy of a damaged journal as it was before it was repaired."""
LINE_END: Final = b"\n"


class Content:
    """Content of a journal, as all of its copies together say it.

    `lost` describes each damage that no copy could repair; `data` is what every copy should hold, None if the changes
    must be written again. `version` is the number of the last line. `newer` names the places of lines that a newer version
    has written: without what they say nothing may be done.
    """

    __slots__ = ("changes", "data", "lost", "newer", "version")

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.version = 0
        self.data: bytes | None = b""
        self.lost: list[str] = []
        self.newer: list[str] = []


class _Copy:
    """The bytes of one copy, its sound lines by position, and the stretches between them that are damaged."""

    def __init__(self, path: str, data: bytes) -> None:
        self.path, self.data = path, data
        self.lines: list[tuple[int, encoding.Line]] = []
        self.damaged: list[tuple[int, int]] = []
        self.newer: list[str] = []
        start = 0
        while start < len(data):
            end = data.find(b"\n", start) + 1 or len(data)
            try:
                self.lines.append((start, encoding.decode_line(data[start:end])))
            except encoding.NewerLineError as error:
                self.newer.append(f"{error} in line {data.count(LINE_END, 0, start) + 1} of {path}")
            except ValueError:
                if self.damaged and self.damaged[-1][1] == start:
                    start = self.damaged.pop()[0]
                self.damaged.append((start, end))
            start = end

    @property
    def version(self) -> int:
        """The number of the last line, as far as it can be known."""
        return max(self.lines[-1][1].number, len(self.lines)) if self.lines else 0

    def between(self, start: int, end: int, first: int) -> list[encoding.Line] | None:
        """Return the lines of just these bytes, numbered from `first` on; None if they are not there or not sound."""
        lines: list[encoding.Line] = []
        at = start
        while at < min(end, len(self.data)):
            after = self.data.find(b"\n", at) + 1 or len(self.data)
            try:
                line = encoding.decode_line(self.data[at:after])
            except ValueError:
                return None
            if line.number != first + len(lines):
                return None
            lines.append(line)
            at = after
        return lines if at == end else None


def merge(copies: Sequence[tuple[str, bytes]]) -> Content:
    """Read (path, bytes) of all copies as one; the one that goes furthest counts, the others fill its gaps."""
    read: list[_Copy] = []
    for path, data in copies:
        if not any(
            data == copy.data for copy in read
        ):  # as nearly always: what is read once need not be read again
            read.append(_Copy(path, data))
    if not read:
        return Content()
    newer = [place for copy in read for place in copy.newer]
    if newer:
        content = Content()
        content.newer = newer
        return content
    best = max(read, key=lambda copy: copy.version)  # the first of those that are equally far
    content = Content()
    parts = [(start, [line]) for start, line in best.lines]
    for start, end in best.damaged:
        lines = _repaired(best, start, end, read)
        if lines:
            parts.append((start, lines))
        elif end == len(best.data) and not best.data.endswith(b"\n"):
            log.warning("%s ends in a line that was not written whole: cut off", best.path)
        else:
            content.lost.append(f"{best.path}, bytes {start} to {end}")
    merged = [line for _, part in sorted(parts, key=lambda part: part[0]) for line in part]
    while (
        merged and merged[-1].has_more
    ):  # a crash cut off what belongs together, before anybody was told of it
        merged.pop()
    content.changes = [line.change for line in merged]
    content.version = max(merged[-1].number, len(merged)) if merged else 0
    is_whole = not content.lost and all(line.number >= 0 for line in merged)
    content.data = b"".join([line.data for line in merged]) if is_whole else None
    return content


def _repaired(best: _Copy, start: int, end: int, read: Sequence[_Copy]) -> list[encoding.Line]:
    """Return the lines that should be in these bytes of a copy, from another one; none if no copy has them."""
    before = max((line.number for at, line in best.lines if at < start), default=0)
    for other in read:
        lines = other.between(start, end, before + 1) if other is not best else None
        if lines:
            log.warning(
                "%s was damaged at bytes %d to %d: repaired from %s", best.path, start, end, other.path
            )
            return lines
    return []


class Journal:
    """The copies of a journal on disk. All methods wait for the disk: best called in a thread, one at a time.

    Lifecycle: `read`, then `settle`, then `append`; `close` at the end. Raises StorageError for the log dir that failed.
    """

    def __init__(self, dirs: Sequence[str], disk: Disk) -> None:
        """The journal itself is in the first of `dirs`, with a copy beside it and one in each other dir."""
        self._dirs = list(dirs)
        self._disk = disk
        self._path = f"{dirs[0]}/{JOURNAL}"
        self._copies = [f"{directory}/{COPY}" for directory in dirs]
        self._files: dict[str, File] = {}
        self._is_cut_off = False
        self._size = 0
        self._found: dict[str, bytes] = {}

    def read(self) -> Content:
        """Read and merge all copies, also those that were left under another order of the dirs.

        Raises StorageError also where a newer version has written what this one cannot read.
        """
        copies = {}
        for directory in self._dirs:
            for name in (JOURNAL, COPY):
                path = f"{directory}/{name}"
                try:
                    copies[path] = self._disk.read(path)
                except FileNotFoundError:
                    continue
                except OSError as error:
                    if directory == self._dirs[0]:
                        raise StorageError(directory, error) from error
                    log.warning("%s cannot be read: %s", path, error)
        self._found = copies
        content = merge(list(copies.items()))
        if content.newer:
            more = f" and {len(content.newer) - 1} more" if len(content.newer) > 1 else ""
            raise StorageError(
                self._dirs[0],
                OSError(
                    "a newer version of Barnabas has written here: this version does not know the change "
                    f"{content.newer[0]}{more}, which may be an ACL. Start the newer version; nothing was changed"
                ),
            )
        return content

    def settle(self, content: Content) -> None:
        """Have every copy hold just this. `content.data` of None is replaced by what is written."""
        if content.data is None:
            first = content.version - len(content.changes) + 1
            content.data = encode_lines([[change] for change in content.changes], first)
        if content.lost and self._path in self._found:
            self._replace(f"{self._dirs[0]}/{DAMAGED}", self._found[self._path])
        if content.data or self._found:
            self._settle(self._path, content.data)
            for path in self._copies:
                try:
                    self._settle(path, content.data)
                except StorageError as error:
                    self._give_up(path, error)
        self._size = len(content.data)
        self._found = {}

    def _settle(self, path: str, data: bytes) -> None:
        if self._found.get(path) != data:
            self._replace(path, data)
        else:
            self._make_private(path)

    def _replace(self, path: str, data: bytes) -> None:
        try:
            self._make_private(path)
            self._disk.replace(path, data, sync=True)
        except OSError as error:
            raise StorageError(path.rpartition("/")[0], error) from error

    def append(self, groups: Sequence[Sequence[Change]], first: int) -> None:
        """Add lines numbered from `first` on; of each group all are read again, or none."""
        data = encode_lines(groups, first)
        try:
            self._write(self._path, data, is_synced=True)
        except OSError as error:
            self._is_cut_off = True
            raise StorageError(self._dirs[0], error) from error
        for path in tuple(self._copies):
            try:
                self._write(path, data, is_synced=path.rpartition("/")[0] != self._dirs[0])
            except OSError as error:
                self._give_up(path, error)
        self._size += len(data)
        self._is_cut_off = False

    def _write(self, path: str, data: bytes, *, is_synced: bool) -> None:
        file = self._files.get(path)
        if file is None:
            self._make_private(path)
            file = self._files[path] = self._disk.open(path, create=True)
            file.truncate(self._size)
            self._disk.sync_dir(path.rpartition("/")[0])
        elif not file.is_at(path):
            raise OSError(EIO, "it was removed or replaced while the broker had it open", path)
        elif self._is_cut_off:
            file.truncate(self._size)
        file.write(data, self._size)
        if is_synced:
            file.sync()

    def _make_private(self, path: str) -> None:
        try:
            self._disk.make_private(path)
        except PermissionError as error:  # the file is another user's, or the file system knows no owners
            log.warning("%s may be readable by others, and holds credentials: %s", path, error)

    def _give_up(self, path: str, error: Exception) -> None:
        log.warning("%s is not kept up to date from now on: %s", path, error)
        self._copies.remove(path)
        self._files.pop(path, None)

    def close(self) -> None:
        """Sync the copy that is not synced with each change, and let go of the files."""
        for path in tuple(self._copies):
            file = self._files.get(path)
            try:
                if file is not None:
                    file.sync()
            except OSError as error:
                self._give_up(path, error)
        self._files.clear()


def encode_lines(groups: Sequence[Sequence[Change]], first: int) -> bytes:
    """Return the lines of these groups of changes, numbered from `first` on."""
    lines = []
    number = first
    for group in groups:
        for lines_after, change in enumerate(group, 1 - len(group)):
            lines.append(encoding.encode_line(number, change, has_more=lines_after != 0))
            number += 1
    return b"".join(lines)
