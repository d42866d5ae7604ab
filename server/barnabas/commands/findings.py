"""Findings of `barnabas doctor`: the subject of a check, its problem, and the way out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

OK, NOTE, PROBLEM, SKIPPED = "ok", "note", "problem", "skipped"


@dataclass(frozen=True, slots=True)
class Finding:
    """A verdict on one subject: OK, NOTE for a possibly intended state, PROBLEM, or SKIPPED with the reason."""

    check: str
    subject: str
    status: str
    text: str
    advice: str = ""


@dataclass(slots=True)
class Findings:
    """Findings in the order of the checks; each is printed immediately."""

    tell: Callable[[Finding], None]
    all: list[Finding] = field(default_factory=list)

    def add(self, check: str, subject: str, status: str, text: str, advice: str = "") -> None:
        """Add a finding."""
        finding = Finding(check, subject, status, text, advice)
        self.all.append(finding)
        self.tell(finding)

    @property
    def has_problems(self) -> bool:
        """True if a finding is a problem."""
        return any(finding.status == PROBLEM for finding in self.all)
