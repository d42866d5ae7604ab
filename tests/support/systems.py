"""Views of other processes, and of what this one has open, on Linux and on macOS."""

from __future__ import annotations

import os
import select
from pathlib import Path

import pytest

IS_BSD = hasattr(select, "kqueue")
linux_only = pytest.mark.skipif(
    IS_BSD, reason="holds a promise that is made on Linux only: docs/design/macos.md"
)


def open_descriptors() -> list[str]:
    """Return the descriptors that this process has open, one of them for this look."""
    return os.listdir("/dev/fd")


def in_proc(name: str) -> Path:
    """Return a path below /proc; skip the test where there is none: it looks into another process."""
    if not os.path.exists("/proc/self"):
        pytest.skip("looks into a process through /proc, which Linux has")
    return Path("/proc") / name


def is_running(process: int) -> bool:
    """Say whether there is a process with this id."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
