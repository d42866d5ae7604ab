"""Failed log dirs: they go offline with their partitions, and the failed request is answered with the error.

The rule: a dir stays online if the process has no file descriptors left, and so does a full dir of a broker without a
cluster: its records can be read, and space may be freed. In a cluster a full dir goes offline, as in Kafka: other replicas
have space. Missing files take only their own logs offline.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from barnabas.errors import RequestError, StorageError, lacks_files, lacks_room
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.log.manager import LogManager
    from barnabas.log.partition_log import PartitionLog

log = logging.getLogger(__name__)

FULL_INTERVAL_MS = 60_000
"""Shortest time (ms) between two log lines that say that a disk is full or too many files are open."""


class LogDirFailures:
    """Handles every StorageError.

    `on_lost` are called with the logs that went offline, `on_all_lost` after the last log dir.
    """

    def __init__(
        self,
        logs: LogManager,
        now_ms: Callable[[], int],
        on_all_lost: Callable[[], None],
        *,
        has_other_replicas: bool = False,
        vital_dir: str = "",
    ) -> None:
        """`has_other_replicas`: whether other brokers can lead the partitions of a full disk.

        `vital_dir` is the log dir of the metadata, without which the broker stops.
        """
        self.on_lost: list[Callable[[Iterable[PartitionLog]], None]] = []
        self._logs = logs
        self._now_ms = now_ms
        self._on_all_lost = on_all_lost
        self._has_other_replicas = has_other_replicas
        self._vital_dir = vital_dir
        self._say_full_again_ms = 0

    def failed(self, error: StorageError) -> RequestError:
        """Take the log dir that failed offline; returns the error for the request that met it."""
        logs = self._logs
        if error.is_full and not (self._has_other_replicas and lacks_room(error.cause)):
            self._say_full(error)
        elif error.log_dir in logs.online:
            if error.is_missing:
                lost = logs.lose_missing(error)
            else:
                lost = logs.take_offline(error.log_dir, error)
            for lose in self.on_lost:
                lose(lost)
            if not logs.online:
                self.give_up("no log dir works any more")
            elif self._vital_dir in logs.offline:
                self.give_up(f"the log of the metadata is in {self._vital_dir}, which is offline")
        return RequestError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))

    def give_up(self, why: str) -> None:
        """Stop the broker."""
        log.critical("%s: stopping", why)
        self._on_all_lost()

    def _say_full(self, error: StorageError) -> None:
        now_ms = self._now_ms()
        if now_ms >= self._say_full_again_ms:
            self._say_full_again_ms = now_ms + FULL_INTERVAL_MS
            if lacks_files(error.cause):
                log.error("%s; that was refused: allow more open files (ulimit -n)", error)
            else:
                log.error("%s; nothing can be written until there is room again", error)
