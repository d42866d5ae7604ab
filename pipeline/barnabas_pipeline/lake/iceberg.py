"""Iceberg tables of the lake: their catalog, their snapshots, and the parameters of workers that write their files.

The rule: only a catalog's success is trusted. After any other answer, the table is read again. Columns are those of the
event's schema and the coordinates. Files have the field ids of the table, which never change; files of a lake of an
earlier format that have none are read by name (`schema.name-mapping.default`).
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

import pyarrow as pa
from pydantic import ValidationError as PydanticError
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.conversions import from_bytes
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchTableError,
    NotInstalledError,
    TableAlreadyExistsError,
    ValidationError,
)
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.utils.config import Config

from barnabas_pipeline.errors import IncompleteError, UsageError
from barnabas_pipeline.lake import pyiceberg_internals
from barnabas_pipeline.lake.columns import COORDINATES, PARTITION, lake_schema
from barnabas_pipeline.lake.ledger import BrokenLakeError
from barnabas_pipeline.lake.pyiceberg_internals import CachingTransaction, as_second_version
from barnabas_pipeline.lake.store import IO_PROPERTIES, earlier, local_path, location_of, open_io
from barnabas_pipeline.lake.table_schema import partition_fields
from barnabas_pipeline.schema import EventSchema

if TYPE_CHECKING:
    from pyiceberg.table import Table as IcebergTable
    from pyiceberg.table.snapshots import Snapshot
    from pyiceberg.types import PrimitiveType

    from barnabas_pipeline.data_types import Value

CATALOG = "barnabas"
CATALOG_FILE = "catalog.db"
FOUND_BY = ("type", "uri", "py-catalog-impl")  # properties that define a catalog
LOCATION = "barnabas.location"
VERSION, PATH, SHA256, KIND = (f"barnabas.ledger-{name}" for name in ("version", "path", "sha256", "kind"))
MAIN = "main"
GC_ENABLED = "gc.enabled"
"""Iceberg's property of a table, false where other tables or branches of a catalog may have the same files."""
OF_NESSIE = "nessie.is-nessie-catalog"
"""Property of a catalog by which Nessie names itself."""
SNAPSHOT, SEQUENCE = "barnabas.ledger-snapshot", "barnabas.ledger-sequence"
"""Properties of the table: the id and the sequence number of the snapshot that names the newest entry."""
FORMAT_VERSION_MAX = 2  # that can be written
PROPERTIES = {
    "format-version": "2",
    "commit.manifest-merge.enabled": "true",
    "commit.manifest.min-count-to-merge": "50",
    "commit.manifest.target-size-bytes": str(1 << 20),
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}
OF_EVENTS = {"write.metadata.metrics.column._topic_id": "full"}
"""More properties of a table of events: snapshots then record the incarnation of each file.

Catalogs refuse them for a table without that column.
"""
NAME_MAPPING = "schema.name-mapping.default"


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a table: its location in a store, its name in a catalog, how it is partitioned when it is created."""

    location: str
    name: str
    catalog: str = CATALOG
    properties: tuple[tuple[str, str], ...] = ()
    partition_by: str = ""
    branch: str = MAIN

    @property
    def namespace(self) -> str:
        """The part of the name before the last dot."""
        return self.name.rpartition(".")[0]


@dataclass(frozen=True, slots=True)
class Lake:
    """The place of tables, one for each topic: a location in a store, and a catalog."""

    location: str
    catalog: str = CATALOG
    properties: tuple[tuple[str, str], ...] = ()

    def place(self, topic: str, name: str = "", partition_by: str = "") -> Place:
        """Return the place of the table of a topic, by default under the topic's name. Raises UsageError."""
        name = checked_name(name or f"barnabas.{re.sub('[^A-Za-z0-9_]', '_', topic)}")
        return Place(
            f"{location_of(self.location)}/{topic}", name, self.catalog, self.properties, partition_by
        )


def checked_name(name: str) -> str:
    """Return the name of a table. Raises UsageError if it is no NAMESPACE.NAME."""
    if len(name.split(".")) < 2 or not all(name.split(".")):
        raise UsageError(f"{name!r} is no NAMESPACE.NAME")
    return name


def lake_of(lake: Lake | str | Path) -> Lake:
    """Return the lake at a directory or URL, with default settings."""
    return lake if isinstance(lake, Lake) else Lake(str(lake))


def place_of(root: Place | str | Path) -> Place:
    """Return the place of a table at a directory or URL, under the default name. Raises UsageError."""
    if isinstance(root, Place):
        return root
    lake, _, topic = location_of(root).rpartition("/")
    return Lake(lake).place(topic)


def check_catalog(lake: Lake) -> dict[str, str]:
    """Return the properties of a lake's catalog. Raises UsageError for an unknown catalog."""
    properties = dict(lake.properties)
    if any(key in properties for key in FOUND_BY) or configured(lake.catalog):
        return properties
    location = location_of(lake.location)
    here = local_path(location)
    if here is None or lake.catalog != CATALOG:
        raise UsageError(
            f"{location} needs a catalog that has its tables: --catalog NAME of pyiceberg's configuration, or "
            "--catalog-property type=rest --catalog-property uri=... and the like"
        )
    return {
        **properties,
        "type": "sql",
        "uri": f"sqlite:///{here / CATALOG_FILE}",
        "warehouse": f"file://{here}",
    }


def store_properties(lake: Lake) -> dict[str, str]:
    """Return the properties of the store of a lake, for files beside its tables. Raises UsageError as `check_catalog`."""
    return {**configured(lake.catalog), **check_catalog(lake)}


def configured(catalog: str) -> dict[str, str]:
    """Return the properties of a catalog in pyiceberg's configuration; empty if the catalog is not configured."""
    return cast("dict[str, str]", Config().get_catalog_config(catalog) or {})


def open_catalog(place: Place) -> Catalog:
    """Return the catalog of a table. Raises UsageError for an unknown catalog."""
    lake = Lake(place.location.rpartition("/")[0], place.catalog, place.properties)
    properties = check_catalog(lake)
    here = local_path(lake.location)
    if here is not None:
        here.mkdir(parents=True, exist_ok=True)
    try:
        return loaded_catalog(place.catalog, {**IO_PROPERTIES, **properties})
    except (ValueError, NotInstalledError) as error:
        raise UsageError(f"catalog {place.catalog}: {error}") from None


def is_made(place: Place) -> bool:
    """Return whether the catalog of a table exists; that of a new local lake is a missing file."""
    here = local_path(place.location.rpartition("/")[0])
    is_own = place.catalog == CATALOG and not any(name in dict(place.properties) for name in FOUND_BY)
    is_own = is_own and not configured(CATALOG)
    return here is None or not is_own or (here / CATALOG_FILE).exists()


class Catalogs:
    """Catalogs that many tables share, so that each needs no separate connection."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], Catalog] = {}
        self._lock = threading.Lock()

    def of(self, place: Place) -> Catalog:
        """Return the catalog of a table. Raises UsageError for an unknown catalog."""
        key = (place.location.rpartition("/")[0], place.catalog, place.properties)
        with self._lock:
            if key not in self._known:
                self._known[key] = open_catalog(place)
            return self._known[key]


def loaded_catalog(name: str, properties: dict[str, str]) -> Catalog:
    """Load a catalog; try again if another process has created the tables of a new database at the same time."""
    properties = bounded(name, properties)
    try:
        return load_catalog(name, **properties)
    except Exception as error:
        if not is_foreign(error) or "already exists" not in str(error):
            raise
    return load_catalog(name, **properties)


def bounded(name: str, properties: dict[str, str]) -> dict[str, str]:
    """Return properties of a catalog with timeouts for requests to a REST catalog."""
    merged = {**configured(name), **properties}
    kind = str(merged.get("type", "")).lower()
    is_rest = kind == "rest" or (not kind and str(merged.get("uri", "")).startswith("http"))
    if not is_rest or "py-catalog-impl" in merged:
        return properties
    impl = f"{pyiceberg_internals.__name__}.{pyiceberg_internals.BoundedRestCatalog.__name__}"
    others = {key: value for key, value in merged.items() if key != "type"}
    return {**others, "py-catalog-impl": impl}


@contextmanager
def explained(what: str = "the lake") -> Iterator[None]:
    """Turn errors of an unreachable catalog or store into IncompleteError, so that the job can be repeated."""
    try:
        yield
    except Exception as error:
        if is_foreign(error) and not isinstance(error, FileNotFoundError):
            text = f"{type(error).__name__}: {error}".splitlines()[0]
            raise IncompleteError(f"{what} cannot be reached: {text}") from error
        raise


def is_foreign(error: BaseException) -> bool:
    """Return whether a catalog or a store raised an error, so that it is unknown whether a request had an effect."""
    return isinstance(error, OSError) or type(error).__module__.partition(".")[0] in (
        "pyiceberg", "sqlalchemy", "sqlite3", "requests", "urllib3", "thrift", "hive_metastore", "botocore", "google",
    )  # fmt: skip


# --- tables ---------------------------------------------------------------------------------------------------------


def create(catalog: Catalog, place: Place, schema: EventSchema) -> None:
    """Create a table for events of a schema, unless another process has. Raises UsageError."""
    create_namespace(catalog, place)
    transaction = catalog.create_table_transaction(
        place.name,
        # Catalogs number columns again, in this order: first the coordinates, the same for ever, then the event's fields.
        schema=pa.schema(COORDINATES),
        location=place.location,
        properties={**PROPERTIES, **OF_EVENTS, LOCATION: place.location},
    )
    with transaction.update_schema() as update:
        update.union_by_name(lake_schema(schema))
    with transaction.update_spec() as spec:
        for column, transform, name in partition_fields(place.partition_by, schema):
            try:
                spec.add_field(column, transform, name)
            except ValueError as error:
                raise UsageError(f"--partition-by {place.partition_by}: {error}") from None
    with suppress(TableAlreadyExistsError, CommitFailedException):
        transaction.commit_transaction()


def create_namespace(catalog: Catalog, place: Place) -> None:
    """Create the namespace of a place, unless it exists or another process creates it at the same time."""
    try:
        catalog.create_namespace_if_not_exists(place.namespace)
    except Exception as error:
        if not is_foreign(error):
            raise
        catalog.create_namespace_if_not_exists(place.namespace)


# --- files ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Layout:
    """A table in a form for workers, as plain values: its metadata without snapshots, properties of the FileIO."""

    metadata: str
    io: tuple[tuple[str, str], ...]

    def open(self) -> tuple[TableMetadata, FileIO]:
        """Return pyiceberg's objects: the table's metadata and the FileIO."""
        return _opened(self)


@lru_cache(maxsize=16)
def _opened(layout: Layout) -> tuple[TableMetadata, FileIO]:
    metadata = TableMetadataUtil.parse_raw(layout.metadata)
    return metadata, open_io(dict(layout.io), metadata.location)


def layout_of(table: IcebergTable) -> Layout:
    """Return the parameters of workers for a table."""
    nothing: dict[str, object] = {
        "snapshots": [], "snapshot_log": [], "metadata_log": [], "refs": {}, "current_snapshot_id": None,
        "statistics": [], "partition_statistics": [],
    }  # fmt: skip
    metadata = as_second_version(table.metadata.model_copy(update=nothing))
    io = {
        key: str(value) for key, value in table.io.properties.items() if isinstance(value, str | int | bool)
    }
    return Layout(metadata.model_dump_json(), tuple(sorted(io.items())))


class FileBounds(NamedTuple):
    """A file's coordinates as recorded in a snapshot: "" and -1 where they are not recorded, or differ among rows."""

    topic_id: str
    partition: int
    offset_min: int
    offset_max: int


def bounds_of(file: IcebergFile, schema: Schema) -> FileBounds:
    """Return the bounds of a data file."""

    def ends(name: str) -> tuple[Value, Value]:
        field = schema.find_field(name)
        return tuple(
            None if raw is None else from_bytes(cast("PrimitiveType", field.field_type), raw)
            for raw in (
                (bounds or {}).get(field.field_id) for bounds in (file.lower_bounds, file.upper_bounds)
            )
        )  # type: ignore[return-value]

    topic_id, partition, offsets = ends("_topic_id"), ends(PARTITION), ends("_offset")
    return FileBounds(
        topic_id[0] if topic_id[0] is not None and topic_id[0] == topic_id[1] else "",
        partition[0] if partition[0] is not None and partition[0] == partition[1] else -1,
        *(-1 if offset is None else offset for offset in offsets),
    )


class Lineage(Enum):
    """Relation of the current snapshot to an entry of the ledger."""

    SURE = "its snapshot is an ancestor"
    BEHIND = "its snapshot is none: the table was rolled back"
    UNKNOWN = "the snapshots between have expired"


class Head(NamedTuple):
    """Version, path and digest of an entry of the ledger: of the nearest ancestor that names an entry, else the newest."""

    version: int = 0
    path: str = ""
    digest: str = ""
    lineage: Lineage = Lineage.SURE
    is_own: bool = True  # the current snapshot itself names the entry


def ledger_of(table: IcebergTable) -> Head:
    """Return the entry that counts for the current snapshot: its own, or that of its nearest ancestor with an entry.

    If no unexpired ancestor names an entry, it is the newest entry, and its lineage decides whether that counts. Sequence
    numbers rise with each commit of a table, on whatever branch.
    """
    newest = snapshot = oldest = table.current_snapshot()
    while snapshot is not None:
        properties = summary_of(snapshot)
        if VERSION in properties:
            head = Head(int(properties[VERSION]), properties[PATH], properties[SHA256])
            return head._replace(is_own=snapshot is newest)
        oldest, parent = snapshot, snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot_by_id(parent)
    properties = table.properties
    lineage = Lineage.UNKNOWN
    if oldest is None or str(oldest.parent_snapshot_id) == properties.get(SNAPSHOT):
        lineage = Lineage.SURE
    elif (oldest.sequence_number or 0) < int(properties.get(SEQUENCE, 0)):
        lineage = Lineage.BEHIND
    version = int(properties.get(VERSION, 0))
    return Head(version, properties.get(PATH, ""), properties.get(SHA256, ""), lineage, oldest is None)


def relocate(table: IcebergTable, location: str) -> None:
    """Set another location for new files of a table. Existing files stay where they are until they are rewritten."""
    transaction = CachingTransaction(table)
    transaction.set_location(location)
    transaction.set_properties({LOCATION: location})
    transaction.commit_transaction()
    table.refresh()


def is_elsewhere(table: IcebergTable) -> bool:
    """Return whether the current snapshot of a table was written before the table was relocated."""
    snapshot = table.current_snapshot()
    before = earlier(table.location())
    if snapshot is None or before == table.location():
        return False
    return snapshot.manifest_list.startswith(f"{before}/")


def is_writable(table: IcebergTable) -> bool:
    """Return whether the format of a table can be written here; another engine may have upgraded it."""
    return table.metadata.format_version <= FORMAT_VERSION_MAX


def check_writable(table: IcebergTable) -> None:
    """Raise UsageError for a table that another engine has given a format that cannot be written here."""
    version = table.metadata.format_version
    if not is_writable(table):
        raise UsageError(
            f"table {'.'.join(table.name())} has format version {version}, which can be read here, not written: "
            f"an upgrade by another engine cannot be undone; load into a new table with --table"
        )


def check_collected(table: IcebergTable) -> None:
    """Raise UsageError for a table that forbids to expire snapshots and to remove files, as Nessie does for all."""
    if table.properties.get(GC_ENABLED, "true").lower() == "false":
        raise UsageError(
            f"table {'.'.join(table.name())} has {GC_ENABLED}=false: its snapshots and files may be needed by others, so "
            f"none is removed; leave out --keep-snapshots and --vacuum-hours"
        )


def check_refs(table: IcebergTable, ref: str) -> None:
    """Raise UsageError for a branch or tag of a table in Nessie, where each commit becomes main, whatever it asks for."""
    if str(table.catalog.properties.get(OF_NESSIE)).lower() == "true":
        raise UsageError(
            f"table {'.'.join(table.name())} is in Nessie, which keeps neither branches nor tags of a table, so there is "
            f"no {ref}: load without --branch and --tag, or into a branch of Nessie's (uri=.../iceberg/BRANCH)"
        )


def summary_of(snapshot: Snapshot) -> dict[str, str]:
    """Return a snapshot's own properties, without those of Iceberg."""
    return dict(snapshot.summary.additional_properties) if snapshot.summary else {}


def load_or_none(catalog: Catalog, place: Place) -> IcebergTable | None:
    """Return the table of a place, None if it does not exist. Raises UsageError if the name is another table's.

    Raises UsageError for metadata that pyiceberg cannot read, such as a column of a newer format version, and
    BrokenLakeError if the metadata file is missing.
    """
    try:
        table = catalog.load_table(place.name)
    except NoSuchTableError:
        return None
    except FileNotFoundError as error:
        raise BrokenLakeError(f"metadata of table {place.name} is missing: {error}") from None
    except (ValidationError, PydanticError) as error:
        cause = next((each for each in (error, *error.args) if isinstance(each, PydanticError)), None)
        text = str(error) if cause is None else str(cause.errors()[0]["msg"])
        raise UsageError(
            f"table {place.name} is of a kind that pyiceberg cannot read: {text}; load into a new table with --table"
        ) from None
    if table.properties.get(LOCATION) not in (place.location, earlier(place.location)):
        where = table.properties.get(LOCATION, "nothing of ours")
        raise UsageError(
            f"table {place.name} of catalog {place.catalog} is {where}, not {place.location}: give --table"
        )
    look_at(table, place.branch)
    return table


def look_at(table: IcebergTable, branch: str) -> None:
    """Set the current snapshot of a table, in memory, to that of a branch; a missing branch begins at main.

    Raises UsageError for the name of a tag.
    """
    ref = table.metadata.refs.get(branch)
    if branch == MAIN or ref is None:
        return
    if ref.snapshot_ref_type != SnapshotRefType.BRANCH:
        raise UsageError(f"{branch} is a tag of table {'.'.join(table.name())}, not a branch")
    table.metadata = table.metadata.model_copy(update={"current_snapshot_id": ref.snapshot_id})
