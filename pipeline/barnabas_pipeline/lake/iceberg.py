"""The lake as an Apache Iceberg table, for engines that know nothing of our manifests.

The rule: the manifests are the truth, and Iceberg follows them. Each snapshot says in its summary which manifest it ends
with; whoever publishes looks there what is missing, and adds exactly that, in one snapshot on top of the one it has seen.

    barnabas.manifest-first, .manifest-last      the manifests that are new in a snapshot: one, or more after a crash
    barnabas.manifest-sha256                     the digest of the last of them
    barnabas.kinds, .cluster-id, .topic          what they were, and of which topic
    barnabas.offsets                             JSON: the offsets that they cover, topic id -> partition -> [start, end)

No row is copied: a snapshot names the lake's own Parquet files, whose field ids are those of the Iceberg table; in files of
earlier releases, which have none, columns are found by name (`schema.name-mapping.default`). The columns are called as in
the lake, but for `_partition`, which is a name that Iceberg has taken: `_topic_partition`. The partition of a file, in
Iceberg's sense, is its event hour: `truncate[3600000]` of the event time.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from barnabas_pipeline import faults
from barnabas_pipeline.errors import IncompleteError, UsageError
from barnabas_pipeline.lake.changes import Changes
from barnabas_pipeline.lake.files import COORDINATES, HOUR_MS, lake_schema, numbered
from barnabas_pipeline.lake.manifest import BrokenLakeError
from barnabas_pipeline.lake.table import Table, put_if_absent
from barnabas_pipeline.requirements import install_command
from barnabas_pipeline.schema import EventSchema

ICEBERG, METADATA = "_iceberg", "metadata"  # below the table's root
MARKER = "table.json"
CATALOG = "barnabas"
CONFLICTS_MAX = 5
PROPERTIES = {
    "format-version": "2",
    "commit.retry.num-retries": "0",  # a commit that was overtaken must look again what is missing
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}
RENAMED = {"_partition": "_topic_partition"}
LAKE, LAST, SHA256 = "barnabas.lake", "barnabas.manifest-last", "barnabas.manifest-sha256"


@dataclass(frozen=True, slots=True)
class IcebergOptions:
    """Name of an Iceberg table (`namespace.table`), and of the catalog in pyiceberg that has it.

    Without properties, and if pyiceberg's own configuration knows no such catalog, it is a SQLite file beside the tables.
    """

    name: str
    catalog: str = CATALOG
    properties: tuple[tuple[str, str], ...] = ()


def publisher(table: Table, options: IcebergOptions | None) -> Callable[[], object]:
    """Return the function that a job calls when it begins and when it has committed; without options it does nothing."""
    return (lambda: None) if options is None else Publisher(table, options).publish


def is_published(root: str | Path) -> bool:
    """Say whether some Iceberg table names files of the table at `root`."""
    return (Path(root) / ICEBERG / MARKER).exists()


class Publisher:
    """One table of the lake and its Iceberg table."""

    def __init__(self, table: Table, options: IcebergOptions) -> None:
        if any(character in str(table.root) for character in "#?%"):
            raise UsageError(f"Iceberg cannot name files below {table.root}: no #, ?, % in a path")
        if len(options.name.split(".")) < 2 or not all(options.name.split(".")):
            raise UsageError(f"{options.name!r} is no NAMESPACE.TABLE")
        self.table = table
        self.options = options
        self._iceberg: Any = None

    # --- publishing -------------------------------------------------------------------------------------------------

    def publish(self) -> bool:
        """Commit what the manifests have and Iceberg lacks, in one snapshot; False: nothing. Raises IncompleteError."""
        with _explained():
            from pyiceberg.exceptions import CommitFailedException

            for _ in range(CONFLICTS_MAX):
                try:
                    return self._publish()
                except CommitFailedException:  # another publisher was faster, perhaps with the same manifests
                    self._iceberg = None
                except FileNotFoundError:  # compacted and vacuumed meanwhile: the next manifests say so
                    pass
        raise IncompleteError(f"Iceberg table {self.options.name}: others were faster, or files are missing")

    def _publish(self) -> bool:
        if self._iceberg is None and not self._open():
            return False
        version, digest = self.published()
        changes = Changes(version)
        for manifest, data in self.table.manifests(version):
            if manifest.version == version + 1 and manifest.previous != digest:
                raise self._foreign(f"its manifest {version} is another one")
            changes.take(manifest, data)
        if changes.last == version:
            state = self.table.state()
            if (state.version, state.digest) != (version, digest):
                raise self._foreign(f"it has manifest {version}, the lake has {state.version}")
            return False
        self._commit(changes)
        return True

    def _commit(self, changes: Changes) -> None:
        from pyiceberg.io.pyarrow import parquet_file_to_data_file

        iceberg = self._iceberg
        transaction = iceberg.transaction()
        schema = lake_schema(EventSchema.from_dict(changes.schema))
        columns = _columns(numbered(schema))
        if not set(columns.names) <= set(iceberg.schema().column_names):
            with transaction.update_schema() as update:
                update.union_by_name(_columns(schema))
        self._check_ids(transaction.table_metadata.schema(), columns)
        old = self._entries({self._uri(path) for path in changes.remove})
        if len(old) != len(changes.remove):
            raise self._foreign("files of the lake are no longer in it")
        written = _as_written(transaction.table_metadata)
        new = [parquet_file_to_data_file(iceberg.io, written, self._uri(path)) for path in changes.add]
        update = transaction.update_snapshot(snapshot_properties=changes.summary())
        producer = update.overwrite() if old else update.merge_append()
        for file in new:
            producer.append_data_file(file)
        for file in old:
            producer.delete_data_file(file)
        producer.commit()
        transaction.set_properties({LAST: str(changes.last), SHA256: changes.digest})
        iceberg.metadata.properties["commit.retry.num-retries"] = "0"  # whatever somebody has set since
        faults.point("iceberg.before_commit")
        transaction.commit_transaction()
        faults.point("iceberg.after_commit")

    def _check_ids(self, schema: Any, columns: Any) -> None:
        """Readers go by the field ids of the files: they must be the table's."""
        for column in columns:
            if schema.find_field(column.name).field_id != int(column.metadata[b"PARQUET:field_id"]):
                raise self._foreign(f"column {column.name} has another field id")

    def published(self) -> tuple[int, str]:
        """The last manifest that is in the current snapshot or one before it, and its digest; 0: none."""
        snapshot = self._iceberg.current_snapshot()
        while snapshot is not None:
            said = snapshot.summary.additional_properties if snapshot.summary else {}
            if LAST in said:
                return int(said[LAST]), said[SHA256]
            parent = snapshot.parent_snapshot_id  # somebody else's snapshot: what was ours lies before it
            snapshot = None if parent is None else self._iceberg.snapshot_by_id(parent)
        properties = self._iceberg.properties  # ours may have been expired
        return int(properties.get(LAST, 0)), properties.get(SHA256, "")

    # --- the catalog ------------------------------------------------------------------------------------------------

    def _open(self) -> bool:
        """Load the Iceberg table, or create it; False if the lake has nothing to be published yet."""
        from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError

        state = self.table.state()
        if not state.version:
            return False
        self._check_marker()
        catalog, name = self._catalog(), self.options.name
        try:
            iceberg = catalog.load_table(name)
        except NoSuchTableError:
            try:
                with suppress(
                    TableAlreadyExistsError, CommitFailedException
                ):  # another publisher has created it
                    self._create(catalog, EventSchema.from_dict(state.schema))
            except ValueError as error:  # this catalog has no namespaces in namespaces, or the like
                raise UsageError(f"Iceberg table {name}: {error}") from None
            iceberg = catalog.load_table(name)
        if iceberg.properties.get(LAKE) != str(self.table.root):
            raise UsageError(f"Iceberg table {name} is not of {self.table.root}: choose another name")
        marker = self.table.root / ICEBERG / MARKER
        marker.parent.mkdir(parents=True, exist_ok=True)
        if not marker.exists():
            put_if_absent(marker, (json.dumps(self._said()) + "\n").encode())
        self._check_marker()
        self._iceberg = iceberg
        return True

    def _create(self, catalog: Any, schema: EventSchema) -> None:
        from pyiceberg.transforms import TruncateTransform

        catalog.create_namespace_if_not_exists(self.options.name.rpartition(".")[0])
        transaction = catalog.create_table_transaction(
            self.options.name,
            # Catalogs number columns again, in this order: see `files.numbered`.
            schema=_columns(pa.schema(COORDINATES)),
            location=self._uri(ICEBERG),
            properties={**PROPERTIES, LAKE: str(self.table.root)},
        )
        with transaction.update_schema() as update:
            update.union_by_name(_columns(lake_schema(schema)))
        with transaction.update_spec() as update:
            update.add_field(schema.event_time, TruncateTransform(HOUR_MS), "event_hour")
        mapping = _as_written(transaction.table_metadata).schema().name_mapping.model_dump_json()
        transaction.set_properties({"schema.name-mapping.default": mapping})
        transaction.commit_transaction()

    def _catalog(self) -> Any:
        from pyiceberg.catalog import load_catalog
        from pyiceberg.exceptions import NotInstalledError
        from pyiceberg.utils.config import Config

        properties = dict(self.options.properties)
        if not properties and not Config().get_catalog_config(self.options.catalog):
            lake = self.table.root.parent
            properties = {"type": "sql", "uri": f"sqlite:///{lake}/iceberg.db", "warehouse": f"file://{lake}"}
        try:
            return load_catalog(self.options.catalog, **properties)
        except (ValueError, NotInstalledError) as error:
            raise UsageError(f"Iceberg catalog {self.options.catalog}: {error}") from None

    def _said(self) -> dict[str, str]:
        return {"catalog": self.options.catalog, "name": self.options.name}

    def _check_marker(self) -> None:
        """One Iceberg table of a table is enough: a second one's files would be kept by no `vacuum`. Raises UsageError."""
        path = self.table.root / ICEBERG / MARKER
        known = json.loads(path.read_text()) if path.exists() else self._said()
        if known != self._said():
            raise UsageError(
                f"{self.table.root} is Iceberg table {known['name']} of catalog {known['catalog']} already"
            )

    def _foreign(self, what: str) -> BrokenLakeError:
        return BrokenLakeError(
            f"Iceberg table {self.options.name} was changed by others, or the lake was: {what}; "
            "drop it in the catalog, and it is published again"
        )

    def _uri(self, relative: str) -> str:
        return f"file://{self.table.path(relative)}"

    # --- what it names ----------------------------------------------------------------------------------------------

    def _entries(self, wanted: set[str]) -> list[Any]:
        """The data files of the current snapshot that have these paths."""
        if not wanted:
            return []
        manifests = self._iceberg.current_snapshot().manifests(self._iceberg.io)
        entries = (entry for one in manifests for entry in one.fetch_manifest_entry(self._iceberg.io))
        return [entry.data_file for entry in entries if entry.data_file.file_path in wanted]

    def differences(self) -> list[str]:
        """In what the files of the current snapshot are not those of its last manifest; empty: in nothing."""
        with _explained():
            self._iceberg = None
            if not self._open():
                return []
            version, _ = self.published()
            wanted = {
                self._uri(file.path): file.rows for file in self.table.state(version).files.values()
            } if version else {}  # fmt: skip
            tasks = list(self._iceberg.scan().plan_files())
        found = {task.file.file_path: task.file.record_count for task in tasks}
        name = f"Iceberg table {self.options.name}"
        problems = [f"{name} lacks {path}: {rows} rows" for path, rows in wanted.items() if path not in found]
        problems += [f"{name} has {path}, which does not count" for path in found if path not in wanted]
        problems += [
            f"{name} says {found[path]} rows of {path}, which has {rows}"
            for path, rows in wanted.items()
            if found.get(path, rows) != rows
        ]
        problems += [f"{name} hides rows of {task.file.file_path}" for task in tasks if task.delete_files]
        if len(found) != len(tasks):
            problems.append(f"{name} has {len(tasks) - len(found)} files twice")
        return problems

    def expire(self, before_ms: int) -> tuple[set[str], list[Path]]:
        """Expire the snapshots before a time, but for heads and tags.

        Returns the lake's files that are still named (relative to the table), and files of Iceberg's that no longer are.
        """
        from datetime import UTC, datetime

        with _explained():
            self._iceberg = None
            if not self._open():
                return set(), []
            if any(one.timestamp_ms < before_ms for one in self._iceberg.snapshots()):
                before = datetime.fromtimestamp(before_ms / 1000, UTC)
                self._iceberg.maintenance.expire_snapshots().older_than(before).commit()
                self._iceberg.refresh()
            iceberg, io = self._iceberg, self._iceberg.io
            metadata = {
                iceberg.metadata_location,
                *(one.metadata_file for one in iceberg.metadata.metadata_log),
            }
            manifests: dict[str, Any] = {}
            for snapshot in iceberg.snapshots():
                metadata.add(snapshot.manifest_list)
                manifests |= {one.manifest_path: one for one in snapshot.manifests(io)}
            metadata |= manifests.keys()
            named = {
                entry.data_file.file_path
                for one in manifests.values()
                for entry in one.fetch_manifest_entry(io)
            }
        root = self._uri("")
        mine = sorted((self.table.root / ICEBERG / METADATA).glob("*"))
        unused = [path for path in mine if f"file://{path}" not in metadata]
        unused = [path for path in unused if path.stat().st_mtime * 1000 < before_ms]
        return {path.removeprefix(root).lstrip(os.sep) for path in named if path.startswith(root)}, unused


def _columns(schema: Any) -> Any:
    """Columns of the lake by the names that they have in Iceberg."""
    return pa.schema([field.with_name(RENAMED.get(field.name, field.name)) for field in schema])


def _as_written(metadata: Any) -> Any:
    """A table's metadata with the columns named as in the lake's files, by which pyiceberg finds their statistics."""
    from pyiceberg.schema import Schema

    names = {new: old for old, new in RENAMED.items()}
    schema = metadata.schema()
    fields = [one.model_copy(update={"name": names.get(one.name, one.name)}) for one in schema.fields]
    return metadata.model_copy(update={"schemas": [Schema(*fields, schema_id=schema.schema_id)]})


@contextmanager
def _explained() -> Iterator[None]:
    """Turn errors of a catalog out of reach into IncompleteError: try again. Raises UsageError without the packages."""
    try:
        yield
    except ImportError as error:
        raise UsageError(
            f"Iceberg needs the extra `iceberg` ({install_command('iceberg')}): {error}"
        ) from None
    except Exception as error:
        if type(error).__module__.partition(".")[0] in ("pyiceberg", "sqlalchemy", "requests", "urllib3"):
            raise IncompleteError(f"Iceberg: {type(error).__name__}: {error}".splitlines()[0]) from error
        raise
