"""The page of the gallery, written from the outcomes of a full run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from compat.gallery.catalogue import Bug
from compat.gallery.showing import Outcome

PAGE = Path(__file__).resolve().parents[2] / "docs" / "gallery.md"
_HEAD = """<!-- Written by `python -m compat.gallery --write` from the last run of each: edits are lost. -->

# Bugs of released clients

What the test bench finds: each of these is a bug of a released version, shown from a clean start by one command, which
installs that version, starts a broker that commits the faults, and runs a small program. Where a later release has mended
it, the same program runs with that one too, and does not show it.

    python -m compat.gallery                      # lists them
    python -m compat.gallery {first}
    make gallery ARGS={first}                     # the same, and sets up what it needs
    make gallery                                  # all of them

The exit code is 0 when the broken version shows the bug and the mended one does not, 1 when it is otherwise, 2 when there
was no verdict. `--version` tries any other version. The files of each are in [compat/gallery/bugs](../compat/gallery/bugs):
`faults.yaml` is what the broker does ([faults](reference/faults.md)), and can be given to `barnabas serve --faults`; the
program is what a user of the client would write.

| | client | broken | mended | |
|---|---|---|---|---|
"""


KEPT = Path(__file__).resolve().parents[2] / ".tools" / "gallery" / "outcomes.json"
"""Outcomes of the last run of each bug, so that the page can be renewed in pieces."""


def keep(bug: Bug, outcomes: Sequence[Outcome]) -> None:
    """Store the outcomes of a bug."""
    kept = _kept()
    kept[bug.name] = [asdict(outcome) for outcome in outcomes]
    KEPT.write_text(json.dumps(kept, indent=1), encoding="utf-8")


def missing(bugs: Sequence[Bug]) -> list[str]:
    """Return the bugs with versions that have not been run."""
    kept = _kept()
    return [
        bug.name for bug in bugs if [run["version"] for run in kept.get(bug.name, ())] != list(bug.versions)
    ]


def _kept() -> dict[str, list[dict[str, object]]]:
    rows: dict[str, list[dict[str, object]]] = (
        json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}
    )
    return rows


def write(bugs: Sequence[Bug]) -> None:
    """Write the page."""
    outcomes = _kept()
    parts = [_HEAD.format(first=bugs[0].name)]
    for bug in bugs:
        mended = bug.mended or "no release"
        parts.append(
            f"| [{bug.name}](#{bug.name}) | {bug.client} | {bug.broken} | {mended} | {bug.title} |\n"
        )
    for bug in bugs:
        parts.append(f"\n## {bug.name}\n\n**{bug.title}.** {bug.seen}\n")
        if bug.happens:
            parts.append(f"\nIn production: {bug.happens}\n")
        faults = bug.faults.read_text(encoding="utf-8").strip()
        parts.append(f"\nReported: <{bug.issue}>. The broker:\n\n```yaml\n{faults}\n```\n\nSeen:\n\n")
        parts.extend(
            f"    {bug.client} {listed_bug['version']}: {listed_bug['verdict']}: {listed_bug['text']}\n"
            for listed_bug in outcomes[bug.name]
        )
    PAGE.write_text("".join(parts), encoding="utf-8")
