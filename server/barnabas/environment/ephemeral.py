"""A data directory in memory that lasts as long as the process.

The rule: the directory is locked for as long as it is in use, so any process may remove one that is not locked. A process
that was killed (SIGKILL) leaves its directory behind; the next process that starts removes it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from barnabas.system.files import MEMORY

PREFIX = "barnabas-ephemeral-"

END_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


@contextmanager
def owned_directory(parent: str | None = None, *, memory: str = MEMORY) -> Iterator[str]:
    """A new directory below `parent` that is removed when the block ends. Raises OSError.

    For programs that handle signals themselves, in any thread. Directories of killed processes are removed first.
    """
    parent = parent or _parent(memory)
    sweep(parent)
    path, lock = _create(parent)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


@contextmanager
def ephemeral_directory(
    parent: str | None = None, *, memory: str = MEMORY, lock_file: Callable[[int, int], None] = fcntl.flock
) -> Iterator[str]:
    """A new directory below `parent` that is removed when the block ends, also by a signal. Raises OSError.

    Directories of killed processes are removed first.
    """
    parent = parent or _parent(memory)
    handlers = {number: signal.getsignal(number) for number in END_SIGNALS}
    _exit_on_signals()
    try:
        sweep(parent)
        path, lock = _create(parent, lock_file)
        try:
            yield path
        finally:
            for number in END_SIGNALS:  # a second Ctrl-C must not stop the removal half-way
                signal.signal(number, signal.SIG_IGN)
            shutil.rmtree(path, ignore_errors=True)
            os.close(lock)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def sweep(parent: str) -> list[str]:
    """Remove the directories of ended processes below `parent`; returns their paths."""
    removed = []
    for name in os.listdir(parent):
        if not name.startswith(PREFIX):
            continue
        path = os.path.join(parent, name)
        try:
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:  # another user's, a file, or already gone
            continue
        try:
            if os.fstat(lock).st_uid == os.geteuid():
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
                removed.append(path)
        except BlockingIOError:  # in use
            pass
        finally:
            os.close(lock)
    return removed


def _create(parent: str, lock_file: Callable[[int, int], None] = fcntl.flock) -> tuple[str, int]:
    """A new locked directory: its path, and the file descriptor that holds the lock."""
    while True:
        path = tempfile.mkdtemp(prefix=PREFIX, dir=parent)
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        lock_file(lock, fcntl.LOCK_EX)
        if _is_at(path, lock):
            return path, lock
        os.close(lock)  # another process swept it away before it was locked


def _is_at(path: str, descriptor: int) -> bool:
    try:
        status = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(status.st_mode) and os.path.samestat(status, os.fstat(descriptor))


def _parent(memory: str) -> str:
    return memory if os.access(memory, os.W_OK) else tempfile.gettempdir()


def _exit_on_signals() -> None:
    """Make signals end the process by an exception until the broker handles them itself, so that `finally` runs."""

    def leave(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    for number in END_SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, leave)
