"""The log: appends and reads, beside what the operating system alone needs for the same bytes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from bench.micro.timing import Timing, measure
from bench.tools import ROOT
from bench.wire import record_batch

if TYPE_CHECKING:
    from barnabas.log.partition_log import PartitionLog

BATCHES = [("1 KB", 1), ("16 KB", 15), ("1 MB", 970)]
WRAP_BYTES = 1 << 28  # a file is begun anew after that, so that the page cache is not what is measured


def run() -> Iterator[Timing]:
    (ROOT / ".data").mkdir(exist_ok=True)
    for name, count in BATCHES:
        batch = bytearray(record_batch([b"x" * 1024] * count, time.time_ns() // 1_000_000))
        with TemporaryDirectory(dir=ROOT / ".data") as directory:
            yield _plain_write(f"plain write, {name}", batch, Path(directory))
            yield from _log(name, batch, Path(directory))


def _plain_write(name: str, batch: bytearray, directory: Path) -> Timing:
    fd = os.open(directory / "plain", os.O_RDWR | os.O_CREAT)
    position = 0

    def call() -> None:
        nonlocal position
        os.pwrite(fd, batch, position)
        position += len(batch)
        if position > WRAP_BYTES:
            os.ftruncate(fd, 0)
            position = 0

    try:
        return measure(name, call, len(batch))
    finally:
        os.close(fd)


def _log(name: str, batch: bytearray, directory: Path) -> Iterator[Timing]:
    from barnabas.log.config import LogConfig
    from barnabas.log.manager import LogManager

    now_ms = time.time_ns() // 1_000_000
    config = LogConfig()
    trusting = replace(config, record_validation="header")
    manager = LogManager([str(directory / "data")], config_for=lambda topic: config)
    manager.open(now_ms)
    try:
        for what, one in (("header", trusting), ("full", config)):
            log = manager.create(f"topic-{what}", 0, os.urandom(16), one)
            yield measure(f"append ({what}), {name}", _appender(log, batch, now_ms), len(batch))
        log.advance_high_watermark(log.log_end_offset)
        end, start = log.high_watermark, log.log_start_offset
        middle = start + (end - start) // 2
        for what, offset in (("at the end", end - 1), ("in the middle", middle)):
            yield measure(
                f"read {what}, {name} batches",
                lambda offset=offset: log.read(offset, max_bytes=1 << 20, upper_offset=end),  # type: ignore[misc]
            )
    finally:
        manager.close()


def _appender(log: PartitionLog, batch: bytearray, now_ms: int) -> Callable[[], object]:
    def call() -> None:
        batch[:8] = bytes(8)  # a client's batch begins at offset 0; it is patched in place
        log.append_as_leader(batch, leader_epoch=0, now_ms=now_ms)
        if log.size_bytes > WRAP_BYTES:
            log.truncate_to(log.log_start_offset, now_ms=now_ms)

    return call
