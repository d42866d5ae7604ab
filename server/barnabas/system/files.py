"""Files: their place on the medium, their locks, their way into a socket, and how many may be open."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import resource
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

_os: Any = os
_fcntl: Any = fcntl

NO_ATIME: Final[int] = getattr(os, "O_NOATIME", 0)
"""A flag of `open`: access times are not needed, and noting them was 5 % of a fetch over 2,000 partitions."""
MORE_FOLLOWS: Final[int] = getattr(socket, "MSG_MORE", 0)
"""A flag of `send`: small packets are not sent by themselves."""
MEMORY: Final = "/dev/shm"
"""Linux's file system in memory; where it is missing, the system's directory for temporary files is used."""
OPEN_FILES_MACOS = 10_240
"""macOS's OPEN_MAX: the most that a process may request if the hard limit is unlimited."""

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_ZEROS = bytes(1 << 20)
_COPIED_BYTES = 256 * 1024
_IS_BUSY = {errno.EAGAIN, errno.EBUSY}
_NOT_SENT_BY_KERNEL = {errno.ENOTSOCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS}
_NOT_FLUSHED_BY_DEVICE = {errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOTTY, errno.ENODEV}


def _full_sync(descriptor: int) -> None:
    fcntl.fcntl(descriptor, _fcntl.F_FULLFSYNC)


def flush_device(
    descriptor: int,
    *,
    full_sync: Callable[[int], None] = _full_sync,
    plain_sync: Callable[[int], None] = os.fsync,
) -> None:
    """Sync a file to the medium: on macOS `fsync` leaves data in the cache of the device.

    File systems that are not on a local device support only `fsync`.
    """
    try:
        full_sync(descriptor)
    except OSError as error:
        if error.errno not in _NOT_FLUSHED_BY_DEVICE:
            raise
        plain_sync(descriptor)


sync: Final[Callable[[int], None]] = flush_device if hasattr(fcntl, "F_FULLFSYNC") else os.fsync
"""Return when all that was written to a descriptor is on the medium. Raises OSError."""
sync_data: Final[Callable[[int], None]] = getattr(os, "fdatasync", sync)
"""The same, without times of the file. Raises OSError."""


def write_zeros(descriptor: int, _start: int, size: int) -> None:
    """Extend a file to `size` with written zeros, like `posix_fallocate` on systems that lack it."""
    at = os.fstat(descriptor).st_size
    while at < size:
        at += os.pwrite(descriptor, _ZEROS[: size - at], at)


allocate: Final[Callable[[int, int, int], None]] = getattr(os, "posix_fallocate", write_zeros)
"""Extend a file, named by descriptor, start and size, with zeros that have their place on the medium. Raises OSError."""


def send_or_copy(
    target: int,
    source: int,
    position: int,
    count: int,
    *,
    send: Callable[[int, int, int, int], int] = os.sendfile,
) -> int:
    """Send a part of a file as BSD's `sendfile` does, and through memory where the kernel cannot, as between two files."""
    if not count:
        return 0  # to BSD it would mean all of the file
    try:
        return send(target, source, position, count)
    except OSError as error:
        if error.errno in _IS_BUSY:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from error
        if error.errno not in _NOT_SENT_BY_KERNEL:
            raise
    return os.write(target, os.pread(source, min(count, _COPIED_BYTES), position))


IS_BSD: Final = hasattr(fcntl, "F_FULLFSYNC")
"""True on macOS."""
send_file: Final[Callable[[int, int, int, int], int]] = send_or_copy if IS_BSD else _os.sendfile
"""Move bytes of a file, named by target, source, position and count, to a socket or the end of a file.

Returns how many, 0 at the end of the file. Raises OSError, of it BlockingIOError where the socket takes none.
"""


def lock(descriptor: int, *, is_shared: bool = False) -> None:
    """Lock a whole file against other processes and against this one, until it is closed. Raises OSError if it is held.

    Java and so Kafka uses POSIX record locks, which have no effect within a process; `flock` has. On Linux the two are
    independent. On BSD they exclude each other, also in one process: there `flock` alone excludes all others.
    """
    how = (fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX) | fcntl.LOCK_NB
    fcntl.flock(descriptor, how)
    if not IS_BSD:
        fcntl.lockf(descriptor, how)


def boot_id() -> bytes:
    """Return an id of this run of the machine, from boot to power cut; empty if the system has none."""
    try:
        with open(_BOOT_ID, "rb") as file:
            return file.read().strip()
    except OSError:
        return _control_value(b"kern.bootsessionuuid")


def _control_value(name: bytes) -> bytes:
    """Return a text value of BSD's sysctl; empty if it is missing."""
    with suppress(OSError, AttributeError):
        read = ctypes.CDLL(None).sysctlbyname
        value = ctypes.create_string_buffer(128)
        size = ctypes.c_size_t(len(value))
        if not read(name, value, ctypes.byref(size), None, 0):
            return value.raw[: size.value].rstrip(b"\0")
    return b""


@contextmanager
def _memory_file(data: bytes) -> Iterator[str]:
    descriptor = _os.memfd_create("data", _os.MFD_CLOEXEC)
    try:
        os.write(descriptor, data)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


@contextmanager
def _private_file(data: bytes) -> Iterator[str]:
    import tempfile

    with tempfile.NamedTemporaryFile(prefix="barnabas-") as file:
        file.write(data)
        file.flush()
        yield file.name


as_file = _memory_file if hasattr(os, "memfd_create") else _private_file
"""Give data a path for a moment, for libraries that read files only: in memory, or in a file for this user alone."""


def raise_open_files(
    read: Callable[[int], tuple[int, int]] = resource.getrlimit,
    write: Callable[[int, tuple[int, int]], None] = resource.setrlimit,
) -> int:
    """Raise this process's soft limit of open files, often 1024 or 256, to the hard one; returns the limit."""
    soft, hard = read(resource.RLIMIT_NOFILE)
    if soft == hard:
        return hard
    for limit in (hard, max(soft, OPEN_FILES_MACOS)):  # some systems have a limit above the limit
        with suppress(ValueError, OSError):
            write(resource.RLIMIT_NOFILE, (limit, hard))
            return limit
    return soft
