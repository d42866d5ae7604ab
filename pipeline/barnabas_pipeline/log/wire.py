"""Reading a topic over the wire, from Barnabas or any Kafka: Metadata, ListOffsets, Fetch.

The rule: a range is read from exactly the incarnation of the topic that was planned for; with topic ids (Fetch v13 and
later) the broker itself watches over that.
"""

from __future__ import annotations

import weakref
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import TypeVar, cast

from barnabas.client import AuthenticationError, Client, ClientError, ClientSettings, ResponseError
from barnabas.client.blocking import BlockingClient
from barnabas.client.errors import check
from barnabas.client.settings import Endpoint, parse_bootstrap
from barnabas.log.format.properties import decode_uuid, encode_uuid
from barnabas.records.batch import BatchHeader, iter_batches
from barnabas.records.committed import AbortedBatches
from barnabas.records.errors import RecordsError
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.fetch import FetchRequest, FetchResponse
from barnabas.wire.generated.list_offsets import ListOffsetsRequest
from barnabas.wire.generated.metadata import MetadataResponse
from barnabas_pipeline.errors import (
    DataLossError,
    IncompleteError,
    MissingOffsets,
    NoTopicError,
    UsageError,
)
from barnabas_pipeline.log.model import (
    READ_COMMITTED,
    Bounds,
    CorruptSpan,
    LogOptions,
    OffsetRange,
    RawBatch,
    TopicIdentity,
)
from barnabas_pipeline.log.order import Order, StoredBatch

CLIENT_ID = "barnabas-pipeline"
FETCH, LIST_OFFSETS = 1, 2
LATEST, EARLIEST = -1, -2
BACKOFF_MAX_MS = 6_400  # with seven retries, a broker may be away for 12 s
MAX_WAIT_MS = 500
FETCH_VERSION_MAX, FETCH_VERSION_BY_NAME_MAX = 17, 12
LIST_OFFSETS_VERSION_MAX = 7
FETCH_BYTES_LIMIT = 256 << 20
FETCH_BYTES_MIN = 64 << 10
RECORD_BYTES_GUESS = 1 << 10  # generous; bounds the bytes fetched beyond a short range

T = TypeVar("T")
Topic = MetadataResponse.MetadataResponseTopic


def _in_order(order: Order, part: FetchResponse.PartitionData) -> Iterator[RawBatch | CorruptSpan]:
    """Yield the batches and spans of a response that are new."""
    data = memoryview(cast("bytes", part.records or b""))
    aborted = AbortedBatches(part.aborted_transactions)

    def hides(data: bytes | memoryview, header: BatchHeader) -> bool:
        return aborted.hides(data, 0, header)

    try:
        for pos, header in iter_batches(data):
            stored = StoredBatch(data[pos : pos + header.size], header, hides)
            if not order.has_had(stored):
                yield from order.take(stored)
            if order.is_done:
                return
    except RecordsError as error:
        # after an invalid batch the next one cannot be located, so the range ends in it
        span = CorruptSpan(
            order.next_offset, order.offset_range.end, "crc", error.message, bytes(data[: 1 << 20])
        )
        yield from order.take_span(span)


def reach(options: LogOptions) -> tuple[list[Endpoint], ClientSettings]:
    """Return the addresses of a cluster and the settings of its client. Raises UsageError."""
    try:
        settings = ClientSettings.of(options.client_settings, client_id=CLIENT_ID)
        return parse_bootstrap(options.bootstrap), replace(settings, retry_backoff_max_ms=BACKOFF_MAX_MS)
    except ValueError as error:
        raise UsageError(str(error)) from None


def open_client(options: LogOptions) -> BlockingClient:
    """Open a client of a cluster, without a connection yet. Raises UsageError for wrong settings."""
    return BlockingClient(*reach(options))


class WireLog:
    """A topic of a cluster; see `model.Log` for the methods. Raises UsageError for wrong client settings.

    Without a shared `client` it opens one with its first request. With `topic_id` it reads
    from that incarnation of the topic alone.
    """

    def __init__(
        self, options: LogOptions, *, client: BlockingClient | None = None, topic_id: str = ""
    ) -> None:
        self.options = options
        reach(options)
        self._client = client
        self._close: Callable[[], object] = lambda: None
        self._identity = TopicIdentity("", options.topic, topic_id) if topic_id else None

    # --- the topic ------------------------------------------------------------------------------------------

    def identity(self) -> TopicIdentity:
        """Return the identity by Metadata; brokers before 2.8 have no topic ids, brokers before 0.10.1 no cluster id."""
        self._run(self._newest_topic)
        assert self._identity is not None
        return self._identity

    def bounds(self) -> dict[int, Bounds]:
        """Return by ListOffsets at the leaders: start, high watermark and, for read_committed, last stable offset."""
        return self._run(self._bounds)

    async def _bounds(self, client: Client) -> dict[int, Bounds]:
        epochs = {
            info.partition_index: info.leader_epoch for info in (await self._newest_topic(client)).partitions
        }
        partitions = sorted(epochs)
        starts = await self._list_offsets(client, partitions, EARLIEST, isolation=0)
        high_watermarks = await self._list_offsets(client, partitions, LATEST, isolation=0)
        ends = high_watermarks
        if self._isolation:
            ends = await self._list_offsets(client, partitions, LATEST, isolation=1)
        return {
            place: Bounds(
                starts[place], max(starts[place], ends[place]), high_watermarks[place], epochs[place]
            )
            for place in partitions
        }

    def offset_for_time(self, partition: int, timestamp_ms: int) -> int | None:
        """Return the offset by ListOffsets."""
        answers = self._run(
            lambda client: self._list_offsets(client, [partition], timestamp_ms, isolation=self._isolation)
        )
        return None if answers[partition] < 0 else answers[partition]

    def cut_points(self, offset_range: OffsetRange, bytes_max: int) -> list[int]:
        """Return ends of equal parts, assuming 100 bytes per record, as the protocol does not expose batches."""
        size = max(1, bytes_max // 100)
        return list(range(offset_range.start + size, offset_range.end, size))

    def size(self, _: OffsetRange) -> int | None:
        """Return None: the protocol does not report it."""
        return None

    # --- fetching -------------------------------------------------------------------------------------------

    def read(self, offset_range: OffsetRange) -> Iterator[RawBatch | CorruptSpan]:
        """Fetch until the end of the range has been passed, with a larger limit if a batch does not fit.

        Each fetch begins with the last batch of the previous fetch: a batch after it may state too small an offset, and a
        broker's look-up would skip that. If no batch follows, as at the end of a segment, the fetch begins after it.
        """
        order = Order(offset_range)
        bytes_max = self.options.fetch_bytes_max
        asked, is_behind, is_stalled = offset_range.start, True, False
        while not order.is_done:
            guess = max(FETCH_BYTES_MIN, (offset_range.end - asked) * RECORD_BYTES_GUESS)
            size = bytes_max if is_stalled else min(bytes_max, guess)
            part = self._fetch(offset_range, asked, size, is_behind=is_behind)
            before = order.next_offset, order.beyond
            yield from _in_order(order, part)
            if (order.next_offset, order.beyond) != before:
                asked, is_behind, is_stalled = order.next_offset, True, False
                continue
            count = len(part.records or b"")
            if count >= size < FETCH_BYTES_LIMIT:
                bytes_max, is_stalled = min(bytes_max * 4, FETCH_BYTES_LIMIT), True
                continue
            has_stable_end = self._isolation and part.last_stable_offset >= 0
            end = part.last_stable_offset if has_stable_end else part.high_watermark
            candidates = [
                offset for offset in (order.after, order.beyond) if asked - is_behind < offset < end
            ]
            if candidates:
                asked, is_behind, is_stalled = min(candidates), False, False
            elif count or is_stalled or order.after >= end:
                if end >= offset_range.end:
                    yield from order.finish(end)
                if not order.is_done:
                    raise IncompleteError(
                        f"{self.options.topic}-{offset_range.partition} ends at {end} for readers, "
                        f"{offset_range.end} was planned"
                    )
            else:
                is_stalled = True

    def _fetch(
        self, offset_range: OffsetRange, offset: int, bytes_max: int, *, is_behind: bool
    ) -> FetchResponse.PartitionData:
        return self._run(
            lambda client: self._fetch_once(client, offset_range, offset, bytes_max, is_behind=is_behind)
        )

    async def _fetch_once(
        self, client: Client, offset_range: OffsetRange, offset: int, bytes_max: int, *, is_behind: bool
    ) -> FetchResponse.PartitionData:
        connection = await client.broker(await self._leader(client, offset_range.partition))
        self._check_incarnation(await self._topic(client), offset_range, offset)
        assert self._identity is not None
        topic_id = self._identity.topic_id
        by_id = bool(topic_id) and connection.versions.get(FETCH, (0, 0))[1] > FETCH_VERSION_BY_NAME_MAX
        version = connection.version_of(FETCH, FETCH_VERSION_MAX if by_id else FETCH_VERSION_BY_NAME_MAX)
        topic = FetchRequest.FetchTopic()
        if by_id:
            topic.topic_id = decode_uuid(topic_id)
        else:
            topic.topic = self.options.topic
        partition = FetchRequest.FetchPartition(offset_range.partition)
        partition.fetch_offset, partition.partition_max_bytes = max(offset - is_behind, 0), bytes_max
        topic.partitions = [partition]
        request = FetchRequest()
        request.max_wait_ms, request.min_bytes, request.max_bytes = MAX_WAIT_MS, 1, bytes_max
        request.topics = [topic]
        if version >= 4:
            request.isolation_level = self._isolation
        response = await connection.ask(request, version=version)
        parts = [part for answer in response.responses for part in answer.partitions]
        error_code = response.error_code or (parts[0].error_code if parts else ErrorCode.UNKNOWN_TOPIC_ID)
        if error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            if is_behind and offset:  # the log begins here
                return await self._fetch_once(client, offset_range, offset, bytes_max, is_behind=False)
            await self._raise_out_of_range(client, offset_range, offset)
        if error_code in (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID):
            # Also the error of a broker that does not know a new topic yet: the newest metadata decides.
            client.forget(self.options.topic)
            self._check_incarnation(await self._topic_or_none(client), offset_range, offset)
        check(error_code, f"fetching {self.options.topic}-{offset_range.partition} at {offset}")
        return parts[0]

    def _check_incarnation(self, topic: Topic | None, offset_range: OffsetRange, offset: int) -> None:
        """Check that the topic in the metadata is the planned incarnation, if topics have ids. Raises DataLossError."""
        assert self._identity is not None
        planned = self._identity.topic_id
        if topic is None or (planned and any(topic.topic_id) and encode_uuid(topic.topic_id) != planned):
            raise DataLossError(
                f"topic {self.options.topic} {planned} is not there any more",
                [MissingOffsets(offset_range.partition, offset, offset_range.end)],
            )

    async def _raise_out_of_range(self, client: Client, offset_range: OffsetRange, offset: int) -> None:
        bounds = (await self._bounds(client))[offset_range.partition]
        if offset < bounds.start:
            raise DataLossError(
                f"retention has overtaken {self.options.topic}-{offset_range.partition}",
                [MissingOffsets(offset_range.partition, offset, min(bounds.start, offset_range.end))],
            )
        raise DataLossError(
            f"{self.options.topic}-{offset_range.partition} has become shorter: it ends at {bounds.end}",
            [MissingOffsets(offset_range.partition, max(offset, bounds.end), offset_range.end)],
        )

    # --- requests -------------------------------------------------------------------------------------------

    @property
    def _isolation(self) -> int:
        return 1 if self.options.isolation == READ_COMMITTED else 0

    def _run(self, work: Callable[[Client], Awaitable[T]]) -> T:
        """Run a request of the client, with retries. Raises UsageError, IncompleteError, DataLossError."""
        if self._client is None:
            self._client = open_client(self.options)
            self._close = weakref.finalize(self, self._client.close)
        try:
            return self._client.run(lambda client: client.retrying(lambda: work(client)))
        except AuthenticationError as error:
            raise UsageError(str(error)) from None
        except ClientError as error:
            raise IncompleteError(str(error)) from None

    async def _topic_or_none(self, client: Client) -> Topic | None:
        try:
            return await client.topic(self.options.topic)
        except ResponseError as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
        return None

    async def _topic(self, client: Client) -> Topic:
        topic = await self._topic_or_none(client)
        if topic is None:
            raise NoTopicError(f"there is no topic {self.options.topic!r} at {self.options.bootstrap}")
        if self._identity is None:
            topic_id = encode_uuid(topic.topic_id) if any(topic.topic_id) else ""
            self._identity = TopicIdentity(client.cluster_id, self.options.topic, topic_id)
        return topic

    async def _newest_topic(self, client: Client) -> Topic:
        client.forget(self.options.topic)
        return await self._topic(client)

    async def _leader(self, client: Client, partition: int) -> int:
        topic = await self._topic(client)
        if all(info.partition_index != partition for info in topic.partitions):
            raise UsageError(f"topic {self.options.topic} has no partition {partition}")
        return await client.leader(self.options.topic, partition)

    async def _list_offsets(
        self, client: Client, partitions: list[int], timestamp: int, *, isolation: int
    ) -> dict[int, int]:
        by_leader: dict[int, list[int]] = {}
        for partition in partitions:
            by_leader.setdefault(await self._leader(client, partition), []).append(partition)
        bounds = {}
        for leader, mine in by_leader.items():
            connection = await client.broker(leader)
            version = connection.version_of(LIST_OFFSETS, LIST_OFFSETS_VERSION_MAX)
            items = [ListOffsetsRequest.ListOffsetsPartition(partition) for partition in mine]
            for item in items:
                item.timestamp = timestamp
            request = ListOffsetsRequest(replica_id=-1)
            if version >= 2:
                request.isolation_level = isolation
            request.topics = [ListOffsetsRequest.ListOffsetsTopic(self.options.topic, items)]
            response = await connection.ask(request, version=version)
            for answer in response.topics[0].partitions:
                partition = answer.partition_index
                check(answer.error_code, f"asking for an offset of {self.options.topic}-{partition}")
                if version == 0:
                    bounds[partition] = int(answer.old_style_offsets[0]) if answer.old_style_offsets else -1
                else:
                    bounds[partition] = int(answer.offset)
        return bounds

    def close(self) -> None:
        """Close all connections, unless the client is shared."""
        self._close()
