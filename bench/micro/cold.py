"""The log with a cold page cache: recovery, verification and lookups, beside reading the same bytes.

The rule: wall time, since this is about waiting. Before each sample the files are synced and dropped from the page
cache (`posix_fadvise`), and the bytes read from the disk are shown beside the time: without any, a sample was not cold.
"""

from __future__ import annotations

import logging
import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from bench.micro.opening import multiply
from bench.micro.recovery import CRASHED, open_and_leave, write
from bench.micro.timing import Timing
from bench.tools import ROOT

if TYPE_CHECKING:
    from barnabas.log.partition_log import PartitionLog

LOGS = 8
RECORDS, BATCHES = 15, 8_192  # of 16 KB: 128 MB a log
SAMPLES = 3
LOOKUPS = 40
READ_BYTES = 1 << 20
THREADS = (1, 2, 4)


def run() -> Iterator[Timing]:
    (ROOT / ".data").mkdir(exist_ok=True)
    logging.getLogger("barnabas").setLevel(logging.ERROR)
    with TemporaryDirectory(dir=ROOT / ".data") as directory:
        path = Path(directory) / "data"
        total = write(path, RECORDS, 1024, BATCHES) * LOGS
        multiply(path, LOGS, copy=_copy)
        what = f"{total / 1e9:.1f} GB in {LOGS} logs"
        yield _timed(f"cold: read {what}", path, lambda: _read(path), total)
        for threads in THREADS:
            name = f"cold: recover {what}, {threads} threads"
            yield _timed(name, path, lambda threads=threads: _recover(path, threads), total)  # type: ignore[misc]
        yield _timed(f"cold: verify {what}", path, lambda: _verify(path), total)
        yield from _lookups(path)


def _copy(source: Path, target: Path) -> None:
    target.write_bytes(source.read_bytes())


def drop(path: Path) -> None:
    """Drop the files below a directory from the page cache. They may be open, but not mapped."""
    for file in path.rglob("*"):
        if file.is_file():
            fd = os.open(file, os.O_RDONLY)
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


def read_from_disk() -> int:
    """Bytes that the kernel has fetched from disks for this process."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("read_bytes"))


def _timed(name: str, path: Path, call: Callable[[], object], size: int) -> Timing:
    samples, fetched = [], []
    for _ in range(SAMPLES):
        drop(path)
        before, start = read_from_disk(), time.perf_counter()
        call()
        samples.append(time.perf_counter() - start)
        fetched.append(read_from_disk() - before)
    return Timing(name, min(samples), median(samples), size, f"  {min(fetched) / 1e6:,.0f} MB from the disk")


def _read(path: Path) -> None:
    for file in sorted(path.rglob("*.log")):
        with file.open("rb", buffering=0) as opened:
            while opened.read(READ_BYTES):
                pass


def _recover(path: Path, threads: int) -> None:
    for name in CRASHED:
        (path / name).unlink(missing_ok=True)
    open_and_leave(path, threads)


def _verify(path: Path) -> None:
    from barnabas.log.disk import OsDisk
    from barnabas.tools.logtool.places import partitions_of
    from barnabas.tools.logtool.verify import Verifier

    disk = OsDisk(read_only=True)
    verifier = Verifier(disk, print)
    for place in partitions_of(disk, str(path), ""):
        verifier.partition(place)


def _lookups(path: Path) -> Iterator[Timing]:
    from barnabas.log.config import LogConfig
    from barnabas.log.manager import LogManager

    manager = LogManager([str(path)], config_for=lambda topic: LogConfig())
    manager.open(time.time_ns() // 1_000_000)
    log = next(iter(manager))
    choose = random.Random(1)
    offsets = [choose.randrange(log.log_end_offset) for _ in range(LOOKUPS)]
    first_ms = log.segments[0].load_first_timestamp()

    def read(offset: int) -> object:
        return log.read(offset, max_bytes=1, upper_offset=log.log_end_offset).to_bytes()

    yield _each("cold: find the batch of an offset, indexes too", path, log, log.store.find, offsets, True)
    yield _each("cold: find the batch of an offset", path, log, log.store.find, offsets, False)
    yield _each("cold: read a batch at an offset", path, log, read, offsets, False)
    stamps = [first_ms + offset // RECORDS for offset in offsets]
    yield _each("cold: first record of a timestamp", path, log, log.offset_for_timestamp, stamps, False)
    manager.close()


def _each(
    name: str,
    path: Path,
    log: PartitionLog,
    call: Callable[[int], object],
    values: list[int],
    with_indexes: bool,
) -> Timing:
    samples, fetched = [], 0
    directory = Path(log.dir)
    for value in values:
        if with_indexes:
            for segment in log.segments:
                segment.close()
        drop(directory)
        before, start = read_from_disk(), time.perf_counter()
        call(value)
        samples.append(time.perf_counter() - start)
        fetched += read_from_disk() - before
    each = f"  {fetched / len(values) / 1e3:,.0f} KB from the disk each"
    return Timing(name, min(samples), median(samples), 0, each)
