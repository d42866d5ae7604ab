"""The time index of a segment: the largest timestamp up to an offset.

The rule: `entries` is the file's content, nothing else. An entry says that `timestamp` is the largest one up
to and with the batch that ends at `offset`; timestamps rise strictly, offsets do not fall.

    entry = timestamp int64 (ms), offset int32 (relative to the segment's base offset)
"""

from bisect import bisect_right
from struct import Struct
from typing import Final

from barnabas.log.format import CorruptFileError

ENTRY_SIZE: Final = 12
NO_TIMESTAMP: Final = -1
_ENTRY = Struct(">qi")
_INT64 = Struct(">q")
_INT32 = Struct(">i")


class TimeIndex:
    """The sparse map from timestamps to offsets."""

    __slots__ = ("base_offset", "entries", "last_timestamp")

    def __init__(self, base_offset: int, entries: bytes | bytearray = b"") -> None:
        self.base_offset = base_offset
        self.entries = bytearray(entries)
        self.last_timestamp = NO_TIMESTAMP
        if entries:
            self.last_timestamp = int(_INT64.unpack_from(entries, len(entries) - ENTRY_SIZE)[0])

    @classmethod
    def decode(cls, base_offset: int, data: bytes) -> "TimeIndex":
        """Load a file's content. Raises CorruptFileError if it is no time index."""
        if len(data) % ENTRY_SIZE:
            raise CorruptFileError(f"{len(data)} bytes are no whole number of time index entries")
        if data:
            first_timestamp, first_offset = _ENTRY.unpack_from(data)
            timestamp, offset = _ENTRY.unpack_from(data, len(data) - ENTRY_SIZE)
            rises = timestamp > first_timestamp or len(data) == ENTRY_SIZE
            if not rises or offset < first_offset or first_offset < 0 or first_timestamp < 0:
                raise CorruptFileError(
                    f"the last time index entry, {timestamp} at offset {base_offset + offset}, "
                    f"does not follow the first, {first_timestamp} at {base_offset + first_offset}"
                )
        return cls(base_offset, data)

    def __len__(self) -> int:
        return len(self.entries) // ENTRY_SIZE

    def entry(self, n: int) -> tuple[int, int]:
        """Return the n-th entry as (timestamp, offset)."""
        timestamp, offset = _ENTRY.unpack_from(self.entries, n * ENTRY_SIZE)
        return timestamp, self.base_offset + offset

    def last(self) -> tuple[int, int]:
        """Return the last entry as (timestamp, offset), or (NO_TIMESTAMP, base offset)."""
        return self.entry(len(self) - 1) if self.entries else (NO_TIMESTAMP, self.base_offset)

    def append(self, timestamp: int, offset: int) -> None:
        """Add the largest timestamp so far and its batch's last offset, unless the last entry has it."""
        if timestamp > self.last_timestamp:
            self.entries += _ENTRY.pack(timestamp, offset - self.base_offset)
            self.last_timestamp = timestamp

    def lookup(self, timestamp: int) -> int:
        """Return an offset up to which no record is newer than `timestamp`."""
        slot = self.slots_up_to(timestamp)
        return self.entry(slot - 1)[1] if slot else self.base_offset

    def slots_up_to(self, timestamp: int) -> int:
        """Return how many entries have timestamps up to `timestamp`."""
        entries = self.entries
        return bisect_right(
            range(len(self)), timestamp, key=lambda n: _INT64.unpack_from(entries, n * ENTRY_SIZE)[0]
        )

    def truncate(self, offset: int) -> None:
        """Remove the entries for `offset` and all after it."""
        entries = self.entries
        slot = bisect_right(
            range(len(self)),
            offset - self.base_offset - 1,
            key=lambda n: _INT32.unpack_from(entries, n * ENTRY_SIZE + 8)[0],
        )
        del entries[slot * ENTRY_SIZE :]
        self.last_timestamp = self.entry(slot - 1)[0] if slot else NO_TIMESTAMP
