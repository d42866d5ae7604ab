"""Carries out the decisions of a replica: writes its log to disk, and applies committed records.

The rule: decisions are carried out for one task at a time, each completely before the next; fsync runs in a thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

import trio

from barnabas.cluster.kraft.applying import ImageApplier
from barnabas.cluster.kraft.decisions import (
    Append,
    Commit,
    Decision,
    DropSnapshot,
    InstallSnapshot,
    SaveElection,
    SnapshotId,
    Truncate,
    WritePiece,
)
from barnabas.cluster.kraft.durable_log import DurableLog
from barnabas.cluster.kraft.state import MetadataLogError, Snapshot
from barnabas.environment import Threads

log = logging.getLogger(__name__)


class Installing(Protocol):
    """The state machine behind the decisions, such as `Observer`."""

    def installed(self, snapshot: Snapshot) -> Decision:
        """Note that the log was restarted after a snapshot."""

    def abandon_snapshot(self) -> tuple[Decision, ...]:
        """Abandon the snapshot that is being fetched."""


class LogKeeper:
    """Carries out a replica's decisions."""

    def __init__(
        self, stored: DurableLog, applier: ImageApplier, *, wall_clock_ms: Callable[[], int], threads: Threads
    ) -> None:
        self._stored = stored
        self._applier = applier
        self._wall_clock_ms = wall_clock_ms
        self._threads = threads

    async def carry_out(self, decision: Decision, machine: Installing) -> bool:
        """Carry out a decision; False for a damaged snapshot, which is abandoned. Raises OSError, StorageError."""
        stored = self._stored
        match decision:
            case Append(records):
                stored.append(records, self._wall_clock_ms())
            case Truncate(end_offset):
                log.info("the quorum has another leader: records from offset %d on go", end_offset)
                stored.truncate(end_offset, self._wall_clock_ms())
            case Commit(high_watermark):
                stored.commit(high_watermark)
                self._applier.committed(high_watermark)
            case SaveElection(state):
                log.info("epoch %d of the quorum: leader %d", state.leader_epoch, state.leader_id)
                await self._threads.run(lambda: stored.save_election(state))
            case WritePiece(snapshot_id, position, data):
                stored.write_piece(snapshot_id, position, data)
            case DropSnapshot(snapshot_id):
                stored.drop_piece(snapshot_id)
            case InstallSnapshot(snapshot_id):
                return await self._install(snapshot_id, machine)
        return True

    async def _install(self, snapshot_id: SnapshotId, machine: Installing) -> bool:
        stored, snapshot = self._stored, None
        try:
            for decoded in stored.part_steps(snapshot_id):
                snapshot = decoded
                await trio.lowlevel.checkpoint()
        except MetadataLogError as error:
            log.warning("a snapshot of the quorum is damaged, and fetched again: %s", error)
            for decision in machine.abandon_snapshot():
                await self.carry_out(decision, machine)
            return False
        assert snapshot is not None
        await self._threads.run(lambda: stored.finish_snapshot(snapshot_id))
        stored.install(snapshot_id, self._wall_clock_ms())
        self._applier.load(snapshot)
        return await self.carry_out(machine.installed(snapshot), machine)

    async def sync(self) -> int:
        """Sync the log, and return the end offset of the synced records. Raises StorageError."""
        return await self._stored.sync(self._threads, self._wall_clock_ms)
