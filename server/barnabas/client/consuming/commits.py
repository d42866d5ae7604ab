"""Commits of a consumer's offsets: on request of the program, and periodically.

The rule: a commit counts only for the present membership; if it is refused, the partitions belong to another member.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping

import trio

from barnabas.client.client import Client
from barnabas.client.consuming import offsets
from barnabas.client.consuming.partition import Partition
from barnabas.client.consuming.settings import ConsumerSettings
from barnabas.client.errors import ClientError, CommitFailedError, ResponseError
from barnabas.client.values import GroupMetadata, OffsetAndMetadata, TopicPartition
from barnabas.wire.generated.errors import ErrorCode

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


class Commits:
    """Commits offsets of a consumer that has a group. `run` is a task of the consumer."""

    def __init__(
        self,
        client: Client,
        settings: ConsumerSettings,
        partitions: dict[TopicPartition, Partition],
        group: Callable[[], GroupMetadata],
        is_member: Callable[[], bool],
        rejoin: Callable[[], None],
        send: Callable[[Client, GroupMetadata, Offsets], Awaitable[None]] = offsets.commit,
    ) -> None:
        """`is_member`: whether the consumer has subscribed; `rejoin` is called if the coordinator has lost the member."""
        self._client = client
        self._settings = settings
        self._partitions = partitions
        self._group = group
        self._is_member = is_member
        self._rejoin = rejoin
        self._send = send

    async def commit(self, values: Offsets) -> None:
        """Commit. Raises CommitFailedError, other ClientErrors."""
        if not values:
            await trio.lowlevel.checkpoint()
            return
        attempts = self._client.settings.retries
        while True:
            before = self._group()
            if self._is_member() and before.generation_id < 0:
                raise CommitFailedError(f"the consumer is not in group {before.group_id!r} now")
            try:
                await self._client.retrying(lambda: self._send(self._client, self._group(), values))
                break
            except CommitFailedError:
                if before.member_id and self._group() == before:
                    self._rejoin()
                raise
            except ResponseError as error:
                if error.code == ErrorCode.REBALANCE_IN_PROGRESS or not attempts:
                    raise CommitFailedError(str(error)) from error
                if error.code != ErrorCode.STALE_MEMBER_EPOCH:
                    raise
                attempts -= 1  # a heartbeat brings the newer epoch
                await trio.sleep(self._client.settings.retry_backoff_ms / 1000)
        for place, value in values.items():
            if (partition := self._partitions.get(place)) is not None:
                partition.committed_offset = value.offset

    async def commit_positions(self) -> None:
        """Commit the positions: the program has processed all records that it received. Raises as `commit`."""
        values = {
            place: OffsetAndMetadata(partition.offset, partition.epoch)
            for place, partition in self._partitions.items()
            if partition.offset >= 0
        }
        await self.commit(values)
        for place, value in values.items():
            partition = self._partitions.get(place)
            if partition is not None and partition.offset >= value.offset:  # else a seek moved it back
                partition.done_offset = max(partition.done_offset, value.offset)

    async def commit_done(self, places: Iterable[TopicPartition]) -> None:
        """Commit offsets of records that the program is done with, if they are new. Raises ClientError."""
        values = {}
        for place in places:
            partition = self._partitions.get(place)
            if partition is None or partition.done_offset < 0:
                continue
            if partition.done_offset != partition.committed_offset:
                epoch = partition.epoch if partition.done_offset == partition.offset else -1
                values[place] = OffsetAndMetadata(partition.done_offset, epoch)
        if values:
            await self.commit(values)

    async def run(self, fail: Callable[[ClientError], None]) -> None:
        """Commit periodically until cancelled; the program gets an error that is not retriable."""
        while True:
            await trio.sleep(self._settings.auto_commit_interval_ms / 1000)
            try:
                await self.commit_done(list(self._partitions))
            except ClientError as error:
                if not error.is_retriable and not isinstance(error, CommitFailedError):
                    fail(error)
                    return
