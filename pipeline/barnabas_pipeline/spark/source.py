"""The data source `barnabas`: topics as data frames, batch and streaming.

The rule: a frame has exactly the records that a consumer would read, each once, with its coordinates.

    spark.read.format("barnabas").option("bootstrap", "localhost:9092").option("topic", "views").load()

Options: `topic`; `transport` wire (`bootstrap`) or disk (`logDirs`, separated by commas); `isolation`
(read_committed); `startingOffsets`, `endingOffsets`, `startingTimestamp`, `endingTimestamp`, `failOnDataLoss`;
`columns` (separated by commas: only these are decoded; Spark does not pass the columns of a query to a Python source);
`splitBytes`; `maxOffsetsPerTrigger`; `onCorrupt` fail or row (adds the columns `corrupt_reason`, `corrupt_end`);
`content` records or ranges (the offsets that a task would read, for jobs that read themselves); `partitions` (numbers,
separated by commas); `kafka.*`: client settings for the wire.

`pushFilters` true lets filters on partition, offset and timestamp narrow the range. It is off by default: Spark 4.2
keeps the filters that it pushed for one query, and uses them for the next query on the same loaded frame, which then
lacks records. Set it only where a loaded frame is used once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from barnabas_pipeline.errors import DataLossError, IncompleteError, MissingOffsets, UsageError
from barnabas_pipeline.log.columns import ALL_FIELDS, HEADERS_TYPE, TIMESTAMP_TYPE, Columns
from barnabas_pipeline.log.model import READ_COMMITTED, Bounds, CorruptSpan, Log, LogOptions, OffsetRange
from barnabas_pipeline.log.planning import Selection, resolve, shorten, split
from barnabas_pipeline.log.reader import RangeReader
from barnabas_pipeline.log.transports import open_log

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

    from barnabas_pipeline.data_types import Column, Document, Value

NAME = "barnabas"
RECORDS, RANGES = "records", "ranges"
FAIL, ROW = "fail", "row"
BATCH_ROWS = 10_000

COLUMNS = {
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "leader_epoch": "int",
    "timestamp": "timestamp",
    "timestamp_type": "int",
    "key": "binary",
    "value": "binary",
    "headers": "array<struct<key: string, value: binary>>",
}
CORRUPT_SCHEMA = ", corrupt_reason string, corrupt_end bigint"
RANGES_SCHEMA = (
    "cluster_id string, topic string, topic_id string, partition int, start bigint, `end` bigint, "
    "high_watermark bigint, leader_epoch int"
)
_FIELDS = {
    field.name: field
    for field in (
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("leader_epoch", pa.int32()),
        pa.field("timestamp", TIMESTAMP_TYPE),
        pa.field("timestamp_type", pa.int32()),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS_TYPE),
    )
}
_CORRUPT_FIELDS = [pa.field("corrupt_reason", pa.string()), pa.field("corrupt_end", pa.int64())]
_RANGE_ARROW = pa.schema(
    [
        pa.field("cluster_id", pa.string()),
        pa.field("topic", pa.string()),
        pa.field("topic_id", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("start", pa.int64()),
        pa.field("end", pa.int64()),
        pa.field("high_watermark", pa.int64()),
        pa.field("leader_epoch", pa.int32()),
    ]
)

D = TypeVar("D")


class BarnabasSource(DataSource):
    """The entry point for Spark."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format(...)`."""
        return NAME

    def schema(self) -> str:
        """Return the columns, which depend on `content` and `onCorrupt`."""
        if _content(self.options) == RANGES:
            return RANGES_SCHEMA
        columns = ", ".join(f"{name} {COLUMNS[name]}" for name in _columns(self.options))
        return columns + (CORRUPT_SCHEMA if _on_corrupt(self.options) == ROW else "")

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002  # Spark passes it by this name
        """Return the reader for `spark.read`."""
        return BatchReader(self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802
        """Return the reader for `spark.readStream`."""
        return StreamReader(self.options)


class Task(InputPartition):
    """The range that a Spark task reads."""

    def __init__(self, offset_range: OffsetRange, ranges_row: tuple[str | int, ...]) -> None:
        super().__init__((offset_range.partition, offset_range.start, offset_range.end))
        self.offset_range = offset_range
        self.ranges_row = ranges_row


class _Reading:
    """Base of batch and streaming readers: their common options, and the reading of a task."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.log_options = log_options(options)
        self.content = _content(options)
        self.on_corrupt = _on_corrupt(options)
        self.selection = selection(options)
        self.columns = _columns(options)
        self.split_bytes = _integer(options, "splitBytes", None)
        self.chosen_partitions = _partitions(options)

    def _wants(self, partition: int) -> bool:
        return self.chosen_partitions is None or partition in self.chosen_partitions

    def tasks(self, log: Log, ranges: list[OffsetRange]) -> list[Task]:
        bounds = log.bounds()
        identity = log.identity()
        pieces = [offset_range for offset_range in ranges if len(offset_range)] if self.content == RANGES else split(
            log, ranges, bytes_max=self.split_bytes
        )  # fmt: skip
        return [Task(piece, (*identity, *_row(piece, bounds[piece.partition]))) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of a task as Arrow batches."""
        assert isinstance(partition, Task)
        task = partition
        if self.content == RANGES:
            columns = list(zip(*[task.ranges_row], strict=True))
            arrays = [pa.array(c, f.type) for c, f in zip(columns, _RANGE_ARROW, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=_RANGE_ARROW)
            return
        log = open_log(self.log_options)
        try:
            for item in RangeReader(log, task.offset_range, fields=ALL_FIELDS.intersection(self.columns)):
                if isinstance(item, Columns):
                    yield from self._batches(item, task.offset_range.partition)
                elif self.on_corrupt == FAIL:
                    raise IncompleteError(
                        f"{self.log_options.topic}-{task.offset_range.partition}: offsets [{item.start}, {item.end}) are "
                        f"damaged: {item.detail}; option onCorrupt=row shows them as rows"
                    )
                else:
                    yield self._corrupt_row(item, task.offset_range.partition)
        finally:
            log.close()

    def _batches(self, columns: Columns, partition: int) -> Iterator[pa.RecordBatch]:
        batch = to_arrow(columns, self.log_options.topic, partition, self.columns)
        if self.on_corrupt == ROW:
            for field in _CORRUPT_FIELDS:
                batch = batch.append_column(field, pa.nulls(len(columns), field.type))
        for at in range(0, batch.num_rows, BATCH_ROWS):
            yield batch.slice(at, BATCH_ROWS)

    def _corrupt_row(self, span: CorruptSpan, partition: int) -> pa.RecordBatch:
        values = (
            self.log_options.topic, partition, span.start, None, None, None, None, span.data, None,
            span.reason, span.end,
        )  # fmt: skip
        values_by_column = dict(
            zip([*COLUMNS, *(field.name for field in _CORRUPT_FIELDS)], values, strict=True)
        )
        fields = [*(_FIELDS[name] for name in self.columns), *_CORRUPT_FIELDS]
        arrays = [pa.array([values_by_column[field.name]], field.type) for field in fields]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def to_arrow(
    columns: Columns, topic: str, partition: int, names: Sequence[str] = tuple(COLUMNS)
) -> pa.RecordBatch:
    """Return a record batch of the named columns of the source's schema."""
    count = len(columns)
    makers: dict[str, Callable[[], Column]] = {
        "topic": lambda: pa.repeat(topic, count),
        "partition": lambda: pa.array(np.full(count, partition, np.int32)),
        "offset": lambda: pa.array(columns.offset),
        "leader_epoch": lambda: pa.array(columns.leader_epoch),
        "timestamp": lambda: pa.array(columns.timestamp_ms * 1000).cast(TIMESTAMP_TYPE),
        "timestamp_type": lambda: pa.array(columns.timestamp_type),
        "key": lambda: columns.key,
        "value": lambda: columns.value,
        "headers": lambda: columns.headers,
    }
    arrays = [makers[name]() for name in names]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([_FIELDS[name] for name in names]))


class BatchReader(_Reading, DataSourceReader):
    """Reader of the requested range, reduced by filters on partition, offset and timestamp."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self._push_filters = (options.get("pushFilters") or "false").lower() == "true"
        self._from = 0
        self._to = (1 << 63) - 1
        self._from_timestamp_ms: int | None = None

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:  # noqa: N802
        """Note filters that narrow the range, if `pushFilters` is set; Spark still applies every filter itself."""
        for pushed in filters:
            if self._push_filters:
                self._narrow(
                    type(pushed).__name__, getattr(pushed, "attribute", ()), getattr(pushed, "value", None)
                )
            yield pushed

    def _narrow(self, kind: str, column: tuple[str, ...], value: Value) -> None:
        if column == ("partition",) and kind == "EqualTo":
            self._keep({value})
        elif column == ("partition",) and kind == "In":
            self._keep(set(value))
        elif column == ("offset",):
            if kind in ("EqualTo", "GreaterThanOrEqual", "GreaterThan"):
                self._from = max(self._from, value + (kind == "GreaterThan"))
            if kind in ("EqualTo", "LessThanOrEqual", "LessThan"):
                self._to = min(self._to, value + (kind != "LessThan"))
        elif column == ("timestamp",) and kind in ("EqualTo", "GreaterThanOrEqual", "GreaterThan"):
            # Timestamps need not rise with offsets: only the start can be narrowed, to the first sufficient timestamp.
            timestamp_ms = int(value.timestamp() * 1000)
            self._from_timestamp_ms = max(self._from_timestamp_ms or timestamp_ms, timestamp_ms)

    def _keep(self, partitions: set[int]) -> None:
        self.chosen_partitions = (
            partitions if self.chosen_partitions is None else self.chosen_partitions & partitions
        )

    def partitions(self) -> Sequence[InputPartition]:
        """Plan the tasks."""
        log = open_log(self.log_options)
        try:
            ranges = []
            for offset_range in resolve(log, self.selection):
                if not self._wants(offset_range.partition):
                    continue
                start, end = max(offset_range.start, self._from), min(offset_range.end, self._to)
                if self._from_timestamp_ms is not None and start < end:
                    offset = log.offset_for_time(offset_range.partition, self._from_timestamp_ms)
                    start = end if offset is None else max(start, offset)
                ranges.append(OffsetRange(offset_range.partition, start, max(start, end)))
            return self.tasks(log, ranges)
        finally:
            log.close()


class StreamReader(_Reading, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reader that follows a topic. Its offsets name the incarnation, to distinguish a re-created topic from the old one."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self._rows_max = _integer(options, "maxOffsetsPerTrigger", 0)
        self._log: Log | None = None
        self._target: dict[str, int] | None = None

    def __getstate__(self) -> Document:
        """Return the state for executors: the options without the connection."""
        return {**self.__dict__, "_log": None}

    @property
    def log(self) -> Log:
        """The topic, opened once for all planning."""
        if self._log is None:
            self._log = open_log(self.log_options)
        return self._log

    def initialOffset(self) -> Document:  # noqa: N802
        """Return the offset at which a new query starts."""
        return self._offset(
            {
                offset_range.partition: offset_range.start
                for offset_range in resolve(self.log, self.selection)
                if self._wants(offset_range.partition)
            }
        )

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the present end: a query with this trigger reads up to it, and ends."""
        self._target = {
            str(partition): bound.end for partition, bound in self.log.bounds().items()
        }  # of all partitions: `_ranges` selects

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit of `maxOffsetsPerTrigger`, or all available offsets."""
        return ReadMaxRows(self._rows_max) if self._rows_max else ReadAllAvailable()

    def latestOffset(self, start: Document, limit: ReadLimit) -> Document:  # noqa: N802
        """Return the end of the next micro-batch. Raises DataLossError if the topic differs from that of `start`."""
        ranges = self._ranges(start)
        if isinstance(limit, ReadMaxRows):
            ranges = shorten(ranges, limit.max_rows)
        return self._offset({offset_range.partition: offset_range.end for offset_range in ranges})

    def reportLatestOffset(self) -> Document:  # noqa: N802
        """Return the offset at which the topic ends now, for the query's progress report."""
        return self._offset({partition: bound.end for partition, bound in self.log.bounds().items()})

    def partitions(self, start: Document, end: Document) -> Sequence[InputPartition]:
        """Plan one micro-batch."""
        self._check_identity(start)
        self._check_identity(end)
        starts = start["partitions"]
        ranges = [
            OffsetRange(int(partition), int(starts.get(partition, 0)), int(stop))
            for partition, stop in end["partitions"].items()
        ]
        return self.tasks(self.log, [offset_range for offset_range in ranges if len(offset_range) > 0])

    def commit(self, end: Document) -> None:
        """Do nothing: Spark's checkpoint records the offset."""

    def stop(self) -> None:
        """Close the connections."""
        if self._log is not None:
            self._log.close()
            self._log = None

    def _offset(self, offsets: dict[int, int]) -> Document:
        identity = self.log.identity()
        return {
            "cluster_id": identity.cluster_id,
            "topic_id": identity.topic_id,
            "partitions": {str(partition): offset for partition, offset in sorted(offsets.items())},
        }

    def _ranges(self, start: Document) -> list[OffsetRange]:
        """Return the ranges after `start`; new partitions start at their beginning. Raises DataLossError."""
        if self._target is None:
            self.stop()  # leaders and ids may have changed since the last trigger
        self._check_identity(start)
        ranges, missing = [], []
        for partition, bound in self.log.bounds().items():
            if not self._wants(partition):
                continue
            first = int(start["partitions"].get(str(partition), bound.start))
            end = bound.end if self._target is None else self._target.get(str(partition), first)
            if first < bound.start:
                missing.append(MissingOffsets(partition, first, bound.start))
            if bound.high_watermark < first:
                missing.append(MissingOffsets(partition, bound.high_watermark, first))
            ranges.append(OffsetRange(partition, first, max(first, end)))
        if missing:
            raise DataLossError(f"{self.log_options.topic} has lost what was not read yet", missing)
        return ranges

    def _check_identity(self, offset: Document) -> None:
        now = self.log.identity()
        if (offset["cluster_id"], offset["topic_id"]) != (now.cluster_id, now.topic_id):
            missing = [MissingOffsets(int(p), int(first), None) for p, first in offset["partitions"].items()]
            raise DataLossError(
                f"topic {now.topic} is another one now: {now.topic_id} in cluster {now.cluster_id}, "
                f"not {offset['topic_id']} in {offset['cluster_id']}",
                missing,
            )


def _row(offset_range: OffsetRange, bound: Bounds) -> tuple[int, ...]:
    return (
        offset_range.partition,
        offset_range.start,
        offset_range.end,
        bound.high_watermark,
        bound.leader_epoch,
    )


# --- options --------------------------------------------------------------------------------------------------------


def log_options(options: Mapping[str, str]) -> LogOptions:
    """Parse the options for the connection to the topic. Raises UsageError."""
    topic = options.get("topic")
    if not topic:
        raise UsageError("the option topic is missing")
    bootstrap = options.get("bootstrap") or options.get("kafka.bootstrap.servers") or ""
    log_dirs = tuple(
        filter(None, (directory.strip() for directory in (options.get("logDirs") or "").split(",")))
    )
    client = tuple(sorted((key[6:], value) for key, value in options.items() if key.startswith("kafka.")))
    base = LogOptions(
        topic=topic,
        transport=options.get("transport") or ("disk" if log_dirs and not bootstrap else "wire"),
        bootstrap=bootstrap,
        log_dirs=log_dirs,
        isolation=options.get("isolation") or READ_COMMITTED,
        client=client,
    )
    return replace(base, fetch_bytes_max=_integer(options, "fetchBytes", base.fetch_bytes_max))


def selection(options: Mapping[str, str]) -> Selection:
    """Parse the options that select a part of the topic."""
    return Selection(
        starting=options.get("startingOffsets") or "earliest",
        ending=options.get("endingOffsets") or "latest",
        starting_timestamp_ms=_integer(options, "startingTimestamp", None),
        ending_timestamp_ms=_integer(options, "endingTimestamp", None),
        fail_on_data_loss=(options.get("failOnDataLoss") or "true").lower() != "false",
    )


def _content(options: Mapping[str, str]) -> str:
    content = options.get("content") or RECORDS
    if content not in (RECORDS, RANGES):
        raise UsageError(f"content is {RECORDS} or {RANGES}, not {content!r}")
    return str(content)


def _on_corrupt(options: Mapping[str, str]) -> str:
    value = options.get("onCorrupt") or FAIL
    if value not in (FAIL, ROW):
        raise UsageError(f"onCorrupt is {FAIL} or {ROW}, not {value!r}")
    return str(value)


def _columns(options: Mapping[str, str]) -> tuple[str, ...]:
    text = options.get("columns")
    names = tuple(COLUMNS) if text is None else tuple(name.strip() for name in text.split(","))
    unknown = [name for name in names if name not in COLUMNS]
    if unknown or len(set(names)) != len(names):
        raise UsageError(f"columns are some of {', '.join(COLUMNS)}, each once, not {text!r}")
    return names


def _partitions(options: Mapping[str, str]) -> set[int] | None:
    text = options.get("partitions")
    try:
        return None if text is None else {int(number) for number in text.split(",")}
    except ValueError:
        raise UsageError(f"partitions are numbers separated by commas, not {text!r}") from None


def _integer(options: Mapping[str, str], name: str, default: D) -> int | D:
    text = options.get(name)
    if text is None:
        return default
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"the option {name} is a number, not {text!r}") from None
