"""Sizes of topics: records and bytes of their partitions, and their growth.

The rule: requests are for some hundred partitions each, also when all topics are sorted by size, so that other
requests do not wait for them.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import trio

from barnabas.client import ClientError
from barnabas.client.admin import EARLIEST, LATEST, LogDir, OffsetAt
from barnabas.client.administration.cluster import log_dir_of
from barnabas.client.errors import ResponseError
from barnabas.console.kept import Kept
from barnabas.wire.generated.describe_log_dirs import DescribeLogDirsRequest
from barnabas.wire.generated.list_offsets import ListOffsetsRequest

if TYPE_CHECKING:
    from barnabas.client.admin import Admin
    from barnabas.console.topic_index import TopicIndex, TopicRow

Partition = tuple[str, int]
Topics = dict[str, list[int]]
"""Topics with numbers of their partitions."""
Led = dict[int, Topics]
"""Partitions by their leaders."""
LIST_OFFSETS = 2
BATCH_PARTITIONS = 400
"""Partitions in one request if all topics are measured."""
RATE_SECONDS_MIN = 1.0
"""Least time between two samples for a rate."""
RATE_SECONDS_MAX = 120.0
"""Age at which a look is too old for that."""
GROWTH_SECONDS = 0.5
"""Seconds between two looks at the bytes of topics, which tell the topics that grow."""


class Sums(NamedTuple):
    """Measures by topic: records, bytes at the leaders that report them, and the sums of next offsets."""

    records: dict[str, int]
    bytes: dict[str, int]
    ends: dict[str, int]


COLUMNS = RECORDS, BYTES, RATE = "records", "bytes", "rate"
"""Measures of a topic, by which topics are sorted."""


async def sums_of(
    admin: Admin, rows: Sequence[TopicRow], partitions_max: int = 0, columns: Collection[str] = COLUMNS
) -> Sums:
    """Return the measures of topics for these columns; empty if the topics have more than `partitions_max` partitions.

    Raises ClientError.
    """
    sums = Sums({}, {}, {})
    if 0 < partitions_max < sum(row.partitions for row in rows):
        return sums
    firsts, lasts, sizes = await bounds_and_sizes(admin, led_by(rows), columns)
    records, held, ends = sums
    for (name, _), size in sizes.items():
        held[name] = held.get(name, 0) + size
    for (name, _), last in lasts.items():
        ends[name] = ends.get(name, 0) + last
    if RECORDS in columns:
        for place, last in lasts.items():
            if place in firsts:
                records[place[0]] = records.get(place[0], 0) + last - firsts[place]
    return sums


def led_by(rows: Iterable[TopicRow]) -> Led:
    """Return the partitions that have a leader, by that."""
    led: Led = {}
    for row in rows:
        for number, leader in enumerate(row.leaders):
            if leader >= 0:
                led.setdefault(leader, {}).setdefault(row.name, []).append(number)
    return led


class Measures(NamedTuple):
    """First and next offsets of partitions, and the bytes of their leaders, as far as known."""

    firsts: dict[Partition, int]
    lasts: dict[Partition, int]
    sizes: dict[Partition, int]


async def bounds_and_sizes(admin: Admin, led: Led, columns: Collection[str] = COLUMNS) -> Measures:
    """Return the measures of partitions for these columns, from their leaders.

    Raises ClientError, also if no leader can be reached.
    """
    measures = Measures({}, {}, {})
    await _check_reachable(admin, led)
    async with trio.open_nursery() as nursery:
        for broker, topics in led.items():
            if RECORDS in columns:
                nursery.start_soon(_look_up, admin, broker, topics, EARLIEST, measures.firsts)
            if RECORDS in columns or RATE in columns:
                nursery.start_soon(_look_up, admin, broker, topics, LATEST, measures.lasts)
            if BYTES in columns:
                nursery.start_soon(_weigh, admin, broker, topics, measures.sizes)
    return measures


async def _check_reachable(admin: Admin, led: Led) -> None:
    """Raise ClientError if no leader can be reached: cached facts about its partitions may be outdated.

    The leaders are tried concurrently: an unresponsive host delays no other.
    """
    errors: list[ClientError] = []

    async def connect(broker: int) -> None:
        try:
            await admin.client.broker(broker)
        except ClientError as error:
            errors.append(error)
        else:
            nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        for broker in led:
            nursery.start_soon(connect, broker)
    if errors and len(errors) == len(led):
        raise errors[-1]


async def _look_up(
    admin: Admin, broker: int, topics: Topics, time_ms: int, offsets: dict[Partition, int]
) -> None:
    """Add the offsets of a leader's partitions; those that it no longer leads are looked up through the metadata."""
    request = ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsRequest.ListOffsetsTopic(
                name,
                [
                    ListOffsetsRequest.ListOffsetsPartition(partition, timestamp=time_ms)
                    for partition in numbers
                ],
            )
            for name, numbers in topics.items()
        ],
    )
    missing: list[Partition]
    try:
        connection = await admin.client.broker(broker)
        version = connection.version_of(LIST_OFFSETS)
        answer = await connection.ask(request, version=version)
    except ClientError:
        missing = [(name, partition) for name, numbers in topics.items() for partition in numbers]
    else:
        missing = []
        for topic in answer.topics:
            name = topic.name
            for partition in topic.partitions:
                if partition.error_code:
                    missing.append((name, partition.partition_index))
                else:
                    offset = partition.offset if version else next(iter(partition.old_style_offsets), -1)
                    offsets[name, partition.partition_index] = offset
    if missing:
        for place, offset_at in (await admin.offsets(dict.fromkeys(missing, time_ms))).items():
            if isinstance(offset_at, OffsetAt):
                offsets[place] = offset_at.offset


async def _weigh(admin: Admin, broker: int, topics: Topics, sizes: dict[Partition, int]) -> None:
    request = DescribeLogDirsRequest(
        [DescribeLogDirsRequest.DescribableLogDirTopic(*item) for item in topics.items()]
    )
    try:
        connection = await admin.client.broker(broker)
        answer = await connection.ask(request)
    except ClientError:
        return  # a broker that is down
    for log_dir in answer.results:  # none where the visitor may not see the cluster
        for topic in log_dir.topics:
            name = topic.name
            for partition in topic.partitions:
                if not partition.is_future_key:
                    sizes[name, partition.partition_index] = partition.partition_size


async def log_dirs_of(admin: Admin, broker: int) -> list[LogDir]:
    """Return the log dirs of a broker, without replicas. Raises ClientError."""
    connection = await admin.client.broker(broker)
    answer = await connection.ask(DescribeLogDirsRequest([]))
    if answer.error_code:
        raise ResponseError(answer.error_code, f"asking broker {broker} for its log dirs")
    return [log_dir_of(broker, result) for result in answer.results]


class AllMeasured:
    """A column of all topics that a visitor may see, to sort by it."""

    def __init__(
        self,
        admin: Admin,
        index: TopicIndex,
        nursery: trio.Nursery,
        *,
        sums_of: Callable[..., Awaitable[Sums]] = sums_of,
    ) -> None:
        """`sums_of` measures a batch of topics."""
        self._admin = admin
        self._sums_of = sums_of
        self._index = index
        self._kept: dict[str, Kept[Mapping[str, float]]] = {
            column: Kept(partial(self._read, column), nursery) for column in (RECORDS, BYTES)
        }
        self._kept[RATE] = Kept(self.read_rates, nursery)
        self._looked_at_s = -math.inf
        self._sizes: Mapping[str, float] = {}
        self._ends: dict[str, tuple[float, float]] = {}

    async def get(self, column: str) -> Mapping[str, float]:
        """Return the value of each topic. Raises ClientError."""
        return await self._kept[column].get()

    async def _read(self, column: str, rows: Iterable[TopicRow] | None = None) -> Mapping[str, float]:
        """Return a column of topics, of all by default; of RATE the sums of next offsets."""
        values: dict[str, float] = {}
        for batch in _batches(await self._index.rows() if rows is None else rows):
            sums = await self._sums_of(self._admin, batch, columns=(column,))
            values |= {RECORDS: sums.records, BYTES: sums.bytes, RATE: sums.ends}[column]
            await trio.lowlevel.checkpoint()
        return values

    @property
    def bytes(self) -> float:
        """Bytes of all topics together, at the newest measurement for RATE."""
        return sum(self._sizes.values())

    def forget(self, column: str) -> None:
        """Read a column again at its next use."""
        self._kept[column].forget()

    async def read_rates(self) -> Mapping[str, float]:
        """Return records a second. Offsets are asked for only of topics with other bytes than at the look before."""
        before_s = self._looked_at_s
        self._looked_at_s = -math.inf  # a look that fails leaves none to compare with
        if trio.current_time() - before_s > RATE_SECONDS_MAX:
            self._sizes, self._ends = await self._read(BYTES), {}
            await trio.sleep(GROWTH_SECONDS)
        before, looked_at_s = self._sizes, trio.current_time()
        self._sizes, rows = await self._read(BYTES), await self._index.rows()
        self._kept[BYTES].note(self._sizes)
        await trio.lowlevel.checkpoint()
        grown = [row for row in rows if self._sizes.get(row.name, -1) != before.get(row.name)]
        new = [row for row in grown if row.name not in self._ends]
        await self._note_ends(new)
        if new:
            await trio.sleep(RATE_SECONDS_MIN)
        starts = dict(self._ends)
        await self._note_ends(grown)
        await trio.lowlevel.checkpoint()
        rates: dict[str, float] = {row.name: 0 for row in rows if row.partitions > row.offline}
        for row in grown:
            if row.name in starts:  # a partition without growth had the same end offset at the last sample
                (then_s, start), (now_s, end) = starts[row.name], self._ends[row.name]
                seconds = max(now_s - max(then_s, before_s), RATE_SECONDS_MIN)
                rates[row.name] = max(end - start, 0) / seconds
        await trio.lowlevel.checkpoint()
        self._looked_at_s = looked_at_s
        return rates

    async def _note_ends(self, rows: Iterable[TopicRow]) -> None:
        ends = await self._read(RATE, rows)
        now_s = trio.current_time()
        self._ends |= {name: (now_s, end) for name, end in ends.items()}


def _batches(rows: Iterable[TopicRow]) -> Iterator[list[TopicRow]]:
    """Yield topics, some hundred partitions at a time."""
    batch: list[TopicRow] = []
    partitions = 0
    for row in rows:
        batch.append(row)
        partitions += row.partitions
        if partitions >= BATCH_PARTITIONS:
            yield batch
            batch, partitions = [], 0
    if batch:
        yield batch
