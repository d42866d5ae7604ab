"""The share coordinator, as handlers and share partitions see it: shards of share partitions over __share_group_state.

The rule: the topic is not compacted, as updates are increments. After many records, all states are written as snapshots,
and the records before are deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from barnabas.cluster.metadata.image import ClusterImage
from barnabas.coordinators.runtime.journal import Journal
from barnabas.coordinators.runtime.runtime import Runtime
from barnabas.coordinators.runtime.shard import Checkpoint, no_checkpoint
from barnabas.coordinators.share.counts import ShareCounts
from barnabas.coordinators.share.records import ShareState, StateKey
from barnabas.coordinators.share.state import ShareStateShard, StateWrite
from barnabas.coordinators.statemachine.decision import Decision
from barnabas.errors import RequestError, StorageError
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.ids import parse_uuid, uuid_text

log = logging.getLogger(__name__)

RECORDS_MIN, RECORDS_PER_STATE = 1000, 10
"""Records in all, and records per state, after which the topic is pruned."""
STATES_PER_BATCH: Final = 50
WRITE_TIMEOUT_MS: Final = 5_000
"""Kafka's share.coordinator.write.timeout.ms."""


class ShareStateCoordinator(Runtime[ShareStateShard]):
    """Facade; lifecycle as in `Runtime`."""

    def __init__(
        self,
        journal: Journal,
        now_ms: Callable[[], int],
        image: Callable[[], ClusterImage],
        *,
        steady_ms: Callable[[], int] | None = None,
        updates_max: int,
        write_timeout_ms: int = WRITE_TIMEOUT_MS,
        checkpoint: Checkpoint = no_checkpoint,
        counts: ShareCounts | None = None,
    ) -> None:
        super().__init__(
            journal,
            lambda: ShareStateShard(updates_max, image),
            now_ms,
            steady_ms=steady_ms,
            commit_timeout_ms=write_timeout_ms,
            checkpoint=checkpoint,
        )
        self._counts = ShareCounts() if counts is None else counts

    async def initialize(self, key: StateKey, state_epoch: int, start_offset: int) -> None:
        """Initialize a state. Raises RequestError as `ShareStateShard.initialize`, or without a coordinator."""
        now_ms = self._now_ms()
        await self.write(
            name_of(key), lambda shard, out: shard.initialize(key, state_epoch, start_offset, now_ms, out)
        )

    async def read_state(self, key: StateKey, leader_epoch: int) -> ShareState:
        """Return the state, for a new leader. Raises RequestError as `ShareStateShard.read`."""
        now_ms = self._now_ms()
        return await self.write(name_of(key), lambda shard, out: shard.read(key, leader_epoch, now_ms, out))

    async def write_state(self, key: StateKey, write: StateWrite) -> None:
        """Write the states of records. Raises RequestError as `ShareStateShard.write`."""
        now_ms = self._now_ms()
        await self.write(name_of(key), lambda shard, out: shard.write(key, write, now_ms, out))
        self._counts.writes_ms.add(max(self._now_ms() - now_ms, 0))

    async def summary(self, key: StateKey) -> ShareState | None:
        """Return the state, None if it does not exist. Raises RequestError as `ShareStateShard.summary`."""
        return await self.read(name_of(key), lambda shard: shard.summary(key))

    async def delete(self, key: StateKey) -> None:
        """Delete a state. Raises RequestError as `ShareStateShard.delete`."""
        await self.write(name_of(key), lambda shard, out: shard.delete(key, out))

    async def forget_topics(self, topic_ids: frozenset[bytes]) -> None:
        """Delete the state of deleted topics."""
        await self.write_all(lambda shard: shard.forgetting_topics(topic_ids))

    async def prune(self) -> None:
        """Prune redundant records of the loaded partitions; failures are logged."""
        for shard in self._shards:
            if not shard.is_active:
                continue
            machine, start = shard.machine, shard.end_offset
            piled_up = machine.records_seen > max(RECORDS_MIN, RECORDS_PER_STATE * len(machine.states))
            if not start or not piled_up:
                continue
            keys = list(machine.states)
            try:
                for first in range(0, len(keys), STATES_PER_BATCH):
                    some = keys[first : first + STATES_PER_BATCH]
                    self._decide(shard, partial(_snapshot, some, self._now_ms()))
                machine.records_seen = 0
                await self._log.wait_committed(shard, shard.end_offset)
                self._journal.delete_before(shard.partition, start)
            except (RequestError, StorageError) as error:
                log.warning(
                    "redundant records in partition %d of the share coordinator are not deleted: %s",
                    shard.partition,
                    error,
                )


def _snapshot(keys: Sequence[StateKey], now_ms: int, shard: ShareStateShard, out: Decision) -> None:
    shard.snapshot(keys, now_ms, out)


def name_of(key: StateKey) -> str:
    """Return the name of a share partition for FindCoordinator (key type 2)."""
    group_id, topic_id, partition = key
    return f"{group_id}:{uuid_text(topic_id)}:{partition}"


def key_of(name: str) -> StateKey:
    """Return the key in a name; the group id may contain colons. Raises INVALID_REQUEST."""
    group_id, _, rest = name.rpartition(":")
    group_id, _, topic_id = group_id.rpartition(":")
    try:
        if not group_id or not rest.isdigit():
            raise ValueError(name)
        return group_id, parse_uuid(topic_id), int(rest)
    except ValueError:
        raise RequestError(
            ErrorCode.INVALID_REQUEST, f"{name!r} is not of the form group:topic id:partition"
        ) from None
