"""The `quorum-state` file of a metadata log: the durable election state of a Raft replica.

The rule: both data versions are read: 0 for a quorum with static voters (and for a replica that has not read the voters
yet), 1 for voters in the log (KIP-853). One line of JSON.
"""

import json
from typing import Any, NamedTuple

from barnabas.log.format import CorruptFileError
from barnabas.log.format.properties import decode_uuid, encode_uuid

QUORUM_STATE = "quorum-state"
NO_ID = -1
_NO_DIRECTORY = bytes(16)


class QuorumState(NamedTuple):
    """Content of the file: the epoch, its leader and this replica's vote; -1 for none. A directory's id is raw."""

    data_version: int
    leader_id: int = NO_ID
    leader_epoch: int = NO_ID
    voted_id: int = NO_ID
    voted_directory_id: bytes = _NO_DIRECTORY
    voters: tuple[int, ...] | None = None
    """Static voters in the file, for data version 0."""

    def encode(self) -> bytes:
        """Write the file as Kafka does."""
        content: dict[str, Any]
        if self.data_version == 0:
            voters = None if self.voters is None else [{"voterId": voter} for voter in self.voters]
            content = {
                "clusterId": "",
                "leaderId": self.leader_id,
                "leaderEpoch": self.leader_epoch,
                "votedId": self.voted_id,
                "appliedOffset": 0,
                "currentVoters": voters,
            }
        else:
            content = {
                "leaderId": self.leader_id,
                "leaderEpoch": self.leader_epoch,
                "votedId": self.voted_id,
                "votedDirectoryId": encode_uuid(self.voted_directory_id),
            }
        return json.dumps({**content, "data_version": self.data_version}, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> "QuorumState":
        """Read the file. Raises CorruptFileError."""
        try:
            content = json.loads(data)
            version = content["data_version"]
            if version not in (0, 1):
                raise CorruptFileError(f"data version {version} of quorum-state is unknown")
            leader_id, leader_epoch, voted_id = (
                int(content[name]) for name in ("leaderId", "leaderEpoch", "votedId")
            )
            directory, voters = _NO_DIRECTORY, None
            if version == 1:
                directory = decode_uuid(content["votedDirectoryId"])
            elif content.get("currentVoters") is not None:
                voters = tuple(int(voter["voterId"]) for voter in content["currentVoters"])
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptFileError(f"quorum-state makes no sense: {error!r}") from None
        return cls(version, leader_id, leader_epoch, voted_id, directory, voters)
