"""Tables as Spark data frames, on any store: the files of a snapshot, in the newest schema.

The rule: a frame is read at one version; commits meanwhile do not change it.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from barnabas_pipeline.lake import scan
from barnabas_pipeline.lake.columns import DEAD_SCHEMA, PARTITION, lake_schema
from barnabas_pipeline.lake.files import read_dead
from barnabas_pipeline.lake.ledger import DataFile, State
from barnabas_pipeline.lake.scan import BATCH_ROWS, Piece, Span
from barnabas_pipeline.lake.table import Table
from barnabas_pipeline.schema import EventSchema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

FILES_PER_TASK_MAX = 16


def spark_schema(arrow_schema: pa.Schema) -> StructType:
    """Return the Spark schema of Arrow columns."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(arrow_schema)


def arrow_schema(spark: SparkSession, schema: StructType) -> pa.Schema:
    """Return the Arrow columns in which Spark's workers see a Spark schema."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone=spark.conf.get("spark.sql.session.timeZone"))


def events(
    spark: SparkSession,
    table: Table,
    *,
    version: int | None = None,
    columns: Iterable[str] | None = None,
    span_ms: tuple[int, int] | None = None,
) -> DataFrame:
    """Return the rows of a table at a version of its ledger, all or with an event time in [from, before) in ms."""
    state = table.state(version)
    if not state.version:
        raise ValueError(f"there is no table at {table.place.location}")
    span = None if span_ms is None else (str(state.schema["event_time"]), *span_ms)
    return read_pieces(spark, table, state, table.pieces(version, span), columns=columns, span=span)


def read_pieces(
    spark: SparkSession,
    table: Table,
    state: State,
    pieces: list[Piece],
    *,
    columns: Iterable[str] | None = None,
    span: Span | None = None,
) -> DataFrame:
    """Return the rows of some files, in the newest schema: columns that a file lacks are null."""
    arrow = lake_schema(EventSchema.from_dict(state.schema))
    if columns is not None:
        names = set(columns)
        arrow = pa.schema([field for field in arrow if field.name in names])
    layout = table.layout

    def read(blobs: list[bytes]) -> Iterator[pa.Table]:
        return scan.rows(layout, map(pickle.loads, blobs), arrow, span)

    return read_items(spark, [pickle.dumps(piece) for piece in pieces], spark_schema(arrow), read)


def dead_letters(spark: SparkSession, table: Table) -> DataFrame:
    """Return the dead letters of a table."""
    return read_dead_letters(spark, table, list(table.files().dead.values()))


def read_dead_letters(spark: SparkSession, table: Table, files: list[DataFile]) -> DataFrame:
    """Return the dead letters of some files."""
    layout = table.layout

    def read(paths: list[bytes]) -> Iterator[pa.Table]:
        _, io = layout.open()
        return (read_dead(io, path.decode()) for path in paths)

    return read_items(spark, [file.path.encode() for file in files], spark_schema(DEAD_SCHEMA), read)


def read_erased(spark: SparkSession, table: Table, state: State, files: list[DataFile]) -> DataFrame:
    """Return the partitions and offsets of a topic's rows that were removed on purpose."""
    layout = table.layout
    columns = pa.schema([pa.field(PARTITION, pa.int32()), pa.field("_offset", pa.int64())])

    def read(paths: list[bytes]) -> Iterator[pa.Table]:
        _, io = layout.open()
        for path in paths:
            with io.new_input(path.decode()).open() as stream:
                yield pq.ParquetFile(stream).read().rename_columns(columns.names)

    paths = [file.path.encode() for file in files if file.topic_id == state.topic_id]
    return read_items(spark, paths, spark_schema(columns), read)


def read_items(
    spark: SparkSession,
    items: list[bytes],
    schema: StructType,
    read: Callable[[list[bytes]], Iterator[pa.Table]],
) -> DataFrame:
    """Return a frame of the tables that `read` yields for some items, many in one task of Spark."""
    if not items:
        return spark.createDataFrame([], schema)

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for table in read(batch.column(0).to_pylist()):
                yield from table.to_batches(max_chunksize=BATCH_ROWS)

    context = spark.sparkContext
    slices = task_count(len(items), context.defaultParallelism)
    named = spark.createDataFrame(context.parallelize([(item,) for item in items], slices), "item binary")
    return named.mapInArrow(work, schema)


def task_count(files: int, parallel: int) -> int:
    """Return the number of tasks to read some files with: two per parallel slot, more if tasks would be too large."""
    return min(files, max(2 * parallel, -(-files // FILES_PER_TASK_MAX)))
