"""The log: appends and reads, beside plain system calls for the same bytes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from bench.micro.timing import Timing, measure, measure_beside
from bench.tools import ROOT
from bench.wire import record_batch

if TYPE_CHECKING:
    from barnabas.log.partition_log import PartitionLog

ATTRIBUTES_AT = 21  # where the checksum begins to count
BATCHES = [("1 KB", 1), ("16 KB", 15), ("64 KB", 62), ("256 KB", 248), ("1 MB", 970)]
WRAP_BYTES = 1 << 28  # then writing starts over, so that the page cache is not measured


def run() -> Iterator[Timing]:
    (ROOT / ".data").mkdir(exist_ok=True)
    for name, count in BATCHES:
        batch = bytearray(record_batch([b"x" * 1024] * count, time.time_ns() // 1_000_000))
        with TemporaryDirectory(dir=ROOT / ".data") as directory:
            yield from _log(name, batch, Path(directory))


def _log(name: str, batch: bytearray, directory: Path) -> Iterator[Timing]:
    """Appends in turns with a plain write, and with a write after the checksum that no broker can do without."""
    from barnabas.log.config import LogConfig
    from barnabas.log.manager import LogManager
    from barnabas.records.crc import crc32c

    now_ms = time.time_ns() // 1_000_000
    config = LogConfig()
    trusting = replace(config, record_validation="header")
    manager = LogManager([str(directory / "data")], config_for=lambda topic: config)
    manager.open(now_ms)
    log = manager.create("topic-full", 0, os.urandom(16), config)
    unlooked = manager.create("topic-header", 0, os.urandom(16), trusting)
    plain, summed = _Plain(directory / "plain"), _Plain(directory / "summed")
    view = memoryview(batch)

    def write_summed() -> None:
        crc32c(view[ATTRIBUTES_AT:])
        summed.write(batch)

    write, checked = f"plain write, {name}", f"crc32c and write, {name}"
    try:
        yield from measure_beside(
            {
                write: lambda: plain.write(batch),
                checked: write_summed,
                f"append (header), {name}": _appender(unlooked, view, now_ms),
                f"append (full), {name}": _appender(log, view, now_ms),
            },
            len(batch),
            to=(write, checked),
        )
        log.advance_high_watermark(log.log_end_offset)
        end, start = log.high_watermark, log.log_start_offset
        middle = start + (end - start) // 2
        for what, offset in (("at the end", end - 1), ("in the middle", middle)):
            yield measure(
                f"read {what}, {name} batches",
                lambda offset=offset: log.read(offset, max_bytes=1 << 20, upper_offset=end),  # type: ignore[misc]
            )
    finally:
        plain.close()
        summed.close()
        manager.close()


class _Plain:
    """A plain file, written without a log."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT)
        self._position = 0

    def write(self, batch: bytearray) -> None:
        os.pwrite(self._fd, batch, self._position)
        self._position += len(batch)
        if self._position > WRAP_BYTES:
            os.ftruncate(self._fd, 0)
            self._position = 0

    def close(self) -> None:
        os.close(self._fd)


def _appender(log: PartitionLog, batch: memoryview, now_ms: int) -> Callable[[], object]:
    nothing = bytes(8)

    def call() -> None:
        batch[:8] = nothing  # a client's batch begins at offset 0; it is patched in place
        log.append_as_leader(batch, leader_epoch=0, now_ms=now_ms)
        if log.active.size > WRAP_BYTES:
            log.truncate_to(log.log_start_offset, now_ms=now_ms)

    return call
