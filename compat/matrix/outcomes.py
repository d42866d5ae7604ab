"""Outcomes of each client in each channel: kept between runs, and shown as a table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from compat.matrix import clients
from compat.matrix.channels import CHANNELS
from compat.matrix.clients import Verdict


@dataclass
class Outcomes:
    """Verdicts by client and channel; the broker's own is under its name, without a channel."""

    verdicts: dict[tuple[str, str], Verdict]

    @classmethod
    def kept(cls, path: Path | None, against: str) -> Outcomes:
        """Return the stored passes and skips of earlier runs; none if these used another broker."""
        if path is None or not path.exists():
            return cls({})
        read = json.loads(path.read_text())
        if read["against"] != against:
            return cls({})
        return cls({(row["client"], row["channel"]): Verdict(*row["verdict"]) for row in read["outcomes"]})

    def keep(self, path: Path, against: str) -> None:
        """Store the outcomes that need not be run again."""
        outcomes = [
            {
                "client": client,
                "channel": channel,
                "verdict": [verdict.status, verdict.detail, verdict.seconds],
            }
            for (client, channel), verdict in sorted(self.verdicts.items())
            if verdict.status != "FAIL"
        ]
        path.write_text(json.dumps({"against": against, "outcomes": outcomes}, indent=1))

    def lacks(self, names: Iterable[str]) -> list[tuple[str, str]]:
        """Channels in which these clients were not run."""
        return [
            (name, channel) for name in names for channel in CHANNELS if (name, channel) not in self.verdicts
        ]

    def failures(self) -> list[tuple[str, str, Verdict]]:
        """Runs that failed."""
        return [(*key, verdict) for key, verdict in self.verdicts.items() if verdict.status == "FAIL"]

    def text(self) -> str:
        """The table for a terminal, and below it what did not pass."""
        names = list(dict.fromkeys(client for client, channel in self.verdicts if channel))
        channels = [name for name in CHANNELS if any(name == channel for _, channel in self.verdicts)]
        lines = [["", *channels]]
        for client in names:
            cells = (self.verdicts.get((client, channel)) for channel in channels)
            lines.append([client, *("" if cell is None else _cell(cell) for cell in cells)])
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        table = [
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines
        ]
        lacks: dict[str, list[str]] = {}
        for (client, channel), verdict in self.verdicts.items():
            if verdict.status == "SKIP":
                lacks.setdefault(f"{client}: {verdict.detail}", []).append(channel)
        notes = [f"SKIP   {reason} ({', '.join(where)})" for reason, where in lacks.items()]
        notes += [
            f"FAIL   {client} {channel}: {verdict.detail}" for client, channel, verdict in self.failures()
        ]
        return "\n".join(line.rstrip() for line in [*table, "", *notes])

    def page(self, chosen: Sequence[str]) -> str:
        """The page docs/reference/compatibility-security.md; `chosen` are the cases that were run."""
        cases = ", ".join(f"`{case}`" for case in chosen)
        return (
            "# Stock clients with TLS and logins\n\n"
            f'Written by `make compat ARGS="--security --write"`: {cases} of `compat/clients/README.md`, with an\n'
            "authorizer that allows nothing to others. ✓ passes, ✗ fails, – is not there; the numbers are reasons, listed\n"
            f"below.\n\n{self.markdown()}\n"
        )

    def markdown(self) -> str:
        """The table of that page."""
        names = sorted({client for client, channel in self.verdicts if channel})
        notes: list[str] = []
        lines = [f"| client | {' | '.join(CHANNELS)} |", "|---" * (len(CHANNELS) + 1) + "|"]
        for client in names:
            cells = []
            for channel in CHANNELS:
                verdict = self.verdicts[client, channel]
                if verdict.status != "PASS" and verdict.detail not in notes:
                    notes.append(verdict.detail)
                mark = {"PASS": "✓", "FAIL": "✗"}.get(verdict.status, "–")
                cells.append(
                    mark if verdict.status == "PASS" else f"{mark} {notes.index(verdict.detail) + 1}"
                )
            lines.append(f"| {clients.title(client)} | {' | '.join(cells)} |")
        return "\n".join([*lines, "", *(f"{number}. {note}" for number, note in enumerate(notes, 1))])


def _cell(verdict: Verdict) -> str:
    if verdict.status == "PASS":
        return f"{verdict.seconds:.1f} s" if verdict.seconds is not None else "ok"
    return "FAIL" if verdict.status == "FAIL" else "-"
