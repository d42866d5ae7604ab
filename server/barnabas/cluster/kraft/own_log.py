"""The metadata log of a broker that is a cluster by itself: it is the only voter, and the only writer.

The rule: the directory is that of a quorum of one voter, so Apache Kafka can take it over, and Barnabas can take over
Kafka's. A record counts once it is synced. A damaged log is copied aside before the broker continues with the readable
records.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from errno import EIO
from typing import Any, Final, NamedTuple

from barnabas.cluster.kraft.controller.versions import TRANSACTIONS_LEVEL
from barnabas.cluster.kraft.damage import find_damage, set_aside_election
from barnabas.cluster.kraft.decisions import SnapshotId
from barnabas.cluster.kraft.directory import MetadataLog, Until
from barnabas.cluster.kraft.durable_log import READ_BYTES_MAX, DurableLog
from barnabas.cluster.kraft.image import Position, QuorumImage
from barnabas.cluster.kraft.own_log_place import Listener, LostMetadataError
from barnabas.cluster.kraft.quorum import Leadership, control_batch
from barnabas.cluster.kraft.raft.records import Control, leader_change, value_batch, voters_records
from barnabas.cluster.kraft.raft.values import KRAFT_VERSIONS, ReplicaKey, is_same
from barnabas.cluster.kraft.replay import Replay
from barnabas.cluster.kraft.state import RECORDS_PER_STEP, MetadataLogError
from barnabas.cluster.kraft.transitions import MetadataRecordError
from barnabas.cluster.kraft.values import Voter
from barnabas.config.metadata_log import LogSettings
from barnabas.errors import StorageError
from barnabas.log.disk import Disk
from barnabas.log.format import names
from barnabas.log.format.quorum_state import QuorumState
from barnabas.records.any_magic import iter_any_records
from barnabas.records.batch import iter_batches
from barnabas.records.errors import RecordsError
from barnabas.wire.errors import DecodeError
from barnabas.wire.metadata_records import decode_record, encode_record

log = logging.getLogger(__name__)

ENDPOINT: Final = ("CONTROLLER", "localhost", 9093)
"""Address of the voter in the log, if the settings have none: that of Apache Kafka's example settings."""
BATCH_BYTES: Final = 1 << 20
"""A change with records of more bytes is written in several batches, as one metadata transaction.

At a level without transactions it is written in one batch: a change is read again as a whole, or not at all.
"""
LONG_BYTES_MIN: Final = 1 << 20
"""A start makes a snapshot if the log after the last snapshot is larger than this, and than twice that snapshot."""
CLOSING_BYTES_MIN: Final = 1 << 16
"""A clean shutdown makes a snapshot if the log after the last one is larger than this, and than that snapshot."""

Message = tuple[Any, int]
"""A metadata record, and the version in which it is written."""


class LogContent(NamedTuple):
    """Content of a log. `deleted` are ids of deleted topics; `lost` describes unreadable places.

    `first_records` are the records of formatting, still to be written, of a new log; its image includes them.
    """

    image: QuorumImage
    deleted: frozenset[bytes] = frozenset()
    lost: tuple[str, ...] = ()
    first_records: tuple[Any, ...] = ()


class OwnLog:
    """The log of one voter. Lifecycle: `open`, `lead`, `append` any number of times, `close`; all raise StorageError.

    Methods block on the disk: call them in a thread, one at a time.
    """

    def __init__(
        self,
        disk: Disk,
        log_dir: str,
        settings: LogSettings,
        wall_clock_ms: Callable[[], int],
        release: str = "",
    ) -> None:
        """`log_dir` contains `__cluster_metadata-0`, which `open` creates at the levels of a release if it is missing."""
        self.log_dir = log_dir
        self._disk = disk
        self._settings = settings
        self._wall_clock_ms = wall_clock_ms
        self._release = release
        self._durable = DurableLog(disk, log_dir, settings)
        self._leadership = Leadership()
        self._election: QuorumState | None = None
        self._epoch = 0  # this leader's epoch, 0 before its first records
        self._key = ReplicaKey(-1)
        self._endpoint: Listener | None = None
        self._end_offset = 0
        self._bytes_since_snapshot = 0
        self._is_in_transaction = self._is_open = False

    # --- opening --------------------------------------------------------------------------------------------

    def open(self, *, may_lose: bool = True) -> LogContent:
        """Open or create the log, and return its content. Raises StorageError, MetadataLogError.

        With `may_lose`, a damaged log is replaced by one of its readable records; otherwise LostMetadataError is raised,
        and nothing changes.
        """
        try:
            self._disk.make_dirs(self._durable.path)
            self._disk.make_private_dir(self._durable.path)
            damage = find_damage(self._disk, self._durable.path)
            lost: tuple[str, ...] = ()
            if damage and not may_lose:
                raise LostMetadataError(self.log_dir, damage)
            if damage:
                from barnabas.cluster.kraft.salvage import salvage  # not needed by most starts

                lost = salvage(self._disk, self.log_dir, self._durable, damage, self._wall_clock_ms())
            set_aside_election(self._disk, self._durable.path)
            stored = self._durable.open(self._wall_clock_ms())
        except OSError as error:
            raise StorageError(self.log_dir, error) from error
        self._is_open = True
        self._leadership = stored.controls[-1][1]
        self._election = stored.election
        self._end_offset = stored.end_offset
        content = self._replay()._replace(lost=lost)
        return content if content.image.metadata_version else self._begun(content)

    def _begun(self, content: LogContent) -> LogContent:
        """Return the content of a new log, with the records of formatting."""
        from barnabas.cluster.kraft.formatting import begun_image  # not needed by most starts

        try:
            image, first_records = begun_image(self._disk, self.log_dir, content.image, self._release)
        except OSError as error:
            raise StorageError(self.log_dir, error) from error
        return content._replace(image=image, first_records=first_records)

    def _replay(self) -> LogContent:
        """Apply the log after its snapshot. Raises MetadataLogError."""
        replay, deleted, end = Replay(), set[bytes](), self._end_offset
        offset, position = self._durable.start_offset, Position()
        loaded = self._durable.loaded
        if loaded is not None:
            replay.load(loaded.image)
            offset, position = loaded.end_offset, loaded.image.position
        while offset < end:
            batches = self._durable.read_log(offset, READ_BYTES_MAX)
            for start, header in iter_batches(batches):
                if not header.is_control:
                    self._apply(replay, batches[start : start + header.size], position, deleted)
                offset = header.next_offset
                position = Position(header.last_offset, header.leader_epoch, header.max_timestamp)
                self._bytes_since_snapshot += header.size
        self._is_in_transaction = replay.in_transaction
        image = replay.publish(position)
        return LogContent(image, frozenset(deleted - image.topics.keys()))

    def _apply(self, replay: Replay, batch: bytes, position: Position, deleted: set[bytes]) -> None:
        offset = -1
        try:
            for record in iter_any_records(batch):
                offset = record.offset
                message, _ = decode_record(record.value or b"")
                name = type(message).__name__
                if name == "BeginTransactionRecord":
                    replay.publish(position)  # the image without the unfinished transaction
                replay.apply(message)
                if name == "RemoveTopicRecord":
                    deleted.add(message.topic_id)
        except (RecordsError, DecodeError, MetadataRecordError) as error:
            raise MetadataLogError(f"{self._durable.path}: record at offset {offset}: {error}") from None

    # --- leading --------------------------------------------------------------------------------------------

    def lead(self, node_id: int, directory_id: bytes, endpoint: Listener | None = None) -> None:
        """Set this node as the leader: its epoch begins with its first append.

        `endpoint` is the listener at which Kafka's controller is reached after it has taken over the log. Raises
        StorageError if the log has other voters.
        """
        voters = self._leadership.voters
        if len(voters) > 1:
            cause = OSError(
                f"the metadata are those of a quorum with the controllers {', '.join(str(voter.id) for voter in voters)}: "
                "a broker that is alone cannot go on with them. Start it with the settings of its controllers"
            )
            raise StorageError(self.log_dir, cause)
        self._key = ReplicaKey(node_id, directory_id)
        self._endpoint = endpoint

    def _begun_epoch(self) -> tuple[QuorumState, Leadership, list[Control]]:
        """Return the election, voters and control records of a new epoch."""
        key, leadership = self._key, self._leadership
        before = leadership.voters[0] if leadership.voters else None
        endpoints = before.endpoints if before is not None and before.endpoints else (ENDPOINT,)
        if self._endpoint is not None:
            endpoints = (self._endpoint,)
        voter = Voter(key.id, key.directory_id, endpoints, KRAFT_VERSIONS)
        controls = [leader_change(key.id, (voter,), (key,))]
        epochs = [snapshot.id.epoch for snapshot in self._durable.snapshots]
        if self._election is not None:
            epochs.append(self._election.leader_epoch)
        epoch = max(0, self._durable.log.epochs.latest, *epochs) + 1
        if before is not None and not leadership.kraft_version:
            return QuorumState(0, key.id, epoch, voters=(key.id,)), leadership, controls
        if before is None:
            controls += voters_records((voter,), 1)
        elif not (is_same(before, key) and before.endpoints == endpoints):
            controls += voters_records((voter,))
        after = leadership._replace(voters=(voter,), kraft_version=1)
        return QuorumState(1, key.id, epoch, key.id, key.directory_id), after, controls

    def _cut_back(self, now_ms: int) -> None:
        """Truncate the rest of a failed append, and sync: the next append to that place may be shorter."""
        if self._durable.log.log_end_offset > self._end_offset:
            self._durable.truncate(self._end_offset, now_ms)
            self._sync()

    @property
    def end_offset(self) -> int:
        """Offset of the next record."""
        return self._end_offset

    def append(self, groups: Sequence[Sequence[Message]], level: int) -> None:
        """Write and sync records; a reader sees each group completely or not at all. After an error, none of them counts.

        All groups are one write, of which a crash leaves a prefix.
        """
        now_ms, durable = self._wall_clock_ms(), self._durable
        data, end_offset, epoch, election = b"", self._end_offset, self._epoch, None
        leadership = self._leadership
        if not epoch:
            election, leadership, controls = self._begun_epoch()
            epoch = election.leader_epoch
            data = control_batch(controls, end_offset, epoch, now_ms)
            end_offset += len(controls)
        if self._is_in_transaction:
            groups = [_abort(), *groups]
        for values in self._batches(groups, level):
            data += value_batch(values, end_offset, epoch, now_ms)
            end_offset += len(values)
        try:
            self._cut_back(now_ms)
            active = durable.log.active
            if not active.file.is_at(active.path(names.LOG)):
                raise OSError(
                    EIO, "it was removed or replaced while the broker had it open", active.path(names.LOG)
                )
            if election is not None:
                durable.save_election(election)
            durable.append(data, now_ms)
            self._sync()
        except OSError as error:
            raise StorageError(self.log_dir, error) from error
        self._end_offset, self._epoch, self._leadership = end_offset, epoch, leadership
        self._bytes_since_snapshot += len(data)
        self._is_in_transaction = False

    def _batches(self, groups: Sequence[Sequence[Message]], level: int) -> Iterator[list[bytes]]:
        """Yield the values of each batch."""
        for group in groups:
            batches: list[list[bytes]] = [[]]
            size = 0
            for message, version in group:
                value = encode_record(message, version)
                if size and size + len(value) > BATCH_BYTES and level >= TRANSACTIONS_LEVEL:
                    batches.append([])
                    size = 0
                batches[-1].append(value)
                size += len(value)
            if len(batches) > 1:
                begin, end = _transaction_bounds()
                batches[0].insert(0, begin)
                batches[-1].append(end)
            yield from batches

    def _sync(self) -> None:
        flush = self._durable.log.begin_flush()
        if flush is not None:
            flush.run()
            flush.finish(self._wall_clock_ms())
        self._durable.commit(self._durable.log.log_end_offset)

    # --- snapshots ------------------------------------------------------------------------------------------

    @property
    def wants_snapshot(self) -> bool:
        """True if enough bytes were written since the last snapshot for the next one."""
        return self._bytes_since_snapshot >= self._settings.snapshot_bytes

    @property
    def is_long(self) -> bool:
        """True if the log after the last snapshot is so long that a snapshot would shorten the next start."""
        return self._bytes_since_snapshot > max(LONG_BYTES_MIN, 2 * self._snapshot_bytes)

    @property
    def _snapshot_bytes(self) -> int:
        return self._durable.snapshots[-1].size if self._durable.snapshots else 0

    def begin_snapshot(self, image: QuorumImage) -> Iterator[None]:
        """Write the snapshot of an image, in steps of some milliseconds; it counts after the last step."""
        from barnabas.cluster.kraft.snapshots import snapshot_batches

        self._bytes_since_snapshot = 0
        snapshot_id = SnapshotId(image.position.offset + 1, image.position.epoch)
        if not self._durable.takes_snapshot(snapshot_id):
            return
        position = 0
        for batch in snapshot_batches(image, self._leadership, now_ms=self._wall_clock_ms()):
            self._durable.write_piece(snapshot_id, position, batch)
            position += len(batch)
            yield
        self._durable.finish_snapshot(snapshot_id)
        self._durable.add_snapshot(snapshot_id, self._wall_clock_ms())
        self._durable.clean(self._wall_clock_ms())
        removal = self._durable.begin_removal(self._wall_clock_ms())  # files that were renamed a while ago
        if removal is not None:
            removal.run()
            removal.finish()

    def snapshot_steps(self) -> Iterator[None]:
        """Read the log up to its end, and write the snapshot of it, in steps of some milliseconds. Raises OSError."""
        reader = MetadataLog(self._disk, self._durable.path)
        until = Until(offset=self._end_offset - 1)  # excludes the rest of a failed append
        reader.begin(until)
        for count, _ in enumerate(reader.steps(until), 1):
            if count % RECORDS_PER_STEP == 0:
                yield
        yield from self.begin_snapshot(reader.state.image)

    def close(self) -> None:
        """Sync and close the log, if it is open. A failure is logged; the next start repairs the log."""
        try:
            if self._is_open:
                self._cut_back(self._wall_clock_ms())
                if self._bytes_since_snapshot > max(CLOSING_BYTES_MIN, self._snapshot_bytes):
                    for _ in self.snapshot_steps():
                        pass
                self._durable.close()
        except (OSError, StorageError, MetadataLogError) as error:
            log.warning("the metadata log was not closed cleanly: %s", error)


def _abort() -> list[Message]:
    """Return the record that aborts a metadata transaction that a crash interrupted."""
    from barnabas.wire.generated.metadata_records.abort_transaction import AbortTransactionRecord

    return [(AbortTransactionRecord("the leader has ended"), 0)]


def _transaction_bounds() -> tuple[bytes, bytes]:
    from barnabas.wire.generated.metadata_records.begin_transaction import BeginTransactionRecord
    from barnabas.wire.generated.metadata_records.end_transaction import EndTransactionRecord

    return encode_record(BeginTransactionRecord("a change"), 0), encode_record(EndTransactionRecord(), 0)
