"""Incremental fetch sessions (KIP-227): the partitions of a fetcher, remembered between its requests.

Pure: no clock, no randomness, no waiting; `now_ms` and new session ids are passed in. The rule: a session's epoch
moves by exactly one with each request, so that a lost or repeated request is noticed by both sides.

A partition may be watched if the fetcher has all its records and knows its state; a request then checks only the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Protocol

from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode

NO_SESSION = 0
EPOCH_INITIAL: Final = 0
EPOCH_FINAL = -1
EPOCH_MAX: Final = 2**31 - 1

EVICTION_MS_MIN: Final = 120_000
"""A session younger and more recently used than this is not evicted for another (Kafka's min eviction time)."""

TopicKey = str | bytes
"""A topic's name (Fetch up to v12) or its id (v13+); a session never mixes the two."""


class Watch(Protocol):
    """Returns a partition of a session to the changed ones, once, when its state changes."""

    def end(self) -> None:
        """Watch no longer."""


class Reader(Protocol):
    """The server of a request of a session."""

    def partition_changed(self, watch: Watch) -> None:
        """Take note that a watched partition has changed, and is no longer watched."""


class SessionPartition:
    """One partition of a fetch: its limits for the fetcher, and the state in the last response."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "index",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "told_error",
        "told_high_watermark",
        "told_last_stable_offset",
        "told_log_start_offset",
        "topic",
        "watch",
    )

    def __init__(
        self,
        topic: TopicKey,
        index: int,
        fetch_offset: int,
        max_bytes: int,
        current_leader_epoch: int = -1,
        last_fetched_epoch: int = -1,
        log_start_offset: int = -1,
    ) -> None:
        self.topic = topic
        self.index = index
        self.fetch_offset = fetch_offset
        self.max_bytes = max_bytes
        self.current_leader_epoch = current_leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.log_start_offset = log_start_offset
        self.told_high_watermark = -1
        self.told_last_stable_offset = -1
        self.told_log_start_offset = -1
        self.told_error = False
        self.watch: Watch | None = None

    def tell(
        self, high_watermark: int, last_stable_offset: int, log_start_offset: int, *, is_error: bool
    ) -> bool:
        """Remember the state in a response; returns whether any of it is new or an error."""
        is_news = (
            is_error
            or self.told_error
            or high_watermark != self.told_high_watermark
            or last_stable_offset != self.told_last_stable_offset
            or log_start_offset != self.told_log_start_offset
        )
        self.told_high_watermark = high_watermark
        self.told_last_stable_offset = last_stable_offset
        self.told_log_start_offset = log_start_offset
        self.told_error = is_error
        return is_news


class Session:
    """A fetcher's partitions, in the order in which they are served.

    `changed` are the unwatched ones, in the same relative order. `reader` is called for each that is no longer watched.
    """

    __slots__ = (
        "broker_epoch",
        "changed",
        "created_ms",
        "epoch",
        "id",
        "is_open",
        "looked_at_all_ms",
        "partitions",
        "reader",
        "used_ms",
        "uses_topic_ids",
    )

    def __init__(
        self,
        session_id: int,
        uses_topic_ids: bool,
        now_ms: int,
        partitions: dict[tuple[TopicKey, int], SessionPartition],
    ) -> None:
        self.id = session_id
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = now_ms
        self.used_ms = now_ms
        self.epoch = EPOCH_INITIAL + 1
        self.partitions = partitions
        self.changed = dict(partitions)
        self.reader: Reader | None = None
        self.is_open = True
        self.looked_at_all_ms = 0
        self.broker_epoch = -1
        """The epoch in a follower's last request."""

    def due(self, now_ms: int, *, all_after_ms: int, broker_epoch: int = -1) -> list[SessionPartition]:
        """Return the partitions that a request must visit: the changed ones, or all.

        All are visited after `all_after_ms`, since not every change is watched, and for a follower that has registered
        again.
        """
        if 0 <= now_ms - self.looked_at_all_ms < all_after_ms and broker_epoch == self.broker_epoch:
            return list(self.changed.values())
        self.looked_at_all_ms, self.broker_epoch = now_ms, broker_epoch
        return list(self.partitions.values())

    def watched(self, partition: SessionPartition, watch: Watch) -> None:
        """Skip a partition in the next requests until `watch` reports a change of it."""
        partition.watch = watch
        self.changed.pop((partition.topic, partition.index), None)

    def note_change(self, partition: SessionPartition) -> None:
        """Look at a partition with the next request."""
        if partition.watch is not None:
            partition.watch.end()
            partition.watch = None
        key = partition.topic, partition.index
        if key in self.partitions:
            self.changed[key] = partition

    def end(self) -> None:
        """Stop watching partitions."""
        self.is_open = False
        for partition in self.partitions.values():
            if partition.watch is not None:
                partition.watch.end()
                partition.watch = None

    def update(
        self,
        requested: Iterable[SessionPartition],
        forgotten: Iterable[tuple[TopicKey, int]],
    ) -> None:
        """Apply the changes of an incremental request."""
        for partition in requested:
            partition_before = self.partitions.get((partition.topic, partition.index))
            if partition_before is None:
                self.partitions[(partition.topic, partition.index)] = partition
                self.changed[(partition.topic, partition.index)] = partition
            else:
                partition_before.fetch_offset = partition.fetch_offset
                partition_before.max_bytes = partition.max_bytes
                partition_before.current_leader_epoch = partition.current_leader_epoch
                partition_before.last_fetched_epoch = partition.last_fetched_epoch
                partition_before.log_start_offset = partition.log_start_offset
                self.note_change(partition_before)
        for key in forgotten:
            gone = self.partitions.pop(key, None)
            if gone is not None:
                self.note_change(gone)
                self.changed.pop(key, None)

    def rotate(self, served: Iterable[tuple[TopicKey, int]]) -> None:
        """Move partitions that returned records to the end, so that a size limit starves no partition."""
        for key in served:
            partition = self.partitions.pop(key, None)
            if partition is not None:
                self.partitions[key] = partition
                if self.changed.pop(key, None) is not None:
                    self.changed[key] = partition


class FetchSessions:
    """The cache of sessions, bounded by `slots_max` (max.incremental.fetch.session.cache.slots)."""

    def __init__(self, slots_max: int, new_id: Callable[[], int]) -> None:
        self._slots_max = slots_max
        self._new_id = new_id
        self._sessions: dict[int, Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def create(
        self, requested: Iterable[SessionPartition], *, uses_topic_ids: bool, now_ms: int
    ) -> Session | None:
        """A new session for these partitions, or None when the cache is full of sessions in use."""
        partitions = {(partition.topic, partition.index): partition for partition in requested}
        if self._slots_max <= 0:
            return None
        if len(self._sessions) >= self._slots_max and not self._evict(len(partitions), now_ms):
            return None
        session_id = self._new_id()
        while session_id in self._sessions or session_id <= 0:
            session_id = self._new_id()
        session = Session(session_id, uses_topic_ids, now_ms, partitions)
        self._sessions[session_id] = session
        return session

    def resume(self, session_id: int, epoch: int, *, uses_topic_ids: bool, now_ms: int) -> Session:
        """Return the session of an incremental request.

        Raises RequestError: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, or
        FETCH_SESSION_TOPIC_ID_ERROR when the client moved between topic names and topic ids.
        """
        session = self._sessions.get(session_id)
        if session is None:
            raise RequestError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.uses_topic_ids != uses_topic_ids:
            raise RequestError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        if session.epoch != epoch:
            raise RequestError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        session.epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        session.used_ms = now_ms
        return session

    def close(self, session_id: int) -> None:
        """Remove a session; unknown ids are ignored."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.end()

    def _evict(self, size: int, now_ms: int) -> bool:
        """Make room for a session of `size` partitions: evict an unused session, else a smaller old one."""
        oldest = min(self._sessions.values(), key=lambda session: session.used_ms)
        if now_ms - oldest.used_ms > EVICTION_MS_MIN:
            self.close(oldest.id)
            return True
        smallest = min(
            self._sessions.values(), key=lambda session: (len(session.partitions), session.used_ms)
        )
        if len(smallest.partitions) < size and now_ms - smallest.created_ms > EVICTION_MS_MIN:
            self.close(smallest.id)
            return True
        return False
