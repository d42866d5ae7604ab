"""Looks up positions: committed offsets, start and end offsets, and divergence of the log after a change of the leader.

The rule: one task does it for all partitions that need it; a position that the program moves meanwhile is not changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType

import trio

from barnabas.client.client import Client
from barnabas.client.consuming import offsets
from barnabas.client.consuming.partition import Partition
from barnabas.client.consuming.settings import ConsumerSettings
from barnabas.client.errors import (
    ClientError,
    CommitFailedError,
    LogTruncatedError,
    NoOffsetError,
    ResponseError,
)
from barnabas.client.topics import TopicWatch
from barnabas.client.values import GroupMetadata, TopicPartition


class Locator:
    """Looks up positions. `run` is a task of the consumer."""

    def __init__(
        self,
        client: Client,
        topics: TopicWatch,
        settings: ConsumerSettings,
        partitions: dict[TopicPartition, Partition],
        group: Callable[[], GroupMetadata | None],
        requests: ModuleType = offsets,
    ) -> None:
        self.moved = trio.Event()
        """Set, and replaced, when positions have been found, or cannot be."""
        self.changed: Callable[[], None] = lambda: None
        """Called then."""
        self._client = client
        self._topics = topics
        self._settings = settings
        self._partitions = partitions
        self._group = group
        self._requests = requests
        self._wakes = trio.Event()
        self._is_done = True

    def wake(self) -> None:
        """Wake the task that looks up positions."""
        self._wakes.set()

    async def run(self) -> None:
        """Look up missing offsets, for ever; retry after a pause."""
        settings = self._client.settings
        pause_s = settings.retry_backoff_ms / 1000
        while True:
            await self._wakes.wait()
            self._wakes = trio.Event()
            if await self.locate_all():
                pause_s = settings.retry_backoff_ms / 1000
            else:
                self._wakes.set()
                await trio.sleep(pause_s)
                pause_s = min(pause_s * 2, settings.retry_backoff_max_ms / 1000)
            self.moved.set()
            self.moved = trio.Event()
            self.changed()

    async def locate_all(self) -> bool:
        """Look up all missing positions, and return whether none is left."""
        self._is_done = True
        for step in (self._find_committed, self._find_bounds, self._validate):
            partitions = list(self._partitions.values())
            try:
                await step(partitions)
            except CommitFailedError:
                return False  # the group rebalances
            except ClientError as error:
                if error.is_retriable:
                    return False
                for partition in partitions:
                    if partition.offset < 0:
                        partition.failure = error
        return self._is_done

    def _take_errors(self, errors: Mapping[TopicPartition, ResponseError]) -> None:
        """Note the errors of single partitions: retriable ones for another attempt, others for the program."""
        for place, error in errors.items():
            if error.is_retriable:
                self._is_done = False
            elif place in self._partitions:
                self._partitions[place].failure = error

    async def _find_committed(self, partitions: list[Partition]) -> None:
        lacking = {
            partition.place: (partition, partition.seeks)
            for partition in partitions
            if partition.offset < 0 and not partition.reset
        }
        group = self._group()
        offsets_by_place = {}
        if group is not None and lacking:
            offsets_by_place = await self._requests.committed(
                self._client, group, lacking, stable=self._settings.is_committed_only
            )
        for place, (partition, seeks) in lacking.items():
            if partition.seeks != seeks:
                continue
            if place in offsets_by_place:
                partition.seek(offsets_by_place[place].offset, offsets_by_place[place].leader_epoch)
                partition.committed_offset = partition.offset
            elif self._settings.offset_reset == "none":
                partition.failure = NoOffsetError(f"no committed offset for {place}")
            else:
                partition.seek_to(self._settings.offset_reset)

    async def _find_bounds(self, partitions: list[Partition]) -> None:
        lacking = {
            partition.place: (partition, partition.seeks)
            for partition in partitions
            if partition.offset < 0 and partition.reset
        }
        if not lacking:
            return
        times = {place: offsets.BY_RESET[partition.reset] for place, (partition, _) in lacking.items()}
        results = await self._requests.list_offsets(
            self._client, self._topics, times, committed_only=self._settings.is_committed_only
        )
        self._take_errors(results.errors)
        for place, bound in results.values.items():
            partition, seeks = lacking[place]
            if partition.seeks == seeks and bound is not None:
                partition.seek(bound.offset)

    async def _validate(self, partitions: list[Partition]) -> None:
        """Check positions against the log of a new leader, which may have been truncated (KIP-320)."""
        checked: dict[TopicPartition, tuple[Partition, int, int]] = {}
        for partition in partitions:
            topic = self._topics.infos.get(partition.place.topic)
            info = None if topic is None else topic.partitions.get(partition.place.partition)
            if info is not None and partition.offset >= 0 and info.epoch > partition.leader_epoch:
                if partition.fetch_epoch < 0:
                    partition.leader_epoch = info.epoch
                else:
                    checked[partition.place] = partition, partition.seeks, info.epoch
        if not checked:
            return
        epochs = {place: partition.fetch_epoch for place, (partition, _, _) in checked.items()}
        results = await self._requests.epoch_ends(self._client, self._topics, epochs)
        self._take_errors(results.errors)
        for place, (partition, seeks, epoch) in checked.items():
            if partition.seeks != seeks or place in results.errors:
                continue
            _, end = results.values.get(place, (0, partition.fetch_offset))
            partition.leader_epoch = epoch
            if end >= partition.fetch_offset:
                continue
            if end >= partition.offset:
                partition.drop_fetched()
            elif self._settings.offset_reset == "none":
                text = f"{place} ends at {end}, and was read up to {partition.offset}"
                partition.failure = LogTruncatedError(text)
            elif end < 0:
                partition.seek_to(self._settings.offset_reset)
                self.wake()
            else:
                partition.seek(end)
