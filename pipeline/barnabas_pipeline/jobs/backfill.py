"""backfill: replace the rows of some hours by what the log says of them, decoded again, in one commit.

The rule: a backfill changes columns, never which records are rows. Its rows are checked against the old ones offset by
offset before anything is committed.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from barnabas_pipeline.errors import DataLossError, IncompleteError, MissingOffsets, UsageError
from barnabas_pipeline.jobs.load import LoadOptions, find_loss, new_manifest, unwrap
from barnabas_pipeline.lake.files import HOUR_MS, HourWriter, hour_name, hour_number
from barnabas_pipeline.lake.iceberg import publisher
from barnabas_pipeline.lake.manifest import DataFile, TableState
from barnabas_pipeline.lake.table import Table
from barnabas_pipeline.lake.task import to_table
from barnabas_pipeline.log.columns import Columns, select
from barnabas_pipeline.log.model import Bounds, OffsetRange
from barnabas_pipeline.log.reader import RangeReader
from barnabas_pipeline.log.transports import open_log
from barnabas_pipeline.schema import EventSchema


@dataclass(slots=True)
class BackfillSummary:
    """Figures of one run."""

    hours: int = 0
    rows: int = 0
    files_before: int = 0
    files_after: int = 0


@dataclass(frozen=True, slots=True)
class _Part:
    """The rows of one partition in the hours that are replaced."""

    options: LoadOptions
    topic_id: str
    partition: int
    files: tuple[DataFile, ...]
    hours: tuple[int, ...]

    @property
    def wanted(self) -> OffsetRange:
        start = min(file.offset_min for file in self.files)
        return OffsetRange(self.partition, start, max(file.offset_max for file in self.files) + 1)


def backfill(spark: Any, options: LoadOptions, *, from_ms: int, to_ms: int, reason: str) -> BackfillSummary:
    """Backfill the hours that begin within [from_ms, to_ms). Raises DataLossError if the log lacks some of them."""
    table = Table(options.root)
    state = table.state()
    EventSchema.from_dict(state.schema).check_evolution(options.schema)
    log = open_log(options.log)
    try:
        identity, bounds = log.identity(), log.bounds()
    finally:
        log.close()
    loss = find_loss(state, identity, bounds)
    if loss is not None:
        raise loss
    chosen = [name for name in state.hours if from_ms <= hour_number(name) * HOUR_MS < to_ms]
    if not chosen:
        raise UsageError("the table has no rows in these hours")
    parts = _plan(state, options, chosen, bounds)
    try:
        results = list(spark.sparkContext.parallelize(parts, len(parts)).map(_replace).collect())
    except Exception as error:
        raise unwrap(error) from None
    job = {"name": "backfill", "id": uuid.uuid4().hex, "hours": chosen, "decoder": options.decoder.limits()}
    manifest = new_manifest(table, "backfill", identity, options.schema, job)
    manifest.note = reason
    manifest.add = [file for files in results for file in files]
    manifest.remove = sorted({file.path for part in parts for file in part.files})
    table.commit(manifest)
    publisher(table, options.iceberg)()
    rows = sum(file.rows for file in manifest.add)
    return BackfillSummary(len(chosen), rows, len(manifest.remove), len(manifest.add))


def _plan(
    state: TableState, options: LoadOptions, chosen: list[str], bounds: dict[int, Bounds]
) -> list[_Part]:
    files = [file for file in state.files.values() if file.hour in chosen]
    if any(file.topic_id != state.topic_id for file in files):
        raise UsageError(
            "some of these hours are from an earlier incarnation of the topic, which cannot be read again"
        )
    if any(file.partition < 0 for file in files):
        groups = {-1: files}  # compacted across partitions: all are replaced together, partition by partition
    else:
        groups = {}
        for file in files:
            groups.setdefault(file.partition, []).append(file)
    hours = tuple(hour_number(name) for name in chosen)
    parts = []
    for partition, mine in sorted(groups.items()):
        for one in sorted(state.ends) if partition < 0 else [partition]:
            part = _Part(options, state.topic_id, one, tuple(mine), hours)
            if part.wanted.start < bounds[one].start and partition >= 0:
                raise DataLossError(
                    "the log has not all of these hours any more",
                    [MissingOffsets(one, part.wanted.start, bounds[one].start)],
                )
            parts.append(part)
    return parts


def _replace(part: _Part) -> list[DataFile]:
    """Write the part's rows again. Raises IncompleteError if they would be others than before."""
    root = Path(part.options.root)
    old = np.sort(np.concatenate([_offsets(root / file.path, part.partition) for file in part.files]))
    writer = HourWriter(root, part.options.schema, part.topic_id, part.partition)
    if not len(old):
        return []
    wanted = OffsetRange(part.partition, int(old[0]), int(old[-1]) + 1)
    new: list[Any] = [np.empty(0, np.int64)]
    log = open_log(part.options.log)
    try:
        for item in RangeReader(log, wanted):
            if not isinstance(item, Columns):
                continue
            columns = select(item, np.isin(item.offset, old))
            table, _ = to_table(columns, part.options.decoder, part.topic_id, part.partition)
            hours = table[part.options.schema.event_time].to_numpy() // HOUR_MS
            table = table.filter(pa.array(np.isin(hours, part.hours)))
            if table.num_rows:
                writer.write(table)
                new.append(table["_offset"].to_numpy())
    finally:
        log.close()
    if not np.array_equal(np.concatenate(new), old):
        missing = np.setdiff1d(old, np.concatenate(new)).tolist()
        raise IncompleteError(
            f"partition {part.partition}: {len(missing)} rows would not be rows any more, the first at {missing[:1]}; "
            f"hours {hour_name(min(part.hours))} to {hour_name(max(part.hours))} stay as they are"
        )
    return writer.close()


def _offsets(path: Path, partition: int) -> Any:
    rows = pq.ParquetFile(path).read(columns=["_partition", "_offset"])
    return rows["_offset"].to_numpy()[rows["_partition"].to_numpy() == partition]
