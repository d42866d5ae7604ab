"""Processes that are started and stopped as one.

The rule: all started processes are stopped before `run` returns, after a signal, a failed start, or the end of a
required process.
"""

from __future__ import annotations

import signal
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable

import trio

from barnabas.ending import DONE, FAILED, end_signals
from barnabas.errors import leaves
from barnabas.tools.localcluster.children import Child, ChildError


class ProcessGroup(ABC):
    """Some processes of one command. Lifecycle: `run`."""

    def __init__(self) -> None:
        self.is_stopping = False
        self.has_failed = False
        """True if the exit code tells of a failure."""
        self._work = trio.CancelScope()
        """Around everything until the stop; cancelled to begin it."""

    @abstractmethod
    async def start(self, nursery: trio.Nursery) -> None:
        """Start all processes, with tasks in `nursery` that wait for their ends. Raises ChildError."""

    @abstractmethod
    async def stop(self) -> None:
        """Stop all started processes. It cannot be cancelled."""

    @abstractmethod
    def children(self) -> Iterable[Child]:
        """Return the children that are killed when a second signal ends the wait."""

    @abstractmethod
    def say_stopping(self, name: str, *, at_once: bool) -> None:
        """Report a signal, the first or a later one."""

    def fail(self) -> None:
        """Stop all processes, since too few run."""
        self.has_failed = True
        self.end()

    def end(self) -> None:
        """Begin to stop all processes."""
        self.is_stopping = True
        self._work.cancel()

    async def run(self) -> int:
        """Start, wait for a signal or for the end of the processes, stop; returns the exit code. Raises ChildError."""
        try:
            with trio.open_signal_receiver(*end_signals()) as signals:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._stop_on_signals, signals)
                    try:
                        with self._work:
                            await self.start(nursery)
                            await trio.sleep_forever()
                    finally:
                        self.is_stopping = True
                        with trio.CancelScope(shield=True):
                            await self.stop()
                    nursery.cancel_scope.cancel()
        except (
            BaseExceptionGroup
        ) as group:  # raised within `except*`, an error would be put into a group again
            causes = leaves(group)
            if not all(isinstance(cause, ChildError) for cause in causes):
                raise
            raise causes[0] from None
        return FAILED if self.has_failed else DONE

    async def _stop_on_signals(self, signals: AsyncIterator[int]) -> None:
        async for number in signals:
            self.say_stopping(signal.Signals(number).name, at_once=self.is_stopping)
            if self.is_stopping:
                for child in self.children():
                    child.signal(signal.SIGKILL)
            self.end()
