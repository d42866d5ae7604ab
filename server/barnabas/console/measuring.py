"""Sizes of topics: what their partitions hold, and how fast they grow.

The rule: partitions are asked for some hundred at a time, also where all topics are sorted by size, so that nobody else
waits for them.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import trio

from barnabas.client import ClientError
from barnabas.client.admin import EARLIEST, LATEST, LogDir, OffsetAt, TopicInfo
from barnabas.client.administration.cluster import log_dir_of
from barnabas.client.errors import ResponseError
from barnabas.console.kept import Kept
from barnabas.wire.generated.describe_log_dirs import DescribeLogDirsRequest

if TYPE_CHECKING:
    from barnabas.client.admin import Admin
    from barnabas.console.topic_index import TopicIndex, TopicRow

Partition = tuple[str, int]
LOG_DIRS = 35
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
    admin: Admin, names: Sequence[str], partitions_max: int = 0, columns: Collection[str] = COLUMNS
) -> dict[str, Sums]:
    """Return the sums of topics that some columns need; of none where they have more partitions than `partitions_max`.

    Raises ClientError.
    """
    found = await admin.topics(names)
    infos = {name: one for name, one in found.items() if isinstance(one, TopicInfo)}
    partitions = led(infos.values())
    if not partitions or 0 < partitions_max < len(partitions):
        return {}
    (firsts, lasts), sizes = await bounds_and_sizes(admin, infos, partitions, columns)
    sums: dict[str, Sums] = {}
    for name, info in infos.items():
        parts = [(name, one.number) for one in info.partitions]
        known = [(firsts[one], lasts[one]) for one in parts if one in firsts and one in lasts]
        held = sum(sizes.get(one, 0) for one in parts) if sizes else None
        end = sum(lasts.get(one, 0) for one in parts)
        sums[name] = Sums(sum(last - first for first, last in known), held, end)
    return sums


async def bounds_and_sizes(
    admin: Admin,
    infos: dict[str, TopicInfo],
    partitions: list[Partition],
    columns: Collection[str] = COLUMNS,
) -> tuple[tuple[dict[Partition, int], dict[Partition, int]], dict[Partition, int]]:
    """Return first and next offsets of partitions, and the bytes of their leaders, as far as columns need them."""
    bounds: dict[int, dict[Partition, int]] = {EARLIEST: {}, LATEST: {}}
    sizes: dict[Partition, int] = {}

    async def look_up(time_ms: int) -> None:
        found = await admin.offsets(dict.fromkeys(partitions, time_ms))
        bounds[time_ms] = {place: one.offset for place, one in found.items() if isinstance(one, OffsetAt)}

    async def weigh() -> None:
        sizes.update(await sizes_of(admin, infos.values()))

    async with trio.open_nursery() as nursery:
        if RECORDS in columns:
            nursery.start_soon(look_up, EARLIEST)
        if RECORDS in columns or RATE in columns:
            nursery.start_soon(look_up, LATEST)
        if BYTES in columns:
            nursery.start_soon(weigh)
    return (bounds[EARLIEST], bounds[LATEST]), sizes


async def sizes_of(admin: Admin, infos: Iterable[TopicInfo]) -> dict[Partition, int]:
    """Return the bytes of partitions on their leaders, as far as those tell them."""
    by_leader: dict[int, dict[str, list[int]]] = {}
    for info in infos:
        for one in info.partitions:
            if one.leader >= 0:
                by_leader.setdefault(one.leader, {}).setdefault(info.name, []).append(one.number)
    found: dict[Partition, int] = {}

    async def ask(broker: int) -> None:
        try:
            for log_dir in await log_dirs_of(admin, broker, by_leader[broker]):
                for one in log_dir.replicas:
                    if not one.is_future:
                        found[one.topic, one.partition] = one.size_bytes
        except ClientError:
            return  # a broker that is down, or a visitor who may not see the cluster

    async with trio.open_nursery() as nursery:
        for broker in by_leader:
            nursery.start_soon(ask, broker)
    return found


async def log_dirs_of(admin: Admin, broker: int, topics: dict[str, list[int]] | None = None) -> list[LogDir]:
    """Return the log dirs of a broker, with the replicas of these topics alone. Raises ClientError."""
    request = DescribeLogDirsRequest(
        [DescribeLogDirsRequest.DescribableLogDirTopic(name, parts) for name, parts in (topics or {}).items()]
    )
    connection = await admin.client.broker(broker)
    answer = await connection.ask(request, version=connection.version_of(LOG_DIRS))
    if answer.error_code:
        raise ResponseError(answer.error_code, f"asking broker {broker} for its log dirs")
    return [log_dir_of(broker, one) for one in answer.results]


def led(infos: Iterable[TopicInfo]) -> list[Partition]:
    """Return the partitions that have a leader."""
    return [(info.name, one.number) for info in infos for one in info.partitions if one.leader >= 0]


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
        for names in _batches(await self._index.rows()):
            for name, sums in (await sums_of(self._admin, names, columns=(column,))).items():
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


def _batches(rows: Iterable[TopicRow]) -> Iterator[list[str]]:
    """Yield names of topics, some hundred partitions at a time."""
    names: list[str] = []
    partitions = 0
    for row in rows:
        names.append(row.name)
        partitions += row.partitions
        if partitions >= BATCH_PARTITIONS:
            yield names
            names, partitions = [], 0
    if names:
        yield names
