"""Sizes of topics: what their partitions hold, and how fast they grow.

The rule: partitions are asked for some hundred at a time, also where all topics are sorted by size, so that nobody else
waits for them.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping
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
BATCH_PARTITIONS = 500
"""Partitions that are asked for together where all topics are."""
RATE_SECONDS_MIN = 1.0
"""Time between two looks of which a rate is made."""


class Sums(NamedTuple):
    """A topic: its records, the bytes on its leaders (None where they do not tell), and the sum of its next offsets."""

    records: int
    bytes: int | None
    end: int


COLUMNS = RECORDS, BYTES, RATE = "records", "bytes", "rate"
"""Measures of a topic, by which topics are sorted."""


async def sums_of(
    admin: Admin, rows: Iterable[TopicRow], partitions_max: int = 0, columns: Collection[str] = COLUMNS
) -> dict[str, Sums]:
    """Return the sums of topics that some columns need; of none where they have more partitions than `partitions_max`.

    Raises ClientError.
    """
    shown = list(rows)
    led = led_by(shown)
    count = sum(row.partitions - row.offline for row in shown)
    if not count or 0 < partitions_max < count:
        return {}
    firsts, lasts, sizes = await bounds_and_sizes(admin, led, columns)
    sums: dict[str, Sums] = {}
    for row in shown:
        parts = [(row.name, number) for number in range(row.partitions)]
        known = [(firsts[one], lasts[one]) for one in parts if one in firsts and one in lasts]
        held = sum(sizes.get(one, 0) for one in parts) if sizes else None
        end = sum(lasts.get(one, 0) for one in parts)
        sums[row.name] = Sums(sum(last - first for first, last in known), held, end)
    return sums


def led_by(rows: Iterable[TopicRow]) -> Led:
    """Return the partitions that have a leader, by that."""
    found: Led = {}
    for row in rows:
        for number, leader in enumerate(row.leaders):
            if leader >= 0:
                found.setdefault(leader, {}).setdefault(row.name, []).append(number)
    return found


class Measures(NamedTuple):
    """First and next offsets of partitions, and the bytes of their leaders, as far as they are told."""

    firsts: dict[Partition, int]
    lasts: dict[Partition, int]
    sizes: dict[Partition, int]


async def bounds_and_sizes(admin: Admin, led: Led, columns: Collection[str] = COLUMNS) -> Measures:
    """Return what columns need of partitions, which their leaders are asked for. Raises ClientError."""
    found = Measures({}, {}, {})
    async with trio.open_nursery() as nursery:
        for broker, topics in led.items():
            if RECORDS in columns:
                nursery.start_soon(_look_up, admin, broker, topics, EARLIEST, found.firsts)
            if RECORDS in columns or RATE in columns:
                nursery.start_soon(_look_up, admin, broker, topics, LATEST, found.lasts)
            if BYTES in columns:
                nursery.start_soon(_weigh, admin, broker, topics, found.sizes)
    return found


async def _look_up(
    admin: Admin, broker: int, topics: Topics, time_ms: int, found: dict[Partition, int]
) -> None:
    """Add the offsets of a leader's partitions; those that it leads no more are looked for by the metadata."""
    request = ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsRequest.ListOffsetsTopic(
                name, [ListOffsetsRequest.ListOffsetsPartition(one, timestamp=time_ms) for one in numbers]
            )
            for name, numbers in topics.items()
        ],
    )
    left: list[Partition]
    try:
        connection = await admin.client.broker(broker)
        version = connection.version_of(LIST_OFFSETS)
        answer = await connection.ask(request, version=version)
    except ClientError:
        left = [(name, one) for name, numbers in topics.items() for one in numbers]
    else:
        left = []
        for topic in answer.topics:
            name = topic.name
            for one in topic.partitions:
                if one.error_code:
                    left.append((name, one.partition_index))
                else:
                    offset = one.offset if version else next(iter(one.old_style_offsets), -1)
                    found[name, one.partition_index] = offset
    if left:
        for place, offset_at in (await admin.offsets(dict.fromkeys(left, time_ms))).items():
            if isinstance(offset_at, OffsetAt):
                found[place] = offset_at.offset


async def _weigh(admin: Admin, broker: int, topics: Topics, found: dict[Partition, int]) -> None:
    request = DescribeLogDirsRequest(
        [DescribeLogDirsRequest.DescribableLogDirTopic(*one) for one in topics.items()]
    )
    try:
        connection = await admin.client.broker(broker)
        answer = await connection.ask(request)
    except ClientError:
        return  # a broker that is down
    for log_dir in answer.results:  # none where the visitor may not see the cluster
        for topic in log_dir.topics:
            name = topic.name
            for one in topic.partitions:
                if not one.is_future_key:
                    found[name, one.partition_index] = one.partition_size


async def log_dirs_of(admin: Admin, broker: int) -> list[LogDir]:
    """Return the log dirs of a broker, without replicas. Raises ClientError."""
    connection = await admin.client.broker(broker)
    answer = await connection.ask(DescribeLogDirsRequest([]))
    if answer.error_code:
        raise ResponseError(answer.error_code, f"asking broker {broker} for its log dirs")
    return [log_dir_of(broker, one) for one in answer.results]


class AllMeasured:
    """One column of all topics that a visitor may see, for who sorts by it."""

    def __init__(self, admin: Admin, index: TopicIndex, nursery: trio.Nursery) -> None:
        self._admin = admin
        self._index = index
        self._kept = {column: Kept(partial(self._read, column), nursery) for column in COLUMNS}
        self._ends: dict[str, tuple[float, int]] = {}

    async def get(self, column: str) -> Mapping[str, float]:
        """Return what is known of each topic. Raises ClientError."""
        return await self._kept[column].get()

    async def _read(self, column: str) -> Mapping[str, float]:
        if column == RATE and not self._ends:  # a rate needs two looks
            await self._sums(column)
            await trio.sleep(RATE_SECONDS_MIN)
        return await self._sums(column)

    async def _sums(self, column: str) -> Mapping[str, float]:
        found: dict[str, float] = {}
        before, self._ends = self._ends, {} if column == RATE else self._ends
        for rows in _batches(await self._index.rows()):
            for name, sums in (await sums_of(self._admin, rows, columns=(column,))).items():
                if column == RECORDS:
                    found[name] = sums.records
                elif column == BYTES:
                    found[name] = -1 if sums.bytes is None else sums.bytes
                else:
                    now_s = time.monotonic()
                    self._ends[name] = now_s, sums.end
                    then_s, end = before.get(name, (now_s, sums.end))
                    found[name] = max(sums.end - end, 0) / max(now_s - then_s, RATE_SECONDS_MIN)
            await trio.lowlevel.checkpoint()
        return found


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
