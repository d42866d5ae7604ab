"""Commits to an Iceberg table: snapshots of files, on the main branch or on another one, and tags.

The rule: only readers that name a branch see its rows. A branch begins at the newest snapshot of main, and each of its
snapshots names that one; a branch is published only if main has not moved since.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    RemoveSnapshotRefUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
)
from pyiceberg.table.update.snapshot import ExpireSnapshots, ManageSnapshots
from pyiceberg.typedef import Record

from barnabas_pipeline.errors import UsageError
from barnabas_pipeline.lake.iceberg import (
    KIND,
    MAIN,
    PATH,
    SEQUENCE,
    SHA256,
    SNAPSHOT,
    VERSION,
    check_refs,
    explained,
    is_elsewhere,
    summary_of,
)
from barnabas_pipeline.lake.ledger import SAME_ROWS, DataFile
from barnabas_pipeline.lake.pyiceberg_internals import CachingTransaction, SnapshotProducer, replacing

if TYPE_CHECKING:
    from pyiceberg.table import Table as IcebergTable
    from pyiceberg.table import Transaction
    from pyiceberg.table.snapshots import Snapshot
    from pyiceberg.table.update import TableRequirement, TableUpdate

BASE = "barnabas.branch-base"
"""In the summaries of a branch's snapshots: the snapshot of main that the branch was created from; 0: none."""


def iceberg_file(file: DataFile) -> IcebergFile:
    """Return a file as a snapshot names it."""
    more = dict(file.iceberg)
    return IcebergFile.from_args(
        content=DataFileContent.DATA,
        file_path=file.path,
        file_format=FileFormat.PARQUET,
        file_size_in_bytes=file.size,
        partition=Record(*more.pop("partition")),
        sort_order_id=None,
        equality_ids=None,
        key_metadata=None,
        **{"record_count": file.rows, **more},
    )


def named_files(table: IcebergTable, paths: Iterable[str]) -> list[IcebergFile]:
    """Return the data files of the current snapshot that have these paths."""
    chosen = set(paths)
    snapshot = table.current_snapshot()
    if not chosen or snapshot is None:
        return []
    manifests = snapshot.manifests(table.io)
    entries = (entry for manifest in manifests for entry in manifest.fetch_manifest_entry(table.io))
    return [entry.data_file for entry in entries if entry.data_file.file_path in chosen]


def changing(
    table: IcebergTable,
    named: dict[str, str],
    add: Iterable[DataFile],
    old: list[IcebergFile],
    *,
    branch: str = MAIN,
    tag: str = "",
) -> CachingTransaction:
    """Begin the transaction of one snapshot that adds and removes files, with `named` in its summary.

    In a relocated table `add` are all valid files, and older snapshots are removed. Properties of the table are those of
    its main branch.
    """
    if tag or branch != MAIN:
        check_refs(table, tag or branch)
    transaction = CachingTransaction(table)
    if branch != MAIN:
        named = named | base_of(table, branch)
        _begin(transaction, branch)
    update = transaction.update_snapshot(snapshot_properties=named, branch=branch)
    is_alone = branch == MAIN and is_elsewhere(table)
    producer: SnapshotProducer[Any]
    if is_alone or (named.get(KIND) in SAME_ROWS and old):
        producer = replacing(transaction, table.io, named, branch=branch, is_alone=is_alone)
    else:
        producer = update.overwrite() if old else update.merge_append()
    sequence_number = transaction.table_metadata.next_sequence_number()
    for file in add:
        producer.append_data_file(iceberg_file(file))
    for old_file in old:
        producer.delete_data_file(old_file)
    producer.commit()
    if branch == MAIN:
        newest = {SNAPSHOT: str(producer.snapshot_id), SEQUENCE: str(sequence_number)}
        transaction.set_properties({**{key: named[key] for key in (VERSION, PATH, SHA256)}, **newest})
    if tag:
        ManageSnapshots(transaction).create_tag(producer.snapshot_id, tag).commit()
    transaction.commit_once()
    if is_alone:
        expire_all_but(transaction, 1)
    return transaction


def expire_all_but(transaction: Transaction, count: int) -> None:
    """Expire the oldest snapshots in a transaction, but for heads of branches and tags."""
    metadata = transaction.table_metadata
    heads = {ref.snapshot_id for ref in metadata.refs.values()}
    by_age = sorted(metadata.snapshots, key=lambda snapshot: snapshot.sequence_number or 0)
    old = [
        snapshot.snapshot_id
        for snapshot in by_age[: max(0, len(by_age) - count)]
        if snapshot.snapshot_id not in heads
    ]
    if old:
        ExpireSnapshots(transaction).by_ids(old).commit()


# --- branches and tags ----------------------------------------------------------------------------------------------


def base_of(table: IcebergTable, branch: str) -> dict[str, str]:
    """Return the base of a branch's snapshot: that of its parent, or the present main."""
    refs = table.metadata.refs
    if branch not in refs:
        return {BASE: str(refs[MAIN].snapshot_id if MAIN in refs else 0)}
    snapshot: Snapshot | None = table.snapshot_by_id(refs[branch].snapshot_id)
    while snapshot is not None:
        if BASE in summary_of(snapshot):
            return {BASE: summary_of(snapshot)[BASE]}
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot_by_id(parent)
    raise UsageError(
        f"branch {branch} of table {'.'.join(table.name())} was not made by a load: take another name with --branch"
    )


def begin_main(table: IcebergTable) -> bool:
    """Commit an empty snapshot to main if main has no snapshot to begin a branch at. Returns whether it had none."""
    if MAIN in table.metadata.refs:
        return False
    with suppress(CommitFailedException), table.transaction() as transaction:  # another writer was faster
        transaction.update_snapshot().fast_append().commit()
    return True


def _begin(transaction: CachingTransaction, branch: str) -> None:
    """Create a branch at main, unless it exists."""
    refs = transaction.table_metadata.refs
    if branch not in refs and MAIN in refs:
        ManageSnapshots(transaction).create_branch(refs[MAIN].snapshot_id, branch).commit()


def check_base(table: IcebergTable, branch: str) -> None:
    """Raise UsageError if main is not where a branch began."""
    base, main = int(base_of(table, branch)[BASE]), table.metadata.refs.get(MAIN)
    if base != (main.snapshot_id if main is not None else 0):
        raise UsageError(
            f"branch {branch} of table {'.'.join(table.name())} began at snapshot {base}, and main has moved since: "
            "publish --drop, and load it again"
        )


def publish(table: IcebergTable, branch: str, snapshot_id: int, tag: str = "") -> None:
    """Move main to a snapshot of a branch, and remove the branch, in one commit.

    Raises UsageError if main is not where the branch began, IncompleteError if either has moved since it was read.
    """
    check_base(table, branch)
    main = table.metadata.refs.get(MAIN)
    head = table.snapshot_by_id(snapshot_id)
    assert head is not None
    properties = summary_of(head)
    newest = {SNAPSHOT: str(snapshot_id), SEQUENCE: str(head.sequence_number or 0)}
    named = {key: properties[key] for key in (VERSION, PATH, SHA256) if key in properties}
    updates: list[TableUpdate] = [_at(MAIN, SnapshotRefType.BRANCH, snapshot_id), _without(branch)]
    if named:
        updates.append(SetPropertiesUpdate(updates=named | newest))
    if tag:
        updates.append(_at(tag, SnapshotRefType.TAG, snapshot_id))
    requirements = [
        _requires(MAIN, main.snapshot_id if main is not None else None),
        _requires(branch, snapshot_id),
        *([_requires(tag, None)] if tag else ()),
    ]
    with explained():
        table.catalog.commit_table(table, tuple(requirements), tuple(updates))


def _at(name: str, kind: SnapshotRefType, snapshot_id: int) -> TableUpdate:
    return SetSnapshotRefUpdate.model_validate(
        {"ref-name": name, "type": kind.value, "snapshot-id": snapshot_id}
    )


def _without(name: str) -> TableUpdate:
    return RemoveSnapshotRefUpdate.model_validate({"ref-name": name})


def _requires(name: str, snapshot_id: int | None) -> TableRequirement:
    return AssertRefSnapshotId.model_validate({"ref": name, "snapshot-id": snapshot_id})


def drop(table: IcebergTable, branch: str) -> int:
    """Remove a branch, and return the id of its last snapshot. Raises UsageError, IncompleteError."""
    ref = table.metadata.refs.get(branch)
    if branch == MAIN or ref is None or ref.snapshot_ref_type != SnapshotRefType.BRANCH:
        raise UsageError(f"table {'.'.join(table.name())} has no branch {branch} that could be dropped")
    with explained():
        table.catalog.commit_table(table, (_requires(branch, ref.snapshot_id),), (_without(branch),))
    return int(ref.snapshot_id)


def branches_of(table: IcebergTable) -> list[str]:
    """Return the names of the branches beside main."""
    refs = table.metadata.refs.items()
    return [name for name, ref in refs if ref.snapshot_ref_type == SnapshotRefType.BRANCH and name != MAIN]
