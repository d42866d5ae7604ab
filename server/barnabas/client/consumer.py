"""A consumer for Trio programs: records of partitions assigned by the program, or by the consumer's group.

    async with open_consumer("localhost:9092", "events", settings=ConsumerSettings(group_id="readers")) as consumer:
        async for record in consumer:
            print(record.value)

The rule: a program has processed a record when it requests the next one. Only then are offsets committed automatically, and
partitions revoked; a program that is cancelled or fails in between receives the record again.

A partition is a `TopicPartition`, or any pair of a topic's name and an index. An offset is that of the next record to read,
as in Kafka: the one after the last record read. Times are in ms since 1970.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable, Mapping
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
from barnabas.client.consuming.ownership import Callback, Ownership
from barnabas.client.consuming.partition import Partition
from barnabas.client.consuming.settings import ConsumerSettings
from barnabas.client.errors import ClientError, ClosedError, NotAssignedError, copy_of
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


class Consumer:
    """Reads records of partitions. Lifecycle: `open_consumer`.

    One task receives records; any task may call the other methods meanwhile.
    """

    def __init__(self, client: Client, settings: ConsumerSettings) -> None:
        self.settings = settings
        self.client = client
        """The client underneath, for requests of other kinds."""
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
        self._ownership = Ownership(
            settings, self._partitions, self._locator, self._fetcher, self._handing, self._commits
        )
        self._nursery: trio.Nursery
        self._received_in_turn = 0
        self._is_closed = False

    # --- assignment -----------------------------------------------------------------------------------------

    def assign(self, partitions: Places) -> None:
        """Read exactly these partitions, without being a member of a group; replaces an earlier assignment.

        Partitions that are new begin at the group's committed offset, if there is a group, else at `offset_reset`.
        Raises RuntimeError after `subscribe`.
        """
        if self._membership is not None:
            raise RuntimeError("the consumer has subscribed: its group assigns")
        places = {TopicPartition(*partition) for partition in partitions}
        for place in self._partitions.keys() - places:
            self._ownership.drop(place)
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
        """Join the group, which assigns partitions of the topics; a later call changes the topics.

        Args:
            topics: names of topics; either these or a pattern.
            pattern: regular expression, matched from the first character of topics' names, present and future ones. A text
                has RE2's syntax, which takes linear time; a compiled `re.Pattern` is used as it is.
            on_assigned: async function of the partitions that are added, called before their first record is fetched,
                so that it may call `seek`.
            on_revoked: the same for partitions that will be revoked, while this consumer still owns them.
            on_lost: the same for partitions that it no longer owns, for example after a session timeout; by default
                `on_revoked`, as in Kafka's ConsumerRebalanceListener.

        Raises RuntimeError after `assign` or without `group_id`, ValueError for an invalid pattern. Errors of callbacks are
        raised by the next `receive`.
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
            kind = membership_kind(self.settings)
            self._membership = kind(self.client, self._topics, self.settings, self._ownership)
            self._nursery.start_soon(self._membership.run)
        self._ownership.callbacks = {
            "assigned": on_assigned, "revoked": on_revoked, "lost": on_lost or on_revoked,
        }  # fmt: skip
        self._membership.subscribe(Subscription(topics, compiled))

    @property
    def assignment(self) -> set[TopicPartition]:
        """The partitions assigned to the consumer now, by its group or by `assign`."""
        return {place for place, partition in self._partitions.items() if not partition.is_revoked}

    def group_metadata(self) -> GroupMetadata:
        """Return group, member and generation, for `Producer.send_offsets` (KIP-447).

        Raises RuntimeError without a group.
        """
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
        """Wait for the next record and return it; a cancelled call loses no record.

        Records of a partition are returned in the order of their offsets; partitions alternate.

        Raises OffsetOutOfRangeError, NoOffsetError, LogTruncatedError, DamagedRecordsError or ResponseError for a
        partition, FencedInstanceError and other ClientErrors for the group, errors of callbacks, and ClosedError.
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
        """Wait for a record, and return it with those already fetched, `records_max` at most. Raises as `receive`."""
        records = [await self.receive()]
        with suppress(ClientError):  # it comes again with the next call
            self._handing.add_more(records, records_max)
        return records

    async def receive_until(
        self, ends: Mapping[Place, int], records_max: int = BATCH_RECORDS
    ) -> list[ConsumedRecord]:
        """Return the next records before the end offset of their partition, an empty list once all are read.

        A partition at its end offset is paused. `ends` maps partitions to end offsets, exclusive, as `end_offsets`
        returns them; partitions without an entry have none. Raises as `receive`.
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
        """Return record batches as they were fetched, about `bytes_max` bytes, an empty list once all are read.

        `ends` is as in `receive_until`; the last batch of a partition may go beyond its end. Raises as `receive`.
        """
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
        self._ownership.raise_failures()
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
        """Continue with the first record of a partition at or after an offset. Raises NotAssignedError."""
        self._partition(partition).seek(offset)
        self._look_again()
        self._locator.wake()

    def seek_to_beginning(self, *partitions: tuple[str, int]) -> None:
        """Seek to the log start of these partitions, or of all that are assigned. Raises NotAssignedError."""
        self._seek_to("earliest", partitions)

    def seek_to_end(self, *partitions: tuple[str, int]) -> None:
        """Seek to the log end of these partitions, or of all that are assigned. Raises NotAssignedError.

        With `is_committed_only` that is the last stable offset.
        """
        self._seek_to("latest", partitions)

    def _seek_to(self, reset: str, partitions: Places) -> None:
        for place in list(partitions) or list(self._partitions):
            self._partition(place).seek_to(reset)
        self._look_again()
        self._locator.wake()

    async def position(self, partition: tuple[str, int]) -> int:
        """Return the offset of the next record to receive, once it was looked up. Raises NotAssignedError, ClientError."""
        while (assigned := self._partition(partition)).offset < 0:
            if assigned.failure is not None:
                raise copy_of(assigned.failure)
            await self._locator.moved.wait()
        return assigned.offset

    def pause(self, *partitions: tuple[str, int]) -> None:
        """Receive no records of these partitions until `resume`. Raises NotAssignedError."""
        for place in partitions:
            self._partition(place).is_paused = True

    def resume(self, *partitions: tuple[str, int]) -> None:
        """Receive records of these paused partitions again. Raises NotAssignedError."""
        for place in partitions:
            self._partition(place).is_paused = False
        self._look_again()

    @property
    def paused(self) -> set[TopicPartition]:
        """The partitions that are paused."""
        return {place for place, partition in self._partitions.items() if partition.is_paused}

    def lag(self, partition: tuple[str, int]) -> int | None:
        """Return the number of offsets from the position to the log end of the last response; None before the first one.

        Raises NotAssignedError.
        """
        return self._partition(partition).lag(is_committed_only=self.settings.is_committed_only)

    @property
    def buffered_bytes(self) -> int:
        """Bytes of fetched batches with records that were not received yet."""
        return sum(partition.buffered_bytes for partition in self._partitions.values())

    async def beginning_offsets(self, partitions: Places) -> dict[TopicPartition, int]:
        """Return the log start offset of each partition, assigned or not. Raises ClientError."""
        return await self._bounds(partitions, offsets.EARLIEST)

    async def end_offsets(self, partitions: Places) -> dict[TopicPartition, int]:
        """Return the end offset of each partition: the high watermark, or the last stable offset. Raises ClientError."""
        return await self._bounds(partitions, offsets.LATEST)

    async def offsets_for_times(
        self, times_ms: Mapping[Place, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return offset and timestamp of the first record at or after a time in ms, by partition; None without one.

        Raises ClientError.
        """
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
        """Return the indexes of a topic's partitions, in order. Raises ResponseError."""
        await self.client.retrying(lambda: self.client.topic(topic))
        return sorted((await self._topics.topic(topic)).partitions)

    def _partition(self, place: tuple[str, int]) -> Partition:
        partition = self._partitions.get(TopicPartition(*place))
        if partition is None:
            raise NotAssignedError(f"{place[0]}-{place[1]} is not assigned")
        return partition

    # --- commits --------------------------------------------------------------------------------------------

    async def commit(self, offsets: Mapping[Place, OffsetAndMetadata | int] | None = None) -> None:
        """Commit offsets: these, or by default the positions of all assigned partitions, after all records received.

        Raises CommitFailedError if another member owns a partition by now, RuntimeError without a group, ClientError.
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
        """Return offset and metadata that the group has committed, by partition; None without a commit.

        Raises RuntimeError without a group, ClientError.
        """
        places = [TopicPartition(*place) for place in partitions]
        group = self.group_metadata()
        by_place = await self.client.retrying(
            lambda: offsets.committed(self.client, group, places, stable=self.settings.is_committed_only)
        )
        return {place: by_place.get(place) for place in places}

    def _rejoin(self) -> None:
        if self._membership is not None:
            self._membership.rejoin()

    # --- lifecycle ------------------------------------------------------------------------------------------

    def _start(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        nursery.start_soon(self._topics.run)
        nursery.start_soon(self._locator.run)
        nursery.start_soon(self._fetcher.run)
        if self.settings.group_id is not None and self.settings.is_auto_committing:
            nursery.start_soon(self._commits.run, self._ownership.fail)

    async def _finish(self, *, is_well: bool) -> None:
        """Commit, give the partitions up, leave the group. Raises ClientError."""
        if is_well:
            self._handing.is_done()
        self._is_closed = True
        self._handing.idle.set()
        leave = None if self._membership is None else self._membership.leave
        await self._ownership.finish(leave)


@asynccontextmanager
async def open_consumer(
    bootstrap: str | Iterable[Endpoint],
    *topics: str,
    settings: ConsumerSettings | None = None,
    client_settings: ClientSettings | None = None,
    dial: Dial = dial_tcp,
) -> AsyncIterator[Consumer]:
    """Create a consumer; at the end of the block it commits, if auto-commit is on, and leaves its group.

    Args:
        bootstrap: addresses as in `bootstrap.servers`, or (host, port) pairs.
        topics: topics to subscribe to; without any, the program calls `subscribe` or `assign`.
        settings: settings of the consumer, by default without a group.
        client_settings: settings of connections: security, timeouts, retries.
        dial: function that opens a connection.

    If the block raises, the last record received is not committed. Exceptions of the block are raised as they are, not in
    an exception group. Raises ClientError if the group cannot be left or offsets cannot be committed.
    """
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
                    await consumer._finish(is_well=False)  # the first error is more important
                raise
            await consumer._finish(is_well=True)
        finally:
            consumer._is_closed = True
