"""One fetcher: follows a leader on another broker for some partitions, in one task over one connection.

The rule: each partition has one request in flight, and a request has all partitions that may be fetched. An
error affects its partition only; a lost connection affects all of them.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import trio

from barnabas.client.errors import describe
from barnabas.cluster.metadata.peers import PeerUnavailableError
from barnabas.cluster.replicas.fetcher_parts import FetcherParts, Way
from barnabas.cluster.replicas.followed import PASSING, RETRY_MS_MIN, Chosen, Followed, Stage
from barnabas.cluster.replicas.following import Fetched, FollowerLog, slices
from barnabas.cluster.replicas.remote_leader import (
    DIVERGING_EPOCH_SINCE,
    FETCH,
    Ask,
    EpochAnswer,
    PartitionData,
    RemoteLeader,
)
from barnabas.cluster.replication.fetch_session import FetcherSession
from barnabas.cluster.replication.follower import UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET, EpochEnd
from barnabas.config import broker as settings
from barnabas.errors import RequestError, StorageError
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.cluster.replicas.ports import TierStartError, TierStarts
    from barnabas.cluster.replicas.replica import Replica
    from barnabas.wire.topic_partitions import TopicPartition

log = logging.getLogger(__name__)

PARTITIONS_PER_STEP = 100
ASIDE_WAIT_MS = 20
"""Longest wait (ms) of the leader for records of partitions that are fetched beside a request."""
ASIDE_SECONDS_MAX = 1.0
"""Longest time of a request beside another one."""

LOOK_AT_ALL_SECONDS = 0.5
"""Interval of a look at all partitions, for local retention and for topic ids that arrive late."""

NO_ANSWER = EpochAnswer(ErrorCode.UNKNOWN_SERVER_ERROR, EpochEnd(UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET))


class Fetcher:
    """Follows one leader. Lifecycle: `add` and `remove` at any time; `run` until it has no partitions, or is cancelled.

    A request waits at the leader for records, and a partition that is added meanwhile cannot join it. Such partitions
    are fetched over a separate connection, without a session and without waiting long, until the request is answered.
    """

    def __init__(self, leader: RemoteLeader, parts: FetcherParts) -> None:
        self.leader = leader
        self._parts = parts
        self._main = Way(leader, FetcherSession(), Chosen(), is_aside=False)
        beside = replace(leader, channel=f"{leader.channel}-new")
        self._beside = Way(beside, FetcherSession(is_kept=False), Chosen(), is_aside=True)
        self._tier_leader = replace(leader, channel=f"{leader.channel}-tier")
        self._followed: dict[TopicPartition, Followed] = {}
        # partitions that the next request may treat differently: all but those that are fetched in sync and were not in
        # the last answer; so a request costs as much as has changed
        self._unsettled: dict[TopicPartition, None] = {}
        self._look_at_all_at = -math.inf
        self._changed = trio.Event()
        self._came_aside = trio.Event()
        self._aside_lock = trio.Lock()
        self._is_under_way = False
        self._is_unreachable = False

    def __repr__(self) -> str:
        return f"<fetcher of {len(self._followed)} partitions from broker {self.leader.leader_id}>"

    def add(self, replica: Replica) -> None:
        """Follow a replica's leader in its leader epoch."""
        key = replica.topic, replica.index
        followed = self._followed[key] = Followed(replica)
        self._comes(followed)

    def _comes(self, followed: Followed) -> None:
        """Process a new partition soon, beside the request in progress."""
        self._unsettled[followed.replica.topic, followed.replica.index] = None
        self._changed.set()
        if self._is_under_way:
            followed.is_aside = True
            self._came_aside.set()

    def remove(self, replica: Replica) -> None:
        """Stop following a replica's leader."""
        key = replica.topic, replica.index
        followed = self._followed.get(key)
        if followed is not None and followed.replica is replica:
            del self._followed[key]
            self._unsettled[key] = None
            self._changed.set()

    def _is_here(self, followed: Followed) -> bool:
        return self._followed.get((followed.replica.topic, followed.replica.index)) is followed

    # --- the two tasks --------------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        """True if there is nothing to fetch."""
        return not self._followed

    async def run(self) -> None:
        """Fetch until there are no partitions left."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._fetch_aside)
            while self._followed:
                self._changed = trio.Event()
                await self._take_in_those_aside()
                try:
                    has_done = await self._round(self._main)
                    self._is_unreachable = False
                except PeerUnavailableError as error:
                    await self._unreachable(error)
                else:
                    if not has_done and self._followed:
                        await self._wait()
            nursery.cancel_scope.cancel()

    def close(self) -> None:
        """Close the connections."""
        self._main.leader.close()
        self._beside.leader.close()
        self._tier_leader.close()

    async def _round(self, way: Way) -> bool:
        """Do the due work for the partitions of a way; returns whether there was any. Raises PeerUnavailableError."""
        version = await way.leader.version_of(FETCH)
        await self._begin(way, version)
        has_truncated = await self._truncate(way)
        has_fetched = await self._fetch(way, version)
        return await self._find_range(way) or has_fetched or has_truncated

    async def _fetch_aside(self) -> None:
        """Fetch for partitions that were added during a request."""
        while True:
            await self._came_aside.wait()
            self._came_aside = trio.Event()
            while self._has_those_aside:
                has_done = False
                async with self._aside_lock:
                    with trio.move_on_after(ASIDE_SECONDS_MAX):
                        try:
                            has_done = await self._round(self._beside)
                        except PeerUnavailableError as error:
                            log.debug("%r: %s", self, error)
                            self._end_aside()
                if not has_done:
                    await self._wait_aside()
                await trio.lowlevel.checkpoint()

    async def _wait_aside(self) -> None:
        """Wait until a partition may be retried, or leave all of them to the next request."""
        now = trio.current_time()
        due_s = min(
            (part.again_at for part in self._open() if part.is_aside and part.again_at > now),
            default=math.inf,
        )
        if due_s - now > ASIDE_SECONDS_MAX:
            self._end_aside()
        else:
            await trio.sleep_until(due_s)

    async def _take_in_those_aside(self) -> None:
        """Add the partitions that were fetched beside the last request to the next one."""
        if self._has_those_aside:
            async with self._aside_lock:
                self._end_aside()

    @property
    def _has_those_aside(self) -> bool:
        return any(followed.is_aside for followed in self._open())

    def _end_aside(self) -> None:
        for followed in self._open():
            followed.is_aside = False

    def _open(self) -> Iterator[Followed]:
        """The partitions that are not settled."""
        for key in self._unsettled:
            followed = self._followed.get(key)
            if followed is not None:
                yield followed

    async def _wait(self) -> None:
        """Wait until a partition is added, removed, or may be retried; throttled ones are checked again soon."""
        backoff_s = self._parts.config.get(settings.REPLICA_FETCH_BACKOFF_MS) / 1000
        now = trio.current_time()
        due_s = min((part.again_at for part in self._open() if part.again_at > now), default=now)
        with trio.move_on_after(due_s - now if due_s > now else max(backoff_s, 0.01)):
            await self._changed.wait()

    async def _unreachable(self, error: PeerUnavailableError) -> None:
        """Pause the leader for a while: all its partitions wait, as in Kafka."""
        if not self._is_unreachable:
            log.warning("%r: the leader cannot be asked: %s", self, error)
        self._is_unreachable = True
        self._unsettled.update(dict.fromkeys(self._followed))
        for followed in self._followed.values():
            followed.is_in_sync = False
        backoff_ms = self._parts.config.get(settings.REPLICA_FETCH_BACKOFF_MS)
        with trio.move_on_after(max(backoff_ms, RETRY_MS_MIN) / 1000):
            await self._changed.wait()

    # --- beginning ------------------------------------------------------------------------------------------

    async def _begin(self, way: Way, version: int) -> None:
        """Prepare added partitions: a log without leader epochs is truncated to its high watermark.

        The first fetch acknowledges all records of a log: they are synced as `flush.messages` requires.
        """
        added = self._in_stage(Stage.NEW, way)
        for followed in added:
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
        await self._sync([followed for followed in added if followed.stage is not Stage.NEW])

    def _in_stage(self, stage: Stage, way: Way) -> list[Followed]:
        """Return the partitions of a way that are in a stage and need not wait."""
        now = trio.current_time()
        return [
            followed
            for followed in self._open()
            if followed.stage is stage and followed.is_aside is way.is_aside and followed.again_at <= now
        ]

    # --- truncating before the first fetch ------------------------------------------------------------------

    async def _truncate(self, way: Way) -> bool:
        """Ask a leader that does not report diverging epochs where the logs part (KIP-101, KIP-279)."""
        truncating = self._in_stage(Stage.TRUNCATING, way)
        if not truncating:
            return False
        asked = [(followed, followed.ask()) for followed in truncating]
        answers = await way.leader.epoch_ends([ask for _, ask in asked])
        for followed, ask in asked:
            if not self._is_here(followed) or followed.follower is None:
                continue
            code, end = answers.get((ask.topic, ask.partition), NO_ANSWER)
            if code:
                self._failed(followed, ask, code)
                continue
            try:
                if followed.follower.diverged(end):  # otherwise the leader is asked again, for an older epoch
                    followed.stage = Stage.FETCHING
                    followed.went_well()
            except StorageError as error:
                self._storage_failed(followed, error)
            await self._parts.budget.checkpoint()
        return True

    # --- fetching -------------------------------------------------------------------------------------------

    async def _fetch(self, way: Way, version: int) -> bool:
        """Fetch once, and apply the response; returns whether any partition was fetched."""
        max_wait_ms = await self._choose(way)
        chosen = way.chosen
        self._is_under_way = self._is_under_way or not way.is_aside
        try:
            answer = await way.leader.fetch(
                chosen.asks,
                way.session,
                version=version,
                max_wait_ms=max_wait_ms,
                changed=None if way.is_aside else chosen.take_changed(),
            )
        finally:
            if not way.is_aside:
                self._is_under_way = False
        if answer is None:
            return False
        if answer.failure:
            log.info("%r: a new fetch session begins: %s", self, answer.failure)
            return True
        fetched = []
        for key, data in answer.partitions:
            followed = chosen.followed.get(key)
            if followed is not None:
                self._unsettled[key] = None
                fetched.append(followed)
                await self._apply(followed, chosen.asks[key], data)
                await self._parts.budget.checkpoint()
        await self._sync(fetched)
        return True

    @staticmethod
    async def _sync(fetched: list[Followed]) -> None:
        """Wait until records are synced as `flush.messages` requires: the next request acknowledges them."""
        unsynced = [followed.replica for followed in fetched if followed.replica.log.wants_flush]
        if unsynced:
            async with trio.open_nursery() as nursery:
                for replica in unsynced:
                    nursery.start_soon(_synced, replica)

    async def _choose(self, way: Way) -> int:
        """Select the partitions to fetch now; returns for how long (ms) the leader may wait for records."""
        now, chosen = trio.current_time(), way.chosen
        wait_ms: float = self._parts.config.get(settings.REPLICA_FETCH_WAIT_MAX_MS)
        if way.is_aside:
            wait_ms = min(wait_ms, ASIDE_WAIT_MS)
            chosen.clear()
        elif now >= self._look_at_all_at:
            self._look_at_all_at = now + LOOK_AT_ALL_SECONDS
            self._unsettled.update(dict.fromkeys(self._followed))
        for count, key in enumerate(tuple(self._unsettled), 1):
            followed = self._followed.get(key)
            is_chosen = is_settled = False
            if followed is None or followed.stage is Stage.FAILED:
                is_settled = True
            elif followed.stage is Stage.TIERED:
                is_settled = True  # until the log begins anew
            elif followed.is_aside is not way.is_aside:
                pass
            elif followed.again_at > now:
                wait_ms = min(wait_ms, math.ceil((followed.again_at - now) * 1000))
            elif followed.stage is not Stage.FETCHING:
                wait_ms = 0  # there is something to do for it first
            elif followed.is_in_sync or not self._parts.throttle.holds(followed.replica):
                is_chosen, is_settled = True, followed.is_in_sync
                chosen.put(key, followed, followed.ask())
            if not is_chosen:
                chosen.drop(key)
            if is_settled and not way.is_aside:
                del self._unsettled[key]
            if not count % PARTITIONS_PER_STEP:
                await self._parts.budget.checkpoint()
        return int(wait_ms)

    async def _apply(self, followed: Followed, ask: Ask, data: PartitionData) -> None:
        """Apply the leader's answer for one partition."""
        if not self._is_here(followed) or followed.follower is None or not followed.follower.is_current:
            return
        code = data.error_code
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            followed.stage = Stage.OUT_OF_RANGE
        elif code == ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE and self._parts.tiers is not None:
            self._begin_in_tier(followed, self._parts.tiers)
        elif code:
            self._failed(followed, ask, code)
        else:
            try:
                await self._append(followed, ask, data)
            except StorageError as error:
                self._storage_failed(followed, error)
            except RequestError as error:
                # damaged records, or other ones than requested: the leader's next answer may be sound
                self._delay(followed, f"the leader's records cannot be used: {error}", is_passing=False)
            except Exception:
                log.exception("%r: %s-%d is not followed any more", self, ask.topic, ask.partition)
                followed.stage = Stage.FAILED
            else:
                followed.went_well()

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
        for part in slices(records):
            if not follower.fetched(position, Fetched(part, high_watermark, start_offset)):
                return
            followed.is_in_sync = follower.replica.log.log_end_offset >= high_watermark
            position = follower.position
            await self._parts.budget.checkpoint()
            if not self._is_here(followed):
                return

    # --- after OFFSET_OUT_OF_RANGE --------------------------------------------------------------------------

    async def _find_range(self, way: Way) -> bool:
        """Ask where the leader's log begins and ends, for the partitions that have fetched somewhere else."""
        lost = self._in_stage(Stage.OUT_OF_RANGE, way)
        if not lost:
            return False
        asked = [(followed, followed.ask()) for followed in lost]
        answers = await way.leader.log_ends([ask for _, ask in asked])
        for followed, ask in asked:
            offsets = answers.get((ask.topic, ask.partition))
            if not self._is_here(followed) or followed.follower is None:
                continue
            code: int = ErrorCode.UNKNOWN_SERVER_ERROR
            if offsets is not None:
                code = offsets[0].error_code or offsets[1].error_code
            if offsets is None or code:
                self._failed(followed, ask, code)
                continue
            before = followed.follower.position
            tiers = self._parts.tiers
            if tiers is not None and tiers.begins_last(followed.replica, offsets[1].offset):
                self._begin_in_tier(followed, tiers)
                continue
            try:
                followed.follower.out_of_range(
                    leader_start_offset=offsets[0].offset, leader_end_offset=offsets[1].offset
                )
            except StorageError as error:
                self._storage_failed(followed, error)
                continue
            followed.stage = Stage.FETCHING
            if followed.follower.position.fetch_offset == before.fetch_offset:
                # the leader's log has grown, or is out of range in another way: retry with a pause
                self._delay(followed, "the leader answers OFFSET_OUT_OF_RANGE", is_passing=True)
            await self._parts.budget.checkpoint()
        return True

    # --- after OFFSET_MOVED_TO_TIERED_STORAGE ---------------------------------------------------------------

    def _begin_in_tier(self, followed: Followed, tiers: TierStarts) -> None:
        """Restart a log after the records in tiered storage, beside the requests for other partitions."""
        assert followed.follower is not None
        followed.stage = Stage.TIERED
        followed.is_in_sync = False
        tiers.start(
            followed.follower, self._tier_leader, partial(self._began_in_tier, followed, followed.ask())
        )

    def _began_in_tier(
        self, followed: Followed, ask: Ask, error: TierStartError | StorageError | None
    ) -> None:
        """Fetch from where a log begins now, or try again after an error."""
        if not self._is_here(followed) or followed.stage is not Stage.TIERED:
            return
        followed.stage = Stage.FETCHING
        if isinstance(error, StorageError):
            self._storage_failed(followed, error)
        elif error is not None and error.code:
            self._failed(followed, ask, error.code)
        elif error is not None:
            why = f"its log cannot begin after what is in tiered storage: {error}"
            self._delay(followed, why, is_passing=error.is_passing)
        self._comes(followed)

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
        is_news = followed.delay(why, trio.current_time(), backoff_ms=backoff_ms, is_passing=is_passing)
        if is_news:
            level = logging.INFO if is_passing else logging.ERROR
            log.log(
                level, "%s-%d, from broker %d: %s; trying again",
                followed.replica.topic, followed.replica.index, self.leader.leader_id, why,
            )  # fmt: skip

    def _storage_failed(self, followed: Followed, error: StorageError) -> None:
        """Report a failed or full disk: the partition is retried; after a failure the replica soon goes offline."""
        self._parts.storage_failed(error)
        self._delay(followed, str(error), is_passing=False)


async def _synced(replica: Replica) -> None:
    with suppress(RequestError):  # it is closed, and fetched for no more
        await replica.wait_synced()
