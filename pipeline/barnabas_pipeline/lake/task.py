"""Work of one Spark task for a load: read a range, decode it, write its files, and count the outcome of each offset.

The rule: a task that fails or is run twice leaves files that no commit names, and nothing else.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from barnabas_pipeline import faults
from barnabas_pipeline.errors import IncompleteError, PipelineError
from barnabas_pipeline.formats import BadRecord, Decoder
from barnabas_pipeline.formats.base import DECODER_VERSION, TIME_MAX_MS, TIME_MIN_MS
from barnabas_pipeline.lake.columns import DEAD_SCHEMA, PARTITION, lake_schema
from barnabas_pipeline.lake.files import TableWriter, write_dead
from barnabas_pipeline.lake.iceberg import Layout
from barnabas_pipeline.lake.ledger import DataFile
from barnabas_pipeline.log.columns import TIMESTAMP_TYPE, Columns
from barnabas_pipeline.log.model import CorruptSpan, LogOptions, OffsetRange
from barnabas_pipeline.log.reader import RangeReader
from barnabas_pipeline.log.transports import Logs

if TYPE_CHECKING:
    from barnabas_pipeline.data_types import Row

TOGETHER = 4


@dataclass(frozen=True, slots=True)
class LoadTask:
    """The parameters of a load's task on a worker."""

    log: LogOptions
    decoder: Decoder
    layout: Layout
    topic_id: str
    offset_range: OffsetRange
    target_file_bytes: int


@dataclass(slots=True)
class TaskResult:
    """Counts of the range by outcome: `loaded + dead + control + aborted + compacted` is its length."""

    offset_range: OffsetRange
    loaded: int = 0
    dead: int = 0
    control: int = 0
    aborted: int = 0
    compacted: int = 0
    bytes_read: int = 0
    digest: int = 0
    files: list[DataFile] = field(default_factory=list)
    dead_files: list[DataFile] = field(default_factory=list)


def run_all(tasks: list[LoadTask]) -> list[TaskResult | PipelineError]:
    """Run tasks, a few at a time, since small tasks mostly wait for disks. The result of a failed task is its error."""
    with Logs() as logs, ThreadPoolExecutor(TOGETHER) as pool:
        logs.expect(task.log for task in tasks)
        return list(pool.map(lambda task: _outcome(task, logs), tasks))


def _outcome(task: LoadTask, logs: Logs) -> TaskResult | PipelineError:
    try:
        return run(task, logs)
    except PipelineError as error:
        return error
    except OSError as error:  # such as a full disk
        return IncompleteError(f"a task could not read or write: {error}")


def run(task: LoadTask, logs: Logs) -> TaskResult:
    """Run a task. Raises DataLossError if the range was deleted, IncompleteError if the log is unreachable."""
    faults.point("task.before_read")
    log = logs.open(task.log, task.topic_id)
    writer = TableWriter(
        task.layout,
        task.decoder.schema,
        task.topic_id,
        task.offset_range.partition,
        target_bytes=task.target_file_bytes,
    )
    result = TaskResult(task.offset_range)
    dead_rows: list[Row] = []
    try:
        reader = RangeReader(log, task.offset_range)
        for item in reader:
            if isinstance(item, CorruptSpan):
                dead_rows.append(_dead_span(task, item))
                continue
            table, bad = to_table(item, task.decoder, task.topic_id, task.offset_range.partition)
            dead_rows += [dead_record(task, item, refusal) for refusal in bad]
            if table.num_rows:
                writer.write(table)
                result.loaded += table.num_rows
            faults.point("task.after_block")
    finally:
        log.close()
    faults.point("task.before_close")
    result.files = writer.close()
    if dead_rows:
        letters = pa.Table.from_pylist(dead_rows, schema=DEAD_SCHEMA)
        result.dead_files = [write_dead(task.layout, letters, task.topic_id, task.offset_range.partition)]
    faults.point("task.after_files")
    counts = reader.counts
    result.dead = sum(row["end_offset"] - row["offset"] for row in dead_rows)
    result.control, result.aborted, result.compacted = counts.control, counts.aborted, counts.compacted
    result.bytes_read, result.digest = counts.bytes_read, counts.digest
    assert result.loaded + result.dead == counts.records + counts.corrupt, (result, counts)
    return result


def to_table(
    columns: Columns, decoder: Decoder, topic_id: str, partition: int
) -> tuple[pa.Table, list[BadRecord]]:
    """Decode a block into (rows of the lake, refused records)."""
    rows, fields, bad = decoder.decode(columns)
    whole = len(rows) == len(columns)
    picked = None if whole else pa.array(rows)
    timestamp = columns.timestamp_ms if whole else columns.timestamp_ms[rows]
    count = len(rows)
    coordinates = {
        "_topic_id": pa.repeat(topic_id, count),
        PARTITION: pa.array(np.full(count, partition, np.int32)),
        "_offset": pa.array(columns.offset if whole else columns.offset[rows]),
        "_timestamp": pa.array(timestamp * 1000).cast(TIMESTAMP_TYPE),
        "_leader_epoch": pa.array(columns.leader_epoch if whole else columns.leader_epoch[rows]),
        "_key": columns.key if whole else columns.key.take(picked),
        "_headers": columns.headers if whole else columns.headers.take(picked),
    }
    schema = lake_schema(decoder.schema)
    arrays = [coordinates[name] if name in coordinates else fields[name] for name in schema.names]
    return pa.Table.from_arrays(arrays, schema=schema), bad


def dead_record(task: LoadTask, columns: Columns, bad: BadRecord) -> Row:
    """Return the row of a dead letter."""
    row = bad.row
    offset, timestamp_ms = int(columns.offset[row]), int(columns.timestamp_ms[row])
    return {
        "topic_id": task.topic_id,
        "partition": task.offset_range.partition,
        "offset": offset,
        "end_offset": offset + 1,
        "timestamp": timestamp_ms * 1000 if TIME_MIN_MS <= timestamp_ms <= TIME_MAX_MS else None,
        "timestamp_ms": timestamp_ms,
        "leader_epoch": int(columns.leader_epoch[row]),
        "key": columns.key[row].as_py(),
        "value": columns.value[row].as_py(),
        "headers": columns.headers[row].as_py(),
        "reason": bad.reason,
        "detail": bad.detail,
        "decoder_version": DECODER_VERSION,
        "schema_name": task.decoder.schema.name,
    }


def _dead_span(task: LoadTask, span: CorruptSpan) -> Row:
    return {
        "topic_id": task.topic_id,
        "partition": task.offset_range.partition,
        "offset": span.start,
        "end_offset": span.end,
        "value": span.data,
        "reason": span.reason,
        "detail": span.detail,
        "decoder_version": DECODER_VERSION,
        "schema_name": task.decoder.schema.name,
    }
