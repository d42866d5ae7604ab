"""The offset index of a segment: positions of batches in the file by offset, for about every 4 KB.

The rule: `entries` is the file's content, nothing else. An entry names the *last* offset of a batch and the position at
which that batch begins, so that a search never returns a position after the requested offset.

    entry = offset int32 (relative to the segment's base offset), position int32
"""

from struct import Struct
from typing import Final

from barnabas.log.format import CorruptFileError

ENTRY_SIZE: Final = 8
OFFSET_DELTA_MAX: Final = (1 << 31) - 1  # the largest distance of an entry from the base offset
_ENTRY = Struct(">ii")
_INT32 = Struct(">i")


class OffsetIndex:
    """The sparse map from offsets to positions; offsets and positions rise strictly."""

    __slots__ = ("base_offset", "entries", "last_offset")

    def __init__(self, base_offset: int, entries: bytes | bytearray = b"") -> None:
        self.base_offset = base_offset
        self.entries = bytearray(entries)
        self.last_offset = base_offset - 1  # those of the last entry
        if entries:
            self.last_offset = base_offset + int(_INT32.unpack_from(entries, len(entries) - ENTRY_SIZE)[0])

    @classmethod
    def decode(cls, base_offset: int, data: bytes, log_size: int) -> "OffsetIndex":
        """Load a file's content. Raises CorruptFileError if it cannot belong to `log_size` bytes of log."""
        if len(data) % ENTRY_SIZE:
            raise CorruptFileError(f"{len(data)} bytes are no whole number of offset index entries")
        if data:
            offset, position = _ENTRY.unpack_from(data, len(data) - ENTRY_SIZE)
            first_offset, first_position = _ENTRY.unpack_from(data)
            if offset < first_offset or first_offset < 0 or not 0 <= first_position <= position < log_size:
                raise CorruptFileError(
                    f"the last offset index entry, {base_offset + offset} at {position}, "
                    f"does not fit a segment of {log_size} bytes"
                )
            if len(data) > ENTRY_SIZE and offset == first_offset:
                raise CorruptFileError("the entries of the offset index do not rise")
        return cls(base_offset, data)

    def __len__(self) -> int:
        return len(self.entries) // ENTRY_SIZE

    def entry(self, n: int) -> tuple[int, int]:
        """Return the n-th entry as (offset, position)."""
        offset, position = _ENTRY.unpack_from(self.entries, n * ENTRY_SIZE)
        return self.base_offset + offset, position

    def append(self, last_offset: int, position: int) -> None:
        """Note that the batch that ends with `last_offset` begins at `position`."""
        assert last_offset > self.last_offset, (last_offset, self.last_offset)
        self.entries += _ENTRY.pack(last_offset - self.base_offset, position)
        self.last_offset = last_offset

    def lookup(self, offset: int) -> int:
        """Return the position of the nearest indexed batch at or before the one that contains `offset`."""
        return self.floor(offset)[1]

    def floor(self, offset: int) -> tuple[int, int]:
        """Return the last entry up to `offset`, or (-1, 0): the batch at its position does not begin after `offset`."""
        slot = self.slots_up_to(offset)
        return self.entry(slot - 1) if slot else (-1, 0)

    def slots_before(self, position: int) -> int:
        """Return how many entries are for positions before `position`."""
        return self._count(4, position - 1)

    def truncate(self, offset: int) -> None:
        """Remove the entries for `offset` and all after it."""
        del self.entries[self.slots_up_to(offset - 1) * ENTRY_SIZE :]
        self.last_offset = self.entry(len(self) - 1)[0] if self.entries else self.base_offset - 1

    def slots_up_to(self, offset: int) -> int:
        """Return how many entries are for offsets up to `offset`."""
        if offset >= self.last_offset:
            return len(self)
        return self._count(0, offset - self.base_offset)

    def _count(self, field_at: int, limit: int) -> int:
        """Return how many entries have a number up to `limit` in the field that begins at byte `field_at`.

        Entries are about evenly spread, so most are found with the first guesses; every other guess is the middle, which
        bounds their number where entries are not.
        """
        entries, unpack = self.entries, _INT32.unpack_from
        high = len(entries) // ENTRY_SIZE - 1
        if high < 0:
            return 0
        low = 0
        (low_value,), (high_value,) = unpack(entries, field_at), unpack(entries, high * ENTRY_SIZE + field_at)
        if limit < low_value:
            return 0
        if limit >= high_value:
            return high + 1
        is_middle = False
        while high - low > 1:  # the entry at `low` is not above the limit, the one at `high` is
            if is_middle:
                guess = (low + high) // 2
            else:
                guess = low + (limit - low_value) * (high - low) // (high_value - low_value)
                guess = min(max(guess, low + 1), high - 1)
            is_middle = not is_middle
            (value,) = unpack(entries, guess * ENTRY_SIZE + field_at)
            if value <= limit:
                low, low_value = guess, value
            else:
                high, high_value = guess, value
        return low + 1
