"""Truncation of a follower's log so that it becomes a prefix of its leader's (KIP-101, KIP-279, KIP-595). Pure.

The rule: leader epochs, never its high watermark, determine the records that a follower shares with a new leader. It
requests the end of its own latest epoch, then of earlier ones, until both have the same epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

UNDEFINED_EPOCH = -1
UNDEFINED_EPOCH_OFFSET = -1


class EpochEnd(NamedTuple):
    """The largest leader epoch up to the requested one, and the offset after its last record. Both are -1 if unknown."""

    epoch: int
    end_offset: int


class Truncation(NamedTuple):
    """Offset to truncate to; the logs agree then if it is final, otherwise the follower asks again."""

    offset: int
    is_final: bool


EndOffsetForEpoch = Callable[[int], EpochEnd]
"""Answers for the follower's own log, as OffsetForLeaderEpoch does for the leader's."""


def truncation(
    leader: EpochEnd, own_end_for_epoch: EndOffsetForEpoch, *, log_end_offset: int, high_watermark: int
) -> Truncation:
    """Return the offset to truncate to, given the leader's end of the follower's latest epoch.

    `leader` is the answer to OffsetForLeaderEpoch for that epoch, or the diverging epoch of a Fetch response.
    """
    if leader.end_offset == UNDEFINED_EPOCH_OFFSET:
        # The leader knows no epoch so old: only the high watermark is left to go by.
        return Truncation(min(high_watermark, log_end_offset), is_final=True)
    if leader.epoch == UNDEFINED_EPOCH:
        # A leader that tells no epoch (OffsetForLeaderEpoch v0).
        return Truncation(min(leader.end_offset, log_end_offset), is_final=True)
    own = own_end_for_epoch(leader.epoch)
    if own.epoch == UNDEFINED_EPOCH:
        # All of our epochs are newer than the leader's.
        return Truncation(min(leader.end_offset, log_end_offset), is_final=True)
    if own.epoch != leader.epoch:
        # the log lacks the leader's epoch: truncate the epochs after the one before it, and ask for that one
        return Truncation(min(own.end_offset, log_end_offset), is_final=False)
    return Truncation(min(own.end_offset, leader.end_offset, log_end_offset), is_final=True)


class OutOfRange(NamedTuple):
    """Next step of a follower with an out-of-range fetch offset: where to resume, and which records are lost."""

    fetch_offset: int
    truncates_to: int | None
    """Truncate the log to this offset."""
    restarts_at: int | None
    """Give up the whole log and start at this offset."""


def out_of_range(*, log_end_offset: int, leader_start_offset: int, leader_end_offset: int) -> OutOfRange:
    """Return how a follower resumes after OFFSET_OUT_OF_RANGE.

    Its log is longer than the leader's after an unclean election, or so old that the leader has deleted the next
    records.
    """
    if leader_end_offset < log_end_offset:
        return OutOfRange(leader_end_offset, truncates_to=leader_end_offset, restarts_at=None)
    if leader_start_offset > log_end_offset:
        return OutOfRange(leader_start_offset, truncates_to=None, restarts_at=leader_start_offset)
    return OutOfRange(log_end_offset, truncates_to=None, restarts_at=None)


def follower_high_watermark(leader_high_watermark: int, log_end_offset: int, high_watermark: int) -> int:
    """Return the follower's high watermark after a fetch: the leader's, at most its own log end; it never falls."""
    return max(high_watermark, min(leader_high_watermark, log_end_offset))
