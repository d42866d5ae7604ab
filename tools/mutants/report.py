"""The table of packages, the list of surviving mutants, and the page with the table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.mutants.slips import Mutant
from tools.mutants.source import ROOT

PAGE = ROOT / "docs" / "design" / "mutation.md"
BEGIN = '<!-- scores: `make mutants ARGS="... --write"` -->'
END = "<!-- end of scores -->"
HEAD = ("Package", "Noticed", "Planted", "Score", "Run by no test", "Sample")


@dataclass(frozen=True)
class Verdict:
    """A mutant that was tried."""

    mutant: Mutant
    noticed_by: str
    """The failed test, or another reason; empty if the mutant survived."""
    is_run: bool
    """True if any test runs its lines."""


OF_PACKAGES = {"cluster", "coordinators", "tools"}
"""Packages of packages with separate tests."""


def package_of(path: str) -> str:
    """Return the package below `barnabas` that a file belongs to: `log`, `cluster/replicas`, `pipeline/jobs/mirror`."""
    first, _, *below = Path(path).parts
    if first == "pipeline":
        return "/".join([first, *below[:-1]])
    return "/".join(below[:2] if below[0] in OF_PACKAGES else below[:1]).removesuffix(".py")


def rows(verdicts: Iterable[Verdict], sample: str) -> list[tuple[str, ...]]:
    """Return the rows of the table, by package."""
    by_package: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        by_package.setdefault(package_of(verdict.mutant.path), []).append(verdict)
    table: list[tuple[str, ...]] = []
    for package, tried in sorted(by_package.items()):
        noticed = sum(bool(verdict.noticed_by) for verdict in tried)
        missed = sum(not verdict.is_run for verdict in tried)
        share = f"{100 * noticed / len(tried):.0f} %"
        table.append((package, str(noticed), str(len(tried)), share, str(missed), sample))
    return table


def table(lines: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    head = ["| " + " | ".join(HEAD) + " |", "|---|---:|---:|---:|---:|---|"]
    return "\n".join([*head, *("| " + " | ".join(line) + " |" for line in lines)])


def survivor(mutant: Mutant, *, is_run: bool) -> str:
    """Return a surviving mutant as a one-line diff."""
    note = "" if is_run else ", run by no test"
    return (
        f"{mutant.path}:{mutant.line}: {mutant.unit.name}: {mutant.slip}{note}\n"
        f"  - {mutant.before}\n  + {mutant.after}"
    )


def write(lines: Sequence[tuple[str, ...]]) -> None:
    """Write new rows into the page; rows of other packages stay."""
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    old, _, after = rest.partition(END)
    kept: dict[str, tuple[str, ...]] = {}
    for line in old.strip().splitlines()[2:]:
        cells = tuple(cell.strip() for cell in line.strip("|").split("|"))
        kept[cells[0]] = cells
    kept |= {line[0]: line for line in lines}
    PAGE.write_text(f"{before}{BEGIN}\n\n{table([kept[name] for name in sorted(kept)])}\n\n{END}{after}")
