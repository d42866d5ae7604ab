"""Opening a log after a crash, and checking it, beside the checksum of the same bytes, which is the least it can cost."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.micro.timing import Timing, measure
from bench.tools import ROOT
from bench.wire import record_batch

CASES = [
    ("16 KB batches", 15, 1024, 4_096),
    ("150 B batches", 1, 80, 40_000),
]  # records, bytes of each, batches
READ_BYTES = 1 << 20
CRASHED = ("recovery-point-offset-checkpoint", ".kafka_cleanshutdown")
"""The files without which all of a log dir must be checked."""


def run() -> Iterator[Timing]:
    (ROOT / ".data").mkdir(exist_ok=True)
    logging.getLogger("barnabas").setLevel(logging.ERROR)  # the log must remain unclosed, as after a crash
    for name, records, record_bytes, batches in CASES:
        with TemporaryDirectory(dir=ROOT / ".data") as directory:
            yield from _case(name, Path(directory), records, record_bytes, batches)


def _case(name: str, directory: Path, records: int, record_bytes: int, batches: int) -> Iterator[Timing]:
    from barnabas.log.disk import OsDisk
    from barnabas.tools.logtool.places import open_partition
    from barnabas.tools.logtool.verify import Verifier

    size = write(directory / "data", records, record_bytes, batches)
    partition = directory / "data" / "topic-0"
    yield measure(f"crc32c alone, {name}", lambda: checksum(partition), size)

    def recover() -> None:
        for name in CRASHED:
            (directory / "data" / name).unlink(missing_ok=True)
        open_and_leave(directory / "data")

    yield measure(f"recovery, {name}", recover, size)
    disk = OsDisk(read_only=True)
    for what, deep in (("verify", False), ("verify --deep", True)):
        verifier = Verifier(disk, print, deep=deep)
        yield measure(
            f"{what}, {name}",
            lambda verifier=verifier: verifier.partition(open_partition(disk, str(partition))),  # type: ignore[misc]
            size,
        )


def write(directory: Path, records: int, record_bytes: int, batches: int) -> int:
    """Write a log and close it; returns its size."""
    from barnabas.log.config import LogConfig
    from barnabas.log.manager import LogManager

    now_ms = time.time_ns() // 1_000_000
    manager = LogManager([str(directory)], config_for=lambda topic: LogConfig(segment_bytes=16 << 20))
    manager.open(now_ms)
    log = manager.create("topic", 0, os.urandom(16))
    for n in range(batches):
        batch = bytearray(record_batch([b"x" * record_bytes] * records, now_ms + n))
        log.append_as_leader(batch, leader_epoch=0, now_ms=now_ms)
    size = log.size_bytes
    manager.close()
    return size


def open_and_leave(directory: Path, threads: int = 1) -> None:
    """Open a log dir with a number of threads, and leave it as a crash would."""
    from barnabas.log.config import LogConfig
    from barnabas.log.manager import LogManager

    manager = LogManager(
        [str(directory)], config_for=lambda topic: LogConfig(segment_bytes=16 << 20), recovery_threads=threads
    )
    manager.open(time.time_ns() // 1_000_000)
    for log in manager:
        log.abandon()
    manager.ownership.release()


def checksum(partition: Path) -> None:
    """Sum up all segments."""
    from barnabas.records.crc import crc32c

    for path in partition.glob("*.log"):
        with path.open("rb", buffering=0) as file:
            crc = 0
            while data := file.read(READ_BYTES):
                crc = crc32c(data, crc)
