"""Cost of a table of many commits: opening it, and one more commit, as each micro-batch of a stream does.

    python -m bench.manifests --manifests 5000 --files 4

The files that the manifests name are not there: nothing here looks at them. `first` is an opening that finds no checkpoint,
`opened` one that finds what an earlier commit has left, `held` a table that is kept open.
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from barnabas_pipeline.lake.manifest import DataFile, Manifest, PartitionCommit, digest
from barnabas_pipeline.lake.table import Table
from barnabas_pipeline.schema import BUILT_IN

PARTITIONS = 4
OFFSETS = 1000


def manifest(version: int, previous: str, files: int) -> Manifest:
    """One load of OFFSETS offsets of each partition."""
    start = (version - 1) * OFFSETS
    commits = {
        str(partition): PartitionCommit(start, start + OFFSETS, 0, start + OFFSETS, OFFSETS, 0, 0, 0, 0)
        for partition in range(PARTITIONS)
    }
    hour = f"2026-11-20T{version * 24 // 100_000:02d}"
    made = Manifest(
        version,
        "load",
        "cluster",
        "views",
        "topic-id",
        previous,
        {"name": "load"},
        BUILT_IN["views"].to_dict(),
        commits,
    )
    for n in range(files):
        name = hashlib.md5(f"{version}-{n}".encode()).hexdigest()
        path = f"data/event_hour={hour}/{name}.parquet"
        made.add.append(
            DataFile(
                path, OFFSETS, 50_000, "0" * 64, "topic-id", n % PARTITIONS, hour, start, start + OFFSETS
            )
        )
    return made


def build(root: Path, count: int, files: int) -> None:
    """Write the manifests as `Table.commit` would, without folding them each time."""
    (root / "_log").mkdir(parents=True)
    previous = ""
    for version in range(1, count + 1):
        data = manifest(version, previous, files).encode()
        (root / "_log" / f"{version:020d}.json").write_bytes(data)
        previous = digest(data)


def timed(times: int, what: Callable[[], object]) -> str:
    """Run it some times; medians and spans of time that passed and of CPU, in ms."""
    took = []
    for _ in range(times):
        began, cpu = time.perf_counter(), time.process_time()
        what()
        took.append((time.perf_counter() - began, time.process_time() - cpu))
    columns = [[value * 1000 for value in column] for column in zip(*took, strict=True)]
    return "  ".join(f"{statistics.median(one):9,.1f} ({min(one):,.1f}-{max(one):,.1f})" for one in columns)


def commit(table: Table, files: int) -> None:
    """One more load."""
    state = table.state()
    table.commit(manifest(state.version + 1, state.digest, files))


def main() -> None:
    """Print what was measured."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--manifests", type=int, default=5000)
    parser.add_argument("--files", type=int, default=4, help="that each manifest adds")
    parser.add_argument("--times", type=int, default=9)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory) / "views"
        build(root, args.manifests, args.files)
        print(f"{args.manifests:,} manifests, {args.files} files each; ms, median (span): passed, CPU")
        print("first opening        ", timed(1, lambda: Table(root).state()))
        print("first opening, commit", timed(1, lambda: commit(Table(root), args.files)))
        print("opening              ", timed(args.times, lambda: Table(root).state()))
        print("opening and commit   ", timed(args.times, lambda: commit(Table(root), args.files)))
        held = Table(root)
        held.state()
        print("held open, commit    ", timed(args.times, lambda: commit(held, args.files)))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
