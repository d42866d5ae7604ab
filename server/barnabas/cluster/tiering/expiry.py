"""Choice of the remote segments of a partition to delete. Pure.

The rule: from the oldest on, without gaps, by `retention.*` over remote and local-only records, each byte counted once; and
all segments that readers cannot reach: unfinished copies, and segments before the log start.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple
from uuid import UUID

from barnabas.cluster.tiering.lineage import Epochs, is_in_lineage
from barnabas.log.config import LogConfig
from barnabas.tiered.segment import RemoteSegment, SegmentState


class TieredLog(NamedTuple):
    """Facts about a log for the expiry of its remote segments; `local_bytes` are the bytes not stored remotely."""

    epochs: Epochs
    log_start_offset: int
    log_end_offset: int
    local_bytes: int


class Expiry(NamedTuple):
    """Segments to delete, and the log start offset afterwards."""

    segments: list[RemoteSegment]
    log_start_offset: int


def plan_expiry(
    segments: Iterable[RemoteSegment],
    log: TieredLog,
    config: LogConfig,
    *,
    now_ms: int,
    in_use: Collection[UUID] = (),
    replaced: Collection[UUID] = (),
) -> Expiry:
    """Choose the segments to delete among those of a partition, in the order of their start offsets.

    Args:
        segments: all segments of the partition that are not deleted.
        log: the leader's log.
        config: its settings.
        now_ms: milliseconds since 1970.
        in_use: ids of segments that are being copied or deleted, which are not touched.
        replaced: ids of segments from which no leader epoch is read.

    """
    segments = [segment for segment in segments if segment.segment_id not in in_use]
    copied = [
        segment
        for segment in segments
        if segment.state is SegmentState.COPY_FINISHED and segment.segment_id not in replaced
    ]
    copied_ids = {segment.segment_id for segment in copied}
    unfinished = [segment for segment in segments if segment.segment_id not in copied_ids]
    own = [segment for segment in copied if is_in_lineage(segment, log.epochs, log.log_end_offset)]
    own_ids = {segment.segment_id for segment in own}
    foreign = [segment for segment in copied if segment.segment_id not in own_ids]
    first_epoch = log.epochs[0][0] if log.epochs else 0
    expired = [
        segment
        for segment in foreign
        if segment.end_offset < log.log_start_offset or segment.leader_epochs[-1][0] < first_epoch
    ]
    start = log.log_start_offset
    excess = 0
    if config.is_deleted and config.retention_bytes >= 0:
        excess = log.local_bytes + sum(segment.size for segment in own) - config.retention_bytes
    until_ms = now_ms - config.retention_ms if config.is_deleted and config.retention_ms >= 0 else None
    for segment in own:
        is_old = until_ms is not None and segment.max_timestamp < until_ms
        if segment.end_offset >= log.log_start_offset and not is_old and excess < max(segment.size, 1):
            break
        excess -= segment.size
        expired.append(segment)
        start = max(start, segment.end_offset + 1)
    return Expiry([*unfinished, *expired], start)
