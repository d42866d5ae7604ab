"""Work of a broker in one turn of its event loop, counted in executed lines of Python and not in time.

The rule: only lines that the loop's thread executes for the broker count, not those of the test's clients or of worker
threads. A call into C with a time that depends on its input (decompression, a checksum) counts as lines that take as long.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

import re2
import trio

from barnabas.records.codecs.pieces import Parts
from barnabas.records.errors import DecompressedTooLargeError

LINES_MAX = 200_000
"""Limit of a turn, for all tasks of the broker: 11 to 16 ms interpreted, less compiled."""
SCALE = 20
SCALED_LINES_MAX = 500_000 // SCALE
"""Limit of a turn with a twentieth of the real input and budget: 50 ms suffice for 500,000 lines."""
LINE_SECONDS = 100e-9
"""Longest time of an interpreted line: 57 to 79 ns were measured for decoders of requests (CPython 3.11)."""
DECOMPRESSED_BYTES_PER_LINE = 100
CHECKSUM_BYTES_PER_LINE = 1_000
INSTRUCTIONS_PER_LINE = 25
"""RE2 instructions per character of a name that count as a line: 4 ns at worst, if its states exceed its memory."""
SAMPLE_MASK = 255
GIVE_UP_LINES = 250_000
"""Lines in one turn after which a step is counted no further: it has failed, and counting is slow."""


class LoopMeter(trio.abc.Instrument):
    """Counts the lines of each turn, from one wait for input or output to the next.

    Lifecycle: `with meter:` inside `trio.run`; `leave_out` from within each task of the test itself. `worst` has the
    largest turn since `forget`, `where` the functions in which most of that turn's lines were.
    """

    def __init__(self) -> None:
        self.worst = 0
        self.where: list[str] = []
        self._turn = 0
        self._before = 0
        self._samples: Counter[CodeType] = Counter()
        self._left_out: set[trio.lowlevel.Task] = set()
        self._trace = self._tracer()

    def clock(self) -> float:
        """Return the seconds that the counted lines would have taken: the clock of a LoopBudget in counted code."""
        return (self._before + self._turn) * LINE_SECONDS

    def leave_out(self) -> None:
        """Do not count the running task."""
        self._left_out.add(trio.lowlevel.current_task())
        sys.settrace(None)

    def forget(self) -> None:
        """Reset the counts."""
        self._ended()
        self.worst, self.where = 0, []

    def add(self, lines: int) -> None:
        """Count a call into C as `lines`, if measured code has made it."""
        if sys.gettrace() is self._trace:  # each thread has its own
            self._turn += lines

    def _tracer(self) -> Callable[[FrameType, str, Any], Any]:
        samples = self._samples

        def within(frame: FrameType, event: str, argument: Any) -> Any:
            self._turn = turn = self._turn + 1
            if not turn & SAMPLE_MASK:
                samples[frame.f_code] += 1
                if turn > GIVE_UP_LINES:
                    sys.settrace(None)
                    return None
            return within

        def at_call(frame: FrameType, event: str, argument: Any) -> Any:
            self._turn += 1
            return within

        return at_call

    def _ended(self) -> None:
        if self._turn > self.worst:
            self.worst = self._turn
            self.where = [
                f"{code.co_filename.rpartition('/barnabas/')[2]}:{code.co_name}"
                for code, _ in self._samples.most_common(4)
            ]
        self._before += self._turn
        self._turn = 0
        self._samples.clear()

    # --- trio's instrument ------------------------------------------------------------------------------------

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if task not in self._left_out:
            sys.settrace(self._trace)

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        sys.settrace(None)

    def after_io_wait(self, timeout: float) -> None:
        self._ended()

    def __enter__(self) -> LoopMeter:
        # In front of the budget, so that its turns begin when these do.
        trio.lowlevel.add_instrument(self)
        return self

    def __exit__(self, *_: object) -> None:
        trio.lowlevel.remove_instrument(self)
        sys.settrace(None)

    def count_calls_into_c(self) -> None:
        """Count decompression, checksums of records and matches by RE2, for the rest of this process.

        Call it before other modules of the broker are imported, as these import the functions by name.
        """
        from barnabas.records import crc
        from barnabas.records.codecs import gzip, lz4, snappy, zstd

        for module in (gzip, lz4, snappy, zstd):
            module.decompress = self._decompressing(module.decompress)  # type: ignore[attr-defined]
        crc.crc32c = self._counted(  # type: ignore[attr-defined]
            crc.crc32c, lambda data, initial: len(data) // CHECKSUM_BYTES_PER_LINE
        )
        fullmatch = re2._Regexp.fullmatch

        def counted(pattern: Any, name: str, *positions: int) -> Any:
            self.add(pattern.programsize * len(name) // INSTRUCTIONS_PER_LINE)
            return fullmatch(pattern, name, *positions)

        re2._Regexp.fullmatch = counted

    def _counted(self, call: Callable[..., Any], lines: Callable[[Any, Any], int]) -> Callable[..., Any]:
        def counted(*arguments: Any, **options: Any) -> Any:
            result = call(*arguments, **options)
            self.add(lines(arguments[0], result))
            return result

        return counted

    def _decompressing(self, decompress: Callable[..., Parts]) -> Callable[..., Parts]:
        """Return a codec's function that counts the size of its result, or the limit if the result is too large."""

        def counted(data: Any, bytes_max: int, **options: Any) -> Parts:
            try:
                body = yield from decompress(data, bytes_max, **options)
            except DecompressedTooLargeError:
                self.add(bytes_max // DECOMPRESSED_BYTES_PER_LINE)
                raise
            self.add(len(body) // DECOMPRESSED_BYTES_PER_LINE)
            return body

        return counted
