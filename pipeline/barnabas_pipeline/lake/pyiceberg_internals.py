"""Names of pyiceberg that are not part of its documented API, in one module.

The rule: no other module names them. They are checked for RELEASE; a test fails when requirements/spark.txt has another
release, so that each name is reviewed first.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.io.pyarrow import (
    PyArrowFile,
    PyArrowFileIO,
    _determine_partitions,
    _pyarrow_to_schema_without_ids,
    _read_all_delete_files,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Transaction
from pyiceberg.table.metadata import TableMetadata, TableMetadataV2, TableMetadataV3
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AssertCurrentSchemaId,
    SetCurrentSchemaUpdate,
    SetLocationUpdate,
    _apply_table_update,
    _TableMetadataUpdateContext,
)
from pyiceberg.table.update.snapshot import _OverwriteFiles, _SnapshotProducer

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import fs
    from pyarrow import parquet as pq
    from pyiceberg.io import FileIO
    from pyiceberg.io.pyarrow import DataFileStatistics
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.partitioning import PartitionKey, PartitionSpec
    from pyiceberg.table import Table as IcebergTable

RELEASE = "0.12"
TIMEOUTS = {"rest.client.connection-timeout-ms": 10_000, "rest.client.socket-timeout-ms": 60_000}
"""Timeouts (ms) of requests to a REST catalog, by the properties that Iceberg's Java client has for them."""
SnapshotProducer = _SnapshotProducer


class BoundedRestCatalog(RestCatalog):
    """A REST catalog with timeouts for requests, so that a server that does not answer cannot block a job for ever."""

    def _create_session(self) -> Any:
        session: Any = super()._create_session()
        connect_s, read_s = (int(self.properties.get(name, ms)) / 1_000 for name, ms in TIMEOUTS.items())
        send = partial(session.request, timeout=(connect_s, read_s))

        def request(method: str, url: str, *, data: bytes | None = None, **more: Any) -> Any:
            return send(method, url, data=with_last_column_ids(data), **more)

        session.request = request
        return session


def with_last_column_ids(body: bytes | None) -> bytes | None:
    """Return the body of a commit with the largest column id of each new schema added.

    Iceberg's REST API deprecates that field, and pyiceberg does not send it; Nessie 0.99 refuses a schema without it.
    """
    if not isinstance(body, bytes) or b'"add-schema"' not in body:
        return body
    commit = json.loads(body)
    for update in commit["updates"]:
        if update["action"] == "add-schema":
            schema = Schema.model_validate(update["schema"])
            update.setdefault("last-column-id", schema.highest_field_id)
    return json.dumps(commit).encode()


def renumber(table: IcebergTable, columns: Schema) -> None:
    """Set the column ids of a table without rows to those of a schema. Raises CommitFailedException."""
    last = max(schema.schema_id for schema in table.metadata.schemas)
    schema = Schema(*columns.fields, schema_id=last + 1)
    required = AssertCurrentSchemaId.model_validate({"current-schema-id": table.schema().schema_id})
    with table.transaction() as transaction:
        transaction._apply((AddSchemaUpdate(schema=schema), SetCurrentSchemaUpdate()), (required,))


def schema_without_ids(columns: pa.Schema) -> Schema:
    """Return Arrow columns as an Iceberg schema; its field ids have no meaning."""
    return _pyarrow_to_schema_without_ids(columns)


def by_partition(
    spec: PartitionSpec, schema: Schema, rows: pa.Table
) -> Iterator[tuple[PartitionKey, pa.Table]]:
    """Yield the partitions that rows belong to, each with its rows."""
    for part in _determine_partitions(spec, schema, rows):
        yield part.partition_key, part.arrow_table_partition


def file_statistics(
    schema: Schema, properties: dict[str, str], footer: pq.FileMetaData
) -> DataFileStatistics:
    """Return the statistics of a file's columns in the form kept in a snapshot, from the footer of the file."""
    return data_file_statistics_from_parquet_metadata(
        footer, compute_statistics_plan(schema, properties), parquet_path_to_id_mapping(schema)
    )


def positional_deletes(io: FileIO, tasks: Iterable[FileScanTask]) -> dict[str, list[pa.ChunkedArray]]:
    """Return the positions of deleted rows, by the path of their data file."""
    return _read_all_delete_files(io, tasks)


class CachingTransaction(Transaction):
    """A transaction that applies each update once. pyiceberg's copies all metadata at each access: 19 times per commit."""

    _current: TableMetadata | None = None
    _applied = 0

    @property
    def table_metadata(self) -> TableMetadata:
        """The metadata with the updates so far."""
        if self._current is None:
            self._current, self._context = self._table.metadata, _TableMetadataUpdateContext()
        for update in self._updates[self._applied :]:
            self._current = _apply_table_update(update, self._current, self._context)
        self._applied = len(self._updates)
        return self._current

    def set_location(self, location: str) -> None:
        """Set another location for new files."""
        self._apply((SetLocationUpdate(location=location),), ())

    def commit_once(self) -> None:
        """Drop the snapshot producers: pyiceberg then neither repeats a snapshot on another head nor removes its files."""
        self._snapshot_producers.clear()


class _ReplacingFiles(_OverwriteFiles):
    """An overwrite with a snapshot of operation `replace` (same rows), for which pyiceberg does not count totals."""

    is_alone = False

    def _summary(self, snapshot_properties: dict[str, str] = {}) -> Summary:  # noqa: B006 - as pyiceberg has it
        return super()._summary(snapshot_properties).model_copy(update={"operation": Operation.REPLACE})

    def _existing_manifests(self) -> list[ManifestFile]:
        return [] if self.is_alone else super()._existing_manifests()


def replacing(
    transaction: Transaction,
    io: FileIO,
    snapshot_properties: dict[str, str],
    *,
    branch: str,
    is_alone: bool = False,
) -> _ReplacingFiles:
    """Begin a snapshot that replaces some files, or with `is_alone` all, by other files with the same rows."""
    producer = _ReplacingFiles(
        Operation.OVERWRITE, transaction, io, snapshot_properties=snapshot_properties, branch=branch
    )
    producer.is_alone = is_alone
    return producer


def as_second_version(metadata: TableMetadata) -> TableMetadata:
    """Return metadata that can be written as text: metadata of version 3 is converted to version 2, for reading."""
    if not isinstance(metadata, TableMetadataV3):
        return metadata
    values = {
        name: getattr(metadata, name) for name in TableMetadataV2.model_fields if name != "format_version"
    }
    return TableMetadataV2.model_construct(**values, format_version=2)


class StoredFile(PyArrowFile):
    """A file with its file system and its path there."""

    @property
    def file_system(self) -> fs.FileSystem:
        """Arrow's file system of the file."""
        return self._filesystem

    @property
    def path(self) -> str:
        """The path in that file system."""
        return self._path


class HdfsFileIO(PyArrowFileIO):
    """A FileIO with a method to open HDFS, which a subclass may override."""

    def open_hdfs(self, scheme: str, netloc: str | None) -> fs.FileSystem:
        """Open HDFS by libhdfs. Raises OSError if that cannot be loaded."""
        return super()._initialize_hdfs_fs(scheme, netloc)

    def _initialize_hdfs_fs(self, scheme: str, netloc: str | None) -> Any:
        return self.open_hdfs(scheme, netloc)
