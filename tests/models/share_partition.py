"""The records of one partition for a share group (KIP-932, with KIP-1206 and KIP-1222), each by itself.

Written from Kafka's rules, and without any code of the broker's. What is known is one `Record` for each offset from the
start offset to the end of what was handed out; a fetch, an acknowledgement and a lock that ends are said record by record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import NamedTuple

from tests.models.transactions import RefusedError, refuse_unless

AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVED = 0, 1, 2, 4
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
TARGETS = {GAP: ARCHIVED, ACCEPT: ACKNOWLEDGED, RELEASE: AVAILABLE, REJECT: ARCHIVED}
NO_LIMIT = 1 << 62

Span = tuple[int, int]
"""First and last offset."""
Saved = dict[int, tuple[int, int]]
"""State and deliveries by offset."""


class Acknowledgement(NamedTuple):
    """Offsets `first` to `last`, and a type for each of them or one for all."""

    first: int
    last: int
    types: tuple[int, ...]


class Write(NamedTuple):
    """A write to the share coordinator: the start offset, how many after it are complete, the records that changed."""

    start: int
    complete: int
    changed: Saved
    are_decided: bool = True
    """True if the records wait for it; those with ended locks do not."""


@dataclass
class Record:
    """One offset. `batch` are the offsets that it was handed out with first, `target` the state that is being written."""

    state: int
    deliveries: int
    batch: Span
    member: str = ""
    due_ms: int = 0
    target: int | None = None

    @property
    def is_locked(self) -> bool:
        return self.state == ACQUIRED and self.target is None

    @property
    def is_complete(self) -> bool:
        return (self.state if self.target is None else self.target) >= ACKNOWLEDGED


@dataclass
class SharePartition:
    """One share partition; `saved` is what the share coordinator knows of it, from `start` on."""

    start: int
    saved: Saved
    deliveries_max: int
    lock_ms: int
    window: int
    may_renew: bool = True
    records: dict[int, Record] = field(default_factory=dict)
    lost: dict[int, Record] = field(default_factory=dict)
    """Acquired records that the log has lost: when they are freed that is written, and with it the start offset."""

    def __post_init__(self) -> None:
        """Between what was saved nothing was delivered; after it nothing is known."""
        for first, last in runs(self.saved):
            self.append(first - 1, AVAILABLE)
            state, deliveries = self.saved[first]
            for offset in range(first, last + 1):
                self.records[offset] = Record(state, deliveries, (first, last))
        self.advance()

    @property
    def end(self) -> int:
        return max(self.records, default=self.start - 1) + 1

    @property
    def next_offset(self) -> int:
        """The first offset that can be acquired."""
        return next(
            (offset for offset in sorted(self.records) if self.records[offset].state == AVAILABLE), self.end
        )

    def append(self, last: int, state: int) -> None:
        span = (self.end, last)
        self.records.update({offset: Record(state, 0, span) for offset in range(span[0], last + 1)})

    def advance(self) -> None:
        """The start offset moves over what is complete and written."""
        while self.start in self.records:
            record = self.records[self.start]
            if record.target is not None or record.state < ACKNOWLEDGED:
                break
            del self.records[self.start]
            self.start += 1

    # --- acquiring ------------------------------------------------------------------------------------------

    def acquire(
        self, member: str, batches: Sequence[Span], records_max: int, portion: int, now_ms: int, *,
        is_strict: bool, aborted: Sequence[Span],
    ) -> dict[int, int]:  # fmt: skip
        """Give records of these batches of the log, read from the next offset on, to a member; returns the deliveries.

        A whole batch of the log may go beyond `records_max`, unless `is_strict`. Of `aborted` batches nothing is acquired.
        """
        room = self.window - (self.end - self.start)
        last = batches[-1][1] if room > 0 else min(batches[-1][1], self.end - 1)
        count_max = min(records_max, room if room > 0 else self.end - self.next_offset)
        if count_max <= 0 or last < self.start:
            return {}
        for offset in range(self.next_offset, batches[0][0]):  # no longer in the log
            if offset in self.records and self.records[offset].state == AVAILABLE:
                self.records[offset].state = ARCHIVED
        deliveries: list[int] = []
        for is_delivered, offsets in self.stretches(max(batches[0][0], self.start), last):
            if count_max <= 0:
                break
            if is_delivered:
                picked, goes_on = self.again(
                    offsets, count_max if is_strict else NO_LIMIT, count_max, bool(deliveries)
                )
                spans = [(offset, offset) for offset in picked]
            else:
                spans, goes_on = (
                    fresh(offsets[0], offsets[-1], batches, count_max, portion, is_strict=is_strict),
                    True,
                )
            for span in spans:
                self.lock(span, member, now_ms)
                deliveries += range(span[0], span[1] + 1)
                count_max -= span[1] - span[0] + 1
            if not goes_on:
                break
        told = {offset: self.records[offset].deliveries for offset in deliveries}
        for offset in [
            offset for offset in deliveries if any(base <= offset <= end for base, end in aborted)
        ]:
            record = self.records[offset]
            record.state, record.member, record.due_ms = ARCHIVED, "", 0
            del told[offset]
        self.advance()
        return told

    def stretches(self, first: int, last: int) -> Iterator[tuple[bool, list[int]]]:
        """Yield the offsets that were delivered before, and those that were not, by turns."""

        def kind(offset: int) -> tuple[bool, Span | None]:
            record = self.records.get(offset)
            if record is None:
                return False, None
            is_known = record.state != AVAILABLE or record.deliveries > 0
            return is_known, None if is_known else record.batch

        for (is_delivered, _), offsets in groupby(range(first, last + 1), kind):
            yield is_delivered, list(offsets)

    def again(
        self, offsets: list[int], cap: int, count_max: int, is_after_others: bool
    ) -> tuple[list[int], bool]:
        """Return which are delivered again, and if more may come with them.

        What has failed often comes without others: ever smaller parts of its batch, a single record at the last attempt.
        """
        often = max(2, (self.deliveries_max + 1) // 2)
        picked: list[int] = []
        for batch, those in groupby(offsets, lambda offset: self.records[offset].batch):
            if len(picked) >= count_max:
                break
            free = [offset for offset in those if self.records[offset].state == AVAILABLE]
            if not free:
                continue
            is_fragile = max(self.records[offset].deliveries for offset in free) >= often
            if is_fragile and (picked or is_after_others):
                return picked, False
            picked += self.part(free, batch, cap - len(picked), often)
            if is_fragile:
                return picked, False
        return picked, True

    def part(self, free: list[int], batch: Span, cap: int, often: int) -> list[int]:
        taken: list[int] = []
        is_cut = False
        for offset in free:
            deliveries = self.records[offset].deliveries
            if self.deliveries_max > 2 and deliveries == self.deliveries_max - 1:
                return taken or [offset]
            if deliveries >= often and not is_cut:
                cap, is_cut = min(cap, max(1, (batch[1] - batch[0] + 1) >> (deliveries - often + 1))), True
            if len(taken) >= cap:
                break
            taken.append(offset)
        return taken

    def lock(self, span: Span, member: str, now_ms: int) -> None:
        first, last = span
        if first >= self.end:
            if self.records:
                self.append(first - 1, ARCHIVED)
            else:
                self.start = max(self.start, first)
            self.append(last, AVAILABLE)
        for offset in range(first, last + 1):
            record = self.records[offset]
            assert record.state == AVAILABLE
            batch = record.batch if record.deliveries else span
            due_ms = now_ms + self.lock_ms
            self.records[offset] = Record(ACQUIRED, record.deliveries + 1, batch, member, due_ms)

    # --- deciding -------------------------------------------------------------------------------------------

    def acknowledge(
        self,
        member: str,
        acknowledgements: Sequence[Acknowledgement],
        now_ms: int,
        *,
        knows_renew: bool,
        is_renew: bool,
    ) -> Write:
        """Decide on records, all or none; locks that were renewed before a mistake stay renewed."""
        fits = fit_together(acknowledgements, RENEW if knows_renew else REJECT, is_renew=is_renew)
        refuse_unless(fits, "INVALID_REQUEST")
        decided: list[int] = []
        try:
            for acknowledgement in acknowledgements:
                if acknowledgement.last < self.start:
                    continue
                refuse_unless(bool(self.records), "INVALID_RECORD_STATE")
                refuse_unless(acknowledgement.last < self.end, "INVALID_REQUEST")
                for type_, offsets in one_by_one(acknowledgement):
                    there = [offset for offset in offsets if offset >= self.start]
                    for offset in there:
                        record = self.records[offset]
                        refuse_unless(record.is_locked and record.member == member, "INVALID_RECORD_STATE")
                    refuse_unless(not there or type_ != RENEW or self.may_renew, "INVALID_RECORD_STATE")
                    for offset in there:
                        if type_ == RENEW:
                            self.records[offset].due_ms = now_ms + self.lock_ms
                        else:
                            self.records[offset].target = self.unless_exhausted(offset, TARGETS[type_])
                            decided.append(offset)
        except RefusedError:
            for offset in decided:
                self.records[offset].target = None
            raise
        return self.write(decided)

    def unless_exhausted(self, offset: int, target: int) -> int:
        is_exhausted = self.records[offset].deliveries >= self.deliveries_max
        return ARCHIVED if target == AVAILABLE and is_exhausted else target

    def release(self, member: str) -> Write:
        """The member's session is at its end: what it has acquired is to be free."""
        held = {**self.lost, **self.records}
        freed = [offset for offset, record in held.items() if record.is_locked and record.member == member]
        for offset in freed:
            held[offset].target = self.freed(offset)
        return self.write(freed)

    def freed(self, offset: int) -> int:
        return ARCHIVED if offset in self.lost else self.unless_exhausted(offset, AVAILABLE)

    def locks(self) -> list[int]:
        """Return when each lock ends."""
        return [record.due_ms for record in (*self.lost.values(), *self.records.values()) if record.is_locked]

    def expire(self, now_ms: int) -> Write:
        """Locks that are due end at once, whatever becomes of the write."""
        held = {**self.lost, **self.records}
        freed = [offset for offset, record in held.items() if record.is_locked and record.due_ms <= now_ms]
        for offset in freed:
            records = self.lost if offset in self.lost else self.records
            records[offset] = replace(records[offset], state=self.freed(offset), member="", due_ms=0)
        write = self.write(freed)._replace(are_decided=False)
        self.forget_freed()
        return write

    def forget_freed(self) -> None:
        self.lost = {offset: record for offset, record in self.lost.items() if record.state == ACQUIRED}

    def write(self, offsets: Iterable[int]) -> Write:
        changed = {}
        for offset in offsets:
            record = self.lost.get(offset) or self.records[offset]
            changed[offset] = record.state if record.target is None else record.target, record.deliveries
        return Write(self.start, sum(record.is_complete for record in self.records.values()), changed)

    def written(self, write: Write, *, done: bool) -> None:
        """The share coordinator knows it, or does not: then the records are still acquired."""
        for offset in write.changed if write.are_decided else ():
            records = self.lost if offset in self.lost else self.records
            record = records.get(offset)
            if record is None:
                continue
            if done:
                assert record.target is not None
                record = Record(record.target, record.deliveries, record.batch)
            records[offset] = replace(record, target=None)
        self.forget_freed()
        self.advance()

    def log_starts_at(self, offset: int) -> None:
        """Remove all records before the offset, acquired or not."""
        before = {at: record for at, record in self.records.items() if at < offset}
        self.lost |= {at: record for at, record in before.items() if record.state == ACQUIRED}
        self.records = {at: record for at, record in self.records.items() if at >= offset}
        self.start = max(self.start, offset)
        self.advance()


def fresh(
    first: int, last: int, batches: Sequence[Span], count_max: int, portion: int, *, is_strict: bool
) -> list[Span]:
    """Return the portions in which records are delivered for the first time; they end where batches of the log do."""
    if last - first + 1 > count_max:
        cut = first + count_max - 1
        if not is_strict:
            cut = next((end for base, end in batches if base <= cut <= end), cut)
        last = min(last, cut)
    spans: list[Span] = []
    for base, _ in () if is_strict or last - first + 1 <= portion else batches:
        if first + portion <= base <= last:
            spans.append((first, base - 1))
            first = base
    return [*spans, (first, last)]


def fit_together(acknowledgements: Sequence[Acknowledgement], last_type: int, *, is_renew: bool) -> bool:
    """Tell if one partition's acknowledgements make sense together: in order, of types that there are."""
    before = -1
    for acknowledgement in acknowledgements:
        has_types = acknowledgement.types and len(acknowledgement.types) in (
            1,
            acknowledgement.last - acknowledgement.first + 1,
        )
        if acknowledgement.first > acknowledgement.last or acknowledgement.first < before or not has_types:
            return False
        if not all(
            0 <= type_ <= last_type and (is_renew or type_ != RENEW) for type_ in acknowledgement.types
        ):
            return False
        before = acknowledgement.last
    return True


def one_by_one(acknowledgement: Acknowledgement) -> Iterator[tuple[int, list[int]]]:
    """Yield the offsets that have the same type, in order."""
    offsets = range(acknowledgement.first, acknowledgement.last + 1)
    types = acknowledgement.types * len(offsets) if len(acknowledgement.types) == 1 else acknowledgement.types
    for type_, pairs in groupby(zip(types, offsets, strict=True), lambda pair: pair[0]):
        yield type_, [offset for _, offset in pairs]


def runs(saved: Saved) -> list[Span]:
    """Return the stretches of offsets of which the same is known."""
    spans: list[Span] = []
    for offset in sorted(saved):
        if spans and spans[-1][1] == offset - 1 and saved[offset - 1] == saved[offset]:
            spans[-1] = spans[-1][0], offset
        else:
            spans.append((offset, offset))
    return spans
