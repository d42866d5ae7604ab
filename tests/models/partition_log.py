"""A partition's log on one broker by Kafka's rules, as short as they can be said.

Written from those rules (KIP-101, KIP-107, KIP-207, KIP-320, KIP-734), and without any code of the broker's. A log is a
list of segments, each a list of batches; all questions are answered by going over them. Producers that repeat themselves or
break rules have a model of their own (`tests.models.producers`); here they do as they should. Times are in ms.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.models.transactions import refuse_unless

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
NOWHERE = (-1, -1, -1)
AFTER_MAX_MS = 3_600_000
"""So far ahead of the clock a record's timestamp may be."""


class Batch(NamedTuple):
    """A batch: offset of its first record, timestamps, leader epoch, bytes."""

    base: int
    timestamps: tuple[int, ...]
    epoch: int
    size: int

    @property
    def next_offset(self) -> int:
        return self.base + len(self.timestamps)


@dataclass
class Segment:
    """A file of the log; it begins at offset `base`, also if nothing is in it yet."""

    base: int
    batches: list[Batch] = field(default_factory=list)

    @property
    def size(self) -> int:
        return sum(batch.size for batch in self.batches)

    @property
    def latest_ms(self) -> int:
        return max((max(batch.timestamps) for batch in self.batches), default=-1)


@dataclass
class Transaction:
    """A transaction as its data in the log tell: where its batches begin, how many records they have, and its end marker.

    `held` are those of its batches that the last stable offset may have to wait for. Where what is known of producers was
    read again, it may be in doubt which; and with the first records deleted (`is_cut`), also where the transaction began.
    """

    bases: list[int]
    held: list[int]
    counts: list[int]
    end: int | None = None
    is_commit: bool = False
    is_doubtful: bool = False
    is_cut: bool = False

    @property
    def count(self) -> int:
        """Number of records in it: the sequence number of the next one."""
        return sum(self.counts)


@dataclass(frozen=True)
class Settings:
    """The settings of the topic that the log obeys; -1 for no limit."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 86_400_000
    retention_bytes: int = -1
    retention_ms: int = -1
    max_message_bytes: int = 1 << 20
    is_append_time: bool = False
    is_deleted: bool = True


class PartitionLog:
    """A replica's log, which also says whether it leads, and in which epoch."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.segments = [Segment(0)]
        self.start = self.end = self.high_watermark = self.recovery_point = 0
        self.checkpointed = (0, 0, 0)
        self.noted_epochs: list[tuple[int, int]] = []
        self.transactions: dict[int, Transaction] = {}
        self.leads = False
        self.leader_epoch = self.epoch_start = -1

    def batches(self) -> Iterator[Batch]:
        for segment in self.segments:
            yield from segment.batches

    # --- roles ----------------------------------------------------------------------------------------------

    def become(self, *, leads: bool, leader_epoch: int) -> None:
        self.leads, self.leader_epoch, self.epoch_start = leads, leader_epoch, self.end

    def check(self, current_epoch: int = -1) -> None:
        """Refuse a client that believes in another epoch, or asks a follower."""
        refuse_unless(current_epoch == -1 or current_epoch >= self.leader_epoch, "FENCED_LEADER_EPOCH")
        refuse_unless(current_epoch <= self.leader_epoch, "UNKNOWN_LEADER_EPOCH")
        refuse_unless(self.leads, "NOT_LEADER_OR_FOLLOWER")

    # --- leader epochs --------------------------------------------------------------------------------------

    @property
    def epochs(self) -> list[tuple[int, int]]:
        """Each epoch with its first offset; a leader's own begins at the end of the log until something is in it."""
        return with_epoch(self.noted_epochs, self.leader_epoch, self.end) if self.leads else self.noted_epochs

    def epoch_end(self, epoch: int, current_epoch: int = -1) -> tuple[int, int]:
        """Answer OffsetForLeaderEpoch: the largest epoch up to this one, and where the next one begins."""
        self.check(current_epoch)
        later = [start for started, start in self.epochs if started > epoch]
        earlier = [started for started, _ in self.epochs if started <= epoch]
        if epoch == self.leader_epoch:
            return epoch, self.end
        if epoch < 0 or not later:
            return -1, -1
        return max(earlier, default=epoch), later[0]

    # --- appending ------------------------------------------------------------------------------------------

    def produce(
        self, timestamps: tuple[int, ...], size: int, now_ms: int, *, is_index_full: bool = False
    ) -> int:
        """Append a producer's batch as the leader; return its first offset."""
        self.check()
        settings = self.settings
        refuse_unless(size <= settings.max_message_bytes, "MESSAGE_TOO_LARGE")
        refuse_unless(
            settings.is_append_time or max(timestamps) <= now_ms + AFTER_MAX_MS, "INVALID_TIMESTAMP"
        )
        refuse_unless(size <= settings.segment_bytes, "RECORD_LIST_TOO_LARGE")
        times = (now_ms,) * len(timestamps) if settings.is_append_time else timestamps
        self.append([Batch(self.end, times, self.leader_epoch, size)], is_index_full=is_index_full)
        return self.end - len(timestamps)

    def append(self, batches: list[Batch], *, is_index_full: bool = False) -> None:
        """Append batches that came together, as a follower does: they go into one segment, with offsets as they are."""
        segment = self.segments[-1]
        size, latest_ms = (
            sum(batch.size for batch in batches),
            max(max(batch.timestamps) for batch in batches),
        )
        if segment.batches and (
            is_index_full
            or segment.size + size > self.settings.segment_bytes
            or latest_ms - max(segment.batches[0].timestamps) > self.settings.segment_ms
        ):
            segment = Segment(batches[0].base)
            self.segments.append(segment)
        for batch in batches:
            if not self.noted_epochs or self.noted_epochs[-1][0] != batch.epoch:
                self.noted_epochs = with_epoch(self.noted_epochs, batch.epoch, batch.base)
        segment.batches += batches
        self.end = batches[-1].next_offset

    def note_transactional(self, producer: int, base: int, count: int) -> None:
        """Note that the batch at `base` is part of the producer's transaction, which it may have begun."""
        txn = self.transactions.setdefault(producer, Transaction([], [], []))
        txn.bases.append(base)
        txn.counts.append(count)
        txn.held.append(base)

    def note_end(self, producer: int, base: int, *, is_commit: bool) -> None:
        """Note that the batch at `base` is the marker that ends the producer's transaction."""
        txn = self.transactions[producer]
        txn.end, txn.is_commit = base, is_commit

    def roll(self) -> None:
        if self.segments[-1].batches:
            self.segments.append(Segment(self.end))

    # --- how far readers may see ----------------------------------------------------------------------------

    def commit(self, offset: int) -> None:
        """All in-sync replicas have what is before `offset`; the high watermark never goes back."""
        self.high_watermark = max(self.high_watermark, min(offset, self.end))

    def first_unstable(self) -> list[int]:
        """Return the first offset of each transaction that is open, or has an end that is not committed."""
        return [
            max(min(txn.held), self.start)
            for txn in self.transactions.values()
            if txn.held and (txn.end is None or txn.end >= self.high_watermark)
        ]

    @property
    def last_stable_offset(self) -> int:
        return min([self.high_watermark, *self.first_unstable()])

    def resolve(self, last_stable_offset: int) -> None:
        """Let the log say what it knows of doubtful transactions: none holds back what is stable."""
        for txn in self.transactions.values():
            if txn.is_doubtful:
                txn.held = [base for base in txn.held if max(base, self.start) >= last_stable_offset]

    def aborted(self, offset: int, upper: int) -> tuple[set[tuple[int, int]], set[tuple[int, int]]]:
        """Return the aborted transactions that a reader from `offset` up to `upper` must be told, and those it may be."""
        ended = {
            producer: txn
            for producer, txn in self.transactions.items()
            if txn.end is not None and not txn.is_commit and txn.end >= offset
        }
        must = {
            (producer, txn.bases[0])
            for producer, txn in ended.items()
            if txn.bases[0] < upper and not txn.is_cut
        }
        return must, {(producer, base) for producer, txn in ended.items() for base in txn.bases}

    def read(
        self, offset: int, max_bytes: int, level: str, *, is_first_whole: bool
    ) -> tuple[list[Batch], int]:
        """Return the batches of one segment that are read from `offset` on, and how many bytes of them.

        `level`: read_committed, read_uncommitted, or "all" for a follower. The first batch comes whole, also if it is
        larger than `max_bytes`, where that is asked for; the last one may be cut off.
        """
        self.check()
        refuse_unless(self.start <= offset <= self.end, "OFFSET_OUT_OF_RANGE")
        upper = {
            "read_committed": self.last_stable_offset,
            "read_uncommitted": self.high_watermark,
            "all": self.end,
        }[level]
        for segment in self.segments:
            batches = [batch for batch in segment.batches if batch.next_offset > offset]
            if offset < upper and batches:
                batches = [batch for batch in batches if batch.base < upper]
                size = sum(batch.size for batch in batches)
                least = batches[0].size if batches and is_first_whole else 0
                return batches, min(size, max(max_bytes, least))
        return [], 0

    def list_offset(
        self, timestamp: int, current_epoch: int = -1, *, reads_committed: bool
    ) -> tuple[int, int, int]:
        """Answer ListOffsets: timestamp, offset and leader epoch, each -1 where there is none."""
        self.check(current_epoch)
        is_behind = self.epoch_start > self.high_watermark
        upper = self.last_stable_offset if reads_committed else self.high_watermark
        if timestamp == EARLIEST:
            return -1, self.start, max((epoch for epoch, at in self.epochs if at <= self.start), default=-1)
        if timestamp == LATEST:
            refuse_unless(not is_behind, "OFFSET_NOT_AVAILABLE")
            return -1, upper, self.leader_epoch
        place = self.find_max() if timestamp == MAX_TIMESTAMP else self.find(timestamp)
        if place[1] < 0 or place[1] >= upper:
            refuse_unless(not is_behind, "OFFSET_NOT_AVAILABLE")
            return NOWHERE
        return place

    def find(self, timestamp: int) -> tuple[int, int, int]:
        """Find the first record that is not deleted and not older than this."""
        return next(
            (
                (ms, batch.base + n, batch.epoch)
                for batch in self.batches()
                for n, ms in enumerate(batch.timestamps)
                if ms >= timestamp and batch.base + n >= self.start
            ),
            NOWHERE,
        )

    def find_max(self) -> tuple[int, int, int]:
        """Find the first record with the largest timestamp, in all that is on the disk: deleted ones count too."""
        latest_ms = max((segment.latest_ms for segment in self.segments), default=-1)
        return next(
            (
                (ms, batch.base + n, batch.epoch)
                for batch in self.batches()
                for n, ms in enumerate(batch.timestamps)
                if ms == latest_ms
            ),
            NOWHERE,
        )

    # --- deleting -------------------------------------------------------------------------------------------

    def delete_records(self, offset: int) -> int:
        """Answer DeleteRecords (-1: all that is committed) with the offset at which the log begins then."""
        self.check()
        refuse_unless(self.settings.is_deleted, "POLICY_VIOLATION")
        offset = self.high_watermark if offset == -1 else offset
        refuse_unless(0 <= offset <= self.high_watermark, "OFFSET_OUT_OF_RANGE")
        self.begin_at(offset)
        return self.start

    def begin_at(self, offset: int) -> None:
        if offset > self.start:
            self.start = offset
            self.noted_epochs = epochs_from(self.noted_epochs, offset)

    def retain(self, now_ms: int) -> None:
        """Delete segments, the oldest first, as long as it is due and all of its records are committed."""
        while True:
            oldest, *rest = self.segments
            end = rest[0].base if rest else self.end
            if end > self.high_watermark or not (rest or oldest.batches):
                return
            settings = self.settings
            size = sum(segment.size for segment in self.segments)
            is_unread = bool(rest) and end <= self.start
            is_over_size = 0 <= settings.retention_bytes <= size - oldest.size
            is_too_old = 0 <= settings.retention_ms < now_ms - oldest.latest_ms
            if not (is_unread or (settings.is_deleted and (is_over_size or is_too_old))):
                return
            self.segments = rest or [Segment(self.end)]
            self.begin_at(end)

    # --- truncation and restart -----------------------------------------------------------------------------

    def truncate(self, offset: int) -> None:
        """Drop `offset` and all after it: the leader has something else there."""
        if offset >= self.end:
            return
        if offset < self.segments[0].base:
            self.restart_at(offset)
            return
        self.segments = [segment for segment in self.segments if segment.base < offset] or self.segments[:1]
        for segment in self.segments:
            segment.batches = [batch for batch in segment.batches if batch.base < offset]
        self.noted_epochs = [entry for entry in self.noted_epochs if entry[1] < offset]
        self.end_at(offset)
        self.reload()

    def restart_at(self, offset: int) -> None:
        """Drop everything, and begin with nothing at this offset."""
        self.segments, self.noted_epochs, self.transactions = [Segment(offset)], [], {}
        self.end_at(offset)
        self.start = self.high_watermark = offset

    def end_at(self, offset: int) -> None:
        self.end = offset
        self.start = min(self.start, offset)
        self.high_watermark = min(self.high_watermark, offset)
        self.recovery_point = min(self.recovery_point, offset)

    def flush(self) -> None:
        self.recovery_point = self.end

    def checkpoint(self) -> None:
        """Note how far the log is; its start only where no segment begins there, which says the same."""
        start = self.start if self.start > self.segments[0].base else 0
        self.checkpointed = (start, self.high_watermark, self.recovery_point)

    def restart(self, *, clean: bool) -> None:
        """Stop and start again, or be killed: then only checkpoints tell where the log began and what was committed."""
        if clean:
            self.flush()
            self.checkpoint()
        start, high_watermark, recovery_point = self.checkpointed
        self.leads = False
        last = self.segments[-1]
        self.end = last.batches[-1].next_offset if last.batches else last.base  # a gap at the end is not kept
        if self.end < start:
            self.restart_at(start)
        self.start = max(start, self.segments[0].base)
        self.high_watermark = min(max(high_watermark, self.start), self.end)
        self.recovery_point = min(recovery_point, self.end)
        if not clean:
            self.note_epochs_again(recovery_point)
        self.noted_epochs = epochs_from([row for row in self.noted_epochs if row[1] < self.end], self.start)
        self.reload()

    def note_epochs_again(self, recovery_point: int) -> None:
        """Read the epochs of all that may not have been flushed: the segment of the recovery point, and those after it."""
        checked = [segment for segment in self.segments[1:] if segment.base > recovery_point]
        for segment in self.segments[-len(checked) - 1 :]:
            for batch in segment.batches:
                if not self.noted_epochs or batch.epoch > self.noted_epochs[-1][0]:
                    self.noted_epochs = with_epoch(self.noted_epochs, batch.epoch, batch.base)

    def reload(self) -> None:
        """Read again what producers wrote: of what is deleted nothing may be known, nor that an end is not committed."""
        for producer, txn in [*self.transactions.items()]:
            txn.bases = [base for base in txn.bases if base < self.end]
            txn.counts = txn.counts[: len(txn.bases)]
            txn.held = txn.bases[:]
            if txn.end is not None and txn.end >= self.end:
                txn.end = None
            txn.is_cut |= any(base < self.start for base in txn.bases)
            txn.is_doubtful |= txn.is_cut or (txn.end is not None and txn.end >= self.high_watermark)
            if not txn.bases:
                del self.transactions[producer]


def with_epoch(epochs: list[tuple[int, int]], epoch: int, start: int) -> list[tuple[int, int]]:
    """Add an epoch; those that contradict it go: newer ones, and those that begin where it does or later."""
    if epochs and epochs[-1][0] == epoch:
        return epochs
    return [*(entry for entry in epochs if entry[0] < epoch and entry[1] < start), (epoch, start)]


def epochs_from(epochs: list[tuple[int, int]], start: int) -> list[tuple[int, int]]:
    """Forget the epochs before `start`, where the one of that offset begins now."""
    before = [epoch for epoch, at in epochs if at <= start]
    return [(epoch, start) for epoch in before[-1:]] + [entry for entry in epochs if entry[1] > start]
