"""Delivers records to the program, and tracks whether it is done with them.

The rule: a program is done with delivered records when it requests more, and busy until then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import trio

from barnabas.client.consuming.fetching import Fetcher
from barnabas.client.consuming.partition import Partition
from barnabas.client.values import ConsumedRecord, FetchedRecords, TopicPartition


class Handing:
    """Records between the fetcher and the program."""

    def __init__(self, fetcher: Fetcher, partitions: dict[TopicPartition, Partition]) -> None:
        self.idle = trio.Event()
        """Set while the program waits for more; replaced when it is handed something."""
        self.idle.set()
        self._fetcher = fetcher
        self._partitions = partitions
        self._handed: set[Partition] = set()
        """Partitions with delivered records that the program may not be done with."""
        self._busy_since: float | None = None

    def next(self) -> ConsumedRecord | None:
        """Return the next record, with partitions in turn; None if none was fetched. Raises DamagedRecordsError."""
        ready = self._fetcher.ready
        for _ in range(len(ready)):
            partition = ready[0]
            is_gone = self._partitions.get(partition.place) is not partition or partition.is_revoked
            if not is_gone and partition.is_paused:
                ready.rotate(-1)
                continue
            if not is_gone:
                chunks = len(partition.chunks)
                record = partition.next()
                if len(partition.chunks) < chunks:
                    self._fetcher.wake()
                    ready.rotate(-1)  # its next response comes after those of others
                if record is not None:
                    self._handed.add(partition)
                    return record
            if is_gone or not partition.chunks:
                ready.remove(partition)
        return None

    def add_more(self, records: list[ConsumedRecord], records_max: int) -> None:
        """Add fetched records, as `next` returns them, up to this many in all. Raises DamagedRecordsError."""
        while len(records) < records_max and (record := self.next()) is not None:
            records.append(record)
            place = record.topic_partition
            partition = self._partitions.get(place)
            if partition in self._handed and self._fetcher.ready[0] is partition:
                partition.add_opened(records, records_max)

    def unopened(self, ends: Mapping[Any, int], bytes_max: int) -> list[FetchedRecords]:
        """Return fetched batches of partitions, in turn, up to about `bytes_max`; pauses partitions at their end."""
        batches: list[FetchedRecords] = []
        size = 0
        while size < bytes_max and (fetched := self._next_unopened()) is not None:
            batches.append(fetched)
            size += len(fetched.data)
            place = TopicPartition(fetched.topic, fetched.partition)
            if fetched.end_offset >= ends.get(place, fetched.end_offset + 1):
                self._partitions[place].is_paused = True
        if batches:
            self.is_busy()
        return batches

    def _next_unopened(self) -> FetchedRecords | None:
        """Return the batches of one response for a partition, with partitions in turn; None if none was fetched."""
        ready = self._fetcher.ready
        for _ in range(len(ready)):
            partition = ready[0]
            is_gone = self._partitions.get(partition.place) is not partition or partition.is_revoked
            if not is_gone and partition.is_paused:
                ready.rotate(-1)
                continue
            fetched = None if is_gone else partition.next_unopened()
            if is_gone or not partition.chunks:
                ready.remove(partition)
            else:
                ready.rotate(-1)  # its next response comes after those of others
            if fetched is not None:
                self._fetcher.wake()
                self._handed.add(partition)
                return fetched
        return None

    def is_done(self) -> None:
        """Note that the program asks for more."""
        for partition in self._handed:
            partition.done_offset = partition.offset
        self._handed.clear()
        self._busy_since = None
        self.idle.set()

    def is_busy(self) -> None:
        """Note that the program has records."""
        if self._busy_since is None:
            self._busy_since = trio.current_time()
        if self.idle.is_set():
            self.idle = trio.Event()

    def busy_s(self) -> float:
        """Return for how long the program has been busy."""
        return 0.0 if self._busy_since is None else trio.current_time() - self._busy_since

    def drop(self, partition: Partition) -> None:
        """Drop the delivery of records of a partition, which now belongs to another member."""
        self._handed.discard(partition)
