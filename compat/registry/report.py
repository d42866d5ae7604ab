"""Verdicts of clients of registries, on a terminal and as Markdown.

The rule: all failures and skips are listed below the table with their reasons.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compat.matrix.clients import Verdicts

FORMATS = ("avro", "json", "protobuf")
CASES = (*FORMATS, "evolution", "refusal", "references", "administration", "interop")
TITLES = {
    "confluent-kafka-schemas": "confluent-kafka 2.16.1, its serialisers (Python)",
    "faststream-schemas": "FastStream 0.7.8 on aiokafka, python-schema-registry-client 2.6.1",
    "flink-schemas": "Confluent's kafka-schema-registry-client 7.5.3 (Java) and the Avro of Flink 2.3, which has it in it",
    "franz-go-schemas": "franz-go 1.22, its client of registries `sr` 1.8 (Go)",
    "kafkajs-schemas": "kafkajs 2.2.4, @kafkajs/confluent-schema-registry 4.1.0 (Node)",
    "kcat-schemas": "kcat of Debian 12",
    "spark-schemas": "Spark 4.2.0, spark-avro on what follows the frame",
}
KNOWN = {
    (
        "kafkajs-schemas",
        "protobuf",
    ): "It writes no index of the message, which Confluent's format has before the data: it "
    "reads what others write, and they cannot read its own",
}
"""Data of a client that others cannot read, and why: it is not asked of them."""


@dataclass
class Matrix:
    """Verdicts by client and case."""

    rows: dict[str, Verdicts]

    def failures(self) -> list[str]:
        """Return what has failed, with its reason."""
        return [
            f"{client} {case}: {verdict.detail}"
            for client, row in self.rows.items()
            for case, verdict in row.items()
            if verdict.status == "FAIL"
        ]

    def text(self) -> str:
        """Return the table for a terminal."""
        width = max(map(len, self.rows))
        lines = [f"{'':{width}} {' '.join(f'{case:14}' for case in CASES)}"]
        for client, row in self.rows.items():
            cells = (f"{row[case].status if case in row else '':14}" for case in CASES)
            lines.append(f"{client:{width}} {' '.join(cells)}")
        return "\n".join(line.rstrip() for line in [*lines, *self.failures()])

    def markdown(self, others: Sequence[str]) -> str:
        """Return the page; `others` are versions of Kafka; with a registry on them nothing has failed either."""
        notes: list[str] = []
        beside = f", and with registries that Apache Kafka {', '.join(others)} keeps" if others else ""
        lines = [
            "# Clients of schema registries", "",
            f"Written by `python -m compat.registry --write`, with `barnabas serve --registry`{beside}.",
            "What the cases do is said in `compat/registry/README.md`. ✓ passes, ✗ fails, – does not apply; the numbers",
            "are reasons, listed below.", "",
            "| client | " + " | ".join(CASES) + " |", "|---" * (len(CASES) + 1) + "|",
        ]  # fmt: skip
        for client, row in self.rows.items():
            cells = [self._mark(client, case, notes) for case in CASES if case in row]
            lines.append(f"| {TITLES[client]} | " + " | ".join(cells) + " |")
        lines += ["", *(f"{number}. {note}" for number, note in enumerate(notes, 1))]
        return "\n".join(lines).rstrip() + "\n"

    def _mark(self, client: str, case: str, notes: list[str]) -> str:
        verdict = self.rows[client][case]
        note = KNOWN.get((client, case), "") if verdict.status == "PASS" else verdict.detail
        if note and note not in notes:
            notes.append(note)
        mark = {"PASS": "✓", "FAIL": "✗"}.get(verdict.status, "–")
        return f"{mark} {notes.index(note) + 1}" if note else mark
