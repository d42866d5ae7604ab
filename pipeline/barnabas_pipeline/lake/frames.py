"""Tables as Spark data frames: only what the manifests name, in the newest schema.

The rule: a frame is read at one version; whoever commits meanwhile does not change it.
"""

from __future__ import annotations

from typing import Any

from barnabas_pipeline.lake.files import DEAD_SCHEMA, lake_schema
from barnabas_pipeline.lake.manifest import DataFile, TableState
from barnabas_pipeline.lake.table import Table
from barnabas_pipeline.schema import EventSchema


def spark_schema(arrow_schema: Any) -> Any:
    """The same columns for Spark."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(arrow_schema)


def events(spark: Any, table: Table, *, version: int | None = None, hours: list[str] | None = None) -> Any:
    """The rows of a table at a version, all or those of some event hours."""
    state = table.state(version)
    files = [file for file in state.files.values() if hours is None or file.hour in hours]
    return read_files(spark, table, state, files)


def read_files(spark: Any, table: Table, state: TableState, files: list[DataFile]) -> Any:
    """The rows of some files, in the newest schema: columns that a file lacks are null."""
    schema = spark_schema(lake_schema(EventSchema.from_dict(state.schema)))
    return _read(spark, table, schema, [file.path for file in files])


def dead_letters(spark: Any, table: Table, *, version: int | None = None) -> Any:
    """The dead letters of a table."""
    return read_dead_letters(spark, table, list(table.state(version).dead.values()))


def read_dead_letters(spark: Any, table: Table, files: list[DataFile]) -> Any:
    """The dead letters of some files."""
    return _read(spark, table, spark_schema(DEAD_SCHEMA), [file.path for file in files])


def _read(spark: Any, table: Table, schema: Any, paths: list[str]) -> Any:
    if not paths:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).parquet(*(table.path(path) for path in sorted(paths)))
