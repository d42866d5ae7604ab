"""Removal of unused files, on request.

The rule: a file is removed only if no kept snapshot names it, and it is older than a given age. All entries of the
ledger are kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from barnabas_pipeline.errors import UsageError
from barnabas_pipeline.lake import store
from barnabas_pipeline.lake.commits import branches_of
from barnabas_pipeline.lake.dead import DeadLetters
from barnabas_pipeline.lake.iceberg import MAIN, Place, check_collected, explained
from barnabas_pipeline.lake.table import Table

if TYPE_CHECKING:
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table import Table as IcebergTable

DIRECTORIES = (
    "data",
    "metadata",
    store.ERASED,
    store.DEAD,
    store.DEAD[1:],
)  # the last: dead letters of an earlier release


def vacuum(root: Place | str, *, age_seconds: float, clock: Callable[[], float] = time.time) -> int:
    """Expire snapshots of at least this age, but for heads and tags, and remove unnamed files; returns their number."""
    table = Table(root)
    if table.place.branch != MAIN:
        raise UsageError("files are removed of a table as a whole: not with --branch")
    if table.iceberg is not None:
        check_collected(table.iceberg)
    dead = DeadLetters(table)
    dead.publish()
    before = datetime.fromtimestamp(clock() - age_seconds, UTC)
    for iceberg in (table.iceberg, dead.iceberg()):
        if iceberg is not None and any(
            each.timestamp_ms < before.timestamp() * 1000 for each in iceberg.snapshots()
        ):
            with explained():
                iceberg.maintenance.expire_snapshots().older_than(before).commit()
    orphans = find_orphans(Table(root), age_seconds, clock)
    with explained():
        for location in orphans:
            with suppress(FileNotFoundError):  # removed by another run
                table.io.delete(location)
    return len(orphans)


def find_orphans(table: Table, age_seconds: float, clock: Callable[[], float] = time.time) -> list[str]:
    """Return locations of objects at least `age_seconds` old that neither a snapshot nor the ledger's dead letters name."""
    seen = table.iceberg
    if seen is None:
        return []
    before = clock() - age_seconds
    location = seen.location()
    with explained():
        listed = [file for name in DIRECTORIES for file in store.listing(table.io, f"{location}/{name}")]
        table.refresh()  # after the listing, so that files committed meanwhile do not count as unused
        if table.iceberg is None:
            return []  # the table may have been renamed
        files = table.files()
        named_paths = {*files.dead, *files.erased}
        for branch in branches_of(table.iceberg):
            mine = Table(replace(table.place, branch=branch), catalogs=table.catalogs).files()
            named_paths |= {*mine.dead, *mine.erased}
        for iceberg in (table.iceberg, DeadLetters(table).iceberg()):
            if iceberg is not None:
                named_paths |= named(iceberg)
    named_paths = {*map(store.comparable, named_paths)}
    old = (file.location for file in listed if file.modified <= before)
    return sorted(location for location in old if store.comparable(location) not in named_paths)


def named(iceberg: IcebergTable) -> set[str]:
    """Return the locations that an Iceberg table names: metadata, manifests, files of all its snapshots."""
    paths = {iceberg.metadata_location, *(entry.metadata_file for entry in iceberg.metadata.metadata_log)}
    paths |= {statistics.statistics_path for statistics in iceberg.metadata.statistics}
    manifests: dict[str, ManifestFile] = {}
    for snapshot in iceberg.snapshots():
        paths.add(snapshot.manifest_list)
        manifests |= {manifest.manifest_path: manifest for manifest in snapshot.manifests(iceberg.io)}
    for path, manifest in manifests.items():
        paths.add(path)
        paths |= {entry.data_file.file_path for entry in manifest.fetch_manifest_entry(iceberg.io)}
    return paths
