"""A byte stream split into frames: forwarded immediately, copied for decoding, or held back. Pure.

The rule: bytes are forwarded as received and in order, except for frames that are held back and rewritten. A large frame at
the end of the received bytes may be decoded after it has been sent, while its receiver works.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from barnabas.tools.tap.skimming import FetchSkimmer

SIZE_BYTES = 4
START_BYTES = 8
"""Bytes that identify a frame: its size, and a request's key or a response's correlation id."""
BEGINNING_BYTES = 4096
"""So many bytes are kept of a frame that is not kept as a whole."""
UNCOUNTED_BYTES = 64 * 1024
"""Frames up to this size are kept without being counted against the budget."""

Data = bytes | bytearray | memoryview


def _start_bytes(size: int) -> int:
    """Return the number of first bytes that belong to this frame rather than the next."""
    return SIZE_BYTES + size if 0 <= size < START_BYTES - SIZE_BYTES else START_BYTES


class NotFramesError(Exception):
    """The bytes of this direction are no frames of Kafka's protocol: they pass as they are from here on."""


class Budget:
    """Limit on the bytes of frames in memory, over all connections; small frames do not count."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.used = 0

    def take(self, size: int) -> bool:
        """Reserve room for a frame; false if there is not enough."""
        if size <= UNCOUNTED_BYTES:
            return True
        if self.used + size > self.bytes_max:
            return False
        self.used += size
        return True

    def give(self, size: int) -> None:
        """Give the room of a frame back."""
        if size > UNCOUNTED_BYTES:
            self.used -= size


class Fate(Enum):
    """Treatment of a frame."""

    PASS = "is forwarded as it comes, and only its beginning is looked at"
    KEEP = "is forwarded as it comes, and decoded when it is whole"
    SKIM = "is forwarded as it comes but for its end, and decoded without the record batches in it"
    HOLD = "is forwarded, perhaps changed, when it is whole"


class Owner(Protocol):
    """Receiver of frames; decides the fate of each."""

    def begin(self, size: int, start: Data) -> Fate:
        """Decide the fate of a frame of `size` bytes by its first four (or fewer) bytes. Raises NotFramesError."""

    def end(self, frame: Data, size: int) -> Data | None:
        """Receive a frame, without its size field; a frame that passed is truncated to its beginning.

        Returns the frame to forward in place of a held one, with a size field; None to forward it unchanged.
        """

    def skimmer(self, size: int, start: Data) -> FetchSkimmer:
        """Return the skimmer for a frame with records that are not decoded."""

    def end_skimmed(self, skimmer: FetchSkimmer, size: int, end_size: int) -> Data | None:
        """Receive a skimmed frame; returns the bytes to forward for its last `end_size` bytes, None for the originals."""


class Cutter:
    """Cuts one direction of a connection."""

    __slots__ = (
        "_beginning",
        "_budget",
        "_defers",
        "_fate",
        "_held_end",
        "_is_counted",
        "_is_deferred",
        "_missing",
        "_owner",
        "_parts",
        "_size",
        "_skimmer",
        "_start",
        "_unsent",
        "count",
        "is_opaque",
    )

    def __init__(self, owner: Owner, budget: Budget, *, defers: bool = False) -> None:
        """`defers`: `sent` is called after each `feed`, and large frames may be passed on then."""
        self._owner = owner
        self._budget = budget
        self._defers = defers
        self._is_deferred = False
        self._start = b""  # first bytes of a frame not yet identified
        self._fate = Fate.PASS
        self._size = 0
        self._missing = 0
        self._parts: list[Data] = []
        self._beginning = 0
        self._unsent: list[int] = []
        self._skimmer: FetchSkimmer | None = None
        self._held_end = bytearray()
        self._is_counted = False
        self.count = 0
        """Number of frames begun."""
        self.is_opaque = False

    @property
    def is_inside(self) -> bool:
        """True while a frame is incomplete."""
        return bool(self._missing or self._start)

    @property
    def unread(self) -> int:
        """Number of next bytes that need no inspection: they may be forwarded without `feed`, followed by `passed`."""
        if self.is_opaque or not self._missing:
            return 0
        if self._skimmer is not None:
            return self._missing if self._skimmer.is_lost else self._skimmer.unread
        return self._missing if self._fate is Fate.PASS and self._beginning <= 0 else 0

    def passed(self, count: int) -> None:
        """Note that `count` of the `unread` bytes have been forwarded."""
        self._missing -= count
        if self._skimmer is not None:
            self._skimmer.passed(count)
        if not self._missing:
            self._finish()

    def feed(self, data: bytes) -> list[Data]:
        """Take received bytes; returns the bytes to forward now."""
        if self.is_opaque:
            return [data]
        self._hand_over()
        if self._start:
            data, self._start = self._start + data, b""
        view = memoryview(data)
        end = len(data)
        at = first = 0  # bytes from `first` on are forwarded, up to a held frame
        out: list[Data] = []
        while at < end:
            if not self._missing:
                if not self._is_startable(data, at, end):
                    self._start = data[at:]
                    end = at
                    break
                size = int.from_bytes(data[at : at + SIZE_BYTES], "big", signed=True)
                try:
                    self._begin(size, view[at + SIZE_BYTES : at + _start_bytes(size)])
                except NotFramesError:
                    self.is_opaque = True
                    break
                if self._fate is Fate.HOLD and at > first:
                    out.append(view[first:at])
                at += SIZE_BYTES
            taken = min(self._missing, end - at)
            is_held = self._fate is Fate.HOLD
            if self._skimmer is not None:
                taken, is_held = self._skim(self._skimmer, view[at : at + taken])
                if is_held and at > first:
                    out.append(view[first:at])
            else:
                self._add(view[at : at + taken])
            at += taken
            self._missing -= taken
            if not self._missing:
                if self._may_defer and at == end:
                    self._is_deferred = True
                    break
                changed = self._finish()
                if changed is not None:
                    out.append(changed)
                    first = at
            elif is_held:
                first = at
        if first < end:
            out.append(data if first == 0 and end == len(data) else view[first:end])
        return out

    @property
    def _may_defer(self) -> bool:
        return self._defers and self._fate is Fate.KEEP and self._size > UNCOUNTED_BYTES

    def _hand_over(self) -> None:
        """Hand over a frame that has been forwarded before."""
        if self._is_deferred:
            self._is_deferred = False
            self._finish()

    def _is_startable(self, data: bytes, at: int, end: int) -> bool:
        """Return whether enough bytes are present to identify a frame."""
        if end - at >= START_BYTES:
            return True
        if end - at < SIZE_BYTES:
            return False
        size = int.from_bytes(data[at : at + SIZE_BYTES], "big", signed=True)
        return end - at - SIZE_BYTES >= size

    def _begin(self, size: int, start: memoryview) -> None:
        if size < 0:
            self._owner.begin(size, start)
            raise NotFramesError
        fate = self._owner.begin(size, start)
        if fate is Fate.SKIM:
            self._skimmer = self._owner.skimmer(size, start)
        elif fate is not Fate.PASS and not self._budget.take(size):
            fate = Fate.PASS
        self.count += 1
        self._fate, self._size, self._missing = fate, size, size
        self._parts = []
        self._beginning = BEGINNING_BYTES

    def _add(self, part: memoryview) -> None:
        if self._fate is not Fate.PASS:
            # A view of the received bytes saves a copy; for a small frame it would keep their whole buffer alive.
            self._parts.append(part if self._size > UNCOUNTED_BYTES else bytes(part))
        elif self._beginning > 0:
            self._parts.append(bytes(part[: self._beginning]))
            self._beginning -= len(part)

    def _skim(self, skimmer: FetchSkimmer, part: memoryview) -> tuple[int, bool]:
        """Take bytes of a frame without decoding its records; returns their number, and whether they are held back."""
        is_end = skimmer.is_end
        taken = skimmer.take(part)
        if is_end:
            self._held_end += part[:taken]
        elif not self._is_counted and len(skimmer.kept) > UNCOUNTED_BYTES:
            self._is_counted = self._budget.take(self._size)
            if not self._is_counted:
                skimmer.lose()
        return taken, is_end

    def _finish_skimmed(self, skimmer: FetchSkimmer) -> Data | None:
        """Hand over a frame that passed with undecoded records; returns the bytes to forward for a held end."""
        end, self._held_end, self._skimmer = self._held_end, bytearray(), None
        try:
            changed = self._owner.end_skimmed(skimmer, self._size, len(end))
        finally:
            if self._is_counted:
                self._is_counted = False
                self._budget.give(self._size)
        return (changed if changed is not None else end) if end else None

    def _finish(self) -> Data | None:
        """Pass on a complete frame; returns the bytes to forward for a held one."""
        if self._skimmer is not None:
            return self._finish_skimmed(self._skimmer)
        frame = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts = []
        fate, size = self._fate, self._size
        try:
            changed = self._owner.end(frame, size)
        finally:
            if fate is Fate.KEEP:
                self._budget.give(size)
            elif fate is Fate.HOLD:
                self._unsent.append(size)
        if fate is not Fate.HOLD:
            return None
        return changed if changed is not None else size.to_bytes(SIZE_BYTES, "big") + frame

    def sent(self) -> None:
        """Note that the result of `feed` was sent: pass on a deferred frame, release the budget of held frames."""
        self._hand_over()
        for size in self._unsent:
            self._budget.give(size)
        self._unsent.clear()

    def skip(self, count: int) -> bool:
        """Skip missing bytes of the current frame; False if they extend beyond it.

        The frame is passed on with its present bytes, at its end or immediately.
        """
        self._hand_over()
        if not self._missing or count > self._missing:
            return False
        if self._skimmer is not None:
            self._skimmer.lose()
        elif self._fate is not Fate.PASS:
            self._budget.give(self._size)
            self._fate = Fate.PASS
        self._beginning = 0  # bytes after the gap are not joined to those before it
        self._missing -= count
        if not self._missing:
            self._finish()
        return True

    def rest(self) -> bytes:
        """Return the held bytes of a frame that will stay incomplete, and drop them."""
        self._hand_over()
        held, self._start = self._start, b""
        if self._fate is Fate.HOLD and self._missing:
            held += self._size.to_bytes(SIZE_BYTES, "big") + b"".join(self._parts)
        if self._skimmer is not None:
            held += self._held_end
            self._held_end, self._skimmer = bytearray(), None
            if self._is_counted:
                self._is_counted = False
                self._budget.give(self._size)
        elif self._missing and self._fate is not Fate.PASS:
            self._budget.give(self._size)
        self._missing = 0
        self._parts = []
        return held
