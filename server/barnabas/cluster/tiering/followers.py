"""Followers of partitions with tiered storage: the start of their logs, and their remote offsets (KIP-405, KIP-1023).

The rule: a log is dropped only once its replacement is complete: the offset, the leader epochs and the producers of the
remote segment after which it begins. Until then an error leaves it unchanged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import trio

from barnabas.cluster.metadata.peers import PeerUnavailableError
from barnabas.cluster.replicas.ports import TierStartError
from barnabas.cluster.replicas.remote_leader import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LIST_OFFSETS,
    NO_TOPIC_ID,
    PENDING_UPLOAD_SINCE,
    Ask,
    EpochAnswer,
    OffsetAnswer,
    RemoteLeader,
)
from barnabas.cluster.replication.follower import EpochEnd, truncation
from barnabas.cluster.tiering.lineage import highest_offset
from barnabas.cluster.tiering.partition import key_of
from barnabas.cluster.tiering.producers import producers_at
from barnabas.config import broker as settings
from barnabas.errors import StorageError
from barnabas.log.epochs import LeaderEpochs
from barnabas.log.format import CorruptFileError, checkpoints
from barnabas.log.tiered_start import TieredStart
from barnabas.tiered.storage import IndexKind, RemoteStorageError
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.cluster.replicas.following import FollowerLog
    from barnabas.cluster.replicas.replica import Replica
    from barnabas.cluster.tiering.counts import TierCounts
    from barnabas.cluster.tiering.metadata import RemoteMetadata
    from barnabas.config.loading import BrokerConfig
    from barnabas.environment import Environment
    from barnabas.serving.loop_budget import LoopBudget
    from barnabas.tiered.segment import RemoteSegment
    from barnabas.tiered.storage import RemoteStorage
    from barnabas.wire.topic_partitions import TopicPartition

log = logging.getLogger(__name__)

A = TypeVar("A", OffsetAnswer, EpochAnswer)

STEPS_MAX: Final = 100
"""Most leader epochs of a remote segment for which a leader is queried."""


class FollowerTiers:
    """Tiered storage for followers; implements `cluster.replicas.ports.TierStarts`."""

    def __init__(
        self,
        config: BrokerConfig,
        storage: RemoteStorage,
        metadata: RemoteMetadata,
        counts: TierCounts,
        environment: Environment,
        budget: LoopBudget,
        background: trio.Nursery,
    ) -> None:
        self._config = config
        self._storage = storage
        self._metadata = metadata
        self._counts = counts
        self._threads = environment.threads
        self._budget = budget
        self._background = background
        self._limiter = trio.CapacityLimiter(
            config.get(settings.REMOTE_LOG_MANAGER_FOLLOWER_THREAD_POOL_SIZE)
        )

    def follow_settings(self) -> None:
        """Adjust the number of threads to the settings."""
        self._limiter.total_tokens = self._config.get(settings.REMOTE_LOG_MANAGER_FOLLOWER_THREAD_POOL_SIZE)

    async def look(self, replicas: Iterable[Replica]) -> None:
        """Set the highest remote offset of followers' logs: local segments up to it may be deleted."""
        for replica in replicas:
            partition_log = replica.log
            if replica.is_leader or not partition_log.is_tiered or partition_log.topic_id is None:
                continue
            key = key_of(replica)
            segments = self._metadata.partitions.get(key)
            if segments is not None and self._metadata.is_ready_for(key):
                partition_log.highest_remote_offset = highest_offset(segments, partition_log)
            await self._budget.checkpoint()

    # --- where logs begin -----------------------------------------------------------------------------------

    def begins_last(self, replica: Replica, leader_end_offset: int) -> bool:
        """Return whether an empty log is to begin after the last offset in tiered storage (KIP-1023)."""
        is_enabled = self._config.get(settings.FOLLOWER_FETCH_LAST_TIERED_OFFSET_ENABLE)
        return is_enabled and leader_end_offset > 0 == replica.log.log_end_offset and replica.log.is_tiered

    def start(
        self,
        follower: FollowerLog,
        leader: RemoteLeader,
        done: Callable[[TierStartError | StorageError | None], None],
    ) -> None:
        """Restart a log in a separate task."""
        self._background.start_soon(self._run, follower, leader, done)

    async def _run(
        self,
        follower: FollowerLog,
        leader: RemoteLeader,
        done: Callable[[TierStartError | StorageError | None], None],
    ) -> None:
        counts = self._counts.of(follower.replica.topic)
        counts.starts += 1
        failure: TierStartError | StorageError | None = None
        try:
            await self._begin(follower, leader)
        except (TierStartError, StorageError) as error:
            failure = error
        except PeerUnavailableError as error:
            failure = TierStartError(str(error), is_passing=True)
        except RemoteStorageError as error:
            failure = TierStartError(str(error))
        except Exception as error:
            log.exception("%s could not begin after what is in tiered storage", follower.replica.log.name)
            failure = TierStartError(repr(error))
        counts.failed_starts += failure is not None
        done(failure)

    async def _begin(self, follower: FollowerLog, leader: RemoteLeader) -> None:
        replica = follower.replica
        if not replica.log.is_tiered:
            raise TierStartError("the topic has no tiered storage here yet", is_passing=True)
        ask = Ask(replica.topic, replica.index, replica.log.topic_id or NO_TOPIC_ID, follower.position)
        start = await _offset(leader, ask, EARLIEST)
        local = await self._leaders_local_start(leader, ask, replica, start.offset)
        if local.offset <= ask.position.fetch_offset:
            raise TierStartError(f"the leader's local log begins at {local.offset} now", is_passing=True)
        if local.offset == start.offset:  # the store has no segments
            follower.out_of_range(leader_start_offset=start.offset, leader_end_offset=start.offset)
            return
        segment = await self._segment_before(leader, ask, replica, local)
        end = await _common_end(leader, ask, segment)
        if end < local.offset:
            raise TierStartError(f"the leader has another history from {end} on", is_passing=True)
        before = self._metadata.of(key_of(replica)).segment_for(
            LeaderEpochs(segment.leader_epochs).epoch_at(segment.start_offset), segment.start_offset - 1
        )
        epochs, producers = await self._threads.run(
            partial(_read, self._storage, segment, before, end), limiter=self._limiter
        )
        follower.begin_after_tier(TieredStart(end, start.offset, epochs, producers))

    async def _leaders_local_start(
        self, leader: RemoteLeader, ask: Ask, replica: Replica, leader_start: int
    ) -> OffsetAnswer:
        """Return the start of the follower's local log: the leader's, or after the last stored offset (KIP-1023).

        Leaders with a ListOffsets before v11 cannot return the latter.
        """
        is_last = (
            self.begins_last(replica, (await _offset(leader, ask, LATEST)).offset)
            and await leader.version_of(LIST_OFFSETS) >= PENDING_UPLOAD_SINCE
        )
        if not is_last:
            return await _offset(leader, ask, EARLIEST_LOCAL)
        pending = await _offset(leader, ask, EARLIEST_PENDING_UPLOAD)
        if pending.offset >= 0:
            return pending
        local = await _offset(leader, ask, EARLIEST_LOCAL)
        if local.offset != leader_start:
            raise TierStartError("the leader does not know yet what it has stored", is_passing=True)
        return local

    async def _segment_before(
        self, leader: RemoteLeader, ask: Ask, replica: Replica, local: OffsetAnswer
    ) -> RemoteSegment:
        """Return the remote segment that holds the last offset before the leader's local log."""
        epoch = local.leader_epoch
        if epoch < 0:
            raise TierStartError(f"the leader does not know the epoch of offset {local.offset}")
        if epoch > 0:
            earlier = await _epoch_end(leader, ask, epoch - 1)
            if earlier.end_offset >= local.offset:
                epoch = earlier.epoch
        key = key_of(replica)
        self._metadata.follow(key)
        if not self._metadata.is_ready_for(key):
            raise TierStartError("the metadata of its remote segments are not read yet", is_passing=True)
        segment = self._metadata.of(key).segment_for(epoch, local.offset - 1)
        if segment is None:
            raise TierStartError(
                f"no remote segment of leader epoch {epoch} has offset {local.offset - 1}", is_passing=True
            )
        return segment


async def _offset(leader: RemoteLeader, ask: Ask, timestamp: int) -> OffsetAnswer:
    return _good(await leader.offsets([ask], timestamp), ask, f"ListOffsets {timestamp}")


async def _epoch_end(leader: RemoteLeader, ask: Ask, epoch: int) -> EpochEnd:
    asked = ask._replace(position=ask.position._replace(last_fetched_epoch=epoch))
    return _good(await leader.epoch_ends([asked]), ask, "OffsetForLeaderEpoch").end


def _good(answers: Mapping[TopicPartition, A], ask: Ask, request: str) -> A:
    """Return a leader's response. Raises TierStartError for an error, or a missing response."""
    answer = answers.get((ask.topic, ask.partition))
    if answer is None or answer.error_code:
        code = ErrorCode.UNKNOWN_SERVER_ERROR if answer is None else answer.error_code
        raise TierStartError(f"{request} is answered with error {code}", code)
    return answer


async def _common_end(leader: RemoteLeader, ask: Ask, segment: RemoteSegment) -> int:
    """Return the end of a remote segment within the leader's history: its own end, except after an unclean election."""
    end = segment.end_offset + 1
    epochs = LeaderEpochs(segment.leader_epochs)
    for _ in range(STEPS_MAX):
        leaders = await _epoch_end(leader, ask, epochs.latest)
        cut = truncation(
            leaders,
            partial(_own_end, epochs, end),
            log_end_offset=end,
            high_watermark=segment.start_offset,
        )
        end = cut.offset
        epochs.truncate_from_end(end)
        if cut.is_final or epochs.latest < 0:
            break
    return end


def _own_end(epochs: LeaderEpochs, log_end_offset: int, epoch: int) -> EpochEnd:
    return EpochEnd(*epochs.end_offset_for(epoch, log_end_offset))


def _read(
    storage: RemoteStorage, segment: RemoteSegment, before: RemoteSegment | None, end: int
) -> tuple[tuple[tuple[int, int], ...], bytes]:
    """Return (leader epochs, snapshot of producers) at an offset of a segment, or its end. Raises RemoteStorageError."""
    data = storage.read_index(segment, IndexKind.LEADER_EPOCH)
    try:
        epochs = LeaderEpochs(checkpoints.decode_epochs(data))
    except CorruptFileError as error:
        raise RemoteStorageError(
            f"the leader epochs of segment {segment.segment_id} are damaged: {error}"
        ) from error
    epochs.truncate_from_end(end)
    return tuple(epochs.entries), producers_at(storage, segment, before, end)
