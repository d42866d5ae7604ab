"""A consumer for Trio programs: records of partitions that it is assigned, or gets as a member of a group.

    async with open_consumer("localhost:9092", "events", settings=ConsumerSettings(group_id="readers")) as consumer:
        async for record in consumer:
            print(record.value)

The rule: a program is done with what it was handed when it asks for more. Only then are offsets committed automatically,
and partitions given up; a program that is cancelled or fails in between is handed the record again.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import trio

from barnabas.client.background import background
from barnabas.client.client import Client, open_client
from barnabas.client.connection import Dial, dial_tcp
from barnabas.client.consuming import offsets
from barnabas.client.consuming.commits import Commits
from barnabas.client.consuming.fetching import Fetcher
from barnabas.client.consuming.handing import Handing
from barnabas.client.consuming.locating import Locator
from barnabas.client.consuming.membership import Membership, Subscription
from barnabas.client.consuming.partition import Partition
from barnabas.client.consuming.settings import ConsumerSettings
from barnabas.client.errors import ClientError, ClosedError, CommitFailedError, NotAssignedError, copy_of
from barnabas.client.settings import ClientSettings, Endpoint
from barnabas.client.topics import TopicWatch
from barnabas.client.values import (
    ConsumedRecord,
    FetchedRecords,
    GroupMetadata,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    Place,
    TopicPartition,
)
from barnabas.patterns import compile_pattern

RECORDS_PER_TURN = 32
"""Records after which `receive` yields to other tasks: a turn of Trio's loop takes as long as several records."""
BATCH_RECORDS = 500  # as many as Kafka's `max.poll.records`
CLOSING_S = 5.0
"""For how long a consumer takes leave of its group after the block has failed."""
Places = Iterable[tuple[str, int]]
Callback = Callable[[set[TopicPartition]], Awaitable[object]]


class Consumer:
    """Lifecycle: `open_consumer`. Meant for one task that asks for records, whatever other tasks do with it."""

    def __init__(self, client: Client, settings: ConsumerSettings) -> None:
        self.settings = settings
        self.client = client
        """The client underneath, for requests of other kinds."""
        self.assigned: set[TopicPartition] = set()
        """Partitions that it has in its group; for the membership."""
        self._topics = TopicWatch(client, creates_topics=settings.creates_topics)
        self._partitions: dict[TopicPartition, Partition] = {}
        self._locator = Locator(client, self._topics, settings, self._partitions, self._group)
        self._fetcher = Fetcher(client, self._topics, settings, self._partitions, self._locator.wake)
        self._handing = Handing(self._fetcher, self._partitions)
        self._locator.changed = self._look_again
        self._membership: Membership | None = None
        self._commits = Commits(
            client,
            settings,
            self._partitions,
            self.group_metadata,
            lambda: self._membership is not None,
            self._rejoin,
        )
        self._nursery: trio.Nursery
        self._callbacks: dict[str, Callback | None] = {}
        self._failure: ClientError | None = None
        self._callback_failure: Exception | None = None
        self._received_in_turn = 0
        self._is_closed = False

    # --- assignment -----------------------------------------------------------------------------------------

    def assign(self, partitions: Places) -> None:
        """Take just these partitions, by hand. Raises RuntimeError after `subscribe`."""
        if self._membership is not None:
            raise RuntimeError("the consumer has subscribed: its group assigns")
        places = {TopicPartition(*partition) for partition in partitions}
        for place in self._partitions.keys() - places:
            self._drop(place)
        for place in places - self._partitions.keys():
            self._partitions[place] = Partition(place)
        self._topics.watch({place.topic for place in places})
        self._look_again()
        self._locator.wake()

    def subscribe(
        self,
        *topics: str,
        pattern: str | re.Pattern[str] | None = None,
        on_assigned: Callback | None = None,
        on_revoked: Callback | None = None,
        on_lost: Callback | None = None,
    ) -> None:
        """Become a member of the group, for topics by name, or for those that match a pattern from their beginning.

        The callbacks are async functions of a set of partitions. `on_revoked` runs while the partitions still are the
        consumer's; `on_lost` (by default the same) when they are not. Called again, it changes the topics. A pattern
        that is a text has RE2's syntax, and never takes long; one that Python has compiled is used as it is.
        Raises RuntimeError after `assign`, or without a group, ValueError for what is no pattern.
        """
        if self.settings.group_id is None:
            raise RuntimeError("a consumer that subscribes has a group_id")
        if bool(topics) == (pattern is not None):
            raise ValueError("a consumer subscribes to topics, or to a pattern")
        compiled = compile_pattern(pattern) if isinstance(pattern, str) else pattern
        if self._membership is None:
            from barnabas.client.consuming.kinds import membership_kind  # which only members need

            if self._partitions:
                raise RuntimeError("the consumer has partitions that were assigned by hand")
            self._membership = membership_kind(self.settings)(self.client, self._topics, self.settings, self)
            self._nursery.start_soon(self._membership.run)
        self._callbacks = {"assigned": on_assigned, "revoked": on_revoked, "lost": on_lost or on_revoked}
        self._membership.subscribe(Subscription(topics, compiled))

    @property
    def assignment(self) -> set[TopicPartition]:
        """The partitions that it has now."""
        return {place for place, partition in self._partitions.items() if not partition.is_revoked}

    def group_metadata(self) -> GroupMetadata:
        """Return its place in the group, for `Producer.send_offsets`. Raises RuntimeError without a group."""
        group = self._group()
        if group is None:
            raise RuntimeError("the consumer has no group_id")
        return group

    def _group(self) -> GroupMetadata | None:
        if self._membership is not None:
            return self._membership.metadata()
        return None if self.settings.group_id is None else GroupMetadata(self.settings.group_id)

    # --- records --------------------------------------------------------------------------------------------

    async def receive(self) -> ConsumedRecord:
        """Return the next record; the program is done with the one before. Nothing is lost if it is cancelled.

        Raises what went wrong with a partition (OffsetOutOfRangeError, NoOffsetError, LogTruncatedError,
        DamagedRecordsError, ResponseError), with the group (FencedInstanceError, ...), and in callbacks.
        """
        await self._take_turn()
        while True:
            self._raise_failures()
            record = self._handing.next()
            if record is not None:
                self._handing.is_busy()
                return record
            await self._fetcher.arrived.wait()

    async def receive_batch(self, records_max: int = BATCH_RECORDS) -> list[ConsumedRecord]:
        """Return at least one record, and as many more as are there; otherwise as `receive`."""
        records = [await self.receive()]
        with suppress(ClientError):  # it comes again with the next call
            self._handing.add_more(records, records_max)
        return records

    async def receive_until(
        self, ends: Mapping[Place, int], records_max: int = BATCH_RECORDS
    ) -> list[ConsumedRecord]:
        """Return records that come before these offsets; none once the positions of all these partitions are there.

        A partition that has got there is paused. Otherwise as `receive`.
        """
        await self._take_turn()
        limits = {TopicPartition(*place): end for place, end in ends.items()}
        records: list[ConsumedRecord] = []
        while True:
            self._raise_failures()
            while len(records) < records_max and (record := self._handing.next()) is not None:
                if record.offset < limits.get(record.topic_partition, record.offset + 1):
                    records.append(record)
                else:
                    self.seek(record.topic_partition, record.offset)
                    self.pause(record.topic_partition)
            if records:
                self._handing.is_busy()
                return records
            if all(self._partition(place).offset >= end for place, end in limits.items()):
                return []
            await self._fetcher.arrived.wait()

    async def receive_unopened(self, ends: Mapping[Place, int], bytes_max: int) -> list[FetchedRecords]:
        """Return batches as they were fetched, about `bytes_max` of them, none at these offsets; otherwise as `receive`."""
        await self._take_turn()
        while True:
            self._raise_failures()
            if fetched := self._handing.unopened(ends, bytes_max):
                return fetched
            if all(self._partition(place).offset >= end for place, end in ends.items()):
                return []
            await self._fetcher.arrived.wait()

    async def _take_turn(self) -> None:
        """Yield to other tasks now and then, and note that the program is done with the records it has."""
        self._received_in_turn += 1
        if self._received_in_turn >= RECORDS_PER_TURN:
            self._received_in_turn = 0
            await trio.lowlevel.checkpoint()
        else:
            await trio.lowlevel.checkpoint_if_cancelled()
        self._handing.is_done()

    def __aiter__(self) -> Consumer:
        return self

    async def __anext__(self) -> ConsumedRecord:
        return await self.receive()

    def _raise_failures(self) -> None:
        if self._is_closed:
            raise ClosedError("the consumer is closed")
        if self._callback_failure is not None:
            failure, self._callback_failure = self._callback_failure, None
            raise failure
        if self._failure is not None:
            raise copy_of(self._failure)
        for partition in self._partitions.values():
            if partition.failure is not None and not partition.chunks and not partition.is_paused:
                error, partition.failure = partition.failure, None
                self._look_again()
                self._locator.wake()
                raise error

    def _look_again(self) -> None:
        """Wake the tasks that wait for partitions or records."""
        self._fetcher.wake()
        self._fetcher.announce()

    # --- positions ------------------------------------------------------------------------------------------

    def seek(self, partition: tuple[str, int], offset: int) -> None:
        """Go on with a certain offset. Raises NotAssignedError."""
        self._partition(partition).seek(offset)
        self._look_again()
        self._locator.wake()

    def seek_to_beginning(self, *partitions: tuple[str, int]) -> None:
        """Go on with the first records that there are; of all partitions if none is named. Raises NotAssignedError."""
        self._seek_to("earliest", partitions)

    def seek_to_end(self, *partitions: tuple[str, int]) -> None:
        """Go on with what comes from now on."""
        self._seek_to("latest", partitions)

    def _seek_to(self, reset: str, partitions: Places) -> None:
        for place in list(partitions) or list(self._partitions):
            self._partition(place).seek_to(reset)
        self._look_again()
        self._locator.wake()

    async def position(self, partition: tuple[str, int]) -> int:
        """Return the offset of the next record to be handed out, once it is known. Raises NotAssignedError, ClientError."""
        while (assigned := self._partition(partition)).offset < 0:
            if assigned.failure is not None:
                raise copy_of(assigned.failure)
            await self._locator.moved.wait()
        return assigned.offset

    def pause(self, *partitions: tuple[str, int]) -> None:
        """Hand out nothing of these partitions until `resume`. Raises NotAssignedError."""
        for place in partitions:
            self._partition(place).is_paused = True

    def resume(self, *partitions: tuple[str, int]) -> None:
        """Hand out records of these partitions again. Raises NotAssignedError."""
        for place in partitions:
            self._partition(place).is_paused = False
        self._look_again()

    @property
    def paused(self) -> set[TopicPartition]:
        """The partitions that are paused."""
        return {place for place, partition in self._partitions.items() if partition.is_paused}

    def lag(self, partition: tuple[str, int]) -> int | None:
        """Return how many offsets are left up to the end as the last answer had it; None if that is not known yet."""
        return self._partition(partition).lag(is_committed_only=self.settings.is_committed_only)

    @property
    def buffered_bytes(self) -> int:
        """Bytes of batches that were fetched and not handed out yet."""
        return sum(partition.buffered_bytes for partition in self._partitions.values())

    async def beginning_offsets(self, partitions: Places) -> dict[TopicPartition, int]:
        """Return the offsets of the first records that there are. Raises ClientError."""
        return await self._bounds(partitions, offsets.EARLIEST)

    async def end_offsets(self, partitions: Places) -> dict[TopicPartition, int]:
        """Return the offsets after the last records that can be read. Raises ClientError."""
        return await self._bounds(partitions, offsets.LATEST)

    async def offsets_for_times(
        self, times_ms: Mapping[Place, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record that is not older than a time, by partition; None if all are. Raises ClientError."""
        return await self._list_offsets({TopicPartition(*place): time for place, time in times_ms.items()})

    async def _bounds(self, partitions: Places, time: int) -> dict[TopicPartition, int]:
        offsets_by_place = await self._list_offsets({TopicPartition(*place): time for place in partitions})
        return {place: bound.offset for place, bound in offsets_by_place.items() if bound is not None}

    async def _list_offsets(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        for topic in {place.topic for place in times}:
            await self.partitions(topic)  # so that its leaders are known

        async def attempt() -> dict[TopicPartition, OffsetAndTimestamp | None]:
            committed_only = self.settings.is_committed_only
            results = await offsets.list_offsets(
                self.client, self._topics, times, committed_only=committed_only
            )
            return results.all()

        return await self.client.retrying(attempt)

    async def partitions(self, topic: str) -> list[int]:
        """Return the partitions of a topic. Raises ResponseError."""
        await self.client.retrying(lambda: self.client.topic(topic))
        return sorted((await self._topics.topic(topic)).partitions)

    def _partition(self, place: tuple[str, int]) -> Partition:
        partition = self._partitions.get(TopicPartition(*place))
        if partition is None:
            raise NotAssignedError(f"{place[0]}-{place[1]} is not assigned")
        return partition

    # --- commits --------------------------------------------------------------------------------------------

    async def commit(self, offsets: Mapping[Place, OffsetAndMetadata | int] | None = None) -> None:
        """Commit the positions, with all records that were handed out, or certain offsets.

        Raises CommitFailedError when the partitions are another's by now, RuntimeError without a group, ClientError.
        """
        self.group_metadata()
        if offsets is None:
            await self._commits.commit_positions()
            return
        values = {
            TopicPartition(*place): offset
            if isinstance(offset, OffsetAndMetadata)
            else OffsetAndMetadata(offset)
            for place, offset in offsets.items()
        }
        await self._commits.commit(values)

    async def committed(self, partitions: Places) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return what the group has committed; None where there is nothing. Raises ClientError."""
        places = [TopicPartition(*place) for place in partitions]
        group = self.group_metadata()
        by_place = await self.client.retrying(
            lambda: offsets.committed(self.client, group, places, stable=self.settings.is_committed_only)
        )
        return {place: by_place.get(place) for place in places}

    def _rejoin(self) -> None:
        if self._membership is not None:
            self._membership.rejoin()

    # --- for the membership ---------------------------------------------------------------------------------

    async def add(self, places: set[TopicPartition]) -> None:
        """Take partitions on, and call the program."""
        for place in places:
            self._partitions[place] = Partition(place)
        self.assigned |= places
        await self._call("assigned", places)
        # Only now, because the program may have said where to begin.
        self._locator.wake()
        self._look_again()

    async def revoke(self, places: set[TopicPartition]) -> None:
        """Give partitions up, once the program is done with them, offsets committed; call the program."""
        for place in places & self._partitions.keys():
            self._partitions[place].is_revoked = True
        await self.idle()
        places = places & self.assigned  # they may have been lost meanwhile
        if not places:
            return
        if self.settings.is_auto_committing:
            with suppress(ClientError):  # the next owner then reads those records again
                await self._commits.commit_done(places)
        await self._call("revoked", places)
        self._remove(places & self.assigned)

    async def lose(self, places: set[TopicPartition]) -> None:
        """Drop partitions that others may have by now; call the program."""
        places = places & self.assigned
        self._remove(places)
        if places:
            await self._call("lost", places)

    def _remove(self, places: set[TopicPartition]) -> None:
        self.assigned -= places
        for place in places:
            self._drop(place)
        self._fetcher.wake()

    def _drop(self, place: TopicPartition) -> None:
        partition = self._partitions.pop(place)
        partition.is_revoked = True
        partition.seeks += 1
        self._handing.drop(partition)

    async def _call(self, name: str, places: set[TopicPartition]) -> None:
        callback = self._callbacks.get(name)
        if callback is None:
            return
        try:
            await callback(set(places))
        except Exception as error:
            self._callback_failure = error
            self._fetcher.announce()

    def busy_s(self) -> float:
        """Return for how long the program has been busy with what it was handed; 0 if it waits for more."""
        return self._handing.busy_s()

    async def idle(self) -> None:
        """Wait until the program asks for more."""
        await self._handing.idle.wait()

    def fail(self, error: ClientError) -> None:
        """Raise an error that ends the membership from the program's next call."""
        self._failure = error
        self._fetcher.announce()

    # --- lifecycle ------------------------------------------------------------------------------------------

    def _start(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        nursery.start_soon(self._topics.run)
        nursery.start_soon(self._locator.run)
        nursery.start_soon(self._fetcher.run)
        if self.settings.group_id is not None and self.settings.is_auto_committing:
            nursery.start_soon(self._commits.run, self.fail)

    async def _finish(self, *, is_well: bool) -> None:
        """Commit, give the partitions up, leave the group. Raises ClientError."""
        if is_well:
            self._handing.is_done()
        self._is_closed = True
        self._handing.idle.set()
        places = list(self._partitions)
        if self.settings.group_id is not None and self.settings.is_auto_committing and self._failure is None:
            with suppress(CommitFailedError):  # others have the partitions, and read those records again
                await self._commits.commit_done(places)
        if self._membership is not None:
            if self.assigned:
                await self._call("revoked", set(self.assigned))
            await self._membership.leave()
            if self._callback_failure is not None:
                raise self._callback_failure


@asynccontextmanager
async def open_consumer(
    bootstrap: str | Iterable[Endpoint],
    *topics: str,
    settings: ConsumerSettings | None = None,
    client_settings: ClientSettings | None = None,
    dial: Dial = dial_tcp,
) -> AsyncIterator[Consumer]:
    """Make a consumer, subscribed to the topics if some are named; at the end of the block it leaves its group.

    With automatic commits the offsets of records handed out are committed then, of all but the last one if the block
    raises. Exceptions of the block leave it as they are, not in an exception group."""
    chosen = settings or ConsumerSettings()
    common = replace(client_settings or ClientSettings(), creates_topics=chosen.creates_topics)
    async with open_client(bootstrap, common, dial=dial) as client, background() as nursery:
        consumer = Consumer(client, chosen)
        try:
            consumer._start(nursery)
            try:
                if topics:
                    consumer.subscribe(*topics)
                yield consumer
            except BaseException:
                with trio.move_on_after(CLOSING_S, shield=True), suppress(Exception):
                    await consumer._finish(is_well=False)  # what was raised matters more
                raise
            await consumer._finish(is_well=True)
        finally:
            consumer._is_closed = True
