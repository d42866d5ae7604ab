"""Stock clients against the brokers of twelve years: `python -m compat.matrix --as-version all`.

The rule: a cell has the verdicts of a client with a broker of that release alone. Cases of a client that never supported
such old brokers are not failures of the run; all others are.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from barnabas.config import releases
from compat.kit.locks import locked
from compat.matrix.clients import Verdicts, title

CASES = (
    "create-topic",
    "produce-none",
    "produce-gzip",
    "consume-group",
    "commit-resume",
    "idempotent-produce",
    "transactions",
    "admin",
)
"""Cases to run: those that depend most on what a broker serves."""
RESULTS = Path(__file__).resolve().parents[2] / ".tools" / "compat" / "releases.json"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "compatibility-releases.md"
CREATES_TOPICS = "its program makes topics with CreateTopics, which brokers have since 0.10.1 (KIP-4)"
RECORDS = 2000
"""So many records a topic: more than a client fetches at once."""
OLDEST: Mapping[str, tuple[str, str]] = {
    "aiokafka": ("0.11.0", "asks for versions (ApiVersions v3 and a fall-back), reads batches"),
    "confluent-kafka": ("0.10.1", CREATES_TOPICS),
    "confluent-kafka-2.0.2": ("0.10.1", CREATES_TOPICS),
    "franz-go": ("0.10.1", CREATES_TOPICS),
    "java": ("2.1", "Kafka's clients 4.x do without the versions that older brokers have (KIP-896)"),
    "java-0.10": ("0.10.2", "clients before KIP-97 need a broker of their own release or a later one"),
    "java-0.8": ("0.8.2", "clients before KIP-97 need a broker of their own release or a later one"),
    "java-0.9": ("0.9.0", "clients before KIP-97 need a broker of their own release or a later one"),
    "java-1.1": ("0.10.1", CREATES_TOPICS),
    "java-2.8": ("0.10.1", CREATES_TOPICS),
    "java-3.9": (
        "0.11.0",
        "its producer is idempotent by default (KIP-679), for which brokers must keep batches",
    ),
    "kafka-go": ("0.10.1", CREATES_TOPICS),
    "kafka-python": ("0.10.1", CREATES_TOPICS),
    "kafka-python-1.4.7": ("0.10.1", CREATES_TOPICS),
    "kafka-python-2.0.2": ("0.10.1", CREATES_TOPICS),
    "kafka-tools": ("2.4", "kafka-topics leaves the replication factor to the broker (KIP-464)"),
    "kafkajs": ("0.10.1", CREATES_TOPICS),
    "kcat": ("0.8.0", "librdkafka is told of releases before 0.10 with `broker.version.fallback`"),
    "rskafka": ("0.11.0", "asks for versions, writes batches"),
    "sarama": ("0.10.1", CREATES_TOPICS),
}
"""The oldest broker that a client's program speaks with, and why."""
NEWEST: Mapping[str, tuple[str, str]] = dict.fromkeys(
    ("java-0.8", "java-0.9", "java-0.10"),
    ("3.9", "brokers 4.x do without the versions that clients before 2.1 ask in (KIP-896)"),
)
"""The newest broker that a client speaks with, and why."""
SINCE: Mapping[str, str] = {"idempotent-produce": "0.11.0", "transactions": "0.11.0", "admin": "1.1"}
"""Cases that need a broker of this release at least."""
NEWER: Mapping[tuple[str, str], tuple[str, str]] = {
    ("java", "transactions"): ("2.5", "its program commits offsets with the group's metadata (KIP-447)"),
    ("java-2.8", "transactions"): ("2.5", "its program commits offsets with the group's metadata (KIP-447)"),
    ("java-3.9", "transactions"): ("2.5", "its program commits offsets with the group's metadata (KIP-447)"),
    **dict.fromkeys(
        [
            (client, "admin")
            for client in (
                "confluent-kafka",
                "franz-go",
                "kafka-go",
                "kafka-python",
                "sarama",
            )
        ],
        ("2.3", "its program changes settings with IncrementalAlterConfigs (KIP-339)"),
    ),
    **dict.fromkeys(
        [("java", "admin"), ("java-2.8", "admin"), ("java-3.9", "admin")],
        ("2.4", "its program deletes committed offsets with OffsetDelete (KIP-496)"),
    ),
    ("kafka-tools", "idempotent-produce"): ("2.8", "kafka-transactions.sh describes producers (KIP-664)"),
    ("kafka-tools", "transactions"): ("3.0", "kafka-transactions.sh lists transactions (KIP-664)"),
    **dict.fromkeys(
        [("sarama", "consume-group"), ("sarama", "commit-resume")],
        ("0.10.2", "sarama's consumer groups must be told of a broker of 0.10.2 at least"),
    ),
    **dict.fromkeys(
        [("kcat", "consume-group"), ("kcat", "commit-resume")],
        (
            "0.10.0",
            "brokers of 0.9 refuse sessions above 30 s, and librdkafka's are of 45; older ones have no groups",
        ),
    ),
}
"""Cases for which single clients need a newer broker than that, and why."""
WRONG: Mapping[tuple[str, str], tuple[tuple[str, str], str]] = {
    ("java-1.1", "admin"): (
        ("4.0", releases.NAMES[-1]),
        "it asks for log dirs in version 0, which brokers 4.x do without (KIP-896)",
    ),
    ("kafka-python", "admin"): (
        ("2.8", "3.6"),
        "kafka-python 3.0.12 expects `endpoint_type` in every answer to DescribeCluster: version 0 has none",
    ),
}
"""Cases in which a client does not get on with brokers from one release to another, and why."""


def chosen(text: str) -> list[str]:
    """Return the releases that `all` or `2.8,3.9` names. Raises ValueError."""
    return list(releases.NAMES) if text == "all" else [releases.named(name) for name in text.split(",")]


def environment(release: str) -> dict[str, str]:
    """Return the environment of clients' programs for brokers of a release."""
    told = {"COMPAT_RELEASE": release, "COMPAT_TOOLS_IN_ONE_JVM": "yes"}
    if not releases.is_at_least(release, "0.11.0"):
        told["COMPAT_HEADERS"] = "no"
    return told


def is_expected(client: str, release: str, case: str) -> bool:
    """Return whether a client is expected to pass a case with a broker of a release."""
    everything = releases.NAMES[0], ""
    since = (
        OLDEST.get(client, everything)[0],
        SINCE.get(case, everything[0]),
        NEWER.get((client, case), everything)[0],
    )
    if not all(releases.is_at_least(release, first) for first in since):
        return False
    if client in NEWEST and not releases.is_at_least(NEWEST[client][0], release):
        return False
    (first, last), _ = WRONG.get((client, case), (("", ""), ""))
    return not first or not (releases.is_at_least(release, first) and releases.is_at_least(last, release))


def expected(client: str, release: str) -> list[str]:
    """Return the cases that count for a client and a release: none if it does not support such brokers."""
    return [case for case in CASES if is_expected(client, release, case)]


class History:
    """Verdicts by release, client and case; those of earlier runs are kept in a file, so that it can be run in pieces."""

    def __init__(self) -> None:
        self.verdicts: dict[str, dict[str, dict[str, list[str]]]] = {}
        self._read()

    def _read(self) -> None:
        if RESULTS.exists():
            self.verdicts = json.loads(RESULTS.read_text(encoding="utf-8"))

    def add(self, release: str, rows: Mapping[str, Verdicts]) -> None:
        """Store the verdicts of a release's run."""
        with locked(RESULTS.with_suffix(".lock")):
            self._read()  # another run may have added something meanwhile
            kept = self.verdicts.setdefault(release, {})
            for client, row in rows.items():
                kept[client] = {case: [verdict.status, verdict.detail] for case, verdict in row.items()}
            RESULTS.write_text(json.dumps(self.verdicts), encoding="utf-8")

    def has(self, release: str, client: str) -> bool:
        """Return whether a client has a row with each case that counts, none of which has failed."""
        row = self.verdicts.get(release, {}).get(client, {})
        return all(row.get(case, ["FAIL"])[0] != "FAIL" for case in expected(client, release))

    def failures(self, names: Iterable[str]) -> list[str]:
        """Return the unexpected failures in these releases."""
        return [
            f"{release} {client} {case}: {detail}"
            for release in names
            for client, row in self.verdicts.get(release, {}).items()
            for case, (status, detail) in row.items()
            if status == "FAIL" and is_expected(client, release, case)
        ]

    def text(self, names: Sequence[str]) -> str:
        """Return a table for a terminal."""
        clients = sorted({client for name in names for client in self.verdicts.get(name, {})})
        width = max(map(len, clients), default=0)
        lines = [" " * width + "  " + " ".join(name.rjust(6) for name in names)]
        lines += [
            client.ljust(width) + "  " + " ".join(self._cell(client, name).rjust(6) for name in names)
            for client in clients
        ]
        return "\n".join(lines)

    def _cell(self, client: str, release: str) -> str:
        """Return the numbers of passed and tried cases, `-` if the client never supported such brokers."""
        if not expected(client, release):
            return "–"
        row: dict[str, Any] = self.verdicts.get(release, {}).get(client, {})
        counting = {case: status for case, (status, _) in row.items() if is_expected(client, release, case)}
        tried = [status for status in counting.values() if status != "SKIP"]
        if not row:
            return ""
        if not tried:
            return "–"
        passed = tried.count("PASS")
        return str(passed) if passed == len(tried) else f"{passed}/{len(tried)}"

    def markdown(self, records: int) -> str:
        """Return the page of all that is kept; cells that were not tried here stay as the page has them."""
        written = _cells(PAGE.read_text(encoding="utf-8")) if PAGE.exists() else {}
        released = {name for _, name in written}
        names = [name for name in releases.NAMES if name in self.verdicts or name in released]
        in_page = {client for client, _ in written}
        clients = sorted(
            {client for row in self.verdicts.values() for client in row}
            | {client for client in OLDEST if title(client) in in_page}
        )
        lines = [
            "# Stock clients against the brokers of twelve years",
            "",
            'Written by `make compat ARGS="--as-version all --write"`: each client against brokers of each release',
            f"(`barnabas serve --as-version`), with {records} records per topic.",
            "A number: so many of these cases passed:",
            f"{', '.join(CASES)}.",
            "`7/8`: one failed that should have passed; `–`: the client does not speak with such brokers (see below);",
            "nothing where it was not tried. Cases that a release or a client has nothing for do not count.",
            "",
            "| client | " + " | ".join(names) + " |",
            "|---" * (len(names) + 1) + "|",
        ]
        lines += [
            f"| {title(client)} | "
            + " | ".join(self._cell(client, name) or written.get((title(client), name), "") for name in names)
            + " |"
            for client in clients
        ]
        lines += [
            "",
            "The oldest broker of each client's program:",
            "",
            "| client | since | |",
            "|---|---|---|",
        ]
        lines += [
            f"| {title(client)} | {OLDEST[client][0]} | {OLDEST[client][1]} |"
            for client in clients
            if client in OLDEST
        ]
        lines += ["", "The newest:", ""]
        lines += [f"- {title(client)}: {last}; {why}" for client, (last, why) in NEWEST.items()]
        lines += ["", "Cases that do not count, though the release has what they need:", ""]
        lines += [
            f"- {title(client)}, {case}: from {since} on: {why}"
            for (client, case), (since, why) in NEWER.items()
        ]
        lines += [
            f"- {title(client)}, {case}: {first} to {last}: {why}"
            for (client, case), ((first, last), why) in WRONG.items()
        ]
        failures = self.failures(names)
        if failures:
            lines += ["", "What failed:", "", *(f"- {text}" for text in failures)]
        return "\n".join(lines) + "\n"


def _cells(page: str) -> dict[tuple[str, str], str]:
    """Return the cells of a page's first table, by client and release."""
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")]
    head = rows[0][1:] if rows else []
    return {
        (row[0], name): cell
        for row in rows[1:]
        if len(row) == len(rows[0])
        for name, cell in zip(head, row[1:], strict=True)
    }
