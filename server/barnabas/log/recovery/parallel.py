"""Checks many logs after a crash: several in parallel, with log lines about the progress.

The rule: threads share nothing. Each log is loaded by one thread, with its own pool of open files; the thread that owns
the logs takes over the results. Only reads and checksums release the interpreter.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from typing import TYPE_CHECKING

from barnabas.log.logdir import LogGoneError
from barnabas.log.openfiles import OpenFiles

if TYPE_CHECKING:
    from barnabas.log.recovery.loading import LoadedLog, Loader
    from barnabas.log.workers import Workers
    from barnabas.wire.topic_partitions import TopicPartition

log = logging.getLogger(__name__)

TELL_SECONDS = 2.0
OPEN_SEGMENTS_MAX = 64
"""Limit of open segments of one log while it is checked."""


def load_many(
    path: str, loaders: Mapping[TopicPartition, Loader], threads: int, workers: Workers
) -> Iterator[tuple[TopicPartition, LoadedLog | None]]:
    """Load the logs of a dir with this many threads; yields each when it is done, None for a log without its segments.

    Logs the progress every two seconds. Raises OSError and CorruptFileError like `Loader.load`; the remaining logs are
    then not loaded.
    """
    done_count, tell_s = 0, workers.monotonic() + TELL_SECONDS
    executor = workers.executor(min(threads, len(loaders)))
    try:
        running: dict[Future[LoadedLog], TopicPartition] = {}
        for key, loader in loaders.items():
            loader.pool = OpenFiles(OPEN_SEGMENTS_MAX)
            running[executor.submit(loader.load)] = key
        while running:
            done, _ = wait(running, timeout=TELL_SECONDS, return_when=FIRST_COMPLETED)
            for future in done:
                loaded: LoadedLog | None = None
                with suppress(LogGoneError):
                    loaded = future.result()
                yield running.pop(future), loaded
            done_count += len(done)
            if workers.monotonic() >= tell_s:
                tell_s = workers.monotonic() + TELL_SECONDS
                log.warning("checking %s after an unclean end: %d of %d logs", path, done_count, len(loaders))
    finally:
        executor.shutdown(cancel_futures=True)
