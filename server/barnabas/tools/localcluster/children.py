"""Processes started by this one: their first line, their end, and their stop.

The rule: a child ends with its parent, on Linux also if that is killed; and only a child that has not been waited
for is ever signalled, so that no other process can get the signal.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from contextlib import closing, nullcontext, suppress
from pathlib import Path

import trio

from barnabas.system.processes import HAS_PARENT_SIGNAL, signal_when_parent_ends, watch_process

TAIL_BYTES = 4000
READY = "bootstrap.servers="
"""Before the address in the ready line of a broker."""
READY_SECONDS = 120.0
STOP_SECONDS = 30.0


class ChildError(Exception):
    """A child does not start, or has ended early; the text names it, with its last output."""


class Child:
    """One process. Lifecycle: `start`, `wait` in one task, `stop`."""

    def __init__(self, name: str, command: Sequence[str], output: Path | None) -> None:
        """`output` gets the process's standard error and (unless a line is read from it) output.

        None: this process's own streams.
        """
        self.name = name
        self.command = tuple(command)
        self.output = output
        self.ended = trio.Event()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process is not None
        return self._process.pid

    @property
    def has_started(self) -> bool:
        """True if there is, or was, a process."""
        return self._process is not None

    @property
    def code(self) -> int | None:
        """The exit code, minus the signal that ended it, None while it runs."""
        return self._process.returncode if self._process is not None else None

    def start(self, *, reads_output: bool) -> None:
        """Start it, in a separate session, so that a terminal's Ctrl-C reaches only the parent. Raises ChildError."""
        with self.output.open("ab") if self.output is not None else nullcontext() as output:
            try:
                self._process = subprocess.Popen(
                    self.command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE if reads_output else output,
                    stderr=output,
                    start_new_session=True,
                    preexec_fn=_end_with_parent() if HAS_PARENT_SIGNAL else None,
                )
            except OSError as error:
                raise ChildError(f"{self.name} cannot be started: {error}") from error

    async def wait(self) -> int:
        """Wait for its end, concurrently with other waiters if necessary; returns the exit code as in `code`."""
        assert self._process is not None
        if self._process.returncode is not None:
            return self._process.returncode
        with suppress(ProcessLookupError), closing(watch_process(self._process.pid)) as watched:
            await trio.lowlevel.wait_readable(watched.fileno())
        code = self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self.ended.set()
        return code

    async def first_line(self, seconds: float) -> str:
        """Return the first line of its output, which is closed then. Raises ChildError at the timeout.

        If it is cancelled the output stays open until the process ends: it may become ready while it is stopped.
        """
        assert self._process is not None
        assert self._process.stdout is not None
        received = b""
        async with trio.lowlevel.FdStream(os.dup(self._process.stdout.fileno())) as stream:
            with trio.move_on_after(seconds) as scope:
                while b"\n" not in received:
                    part = await stream.receive_some(4096)
                    if not part:
                        break
                    received += part
            self._process.stdout.close()
            if b"\n" not in received:
                what = (
                    f"has not become ready in {seconds:.0f} s" if scope.cancelled_caught else "does not start"
                )
                raise ChildError(f"{self.name} {what}{self.last_words()}")
        return received.partition(b"\n")[0].decode(errors="replace")

    def last_words(self) -> str:
        """Return the end of a child's standard error, with the file's name; empty if the terminal shows it anyway."""
        if self.output is None:
            return ""
        try:
            tail = self.output.read_bytes()[-TAIL_BYTES:].decode(errors="replace").strip()
        except OSError:
            tail = ""
        return f"; see {self.output}" + (f", which ends with\n{tail}" if tail else "")

    async def stop(self, seconds: float) -> bool:
        """End it by SIGTERM, and by SIGKILL after `seconds`; returns whether it has ended in time."""
        self.signal(signal.SIGTERM)
        with trio.move_on_after(seconds):
            await self.wait()
            return True
        self.signal(signal.SIGKILL)
        await self.wait()
        return False

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, unless it has ended."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)


async def ready_address(child: Child, ready: str = READY) -> str:
    """Wait until a node that was started serves; returns its address, which its ready line has after `ready`.

    Raises ChildError.
    """
    line = await child.first_line(READY_SECONDS)
    if ready not in line:
        raise ChildError(f"{child.name} does not start: {line}{child.last_words()}")
    return line.partition(ready)[2].split()[0]


def ending(code: int) -> str:
    """An exit code in words."""
    if code < 0:
        try:
            return f"killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"killed by signal {-code}"
    return f"exit code {code}"


def _end_with_parent() -> Callable[[], None]:
    """Return a function for a new process to call: from then on it gets SIGTERM when its parent's thread ends."""
    parent = os.getpid()

    def prepare() -> None:
        signal_when_parent_ends(signal.SIGTERM)
        if os.getppid() != parent:  # it has ended meanwhile
            os._exit(1)

    return prepare
