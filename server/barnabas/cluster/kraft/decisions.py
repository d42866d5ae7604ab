"""Decisions of an observer: values that describe changes to a metadata log and its directory. Pure.

The rule: decisions are carried out in order, each completely before the next; after a crash between two of them, the
next start repairs the directory.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.log.format.quorum_state import QuorumState


class SnapshotId(NamedTuple):
    """Name of a snapshot: the offset after its last record, and the epoch of that record."""

    end_offset: int
    epoch: int


class Append(NamedTuple):
    """Append whole batches, after which the log ends at an offset."""

    records: bytes
    end_offset: int


class Truncate(NamedTuple):
    """Truncate the log to an offset."""

    end_offset: int


class WritePiece(NamedTuple):
    """Write a piece of a snapshot that is being fetched; the piece at position 0 truncates the file first."""

    snapshot_id: SnapshotId
    position: int
    data: bytes


class InstallSnapshot(NamedTuple):
    """Decode the snapshot, of which all pieces are written, and restart the log after it.

    `Observer.installed` or `Observer.abandon_snapshot` must be called before the next request.
    """

    snapshot_id: SnapshotId


class DropSnapshot(NamedTuple):
    """Remove a partly fetched snapshot."""

    snapshot_id: SnapshotId


class SaveElection(NamedTuple):
    """Write the `quorum-state` file, and sync it."""

    state: QuorumState


class Commit(NamedTuple):
    """Raise the high watermark: all records before it may be applied."""

    high_watermark: int


Decision = Append | Truncate | WritePiece | InstallSnapshot | DropSnapshot | SaveElection | Commit


class Taken(NamedTuple):
    """Result of an answer: decisions to carry out, whether to ask another node, and whether to wait before."""

    decisions: tuple[Decision, ...] = ()
    asks_elsewhere: bool = False
    must_wait: bool = False
