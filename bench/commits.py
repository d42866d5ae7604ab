"""Cost of a table of many commits: opening it, and adding a commit, as in each round of a continuous load.

    python -m bench.commits --kept 10 500

The committed files do not exist, as nothing reads them. The catalog is SQLite, the store a local directory. `opened` is a
table that is opened for each commit, as by `load`; `held` a table that is kept open.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from barnabas_pipeline.lake.ledger import DataFile, Entry, PartitionCommit
from barnabas_pipeline.lake.table import Table
from barnabas_pipeline.schema import BUILT_IN

PARTITIONS = 4
OFFSETS = 1000
HOUR = 490_000


def commit(table: Table, files: int, keep: int, hour: int | None = None) -> None:
    """Commit a load of OFFSETS offsets of each partition, in a number of files of an hour; 20 commits share an hour."""
    schema = BUILT_IN["views"]
    table.prepare(schema)
    state, spec_id = table.state(), table.iceberg.metadata.default_spec_id
    start = state.ends.get(0, 0)
    entry = Entry(
        state.version + 1, "load", "c", "views", "id", state.digest, state.path, {}, schema.to_dict()
    )
    for partition in range(PARTITIONS):
        counts = (OFFSETS, 0, 0, 0, 0)
        entry.partitions[str(partition)] = PartitionCommit(
            start, start + OFFSETS, 0, start + OFFSETS, *counts
        )
    hour = HOUR + state.version // 20 if hour is None else hour
    described = {"partition": (hour * 3_600_000,), "spec_id": spec_id}
    entry.add = [
        DataFile(f"file:///none/{state.version}-{n}.parquet", OFFSETS, 50_000, "0" * 64, "id", n % PARTITIONS, [hour],
                 start, start + OFFSETS, iceberg=described) for n in range(files)
    ]  # fmt: skip
    table.commit(entry, keep_snapshots=keep)


def timed(times: int, what: Callable[[], object]) -> str:
    """Call `what` several times; returns the median and the span of wall time, and those of CPU time, in ms, as text."""
    took = []
    for _ in range(times):
        began, cpu = time.perf_counter(), time.process_time()
        what()
        took.append((time.perf_counter() - began, time.process_time() - cpu))
    columns = [[value * 1000 for value in column] for column in zip(*took, strict=True)]
    return "  ".join(f"{statistics.median(row):9,.1f} ({min(row):,.1f}-{max(row):,.1f})" for row in columns)


def main() -> None:
    """Measure, and print the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kept", type=int, nargs="+", default=[10, 500], metavar="N", help="snapshots")
    parser.add_argument("--files", type=int, default=4, help="that each commit adds")
    parser.add_argument("--times", type=int, default=9)
    args = parser.parse_args()
    for kept in args.kept:
        with tempfile.TemporaryDirectory() as directory:
            root = Path(directory) / "lake" / "views"
            held = Table(root)
            for _ in range(kept):
                commit(held, args.files, kept)
            print(f"{kept:,} snapshots kept, {args.files} files each; ms, median (span): passed, CPU")
            print("opening            ", timed(args.times, lambda root=root: Table(root).state()))
            print(
                "opening and commit ",
                timed(args.times, lambda root=root, kept=kept: commit(Table(root), args.files, kept)),
            )
            held.refresh()
            print(
                "held open, commit  ",
                timed(args.times, lambda held=held, kept=kept: commit(held, args.files, kept)),
            )
        sys.stdout.flush()


if __name__ == "__main__":
    main()
