"""Work of one task: copies the missing records of some partitions, each in separate transactions.

The rule: first it initializes the partition's transactional id, which aborts an earlier mirror's open transaction and
fences it; only then it reads the position. Records, and the position after them, are committed together.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import trio

from barnabas.client import (
    Client,
    ClientError,
    ClientSettings,
    OffsetAndMetadata,
    ProducerFencedError,
    ResponseError,
)
from barnabas.client.admin import LATEST, Admin, OffsetAt
from barnabas.client.producer import Producer, open_producer
from barnabas.client.producing.settings import ProducerSettings
from barnabas.records.record import Record
from barnabas.wire.generated.errors import ErrorCode
from barnabas_pipeline import faults
from barnabas_pipeline.errors import DataLossError, IncompleteError, PipelineError
from barnabas_pipeline.jobs.mirror.model import HEADER, Coordinates, Failure, Part, PartResult
from barnabas_pipeline.jobs.mirror.reading import Counts, coordinates_of, read_blocks
from barnabas_pipeline.jobs.mirror.resuming import resume
from barnabas_pipeline.log.model import Log, OffsetRange
from barnabas_pipeline.log.transports import open_log

if TYPE_CHECKING:
    from barnabas.client.producing.outbox import Delivery

PARTS_TOGETHER = 4
"""Partitions of a task that are copied in parallel; each holds a buffer and the content of a fetch."""
RECORDS_PER_TRANSACTION, BYTES_PER_TRANSACTION = 10_000, 8 << 20
DEFAULTS = {
    "linger.ms": "20",
    "compression.type": "lz4",
    "buffer.memory": str(16 << 20),
    "max.request.size": str(16 << 20),
}
FENCED = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
VISIBLE_SECONDS_MAX = 10.0
VISIBLE_POLL_SECONDS = 0.01


def copy_parts(parts: Iterable[Part]) -> list[PartResult]:
    """Copy parts, some of them in parallel; the result of a failed part has its error."""
    return trio.run(_copy_parts, list(parts))


async def _copy_parts(parts: list[Part]) -> list[PartResult]:
    results = [PartResult(part.place) for part in parts]
    limiter = trio.CapacityLimiter(PARTS_TOGETHER)

    async def one(part: Part, result: PartResult) -> None:
        async with limiter:
            await _copy_part(part, result)

    async with trio.open_nursery() as nursery:
        for part, result in zip(parts, results, strict=True):
            nursery.start_soon(one, part, result)
    return results


async def _copy_part(part: Part, result: PartResult) -> None:
    try:
        await _copy(part, result)
    except (ClientError, PipelineError, ValueError) as error:
        if _is_fenced(error):
            text = f"another mirror has taken over {part.place.target}-{part.place.partition}"
            result.failure = Failure.of(str(part), IncompleteError(text))
        else:
            result.failure = Failure.of(str(part), error)


def _is_fenced(error: BaseException | None) -> bool:
    """Return whether a broker has fenced the producer, because of a later one."""
    if isinstance(error, ResponseError) and error.code in FENCED:
        return True
    return isinstance(error, ProducerFencedError) or (error is not None and _is_fenced(error.__cause__))


def producer_settings(part: Part) -> tuple[ProducerSettings, ClientSettings]:
    """Return the settings to write with. Raises ValueError."""
    client_settings = {**DEFAULTS, **part.target.client_settings}
    settings = replace(
        ProducerSettings.of(client_settings),
        acks=-1,
        is_idempotent=True,
        transactional_id=part.transactional_id,
        creates_topics=False,
    )
    return settings, ClientSettings.of(client_settings, client_id="barnabas-mirror")


async def _copy(part: Part, result: PartResult) -> None:
    settings, client_settings = producer_settings(part)
    async with open_producer(part.target.bootstrap, settings, client_settings=client_settings) as producer:
        faults.point("mirror.after_fence")
        start, is_committed = await resume(producer.client, part, result)
        faults.point("mirror.after_resume")
        if is_committed:
            result.position = start
            if start >= part.bound.end:
                return
        log = await trio.to_thread.run_sync(open_log, part.source)
        try:
            await _Copy(part, result, producer, log).run(start)
        finally:
            await trio.to_thread.run_sync(log.close)


@dataclass(slots=True)
class _Copy:
    part: Part
    result: PartResult
    producer: Producer
    log: Log
    records: int = 0
    size: int = 0
    is_open: bool = False
    last: Delivery | None = None
    """Delivery of the newest record."""

    async def run(self, start: int) -> None:
        """Copy up to the end of the part, or up to an unreadable record; then its error is raised."""
        counts = Counts()
        offset_range = OffsetRange(self.part.place.partition, start, self.part.bound.end)
        blocks = read_blocks(self.log, offset_range, counts)
        position, failure = offset_range.end, None
        copied = start
        while True:
            try:
                block = await trio.to_thread.run_sync(next, blocks, None)
            except (IncompleteError, DataLossError) as error:
                position, failure = copied, error
                break
            if block is None:
                break
            for record in block:
                await self._send(record)
                copied = record.offset + 1
                if self.records >= RECORDS_PER_TRANSACTION or self.size >= BYTES_PER_TRANSACTION:
                    await self._commit(copied)
            faults.point("mirror.after_block")
        if self.is_open or position != self.result.position:
            await self._commit(position)
        self.result.control += counts.control
        await self._wait_until_visible()
        if failure is not None:
            raise failure

    async def _send(self, record: Record) -> None:
        part, place = self.part, self.part.place
        if is_from_target(part, record):
            self.result.looped += 1
            return
        if not self.is_open:
            self.producer.begin_transaction()
            self.is_open = True
        source = Coordinates(place.cluster_id, place.topic_id, place.partition, record.offset).encode()
        self.last = await self.producer.send(
            place.target,
            record.value,
            key=record.key,
            headers=[*record.headers, (HEADER, source)],
            partition=place.partition,
            timestamp_ms=record.timestamp,
        )
        self.records += 1
        self.size += len(record.value or b"") + len(record.key or b"")

    async def _commit(self, position: int) -> None:
        """Commit the sent records, with the position after them."""
        if not self.is_open:
            self.producer.begin_transaction()
        place = self.part.place
        committed = OffsetAndMetadata(position, metadata=place.position(position))
        await self.producer.send_offsets({(place.target, place.partition): committed}, self.part.group)
        await self.producer.flush()
        faults.point("mirror.before_commit")
        await self.producer.commit_transaction()
        faults.point("mirror.after_commit")
        self.result.mirrored += self.records
        self.result.transactions += 1
        self.result.position = position
        self.records = self.size = 0
        self.is_open = False

    async def _wait_until_visible(self) -> None:
        """Wait until the newest record is visible to consumers: markers are written after the response to a commit."""
        if self.last is None:
            return
        place = (self.part.place.target, self.part.place.partition)
        offset = self.last.result().offset
        with trio.move_on_after(VISIBLE_SECONDS_MAX):
            while not await _is_visible(self.producer.client, place, offset):
                await trio.sleep(VISIBLE_POLL_SECONDS)


async def _is_visible(client: Client, place: tuple[str, int], offset: int) -> bool:
    latest = (await Admin(client).offsets({place: LATEST}, is_committed=True))[place]
    return isinstance(latest, OffsetAt) and latest.offset > offset


def is_from_target(part: Part, record: Record) -> bool:
    """Return whether the record originates in the target: it is not copied, to avoid loops."""
    for coordinates in coordinates_of(record):
        if coordinates.cluster_id == part.target_cluster_id and (
            coordinates.cluster_id != part.place.cluster_id or coordinates.topic_id == part.place.target_id
        ):
            return True
    return False
