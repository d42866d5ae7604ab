"""Where leader epochs end in a replica's log, and where the log and a fetcher's part.

The rule: a leader answers for its own epoch too, although the log has no entry for it before the first append.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.errors import RequestError
from barnabas.replication.follower import EpochEnd
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.replicas.replica import Replica


def end_offset_for_epoch(replica: Replica, epoch: int) -> EpochEnd:
    """Return where the largest leader epoch up to `epoch` ends; (-1, -1) if it is unknown.

    The log has no entry for an epoch in which nothing was written: a leader's own begins at the log end then.
    """
    log = replica.log
    latest = log.epochs.latest
    if replica.is_leader and replica.leader_epoch > latest:
        if epoch == replica.leader_epoch:
            return EpochEnd(epoch, log.log_end_offset)
        if latest < epoch < replica.leader_epoch:
            return EpochEnd(latest if latest >= 0 else epoch, log.log_end_offset)
    return EpochEnd(*log.end_offset_for_epoch(epoch))


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
