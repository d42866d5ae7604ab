"""Compare the output of Kafka's dump tool and ours for the same directory: one that we wrote, and one that Kafka wrote.

    python -m compat.log.compare [--version 4.x|3.9] [--writer barnabas|kafka|both] [--keep DIR]

The rule: every batch, record and entry of every file is compared; the exit code is 1 if one differs, or if either tool
reports a problem of a file.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from barnabas.testing.running import import_path
from compat.kafka import RealKafka
from compat.kit.ending import end_servers_at_sigterm
from compat.log import dumps, workload

SETTINGS = {"offsets.topic.num.partitions": "2", "transaction.state.log.num.partitions": "2"}
SHOWN_MAX = 20
STOP_TIMEOUT_S = 30


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--version", default="4.x", help="whose tool (and broker) to compare with (default: 4.x)"
    )
    parser.add_argument("--writer", default="both", choices=("barnabas", "kafka", "both"))
    parser.add_argument("--keep", metavar="DIR", type=Path, help="leave the log dirs there")
    options = parser.parse_args()
    directory = options.keep or Path(tempfile.mkdtemp(prefix="compat-log-"))
    directory.mkdir(parents=True, exist_ok=True)
    count = 0
    try:
        if options.writer in ("barnabas", "both"):
            count += compare("barnabas", write_with_barnabas(directory / "barnabas"), options.version)
        if options.writer in ("kafka", "both"):
            count += compare("kafka", write_with_kafka(directory / "kafka", options.version), options.version)
    finally:
        if not options.keep:
            shutil.rmtree(directory)
    return 1 if count else 0


@contextmanager
def barnabas(directory: Path) -> Iterator[str]:
    """Run our broker on a log dir for the length of the block; yields its bootstrap address."""
    command = [sys.executable, "-m", "barnabas", "serve", "--listen", "127.0.0.1:0", "--data", str(directory)]
    for name, value in SETTINGS.items():
        command += ["--set", f"{name}={value}"]
    environment = {"PYTHONPATH": import_path()}
    end_servers_at_sigterm()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as broker:
        assert broker.stdout is not None
        try:
            yield broker.stdout.readline().partition("bootstrap.servers=")[2].split()[0]
        finally:
            broker.send_signal(signal.SIGTERM)
            broker.wait(STOP_TIMEOUT_S)


def write_with_barnabas(directory: Path) -> Path:
    """Run the workload against our broker, stop it, and return its log dir."""
    with barnabas(directory) as bootstrap:
        workload.write(bootstrap)
    return directory


def write_with_kafka(directory: Path, version: str) -> Path:
    """The same against Apache Kafka."""
    with RealKafka(version, data=directory, settings=SETTINGS) as kafka:
        workload.write(kafka.bootstrap, segment_setting=workload.segment_setting(version))
    return kafka.log_dir


def compare(writer: str, log_dir: Path, version: str) -> int:
    """Compare all partitions of a log dir; returns the number of differences."""
    problems: list[str] = []
    counts: Counter[str] = Counter()
    for partition in sorted({path.parent for path in dumps.files_of(log_dir)}):
        topic = partition.name.rpartition("-")[0]
        if topic.startswith("__cluster_metadata"):
            continue
        files = [path for path in dumps.files_of(log_dir) if path.parent == partition]
        theirs = dumps.kafka_dump(version, files, topic)
        ours = dumps.barnabas_dump(partition)
        for path in files:
            where = f"{partition.name}/{path.name}"
            counts["files"] += 1
            problems += [
                f"{where}: {text}" for text in _compare_file(ours.get(path, []), theirs.get(path, []), counts)
            ]
    code, rows = dumps.barnabas_rows("verify", "--deep", "--quiet", str(log_dir))
    if code:
        problems += [f"verify: {row['path']}: {row['text']}" for row in rows if row["kind"] == "error"]
    told = ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))
    print(f"written by {writer}: {told}; {len(problems)} differences", flush=True)
    for text in problems[:SHOWN_MAX]:
        print(f"  {text}")
    return len(problems)


def _compare_file(
    ours: list[dict[str, Any]], theirs: list[dict[str, Any]], counts: Counter[str]
) -> list[str]:
    problems = [
        f"a tool complains: {entry['complaint']}" for entry in (*ours, *theirs) if "complaint" in entry
    ]
    if len(ours) != len(theirs):
        return [*problems, f"{len(ours)} entries here, {len(theirs)} there"]
    for n, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        counts[
            "batches" if "baseOffset" in other else "records" if "keySize" in other else "other entries"
        ] += 1
        if "type" in mine:
            mine, other = _internal(mine), _internal_of_kafka(other)
        problems += [f"entry {n}{text}" for text in dumps.differences(mine, other)]
        missing = [name for name in mine if name not in other and name != "type"]
        if missing:
            problems.append(f"entry {n}: Kafka's tool does not tell {', '.join(missing)}")
    return problems


def _internal(entry: dict[str, Any]) -> dict[str, Any]:
    return entry | {"key": dumps.camel(entry["key"]), "payload": dumps.camel(entry["payload"])}


def _internal_of_kafka(entry: dict[str, Any]) -> dict[str, Any]:
    return entry | {"key": dumps.decoded(entry["key"]), "payload": dumps.decoded(entry["payload"])}


if __name__ == "__main__":
    sys.exit(main())
