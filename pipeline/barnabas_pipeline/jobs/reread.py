"""Reads the log again exactly as it was loaded: with the schema of each load, redrive and backfill.

The rule: only the ledger determines the decoder of a record.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from barnabas_pipeline.formats import BadRecord, Decoder, restore
from barnabas_pipeline.lake import frames
from barnabas_pipeline.lake.columns import PARTITION, event_hours, lake_schema
from barnabas_pipeline.lake.ledger import Entry, State, hour_number
from barnabas_pipeline.lake.task import to_table
from barnabas_pipeline.log.columns import Columns, select
from barnabas_pipeline.log.model import Log, LogOptions, OffsetRange
from barnabas_pipeline.log.planning import split
from barnabas_pipeline.log.reader import RangeReader
from barnabas_pipeline.log.transports import open_log
from barnabas_pipeline.schema import EventSchema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from barnabas_pipeline.data_types import Integers, Row

BAD_TYPE = pa.struct([("end_offset", pa.int64()), ("reason", pa.string()), ("value", pa.binary())])


@dataclass(frozen=True, slots=True)
class Override:
    """Another decoder, for single offsets (a redrive) or for the rows of hours (a backfill)."""

    decoder: Decoder
    offsets: tuple[int, ...] = ()
    hours: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Rereading:
    """A range, the decoder of its load, and later redrives and backfills, in order."""

    offset_range: OffsetRange
    decoder: Decoder
    overrides: tuple[Override, ...]


def plan_rereading(
    entries: list[Entry], state: State, log: Log, ranges: list[OffsetRange]
) -> Iterator[Rereading]:
    """Yield the loads of the present incarnation within `ranges`, which must be in the log, in pieces."""
    entries = [
        entry for entry in entries if (entry.cluster_id, entry.topic_id) == (state.cluster_id, state.topic_id)
    ]
    changes = [entry for entry in entries if entry.kind in ("redrive", "backfill")]
    for entry in entries:
        for key, commit in entry.partitions.items():
            parts = [
                OffsetRange(
                    offset_range.partition,
                    max(commit.start, offset_range.start),
                    min(commit.end, offset_range.end),
                )
                for offset_range in ranges
                if offset_range.partition == int(key)
                and offset_range.start < commit.end
                and commit.start < offset_range.end
            ]
            for piece in split(log, parts):
                overrides = [_override(change, piece) for change in changes if change.version > entry.version]
                yield Rereading(
                    piece, decoder_of(entry), tuple(override for override in overrides if override)
                )


def decoder_of(entry: Entry) -> Decoder:
    """Return the decoder of a load, redrive or backfill, with `careful`: equal verdicts, by other code."""
    return restore(EventSchema.from_dict(entry.schema), entry.job.get("decoder", {}), careful=True)


def _override(entry: Entry, piece: OffsetRange) -> Override | None:
    if entry.kind == "backfill":
        hours = tuple(hour_number(name) for name in entry.job["hours"])
        return Override(decoder_of(entry), hours=hours)
    offsets = entry.redriven.get(str(piece.partition), ())
    mine = tuple(offset for offset in offsets if piece.start <= offset < piece.end)
    return Override(decoder_of(entry), offsets=mine) if mine else None


def reread_frame(
    spark: SparkSession, readings: list[Rereading], state: State, log_options: LogOptions
) -> DataFrame:
    """Return all rows of the readings in the log, one task each; `_bad` is set for expected dead letters."""
    schema = EventSchema.from_dict(state.schema)
    arrow = lake_schema(schema).append(pa.field("_bad", BAD_TYPE))
    topic_id = state.topic_id

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for index in batch.column(0).to_pylist():
                for table in reread(readings[index], log_options, topic_id, arrow):
                    yield from table.to_batches(max_chunksize=10_000)

    indexes = spark.range(0, len(readings), 1, max(1, len(readings)))
    return indexes.mapInArrow(read, frames.spark_schema(arrow))


def reread(
    reading: Rereading, log_options: LogOptions, topic_id: str, arrow: pa.Schema
) -> Iterator[pa.Table]:
    """Read and decode a range; yields tables widened to the columns `arrow`."""
    partition = reading.offset_range.partition
    log = open_log(log_options)
    try:
        for item in RangeReader(log, reading.offset_range):
            if not isinstance(item, Columns):
                bad = {"end_offset": item.end, "reason": item.reason, "value": item.data}
                yield _bad_rows(arrow, partition, [item.start], [bad])
                continue
            for table, columns, refused in judge(item, reading, topic_id):
                yield _widen(table, arrow)
                if refused:
                    yield _refused_rows(arrow, partition, columns, refused)
    finally:
        log.close()


def judge(
    item: Columns, reading: Rereading, topic_id: str
) -> Iterator[tuple[pa.Table, Columns, list[BadRecord]]]:
    """Decode a block, each record by the last decoder that applied to it; yields (rows, records, refused records)."""
    partition = reading.offset_range.partition
    decided = np.zeros(len(item), np.int64)  # 0: the load's; n: the n-th override's
    event_hours = None
    for n, override in enumerate(reading.overrides, 1):
        if override.offsets:
            decided[np.isin(item.offset, override.offsets)] = n
            continue
        if event_hours is None:
            event_hours = _event_hours(item, reading.decoder, topic_id, partition)
        hours = event_hours
        for m, earlier in enumerate(reading.overrides[: n - 1], 1):
            if earlier.offsets and (decided == m).any():
                hours = hours.copy()
                again = select(item, decided == m)
                hours[decided == m] = _event_hours(again, earlier.decoder, topic_id, partition)
        decided[np.isin(hours, override.hours)] = n
    decoders = [reading.decoder, *(override.decoder for override in reading.overrides)]
    for n in np.unique(decided).tolist():
        columns = select(item, decided == n)
        table, refused = to_table(columns, decoders[n], topic_id, partition)
        yield table, columns, refused


def _event_hours(columns: Columns, decoder: Decoder, topic_id: str, partition: int) -> Integers:
    """Return the event hour of each record, -1 for refused records."""
    table, _ = to_table(columns, decoder, topic_id, partition)
    hours = np.full(len(columns), -1, np.int64)
    at = np.searchsorted(columns.offset, table["_offset"].to_numpy())
    hours[at] = event_hours(table[decoder.schema.event_time])
    return hours


def _widen(table: pa.Table, arrow: pa.Schema) -> pa.Table:
    arrays = [
        table[field.name].cast(field.type)
        if field.name in table.column_names
        else pa.nulls(table.num_rows, field.type)
        for field in arrow
    ]
    return pa.Table.from_arrays(arrays, schema=arrow)


def _refused_rows(arrow: pa.Schema, partition: int, columns: Columns, refused: list[BadRecord]) -> pa.Table:
    offsets = [int(columns.offset[refusal.row]) for refusal in refused]
    bad = [
        {"end_offset": offset + 1, "reason": refusal.reason, "value": columns.value[refusal.row].as_py()}
        for offset, refusal in zip(offsets, refused, strict=True)
    ]
    return _bad_rows(arrow, partition, offsets, bad)


def _bad_rows(arrow: pa.Schema, partition: int, offsets: list[int], bad: list[Row]) -> pa.Table:
    values = {PARTITION: [partition] * len(offsets), "_offset": offsets, "_bad": bad}
    arrays = [
        pa.array(values[field.name], field.type)
        if field.name in values
        else pa.nulls(len(offsets), field.type)
        for field in arrow
    ]
    return pa.Table.from_arrays(arrays, schema=arrow)
