"""Calls of functions in child processes, from Trio tasks.

    async with Sandbox() as sandbox:
        text = await sandbox.call(parse, schema, owner=caller.name)

The rule: each call ends. It is limited in time, in memory and in the size of its result; each owner has one call at a time;
and a call is ended early if others wait for its process. A child that was ended is replaced by the next call.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

import trio

from barnabas.sandbox.messages import LENGTH, Result, SandboxError, Work, decode, encode
from barnabas.system.processes import watch_process

T = TypeVar("T")

PROCESSES_MAX = 4
IDLE_MAX = 1
"""Children that are kept between calls; each holds the libraries of the formats, some 40 MB."""
MEMORY_BYTES = 256 << 20
ANSWER_BYTES_MAX = 16 << 20
START_SECONDS = 0.05
"""Time that a call waits for a busy child before another one is started, which takes as long."""
SECONDS_MAX = 5.0
SHARE_SECONDS = 1.0
"""Time that a call has while others wait; also the time after which a waiting call ends the oldest one."""
_READ_BYTES = 1 << 20


@dataclass(eq=False, slots=True)
class _Running:
    """A call under way."""

    began_at: float
    scope: trio.CancelScope
    was_preempted: bool = False


@dataclass(eq=False, slots=True)
class _Turn:
    """The turns of one owner's calls."""

    lock: trio.Lock = field(default_factory=trio.Lock)
    calls: int = 0


class _Child:
    """One child process."""

    def __init__(self, memory_bytes: int, answer_bytes_max: int) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "barnabas.sandbox.process", str(theirs.fileno()), str(memory_bytes),
                 str(answer_bytes_max)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)},
            )  # fmt: skip
        self._stream = trio.SocketStream(trio.socket.from_stdlib_socket(ours))

    async def exchange(self, request: bytes) -> Result:
        """Send a request and return its result. Raises EOFError if the child ends without a result."""
        try:
            await self._stream.send_all(request)
            length = LENGTH.unpack(await self._receive(LENGTH.size))[0]
            result: Result = decode(await self._receive(length))
        except trio.BrokenResourceError:
            raise EOFError from None
        return result

    async def _receive(self, size: int) -> bytearray:
        data = bytearray()
        while len(data) < size:
            part = await self._stream.receive_some(min(size - len(data), _READ_BYTES))
            if not part:
                raise EOFError
            data += part
        return data

    @property
    def is_running(self) -> bool:
        """False once the process has ended."""
        return self._process.poll() is None

    async def kill(self) -> None:
        """End the process if it still runs."""
        if self.is_running:
            self._process.kill()
        await self.wait()

    async def wait(self) -> int:
        """Close the connection and wait for the end; return the exit code, minus the signal's number."""
        with trio.CancelScope(shield=True):
            await self._stream.aclose()
            if self.is_running:
                with suppress(ProcessLookupError), closing(watch_process(self._process.pid)) as watched:
                    await trio.lowlevel.wait_readable(watched.fileno())
        return self._process.wait()


def _cause(exit_code: int) -> str:
    """Return why a process ended before its call did."""
    if exit_code == -signal.SIGXCPU:
        return "it takes too long"
    return f"its process ended by {signal.Signals(-exit_code).name}" if exit_code < 0 else "its process ended"


class Sandbox:
    """Child processes, started by the first calls. Lifecycle: `async with`; at its end no call is under way."""

    def __init__(
        self,
        *,
        processes_max: int = PROCESSES_MAX,
        memory_bytes: int = MEMORY_BYTES,
        answer_bytes_max: int = ANSWER_BYTES_MAX,
        seconds_max: float = SECONDS_MAX,
    ) -> None:
        """`memory_bytes` limits the private memory of each child (Linux), `seconds_max` the time of a call."""
        self._memory_bytes = memory_bytes
        self._answer_bytes_max = answer_bytes_max
        self._seconds_max = seconds_max
        self._free = trio.Semaphore(processes_max)
        self._idle: list[_Child] = []
        self._waiting = trio.lowlevel.ParkingLot()
        """Calls that wait for a child which others use."""
        self._running: list[_Running] = []
        self._turns: dict[Hashable, _Turn] = {}

    async def call(self, function: Callable[..., T], *arguments: Any, owner: Hashable = None) -> T:
        """Return the result of a module's function for these arguments; both must be picklable.

        `owner` has one call at a time (None: no such limit): a user, a connection. Raises the errors of the function;
        SandboxError if the call reaches a limit.
        """
        async with self._turn(owner), self._slot():
            running = _Running(
                trio.current_time(), trio.CancelScope(deadline=trio.current_time() + self._seconds_max)
            )
            request = encode(Work(function, arguments, self._seconds_max))
            self._running.append(running)
            try:
                with running.scope:
                    value: T = await self._exchange(request)
                    return value
            finally:
                self._running.remove(running)
            if running.was_preempted:
                raise SandboxError(f"it takes more than {SHARE_SECONDS:g} s while others wait")
            raise SandboxError(f"it takes more than {self._seconds_max:g} s")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        while self._idle:
            await self._idle.pop().kill()

    @asynccontextmanager
    async def _turn(self, owner: Hashable) -> AsyncIterator[None]:
        """Wait until no other call of an owner is under way."""
        if owner is None:
            yield
            return
        turn = self._turns.setdefault(owner, _Turn())
        turn.calls += 1
        try:
            async with turn.lock:
                yield
        finally:
            turn.calls -= 1
            if not turn.calls:
                del self._turns[owner]

    @asynccontextmanager
    async def _slot(self) -> AsyncIterator[None]:
        """Wait for a process; if that takes too long, the longest running call is ended for it."""
        while True:
            with trio.move_on_after(SHARE_SECONDS) as scope:
                await self._free.acquire()
            if not scope.cancelled_caught:
                break
            self._preempt()
        try:
            yield
        finally:
            self._free.release()

    def _preempt(self) -> None:
        """End the oldest call if it has had its share."""
        oldest = next((running for running in self._running if not running.was_preempted), None)
        if oldest is not None and trio.current_time() - oldest.began_at >= SHARE_SECONDS:
            oldest.was_preempted = True
            oldest.scope.cancel()

    async def _child(self) -> _Child:
        if not self._idle and len(self._running) > 1:
            with trio.move_on_after(START_SECONDS):
                while not self._idle:
                    await self._waiting.park()
        while self._idle:
            child = self._idle.pop()
            if child.is_running:
                return child
            await child.kill()  # the operating system has ended it, usually for lack of memory
        return _Child(self._memory_bytes, self._answer_bytes_max)

    async def _exchange(self, request: bytes) -> Any:
        child = await self._child()
        is_reusable = False
        try:
            result = await child.exchange(request)
            is_reusable = not result.ends_child
        except EOFError:
            raise SandboxError(_cause(await child.wait())) from None
        finally:
            if is_reusable:
                self._idle.append(child)
                self._waiting.unpark()
            else:
                await child.kill()
            while len(self._idle) > IDLE_MAX + len(self._waiting):
                await self._idle.pop().kill()
        if result.error is not None:
            raise result.error
        return result.value
