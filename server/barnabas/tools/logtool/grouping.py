"""The findings of `verify` as rows: one for each file and severity, or one for each finding.

The rule: a file with ten thousand bad entries takes one line and little memory; their number is always shown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from barnabas.tools.logtool.rows import Row
from barnabas.tools.logtool.verify import Finding, Severity

PLACES_MAX = 3


@dataclass(slots=True)
class _Group:
    first: Finding
    count: int = 1
    positions: list[int] = field(default_factory=list)  # of the next ones, PLACES_MAX at most


class FindingRows:
    """Counts findings and emits their rows: at once with `each`, else grouped by file when `flush` is called."""

    def __init__(self, emit: Callable[[Row], None], *, each: bool = False, quiet: bool = False) -> None:
        self.counts = dict.fromkeys(Severity, 0)
        self.before_row: Callable[[], None] = lambda: None
        self._write = emit
        self._each = each
        self._quiet = quiet
        self._groups: dict[tuple[str, Severity], _Group] = {}

    def add(self, finding: Finding) -> None:
        """Add a finding; with `quiet`, those that are no errors are only counted."""
        self.counts[finding.severity] += 1
        if self._quiet and finding.severity is not Severity.ERROR:
            return
        if self._each:
            self._emit(_row(finding))
            return
        group = self._groups.get((finding.path, finding.severity))
        if group is None:
            self._groups[finding.path, finding.severity] = _Group(finding)
            return
        group.count += 1
        if finding.position >= 0 and len(group.positions) < PLACES_MAX:
            group.positions.append(finding.position)

    def _emit(self, row: Row) -> None:
        self.before_row()
        self._write(row)

    def flush(self) -> None:
        """Emit the groups."""
        for group in self._groups.values():
            row = _row(group.first)
            if group.count > 1:
                row["count"] = group.count
                row["next_positions"] = group.positions
            self._emit(row)
        self._groups.clear()


def _row(finding: Finding) -> Row:
    position = None if finding.position < 0 else finding.position
    kind = finding.severity.name.lower()
    return {"kind": kind, "path": finding.path, "position": position, "text": finding.text}
