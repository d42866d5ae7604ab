"""Slips in the code of a log, each of which the comparison with the model must notice."""

from __future__ import annotations

from barnabas.cluster.replicas import epoch_ends
from barnabas.cluster.replicas.replica import Replica
from barnabas.handlers import list_offsets
from barnabas.log import readable, retention, timestamps
from barnabas.log.epochs import LeaderEpochs
from barnabas.log.partition_log import PartitionLog
from barnabas.log.segments import Segments


def _read_as_leader(self, offset, **named):
    if offset > self.log_end_offset:
        return _read(self, self.log_end_offset, **named)
    return _read(self, offset, **named)


def _one_segment_too_many(candidates, retention_ms, now_ms):
    too_old = [old for old in candidates if now_ms - old.largest_timestamp_ms() > retention_ms >= 0]
    return len(too_old)


def _down_to_the_limit_or_below(candidates, segments, retention_bytes):
    excess = sum(segment.size for segment in segments) - retention_bytes
    return 0 if retention_bytes < 0 else sum(excess > 0 for excess in _excesses(candidates, excess))


def _excesses(candidates, excess):
    for candidate in candidates:
        yield excess
        excess -= candidate.size


def _whole_log(segments, *, high_watermark, **arguments):
    return _plan(segments, high_watermark=1 << 60, **arguments)


def _whole_segments(self, offset):
    self._move_start(self.segments[self.store.index_of(offset)].base_offset)
    return self.log_start_offset


def _back_and_forth(self, offset):
    self.high_watermark = min(offset, self.log_end_offset)
    self.producers.on_high_watermark(self.high_watermark)
    self._update_last_stable()
    return True


def _keeps_the_high_watermark(self, offset):
    high_watermark = self.high_watermark
    _truncated(self, offset)
    self.high_watermark = min(high_watermark, max(offset, self.log_start_offset) + 1)


def _epoch_one_too_late(self, end_offset):
    return _from_end(self, end_offset + 1)


def _forgets_the_epoch_of_the_start(self, start_offset):
    kept = [entry for entry in self.entries if entry[1] >= start_offset]
    changed = kept != self.entries
    self._epochs, self._starts = [epoch for epoch, _ in kept], [start for _, start in kept]
    return changed


def _next_epoch_below(self, epoch, log_end_offset):
    found_epoch, end = _end_offset_for(self, epoch, log_end_offset)
    return (epoch if found_epoch >= 0 else found_epoch), end


_read = PartitionLog.read
_plan = retention.plan_retention
_truncated = PartitionLog._truncated
_from_end = LeaderEpochs.truncate_from_end
_end_offset_for = LeaderEpochs.end_offset_for

SLIPS = {
    "a read after the end brings nothing": (PartitionLog, "read", _read_as_leader),
    "young segments among old ones go too": (retention, "_count_too_old", _one_segment_too_many),
    "retention goes below its size": (retention, "_count_over_size", _down_to_the_limit_or_below),
    "retention deletes what is not committed": (retention, "plan_retention", _whole_log),
    "only whole segments are deleted": (PartitionLog, "delete_records_before", _whole_segments),
    "the high watermark goes back": (PartitionLog, "advance_high_watermark", _back_and_forth),
    "a truncation leaves the high watermark": (PartitionLog, "_truncated", _keeps_the_high_watermark),
    "a truncation leaves an epoch": (LeaderEpochs, "truncate_from_end", _epoch_one_too_late),
    "the epoch of the log start is forgotten": (
        LeaderEpochs, "truncate_from_start", _forgets_the_epoch_of_the_start,
    ),
    "an unknown epoch is taken for a known one": (LeaderEpochs, "end_offset_for", _next_epoch_below),
    "a leader does not know its own epoch": (epoch_ends, "_epochs", lambda replica: replica.log.epochs),
    "a client's epoch is not checked": (Replica, "check_leader_epoch", lambda self, epoch: None),
    "a new leader knows what is committed": (
        Replica, "is_high_watermark_behind", property(lambda self: False),
    ),
    "a time is looked for in what is deleted": (
        readable, "find_timestamp_steps", lambda live, ms, _, *more: timestamps.find_timestamp_steps(live, ms, 0, *more),
    ),
    "read_committed is not asked for": (
        list_offsets, "_upper", lambda partition, request: partition.log.high_watermark,
    ),
    "an old segment is never rolled": (Segments, "_waited_ms", lambda self, timestamp, now_ms: 0),
}  # fmt: skip
