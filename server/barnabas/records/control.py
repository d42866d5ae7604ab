"""Control records: the markers that end transactions (KIP-98), and the names of KRaft's own (KIP-595, 853).

The rule: readers recognize a marker by its key alone, and skip types and versions that are newer than this code; writers
write version 0.

    key   = version int16, type int16
    value = version int16, coordinator epoch int32            (ABORT and COMMIT)
"""

from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

from barnabas.records.batch import NO_LEADER_EPOCH
from barnabas.records.building import encode_batch
from barnabas.records.errors import InvalidRecordsError
from barnabas.records.record import Record

CONTROL_VERSION: Final = 0
_KEY: Final = Struct(">hh")
_END_MARKER_VALUE: Final = Struct(">hi")


class ControlType(IntEnum):
    """Type of a control record; UNKNOWN stands for any type that this code has no name for."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class EndMarker(NamedTuple):
    """Outcome of a transaction in one partition, and the epoch of the coordinator that decided it."""

    control_type: ControlType
    coordinator_epoch: int

    @property
    def is_commit(self) -> bool:
        """True if the transaction was committed."""
        return self.control_type is ControlType.COMMIT


def encode_key(control_type: ControlType) -> bytes:
    """Encode the key of a control record."""
    return _KEY.pack(CONTROL_VERSION, control_type)


def parse_type(key: bytes | None) -> ControlType:
    """Return the type in the key of a control record. Raises InvalidRecordsError for an invalid key."""
    if key is None or len(key) < _KEY.size:
        raise InvalidRecordsError(f"the key of a control record has {_KEY.size} bytes, not {len(key or b'')}")
    version, number = _KEY.unpack_from(key)
    if version < CONTROL_VERSION:
        raise InvalidRecordsError(f"the key of a control record cannot be of version {version}")
    return (
        ControlType(number)
        if ControlType.ABORT <= number <= ControlType.KRAFT_VOTERS
        else ControlType.UNKNOWN
    )


def parse_end_marker(record: Record) -> EndMarker | None:
    """Read a transaction's end marker, or None if the control record is of another type.

    Raises InvalidRecordsError if key or value are malformed.
    """
    control_type = parse_type(record.key)
    if control_type not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    value = record.value
    if value is None or len(value) < _END_MARKER_VALUE.size:
        size = len(value or b"")
        raise InvalidRecordsError(
            f"the value of an end marker has {_END_MARKER_VALUE.size} bytes, not {size}"
        )
    version, coordinator_epoch = _END_MARKER_VALUE.unpack_from(value)
    if version < CONTROL_VERSION:
        raise InvalidRecordsError(f"the value of an end marker cannot be of version {version}")
    return EndMarker(control_type, coordinator_epoch)


def encode_end_marker(
    *,
    commit: bool,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytes:
    """Write the control batch that ends the producer's transaction in one partition."""
    return encode_batch(
        [
            Record(
                base_offset,
                timestamp_ms,
                encode_key(ControlType.COMMIT if commit else ControlType.ABORT),
                _END_MARKER_VALUE.pack(CONTROL_VERSION, coordinator_epoch),
            )
        ],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
        leader_epoch=leader_epoch,
    )
