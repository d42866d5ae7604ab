"""Fetching ahead of the program, from all brokers, within a limit of bytes.

The rule: one task decides, `run`; there is one request at a time to each broker, and a response counts only if the
requested position is still the next one.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Any

import trio

from barnabas.client.client import Client
from barnabas.client.connection import Connection
from barnabas.client.consuming.partition import Chunk, Partition
from barnabas.client.consuming.sessions import SESSION_ERRORS, FetchSession, Wanted
from barnabas.client.consuming.settings import ConsumerSettings
from barnabas.client.errors import (
    ClientError,
    DamagedRecordsError,
    OffsetOutOfRangeError,
    ResponseError,
    is_retriable,
)
from barnabas.client.topics import TopicWatch
from barnabas.client.values import TopicPartition
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.fetch import FetchRequest, FetchResponse

LANE = "fetch"
FETCH = 1
VERSION_MAX, BY_NAME_VERSION = 17, 12
SESSIONS_SINCE, IDS_SINCE = 7, 13
BUFFERED_CHUNKS = 2
"""Responses of a partition that wait: one that is handed out, and the next."""
_METADATA_IS_OLD = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
)


Asked = dict[TopicPartition, tuple[Partition, int, int]]
"""Partitions that a request is about: each with its number of seeks and its offset when that was decided."""


class _Broker:
    """Fetches from one broker."""

    def __init__(self) -> None:
        self.session = FetchSession()
        self.is_busy = False
        self.retry_at = 0.0
        self.failures = 0


class Fetcher:
    """Fetches from the consumer's partitions, ahead of the program. `run` is a task of the consumer."""

    def __init__(
        self,
        client: Client,
        topics: TopicWatch,
        settings: ConsumerSettings,
        partitions: dict[TopicPartition, Partition],
        locate: Callable[[], None],
    ) -> None:
        """`locate` is called when a position must be looked up."""
        self.ready: deque[Partition] = deque()
        """Partitions with something to hand out, the next one first."""
        self.arrived = trio.Event()
        """Set, and replaced, when there is something new to hand out or to raise."""
        self._client = client
        self._topics = topics
        self._settings = settings
        self._partitions = partitions
        self._locate = locate
        self._brokers: dict[int, _Broker] = {}
        self._reserved_bytes = 0
        self._nursery: trio.Nursery
        self._wakes = trio.Event()

    def wake(self) -> None:
        """Wake the fetcher."""
        self._wakes.set()

    def announce(self) -> None:
        """Wake the tasks that wait for a record."""
        self.arrived.set()
        self.arrived = trio.Event()

    async def run(self) -> None:
        """Fetch, for ever."""
        async with trio.open_nursery() as self._nursery:
            while True:
                next_look = self.look(trio.current_time())
                with trio.move_on_at(next_look):
                    await self._wakes.wait()
                self._wakes = trio.Event()

    # --- deciding -------------------------------------------------------------------------------------------

    def look(self, now: float) -> float:
        """Send requests to brokers without one in flight; returns the time for the next check."""
        next_look = math.inf
        by_source: dict[int, list[Partition]] = {}
        for partition in self._partitions.values():
            if not self._is_fetchable(partition):
                continue
            if partition.retry_at > now:
                next_look = min(next_look, partition.retry_at)
                continue
            source = self.source_of(partition, now)
            if source < 0:
                next_look = min(next_look, now + self._client.settings.retry_backoff_ms / 1000)
            else:
                by_source.setdefault(source, []).append(partition)
        idle = []
        for source, partitions in by_source.items():
            broker = self._brokers.setdefault(source, _Broker())
            if broker.retry_at > now:
                next_look = min(next_look, broker.retry_at)
            elif not broker.is_busy:
                idle.append((source, broker, partitions))
        buffered = sum(partition.buffered_bytes for partition in self._partitions.values())
        for shares, (source, broker, partitions) in zip(range(len(idle), 0, -1), idle, strict=True):
            room = (self._settings.prefetch_bytes - buffered - self._reserved_bytes) // shares
            if room <= 0:
                break  # taking records wakes the fetcher
            size = min(room, self._settings.fetch_bytes_max)
            self._reserved_bytes += size
            broker.is_busy = True
            # Noted now: a position that is moved before the task begins is not asked for.
            asked = {
                partition.place: (partition, partition.seeks, partition.fetch_offset)
                for partition in partitions
            }
            for partition in partitions:
                partition.is_under_way = True
            self._nursery.start_soon(self.fetch_from, source, broker, asked, size)
        return next_look

    def _is_fetchable(self, partition: Partition) -> bool:
        if partition.offset < 0 or partition.is_paused or partition.is_revoked or partition.is_under_way:
            return False
        return partition.failure is None and len(partition.chunks) < BUFFERED_CHUNKS

    def source_of(self, partition: Partition, now: float) -> int:
        """Return the broker to read a partition from; -1 if that is not known now."""
        topic, index = partition.place
        leader = self._topics.leader(topic, index)
        if leader < 0:
            return -1
        info = self._topics.infos[topic].partitions[index]
        if info.epoch > partition.leader_epoch:
            if partition.fetch_epoch >= 0:
                self._locate()  # the log may have been cut off below the position (KIP-320)
                return -1
            partition.leader_epoch = info.epoch
        if partition.nearby >= 0 and now < partition.nearby_until and partition.nearby in info.replicas:
            return partition.nearby
        return leader

    # --- fetching -------------------------------------------------------------------------------------------

    async def fetch_from(self, source: int, broker: _Broker, asked: Asked, size: int) -> None:
        """Fetch from some partitions of a broker, up to a number of bytes, and process its response."""
        partitions = [partition for partition, _, _ in asked.values()]
        settings = self._client.settings
        try:
            connection = await self._client.broker(source, lane=LANE)
            response, names = await self.ask(connection, broker, asked, size)
        except ClientError as error:
            broker.session.end()
            broker.retry_at = trio.current_time() + (
                min(settings.retry_backoff_ms * 2**broker.failures, settings.retry_backoff_max_ms) / 1000
            )
            broker.failures = min(broker.failures + 1, 10)
            for partition in partitions:
                partition.nearby = -1
                if not error.is_retriable:
                    partition.failure = error
            self._topics.need()
            self.announce()
        else:
            broker.failures = 0
            self.take(response, names, asked, source)
        finally:
            self._reserved_bytes -= size
            broker.is_busy = False
            for partition in partitions:
                partition.is_under_way = False
            self.wake()

    async def ask(
        self, connection: Connection, broker: _Broker, asked: Asked, size: int
    ) -> tuple[FetchResponse, dict[bytes, str]]:
        """Send a request, and return its answer with the names of topics by their ids. Raises ClientError."""
        settings = self._settings
        ids = {place.topic: self._topics.infos[place.topic].id for place in asked}
        version = connection.version_of(
            FETCH, VERSION_MAX if all(map(any, ids.values())) else BY_NAME_VERSION
        )
        fetches = {
            place: Wanted(
                ids[place.topic] if version >= IDS_SINCE else b"",
                offset,
                min(size, settings.partition_bytes_max * partition.bytes_max_factor),
                partition.leader_epoch,
            )
            for place, (partition, _, offset) in asked.items()
        }
        request = FetchRequest(
            max_wait_ms=settings.fetch_wait_ms_max, min_bytes=settings.fetch_bytes_min, max_bytes=size
        )
        request.isolation_level = int(settings.is_committed_only) if version >= 4 else 0
        named, removed = fetches, dict[TopicPartition, bytes]()
        if version >= SESSIONS_SINCE:
            named, removed = broker.session.ask(fetches)
            request.session_id, request.session_epoch = broker.session.id, broker.session.epoch
        request.topics = _topics_of(named, version)
        request.forgotten_topics_data = _forgotten(removed, version)
        if version >= 11:
            request.rack_id = settings.rack
        response: FetchResponse = await connection.ask(
            request,
            version=version,
            timeout_ms=self._client.settings.request_timeout_ms + settings.fetch_wait_ms_max,
        )
        if version >= SESSIONS_SINCE:
            broker.session.answered(response.session_id, response.error_code)
        if response.error_code and response.error_code not in SESSION_ERRORS:
            raise ResponseError(response.error_code, f"fetching from {connection.peer}")
        return response, {topic_id: name for name, topic_id in ids.items()}

    # --- answers --------------------------------------------------------------------------------------------

    def take(
        self,
        response: FetchResponse,
        names: dict[bytes, str],
        asked: Asked,
        source: int,
    ) -> None:
        """Process a response of a broker: records, errors and new leaders of the requested partitions."""
        for topic in response.responses:
            name = topic.topic or names.get(topic.topic_id, "")
            for answer in topic.partitions:
                place = TopicPartition(name, answer.partition_index)
                if place not in asked:
                    continue
                partition, seeks, offset = asked[place]
                if self._partitions.get(place) is partition and partition.seeks == seeks:
                    self._take_partition(partition, answer, offset, source)
        self.announce()

    def _take_partition(self, partition: Partition, answer: Any, offset: int, source: int) -> None:
        code = answer.error_code
        if code:
            self._take_error(partition, code, offset, source)
            return
        partition.high_watermark = answer.high_watermark
        partition.last_stable_offset = answer.last_stable_offset
        partition.log_start_offset = answer.log_start_offset
        if answer.preferred_read_replica >= 0:
            partition.nearby = answer.preferred_read_replica
            age_s = self._client.settings.metadata_max_age_ms / 1000
            partition.nearby_until = trio.current_time() + age_s
        if not answer.records:
            return
        try:
            chunk = Chunk(
                partition.place, answer.records, offset, answer.aborted_transactions,
                checks_crcs=self._settings.checks_crcs,
            )  # fmt: skip
        except DamagedRecordsError as error:
            partition.failure = error
            return
        if chunk.end_offset == offset:
            partition.bytes_max_factor *= 2  # a broker before 0.10.1 sends part of a batch that is larger
            return
        partition.bytes_max_factor = 1
        partition.add(chunk)
        if partition not in self.ready:
            self.ready.append(partition)
        # partitions that returned records come last in the next request, if the broker keeps no session
        self._partitions[partition.place] = self._partitions.pop(partition.place)

    def _take_error(self, partition: Partition, code: int, offset: int, source: int) -> None:
        partition.retry_at = trio.current_time() + self._client.settings.retry_backoff_ms / 1000
        topic, index = partition.place
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            if source != self._topics.leader(topic, index):
                partition.nearby = -1  # a follower may be behind: the leader knows
            elif partition.chunks:
                pass  # told when the program has got there
            elif self._settings.offset_reset == "none":
                partition.failure = OffsetOutOfRangeError(f"{partition.place} has no offset {offset}")
            else:
                partition.seek_to(self._settings.offset_reset)
                self._locate()
            return
        partition.nearby = -1
        if code in _METADATA_IS_OLD or is_retriable(code):
            self._topics.need()
        else:
            partition.failure = ResponseError(code, f"fetching {partition.place}")


def _topics_of(named: dict[TopicPartition, Wanted], version: int) -> list[FetchRequest.FetchTopic]:
    topics: dict[str, FetchRequest.FetchTopic] = {}
    for place, fetch in named.items():
        topic = topics.get(place.topic)
        if topic is None:
            topic = topics[place.topic] = FetchRequest.FetchTopic()
            if version >= IDS_SINCE:
                topic.topic_id = fetch.topic_id
            else:
                topic.topic = place.topic
        topic.partitions.append(
            FetchRequest.FetchPartition(
                place.partition,
                current_leader_epoch=fetch.leader_epoch if version >= 9 else -1,
                fetch_offset=fetch.offset,
                partition_max_bytes=fetch.bytes_max,
            )
        )
    return list(topics.values())


def _forgotten(removed: dict[TopicPartition, bytes], version: int) -> list[FetchRequest.ForgottenTopic]:
    topics: dict[tuple[str, bytes], FetchRequest.ForgottenTopic] = {}
    for place, topic_id in removed.items():
        topic = topics.get((place.topic, topic_id))
        if topic is None:
            topic = topics[place.topic, topic_id] = FetchRequest.ForgottenTopic()
            if version >= IDS_SINCE:
                topic.topic_id = topic_id
            else:
                topic.topic = place.topic
        topic.partitions.append(place.partition)
    return list(topics.values())
