"""The last offset of each key in the dirty part of a log, 24 bytes a key.

The rule: keys are stored as a cryptographic hash of 16 bytes, and the memory is bounded; a full map ends the cleaned
range earlier.

It is a hash table with open addressing that starts small and doubles: a sparse table of full size would touch a page of
memory for nearly each key.
"""

from hashlib import blake2b

HASH_SIZE = 16
SLOT_SIZE = HASH_SIZE + 8
_EMPTY = bytes(SLOT_SIZE)
_SLOTS_MIN = 1 << 10
_GROW_AT = 0.75
NO_OFFSET = -1


class OffsetMap:
    """Maps keys to their last offset; `latest_offset` is the last offset read into the map."""

    __slots__ = ("_count", "_limit", "_slots", "_table", "count_max", "latest_offset", "slots_max")

    def __init__(self, bytes_max: int, load_factor_max: float = 0.9, *, slots_min: int = _SLOTS_MIN) -> None:
        """Make a map of `bytes_max` (log.cleaner.dedupe.buffer.size), full at a share of it
        (log.cleaner.io.buffer.load.factor), that begins with `slots_min` slots and grows.
        """
        self.slots_max = max(2, bytes_max // SLOT_SIZE)
        # One slot stays free, so that every search terminates.
        self.count_max = max(1, min(int(self.slots_max * load_factor_max), self.slots_max - 1))
        self.latest_offset = NO_OFFSET
        self._count = 0
        self._resize(min(self.slots_max, slots_min))

    def __len__(self) -> int:
        return self._count

    @property
    def is_full(self) -> bool:
        """True if the next key might not fit."""
        return self._count >= self.count_max

    def put(self, key: bytes, offset: int) -> None:
        """Note that `key` has a record at `offset`, which is larger than all before."""
        digest = blake2b(key, digest_size=HASH_SIZE).digest()
        position, is_there = self._find(digest)
        if not is_there:
            if self._count >= self._limit:
                self._grow()
                position, _ = self._find(digest)
            self._count += 1
        self._table[position : position + SLOT_SIZE] = digest + (offset + 1).to_bytes(8, "big")
        self.latest_offset = offset

    def get(self, key: bytes) -> int:
        """Return the last offset of `key`, or NO_OFFSET."""
        position, is_there = self._find(blake2b(key, digest_size=HASH_SIZE).digest())
        if not is_there:
            return NO_OFFSET
        return int.from_bytes(self._table[position + HASH_SIZE : position + SLOT_SIZE], "big") - 1

    def _find(self, digest: bytes) -> tuple[int, bool]:
        """Return the position of the slot with `digest`, or of the free slot for it."""
        table, size = self._table, self._slots * SLOT_SIZE
        position = int.from_bytes(digest[:8], "big") % self._slots * SLOT_SIZE
        while True:
            slot = table[position : position + SLOT_SIZE]
            if slot == _EMPTY:  # used slots have an offset above 0
                return position, False
            if slot.startswith(digest):
                return position, True
            position += SLOT_SIZE
            if position == size:
                position = 0

    def _resize(self, slots: int) -> None:
        self._slots = slots
        self._table = bytearray(slots * SLOT_SIZE)
        self._limit = self.count_max if slots == self.slots_max else int(slots * _GROW_AT)

    def _grow(self) -> None:
        assert self._slots < self.slots_max, "a full map takes no more keys"
        old = self._table
        self._resize(min(self._slots * 2, self.slots_max))
        for position in range(0, len(old), SLOT_SIZE):
            slot = old[position : position + SLOT_SIZE]
            if slot != _EMPTY:
                target, _ = self._find(bytes(slot[:HASH_SIZE]))
                self._table[target : target + SLOT_SIZE] = slot
