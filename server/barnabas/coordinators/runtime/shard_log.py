"""Decisions of a coordinator's shards: appended to the internal topic, replayed, and finally committed.

The rule: a decision that cannot be appended changes nothing, or its shard is read again. An appended decision counts
when the high watermark has passed it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic

import trio

from barnabas.coordinators.runtime.errors import client_code, is_in_log, is_refusal
from barnabas.coordinators.runtime.journal import Journal
from barnabas.coordinators.runtime.shard import M, Replay, Shard
from barnabas.coordinators.statemachine.decision import NO_PRODUCER_ID, Decision, Entry
from barnabas.errors import RequestError, StorageError
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.environment import Threads

log = logging.getLogger(__name__)

NOT_REPLAYED = "what was written could not be replayed"


class ShardLog(Generic[M]):
    """Appends to the partitions of shards, and waits until the records are committed."""

    def __init__(
        self,
        name: str,
        journal: Journal,
        now_ms: Callable[[], int],
        commit_timeout_ms: int,
        *,
        replay: Replay[M],
        read_again: Callable[[Shard[M], str], None],
    ) -> None:
        """`name` is used in log lines; `read_again` gets a shard that no longer agrees with its log, and the reason."""
        self._name = name
        self._journal = journal
        self._now_ms = now_ms
        self._commit_seconds = commit_timeout_ms / 1000
        self._replay = replay
        self._read_again = read_again

    def append(self, shard: Shard[M], out: Decision) -> None:
        """Append the records of a decision, and replay them into the shard's machine. Raises RequestError."""
        entry = self._write(shard, out)
        try:
            self._replay(shard.partition, shard.machine, entry, loading=False)
        except Exception:
            self._read_again(shard, NOT_REPLAYED)
            raise

    async def append_large(self, shard: Shard[M], out: Decision, threads: Threads) -> None:
        """Append like `append`, with the machine in a thread: the caller must hold the shard. Raises RequestError."""
        entry = self._write(shard, out)
        try:
            await threads.run(lambda: self._replay(shard.partition, shard.machine, entry, loading=False))
        except Exception:
            self._read_again(shard, NOT_REPLAYED)
            raise

    def _write(self, shard: Shard[M], out: Decision) -> Entry:
        """Append the records of a decision; return the records to replay. Raises RequestError."""
        try:
            shard.end_offset = self._journal.append(
                shard.partition, out.records, self._now_ms(), out.producer
            )
        except (RequestError, StorageError) as error:
            log.error("%s: partition %d cannot be written: %s", self._name, shard.partition, error)
            # a decision that only adds records has changed nothing yet: one oversized request disturbs no others
            harmless = not (out.replies or out.many_replies or out.is_ahead)
            if not harmless or not is_refusal(error):
                self._read_again(shard, "what was decided could not be written")
            raise RequestError(client_code(error)) from error
        producer_id = out.producer[0] if out.producer else NO_PRODUCER_ID
        return Entry(out.records, producer_id, decoded=out.decoded)

    def is_committed(self, shard: Shard[M], end_offset: int) -> bool:
        """Return whether no wait is necessary: the usual case of a partition without followers."""
        return shard.failure is None and (
            not end_offset or self._journal.is_committed(shard.partition, end_offset)
        )

    async def wait_committed(self, shard: Shard[M], end_offset: int) -> None:
        """Wait for the high watermark. Raises a RequestError for clients."""
        if self.is_committed(shard, end_offset):
            return
        shard.check()
        with trio.move_on_after(self._commit_seconds) as scope:
            shard.committing.add(scope)
            try:
                await self._journal.wait_committed(shard.partition, end_offset)
            except (RequestError, StorageError) as error:
                if not is_in_log(error):
                    self._read_again(shard, "what was decided is not committed")
                raise RequestError(client_code(error)) from error
            finally:
                shard.committing.discard(scope)
        shard.check()
        if scope.cancelled_caught:
            raise RequestError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "replicas do not follow")
