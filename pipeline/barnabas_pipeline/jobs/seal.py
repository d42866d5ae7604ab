"""Completeness of hours: all records appended before an hour's end, and for a while after it, are loaded.

The rule: completeness is a statement about the log, not about the next record. An idle topic closes its hours by the clock,
since its log then ends before the time in question.
"""

from __future__ import annotations

from barnabas_pipeline.lake.ledger import HOUR_MS, State, hour_name
from barnabas_pipeline.log.model import Bounds, Log

IDLE_HOURS_MAX = 7 * 24  # empty hours that an audit closes after the last hour with rows


def sealable_hours(
    log: Log, bounds: dict[int, Bounds], state: State, *, now_ms: int, lateness_ms: int
) -> list[str]:
    """Return the complete hours that are not sealed, from the first hour with rows, including empty hours in between.

    An hour is complete if every partition was loaded up to the first record with a timestamp of its end plus `lateness_ms`;
    without such a record, if all records were loaded and the clock has passed that time.
    """
    hours = state.hours
    if not hours:
        return []
    sealed = []
    everything = all(state.ends.get(partition, -1) >= bound.end for partition, bound in bounds.items())
    last = max(hours)
    if everything:
        last = max(last, min(last + IDLE_HOURS_MAX, (now_ms - lateness_ms) // HOUR_MS - 1))
    for hour in range(min(hours), last + 1):
        if hour in state.sealed:
            continue
        if not _is_complete(log, bounds, state, (hour + 1) * HOUR_MS + lateness_ms, now_ms):
            break
        sealed.append(hour_name(hour))
    return sealed


def _is_complete(log: Log, bounds: dict[int, Bounds], state: State, time_ms: int, now_ms: int) -> bool:
    for partition, bound in bounds.items():
        loaded = state.ends.get(partition, -1)
        offset = log.offset_for_time(partition, time_ms)
        if offset is None:
            if loaded < bound.end or now_ms < time_ms:
                return False
        elif offset > loaded:
            return False
    return True
