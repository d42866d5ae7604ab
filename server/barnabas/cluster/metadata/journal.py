"""The journal in which older versions stored the metadata of a broker without a cluster: lines of JSON in several copies.

The rule: all copies have the same bytes, so a damaged part of one copy is read from the same place of another.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Final

from barnabas.cluster.metadata import journal_lines
from barnabas.cluster.metadata.image import Change
from barnabas.cluster.metadata.journal_names import journal_files
from barnabas.errors import StorageError
from barnabas.log.disk import Disk

log = logging.getLogger(__name__)

LINE_END: Final = b"\n"


class Content:
    """Content of a journal, merged from all copies.

    `lost` describes each damage that no copy could repair; `newer` names the places of lines of another version: without
    their content nothing may be done.
    """

    __slots__ = ("changes", "lost", "newer")

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.lost: list[str] = []
        self.newer: list[str] = []


class _Copy:
    """The bytes of one copy, its sound lines by position, and the stretches between them that are damaged."""

    def __init__(self, path: str, data: bytes) -> None:
        self.path, self.data = path, data
        self.lines: list[tuple[int, journal_lines.Line]] = []
        self.damaged: list[tuple[int, int]] = []
        self.newer: list[str] = []
        start = 0
        while start < len(data):
            end = data.find(b"\n", start) + 1 or len(data)
            try:
                self.lines.append((start, journal_lines.decode_line(data[start:end])))
            except journal_lines.NewerLineError as error:
                self.newer.append(f"{error} in line {data.count(LINE_END, 0, start) + 1} of {path}")
            except ValueError:
                if self.damaged and self.damaged[-1][1] == start:
                    start = self.damaged.pop()[0]
                self.damaged.append((start, end))
            start = end

    @property
    def version(self) -> int:
        """The number of the last line, if it can be determined."""
        return max(self.lines[-1][1].number, len(self.lines)) if self.lines else 0

    def between(self, start: int, end: int, first: int) -> list[journal_lines.Line] | None:
        """Return the lines of just these bytes, numbered from `first` on; None if they are not there or not sound."""
        lines: list[journal_lines.Line] = []
        at = start
        while at < min(end, len(self.data)):
            after = self.data.find(b"\n", at) + 1 or len(self.data)
            try:
                line = journal_lines.decode_line(self.data[at:after])
            except ValueError:
                return None
            if line.number != first + len(lines):
                return None
            lines.append(line)
            at = after
        return lines if at == end else None


def merge(copies: Sequence[tuple[str, bytes]]) -> Content:
    """Merge (path, bytes) of all copies: the longest copy, with its gaps filled from the others."""
    read: list[_Copy] = []
    for path, data in copies:
        if not any(data == copy.data for copy in read):  # nearly always: equal copies are parsed once
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
    ):  # a crash interrupted a group of lines, before its change was acknowledged
        merged.pop()
    content.changes = [line.change for line in merged]
    return content


def _repaired(best: _Copy, start: int, end: int, read: Sequence[_Copy]) -> list[journal_lines.Line]:
    """Return the missing lines of a copy from another one; empty if no copy has them."""
    before = max((line.number for at, line in best.lines if at < start), default=0)
    for other in read:
        lines = other.between(start, end, before + 1) if other is not best else None
        if lines:
            log.warning(
                "%s was damaged at bytes %d to %d: repaired from %s", best.path, start, end, other.path
            )
            return lines
    return []


def read_journal(disk: Disk, dirs: Iterable[str], suffix: str = "") -> Content:
    """Read and merge all copies in these log dirs with names that end in a suffix. Raises StorageError.

    That is also raised for lines of an unknown, newer version.
    """
    copies = {}
    for path in journal_files(disk, dirs, suffix):
        try:
            copies[path] = disk.read(path)
        except OSError as error:
            log.warning("%s cannot be read: %s", path, error)
    content = merge(list(copies.items()))
    if content.newer:
        more = f" and {len(content.newer) - 1} more" if len(content.newer) > 1 else ""
        raise StorageError(
            next(iter(copies)).rpartition("/")[0],
            OSError(
                "another version of Barnabas has written here: this version does not know the change "
                f"{content.newer[0]}{more}, which may be an ACL. Start that version; nothing was changed"
            ),
        )
    return content
