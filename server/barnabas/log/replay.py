"""Replays batches of a log into derived state: producers, and the index of aborted transactions.

The rule: in the order of the log, each batch once; the batch was checked when it was appended.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from barnabas.errors import lacks_room
from barnabas.log.config import UNBOUNDED
from barnabas.log.format import names
from barnabas.log.format.txn_index import AbortedTransaction
from barnabas.log.producers import CompletedTransaction, ProducerState, is_end_marker
from barnabas.log.scan import read_marker
from barnabas.log.segment import Segment
from barnabas.log.snapshots import ProducerSnapshots
from barnabas.records.batch import BatchHeader
from barnabas.records.errors import RecordsError

log = logging.getLogger(__name__)


def load_producers(
    segments: Sequence[Segment],
    producers: ProducerState,
    snapshots: ProducerSnapshots,
    log_start_offset: int,
    end_offset: int,
    now_ms: int,
) -> None:
    """Bring the producers' state to `end_offset`, from the newest good snapshot and the log after it. Raises OSError."""
    if producers.end_offset == end_offset:
        return
    snapshots.load(producers, log_start_offset, end_offset, now_ms)
    try:
        replay_producers(segments, producers, end_offset)
    except RecordsError as error:
        log.warning(
            "the producers of %s are known up to a damaged batch only: %s", snapshots.directory, error
        )
        producers.end_offset = end_offset


def replay_producers(segments: Sequence[Segment], producers: ProducerState, end_offset: int) -> None:
    """Replay the batches between the producers' end offset and `end_offset`. Raises OSError, RecordsError."""
    for n, segment in enumerate(segments):
        next_base = segments[n + 1].base_offset if n + 1 < len(segments) else end_offset
        if next_base <= producers.end_offset or segment.base_offset >= end_offset or not segment.size:
            continue
        batch = segment.find(max(producers.end_offset, segment.base_offset))
        if batch is None:
            continue
        for position, header in segment.headers(batch[0]):
            if header.next_offset > end_offset:
                break
            replay_batch(segment, position, header, producers)
    producers.end_offset = end_offset


def replay_batch(
    segment: Segment, position: int, header: BatchHeader, producers: ProducerState
) -> AbortedTransaction | None:
    """Replay one batch; returns the entry for the transaction index if it aborts a transaction.

    Raises OSError, RecordsError.
    """
    if header.producer_id < 0:
        return None
    if not is_end_marker(header):
        producers.append(header)
        return None
    marker = read_marker(segment.file, position, header)
    completed = producers.append_marker(header, marker) if marker else None
    return aborted_entry(completed, producers) if completed and completed.is_aborted else None


def aborted_entry(completed: CompletedTransaction, producers: ProducerState) -> AbortedTransaction:
    """Return the transaction index entry of a transaction that has just aborted."""
    undecided = producers.first_undecided_offset
    last_stable_offset = completed.last_offset + 1 if undecided is None else undecided
    return AbortedTransaction(
        completed.producer_id, completed.first_offset, completed.last_offset, last_stable_offset
    )


def rebuild_txn_index(segments: Sequence[Segment], damaged: Segment, snapshots: ProducerSnapshots) -> None:
    """Rebuild the transaction index of one segment from its batches. Raises OSError, RecordsError."""
    log.warning("rebuilding the transaction index of %s", damaged.path(names.LOG))
    producers = ProducerState(expiration_ms=UNBOUNDED)
    snapshots.peek(producers, segments[0].base_offset, damaged.base_offset)
    replay_producers(segments, producers, damaged.base_offset)
    aborted = []
    for position, header in damaged.headers():
        entry = replay_batch(damaged, position, header, producers)
        if entry is not None:
            aborted.append(entry)
    try:
        damaged.set_aborted(aborted)
    except OSError as error:
        if not lacks_room(error):
            raise
        log.warning("no room for the transaction index of %s: %s", damaged.path(names.LOG), error)
