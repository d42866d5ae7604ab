"""Making the logs of new partitions, without holding up the thread that owns the logs.

The rule: a `Creation` is begun and finished by the thread that owns the logs (`LogManager`); `run` may be called in any.
Nothing is synced: a log that is empty is made again after a power cut, from the metadata.
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
"""So many directories are made at a time: a file system that waits for its journal lets others wait with it."""
KEPT_OPEN_MAX = 16
"""Of a larger number no files are held open, nor indexes in memory, until they are used."""
OPEN_SEGMENTS_MAX = 64
"""Of one log while it is made: its directory may be there already, and be full."""


class Wanted(NamedTuple):
    """A log that is to be made; no `topic_id` where the cluster has none, no `config` for that of its topic."""

    topic: str
    partition: int
    topic_id: bytes | None = None
    config: LogConfig | None = None


class NewLog:
    """A log that is being made, and what has become of it."""

    __slots__ = ("error", "key", "loaded", "loader", "log_dir", "topic_id")

    def __init__(self, key: TopicPartition, log_dir: str, topic_id: bytes | None, loader: Loader) -> None:
        self.key = key
        self.log_dir = log_dir
        self.topic_id = topic_id
        self.loader = loader
        self.loaded: LoadedLog | None = None
        self.error: OSError | None = None

    def make(self, disk: Disk, *, stays_open: bool) -> None:
        """Make the directory and its files; what is there already under its name is opened."""
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
    """Logs that are made together."""

    disk: Disk
    workers: Workers
    logs: Sequence[NewLog]

    def run(self) -> None:
        """Make all of them; what fails is kept for `LogManager.finish_creation`."""
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
