"""One fetcher: follows a leader on another broker for some partitions, in one task over one connection.

The rule: one request is under way at a time, with all partitions that may be fetched. An error concerns its partition; only
a connection that is lost concerns all of them.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

import trio

from barnabas.client.errors import describe
from barnabas.cluster.peers import PeerUnavailableError
from barnabas.config import broker as settings
from barnabas.errors import RequestError, StorageError
from barnabas.replicas.following import Fetched, FollowerLog, slices
from barnabas.replicas.remote_leader import (
    DIVERGING_EPOCH_SINCE,
    FETCH,
    NO_TOPIC_ID,
    OFFSET_FOR_LEADER_EPOCH,
    Ask,
    EpochAnswer,
    PartitionData,
    RemoteLeader,
)
from barnabas.replication.fetch_session import FetcherSession
from barnabas.replication.follower import UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET, EpochEnd
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.cluster.peers import Peers
    from barnabas.config.loading import BrokerConfig
    from barnabas.loop_budget import LoopBudget
    from barnabas.replicas.replica import Replica, Throttle
    from barnabas.topic_partitions import TopicPartition

log = logging.getLogger(__name__)

RETRY_MS_MIN = 20
"""The first wait after an error that passes once both brokers have the newest metadata; doubled with each further one, up
to `replica.fetch.backoff.ms`."""
PARTITIONS_PER_STEP = 100

PASSING = frozenset((
    ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID, ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.FENCED_LEADER_EPOCH,
))  # fmt: skip
"""Errors that mean that the leader, or this broker, has older metadata than the other."""


NO_ANSWER = EpochAnswer(ErrorCode.UNKNOWN_SERVER_ERROR, EpochEnd(UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET))


@dataclass(frozen=True, slots=True)
class FetcherParts:
    """What all fetchers of a broker share; `now_ms` is the wall clock."""

    peers: Peers
    config: BrokerConfig
    budget: LoopBudget
    storage_failed: Callable[[StorageError], RequestError]
    now_ms: Callable[[], int]
    throttle: Throttle


class Stage(Enum):
    """Where a partition stands."""

    NEW = auto()
    TRUNCATING = auto()
    """The leader must be asked where the logs part before anything is fetched."""
    FETCHING = auto()
    OUT_OF_RANGE = auto()
    """The leader must be asked where its log begins and ends."""
    FAILED = auto()
    """Nothing is done until the metadata name another leader epoch."""


class Followed:
    """A partition of a fetcher; `again_at` is trio's clock (s)."""

    __slots__ = ("again_at", "failures", "follower", "is_in_sync", "last_error", "replica", "stage")

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.follower: FollowerLog | None = None
        self.stage = Stage.NEW
        self.again_at = -math.inf
        self.failures = 0
        self.is_in_sync = False
        self.last_error = ""

    def ask(self) -> Ask:
        """Return what to ask the leader for."""
        assert self.follower is not None
        replica = self.replica
        return Ask(replica.topic, replica.index, replica.log.topic_id or NO_TOPIC_ID, self.follower.position)


class Fetcher:
    """Lifecycle: `add` and `remove` at any time; `run` until it has no partitions, or is cancelled."""

    def __init__(self, leader: RemoteLeader, parts: FetcherParts) -> None:
        self.leader = leader
        self._parts = parts
        self._session = FetcherSession()
        self._followed: dict[TopicPartition, Followed] = {}
        self._changed = trio.Event()
        self._is_unreachable = False

    def __repr__(self) -> str:
        return f"<fetcher of {len(self._followed)} partitions from broker {self.leader.leader_id}>"

    def add(self, replica: Replica) -> None:
        """Follow a replica's leader in its leader epoch."""
        self._followed[replica.topic, replica.index] = Followed(replica)
        self._changed.set()

    def remove(self, replica: Replica) -> None:
        """Follow a replica's leader no more."""
        followed = self._followed.get((replica.topic, replica.index))
        if followed is not None and followed.replica is replica:
            del self._followed[replica.topic, replica.index]
            self._changed.set()

    def _is_here(self, followed: Followed) -> bool:
        return self._followed.get((followed.replica.topic, followed.replica.index)) is followed

    async def run(self) -> None:
        """Fetch until there are no partitions left."""
        while self._followed:
            self._changed = trio.Event()
            try:
                version = await self.leader.version_of(FETCH)
                await self._begin(version)
                await self._truncate()
                has_asked = await self._fetch(version)
                await self._find_range()
                self._is_unreachable = False
            except PeerUnavailableError as error:
                await self._unreachable(error)
            else:
                if not has_asked and self._followed:
                    await self._wait()

    async def _wait(self) -> None:
        """Wait until a partition comes, goes, or may be tried again; those that are throttled are looked at again soon."""
        backoff_s = self._parts.config.get(settings.REPLICA_FETCH_BACKOFF_MS) / 1000
        due_s = min((one.again_at for one in self._followed.values()), default=math.inf)
        now = trio.current_time()
        with trio.move_on_after(due_s - now if due_s > now else max(backoff_s, 0.01)):
            await self._changed.wait()

    async def _unreachable(self, error: PeerUnavailableError) -> None:
        """Let the leader be for a while: all partitions wait, as Kafka's do."""
        if not self._is_unreachable:
            log.warning("%r: the leader cannot be asked: %s", self, error)
        self._is_unreachable = True
        for followed in self._followed.values():
            followed.is_in_sync = False
        backoff_ms = self._parts.config.get(settings.REPLICA_FETCH_BACKOFF_MS)
        with trio.move_on_after(max(backoff_ms, RETRY_MS_MIN) / 1000):
            await self._changed.wait()

    # --- beginning ------------------------------------------------------------------------------------------

    async def _begin(self, version: int) -> None:
        """Make ready what was added: a log without leader epochs is truncated to its high watermark."""
        for followed in [one for one in self._followed.values() if one.stage is Stage.NEW]:
            if not self._is_here(followed):
                continue
            try:
                followed.follower = FollowerLog(followed.replica, self._parts.now_ms)
            except StorageError as error:
                self._storage_failed(followed, error)
            else:
                knows = followed.follower.position.last_fetched_epoch >= 0
                must_ask = knows and version < DIVERGING_EPOCH_SINCE
                followed.stage = Stage.TRUNCATING if must_ask else Stage.FETCHING
            await self._parts.budget.checkpoint()

    def _in_stage(self, stage: Stage) -> list[Followed]:
        now = trio.current_time()
        return [one for one in self._followed.values() if one.stage is stage and one.again_at <= now]

    # --- truncating before the first fetch ------------------------------------------------------------------

    async def _truncate(self) -> None:
        """Ask a leader that tells nobody of diverging epochs where the logs part, until they agree (KIP-101, KIP-279)."""
        truncating = self._in_stage(Stage.TRUNCATING)
        if not truncating:
            return
        asked = [(followed, followed.ask()) for followed in truncating]
        answers = await self._epoch_ends([ask for _, ask in asked])
        for followed, ask in asked:
            if not self._is_here(followed) or followed.follower is None:
                continue
            code, end = answers.get((ask.topic, ask.partition), NO_ANSWER)
            if code:
                self._failed(followed, ask, code)
                continue
            try:
                if followed.follower.diverged(end):
                    followed.stage = Stage.FETCHING
                    self._went_well(followed)
            except StorageError as error:
                self._storage_failed(followed, error)
            await self._parts.budget.checkpoint()

    async def _epoch_ends(self, asks: list[Ask]) -> dict[TopicPartition, EpochAnswer]:
        try:
            await self.leader.version_of(OFFSET_FOR_LEADER_EPOCH)
        except PeerUnavailableError as error:
            if not error.lacks_version:
                raise
            # Older than leader epochs (Apache Kafka 0.11): the high watermark is all that is left to go by.
            unknown = EpochAnswer(0, EpochEnd(UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET))
            return {(ask.topic, ask.partition): unknown for ask in asks}
        return await self.leader.epoch_ends(asks)

    # --- fetching -------------------------------------------------------------------------------------------

    async def _fetch(self, version: int) -> bool:
        """Fetch once, and apply what comes; whether there was something to ask for."""
        now = trio.current_time()
        max_wait_ms: float = self._parts.config.get(settings.REPLICA_FETCH_WAIT_MAX_MS)
        asked: dict[TopicPartition, tuple[Followed, Ask]] = {}
        for key, followed in tuple(self._followed.items()):
            if followed.stage is not Stage.FETCHING or not self._is_here(followed):
                if followed.stage is Stage.NEW:
                    max_wait_ms = 0  # it came while others were prepared
                continue
            if followed.again_at > now:
                max_wait_ms = min(max_wait_ms, math.ceil((followed.again_at - now) * 1000))
            elif followed.is_in_sync or not self._parts.throttle.holds(followed.replica):
                asked[key] = followed, followed.ask()
                if not len(asked) % PARTITIONS_PER_STEP:
                    await self._parts.budget.checkpoint()
        answer = await self.leader.fetch(
            [ask for _, ask in asked.values()], self._session, version=version, max_wait_ms=int(max_wait_ms)
        )
        if answer is None:
            return False
        if answer.failure:
            log.info("%r: a new fetch session begins: %s", self, answer.failure)
            return True
        for key, data in answer.partitions:
            if key in asked:
                await self._apply(*asked[key], data)
                await self._parts.budget.checkpoint()
        return True

    async def _apply(self, followed: Followed, ask: Ask, data: PartitionData) -> None:
        """Apply the leader's answer for one partition."""
        if not self._is_here(followed) or followed.follower is None or not followed.follower.is_current:
            return
        code = data.error_code
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            followed.stage = Stage.OUT_OF_RANGE
        elif code:
            self._failed(followed, ask, code)
        else:
            try:
                await self._append(followed, ask, data)
            except StorageError as error:
                self._storage_failed(followed, error)
            except RequestError as error:
                # Records that are damaged, or not those that were asked for: what the leader sends next may be whole.
                self._delay(followed, f"the leader's records cannot be used: {error}", is_passing=False)
            except Exception:
                log.exception("%r: %s-%d is not followed any more", self, ask.topic, ask.partition)
                followed.stage = Stage.FAILED
            else:
                self._went_well(followed)

    async def _append(self, followed: Followed, ask: Ask, data: PartitionData) -> None:
        follower, position = followed.follower, ask.position
        assert follower is not None
        high_watermark, start_offset = data.high_watermark, data.log_start_offset
        if data.diverging_epoch.epoch >= 0 or data.diverging_epoch.end_offset >= 0:
            end = EpochEnd(data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
            follower.fetched(position, Fetched(b"", high_watermark, start_offset, end))
            followed.is_in_sync = False
            return
        records = data.records if data.records is not None else b""
        assert isinstance(records, bytes | bytearray | memoryview)
        if len(records):
            self._parts.throttle.used(followed.replica, len(records))
            key = ask.topic, ask.partition  # those that got nothing come first next time
            self._followed[key] = self._followed.pop(key)
        for part in slices(records):
            if not follower.fetched(position, Fetched(part, high_watermark, start_offset)):
                return
            followed.is_in_sync = follower.replica.log.log_end_offset >= high_watermark
            position = follower.position
            await self._parts.budget.checkpoint()
            if not self._is_here(followed):
                return

    # --- after OFFSET_OUT_OF_RANGE --------------------------------------------------------------------------

    async def _find_range(self) -> None:
        """Ask where the leader's log begins and ends, for the partitions that have fetched somewhere else."""
        lost = self._in_stage(Stage.OUT_OF_RANGE)
        if not lost:
            return
        asked = [(followed, followed.ask()) for followed in lost]
        answers = await self.leader.log_ends([ask for _, ask in asked])
        for followed, ask in asked:
            found = answers.get((ask.topic, ask.partition))
            if not self._is_here(followed) or followed.follower is None:
                continue
            code: int = ErrorCode.UNKNOWN_SERVER_ERROR
            if found is not None:
                code = found[0].error_code or found[1].error_code
            if found is None or code:
                self._failed(followed, ask, code)
                continue
            before = followed.follower.position
            try:
                followed.follower.out_of_range(
                    leader_start_offset=found[0].offset, leader_end_offset=found[1].offset
                )
            except StorageError as error:
                self._storage_failed(followed, error)
                continue
            followed.stage = Stage.FETCHING
            if followed.follower.position.fetch_offset == before.fetch_offset:
                # The leader's log has grown or is out of range in another way: not as fast as it can be asked.
                self._delay(followed, "the leader answers OFFSET_OUT_OF_RANGE", is_passing=True)
            await self._parts.budget.checkpoint()

    # --- errors ---------------------------------------------------------------------------------------------

    def _failed(self, followed: Followed, ask: Ask, code: int) -> None:
        """Take note of an error that the leader has answered for a partition."""
        if code == ErrorCode.FENCED_LEADER_EPOCH and (
            ask.position.current_leader_epoch == followed.replica.leader_epoch
        ):
            log.info(
                "%s-%d: the leader has a newer epoch than %d: waiting for the metadata",
                ask.topic, ask.partition, ask.position.current_leader_epoch,
            )  # fmt: skip
            followed.stage = Stage.FAILED
            return
        self._delay(followed, f"the leader answers {describe(code)}", is_passing=code in PASSING)

    def _delay(self, followed: Followed, why: str, *, is_passing: bool) -> None:
        backoff_ms = self._parts.config.get(settings.REPLICA_FETCH_BACKOFF_MS)
        if is_passing:
            backoff_ms = min(backoff_ms, RETRY_MS_MIN << min(followed.failures, 10))
        followed.failures += 1
        followed.again_at = trio.current_time() + backoff_ms / 1000
        followed.is_in_sync = False
        if why != followed.last_error:
            followed.last_error = why
            level = logging.INFO if is_passing else logging.ERROR
            log.log(
                level, "%s-%d, from broker %d: %s; trying again",
                followed.replica.topic, followed.replica.index, self.leader.leader_id, why,
            )  # fmt: skip

    def _storage_failed(self, followed: Followed, error: StorageError) -> None:
        """Report a disk that has failed, or is full: then this is tried again, and otherwise the replica is gone soon."""
        self._parts.storage_failed(error)
        self._delay(followed, str(error), is_passing=False)

    @staticmethod
    def _went_well(followed: Followed) -> None:
        followed.failures = 0
        followed.last_error = ""
