"""The matrix on a terminal and as Markdown.

The rule: all failures and skips are listed below the table with their reasons.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from compat.clients.shared.python.harness import CASES
from compat.matrix.clients import Verdict, Verdicts, title
from compat.matrix.known import known_reason
from compat.matrix.suites import SUITES

# Columns that the matrix adds: the broker's own behaviour, and the program's.
EXTRA = ("broker", "exit-code")


@dataclass
class Matrix:
    """Verdicts by client or suite, and case. `excuses`: known failures count as such (for Kafka they do not)."""

    excuses: bool
    rows: dict[str, Verdicts] = field(default_factory=dict)
    suites: dict[str, Verdicts] = field(default_factory=dict)

    def cases(self) -> list[str]:
        """The columns."""
        seen = {case for row in self.rows.values() for case in row}
        return [case for case in (*CASES, *EXTRA) if case in seen]

    def known(self, client: str, case: str) -> str:
        """Return why a failure is expected, empty if it is not."""
        return known_reason(client, case) if self.excuses else ""

    def unexpected(self) -> list[tuple[str, str, Verdict]]:
        """Return the failures that are not known ones."""
        return [cell for cell in self._cells("FAIL") if not self.known(cell[0], cell[1])]

    def recovered(self) -> list[tuple[str, str]]:
        """Cases that pass though they are listed as known to fail."""
        return [(client, case) for client, case, _ in self._cells("PASS") if self.known(client, case)]

    def _cells(self, status: str) -> Iterator[tuple[str, str, Verdict]]:
        for client, row in (*self.rows.items(), *self.suites.items()):
            for case, verdict in row.items():
                if verdict.status == status:
                    yield client, case, verdict

    # --- terminal -----------------------------------------------------------------------------------------------

    def text(self) -> str:
        """The table with seconds, then what did not pass."""
        cases = self.cases()
        heads = [case.split("-") for case in cases]
        height = max(map(len, heads), default=0)
        lines = [["", *(head[i] if i < len(head) else "" for head in heads)] for i in range(height)]
        for client, row in self.rows.items():
            lines.append([client, *(self._cell(client, case, row.get(case)) for case in cases)])
        widths = [max((len(line[column]) for line in lines), default=0) for column in range(len(cases) + 1)]
        padded = [
            "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) for line in lines
        ]
        own = [
            f"{name}: "
            + ", ".join(f"{case} {self._cell(name, case, verdict)}" for case, verdict in row.items())
            for name, row in self.suites.items()
        ]
        return "\n".join(line.rstrip() for line in [*padded, "", *own, "", *self._notes()])

    def _cell(self, client: str, case: str, verdict: Verdict | None) -> str:
        if verdict is None:
            return ""
        if verdict.status == "PASS":
            return "ok" if verdict.seconds is None else f"{verdict.seconds:.1f} s"
        if verdict.status == "FAIL":
            return "known" if self.known(client, case) else "FAIL"
        return "-"

    def _notes(self) -> Iterator[str]:
        skipped: dict[str, list[str]] = {}
        for client, case, verdict in self._cells("SKIP"):
            skipped.setdefault(f"{client}: {verdict.detail}", []).append(case)
        for reason, cases in skipped.items():
            client, _, text = reason.partition(": ")
            yield f"SKIP   {client} {', '.join(cases)}: {text}"
        for client, case, verdict in self._cells("FAIL"):
            known_reason = self.known(client, case)
            if known_reason:
                yield f"known  {client} {case}: {known_reason} ({verdict.detail[:160]})"
        for client, case, verdict in self.unexpected():
            yield f"FAIL   {client} {case}: {verdict.detail}"
        for client, case in self.recovered():
            yield f"PASSES {client} {case}: take it off the list in compat/matrix/known.py"

    # --- Markdown -----------------------------------------------------------------------------------------------

    def markdown(self, records: int) -> str:
        """The page docs/reference/compatibility.md."""
        cases = self.cases()
        notes: list[str] = []
        lines = [
            "# Stock clients",
            "",
            f"Written by `make compat ARGS=--write`, with {records} records per topic. What the cases do is said in",
            "`compat/clients/README.md`. ✓ passes, ✗ fails, – does not apply; the numbers are reasons, listed below.",
            "",
            "| client | " + " | ".join(case.replace("-", "<br>") for case in cases) + " |",
            "|---" * (len(cases) + 1) + "|",
        ]
        for client, row in self.rows.items():
            cells = [self._mark(client, case, row.get(case), notes) for case in cases]
            lines.append(f"| {title(client)} | " + " | ".join(cells) + " |")
        for name, row in self.suites.items():
            lines += ["", f"{SUITES[name].title}:", ""]
            lines += [
                "| " + " | ".join(case.replace("-", "<br>") for case in row) + " |",
                "|---" * len(row) + "|",
            ]
            marks = (self._mark(name, case, verdict, notes) for case, verdict in row.items())
            lines.append("| " + " | ".join(marks) + " |")
        lines += ["", *(f"{number}. {note}" for number, note in enumerate(notes, 1))]
        return "\n".join(lines).rstrip() + "\n"

    def _mark(self, client: str, case: str, verdict: Verdict | None, notes: list[str]) -> str:
        if verdict is None:
            return ""
        if verdict.status == "PASS":
            return "✓"
        reason = self.known(client, case) if verdict.status == "FAIL" else ""
        note = reason or verdict.detail
        if note not in notes:
            notes.append(note)
        return f"{'✗' if verdict.status == 'FAIL' else '–'} {notes.index(note) + 1}"
