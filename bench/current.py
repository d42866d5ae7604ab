"""`python -m bench.current`: CPU time of changes to a table of current rows, by our job and by pyiceberg's upsert.

The rule: both begin with the same rows and apply the same changes, and must end with equal rows. The CPU time is that of
all threads.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

from barnabas_pipeline.field_types import Field
from barnabas_pipeline.jobs.current import CurrentOptions, CurrentRows
from barnabas_pipeline.lake.changes import PLAIN, Shape
from barnabas_pipeline.lake.files import TableWriter
from barnabas_pipeline.lake.iceberg import Lake, Place, open_catalog
from barnabas_pipeline.lake.ledger import Entry, PartitionCommit
from barnabas_pipeline.lake.table import Table
from barnabas_pipeline.log.columns import HEADERS_TYPE, TIMESTAMP_TYPE
from barnabas_pipeline.schema import NO_EVENT_TIME, EventSchema

SCHEMA = EventSchema(
    "rows",
    NO_EVENT_TIME,
    (Field("id", "long"), Field("n", "long"), Field("name", "string"), Field("text", "string")),
)


def load(place: Place, ids: Any, value: int) -> Any:
    """Commit an event of each id as a load does; returns the events as an Arrow table."""
    table, count = Table(place), len(ids)
    table.prepare(SCHEMA)
    state = table.state()
    start = state.ends.get(0, 0)
    text = np.char.add("some text of a row, number ", ids.astype(str))
    columns = {
        "id": pa.array(ids),
        "n": pa.array(np.full(count, value)),
        "name": pa.array(np.char.add("name", (ids % 1000).astype(str))),
        "text": pa.array(text),
        "_extra": pa.nulls(count, pa.string()),
        "_topic_id": pa.repeat("id", count),
        "_topic_partition": pa.array(np.zeros(count, np.int32)),
        "_offset": pa.array(np.arange(start, start + count)),
        "_timestamp": pa.array(np.arange(start, start + count) * 1000).cast(TIMESTAMP_TYPE),
        "_leader_epoch": pa.array(np.zeros(count, np.int32)),
        "_key": pa.nulls(count, pa.binary()),
        "_headers": pa.nulls(count, HEADERS_TYPE),
    }
    events = pa.table(columns)
    writer = TableWriter(table.layout, SCHEMA, "id", 0)
    writer.write(events)
    entry = Entry(
        state.version + 1,
        "load",
        "c",
        "rows",
        "id",
        state.digest,
        state.path,
        {"name": "load"},
        SCHEMA.to_dict(),
    )
    entry.partitions["0"] = PartitionCommit(start, start + count, 0, start + count, count, 0, 0, 0, 0)
    entry.add = writer.close()
    table.commit(entry)
    return events.select(["id", "n", "name", "text"])


def timed(work: Any) -> float:
    """Return the CPU seconds that a call of `work` takes."""
    began = time.process_time()
    work()
    return time.process_time() - began


def main(argv: list[str]) -> int:
    """Measure and print; returns the exit code, 1 if the rows differ."""
    parser = argparse.ArgumentParser(prog="python -m bench.current", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--changes", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--buckets", type=int, default=16)
    options = parser.parse_args(argv)
    random = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as directory:
        place = Lake(directory).place("rows", partition_by="none")
        first = load(place, np.arange(options.rows), 0)
        shape = Shape(("id",), PLAIN, options.buckets)

        def apply() -> None:
            CurrentRows(CurrentOptions(place, lambda: None, shape)).round()

        catalog = open_catalog(place)
        print(f"all {options.rows} rows: {timed(apply):.2f} s")
        other = catalog.create_table(
            "barnabas.upserted", first.schema, location=f"file://{Path(directory)}/other"
        )
        other.append(first)
        for name, ids in (
            ("anywhere", lambda: random.choice(options.rows, options.changes, replace=False)),
            ("of one bucket", lambda: None),
        ):
            taken: dict[str, list[float]] = {"ours": [], "upsert": []}
            for n in range(options.rounds):
                chosen = ids()
                if chosen is None:
                    chosen = in_one_bucket(options)
                changed = load(place, np.sort(chosen), n + 1)
                taken["ours"].append(timed(apply))
                taken["upsert"].append(timed(lambda table=changed: other.upsert(table, join_cols=["id"])))
            times = ", ".join(
                f"{duration} {median(durations):.2f} s ({min(durations):.2f}-{max(durations):.2f})"
                for duration, durations in taken.items()
            )
            print(f"{options.changes} changes {name}: {times}")
        mine = catalog.load_table("barnabas.rows__current").scan().to_arrow().select(first.column_names)
        theirs = other.scan().to_arrow()
        same = mine.sort_by("id").equals(theirs.sort_by("id"))
        print("the rows are the same" if same else "the rows differ")
        return 0 if same else 1


def in_one_bucket(options: Any) -> Any:
    """Return ids of the same bucket, as many as a round changes."""
    from pyiceberg.transforms import BucketTransform
    from pyiceberg.types import LongType

    ids = np.arange(options.rows)
    bucket = BucketTransform(options.buckets).pyarrow_transform(LongType())(pa.array(ids)).to_numpy()
    return ids[bucket == 3][: options.changes]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
