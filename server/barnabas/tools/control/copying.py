"""Copies of log dirs that share unchanging files.

The rule: the log and index files of closed segments are never written again, so a copy is another name of the same file (a
hard link). All other files are copied: by reference if the file system can (btrfs, XFS), byte by byte otherwise.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Iterable

from barnabas.log.format import names
from barnabas.system.files import send_file

FICLONE = 0x40049409
"""The ioctl of Linux that makes one file a copy of another, sharing its blocks until one of them is written."""
_CANNOT_SHARE = {errno.EOPNOTSUPP, errno.ENOTTY, errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EPERM}
_BASE_DIGITS = 20


def clone(source: str, target: str, size: int) -> bool:
    """Make `target` a copy of the first `size` bytes that shares its blocks; false where that is not possible.

    Raises OSError.
    """
    with open(source, "rb") as old, open(target, "wb") as new:
        try:
            fcntl.ioctl(new.fileno(), FICLONE, old.fileno())
        except OSError as error:
            if error.errno not in _CANNOT_SHARE:
                raise
            os.unlink(target)
            return False
        os.ftruncate(new.fileno(), size)
        return True


def copy(source: str, target: str, size: int | None = None) -> None:
    """Copy a file, or its first `size` bytes. Raises OSError."""
    old = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        bytes_to_copy = os.fstat(old).st_size if size is None else size
        new = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            at = 0
            while bytes_to_copy:
                count = send_file(new, old, at, bytes_to_copy)
                if not count:
                    raise OSError(errno.EIO, "the file is shorter than it was", source)
                at += count
                bytes_to_copy -= count
        finally:
            os.close(new)
    finally:
        os.close(old)


def share(source: str, target: str) -> None:
    """Give another name to a file that is no longer written; copy it if hard links are not supported. Raises OSError."""
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in _CANNOT_SHARE | {errno.EMLINK}:
            raise
        copy(source, target)


def copy_log_dir(source: str, target: str) -> None:
    """Copy a log dir that no broker has open and that was closed cleanly. Raises OSError."""
    os.makedirs(target, exist_ok=True)
    with os.scandir(source) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                _copy_partition(entry.path, f"{target}/{entry.name}")
            elif entry.name != names.LOCK:
                copy(entry.path, f"{target}/{entry.name}")


def _copy_partition(source: str, target: str) -> None:
    os.mkdir(target)
    files = os.listdir(source)
    active = max((name[:_BASE_DIGITS] for name in files if name.endswith(names.LOG)), default="")
    for name in files:
        is_closed = name[:_BASE_DIGITS] != active and name.endswith(names.SEGMENT_SUFFIXES)
        (share if is_closed else copy)(f"{source}/{name}", f"{target}/{name}")


def empty(directory: str, aside: str) -> None:
    """Move all content of a directory, except its lock, to `aside`, which is created. Raises OSError.

    Moving is quick, while the time for removing grows with the bytes.
    """
    os.makedirs(aside)
    for name in os.listdir(directory):
        if name != names.LOCK:
            os.rename(f"{directory}/{name}", f"{aside}/{name}")


def remove(paths: Iterable[str]) -> None:
    """Remove directories with their content, as far as possible."""
    for path in paths:
        shutil.rmtree(path, ignore_errors=True)
