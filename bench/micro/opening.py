"""Opening a log dir of many logs: after a clean stop, and after a kill, which requires a full check.

The rule: wall time, since users wait for it. The segments are one file under many names (hard links), so that they are in
the page cache and the disk is not measured; each log has its own indexes and other files.
"""

from __future__ import annotations

import logging
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from bench.micro.recovery import write
from bench.micro.timing import Timing
from bench.procfs import rss_bytes
from bench.tools import ROOT
from bench.wire import record_batch

LOGS = 2_000
BATCHES = 320  # of 16 KB: 5 MB a log, 10 GB in all
RECORDS = 15
SAMPLES = 5
RECOVERED_LOGS = 200  # more logs would take too long
RESIDENT_LOGS = (1_000, 10_000)
FILES_MAX = 20_000
FEW_FILES_MAX = 256


def run() -> Iterator[Timing]:
    (ROOT / ".data").mkdir(exist_ok=True)
    logging.getLogger("barnabas").setLevel(logging.ERROR)
    with TemporaryDirectory(dir=ROOT / ".data") as directory:
        path = Path(directory) / "data"
        size = write(path, RECORDS, 1024, BATCHES)
        multiply(path, RECOVERED_LOGS)
        total = size * RECOVERED_LOGS
        yield _wall(f"kill -9, {RECOVERED_LOGS:,} logs of {total / 1e9:.1f} GB", path, total, is_clean=False)
    with TemporaryDirectory(dir=ROOT / ".data") as directory:
        path = Path(directory) / "data"
        size = write(path, RECORDS, 1024, BATCHES)
        multiply(path, LOGS)
        yield _wall(f"clean stop, {LOGS:,} logs of {size * LOGS / 1e9:.1f} GB", path, 0, is_clean=True)
        yield _ready(path)
    for count in RESIDENT_LOGS:
        with TemporaryDirectory(dir=ROOT / ".data") as directory:
            path = Path(directory) / "data"
            write(path, RECORDS, 1024, 1)
            multiply(path, count, copy=shutil.copy)
            for files_max in (FILES_MAX, FEW_FILES_MAX):
                yield Timing(_resident(path, count, files_max), 0, 0)


def multiply(path: Path, count: int, copy: Callable[[Path, Path], object] = os.link) -> None:
    """Copy the existing log, so that there are `count` logs, with checkpoints for them."""
    first = path / "topic-0"
    for n in range(1, count):
        directory = path / f"topic-{n}"
        directory.mkdir()
        for file in first.iterdir():
            if file.suffix == ".log":
                copy(file, directory / file.name)
            else:
                shutil.copy(file, directory / file.name)
    for checkpoint in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        version, _, line = (path / checkpoint).read_text().splitlines()
        offset = line.rsplit(" ", 1)[1]
        lines = [version, str(count), *(f"topic {n} {offset}" for n in range(count))]
        (path / checkpoint).write_text("\n".join(lines) + "\n")


def _wall(name: str, path: Path, size: int, *, is_clean: bool) -> Timing:
    from barnabas.log.config import LogConfig
    from barnabas.log.manager import LogManager

    samples = []
    for _ in range(SAMPLES):
        mark = path / ".kafka_cleanshutdown"
        if is_clean:
            mark.write_text('{"version":0,"brokerEpoch":-1}')
        else:
            mark.unlink(missing_ok=True)
            (path / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
        manager = LogManager([str(path)], config_for=lambda topic: LogConfig())
        start = time.perf_counter()
        manager.open(time.time_ns() // 1_000_000)
        samples.append(time.perf_counter() - start)
        for log in manager:
            assert log.log_end_offset == RECORDS * BATCHES, log
            log.abandon()
        manager.ownership.release()
    return Timing(name, min(samples), median(samples), size)


def _ready(path: Path) -> Timing:
    """From exec to the ready line of a whole broker, each time after a clean stop; the first start adopts the topic."""
    samples = [_start_and_stop(path) for _ in range(SAMPLES + 1)][1:]
    name = f"clean stop, {LOGS:,} logs: exec of the broker to its ready line"
    return Timing(name, min(samples), median(samples))


def _start_and_stop(path: Path) -> float:
    command = [sys.executable, "-m", "barnabas", "serve", "--listen", "127.0.0.1:0", "--data", str(path)]
    start = time.perf_counter()
    with subprocess.Popen(command, env=_environment(), stdout=subprocess.PIPE, text=True) as broker:
        assert broker.stdout is not None
        try:
            for line in broker.stdout:
                if line.startswith("barnabas is ready"):
                    return time.perf_counter() - start
        finally:
            broker.terminate()
            broker.wait(60)
    raise RuntimeError(f"the broker ended with {broker.returncode} before it was ready")


def _environment() -> dict[str, str]:
    from barnabas.testing.running import import_path

    return {**os.environ, "PYTHONPATH": import_path(ROOT)}


def _resident(path: Path, count: int, files_max: int) -> str:
    """Open a log dir in a separate process with a limit of open files, append to each log once; return the cost as text."""
    command = [sys.executable, "-m", "bench.micro.opening", str(path), str(files_max)]
    output = subprocess.run(command, env=_environment(), capture_output=True, text=True, check=True).stdout
    before, after, opened, limit = map(int, output.split())
    each = (after - before) / count / 1024
    return f"{count:,} logs, appended to: {each:,.1f} KB RSS each, {opened:,} of {limit:,} files open"


def _open_and_append(path: str, files_max: int) -> tuple[int, int, int, int]:
    """RSS before and after in bytes, files open, and how many may be."""
    from barnabas.broker.open_files import open_segments_max
    from barnabas.log.config import LogConfig
    from barnabas.log.manager import LogManager

    now_ms = time.time_ns() // 1_000_000
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = files_max if hard == resource.RLIM_INFINITY else min(files_max, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    config = LogConfig()
    segments_max = open_segments_max(limit)
    manager = LogManager([path], config_for=lambda topic: config, open_segments_max=segments_max)
    before = rss_bytes(os.getpid())
    manager.open(now_ms)
    for log in manager:
        batch = bytearray(record_batch([b"x"] * RECORDS, now_ms))
        end_offset = log.log_end_offset
        log.append_as_leader(batch, leader_epoch=0, now_ms=now_ms)
        assert log.log_end_offset == end_offset + RECORDS, log
    opened = len(os.listdir("/proc/self/fd"))
    return before, rss_bytes(os.getpid()), opened, limit


if __name__ == "__main__":
    print(*_open_and_append(sys.argv[1], int(sys.argv[2])))
