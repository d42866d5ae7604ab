"""Large Fetch responses with unread record batches: only the fields around them are kept and decoded. Pure.

The rule: every byte of a frame is either kept or part of records; a frame that cannot be split so passes unchanged.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from barnabas.tools.inspection.messages import UnreadRecords

FLEXIBLE, TOPIC_IDS, NODE_ENDPOINTS = 12, 13, 16
"""Versions of Fetch since which it has tagged fields, ids of topics, and addresses of brokers (KIP-951)."""
VERSION_MAX = 18
UVARINT_BYTES_MAX = 5
END_BYTES_MAX = 64 * 1024
"""Tagged fields at the end of an answer that are larger are no addresses of brokers."""

Needs = Generator[int, None, None]
"""Yields how many bytes it needs next, and resumes when they are kept."""


class _NoFetchError(Exception):
    """These bytes are no Fetch answer."""


class FetchSkimmer:
    """One Fetch answer in transit, without its size field: `take` until it is whole, then `kept` and `fill_in`."""

    __slots__ = ("_missing", "_needs", "_version", "_walk", "is_end", "is_lost", "kept", "sizes", "unread")

    def __init__(self, version: int, size: int) -> None:
        self._version = version
        self._missing = size
        self.kept = bytearray()
        """The response, with empty records in place of all records."""
        self.sizes: list[int] = []
        """Bytes of records of each partition, in order; 0 or less if it has none."""
        self.unread = 0
        """Number of bytes of records that follow."""
        self.is_end = False
        """True within the final tagged fields, which include addresses of brokers."""
        self.is_lost = False
        """True once the bytes prove not to be a Fetch response: the rest is not inspected."""
        self._walk: Needs = self._answer()
        self._needs = 0
        self._advance()

    def take(self, part: memoryview) -> int:
        """Take bytes of one kind: up to the next records, through them, or up to the end; returns their number."""
        if self.unread or self.is_lost:
            return self.passed(min(self.unread or len(part), len(part)))
        was_end = self.is_end
        taken = 0
        while taken < len(part) and not self.unread and not self.is_lost and self.is_end == was_end:
            count = min(self._needs, len(part) - taken)
            self.kept += part[taken : taken + count]
            taken += count
            self._missing -= count
            self._needs -= count
            if not self._needs:
                self._advance()
        return taken

    def passed(self, count: int) -> int:
        """Note that bytes of records have been forwarded; returns their number."""
        self._missing -= count
        self.unread = max(0, self.unread - count)
        return count

    def lose(self) -> None:
        """Stop inspecting the frame."""
        self.is_lost, self.is_end, self.unread = True, False, 0

    def fill_in(self, message: Any) -> None:
        """Add the sizes of records to the decoded response."""
        partitions = (partition for topic in message.responses for partition in topic.partitions)
        for partition, size in zip(partitions, self.sizes, strict=True):
            if size > 0:
                partition.records = UnreadRecords(size)

    def _advance(self) -> None:
        """Go on to the next bytes that are needed."""
        try:
            self._needs = next(self._walk)
        except StopIteration:
            self._needs = self._missing - self.unread  # of tagged fields at the end, or too many
            self.is_end = self._version >= NODE_ENDPOINTS
            if self._needs > END_BYTES_MAX:
                self.lose()
        except _NoFetchError:
            self.lose()

    # --- the layout -------------------------------------------------------------------------------------------

    def _answer(self) -> Needs:
        """Walk from the correlation id to the last topic, in any version."""
        version = self._version
        yield 4
        if version >= FLEXIBLE:
            yield from self._tags()
        if version >= 1:
            yield 10 if version >= 7 else 4  # throttle time, error code and session id
        for _ in range((yield from self._count())):
            if version >= TOPIC_IDS:
                yield 16
            else:
                yield from self._topic_name()
            for _ in range((yield from self._count())):
                yield from self._partition()
            if version >= FLEXIBLE:
                yield from self._tags()

    def _partition(self) -> Needs:
        version = self._version
        yield (
            14 + (8 if version >= 4 else 0) + (8 if version >= 5 else 0)
        )  # from its index to its log start offset
        if version >= 4:
            for _ in range((yield from self._count())):  # aborted transactions
                yield 16
                if version >= FLEXIBLE:
                    yield from self._tags()
        if version >= 11:
            yield 4  # the preferred read replica
        yield from self._records()
        if version >= FLEXIBLE:
            yield from self._tags()

    def _records(self) -> Needs:
        start = len(self.kept)
        size = yield from self._count()
        self.sizes.append(size)
        if size > 0:
            if size > self._missing:
                raise _NoFetchError
            del self.kept[start:]
            self.kept += b"\1" if self._version >= FLEXIBLE else bytes(4)
            self.unread = size

    def _topic_name(self) -> Needs:
        if self._version >= FLEXIBLE:
            size = yield from self._count()
        else:
            yield 2
            size = int.from_bytes(self.kept[-2:], "big", signed=True)
        if size > 0:
            yield size

    def _tags(self) -> Needs:
        for _ in range((yield from self._uvarint())):
            yield from self._uvarint()
            size = yield from self._uvarint()
            if size:
                yield size

    def _count(self) -> Generator[int, None, int]:
        """Read how many entries or bytes follow; -1 for null."""
        if self._version >= FLEXIBLE:
            return (yield from self._uvarint()) - 1
        yield 4
        return int.from_bytes(self.kept[-4:], "big", signed=True)

    def _uvarint(self) -> Generator[int, None, int]:
        value = 0
        for number in range(UVARINT_BYTES_MAX):
            yield 1
            byte = self.kept[-1]
            value |= (byte & 0x7F) << (7 * number)
            if byte < 0x80:
                return value
        raise _NoFetchError
