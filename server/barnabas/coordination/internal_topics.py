"""The journal of a coordinator, on a partitioned internal topic of this broker's log."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from barnabas.records.any_magic import iter_any_records
from barnabas.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, check_crc, encode_pairs, iter_batches
from barnabas.records.control import ControlType, parse_type
from barnabas.records.errors import CorruptRecordsError, RecordsError
from barnabas.statemachine.decision import Entry

if TYPE_CHECKING:
    from barnabas.cluster.store import MetadataStore
    from barnabas.cluster.topic_creation import TopicCreation
    from barnabas.log.partition_log import PartitionLog
    from barnabas.records.batch import BatchHeader
    from barnabas.replicas.manager import Replicas

log = logging.getLogger(__name__)

READ_BYTES = 1 << 20


class InternalTopic:
    """Implements `coordination.journal.Journal`."""

    def __init__(
        self, topic: str, *, metadata: MetadataStore, replicas: Replicas, creation: TopicCreation
    ) -> None:
        self._topic = topic
        self._metadata = metadata
        self._replicas = replicas
        self._creation = creation

    async def ensure(self) -> int:
        """Make the topic if need be; returns the number of its partitions."""
        await self._creation.ensure(self._topic)
        return self.partition_count()

    def leader_epoch(self, partition: int) -> int:
        """The leader epoch of a partition."""
        return self._replicas.leader(self._topic, partition).leader_epoch

    def partition_count(self) -> int:
        """The number of its partitions, 0 while there is no such topic."""
        info = self._metadata.image.topics.get(self._topic)
        return len(info.partitions) if info else 0

    def is_empty(self, partition: int) -> bool:
        """Whether there is nothing to read in a partition."""
        log = self._replicas.leader(self._topic, partition).log
        return log.log_start_offset == log.log_end_offset

    def end_offset(self, partition: int) -> int:
        """The offset after the last record of a partition."""
        return self._replicas.leader(self._topic, partition).log.log_end_offset

    def append(
        self,
        partition: int,
        records: Sequence[tuple[bytes, bytes | None]],
        now_ms: int,
        producer: tuple[int, int] | None = None,
    ) -> int:
        """Append records as one batch; returns the offset after them."""
        producer_id, epoch = producer or (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
        batch = encode_pairs(
            records,
            now_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
            transactional=producer is not None,
        )
        led = self._replicas.leader(self._topic, partition)
        return led.append_own(batch, now_ms=now_ms).last_offset + 1

    def is_committed(self, partition: int, end_offset: int) -> bool:
        """Whether the high watermark of a partition that is led here has reached `end_offset`."""
        replica = self._replicas.find(self._topic, partition)
        return replica is not None and not replica.closed and replica.log.high_watermark >= end_offset

    async def wait_committed(self, partition: int, end_offset: int) -> None:
        """Wait for the high watermark."""
        replica = self._replicas.leader(self._topic, partition)
        if replica.log.high_watermark < end_offset:
            await replica.wait_committed(end_offset)

    def delete_before(self, partition: int, offset: int) -> None:
        """Let a partition begin at `offset`."""
        self._replicas.leader(self._topic, partition).delete_records_before(offset)

    def read(self, partition: int) -> Iterator[Entry]:
        """All batches of a partition, oldest first, up to where it ends by then."""
        return read_entries(self._replicas.leader(self._topic, partition).log)


def read_entries(partition_log: PartitionLog) -> Iterator[Entry]:
    """All batches of the log of a coordinator's partition, oldest first, up to where it ends by then.

    A batch with a wrong checksum is left out, with an error in the log: what it says is not believed.
    Raises StorageError, and RecordsError where it cannot be known where the next batch begins.
    """
    offset = partition_log.log_start_offset
    while offset < (end := partition_log.log_end_offset):
        try:
            data = partition_log.read(
                offset, max_bytes=READ_BYTES, upper_offset=end, min_one_batch=True
            ).to_bytes()
            if not data:
                return
            for position, header in iter_batches(data):
                offset = header.next_offset
                if check_crc(data, position, header):
                    yield from _entries_of(data, position, header)
                else:
                    log.error(
                        "%s: the batch of offsets %d to %d is damaged and left out; %s",
                        partition_log.dir, header.base_offset, header.last_offset, _advice(partition_log),
                    )  # fmt: skip
        except RecordsError as error:
            raise CorruptRecordsError(
                f"{error.message}, at offset {offset}; {_advice(partition_log)}"
            ) from error


def _advice(partition_log: PartitionLog) -> str:
    return (
        "to cut out what is damaged, stop the broker and run: barnabas log repair --salvage "
        f"{partition_log.dir}"
    )


def _entries_of(data: bytes, position: int, header: BatchHeader) -> Iterator[Entry]:
    records = [record for record in iter_any_records(data, position) if record.key is not None]
    if header.is_control:
        for record in records:
            kind = parse_type(record.key)
            if kind in (ControlType.ABORT, ControlType.COMMIT):
                yield Entry([], header.producer_id, kind is ControlType.COMMIT)
        return
    yield Entry(
        [(record.key, record.value) for record in records if record.key is not None],
        header.producer_id if header.is_transactional else NO_PRODUCER_ID,
    )
