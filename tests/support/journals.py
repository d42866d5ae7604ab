"""A coordinator's journal in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import trio

from barnabas.coordinators.statemachine.decision import Entry, Record
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode


class MemoryJournal:
    """Implements `Journal` with one partition; reads raise `failure` if it is set.

    This broker leads the partition in `epoch`; it has no leader if that is None. Records are committed immediately, unless
    `commits` is cleared.
    """

    topic = "__consumer_offsets"

    def __init__(self, records: Sequence[Record] = ()) -> None:
        self.start = 0
        self.records: list[Record] = list(records)
        self.failure: Exception | None = None
        self.append_failure: Exception | None = None
        """Raised by appends, which append nothing then."""
        self.epoch: int | None = 0
        self.commits = trio.Event()
        self.commits.set()
        self.appends = 0
        """Number of batches that were appended."""

    async def ensure(self) -> int:
        return 1

    def leader_epoch(self, partition: int) -> int:
        if self.epoch is None:
            raise RequestError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self.epoch

    def partition_count(self) -> int:
        return 1

    def is_empty(self, partition: int) -> bool:
        return self.start == len(self.records)

    def end_offset(self, partition: int) -> int:
        return len(self.records)

    def append(
        self, partition: int, records: Sequence[Record], now_ms: int, producer: tuple[int, int] | None = None
    ) -> int:
        self.leader_epoch(partition)
        if self.append_failure is not None:
            raise self.append_failure
        self.records += records
        self.appends += 1
        return len(self.records)

    def is_committed(self, partition: int, end_offset: int) -> bool:
        return self.commits.is_set()

    async def wait_committed(self, partition: int, end_offset: int) -> None:
        assert end_offset <= len(self.records)
        if not self.commits.is_set():
            await self.commits.wait()

    def delete_before(self, partition: int, offset: int) -> None:
        assert self.start <= offset <= len(self.records)
        self.start = offset

    def read(self, partition: int) -> Iterator[Entry]:
        offset = self.start
        while offset < len(self.records):
            if self.failure is not None and offset >= len(self.records) // 2:
                raise self.failure
            yield Entry([self.records[offset]], offsets=[offset])
            offset += 1
