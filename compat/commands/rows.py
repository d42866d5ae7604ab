"""Everyday tasks, by our commands and by those of other tools: `rows.yaml`, and the table of `docs/how-to/commands.md`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml

OURS, KAFKA_44, KAFKA_4, KAFKA_3 = "barnabas", "4.4", "4.3.1", "3.9"


@dataclass(frozen=True)
class Row:
    """A task; `says` is a regular expression that its output has, `codes` are exit codes of brokers that differ."""

    subject: str
    ours: str
    task: str = ""
    kafka: str = ""
    rpk: str = ""
    others: str = ""
    says: str = ""
    code: int = 0
    codes: Mapping[str, int] = field(default_factory=dict)
    is_shown: bool = True

    @property
    def is_preparation(self) -> bool:
        """True for an action of other clients before the next row."""
        return self.ours.startswith("+")


def rows() -> list[Row]:
    """Return all rows, in their order."""
    content = yaml.safe_load(Path(__file__).with_name("rows.yaml").read_text())
    return [Row(subject, **row) for subject, entries in content.items() for row in entries]


def table() -> str:
    """Return the table of the page."""
    lines = ["| task | ours | Kafka's tools | rpk | kcl, kcat |", "|---|---|---|---|---|"]
    subject = ""
    for row in rows():
        if row.is_preparation or not row.is_shown:
            continue
        if row.subject != subject:
            subject = row.subject
            lines.append(f"| **{subject}** | | | | |")
        shown = row.ours.replace("{directory}/", "").replace("{token}", "TOKEN-ID")
        others = [f"`{tool}`" if tool else "" for tool in (row.kafka, row.rpk, row.others)]
        lines.append("| " + " | ".join([row.task, f"`barnabas {shown}`", *others]) + " |")
    return "\n".join(lines) + "\n"
