"""python -m compat.registry [--version barnabas|4.x|3.9 ...] [--clients A,B] [--write]: stock clients of registries.

All clients have one registry: `barnabas serve --registry`, or `barnabas registry` beside a Kafka of the version that is
named. Each writes topics of its own; then each reads what the others have written (`interop`).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from barnabas.testing.running import import_path
from compat.kafka import RealKafka
from compat.matrix.clients import Verdict, Verdicts, run
from compat.registry.report import CASES, FORMATS, KNOWN, Matrix

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LOGS = ROOT / ".tools" / "compat"
PAGE = ROOT / "docs" / "reference" / "compatibility-registry.md"
OURS = "barnabas"
CASE_TIMEOUT_S = "300"


def names() -> list[str]:
    """Return the names of all clients."""
    return sorted(path.parent.name for path in HERE.glob("*/run"))


@contextmanager
def process(*arguments: str) -> Iterator[dict[str, str]]:
    """A command of ours for the length of the block; the words of its ready line."""
    command = [sys.executable, "-m", "barnabas", *arguments]
    environment = {**os.environ, "PYTHONPATH": import_path()}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as started:
        try:
            assert started.stdout is not None
            line = started.stdout.readline()
            yield dict(word.split("=", 1) for word in line.split() if "=" in word)
        finally:
            started.terminate()


@contextmanager
def registry(version: str) -> Iterator[tuple[str, str]]:
    """A registry that our broker or a Kafka of some version keeps: the broker's address, and the registry's URL."""
    if version == OURS:
        where = ("--ephemeral", "--listen", "127.0.0.1:0", "--registry", "127.0.0.1:0")
        with process("serve", *where, "--set", "group.initial.rebalance.delay.ms=0") as words:
            yield words["bootstrap.servers"], words["registry"]
    else:
        with (
            tempfile.TemporaryDirectory(prefix="registry-") as directory,
            RealKafka(version, 0, data=Path(directory)) as kafka,
            process("registry", "--bootstrap", kafka.bootstrap, "--listen", "127.0.0.1:0") as words,
        ):
            yield kafka.bootstrap, words["registry"]


def run_all(bootstrap: str, url: str, clients: list[str]) -> Matrix:
    """Run the clients one after the other, and then each over what the others have written."""
    LOGS.mkdir(parents=True, exist_ok=True)
    environment = {
        "COMPAT_BOOTSTRAP": bootstrap, "COMPAT_SCHEMAS": str(HERE / "schemas"), "COMPAT_CASE_TIMEOUT_S": CASE_TIMEOUT_S,
    }  # fmt: skip

    def cases_of(client: str, cases: list[str], **more: str) -> Verdicts:
        return run(HERE / client / "run", url, cases, {**environment, **more}, LOGS / f"{client}.err")

    alone = [name for name in CASES if name != "interop"]
    rows = {}
    for client in clients:
        (LOGS / f"{client}.err").write_bytes(b"")
        rows[client] = cases_of(client, alone)
        print(f"{client}: {_counts(rows[client])}", flush=True)
    topics = topics_of(bootstrap, rows)
    for client in clients:
        others = ",".join(f"{topic}:{form}" for owner, topic, form in topics if owner != client)
        rows[client] |= cases_of(client, ["interop"], COMPAT_TOPICS=others)
    return Matrix(rows)


def topics_of(bootstrap: str, rows: dict[str, Verdicts]) -> list[tuple[str, str, str]]:
    """Return the topics that clients have written for others: (client, topic, format)."""
    from kafka import KafkaAdminClient

    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    topics = sorted(admin.list_topics())
    admin.close()
    return [
        (client, topic, form)
        for client, row in rows.items()
        for form in FORMATS
        for topic in topics
        if row.get(form, Verdict("SKIP")).status == "PASS"
        and (client, form) not in KNOWN
        and topic.startswith(f"compat-{client}-{form}-")
    ]


def _counts(row: Verdicts) -> str:
    statuses = [verdict.status for verdict in row.values()]
    return ", ".join(f"{status} {statuses.count(status)}" for status in ("PASS", "FAIL", "SKIP"))


def main() -> int:
    """Run all that is asked for; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m compat.registry", description=__doc__)
    parser.add_argument(
        "--version", action="append", help=f"{OURS}, or a version of Kafka; default: {OURS} and 4.x"
    )
    parser.add_argument("--clients", default="", metavar="A,B", help=f"of {', '.join(names())} (all)")
    parser.add_argument(
        "--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)}; only with all clients"
    )
    options = parser.parse_args()
    chosen = options.clients.split(",") if options.clients else names()
    if not set(chosen) <= set(names()):
        parser.error(f"clients are {', '.join(names())}")
    versions = options.version or [OURS, "4.x"]
    if options.write and (chosen != names() or versions[0] != OURS):
        parser.error("--write needs all clients, and barnabas first")
    results: dict[str, Matrix] = {}
    for version in versions:
        with registry(version) as (bootstrap, url):
            print(f"a registry that {version} keeps, at {url}", flush=True)
            results[version] = run_all(bootstrap, url, chosen)
        print(results[version].text(), flush=True)
    if options.write:
        others = [version for version in versions[1:] if not results[version].failures()]
        PAGE.write_text(results[OURS].markdown(others), encoding="utf-8")
    return int(any(row.failures() for row in results.values()))


if __name__ == "__main__":
    sys.exit(main())
