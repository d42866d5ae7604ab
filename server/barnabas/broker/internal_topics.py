"""The journal of a coordinator, on a partitioned internal topic of this broker's log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from barnabas.ids import new_uuid
from barnabas.records.batch import encode_batch, iter_any_records, iter_batches
from barnabas.records.record import Record
from barnabas.records.validate import Origin

if TYPE_CHECKING:
    from barnabas.broker.app import Broker

READ_BYTES = 1 << 20


class InternalTopic:
    """Implements `coordination.journal.Journal`."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self._broker = broker
        self._topic = topic

    async def ensure(self) -> int:
        """Make the topic if need be; returns the number of its partitions."""
        await self._broker.ensure_topic(self._topic, new_uuid())
        return self.partition_count()

    def partition_count(self) -> int:
        """The number of its partitions, 0 while there is no such topic."""
        info = self._broker.metadata.image.topics.get(self._topic)
        return len(info.partitions) if info else 0

    def append(self, partition: int, records: Sequence[tuple[bytes, bytes | None]], now_ms: int) -> int:
        """Append records as one batch; returns the offset after them."""
        batch = bytearray(
            encode_batch(
                [Record(offset, now_ms, key, value, []) for offset, (key, value) in enumerate(records)]
            )
        )
        led = self._broker.partitions.leader(self._topic, partition)
        result = led.log.append_as_leader(
            memoryview(batch), leader_epoch=led.leader_epoch, now_ms=now_ms, origin=Origin.COORDINATOR
        )
        led.appended(result)
        return result.last_offset + 1

    async def wait_committed(self, partition: int, end_offset: int) -> None:
        """Wait for the high watermark."""
        await self._broker.partitions.leader(self._topic, partition).wait_committed(end_offset)

    def read(self, partition: int) -> Iterator[tuple[bytes, bytes | None]]:
        """All records of a partition, oldest first."""
        log = self._broker.partitions.leader(self._topic, partition).log
        offset, end = log.log_start_offset, log.log_end_offset
        while offset < end:
            data = log.read(offset, max_bytes=READ_BYTES, upper_offset=end, min_one_batch=True).to_bytes()
            if not data:
                return
            for position, header in iter_batches(data):
                offset = header.next_offset
                if header.is_control:
                    continue
                for record in iter_any_records(data, position):
                    if record.key is not None:
                        yield record.key, record.value
