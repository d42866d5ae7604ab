"""Records of a leader: its election, its voters, and batches of the controller's records. Pure.

The rule: the first batch of an epoch begins with LeaderChange, then has the voters if the log lacks them (KIP-853).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from barnabas.cluster.kraft.quorum import encode_kraft_version, encode_voters
from barnabas.cluster.kraft.raft.values import ReplicaKey
from barnabas.cluster.kraft.values import Voter
from barnabas.records.building import encode_batch
from barnabas.records.control import ControlType
from barnabas.records.record import Record
from barnabas.wire.generated.data import leader_change_message
from barnabas.wire.generated.data.leader_change_message import LeaderChangeMessage

Control = tuple[ControlType, bytes]


def leader_change(leader_id: int, voters: Iterable[Voter], granting: Iterable[ReplicaKey]) -> Control:
    """Return the record that begins an epoch: always v0, the only version that controllers up to 4.4 read."""
    message = LeaderChangeMessage(
        0,
        leader_id,
        [LeaderChangeMessage.Voter(voter.id) for voter in voters],
        [LeaderChangeMessage.Voter(key.id) for key in granting],
    )
    return ControlType.LEADER_CHANGE, leader_change_message.CODEC.encode_bytes(message, 0)


def voters_records(voters: Iterable[Voter], kraft_version: int | None = None) -> list[Control]:
    """Return the record of the voters; with a level, that of kraft.version before it."""
    controls = [(ControlType.KRAFT_VOTERS, encode_voters(voters))]
    if kraft_version is not None:
        controls.insert(0, (ControlType.KRAFT_VERSION, encode_kraft_version(kraft_version)))
    return controls


def value_batch(values: Sequence[bytes], offset: int, epoch: int, now_ms: int) -> bytes:
    """Encode the controller's records as a batch."""
    records = [Record(offset + index, now_ms, None, value) for index, value in enumerate(values)]
    return encode_batch(records, leader_epoch=epoch)
