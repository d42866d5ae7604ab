"""A metadata log up to the last record read: records in, steps out; the image, leader and voters. Pure.

The rule: a record that cannot be decoded or applied is a MetadataLogError that names its place, and no part of its
value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final, NamedTuple

from barnabas.cluster.kraft.image import EMPTY, Change, Position, QuorumImage
from barnabas.cluster.kraft.quorum import Leadership, decode_control
from barnabas.cluster.kraft.replay import Replay
from barnabas.cluster.kraft.transitions import MetadataRecordError
from barnabas.records.any_magic import iter_any_records
from barnabas.records.batch import BatchHeader, iter_batches, require_crc
from barnabas.records.control import ControlType
from barnabas.records.errors import RecordsError
from barnabas.records.record import Record
from barnabas.wire.errors import DecodeError
from barnabas.wire.metadata_records import decode_record, record_key, record_name


class MetadataLogError(Exception):
    """There is no metadata log, or it cannot be read as far as required."""


class Step(NamedTuple):
    """One record, and its changes; `version` is that of its message, -1 for a control record."""

    offset: int
    epoch: int
    timestamp_ms: int
    name: str
    version: int
    message: Any
    changes: tuple[Change, ...]


class Snapshot(NamedTuple):
    """A snapshot: the state at `end_offset`. `last_ms` is the time of the last record in it."""

    end_offset: int
    epoch: int
    last_ms: int
    image: QuorumImage
    leadership: Leadership


class LogState:
    """State after the records read. Lifecycle: `load` at most one snapshot, then `step` for each record after it."""

    def __init__(self) -> None:
        self.leadership = Leadership()
        self.position = Position()
        self._replay = Replay()

    @property
    def image(self) -> QuorumImage:
        """The image; inside a metadata transaction, the image before it."""
        return self._replay.publish(self.position)

    @property
    def in_transaction(self) -> bool:
        """True if the last step was inside a metadata transaction."""
        return self._replay.in_transaction

    def load(self, snapshot: Snapshot) -> None:
        """Begin after a snapshot.

        Of one at offset 0 only the voters count: a controller writes its other records to the log.
        """
        self._replay.load(snapshot.image if snapshot.end_offset else EMPTY)
        self.position = snapshot.image.position
        self.leadership = snapshot.leadership

    def step(self, header: BatchHeader, record: Record, place: str) -> Step:
        """Apply the next record; `place` names its log in errors. Raises MetadataLogError."""
        changes: tuple[Change, ...] = ()
        epoch = header.leader_epoch
        before, self.position = self.position, Position(record.offset, epoch, record.timestamp)
        try:
            if header.is_control:
                control_type, message = decode_control(record)
                self.leadership = self.leadership.after(message, epoch, record)
                name, version = control_type.name, -1
            else:
                message, version = decode_record(record.value or b"")
                name = record_name(record_key(message))
                if name == "BeginTransaction":
                    self._replay.publish(before)  # the image without the unfinished transaction
                changes = self._replay.apply(message)
        except (DecodeError, RecordsError, MetadataRecordError) as error:
            raise MetadataLogError(f"{place}: record at offset {record.offset}: {error}") from None
        return Step(record.offset, epoch, record.timestamp, name, version, message, changes)

    def note_leader(self, header: BatchHeader, record: Record, place: str) -> None:
        """Note the epoch of the leader from a LeaderChange before the snapshot, as snapshots lack it."""
        if not header.is_control:
            return
        try:
            control_type, message = decode_control(record)
        except (DecodeError, RecordsError) as error:
            raise MetadataLogError(f"{place}: record at offset {record.offset}: {error}") from None
        if control_type is ControlType.LEADER_CHANGE and header.leader_epoch > self.leadership.epoch:
            self.leadership = self.leadership.after(message, header.leader_epoch, record)

    def note_leader_of(self, batches: bytes, place: str) -> None:
        """Note the leader's epoch from the first of these batches, if it has a LeaderChange. Raises MetadataLogError."""
        for position, header in islice(iter_batches(batches), 1):
            for record in iter_any_records(batches[position : position + header.size]):
                self.note_leader(header, record, place)


RECORDS_PER_STEP: Final = 200
"""Records that are decoded and applied between two checkpoints: some milliseconds."""


def snapshot_steps(
    snapshot_id: tuple[int, int], place: str, batches: Iterable[tuple[BatchHeader, bytes]]
) -> Iterator[Snapshot | None]:
    """Decode a snapshot, in steps that yield None; the last yields the snapshot.

    Raises MetadataLogError if a checksum is wrong, a record does not decode, or its header or footer is missing.
    """
    reader = SnapshotReader(*snapshot_id, place)
    next_offset = 0
    try:
        for header, data in batches:
            require_crc(data, 0, header)
            if header.base_offset != next_offset:
                raise MetadataLogError(f"{place}: a batch begins at {header.base_offset}, not {next_offset}")
            next_offset = header.next_offset
            records = iter_any_records(data)
            while piece := list(islice(records, RECORDS_PER_STEP)):
                reader.add(header, piece)
                yield None
    except RecordsError as error:
        raise MetadataLogError(f"{place}: {error.message}") from None
    yield reader.finish()


class SnapshotReader:
    """A snapshot that is read batch by batch. Lifecycle: `add` all batches, then `finish`."""

    def __init__(self, end_offset: int, epoch: int, place: str) -> None:
        self._id = (end_offset, epoch)
        self._place = place
        self._replay = Replay()
        self._leadership = Leadership()
        self._last_ms = -1
        self._has_header = self._has_footer = False

    def add(self, header: BatchHeader, records: Iterable[Record]) -> None:
        """Take in the next batch. Raises MetadataLogError."""
        if self._has_footer:
            raise MetadataLogError(f"{self._place}: the snapshot goes on after its footer")
        try:
            for record in records:
                if not header.is_control:
                    self._replay.apply(decode_record(record.value or b"")[0])
                    continue
                control_type, message = decode_control(record)
                if control_type is ControlType.SNAPSHOT_HEADER:
                    self._last_ms = message.last_contained_log_timestamp
                    self._has_header = True
                self._has_footer = self._has_footer or control_type is ControlType.SNAPSHOT_FOOTER
                self._leadership = self._leadership.after(message, header.leader_epoch, record)
        except (DecodeError, RecordsError, MetadataRecordError) as error:
            raise MetadataLogError(f"{self._place}: {error}") from None

    def finish(self) -> Snapshot:
        """Return the snapshot. Raises MetadataLogError if its header or footer is missing."""
        if not self._has_footer:
            raise MetadataLogError(f"{self._place}: the snapshot ends before its footer")
        if not self._has_header:
            raise MetadataLogError(f"{self._place}: the snapshot has no header")
        end_offset, epoch = self._id
        position = Position(end_offset - 1, epoch, self._last_ms) if end_offset else Position()
        return Snapshot(end_offset, epoch, self._last_ms, self._replay.publish(position), self._leadership)
