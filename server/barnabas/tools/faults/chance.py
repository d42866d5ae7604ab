"""Random numbers that follow from a seed and a name alone, the same on every machine and in every release of Python."""

from __future__ import annotations

_MASK = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15


class Chance:
    """A stream of random numbers (SplitMix64, Steele and others 2014): of one rule, so that others do not change it."""

    __slots__ = ("_state",)

    def __init__(self, seed: int, name: str = "") -> None:
        state = seed & _MASK
        for byte in name.encode():
            state = ((state ^ byte) * 0x100000001B3) & _MASK
        self._state = state

    def next(self) -> int:
        """Return a number from 0 to 2**64 - 1."""
        self._state = (self._state + _GOLDEN) & _MASK
        mixed = self._state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        return mixed ^ (mixed >> 31)

    def below(self, limit: int) -> int:
        """Return a number from 0 to `limit` - 1."""
        return self.next() * limit >> 64

    def fraction(self) -> float:
        """Return a number from 0 to 1, without 1."""
        return (self.next() >> 11) / 2**53

    def between(self, low: float, high: float) -> float:
        """Return a number from `low` to `high`."""
        return low + (high - low) * self.fraction()

    def bytes(self, size: int) -> bytes:
        """Return `size` bytes."""
        words = (self.next().to_bytes(8, "little") for _ in range((size + 7) // 8))
        return b"".join(words)[:size]
