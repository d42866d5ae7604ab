"""Ends of leader epochs in a replica's log, and the offset where the log and a fetcher's part.

The rule: a leader answers for its own epoch too, although the log has no entry for it before the first append.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cluster.replication.follower import EpochEnd
from barnabas.errors import RequestError
from barnabas.log.epochs import LeaderEpochs
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.cluster.replicas.replica import Replica


def end_offset_for_epoch(replica: Replica, epoch: int) -> EpochEnd:
    """Return where the largest leader epoch up to `epoch` ends; (-1, -1) if it is unknown."""
    return EpochEnd(*_epochs(replica).end_offset_for(epoch, replica.log.log_end_offset))


def epoch_at(replica: Replica, offset: int) -> int:
    """Return the leader epoch in which `offset` was written or, at the end of a leader's log, will be; -1 if unknown."""
    return _epochs(replica).epoch_at(offset)


def _epochs(replica: Replica) -> LeaderEpochs:
    """Return the epochs of the log and, as Kafka's leaders note it when they begin, the leader's own at the log end."""
    log = replica.log
    if not replica.is_leader or replica.leader_epoch <= log.epochs.latest:
        return log.epochs
    epochs = LeaderEpochs(log.epochs.entries)
    epochs.assign(replica.leader_epoch, log.log_end_offset)
    return epochs


def diverging_epoch(replica: Replica, last_fetched_epoch: int, fetch_offset: int) -> EpochEnd | None:
    """Return where a replica's log and the fetcher's part, if that is before its fetch offset (KIP-595).

    Raises OFFSET_OUT_OF_RANGE for an epoch that is not known here, or an offset before the log start.
    """
    end = end_offset_for_epoch(replica, last_fetched_epoch)
    if end.end_offset < 0 or end.epoch < 0:
        raise RequestError(ErrorCode.OFFSET_OUT_OF_RANGE, f"epoch {last_fetched_epoch} is not known here")
    if fetch_offset < replica.log.log_start_offset:
        raise RequestError(ErrorCode.OFFSET_OUT_OF_RANGE, f"the log begins at {replica.log.log_start_offset}")
    if end.epoch < last_fetched_epoch or end.end_offset < fetch_offset:
        return end
    return None
