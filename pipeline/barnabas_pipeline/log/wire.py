"""Reading a topic over the wire, from Barnabas or any Kafka: Metadata, ListOffsets, Fetch.

The rule: a range is read from exactly the incarnation of the topic that was planned for; with topic ids (Fetch v13 and
later) the broker itself watches over that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from barnabas.log.format.properties import decode_uuid, encode_uuid
from barnabas.records import control
from barnabas.records.batch import iter_batches, read_records
from barnabas.records.errors import RecordsError
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.fetch import FetchRequest
from barnabas.wire.generated.list_offsets import ListOffsetsRequest
from barnabas.wire.generated.metadata import MetadataRequest
from barnabas_pipeline.errors import DataLossError, IncompleteError, MissingOffsets, UsageError
from barnabas_pipeline.log.connection import (
    FETCH,
    LIST_OFFSETS,
    METADATA,
    Connection,
    ConnectionLostError,
    describe,
    is_retriable,
    parse_bootstrap,
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

LATEST, EARLIEST = -1, -2
ATTEMPTS = 8
BACKOFF_SECONDS = 0.1
MAX_WAIT_MS = 500
FETCH_VERSION_MAX, FETCH_VERSION_BY_NAME_MAX = 17, 12
FETCH_BYTES_LIMIT = 256 << 20
FETCH_BYTES_MIN = 64 << 10
RECORD_BYTES_GUESS = 1 << 10  # generous: what lies behind a short range is not fetched only to be thrown away

T = TypeVar("T")


class WireLog:
    """A topic of a cluster; see `model.Log` for the methods."""

    def __init__(self, options: LogOptions) -> None:
        self.options = options
        self._bootstrap = parse_bootstrap(options.bootstrap)
        self._connections: dict[tuple[str, int], Connection] = {}
        self._leaders: dict[int, tuple[str, int]] = {}
        self._epochs: dict[int, int] = {}
        self._identity: TopicIdentity | None = None

    # --- what there is --------------------------------------------------------------------------------------

    def identity(self) -> TopicIdentity:
        """By Metadata; brokers before 2.8 have no topic ids, those before 0.10.1 no cluster id."""
        self._learn()
        assert self._identity is not None
        return self._identity

    def bounds(self) -> dict[int, Bounds]:
        """By ListOffsets at the leaders: start, high watermark and, for read_committed, last stable offset."""
        self._learn()
        partitions = sorted(self._leaders)
        starts = self._list_offsets(partitions, EARLIEST, isolation=0)
        high_watermarks = self._list_offsets(partitions, LATEST, isolation=0)
        ends = self._list_offsets(partitions, LATEST, isolation=1) if self._isolation else high_watermarks
        return {
            one: Bounds(starts[one], max(starts[one], ends[one]), high_watermarks[one], self._epochs[one])
            for one in partitions
        }

    def offset_for_time(self, partition: int, timestamp_ms: int) -> int | None:
        """By ListOffsets."""
        if partition not in self._leaders:
            self._learn()
        offset = self._list_offsets([partition], timestamp_ms, isolation=self._isolation)[partition]
        return None if offset < 0 else offset

    def cut_points(self, wanted: OffsetRange, bytes_max: int) -> list[int]:
        """The wire says nothing of batches: cut into equal parts, guessing 100 bytes a record."""
        size = max(1, bytes_max // 100)
        return list(range(wanted.start + size, wanted.end, size))

    # --- fetching -------------------------------------------------------------------------------------------

    def read(self, wanted: OffsetRange) -> Iterator[RawBatch | CorruptSpan]:
        """Fetch until the end of the range has been passed, with a larger limit if a batch does not fit."""
        if wanted.partition not in self._leaders:
            self._learn()
        next_offset = wanted.start
        bytes_max = self.options.fetch_bytes_max
        stalled = 0
        while next_offset < wanted.end:
            guess = max(FETCH_BYTES_MIN, (wanted.end - next_offset) * RECORD_BYTES_GUESS)
            size = bytes_max if stalled else min(bytes_max, guess)
            part = self._retry(lambda at=next_offset, size=size: self._fetch(wanted, at, size))  # type: ignore[misc]
            data = part.records if part.records is not None else b""
            hidden = _AbortedInFetch(part.aborted_transactions or [])
            before = next_offset
            try:
                for pos, header in iter_batches(data):
                    raw = memoryview(data)[pos : pos + header.size]
                    if header.magic >= 2 and header.base_offset >= wanted.end:
                        return
                    if header.next_offset > next_offset:
                        yield RawBatch(raw, hidden.hides(raw, header))
                        next_offset = header.next_offset
                    else:
                        hidden.hides(raw, header)
            except RecordsError as error:
                # What cannot be a batch: nobody can tell where the next one begins, so the range ends in it.
                yield CorruptSpan(next_offset, wanted.end, "crc", error.message, bytes(data[: 1 << 20]))
                return
            if next_offset > before:
                stalled = 0
                continue
            end = (
                part.last_stable_offset
                if self._isolation and part.last_stable_offset >= 0
                else part.high_watermark
            )
            if next_offset >= end or (not data and stalled):
                raise IncompleteError(
                    f"{self.options.topic}-{wanted.partition} ends at {end} for readers, {wanted.end} was planned"
                )
            stalled += 1
            bytes_max = min(bytes_max * 4, FETCH_BYTES_LIMIT)

    def _fetch(self, wanted: OffsetRange, offset: int, bytes_max: int) -> Any:
        connection = self._connect(self._leader(wanted.partition))
        assert self._identity is not None
        by_id = (
            bool(self._identity.topic_id)
            and connection.versions.get(FETCH, (0, 0))[1] > FETCH_VERSION_BY_NAME_MAX
        )
        version = connection.best(FETCH, FETCH_VERSION_MAX if by_id else FETCH_VERSION_BY_NAME_MAX)
        topic = FetchRequest.FetchTopic()
        if by_id:
            topic.topic_id = decode_uuid(self._identity.topic_id)
        else:
            topic.topic = self.options.topic
        partition = FetchRequest.FetchPartition(wanted.partition)
        partition.fetch_offset, partition.partition_max_bytes = offset, bytes_max
        topic.partitions = [partition]
        request = FetchRequest()
        request.max_wait_ms, request.min_bytes, request.max_bytes = MAX_WAIT_MS, 1, bytes_max
        request.topics = [topic]
        if version >= 4:
            request.isolation_level = self._isolation
        elif self._isolation:
            request.isolation_level = 0
        response = connection.call(FETCH, request, version=version)
        parts = [part for answer in response.responses for part in answer.partitions]
        error_code = response.error_code or (parts[0].error_code if parts else ErrorCode.UNKNOWN_TOPIC_ID)
        if error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range(wanted, offset)
        if error_code in (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID):
            raise DataLossError(
                f"topic {self.options.topic} {self._identity.topic_id} is not there any more",
                [MissingOffsets(wanted.partition, offset, wanted.end)],
            )
        _check(error_code, f"fetching {self.options.topic}-{wanted.partition} at {offset}")
        return parts[0]

    def _out_of_range(self, wanted: OffsetRange, offset: int) -> None:
        bounds = self.bounds()[wanted.partition]
        if offset < bounds.start:
            raise DataLossError(
                f"retention has overtaken {self.options.topic}-{wanted.partition}",
                [MissingOffsets(wanted.partition, offset, min(bounds.start, wanted.end))],
            )
        raise DataLossError(
            f"{self.options.topic}-{wanted.partition} has become shorter: it ends at {bounds.end}",
            [MissingOffsets(wanted.partition, max(offset, bounds.end), wanted.end)],
        )

    # --- requests -------------------------------------------------------------------------------------------

    @property
    def _isolation(self) -> int:
        return 1 if self.options.isolation == READ_COMMITTED else 0

    def _learn(self) -> None:
        self._retry(self._learn_once)

    def _learn_once(self) -> None:
        connection = self._any_connection()
        version = connection.best(METADATA, 12)
        request = MetadataRequest()
        request.topics = [MetadataRequest.MetadataRequestTopic(name=self.options.topic)]
        request.allow_auto_topic_creation = version < 4
        response = connection.call(METADATA, request, version=version)
        (topic,) = response.topics
        if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise UsageError(f"there is no topic {self.options.topic!r} at {self.options.bootstrap}")
        _check(topic.error_code, f"asking for {self.options.topic}")
        nodes = {node.node_id: (node.host, node.port) for node in response.brokers}
        for partition in topic.partitions:
            if partition.leader_id not in nodes:
                raise ConnectionLostError(f"{self.options.topic}-{partition.partition_index} has no leader")
        self._leaders = {part.partition_index: nodes[part.leader_id] for part in topic.partitions}
        self._epochs = {part.partition_index: part.leader_epoch for part in topic.partitions}
        topic_id = encode_uuid(topic.topic_id) if any(topic.topic_id) else ""
        if self._identity is None:
            self._identity = TopicIdentity(response.cluster_id or "", self.options.topic, topic_id)

    def _list_offsets(self, partitions: list[int], timestamp: int, *, isolation: int) -> dict[int, int]:
        return self._retry(lambda: self._list_offsets_once(partitions, timestamp, isolation))

    def _list_offsets_once(self, partitions: list[int], timestamp: int, isolation: int) -> dict[int, int]:
        by_leader: dict[tuple[str, int], list[int]] = {}
        for partition in partitions:
            by_leader.setdefault(self._leader(partition), []).append(partition)
        found = {}
        for leader, mine in by_leader.items():
            connection = self._connect(leader)
            version = connection.best(LIST_OFFSETS, 7)
            items = [ListOffsetsRequest.ListOffsetsPartition(partition) for partition in mine]
            for item in items:
                item.timestamp = timestamp
            request = ListOffsetsRequest(replica_id=-1)
            if version >= 2:
                request.isolation_level = isolation
            request.topics = [ListOffsetsRequest.ListOffsetsTopic(self.options.topic, items)]
            for answer in connection.call(LIST_OFFSETS, request, version=version).topics[0].partitions:
                partition = answer.partition_index
                _check(answer.error_code, f"asking for an offset of {self.options.topic}-{partition}")
                if version == 0:
                    found[partition] = int(answer.old_style_offsets[0]) if answer.old_style_offsets else -1
                else:
                    found[partition] = int(answer.offset)
        return found

    def _leader(self, partition: int) -> tuple[str, int]:
        if partition not in self._leaders:
            raise UsageError(f"topic {self.options.topic} has no partition {partition}")
        return self._leaders[partition]

    def _any_connection(self) -> Connection:
        last: Exception = ConnectionLostError("no bootstrap servers")
        for address in self._bootstrap:
            try:
                return self._connect(address)
            except ConnectionLostError as error:
                last = error
        raise last

    def _connect(self, address: tuple[str, int]) -> Connection:
        connection = self._connections.get(address)
        if connection is None:
            connection = Connection(*address, self.options.client_settings)
            self._connections[address] = connection
        return connection

    def _retry(self, work: Callable[[], T]) -> T:
        """Do it again after a lost connection or a retriable error, with new connections and leaders."""
        for attempt in range(ATTEMPTS):
            try:
                return work()
            except ConnectionLostError:
                if attempt == ATTEMPTS - 1:
                    raise
                self.close()
                time.sleep(BACKOFF_SECONDS * 2**attempt)
                if work != self._learn_once and self._identity is not None:
                    try:
                        self._learn_once()
                    except ConnectionLostError:
                        continue
        raise AssertionError("not reached")

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()


class _AbortedInFetch:
    """Which batches of one fetch response belong to aborted transactions, as its list and its markers say."""

    def __init__(self, transactions: list[Any]) -> None:
        self._coming = sorted((one.first_offset, one.producer_id) for one in transactions)
        self._aborting: set[int] = set()

    def hides(self, raw: memoryview, header: Any) -> bool:
        if header.magic < 2:
            return False
        while self._coming and self._coming[0][0] <= header.last_offset:
            self._aborting.add(self._coming.pop(0)[1])
        if not header.is_transactional or header.producer_id not in self._aborting:
            return False
        if header.is_control:
            records = read_records(raw)
            if records and control.parse_type(records[0].key) is control.ControlType.ABORT:
                self._aborting.discard(header.producer_id)
            return False
        return True


def _check(error_code: int, doing: str) -> None:
    if not error_code:
        return
    if is_retriable(error_code):
        raise ConnectionLostError(f"{doing}: {describe(error_code)}")
    raise IncompleteError(f"{doing}: {describe(error_code)}")
