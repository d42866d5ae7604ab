"""Values of a replica of the metadata log: its identity, the leader, its vote, and the content of its directory. Pure.

The rule: an observer, its shell and its directory exchange these; none of them acts.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from barnabas.cluster.kraft.decisions import SnapshotId
from barnabas.cluster.kraft.quorum import Leadership
from barnabas.cluster.kraft.state import MetadataLogError
from barnabas.log.format.quorum_state import QuorumState

METADATA_TOPIC_ID: Final = bytes(15) + b"\1"
PLACE: Final = "the quorum's log"


class WrongAnswerError(MetadataLogError):
    """A response that does not fit its request: it has no effect, and another controller may answer better."""


class Identity(NamedTuple):
    """The sender of requests: node id, id of its metadata directory, cluster; the defaults are for a mere reader."""

    node_id: int = -1
    directory_id: bytes = bytes(16)
    cluster_id: str | None = None


class Leader(NamedTuple):
    """The leader as named by answers; id -1 and no address if they name none."""

    id: int = -1
    epoch: int = 0
    host: str = ""
    port: int = -1


class Vote(NamedTuple):
    """The replica that got the vote in an epoch; id -1 for none, a directory id of zeros if it is unknown."""

    id: int = -1
    directory_id: bytes = bytes(16)


NO_VOTE: Final = Vote()


class StoredLog(NamedTuple):
    """Content of a metadata directory, as far as an observer needs it.

    `controls` are pairs of a control record's offset and the leadership after it; the first is that of the snapshot.
    `epochs` are pairs of epoch and start offset.
    """

    end_offset: int = 0
    epochs: tuple[tuple[int, int], ...] = ()
    snapshot_id: SnapshotId | None = None
    controls: tuple[tuple[int, Leadership], ...] = ((-1, Leadership()),)
    election: QuorumState | None = None
