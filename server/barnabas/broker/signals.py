"""Signals, exit codes and the output of a process that serves, be it a broker or a controller.

The rule: a failure to start is one line for the operator, and a signal is a clean end at any time.
"""

from __future__ import annotations

import logging
import signal
import sys
from contextlib import asynccontextmanager, contextmanager
from importlib.machinery import EXTENSION_SUFFIXES
from typing import TYPE_CHECKING, Protocol

import trio

from barnabas.broker.startup import StartupError
from barnabas.ending import FAILED, end_signals
from barnabas.errors import StorageError, leaves

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

log = logging.getLogger(__name__)


def exit_code(work: Callable[[], int]) -> int:
    """Return the exit code of work; an error of the start or of a disk is a line for the operator, and a failure."""
    code = FAILED
    try:
        code = work()
    except* (StartupError, StorageError) as group:
        for error in leaves(group):
            print(f"barnabas: {error}", file=sys.stderr)
    return code


class Stoppable(Protocol):
    """Anything that a signal can stop."""

    def stop(self) -> None:
        """Ask for a clean stop."""


class Stopper:
    """Stops the broker at a signal, also during its start.

    A broker without a cluster finishes its start first, so that its logs are closed cleanly. A broker of a cluster may wait
    for other machines: its start is cancelled, which counts as a crash with ZooKeeper.
    """

    def __init__(self, *, may_break_off_start: bool) -> None:
        self.starting = trio.CancelScope()
        self._may_break_off = may_break_off_start
        self._broker: Stoppable | None = None
        self._started = trio.Event()

    def has_started(self, broker: Stoppable) -> None:
        """Let later signals stop this broker, instead of its start."""
        self._broker = broker
        self._started.set()

    async def run(self, signals: AsyncIterator[int]) -> None:
        """Wait for signals until cancelled."""
        async for number in signals:
            name = signal.Signals(number).name
            if self._broker is None and self._may_break_off:
                log.warning("stopping on %s, before the broker was ready", name)
                self.starting.cancel()
                continue
            await self._started.wait()
            assert self._broker is not None
            log.info("stopping on %s", name)
            self._broker.stop()


@asynccontextmanager
async def until_signalled(*, may_break_off_start: bool) -> AsyncIterator[Stopper]:
    """Run the block until SIGTERM or SIGINT stops the broker in the `Stopper`, or interrupts its start."""
    with trio.open_signal_receiver(*end_signals()) as signals:
        async with trio.open_nursery() as listening:
            stopper = Stopper(may_break_off_start=may_break_off_start)
            listening.start_soon(stopper.run, signals)
            with stopper.starting:
                yield stopper
            listening.cancel_scope.cancel()


def code_of(file: str) -> str:
    """Return the kind of a module (source or compiled), by its file."""
    return "compiled" if file.endswith(tuple(EXTENSION_SUFFIXES)) else "interpreted"


@contextmanager
def explained_output(node: str) -> Iterator[None]:
    """Raise StartupError if the ready line of a node cannot be written."""
    try:
        yield
    except OSError as error:
        from barnabas.environment import output

        raise StartupError(
            output.explain(error) or f"cannot say that the {node} is ready: {error}"
        ) from error
