"""backfill: replaces the rows of some hours by records of the log, decoded again, in one commit.

The rule: a backfill changes columns, never which records are rows. Its rows are checked against the old ones offset by
offset before anything is committed.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from barnabas_pipeline.errors import DataLossError, IncompleteError, MissingOffsets, UsageError
from barnabas_pipeline.jobs.load import LoadOptions, collected, find_loss, new_entry
from barnabas_pipeline.lake import scan
from barnabas_pipeline.lake.columns import PARTITION, event_hours, lake_schema
from barnabas_pipeline.lake.dead import DeadLetters
from barnabas_pipeline.lake.files import TableWriter
from barnabas_pipeline.lake.iceberg import Layout
from barnabas_pipeline.lake.ledger import HOUR_MS, DataFile, State, hour_name
from barnabas_pipeline.lake.scan import Piece
from barnabas_pipeline.lake.table import Table
from barnabas_pipeline.lake.task import to_table
from barnabas_pipeline.log.columns import Columns, select
from barnabas_pipeline.log.model import Bounds, OffsetRange
from barnabas_pipeline.log.reader import RangeReader
from barnabas_pipeline.log.transports import open_log
from barnabas_pipeline.schema import EventSchema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from barnabas_pipeline.data_types import Integers


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
    layout: Layout
    topic_id: str
    partition: int
    files: tuple[Piece, ...]
    hours: tuple[int, ...]

    @property
    def offset_range(self) -> OffsetRange:
        start = min(file.bounds.offset_min for file in self.files)
        return OffsetRange(self.partition, start, max(file.bounds.offset_max for file in self.files) + 1)


def backfill(
    spark: SparkSession, options: LoadOptions, *, from_ms: int, to_ms: int, reason: str
) -> BackfillSummary:
    """Backfill the hours that begin within [from_ms, to_ms). Raises DataLossError if the log lacks records."""
    table = Table(options.root)
    state = table.loaded()
    EventSchema.from_dict(state.schema).check_evolution(options.schema)
    log = open_log(options.log)
    try:
        identity, bounds = log.identity(), log.bounds()
    finally:
        log.close()
    loss = find_loss(state, identity, bounds)
    if loss is not None:
        raise loss
    chosen = sorted(hour for hour in state.hours if from_ms <= hour * HOUR_MS < to_ms)
    if not chosen:
        raise UsageError("the table has no rows in these hours")
    table.prepare(options.schema)
    parts = _plan(table, state, options, chosen, bounds)
    results = collected(spark.sparkContext.parallelize(parts, len(parts)).map(_replace))
    names = [hour_name(hour) for hour in chosen]
    job = {"name": "backfill", "id": uuid.uuid4().hex, "hours": names, "decoder": options.decoder.limits()}
    entry = new_entry(table, "backfill", identity, options.schema, job)
    entry.note = reason
    entry.add = [file for files, _ in results for file in files]
    entry.remove = sorted({file.path for part in parts for file in part.files})
    table.commit(entry)
    DeadLetters(table).publish()
    rows = sum(rows for _, rows in results)
    return BackfillSummary(len(chosen), rows, len(entry.remove), len(entry.add))


def _plan(
    table: Table, state: State, options: LoadOptions, chosen: list[int], bounds: dict[int, Bounds]
) -> list[_Part]:
    span = (options.schema.event_time, chosen[0] * HOUR_MS, (chosen[-1] + 1) * HOUR_MS)
    files = table.pieces(span=span)
    if any(not file.bounds.topic_id for file in files):
        raise UsageError("another engine has written rows of no topic into these hours, which would be lost")
    if any(file.bounds.topic_id != state.topic_id for file in files):
        raise UsageError(
            "some of these hours are from an earlier incarnation of the topic, which cannot be read again"
        )
    if any(file.bounds.partition < 0 for file in files):
        groups = {-1: files}  # compacted across partitions: all are replaced together, partition by partition
    else:
        groups = {}
        for file in files:
            groups.setdefault(file.bounds.partition, []).append(file)
    parts = []
    layout = table.layout
    for partition, mine in sorted(groups.items()):
        for number in sorted(state.ends) if partition < 0 else [partition]:
            part = _Part(options, layout, state.topic_id, number, tuple(mine), tuple(chosen))
            if part.offset_range.start < bounds[number].start and partition >= 0:
                raise DataLossError(
                    "the log has not all of these hours any more",
                    [MissingOffsets(number, part.offset_range.start, bounds[number].start)],
                )
            parts.append(part)
    return parts


def _replace(part: _Part) -> tuple[list[DataFile], int]:
    """Write the part's rows again, and rows of other hours in its files unchanged; returns (files, replaced rows).

    Raises IncompleteError if the new rows are not of the same records.
    """
    event_time = part.options.schema.event_time
    writer = TableWriter(part.layout, part.options.schema, part.topic_id, part.partition)
    replaced = [np.empty(0, np.int64)]
    for rows in scan.rows(part.layout, part.files, lake_schema(part.options.schema)):
        mine = rows.filter(pc.equal(rows[PARTITION], part.partition))
        is_chosen = np.isin(event_hours(mine[event_time]), part.hours)
        replaced.append(mine["_offset"].to_numpy()[is_chosen])
        if not is_chosen.all():
            writer.write(mine.filter(pa.array(~is_chosen)))
    old = np.sort(np.concatenate(replaced))
    if len(old):
        _decode_again(part, old, writer)
    return writer.close(), len(old)


def _decode_again(part: _Part, old: Integers, writer: TableWriter) -> None:
    """Write the rows of some offsets from the log. Raises IncompleteError if a record is no longer a row."""
    new: list[Integers] = [np.empty(0, np.int64)]
    log = open_log(part.options.log)
    try:
        for item in RangeReader(log, OffsetRange(part.partition, int(old[0]), int(old[-1]) + 1)):
            if not isinstance(item, Columns):
                continue
            columns = select(item, np.isin(item.offset, old))
            table, _ = to_table(columns, part.options.decoder, part.topic_id, part.partition)
            hours = event_hours(table[part.options.schema.event_time])
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
