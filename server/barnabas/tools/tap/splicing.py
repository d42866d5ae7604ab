"""Bytes moved from one socket to another within the kernel, if they are forwarded unread.

The rule: bytes read from the source reach the sink, or the connection ends.
"""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import suppress

import trio

PIPE_BYTES = 1 << 20
"""Capacity of a pipe in bytes, if the system allows it."""
SPARE_PIPES_MAX = 8
_UNSUPPORTED = frozenset((errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM))


class SinkError(OSError):
    """The sink is closed."""


class Pipes:
    """Pipes for moves in progress; some are kept for reuse."""

    def __init__(self) -> None:
        self.is_usable = hasattr(os, "splice")
        """True unless the system is known not to move bytes between sockets."""
        self._spare: list[tuple[int, int]] = []

    def close(self) -> None:
        """Close the pipes that are kept."""
        while self._spare:
            _close(self._spare.pop())

    async def forward(self, source: trio.socket.SocketType, sink: trio.socket.SocketType, count: int) -> int:
        """Move `count` bytes; returns the number moved, fewer if the source ends, or the system does not support it.

        Raises SinkError, and OSError and trio.ClosedResourceError for the source.
        """
        try:
            pipe = self._spare.pop() if self._spare else _opened()
        except OSError:  # no file descriptors are left
            return 0
        moved = held = 0
        try:
            while moved < count:
                try:
                    held = os.splice(
                        source.fileno(), pipe[1], min(count - moved, PIPE_BYTES), flags=os.SPLICE_F_NONBLOCK
                    )
                except BlockingIOError:
                    await trio.lowlevel.wait_readable(source)
                    continue
                except OSError as error:
                    if moved or error.errno not in _UNSUPPORTED:
                        raise
                    self.is_usable = False
                    return 0
                if not held:
                    break
                while held:
                    sent = await _drain(pipe[0], sink, held)
                    held -= sent
                    moved += sent
                await trio.lowlevel.checkpoint()
        finally:
            if held or len(self._spare) >= SPARE_PIPES_MAX:
                _close(pipe)
            else:
                self._spare.append(pipe)
        return moved


async def _drain(pipe: int, sink: trio.socket.SocketType, count: int) -> int:
    """Move a pipe's contents; returns the number of bytes moved. Raises SinkError."""
    while True:
        try:
            return os.splice(pipe, sink.fileno(), count, flags=os.SPLICE_F_NONBLOCK)
        except BlockingIOError:
            try:
                await trio.lowlevel.wait_writable(sink)
            except trio.ClosedResourceError as error:
                raise SinkError(errno.EPIPE, os.strerror(errno.EPIPE)) from error
        except OSError as error:
            raise SinkError(error.errno, error.strerror) from error


def _opened() -> tuple[int, int]:
    """Open a pipe. Raises OSError."""
    pipe = os.pipe2(os.O_CLOEXEC)
    with suppress(OSError):  # the user's limit for pipes is reached: the pipe keeps its smaller capacity
        fcntl.fcntl(pipe[1], fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    return pipe


def _close(pipe: tuple[int, int]) -> None:
    for descriptor in pipe:
        os.close(descriptor)
