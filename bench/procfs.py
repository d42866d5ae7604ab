"""Figures of Linux for processes and for the machine.

The rule: only /proc is read, except that one counter is reset; only `settle_disk` affects the measured system, as
requested.
"""

from __future__ import annotations

import mmap
import os
import platform
import sys
import sysconfig
import time
from contextlib import suppress
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def children(pid: int) -> list[int]:
    """Return the children of a process, including zombies; empty if it does not exist."""
    pids: list[int] = []
    with suppress(FileNotFoundError, ProcessLookupError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            pids += map(int, (task / "children").read_text().split())
    return pids


def family(pid: int) -> list[int]:
    """The process and its descendants."""
    pids = [pid]
    for parent in pids:
        pids += children(parent)
    return pids


def cpu_s(pid: int, *, with_ended: bool = False) -> float:
    """Return the CPU seconds of a process and its descendants, in steps of 10 ms.

    `with_ended` also counts ended descendants that were waited for, and skips those that end meanwhile.
    """
    ticks = 0
    for member in family(pid):
        with suppress(*((FileNotFoundError, ProcessLookupError) if with_ended else ())):
            fields = Path(f"/proc/{member}/stat").read_text().rsplit(")", 1)[1].split()
            ticks += sum(map(int, fields[11 : 15 if with_ended else 13]))
    return ticks / TICKS_PER_S


def rss_bytes(pid: int) -> int:
    """Resident memory of a process and its descendants."""
    total = 0
    for member in family(pid):
        for line in Path(f"/proc/{member}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                total += int(line.split()[1]) * 1024
    return total


def peak_rss_bytes(pid: int) -> int:
    """Largest resident memory that a process has had since its start, or since `forget_peak_rss`."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def forget_peak_rss(pid: int) -> None:
    """Have the kernel count the largest resident memory from now on."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def settle_disk(data: Path, topic: str, timeout_s: float = 20) -> None:
    """Wait until a deleted topic's files are removed, and sync the disk, so that no arm pays for another."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline and any(data.rglob(f"{topic}-*")):
        time.sleep(0.1)
    os.sync()


def back_memory(size: int) -> None:
    """Make the host back `size` bytes of this machine's memory, just before another process will need them.

    A virtual machine may give free memory back to its host, and pays some 10 us for each page that it touches
    again: then it is the host's page faults that are measured, at 0.3 GB/s.
    """
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.madvise(mmap.MADV_HUGEPAGE)
        for position in range(0, size, mmap.PAGESIZE):
            memory[position] = 1


def python_build() -> str:
    """Return the optimisations of this Python's build, or its distributor if they are unknown."""
    arguments = sysconfig.get_config_var("CONFIG_ARGS") or ""
    named = {"--enable-optimizations": "PGO", "--with-lto": "LTO"}
    options = [name for argument, name in named.items() if argument in arguments]
    if options:
        return ", ".join(options)
    return "the distribution's" if sys.base_prefix == "/usr" else "no PGO, no LTO"


def describe_machine() -> dict[str, str]:
    """Return the facts about the machine that a comparison needs."""
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    memory_kb = int(Path("/proc/meminfo").read_text().split()[1])
    return {
        "cpu": f"{os.cpu_count()} x {model}",
        "memory": f"{memory_kb / 1024 / 1024:.0f} GiB",
        "kernel": platform.release(),
        "python": f"{platform.python_version()} ({python_build()})",
        "load": " ".join(f"{value:.2f}" for value in os.getloadavg()),
    }
