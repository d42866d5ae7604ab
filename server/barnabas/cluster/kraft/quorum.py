"""Control records of a metadata log: the leader of the quorum, its voters, and the bounds of a snapshot. Pure.

The rule: voters take effect at their record, before it is committed (KIP-853); a log without such records has static
voters, and only LeaderChange has their ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module
from struct import Struct
from typing import Any, Final, NamedTuple

from barnabas.cluster.kraft.values import LevelRange, Voter
from barnabas.records.building import encode_batch
from barnabas.records.control import ControlType, encode_key, parse_type
from barnabas.records.record import Record
from barnabas.wire.codec import MessageCodec
from barnabas.wire.errors import DecodeError

_VERSION: Final = Struct(">h")
_MODULES: Final = {
    ControlType.LEADER_CHANGE: "leader_change_message",
    ControlType.SNAPSHOT_HEADER: "snapshot_header_record",
    ControlType.SNAPSHOT_FOOTER: "snapshot_footer_record",
    ControlType.KRAFT_VERSION: "kraft_version_record",
    ControlType.KRAFT_VOTERS: "voters_record",
}


class Leadership(NamedTuple):
    """Leader and voters of a quorum, from its log; -1 for no leader."""

    leader_id: int = -1
    epoch: int = -1
    since_offset: int = -1
    since_ms: int = -1
    voters: tuple[Voter, ...] = ()
    kraft_version: int = 0

    def after(self, message: Any, epoch: int, record: Record) -> Leadership:
        """Return the leadership after a control record's message."""
        name = type(message).__name__
        if name == "LeaderChangeMessage":
            changed = self._replace(
                leader_id=message.leader_id,
                epoch=epoch,
                since_offset=record.offset,
                since_ms=record.timestamp,
            )
            if self.kraft_version:
                return changed
            return changed._replace(
                voters=tuple(Voter(voter.voter_id, voter.voter_directory_id) for voter in message.voters)
            )
        if name == "KRaftVersionRecord":
            return self._replace(kraft_version=message.kraft_version)
        if name == "VotersRecord":
            return self._replace(voters=tuple(_voter(voter) for voter in message.voters))
        return self


def _voter(voter: Any) -> Voter:
    supported = voter.kraft_version_feature
    return Voter(
        voter.voter_id,
        voter.voter_directory_id,
        tuple((endpoint.name, endpoint.host, endpoint.port) for endpoint in voter.endpoints),
        LevelRange(supported.min_supported_version, supported.max_supported_version),
    )


def decode_control(record: Record) -> tuple[ControlType, Any]:
    """Decode a control record into its type and its message; None for a type that is not Raft's.

    Raises InvalidRecordsError for an invalid key, DecodeError for an invalid value.
    """
    control_type = parse_type(record.key)
    module = _MODULES.get(control_type)
    if module is None:
        return control_type, None
    value = record.value or b""
    if len(value) < _VERSION.size:
        raise DecodeError("is too short for a version", control_type.name.lower(), 0)
    codec: MessageCodec[Any] = import_module(f"barnabas.wire.generated.data.{module}").CODEC
    return control_type, codec.decode_whole(value, _VERSION.unpack_from(value)[0])


def control_batch(
    controls: Sequence[tuple[ControlType, bytes]], offset: int, epoch: int, now_ms: int
) -> bytes:
    """Encode control records as a batch."""
    records = [
        Record(offset + index, now_ms, encode_key(control_type), value)
        for index, (control_type, value) in enumerate(controls)
    ]
    return encode_batch(records, control=True, leader_epoch=epoch)


def encode_kraft_version(level: int) -> bytes:
    """Encode the control record of a kraft.version."""
    from barnabas.wire.generated.data import kraft_version_record

    return kraft_version_record.CODEC.encode_bytes(
        kraft_version_record.KRaftVersionRecord(kraft_version=level), 0
    )


def encode_voters(voters: Iterable[Voter]) -> bytes:
    """Encode the control record of the voters."""
    from barnabas.wire.generated.data import voters_record

    def encoded(voter: Voter) -> voters_record.VotersRecord.Voter:
        return voters_record.VotersRecord.Voter(
            voter.id,
            voter.directory_id,
            [voters_record.VotersRecord.Endpoint(*endpoint) for endpoint in voter.endpoints],
            voters_record.VotersRecord.KRaftVersionFeature(*voter.kraft_versions),
        )

    return voters_record.CODEC.encode_bytes(voters_record.VotersRecord(voters=list(map(encoded, voters))), 0)
