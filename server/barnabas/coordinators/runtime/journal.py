"""The log of a coordinator's records, as the coordinator sees it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from barnabas.coordinators.statemachine.decision import Entry, Record
from barnabas.errors import RequestError, StorageError
from barnabas.wire.generated.errors import ErrorCode


class Journal(Protocol):
    """An internal topic."""

    @property
    def topic(self) -> str:
        """The name of the topic."""

    async def ensure(self) -> int:
        """Create the topic if necessary; returns the number of its partitions. Raises RequestError."""

    def leader_epoch(self, partition: int) -> int:
        """The leader epoch of a partition, which counts the coordinators it has had. Raises RequestError."""

    def partition_count(self) -> int:
        """The number of its partitions, 0 if the topic does not exist."""

    def is_empty(self, partition: int) -> bool:
        """Return whether a partition has no records to read. Raises RequestError."""

    def end_offset(self, partition: int) -> int:
        """The offset after the last record of a partition. Raises RequestError."""

    def append(
        self, partition: int, records: Sequence[Record], now_ms: int, producer: tuple[int, int] | None = None
    ) -> int:
        """Append records, in the transaction of `producer` if it is set; returns the offset after them.

        Raises RequestError, StorageError.
        """

    def is_committed(self, partition: int, end_offset: int) -> bool:
        """Return whether `wait_committed` would return immediately; False if in doubt."""

    async def wait_committed(self, partition: int, end_offset: int) -> None:
        """Wait for the high watermark to reach `end_offset`. Raises RequestError."""

    def delete_before(self, partition: int, offset: int) -> None:
        """Delete the records of a partition before `offset`. Raises RequestError, StorageError."""

    def read(self, partition: int) -> Iterator[Entry]:
        """Yield all batches of a partition, oldest first, up to its end when the last one is yielded.

        Raises RequestError, StorageError, CorruptRecordsError if the partition is damaged.
        """


def led_partitions(journal: Journal) -> list[int]:
    """Return the partitions that this broker leads, and the offline ones, which it cannot lead."""
    led = []
    for partition in range(journal.partition_count()):
        try:
            journal.leader_epoch(partition)
        except (RequestError, StorageError) as error:
            if isinstance(error, RequestError) and error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                continue
        led.append(partition)
    return led


def is_led_in(journal: Journal, partition: int, leader_epoch: int) -> bool:
    """Return whether this broker still leads a partition in that leader epoch."""
    try:
        return journal.leader_epoch(partition) == leader_epoch
    except (RequestError, StorageError):
        return False
