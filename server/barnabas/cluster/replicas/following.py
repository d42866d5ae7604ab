"""Applies a leader's responses to the follower's log: append, truncate, move the high watermark.

The rule: after each response the log is a prefix of the leader's, or nearer to it; leader epochs determine the point of
truncation, never the follower's former high watermark (`replication.follower`). The requests to the leader: `fetching`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from barnabas.cluster.replication.follower import EpochEnd, follower_high_watermark, out_of_range, truncation
from barnabas.cluster.replication.roles import Role
from barnabas.log.format import names
from barnabas.records.batch import LENGTH_OFFSET, LOG_OVERHEAD

if TYPE_CHECKING:
    from barnabas.cluster.replicas.replica import Replica
    from barnabas.log.tiered_start import TieredStart

log = logging.getLogger(__name__)

SLICE_BYTES = 256 << 10
SLICE_BATCHES = 100
"""Bytes and batches of a leader's answer that are appended at a time: well under a millisecond's work."""


class FetchPosition(NamedTuple):
    """Position of one partition as a follower names it in a Fetch request."""

    fetch_offset: int
    last_fetched_epoch: int
    """-1 where nothing was fetched yet."""
    current_leader_epoch: int
    log_start_offset: int


class Fetched(NamedTuple):
    """Answer of the leader for one partition, where that is no error."""

    records: bytes | bytearray | memoryview
    high_watermark: int
    log_start_offset: int
    diverging_epoch: EpochEnd | None = None


def slices(records: bytes | bytearray | memoryview) -> Iterator[memoryview]:
    """Split a leader's batches into pieces that can be appended quickly; at least one, possibly empty.

    A partial batch at the end is in the last piece.
    """
    view, start, at, count, end = memoryview(records), 0, 0, 0, len(records)
    while end - at >= LOG_OVERHEAD:
        size = LOG_OVERHEAD + int.from_bytes(view[at + LENGTH_OFFSET : at + LOG_OVERHEAD], "big")
        if not LOG_OVERHEAD <= size <= end - at:
            break
        at += size
        count += 1
        if (at - start >= SLICE_BYTES or count >= SLICE_BATCHES) and at < end:
            yield view[start:at]
            start, count = at, 0
    yield view[start:]


class FollowerLog:
    """Applies the leader's responses in one leader epoch; created when a replica begins to follow.

    Its methods return False, and do nothing, once the replica has another leader, another epoch or another role: the
    response is too late. They raise StorageError when the disk fails, and CorruptRecordsError for damaged records.
    """

    def __init__(self, replica: Replica, now_ms: Callable[[], int]) -> None:
        """Raises StorageError. `now_ms` is the wall clock."""
        assert replica.role is Role.FOLLOWER, replica
        self.replica = replica
        self._leader_epoch = replica.leader_epoch
        self._now_ms = now_ms
        if replica.log.epochs.latest < 0:
            # only the high watermark shows what the log shares with the leader's
            self._truncate(replica.log.high_watermark)

    @property
    def is_current(self) -> bool:
        """True while the replica follows in the leader epoch for which this was created."""
        return self.replica.role is Role.FOLLOWER and self.replica.leader_epoch == self._leader_epoch

    @property
    def position(self) -> FetchPosition:
        """Position to ask the leader for next."""
        own = self.replica.log
        return FetchPosition(own.log_end_offset, own.epochs.latest, self._leader_epoch, own.log_start_offset)

    def fetched(self, asked: FetchPosition, answer: Fetched) -> bool:
        """Append the leader's records for `asked`, or truncate if it reports that the logs diverge."""
        own = self.replica.log
        if not self.is_current or asked.fetch_offset != own.log_end_offset:
            return False
        if answer.diverging_epoch is not None:
            self.diverged(answer.diverging_epoch)
            return True
        self._begin_with(answer.records)
        result = own.append_as_follower(answer.records, now_ms=self._now_ms())
        high_watermark = own.high_watermark
        self.replica.replicated(
            result, follower_high_watermark(answer.high_watermark, own.log_end_offset, high_watermark)
        )
        self._begin_at(answer.log_start_offset)
        return True

    def diverged(self, leader: EpochEnd) -> bool:
        """Truncate to the end of one leader epoch, as reported by the leader; returns whether the logs agree then.

        `leader` is from a Fetch response, or the response to OffsetForLeaderEpoch for `position.last_fetched_epoch`.
        """
        if not self.is_current:
            return False
        own = self.replica.log
        cut = truncation(
            leader,
            lambda epoch: EpochEnd(*own.end_offset_for_epoch(epoch)),
            log_end_offset=own.log_end_offset,
            high_watermark=own.high_watermark,
        )
        self._truncate(cut.offset)
        return cut.is_final

    def out_of_range(self, *, leader_start_offset: int, leader_end_offset: int) -> bool:
        """Resume after OFFSET_OUT_OF_RANGE, with the leader's log start and log end from ListOffsets."""
        if not self.is_current:
            return False
        own = self.replica.log
        go_on = out_of_range(
            log_end_offset=own.log_end_offset,
            leader_start_offset=leader_start_offset,
            leader_end_offset=leader_end_offset,
        )
        if go_on.truncates_to is not None:
            self._truncate(go_on.truncates_to)
        if go_on.restarts_at is not None:
            log.warning(
                "%s ended at %d, before the leader's first offset %d: it begins there now",
                own.name, own.log_end_offset, go_on.restarts_at,
            )  # fmt: skip
            own.truncate_fully_and_start_at(go_on.restarts_at)
        return True

    def begin_after_tier(self, start: TieredStart) -> bool:
        """Drop all local records, and restart after the records in tiered storage."""
        own = self.replica.log
        if not self.is_current or not own.is_tiered or own.log_end_offset >= start.offset:
            return False
        log.log(
            logging.WARNING if own.size_bytes else logging.INFO,
            "%s ended at %d: it begins at %d now, after what is in tiered storage from %d on",
            own.name, own.log_end_offset, start.offset, start.log_start_offset,
        )  # fmt: skip
        own.begin_after_tier(start, now_ms=self._now_ms())
        self.replica.growth.restart(own.log_end_offset, 0)
        self.replica.subscribers.role_changed(self.replica)
        return True

    def _truncate(self, offset: int) -> None:
        own = self.replica.log
        start, end, high_watermark = own.log_start_offset, own.log_end_offset, own.high_watermark
        if offset <= start < high_watermark:
            own.truncate_fully_and_start_at(offset, keeps=True)
            log.error(
                "%s: its leader has none of its records in leader epoch %d, though they were committed up to offset %d. "
                "They are kept as %s/*%s*, and nothing removes them",
                own.name, self._leader_epoch, high_watermark, own.dir, names.TRUNCATED,
            )  # fmt: skip
        elif own.truncate_to(offset, now_ms=self._now_ms()):
            log.info(
                "%s: truncated from %d to %d in leader epoch %d", own.name, end, offset, self._leader_epoch
            )
            if offset < high_watermark:
                log.warning("%s: truncated below its high watermark %d", own.name, high_watermark)

    def _begin_with(self, records: bytes | bytearray | memoryview) -> None:
        """Start an empty log with the batch that contains its start, which the leader sends completely."""
        own = self.replica.log
        if own.log_start_offset != own.log_end_offset or len(records) < LOG_OVERHEAD:
            return
        base_offset = int.from_bytes(records[:LENGTH_OFFSET], "big")
        if base_offset < own.log_end_offset:
            own.truncate_fully_and_start_at(base_offset)

    def _begin_at(self, leader_start_offset: int) -> None:
        """Raise the log start to the leader's, up to the high watermark here."""
        own = self.replica.log
        if own.log_start_offset < leader_start_offset <= own.high_watermark:
            own.delete_records_before(leader_start_offset)
