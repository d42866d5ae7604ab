"""Creates the logs of new partitions without blocking the thread that owns the logs.

The rule: a `Creation` is begun and finished by the thread that owns the logs (`LogManager`); `run` may be called in any
thread. Nothing is synced: after a power cut an empty log is created again from the metadata.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from barnabas.log.format import names, properties
from barnabas.log.openfiles import OpenFiles

if TYPE_CHECKING:
    from barnabas.log.config import LogConfig
    from barnabas.log.disk import Disk
    from barnabas.log.recovery.loading import LoadedLog, Loader
    from barnabas.log.workers import Workers
    from barnabas.wire.topic_partitions import TopicPartition

THREADS = 4
"""Directories created in parallel: a file system that waits for its journal then completes several together."""
KEPT_OPEN_MAX = 16
"""Beyond this number of new logs, files are closed and indexes unloaded until they are used."""
OPEN_SEGMENTS_MAX = 64
"""Open segments of one log while it is created: an existing directory may have many."""


class Wanted(NamedTuple):
    """A log to create; `topic_id` is None if the cluster has none, `config` None for that of its topic."""

    topic: str
    partition: int
    topic_id: bytes | None = None
    config: LogConfig | None = None


class NewLog:
    """A log that is being created, and the outcome."""

    __slots__ = ("error", "key", "loaded", "loader", "log_dir", "topic_id")

    def __init__(self, key: TopicPartition, log_dir: str, topic_id: bytes | None, loader: Loader) -> None:
        self.key = key
        self.log_dir = log_dir
        self.topic_id = topic_id
        self.loader = loader
        self.loaded: LoadedLog | None = None
        self.error: OSError | None = None

    def make(self, disk: Disk, *, stays_open: bool) -> None:
        """Create the directory and its files, or open an existing log of that name."""
        directory = self.loader.directory
        self.loader.pool = OpenFiles(OPEN_SEGMENTS_MAX)
        try:
            disk.make_dirs(directory)
            loaded = self.loader.load()
            if self.topic_id is not None:
                data = properties.encode_partition_metadata(self.topic_id)
                disk.replace(f"{directory}/{names.PARTITION_METADATA}", data, sync=False)
        except OSError as error:
            self.error = error
            return
        if not stays_open:
            for segment in loaded.segments:
                segment.release()
        self.loaded = loaded


class Creation(NamedTuple):
    """Logs that are created together."""

    disk: Disk
    workers: Workers
    logs: Sequence[NewLog]

    def run(self) -> None:
        """Create all logs; `LogManager.finish_creation` raises their errors."""
        stays_open = len(self.logs) <= KEPT_OPEN_MAX
        if len(self.logs) < THREADS:
            self._make_part(self.logs, stays_open)
            return
        with self.workers.executor(THREADS) as executor:
            running = [
                executor.submit(self._make_part, self.logs[first::THREADS], stays_open)
                for first in range(THREADS)
            ]
            for part in running:
                part.result()

    def _make_part(self, logs: Sequence[NewLog], stays_open: bool) -> None:
        for log in logs:
            log.make(self.disk, stays_open=stays_open)
