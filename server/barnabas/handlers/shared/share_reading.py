"""Reading the log for a share group: batches from the next offset on, and which of their records are acquired.

The rule: headers are read, records are not. Whole batches are sent unchanged; the member skips records that it did not
acquire.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.coordinators.share.aborted import aborted_batches
from barnabas.coordinators.share.acquisition import AcquireRequest
from barnabas.coordinators.share.inflight import Span
from barnabas.errors import RequestError, detached
from barnabas.records.any_magic import iter_any_records
from barnabas.records.batch import BatchHeader, iter_batches
from barnabas.records.control import ControlType, parse_type
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.share_fetch import ShareFetchResponse

if TYPE_CHECKING:
    from barnabas.cluster.tiering.manager import TieredStorage
    from barnabas.cluster.tiering.reads import RemoteData
    from barnabas.coordinators.share.partitions import LoadedPartition
    from barnabas.coordinators.share.shares import Shares
    from barnabas.log.format.txn_index import AbortedTransaction
    from barnabas.serving.loop_budget import LoopBudget
    from barnabas.wire.topic_partitions import TopicIdPartition

PartitionData = ShareFetchResponse.PartitionData

READ_BYTES_MAX = 1 << 20
"""Most bytes read of one partition at a time: a member requests some hundred records, whatever its limit in bytes."""

BATCHES_PER_STEP = 250


@dataclass(slots=True)
class Found:
    """Batches that were read from one partition, beginning at `next_offset`. `cut_short`: whether more could be read.

    `aborted` are the aborted transactions if they were read with the batches, from tiered storage.
    """

    topic_partition: TopicIdPartition
    shared: LoadedPartition
    data: bytes
    batches: list[tuple[int, BatchHeader]]
    upper_offset: int
    cut_short: bool
    next_offset: int
    aborted: list[AbortedTransaction] | None = None


async def look(
    loaded: dict[TopicIdPartition, LoadedPartition],
    bytes_max: int,
    *,
    budget: LoopBudget,
    tiered: TieredStorage | None,
) -> tuple[list[Found], list[tuple[TopicIdPartition, RequestError]]]:
    """Read the partitions with acquirable records, sharing the bytes evenly. Returns the readings and the failures."""
    acquirable = {
        topic_partition: shared for topic_partition, shared in loaded.items() if shared.records.can_acquire
    }
    readings, failed = [], []
    for topic_partition, shared in acquirable.items():
        try:
            bytes_each = max(bytes_max // len(acquirable), 1)
            each = await _read(topic_partition, shared, bytes_each, budget=budget, tiered=tiered)
        except RequestError as error:
            failed.append((topic_partition, detached(error)))
        else:
            if each is not None:
                readings.append(each)
        await budget.checkpoint()
    return readings, failed


async def _read(
    topic_partition: TopicIdPartition,
    shared: LoadedPartition,
    bytes_max: int,
    *,
    budget: LoopBudget,
    tiered: TieredStorage | None,
) -> Found | None:
    log, records = shared.led.log, shared.records
    upper = log.last_stable_offset if records.settings.committed_only else log.high_watermark
    limit = min(bytes_max, READ_BYTES_MAX)
    for _ in range(2):
        next_offset = records.next_offset
        aborted: list[AbortedTransaction] | None = None
        try:
            if tiered is not None and log.log_start_offset <= next_offset < log.local_log_start_offset:
                remote = await _read_remote(tiered, shared, next_offset, limit)
                data, aborted = remote if remote is not None else (b"", None)
            else:
                data = log.read(
                    next_offset, max_bytes=limit, upper_offset=upper, is_end_wanted=False
                ).to_bytes()
        except RequestError as error:
            if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            records.log_starts_at(log.log_start_offset)
            continue
        batches: list[tuple[int, BatchHeader]] = []
        for entry in iter_batches(data):
            batches.append(entry)
            if not len(batches) % BATCHES_PER_STEP:
                await budget.checkpoint()
        if not batches:
            return None
        return Found(topic_partition, shared, data, batches, upper, len(data) >= limit, next_offset, aborted)
    return None


async def _read_remote(
    tiered: TieredStorage, shared: LoadedPartition, offset: int, bytes_max: int
) -> RemoteData | None:
    """Read records that are only in tiered storage; None if they do not arrive in time. Raises RequestError."""
    # not needed by a broker without tiered storage
    from barnabas.cluster.tiering.reads import RemoteFetch

    if tiered.reads.is_throttled:
        return None
    committed_only = shared.records.settings.committed_only
    (result,) = await tiered.reads.fetch([RemoteFetch(shared.led, offset, bytes_max, True, committed_only)])
    if isinstance(result, RequestError):
        raise result
    return result


def acquire(
    readings: list[Found], acquire_request: AcquireRequest, *, shares: Shares
) -> Iterator[tuple[TopicIdPartition, PartitionData]]:
    """Acquire records of the readings; yield the answer of each partition that had some to acquire."""
    partitions = shares.partitions
    records_left, now_ms = acquire_request.records_max, partitions.lock_clock_ms()
    for each in readings:
        if records_left <= 0:
            break
        if each.shared.records.next_offset != each.next_offset:
            continue  # others have acquired or released records meanwhile: it is read again
        asked = AcquireRequest(
            acquire_request.member, records_left, acquire_request.batch_size, acquire_request.strict
        )
        spans = [(header.base_offset, header.last_offset) for _, header in each.batches]
        acquired = each.shared.records.acquire(asked, spans, now_ms, _aborted(each))
        if not acquired:
            continue
        partitions.lock_ends_at(now_ms + each.shared.records.settings.record_lock_ms)
        for first, last, _ in acquired:
            each.shared.acquired.add(last - first + 1)
        records_left -= sum(last - first + 1 for first, last, _ in acquired)
        yield (
            each.topic_partition,
            PartitionData(
                partition_index=each.topic_partition[1],
                records=_slice(each, acquired[0].first, acquired[-1].last),
                acquired_records=[
                    ShareFetchResponse.AcquiredRecords(
                        first_offset=first, last_offset=last, delivery_count=deliveries
                    )
                    for first, last, deliveries in acquired
                ],
            ),
        )


def _slice(reading: Found, first: int, last: int) -> memoryview:
    """The batches that have any of these offsets."""
    spans = [
        (position, position + header.size)
        for position, header in reading.batches
        if header.base_offset <= last and header.last_offset >= first
    ]
    return memoryview(reading.data)[spans[0][0] : spans[-1][1]]


def _aborted(reading: Found) -> list[Span]:
    if not reading.shared.records.settings.committed_only:
        return []
    end = min(reading.batches[-1][1].next_offset, reading.upper_offset)
    aborted = reading.aborted
    if aborted is None:
        aborted = reading.shared.led.log.aborted_transactions(reading.batches[0][1].base_offset, end)
    if not aborted:
        return []
    return aborted_batches(
        ((header, _is_abort_marker(reading.data, position, header)) for position, header in reading.batches),
        [(transaction.first_offset, transaction.producer_id) for transaction in aborted],
    )


def _is_abort_marker(data: bytes, position: int, header: BatchHeader) -> bool:
    if not header.is_control:
        return False
    key = next((record.key for record in iter_any_records(data, position)), None)
    return key is not None and parse_type(key) is ControlType.ABORT
