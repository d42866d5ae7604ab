"""The journal of a coordinator, on a partitioned internal topic of this broker's log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.config import broker as settings
from barnabas.groups.decision import Entry
from barnabas.records.batch import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    encode_batch,
    iter_any_records,
    iter_batches,
)
from barnabas.records.control import ControlType, parse_type
from barnabas.records.record import Record

if TYPE_CHECKING:
    from barnabas.broker.app import Broker
    from barnabas.config.loading import BrokerConfig
    from barnabas.config.setting import Setting
    from barnabas.log.partition_log import PartitionLog

READ_BYTES = 1 << 20
OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTION_TOPIC = "__transaction_state"
SHARE_TOPIC = "__share_group_state"


@dataclass(frozen=True, slots=True)
class Shape:
    """How an internal topic is made: the settings that say so, and its own settings."""

    partitions: Setting[int]
    replication_factor: Setting[int]
    segment_bytes: Setting[int]
    overrides: dict[str, str]

    def settings(self, config: BrokerConfig) -> dict[str, str]:
        """The topic's own settings."""
        return {**self.overrides, "segment.bytes": str(config.get(self.segment_bytes))}


SHAPES = {
    OFFSETS_TOPIC: Shape(
        settings.OFFSETS_TOPIC_NUM_PARTITIONS,
        settings.OFFSETS_TOPIC_REPLICATION_FACTOR,
        settings.OFFSETS_TOPIC_SEGMENT_BYTES,
        {"cleanup.policy": "compact", "compression.type": "producer"},
    ),
    TRANSACTION_TOPIC: Shape(
        settings.TRANSACTION_STATE_LOG_NUM_PARTITIONS,
        settings.TRANSACTION_STATE_LOG_REPLICATION_FACTOR,
        settings.TRANSACTION_STATE_LOG_SEGMENT_BYTES,
        {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "unclean.leader.election.enable": "false",
        },
    ),
    SHARE_TOPIC: Shape(
        settings.SHARE_COORDINATOR_STATE_TOPIC_NUM_PARTITIONS,
        settings.SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR,
        settings.SHARE_COORDINATOR_STATE_TOPIC_SEGMENT_BYTES,
        # Not compacted: updates add up. What a snapshot makes redundant is deleted by the coordinator.
        {"cleanup.policy": "delete", "compression.type": "producer", "retention.ms": "-1"},
    ),
}
"""The internal topics that are made when they are first used."""


class InternalTopic:
    """Implements `coordination.journal.Journal`."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self._broker = broker
        self._topic = topic

    async def ensure(self) -> int:
        """Make the topic if need be; returns the number of its partitions."""
        await self._broker.ensure_topic(self._topic)
        return self.partition_count()

    def leader_epoch(self, partition: int) -> int:
        """The leader epoch of a partition."""
        return self._broker.partitions.leader(self._topic, partition).leader_epoch

    def partition_count(self) -> int:
        """The number of its partitions, 0 while there is no such topic."""
        info = self._broker.metadata.image.topics.get(self._topic)
        return len(info.partitions) if info else 0

    def is_empty(self, partition: int) -> bool:
        """Whether there is nothing to read in a partition."""
        log = self._broker.partitions.leader(self._topic, partition).log
        return log.log_start_offset == log.log_end_offset

    def append(
        self,
        partition: int,
        records: Sequence[tuple[bytes, bytes | None]],
        now_ms: int,
        producer: tuple[int, int] | None = None,
    ) -> int:
        """Append records as one batch; returns the offset after them."""
        producer_id, epoch = producer or (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
        batch = bytearray(
            encode_batch(
                [Record(offset, now_ms, key, value, []) for offset, (key, value) in enumerate(records)],
                producer_id=producer_id,
                producer_epoch=epoch,
                transactional=producer is not None,
            )
        )
        led = self._broker.partitions.leader(self._topic, partition)
        return led.append_own(batch, now_ms=now_ms).last_offset + 1

    async def wait_committed(self, partition: int, end_offset: int) -> None:
        """Wait for the high watermark."""
        await self._broker.partitions.leader(self._topic, partition).wait_committed(end_offset)

    def delete_before(self, partition: int, offset: int) -> None:
        """Let a partition begin at `offset`."""
        self._broker.partitions.leader(self._topic, partition).log.delete_records_before(offset)

    def read(self, partition: int) -> Iterator[Entry]:
        """All batches of a partition, oldest first, up to where it ends by then."""
        return read_entries(self._broker.partitions.leader(self._topic, partition).log)


def read_entries(log: PartitionLog) -> Iterator[Entry]:
    """All batches of the log of a coordinator's partition, oldest first, up to where it ends by then.

    Raises StorageError, RecordsError.
    """
    offset = log.log_start_offset
    while offset < (end := log.log_end_offset):
        data = log.read(offset, max_bytes=READ_BYTES, upper_offset=end, min_one_batch=True).to_bytes()
        if not data:
            return
        for position, header in iter_batches(data):
            offset = header.next_offset
            records = [record for record in iter_any_records(data, position) if record.key is not None]
            if header.is_control:
                for record in records:
                    kind = parse_type(record.key)
                    if kind in (ControlType.ABORT, ControlType.COMMIT):
                        yield Entry([], header.producer_id, kind is ControlType.COMMIT)
                continue
            yield Entry(
                [(record.key, record.value) for record in records if record.key is not None],
                header.producer_id if header.is_transactional else NO_PRODUCER_ID,
            )
