"""Compare what Kafka's tools and ours read from a metadata log: python -m compat.metadata [--version 4.4] [--keep DIR].

A Kafka broker is made to write all kinds of records. Each record of its log and snapshots must be the same in
`kafka-dump-log --cluster-metadata-decoder` and `barnabas log dump`, each snapshot the same in `kafka-metadata-shell`, in
our image of it, and in our replay of the log up to it. The exit code is 1 if anything differs, or if a secret is shown.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from barnabas.cluster.kraft.directory import MetadataLog, Until, read_snapshot
from barnabas.cluster.kraft.image import diff
from barnabas.log.disk import OsDisk
from barnabas.log.format.names import CHECKPOINT, LOG
from barnabas.testing.running import import_path
from compat.kafka import release
from compat.log.dumps import barnabas_rows
from compat.metadata import dumps, shell, workload

GOLDEN_FILES = (LOG, CHECKPOINT, "quorum-state", "partition.metadata", "leader-epoch-checkpoint")
SHOWN_MAX = 20
SHOW_TIMEOUT_S = 60


def main() -> int:
    """Run the comparison; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--version", default="4.3.1", help="which Kafka writes, and whose tools read (default: 4.3.1)"
    )
    parser.add_argument(
        "--tools", default="", help="whose tools read, if that release has none on Maven Central"
    )
    parser.add_argument("--keep", metavar="DIR", type=Path, help="leave Kafka's directory there")
    parser.add_argument(
        "--write-golden", metavar="DIR", type=Path, help="put the log, and Kafka's reading, there"
    )
    options = parser.parse_args()
    directory = options.keep or Path(tempfile.mkdtemp(prefix="compat-metadata-"))
    try:
        live: list[dict[str, Any]] = []
        log = workload.write_log(directory, options.version, lambda address: live.append(live_state(address)))
        lines = [*compare_live(live[0], log), *compare(log, options.tools or options.version)]
        if options.write_golden is not None:
            write_golden(
                log, options.tools or options.version, options.write_golden / f"kafka-{options.version}"
            )
    finally:
        if options.keep is None:
            shutil.rmtree(directory, ignore_errors=True)
    for line in lines[:SHOWN_MAX]:
        print(line)
    print(f"Kafka {release(options.version).version}: {len(lines)} differences")
    return 1 if lines else 0


def live_state(address: str) -> dict[str, Any]:
    """Return what `barnabas metadata show` reads from a controller that runs."""
    return _show("--bootstrap-controller", address)


def compare_live(live: dict[str, Any], log: Path) -> Iterator[str]:
    """Yield a line for each section where a controller's state differs from its log at the same offset."""
    offset = live["quorum"]["offset"]
    stored = _show("--dir", str(log), "--at", str(offset))
    print(f"a controller that runs, at offset {offset}, in {len(live)} sections")
    for section, rows in stored.items():
        if live[section] != rows:
            yield f"{section}: {live[section]} live, {rows} in the log"


def _show(*arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "barnabas", "metadata", "show", "--json", *arguments]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=SHOW_TIMEOUT_S,
        env={"PYTHONPATH": import_path()},
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"barnabas metadata show {' '.join(arguments)} failed:\n{done.stderr}")
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def compare(log: Path, version: str) -> Iterator[str]:
    """Yield a line for each difference, and print what has been compared."""
    files = sorted(path for path in log.iterdir() if path.suffix in (LOG, CHECKPOINT))
    theirs, ours = dumps.kafka_dump(version, files), dumps.barnabas_dump(log)
    for path in files:
        yield from (f"{path.name}: {line}" for line in dumps.differences(theirs[path.name], ours[path.name]))
    kinds = {record.type for records in theirs.values() for record in records}
    print(f"{sum(map(len, theirs.values()))} records of {len(kinds)} kinds in {len(files)} files")
    if workload.PASSWORD in json.dumps(barnabas_rows("dump", "--deep", str(log.parent))):
        yield "a password is shown by barnabas log dump"
    for path in files:
        if path.suffix == CHECKPOINT:
            yield from (f"{path.name}: {line}" for line in _snapshot(log, path, version))


def _snapshot(log: Path, path: Path, version: str) -> Iterator[str]:
    disk = OsDisk(read_only=True)
    snapshot = read_snapshot(disk, str(path))
    if not snapshot.end_offset:  # what a controller was formatted with, which it writes into the log
        return
    replayed = MetadataLog(disk, str(log))
    for _ in replayed.steps(Until(offset=snapshot.end_offset - 1)):
        pass
    for change in diff(replayed.state.image, snapshot.image):
        yield f"the replay up to the snapshot has another {change.kind} {change.key}"
    if not shell.can_read(version, snapshot.image):
        print(
            f"{path.name}: the shell of {version} does not read metadata.version {snapshot.image.metadata_version}"
        )
        return
    theirs, ours = shell.shell_tree(version, path), shell.image_tree(snapshot.image)
    print(f"{path.name}: {len(theirs)} leaves of the shell's tree")
    for name in sorted({*theirs, *ours}):
        if theirs.get(name) != ours.get(name):
            yield f"{name}: {theirs.get(name)!r} there, {ours.get(name)!r} here"


def write_golden(log: Path, version: str, golden: Path) -> None:
    """Keep the log, and its records as Kafka's tool shows them."""
    target = golden / log.name
    shutil.rmtree(golden, ignore_errors=True)
    target.mkdir(parents=True)
    shutil.copy(log.parent / "meta.properties", golden)
    for path in log.iterdir():
        if path.name.endswith(GOLDEN_FILES):
            (target / path.name).write_bytes(path.read_bytes())
    files = sorted(path for path in target.iterdir() if path.suffix in (LOG, CHECKPOINT))
    lines = [
        json.dumps([name, *record]) + "\n"
        for name, records in dumps.kafka_dump(version, files).items()
        for record in records
    ]
    (golden / "dump.jsonl").write_text("".join(lines))


if __name__ == "__main__":
    sys.exit(main())
