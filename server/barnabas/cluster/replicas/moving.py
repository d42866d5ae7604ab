"""Moving replicas between the broker's log dirs (AlterReplicaLogDirs, KIP-113).

The rule: one move at a time, copied in a thread within the rate limit; the last, short step runs in the event
loop, where no other task changes the log meanwhile.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import trio

from barnabas.config import broker as settings
from barnabas.errors import RequestError, StorageError
from barnabas.log.rate_limit import RateLimit
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.cluster.replicas.failures import LogDirFailures
    from barnabas.cluster.replicas.manager import Replicas
    from barnabas.config.loading import BrokerConfig
    from barnabas.environment import Environment
    from barnabas.log.manager import LogManager
    from barnabas.log.moving import Move

log = logging.getLogger(__name__)

PASSES_MAX = 10  # then the last step copies the rest: producers may be faster than the disk indefinitely


class LogMover:
    """Carries out the moves that it was given, in their order. Lifecycle: `run` in a task, until it is cancelled."""

    def __init__(
        self,
        config: BrokerConfig,
        logs: LogManager,
        replicas: Replicas,
        failures: LogDirFailures,
        environment: Environment,
    ) -> None:
        self._config = config
        self._logs = logs
        self._replicas = replicas
        self._failures = failures
        self._now_ms = environment.wall_clock_ms
        self._threads = environment.threads
        self._limit = RateLimit(None, environment.workers)
        self._send, self._receive = trio.open_memory_channel[tuple[str, int]](math.inf)

    def start(self, topic: str, partition: int, log_dir: str) -> None:
        """Start to move a replica; a move to a third dir is cancelled.

        Raises RequestError with LOG_DIR_NOT_FOUND, KAFKA_STORAGE_ERROR, INVALID_REPLICA_ASSIGNMENT (a cordoned log dir),
        REPLICA_NOT_AVAILABLE or UNKNOWN_TOPIC_OR_PARTITION, as in Kafka; a replica that does not exist yet will be
        created in that log dir.
        """
        logs = self._logs
        if log_dir not in logs.dirs:
            raise RequestError(ErrorCode.LOG_DIR_NOT_FOUND, f"{log_dir} is no log dir of this broker")
        if log_dir in logs.offline:
            raise RequestError(ErrorCode.KAFKA_STORAGE_ERROR, f"log dir {log_dir} is offline")
        if log_dir in logs.cordoned:
            raise RequestError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"log dir {log_dir} is cordoned")
        logs.prefer(topic, partition, log_dir)
        try:
            self._replicas.local(topic, partition)
        except RequestError as error:
            if error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                raise RequestError(ErrorCode.REPLICA_NOT_AVAILABLE, error.message) from error
            raise
        try:
            if logs.begin_move(topic, partition, log_dir, self._now_ms()) is not None:
                self._send.send_nowait((topic, partition))
        except StorageError as error:
            raise self._failures.failed(error) from error

    async def run(self) -> None:
        """Carry out moves until cancelled."""
        async for key in self._receive:
            move = self._logs.moves.get(*key)
            if move is not None:
                await self._move(move)

    async def _move(self, move: Move) -> None:
        moved = move.partition_log
        try:
            await self._copy(move)
            if not move.is_cancelled:
                new = self._logs.finish_move(move, self._now_ms())
                self._replicas.replace_log(new)
        except StorageError as error:
            if move.is_cancelled:
                return  # its directory was taken away under it
            log.error("%s could not be moved to %s: %s", moved.name, move.target_dir, error)
            self._logs.moves.cancel(move, self._now_ms())
            self._failures.failed(error)
            if self._logs.get(moved.topic, moved.partition) is None:
                self._replicas.lose([moved])
        except Exception:  # the next ones are carried out all the same
            log.exception("%s could not be moved to %s", moved.name, move.target_dir)
            self._logs.moves.cancel(move, self._now_ms())

    async def _copy(self, move: Move) -> None:
        for _ in range(PASSES_MAX):
            try:
                copies = move.plan()
            except OSError as error:
                raise StorageError(move.partition_log.log_dir, error) from error
            if move.is_near or move.is_cancelled:
                return
            self._limit.bytes_per_second = self._config.get(
                settings.REPLICA_ALTER_LOG_DIRS_IO_MAX_BYTES_PER_SECOND
            )
            await self._threads.run(partial(move.run, copies, self._throttle(move)))

    def _throttle(self, move: Move) -> Callable[[int], None]:
        def is_cancelled() -> bool:
            self._threads.check_cancelled()
            return move.is_cancelled

        return lambda size: self._limit.use(size, is_cancelled)
